"""Supervisors of a spool directory that its journal does not know: the journal, or all of the
directory, was lost while jobs ran.

The controller hears nothing of their attempts and starts the jobs again, so they must be ended
first: their GPUs would be given out twice. Where there are control groups those are swept as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection
from pathlib import Path

from slurmd_compat.launcher import kill_strays

_DIRECTORY = re.compile(r"job([0-9]+)(?:\.[0-9]+)?")
#: seconds for which the end of what was killed is waited for
_PATIENCE_S = 2.0


def end_unknown(spool: Path, known: Collection[Path], node: str, conf: str) -> list[str]:
    """Kills living supervisors of job directories below `spool` that are not in `known`, and all
    processes of their jobs; returns a sentence on each. Cost: a look at every process."""
    parents = _parents()
    said = []
    for pid in parents:
        directory = _serves(pid, spool)
        if directory is None or directory in known:
            continue
        found = _DIRECTORY.fullmatch(directory.name)
        if found is None:
            continue
        tree = _below(pid, parents)
        for member in tree:
            with contextlib.suppress(OSError):
                os.kill(member, signal.SIGKILL)
        _await_end(tree)
        strays = kill_strays(int(found[1]), node, conf)
        said.append(
            f"a supervisor ran in {directory}, which no attempt in the journal owns: "
            f"{len(tree) + strays} processes were killed"
        )
    return said


def _parents() -> dict[int, int]:
    """Every process and its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(f"/proc/{name}/stat").read_text(errors="replace")
                found[int(name)] = int(text.rpartition(")")[2].split()[1])
    return found


def _serves(pid: int, spool: Path) -> Path | None:
    """The job directory below `spool` that a process of this daemon's user supervises."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if len(words) < 2 or os.path.basename(words[0]) != b"stepd":
        return None
    directory = Path(os.fsdecode(words[1]))
    return directory if directory.parent == spool else None


def _below(pid: int, parents: dict[int, int]) -> list[int]:
    """A process and its descendants: a supervisor keeps even those that left their parents."""
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _await_end(pids: list[int]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and any(map(_alive, pids)):
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def describe(pid: int) -> str:
    """A process in a few words: "123 (dd, D, nfs_wait)"; what is not to be known is left out."""
    words = []
    for name in ("comm", "stat", "wchan"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace").strip()
        except OSError:
            continue
        if name == "stat":
            text = text.rpartition(")")[2].split()[0]
        clean = "".join(char for char in text if char.isprintable())
        if clean and clean != "0":
            words.append(clean)
    return f"{pid} ({', '.join(words)})" if words else str(pid)
