"""The supervisor of a step: a small C program that lies beside this file, and how to talk to it.

What it is to run reaches it through its standard input, or as a file `spec` in the directory of
the step. There it keeps `status` and, when nobody follows it any more, `ctl` (its control socket).
stepd.c says what the commands and events are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gsched.rawtext import to_bytes


def program() -> Path:
    """Where the compiled supervisor lies; FileNotFoundError when it was not built."""
    path = Path(__file__).with_name("stepd")
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: the C parts were not built (pip install .)")
    return path


def encode_spec(records: Iterable[tuple[str, str | bytes | int]]) -> bytes:
    """The bytes of a spec file from (key, value) records in order.

    Text is what was kept of bytes (gsched/rawtext.py). ValueError for a NUL in a value or a key
    that is not a plain word: such a record would be read as two.
    """
    out = bytearray()
    for key, value in records:
        if not key or not key.replace("_", "").isalnum():
            raise ValueError(f"not a key of a step's spec: {key!r}")
        data = value if isinstance(value, bytes) else to_bytes(str(value))
        if b"\0" in data:
            raise ValueError(f"a NUL byte in {key} of a step's spec")
        out += key.encode() + b"=" + data + b"\0"
    return bytes(out)


@dataclass(slots=True)
class TaskStatus:
    """What has become of one task of a step, or of a batch script."""

    #: its process; 0 before it was started
    pid: int = 0
    #: wait status; None while it (or its epilog) runs. 53 (ExitCode 0:53): its files could not be
    #: opened
    wstatus: int | None = None
    #: none, timeout, killed or oom
    cause: str = "none"
    user_us: int = 0
    system_us: int = 0
    max_rss_kb: int = 0
    elapsed_ms: int = 0

    def end(self, words: list[str]) -> None:
        """WSTATUS CAUSE UTIME_US STIME_US MAXRSS_KB ELAPSED_MS. Raises ValueError."""
        wstatus, cause, *others = words
        numbers = [int(word) for word in (wstatus, *others)]
        self.wstatus, self.user_us, self.system_us, self.max_rss_kb, self.elapsed_ms = numbers
        self.cause = cause


@dataclass(slots=True)
class Status(TaskStatus):
    """What a supervisor has recorded (its status file, or the lines of `watch` taken together). Of
    a step of tasks the inherited fields say what they come to together."""

    #: pid of the supervisor itself; 0 unknown
    stepd_pid: int = 0
    #: starting, running, ending or released
    state: str = ""
    #: errno and text ("open: ...", "exec: ...", "setup: ..."); None: it could start
    failed: tuple[int, str] | None = None
    released: bool = False
    #: by global task id; empty for a batch step
    tasks: dict[int, TaskStatus] = field(default_factory=dict)

    def feed(self, line: str) -> bool:
        """Takes one line of the status file, of `watch` or of an event; False if unknown."""
        word, _, rest = line.rstrip("\n").partition(" ")
        try:
            match word:
                case "stepd":
                    self.stepd_pid = int(rest.split()[1])
                case "state":
                    self.state = rest.split()[0]
                case "started":
                    self.pid = int(rest)
                case "failed":
                    number, _, text = rest.partition(" ")
                    self.failed = (int(number), text)
                case "ended":
                    self.end(rest.split())
                case "released":
                    self.released = True
                case "task":
                    self._feed_task(rest)
                case _:
                    return False
        except (ValueError, IndexError):
            return False
        return True

    def _feed_task(self, rest: str) -> None:
        number, word, *values = rest.split()
        task = self.tasks.setdefault(int(number), TaskStatus())
        if word == "started":
            task.pid = int(values[0])
        elif word == "ended":
            task.end(values)
        else:
            raise ValueError(word)


def read_status(directory: Path) -> Status | None:
    """The record a supervisor left in its directory; None when it never began (no status file)."""
    try:
        text = (directory / "status").read_text(errors="replace")
    except OSError:
        return None
    status = Status()
    # A last line without its end is still being written, or was never finished.
    for line in text.split("\n")[:-1]:
        status.feed(line)
    return status
