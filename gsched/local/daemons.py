"""Starting, recognising and stopping the daemons of one cluster, and nobody else's processes.

A process is ours only if a record in the cluster's run directory names its pid, its start time and
the boot it was started in, and the kernel says the same of the living process. A daemon that
somebody started by hand against the same slurm.conf is recognised by its pid file and command line.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Daemon:
    """One daemon of a cluster: how it is called, started and recognised."""

    name: str
    argv: tuple[str, ...]
    #: the daemon's own pid file, as slurm.conf names it
    pid_file: Path
    #: where its standard output and error go
    out: Path
    #: words that its command line must contain
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Process:
    """A living process, named so that a recycled pid is never taken for it."""

    pid: int
    #: start time in clock ticks since boot, as /proc tells it
    start: int


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_of(pid: int) -> int | None:
    """Start time of a living process; None if there is none (a zombie does not count)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def command_line(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return os.fsdecode(raw).split("\0")[:-1]


def find(run: Path, daemon: Daemon) -> Process | None:
    """The living process of a daemon, or None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((run / f"{daemon.name}.up").read_text())
        pid, start = int(record["pid"]), int(record["start"])
        if record["boot"] == boot_id() and start_of(pid) == start:
            return Process(pid, start)
    with suppress(OSError, ValueError):
        pid = int(daemon.pid_file.read_text().split()[0])
        started = start_of(pid)
        words = command_line(pid)
        if started is not None and all(mark in words for mark in daemon.marks):
            return Process(pid, started)
    return None


def environment(bin_dir: Path) -> dict[str, str]:
    """What daemons get of the caller's environment: enough to find programs, nothing of Slurm."""
    kept = {"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
    env = {
        name: value
        for name, value in os.environ.items()
        if name in kept or name.startswith(("GSCHED_", "COVERAGE_"))
    }
    env["PATH"] = f"{bin_dir}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return env


def start(run: Path, daemon: Daemon, env: dict[str, str]) -> Process:
    """Starts a daemon in a session of its own and records it. OSError if it cannot be started."""
    daemon.out.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    out = os.open(daemon.out, flags, 0o644)
    try:
        child = subprocess.Popen(
            daemon.argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            env=env,
            start_new_session=True,
            umask=0o022,
        )
    finally:
        os.close(out)
    started = start_of(child.pid)
    process = Process(child.pid, -1 if started is None else started)
    record = {"pid": process.pid, "start": process.start, "boot": boot_id()}
    temporary = run / f".{daemon.name}.up.new"
    temporary.write_text(json.dumps(record) + "\n")
    temporary.replace(run / f"{daemon.name}.up")
    # Its end is read from /proc; the interpreter must not warn that nobody waited for it.
    child.returncode = 0
    return process


def reap() -> None:
    """Takes note of children that have ended, so that they do not look alive."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def alive(process: Process) -> bool:
    return start_of(process.pid) == process.start


def stop(processes: Iterable[Process], grace_s: float) -> list[Process]:
    """SIGTERM, up to `grace_s` seconds of patience, SIGKILL. Returns those that had to be killed.

    The signals go through pidfds that were checked against the start time: a pid that was
    given to another process in between is never hit.
    """
    held: list[tuple[Process, int]] = []
    for process in processes:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(process.pid)
            if alive(process):
                held.append((process, fd))
            else:
                os.close(fd)
    try:
        for _, fd in held:
            _send(fd, signal.SIGTERM)
        _wait([fd for _, fd in held], time.monotonic() + grace_s)
        killed = [(process, fd) for process, fd in held if not _ended(fd)]
        for _, fd in killed:
            _send(fd, signal.SIGKILL)
        _wait([fd for _, fd in killed], time.monotonic() + 5)
    finally:
        for _, fd in held:
            os.close(fd)
    reap()
    return [process for process, _ in killed]


def _send(fd: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, number)


def _ended(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _wait(fds: Sequence[int], until: float) -> None:
    left = list(fds)
    while left and (rest := until - time.monotonic()) > 0:
        done = select.select(left, [], [], rest)[0]
        left = [fd for fd in left if fd not in done]


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """One `gsched up` or `down` of a cluster at a time: the second waits for the first."""
    run.mkdir(parents=True, exist_ok=True)
    fd = os.open(run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Whoever may read it could lock it, too.
        os.fchmod(fd, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def bin_dir() -> Path:
    """Where sbatch and the other commands of this installation are."""
    for place in (Path(sys.argv[0]).absolute().parent, Path(sys.executable).parent):
        if (place / "sbatch").exists() and (place / "gsched").exists():
            return place
    import sysconfig

    return Path(sysconfig.get_path("scripts"))
