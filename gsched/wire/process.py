"""What every daemon does to its own process: user, files, pid file, background, log."""

from __future__ import annotations

import contextlib
import getopt
import os
import pwd
import resource
import sys
import time
from collections.abc import MutableMapping, Sequence
from typing import Any, NoReturn, TextIO

import structlog

from gsched import SLURM_VERSION

#: Slurm's words for how much is logged, by increasing volume.
LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4")
_METHOD_LEVEL = {"critical": 1, "error": 2, "warning": 3, "info": 3, "verbose": 4, "debug": 5}
_SHOWN = {"critical": "fatal: ", "error": "error: ", "warning": "warning: ", "debug": "debug:  "}


class ProcessProblem(Exception):
    """The process cannot be set up; the text is one sentence."""


def leave(text: str, code: int) -> NoReturn:
    """Ends the process with one text, on stderr if the exit code says failure."""
    (sys.stderr if code else sys.stdout).write(text + "\n")
    sys.exit(code)


def flags(
    name: str, usage: str, argv: Sequence[str], short: str, long: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """A daemon's command line as (flag, value) pairs, in getopt's words for `short` and `long`.
    -h, -V and mistakes (1) end the process."""
    try:
        pairs, rest = getopt.gnu_getopt(list(argv), short, ["help", "version", *long])
    except getopt.GetoptError as error:
        leave(f"{name}: {error}\n{usage}", 1)
    for flag, _ in pairs:
        if flag in ("-V", "--version"):
            leave(f"slurm {SLURM_VERSION}", 0)
        if flag in ("-h", "--help"):
            leave(usage, 0)
    if rest:
        leave(f"{name}: unexpected argument {rest[0]!r}\n{usage}", 1)
    return pairs


def nice_value(name: str, text: str) -> int:
    """The number of -n; anything else ends the process."""
    try:
        return int(text)
    except ValueError:
        leave(f"{name}: invalid nice value {text!r}", 1)


def user_id(name: str) -> tuple[int, int]:
    """(uid, gid) of a user name or number. Raises ProcessProblem for an unknown one."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if name.isdigit():
            return int(name), int(name)
        raise ProcessProblem(f"SlurmUser={name}: there is no such user") from None
    return entry.pw_uid, entry.pw_gid


def become(name: str) -> int:
    """As root: becomes the user for good; returns the uid that the process now has.

    Anybody else must be that user already, or is told so.
    """
    uid, gid = user_id(name)
    me = os.geteuid()
    if me == uid:
        return uid
    if me != 0:
        raise ProcessProblem(f"SlurmUser={name} is not the user who runs this (uid {me})")
    with contextlib.suppress(PermissionError):
        os.initgroups(name, gid)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    return uid


def own_directory(path: str, name: str, mode: int) -> None:
    """Makes a directory; as root, gives one that was just made to the daemon's user."""
    if os.path.isdir(path):
        return
    uid, gid = user_id(name)
    try:
        os.makedirs(path, mode=mode, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, uid, gid)
    except OSError as error:
        raise ProcessProblem(f"cannot make {path}: {error.strerror}") from None


def raise_file_limit() -> None:
    """Lets the process have as many open files as it may: a link is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def into_background() -> None:
    """The classical double fork; returns only in the daemon. Call it before threads and files."""
    for _ in range(2):
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork():
            os._exit(0)
        with contextlib.suppress(PermissionError):
            os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if null > 2:
        os.close(null)


class PidFile:
    """This process's number where others look for it."""

    def __init__(self, path: str) -> None:
        """Writes it. Raises ProcessProblem. An old file is no obstacle: locks decide, not it."""
        self._path = path
        self._text = f"{os.getpid()}\n"
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "w", encoding="ascii") as file:
                file.write(self._text)
            os.replace(temporary, path)
        except OSError as error:
            raise ProcessProblem(f"cannot write {path}: {error.strerror}") from None

    def remove(self) -> None:
        """Removes it, unless another process has put its own there since."""
        with contextlib.suppress(OSError):
            with open(self._path, encoding="ascii") as file:
                mine = file.read() == self._text
            if mine:
                os.unlink(self._path)


class Log:
    """The daemon's log: one line an event, in Slurm's form; the file can be opened anew."""

    def __init__(self, path: str, level: str, *, foreground: bool) -> None:
        """`path` "" logs to standard error only; a daemon in the foreground logs there too."""
        self._path = path
        self._foreground = foreground or not path
        self._file: TextIO | None = None
        self._level = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        self.reopen()
        structlog.configure(
            processors=[self._write],
            wrapper_class=structlog.BoundLogger,
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        self.logger: Any = structlog.get_logger()

    def reopen(self) -> None:
        """Opens the file anew (after a rotation). Raises ProcessProblem the first time only."""
        if not self._path:
            return
        try:
            new = open(  # noqa: SIM115
                self._path, "a", encoding="utf-8", errors="backslashreplace", buffering=1
            )
        except OSError as error:
            if self._file is None:
                raise ProcessProblem(f"cannot write {self._path}: {error.strerror}") from None
            return
        if self._file is not None:
            self._file.close()
        self._file = new

    def _write(self, _: Any, method: str, event: MutableMapping[str, Any]) -> str:
        if _METHOD_LEVEL.get(method, 3) > self._level:
            raise structlog.DropEvent
        text = str(event.pop("event", ""))
        rest = "".join(f" {name}={value}" for name, value in event.items())
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        body = (text + rest).replace("\n", "\\n")
        line = f"[{stamp}.{int(now % 1 * 1000):03d}] {_SHOWN.get(method, '')}{body}\n"
        if self._file is not None:
            # A full disk must not end the daemon for the sake of its log.
            with contextlib.suppress(OSError, ValueError):
                self._file.write(line)
        if self._foreground:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
        return ""
