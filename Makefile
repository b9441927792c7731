# Verbs: demo, test, test-vm, sanitize, bench, lint. Everything happens in a virtual environment of the project's own.

PYTHON ?= python3
VENV ?= .venv
# Arguments for pytest, e.g.  make test ARGS="tests/unit -k hostlist"
ARGS ?=
# Tests that run at once: those of whole clusters wait more than they compute. More would get into
# each other's time, with several daemons each.
WORKERS ?= 4

# A file of tests goes to one worker, whose tests share its cluster; files in the order of their names,
# so that those without processes, which take little each, come last and fill the end.
SPREAD := --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What an installation is made from: a change in any of it installs again.
SOURCES := pyproject.toml setup.py $(shell find gsched slurmd_compat cli \
	-name '*.py' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxi' -o -name '*.[ch]' \
	-o -name '*.json' | grep -v '_core\.c$$')

# The core with sanitizers, and what it is made from.
SANITIZED := $(VENV)/sanitized/gsched/_core.abi3.so
CORE := gsched/_core.pyx $(wildcard gsched/core/*.pxi) $(shell find gsched/_reference -name '*.py') \
	$(wildcard gsched/*.py) tools/sanitize-core.sh

.PHONY: demo test test-vm sanitize sanitize-core sanitize-stepd sanitize-client venv build sanitized bench lint clean

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/demo.sh

# A plain installation, so the tests see what a user gets; `pytest` and not `python -m pytest`,
# which would import the source tree without its compiled core.
test: $(VENV)/.tested
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -n $(WORKERS) $(SPREAD) $(ARGS)

# Control groups of version 2, in a virtual machine; skips where there is no QEMU.
test-vm: $(VENV)/.tested
	$(BIN)/python tools/run_in_vm.py $(ARGS)

# The core's, the supervisor's and the client's tests on builds that stop at the first wrong access or
# undefined operation.
sanitize: sanitize-core sanitize-stepd sanitize-client

sanitize-core: $(VENV)/.tested $(SANITIZED)
	PYTHON="$(CURDIR)/$(BIN)/python" tools/sanitize-core.sh test $(VENV)/sanitized -n 2 $(SPREAD) $(ARGS)

sanitize-stepd sanitize-client: sanitize-%: $(VENV)/.tested
	PYTHON="$(CURDIR)/$(BIN)/python" tools/sanitize-program.sh $* -n 2 $(SPREAD) $(ARGS)

# The parts of the above that take long, one by one.
venv: $(VENV)/bin/python
build: $(VENV)/.tested
sanitized: $(SANITIZED)

bench: $(VENV)/.tested
	$(BIN)/python bench/run_all.py $(ARGS)

lint: $(VENV)/.linted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict gsched

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gsched needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || \
	  { echo "gsched needs a C compiler to build (Debian and Ubuntu: apt-get install build-essential python3-dev)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

# A module that is gone from the source must not come back from an earlier build.
define fresh
	@[ ! -d build ] || find build -path 'build/lib*' -name '*.py' -delete
endef

$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
	$(fresh)
	$(PIP) install -q .
	@touch $@

$(VENV)/.tested: $(SOURCES) | $(VENV)/bin/python
	$(fresh)
	$(PIP) install -q '.[test]'
	@touch $(VENV)/.installed $@

# Cython in a place of its own: the project may be about to be installed at the same time.
$(SANITIZED): $(CORE) | $(VENV)/bin/python
	[ -d $(VENV)/cython ] || $(PIP) install -q --target $(VENV)/cython 'Cython>=3.1'
	PYTHON="$(CURDIR)/$(BIN)/python" PYTHONPATH="$(CURDIR)/$(VENV)/cython" \
	  tools/sanitize-core.sh build $(VENV)/sanitized

$(VENV)/.linted: $(SOURCES) | $(VENV)/bin/python
	$(fresh)
	$(PIP) install -q '.[test,lint]'
	@touch $(VENV)/.installed $(VENV)/.tested $@

clean:
	rm -rf build dist *.egg-info $(VENV) gsched/_core.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
