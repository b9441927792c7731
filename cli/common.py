"""What every command shares: its streams, its way in and out of the process, `-V`.

A command is a function `run(argv, env, cwd, streams, reader) -> exit code`; `command_main` wraps it
for a process. Imports here are what every command pays for at start: only the standard library's
cheapest modules, everything else where it is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TextIO

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.wire.changes import JobChanges, JobDelta
    from gsched.wire.messages import (
        AcctQuery,
        AcctRows,
        BlobQuery,
        JobQuery,
        JobRows,
        NodeQuery,
        NodeRows,
        Reply,
        Status,
        StepQuery,
        StepRows,
        Write,
    )
    from gsched.wire.policy import PolicyQuery, PolicyRows
    from gsched.wire.report import ReportQuery, ReportRows
    from gsched_cli.kept import Kept
    from gsched_cli.queue_lines import QueueLines
    from gsched_cli.queue_records import Records

#: The release of Slurm whose behaviour the commands follow, as `-V` prints it.
SLURM_VERSION = "26.05.0"


class Reader(Protocol):
    """Where a command's data comes from: a connection to a frontend, or the frontend itself.

    Every method raises `gsched.client.ControllerDown` when nobody answers.
    """

    def jobs(self, query: JobQuery) -> JobRows: ...

    def changes(self, query: JobChanges) -> JobDelta: ...

    def nodes(self, query: NodeQuery) -> NodeRows: ...

    def accounting(self, query: AcctQuery) -> AcctRows: ...

    def steps(self, query: StepQuery) -> StepRows: ...

    def policy(self, query: PolicyQuery) -> PolicyRows: ...
    def report(self, query: ReportQuery) -> ReportRows: ...

    def blob(self, query: BlobQuery) -> bytes: ...

    def status(self) -> Status: ...

    def call(self, write: Write, request_id: bytes | None = None) -> Reply: ...

    def new_request_id(self) -> bytes: ...

    def config(self) -> Config:
        """slurm.conf as it is now, and what was changed of partitions at run time."""
        ...

    def settings(self) -> Config:
        """slurm.conf alone: asks nobody."""
        ...

    def now(self) -> float: ...

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


class OwnProcess(Exception):
    """A worker that runs a command for another process cannot do what comes next: the command has
    to run in a process of the user's."""


class Files(Protocol):
    """The user's files as a command reaches them: its own process's, or the thin client's."""

    def read(self, path: str, most: int) -> bytes:
        """At most so many bytes of a file. Raises OSError."""
        ...

    def kind(self, path: str) -> str:
        """What lies at a path: "-" nothing, "f" a file, "d" a directory, "o" anything else."""
        ...

    def own(self) -> None:
        """What follows needs a process of the user's: it waits, or writes a file. Raises OwnProcess
        where this is none; to be asked before anything was done."""
        ...


def _packed(path: str) -> bytes:
    """A file's name: what `_utf8` has made a text of."""
    return path.encode("utf-8", "surrogateescape")


class OwnFiles:
    """Files of the process that this is."""

    def read(self, path: str, most: int) -> bytes:
        with open(_packed(path), "rb") as file:
            return file.read(most)

    def kind(self, path: str) -> str:
        import stat

        try:
            mode = os.stat(_packed(path)).st_mode
        except (OSError, ValueError):
            # A link that leads nowhere is something, too.
            return "o" if os.path.lexists(_packed(path)) else "-"
        return "f" if stat.S_ISREG(mode) else "d" if stat.S_ISDIR(mode) else "o"

    def own(self) -> None:
        return


class Streams(NamedTuple):
    """Standard input, output and error of one run of a command, as text streams with `.buffer`, the
    files that it may read, and what its process keeps from one command to the next."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    files: Files = OwnFiles()
    #: reports about jobs; None: nothing is kept
    kept: Kept[QueueLines | Records] | None = None


Run = Callable[[Sequence[str], Mapping[str, str], str, Streams, Reader], int]


def error(streams: Streams, name: str, text: str) -> None:
    """Writes `name: error: text` to standard error, one such line for each line of `text`."""
    for line in text.split("\n"):
        streams.stderr.write(f"{name}: error: {line}\n")


def fatal(streams: Streams, name: str, text: str) -> int:
    """Writes `name: fatal: text` to standard error; returns Slurm's exit code for it, 1."""
    streams.stderr.write(f"{name}: fatal: {text}\n")
    return 1


