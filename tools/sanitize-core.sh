#!/bin/sh
# Runs the core's tests against a build with AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     tools/sanitize-core.sh build DIR
#     tools/sanitize-core.sh test DIR [pytest arguments]
#
# `build` makes the core in DIR from the source tree; the installed core is not touched. Needs gcc
# with libasan, and a Python (PYTHON, default python3) with cython to build, with pytest and
# hypothesis to test.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
cc=${CC:-gcc}
usage="usage: tools/sanitize-core.sh build|test DIR [pytest arguments]"
what=${1:?$usage}
mkdir -p "${2:?$usage}"
work=$(cd "$2" && pwd)
shift 2

build() {
    rm -rf "$work/gsched"
    mkdir "$work/gsched"
    cp "$root"/gsched/*.py "$root"/gsched/_core.pyx "$work/gsched/"
    cp -r "$root"/gsched/_reference "$work/gsched/_reference"
    cp -r "$root"/gsched/core "$work/gsched/core"
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    (cd "$work" && "$python" -m cython -3 gsched/_core.pyx -o gsched/_core.c)
    "$cc" -g -O1 -fno-omit-frame-pointer -fPIC -shared -DPy_LIMITED_API=0x030B0000 \
        -fsanitize=address,undefined -fno-sanitize-recover=undefined \
        -I"$include" "$work/gsched/_core.c" -o "$work/gsched/_core.abi3.so.new"
    mv "$work/gsched/_core.abi3.so.new" "$work/gsched/_core.abi3.so"
}

run() {
    # Python itself leaks on purpose; memory is the interpreter's to report, errors are the core's.
    LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)"
    export LD_PRELOAD
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export PYTHONPATH="$work" PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
    "$python" -P - "$work" <<'END'
import sys
import gsched._core
assert gsched._core.__file__.startswith(sys.argv[1]), gsched._core.__file__
END
    cd "$root"
    # -P: the source tree's own core must not come first.
    "$python" -P -m pytest -q -p no:cacheprovider "$@" tests/unit/test_core_*.py
}

case $what in
build) build ;;
test) run "$@" ;;
*) echo "$usage" >&2 && exit 2 ;;
esac
