"""The mover of a command that runs as a Python process: it opens the listener, and in the end
becomes the C program that moves streams, terminal and signals."""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from gsched_cli.common import Reader, Run, Streams
from gsched_cli.process import Process, port_range, within

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
        # For this process alone: what it starts must not inherit it.
        self._take(os.environ.pop("GSCHED_LISTENER", ""))

    def _take(self, handed: str) -> None:
        """The thin client's listener, "FD PORT HEXSECRET": its request is made again here, and is
        to be called back at the same place."""
        words = handed.split()
        if len(words) != 3:
            return
        try:
            number, secret = int(words[0]), bytes.fromhex(words[2])
            if len(secret) == SECRET_BYTES and number > 2:
                self._listener, self._secret = socket.socket(fileno=number), secret
        except (ValueError, OSError):
            pass

    def listening(self, ports: str = "") -> tuple[int, bytes]:
        if self._listener is not None and not within(self._listener.getsockname()[1], ports):
            # The thin client did not know of the range: nobody has been told of its port.
            self._listener.close()
            self._listener = None
        if self._listener is None:
            self._listener = _listener(ports)
            self._listener.listen(BACKLOG)
            self._secret = os.urandom(SECRET_BYTES)
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


def _listener(ports: str) -> socket.socket:
    """On IPv6 and IPv4, or IPv4 alone; in SrunPortRange where that is set. Raises OSError."""
    allowed = port_range(ports)
    numbers = [0]
    if allowed is not None:
        numbers = list(allowed)
        random.shuffle(numbers)
    problem = OSError(errno.EADDRINUSE, "no free port in SrunPortRange")
    for number in numbers:
        for family in (socket.AF_INET6, socket.AF_INET):
            try:
                return socket.create_server(
                    ("", number), family=family, dualstack_ipv6=family == socket.AF_INET6
                )
            except OSError as why:
                problem = why
    raise problem


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