def version_line() -> str:
    """What `-V` prints, with its line end."""
    return f"slurm {SLURM_VERSION}\n"


class LazyReader:
    """A Reader that looks for the cluster at the first question, so that `--help`, `-V` and wrong
    options work, and are fast, without one."""

    def __init__(self, env: Mapping[str, str], request_base: bytes = b"") -> None:
        self._env = env
        self._request_base = request_base
        self._reader: Reader | None = None

    def _open(self) -> Reader:
        if self._reader is None:
            from gsched.client import Client

            self._reader = Client.from_env(self._env, self._request_base)
        return self._reader

    def jobs(self, query: JobQuery) -> JobRows:
        return self._open().jobs(query)

    def changes(self, query: JobChanges) -> JobDelta:
        return self._open().changes(query)

    def nodes(self, query: NodeQuery) -> NodeRows:
        return self._open().nodes(query)

    def accounting(self, query: AcctQuery) -> AcctRows:
        return self._open().accounting(query)

    def steps(self, query: StepQuery) -> StepRows:
        return self._open().steps(query)

    def policy(self, query: PolicyQuery) -> PolicyRows:
        return self._open().policy(query)

    def report(self, query: ReportQuery) -> ReportRows:
        return self._open().report(query)

    def blob(self, query: BlobQuery) -> bytes:
        return self._open().blob(query)

    def status(self) -> Status:
        return self._open().status()

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        return self._open().call(write, request_id)

    def new_request_id(self) -> bytes:
        return self._open().new_request_id()

    def config(self) -> Config:
        return self._open().config()

    def settings(self) -> Config:
        return self._open().settings()

    def now(self) -> float:
        import time

        return time.time()

    @property
    def uid(self) -> int:
        return os.getuid()

    @property
    def gid(self) -> int:
        return os.getgid()


def command_main(name: str, run: Run) -> NoReturn:
    """Runs a command as this process and exits with its code.

    Nothing that goes wrong shows a traceback: one sentence and exit 1; Ctrl-C ends it as a signal
    would (130); a reader that went away (`squeue | head`) ends it silently. GSCHED_TRACEBACK=1
    shows the traceback to developers.
    """
    _exit(guarded(name, run, sys.argv[1:], os.environ))


def guarded(name: str, run: Run, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """`run` with the process's own streams; returns an exit code whatever happens."""
    # File names and environments are bytes: what is not UTF-8 must come out as it went in.
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    if sys.getfilesystemencoding() != "utf-8":
        argv = [_utf8(os.fsencode(word)) for word in argv]
        env = {_utf8(os.fsencode(name)): _utf8(os.fsencode(text)) for name, text in env.items()}
    # From the thin client, for this process alone: what it starts must not inherit it.
    base = os.environ.pop("GSCHED_REQUEST_ID", "").encode("ascii", "replace")
    streams = Streams(_or_null(sys.stdin, 0), _or_null(sys.stdout, 1), _or_null(sys.stderr, 2))
    try:
        try:
            code = run(argv, env, _cwd(env), streams, LazyReader(env, base))
        finally:
            streams.stdout.flush()
    except BrokenPipeError:
        # The interpreter would flush again at exit and complain: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        if env.get("GSCHED_TRACEBACK"):
            raise
        text = str(problem).strip() or type(problem).__name__
        error(streams, name, text)
        return 1
    return code


def _utf8(word: bytes) -> str:
    """As the thin client's request has it, whatever the locale is."""
    return word.decode("utf-8", "surrogateescape")


def _cwd(env: Mapping[str, str]) -> str:
    """The working directory, without symbolic links: as Slurm records it."""
    try:
        return _utf8(os.getcwdb())
    except FileNotFoundError:
        # Deleted under us: commands that do not need it must work all the same.
        return env.get("PWD") or "/"


def _or_null(stream: TextIO | None, fd: int) -> TextIO:
    """A command started with a closed stream (`sbatch >&-`) must not die of it."""
    if stream is not None:
        return stream
    return open(os.devnull, "r" if fd == 0 else "w", encoding="utf-8")


def _exit(code: int) -> NoReturn:
    try:
        sys.stderr.flush()
        sys.stdout.flush()
    except (BrokenPipeError, AttributeError):
        pass
    # Nothing is left to tidy up, and the interpreter's own way out costs milliseconds.
    os._exit(code & 0xFF)
