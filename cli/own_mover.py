"""The mover of a command that runs as a Python process: it opens the listener, and in the end
becomes the C program that moves streams, terminal and signals."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from gsched_cli.common import Reader, Run, Streams
from gsched_cli.process import Process

PROGRAM = "gsched-mover"
SECRET_BYTES = 32
#: connections that may wait before they are taken: one for each node, and the agent's
BACKLOG = 4096


class OwnMover:
    """Opens the listener when it is first asked for. Its descriptor stays open over exec."""

    #: this process asks for itself
    behalf: tuple[int, int, int] | None = None

    def __init__(self, name: str, streams: Streams | None = None) -> None:
        self._name = name
        self._streams = streams
        self._listener: socket.socket | None = None
        self._secret = b""

    def listening(self) -> tuple[int, bytes]:
        if self._listener is None:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.bind(("", 0))
            listener.listen(BACKLOG)
            self._listener, self._secret = listener, os.urandom(SECRET_BYTES)
        return self._listener.getsockname()[1], self._secret

    def follow(self, plan: bytes) -> int:
        """Becomes the mover; returns only where that fails, with the exit code."""
        self.listening()
        assert self._listener is not None
        file = os.memfd_create("plan", 0)
        with os.fdopen(os.dup(file), "wb") as out:
            out.write(self._secret + plan)
        os.lseek(file, 0, os.SEEK_SET)
        os.set_inheritable(self._listener.fileno(), True)
        os.set_inheritable(file, True)
        if self._streams is not None:
            self._streams.stdout.flush()
            self._streams.stderr.flush()
        path = program()
        try:
            os.execv(path, [path, self._name, str(self._listener.fileno()), str(file)])
        except OSError as problem:
            sys.stderr.write(f"{self._name}: fatal: cannot run {path}: {problem.strerror}\n")
        return 1


def program() -> str:
    """The path of the C program: beside the command that runs, else beside the interpreter."""
    for beside in (sys.argv[0], sys.executable):
        path = os.path.join(os.path.dirname(os.path.abspath(beside)), PROGRAM)
        if os.access(path, os.X_OK):
            return path
    return os.path.join(os.path.dirname(sys.executable), PROGRAM)


Submitting = Callable[[Sequence[str], Mapping[str, str], str, Streams, Reader, Process], int]


def with_mover(name: str, run: Submitting) -> Run:
    """`run` with what this process knows of itself, and with a mover."""

    def wrapped(
        argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
    ) -> int:
        process = Process.current()._replace(mover=OwnMover(name, streams))
        return run(argv, env, cwd, streams, reader, process)

    return wrapped
