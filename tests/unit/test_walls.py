"""The walls of the house (docs/design.md, section 3): who may import whom, and what stays pure.

A static scan of the import statements, so that a wall is also seen where a module cannot be
imported on this machine.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Importable by everyone; among themselves they may import each other.
COMMON = {
    *("model", "request", "layout", "environment", "config", "hostlist", "units"),
    # small grammars and rules beside them
    *(
        "access",
        "admission",
        "bits",
        "cpuset",
        "dependency",
        "distribution",
        "errors",
        "features",
        "gpushare",
        "gres",
        "licenses",
        "multiprog",
        "reserve",
    ),
    *(
        "patterns",
        "periods",
        "rawtext",
        "stepenv",
        "taskbind",
        "taskcpus",
        "taskset",
        "topology",
        "tres",
    ),
}

#: The arrows of the design; what an arrow's end may import, its start may import too (downward).
ARROWS: dict[str, set[str]] = {
    "frontend": {"cli", "store", "accounting", "wire"},
    "accounting": {"store", "wire", "client"},
    # What a listing shows of accounts it works out with the ledger's own, pure code.
    "cli": {"wire", "client", "policy"},
    "client": {"wire"},
    "local": {"wire", "client", "cli", "store"},
    "controller": {"ledger", "scheduling", "policy", "store", "wire", "metrics", "accounting"},
    "ledger": {"cluster", "policy"},
    "scheduling": {"cluster", "policy"},
    "cluster": {"_core", "together", "forecast", "nodepolicy"},
    "nodepolicy": {"_core"},
    "together": {"_core", "forecast"},
    "forecast": {"_core"},
    "slurmd_compat": {"slurmd_compat.agent", "wire"},
    "slurmd_compat.agent": set(),
    "simulate": {"ledger", "scheduling", "slurmd_compat.agent", "_core"},
    "_reference": {"_core"},
}

#: Message structs are data: whoever speaks of messages without sending any may import them.
MESSAGES = tuple(f"gsched.wire.{name}" for name in ("codec", "messages", "nodes", "steps"))
MAY_NAME_MESSAGES = {"slurmd_compat.agent", "simulate", "ledger"}

PURE = {
    *("ledger", "scheduling", "policy", "cluster", "together", "forecast", "model", "_core"),
    "slurmd_compat.agent",
}

#: Sockets, clocks, files, processes, SQL, the command line.
IMPURE = {
    *("asyncio", "http", "select", "selectors", "socket", "socketserver", "ssl", "urllib", "zmq"),
    *("calendar", "datetime", "sched", "time", "zoneinfo"),
    *("fcntl", "glob", "io", "lmdb", "mmap", "os", "pathlib", "shutil", "tempfile"),
    *("concurrent", "multiprocessing", "posix", "subprocess", "threading"),
    *("sqlalchemy", "sqlite3"),
    *("argparse", "click", "pynvml", "sys"),
}


#: The stop-watch of a benchmark inside the core; it decides nothing.
EXCEPTIONS = {("gsched._core", "time.perf_counter_ns")}


@dataclass
class Module:
    """One source file: its dotted name, its room and the dotted names it imports."""

    name: str
    path: Path
    imports: dict[str, int] = field(default_factory=dict)
    calls_open: int = 0

    @property
    def room(self) -> str:
        return room_of(self.name)


def room_of(name: str) -> str:
    """The room a dotted module name lies in; "" for the package gsched itself."""
    parts = name.split(".")
    if parts[0] == "gsched_cli":
        return "cli"
    if parts[0] == "slurmd_compat":
        return "slurmd_compat.agent" if parts[1:2] == ["agent"] else "slurmd_compat"
    return parts[1] if len(parts) > 1 else ""


def dotted_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "cli":
        parts[0] = "gsched_cli"
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`: naming a type is not using a room."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If):
            test = node.test
            if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
                todo.extend(node.orelse)
                continue
        yield node
        todo.extend(ast.iter_child_nodes(node))


def scan_python(path: Path) -> Module:
    module = Module(dotted_name(path), path)
    package = module.name.split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in runtime_nodes(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.imports.setdefault(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from gsched import ledger` imports the room, not only the package.
                module.imports.setdefault(f"{target}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in {"open", "input", "print"}:
                module.calls_open = module.calls_open or node.lineno
    return module


def scan_cython(path: Path) -> Module:
    module = Module("gsched._core", path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r"\s*(?:from\s+([\w.]+)\s+)?c?import\s+([\w.]+)", line)
        if found:
            module.imports.setdefault(".".join(filter(None, found.groups())), number)
    return module


def all_modules() -> list[Module]:
    modules = []
    for top in ("gsched", "slurmd_compat", "cli"):
        for path in sorted((ROOT / top).rglob("*.py")):
            modules.append(scan_python(path))
    for path in [ROOT / "gsched/_core.pyx", *sorted((ROOT / "gsched/core").glob("*.pxi"))]:
        if path.exists():
            modules.append(scan_cython(path))
    return modules


MODULES = all_modules()


def is_ours(name: str) -> bool:
    return name.split(".")[0] in {"gsched", "gsched_cli", "slurmd_compat"}


def reachable(room: str) -> set[str]:
    """Rooms that may be imported from a room: along the arrows, any number of them."""
    seen: set[str] = set()
    todo = [room]
    while todo:
        for target in ARROWS.get(todo.pop(), set()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def where(module: Module, line: int) -> str:
    return f"{module.path.relative_to(ROOT)}:{line}"


def wrong_arrows(module: Module) -> list[str]:
    room = module.room
    if room == "":
        allowed = set()
    elif room in COMMON:
        allowed = COMMON
    else:
        allowed = COMMON | reachable(room) | {room}
    found = []
    for name, line in module.imports.items():
        if not is_ours(name):
            continue
        target = room_of(name)
        if target == "slurmd_compat" and room == "slurmd_compat.agent":
            if name.startswith("slurmd_compat.__"):
                continue
        # Names of the package itself: gsched.__version__ and the like.
        if name in {"gsched", "gsched.__version__", "gsched.SLURM_VERSION"}:
            continue
        if name.startswith(MESSAGES):
            if room in MAY_NAME_MESSAGES:
                continue
        if target not in allowed:
            found.append(f"{where(module, line)}: {room or 'gsched'} imports {name} ({target})")
    return found


def impurities(module: Module) -> list[str]:
    found = [
        f"{where(module, line)}: {module.name} imports {name}"
        for name, line in module.imports.items()
        if name.split(".")[0] in IMPURE and (module.name, name) not in EXCEPTIONS
    ]
    if module.calls_open:
        found.append(f"{where(module, module.calls_open)}: {module.name} opens, reads or prints")
    return found


def test_something_was_scanned() -> None:
    assert {"gsched", "gsched.config", "gsched_cli"} <= {module.name for module in MODULES}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.path.relative_to(ROOT)))
def test_arrows_run_downward(module: Module) -> None:
    assert wrong_arrows(module) == []


@pytest.mark.parametrize(
    "module",
    [m for m in MODULES if m.room in PURE or m.name in MESSAGES],
    ids=lambda module: str(module.path.relative_to(ROOT)),
)
def test_pure_rooms_stay_pure(module: Module) -> None:
    assert impurities(module) == []


def test_messages_come_without_sockets() -> None:
    """Importing the package of the messages must not pull in what sends them."""
    for module in MODULES:
        if module.name == "gsched.wire":
            assert impurities(module) == []
            assert [n for n in module.imports if is_ours(n) and not n.startswith(MESSAGES)] == []


def test_the_oracle_stays_out_of_production() -> None:
    users = [
        m.name
        for m in MODULES
        if not m.name.startswith("gsched._reference")
        and any(n.startswith("gsched._reference") for n in m.imports)
    ]
    assert users == []


def test_the_scan_sees_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "gsched" / "ledger" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "import os.path\nfrom ..store import db\nfrom time import monotonic\nopen('x')\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = scan_python(bad)
    assert module.name == "gsched.ledger.bad"
    assert [line.split(": ")[0] for line in wrong_arrows(module)] == ["gsched/ledger/bad.py:2"]
    assert sorted(line.split(": ")[0] for line in impurities(module)) == [
        "gsched/ledger/bad.py:1",
        "gsched/ledger/bad.py:3",
        "gsched/ledger/bad.py:4",
    ]
