"""The node's socket for its users' requests about steps.

Anybody of this host may connect; who it is comes from the kernel. Requests are small and answered
at once, so a connection holds one incomplete request at most, and one that neither asks nor reads
is closed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.framing import Unframer, frame
from gsched.wire.paths import reachable
from gsched.wire.steps import Behalf, FromAgent, NotTaken, ToAgent

#: largest request: an environment of 2 MB and as much of arguments fit
MAX_REQUEST = 6 << 20
#: most connections, and most of one user (the SlurmUser's workers speak for many)
MAX_CONNECTIONS = 2048
MAX_PER_USER = 512
#: seconds after which a connection is closed: with half a request, and without any
HALF_S = 20.0
IDLE_S = 300.0
#: bytes read from one connection in a turn of the loop, connections taken in one
READ_BYTES = 1 << 18
ACCEPT_BATCH = 32

_CREDENTIALS = struct.Struct("3i")


class Loop(Protocol):
    """What the daemon's loop does with descriptors."""

    def watch(self, fd: int, handler: Callable[[int], None], *, write: bool = False) -> None: ...
    def watch_more(self, fd: int, *, write: bool) -> None: ...
    def unwatch(self, fd: int) -> None: ...


class _Connection:
    __slots__ = ("count", "frames", "gid", "number", "out", "since", "sock", "uid", "user")

    def __init__(self, sock: socket.socket, number: int, uid: int, gid: int) -> None:
        self.sock = sock
        self.number = number
        #: who has connected, for the limits
        self.user = uid
        #: whom the requests are of
        self.uid = uid
        self.gid = gid
        self.frames = Unframer(MAX_REQUEST)
        self.out = b""
        self.since = time.monotonic()
        #: requests without an answer yet
        self.count = 0


class StepSocket:
    """Listens at `path`; `ask(number, uid, gid, message)` for each request, whose answer is given
    by `answer(number, message)`."""

    def __init__(
        self,
        path: str,
        slurm_user: str,
        loop: Loop,
        ask: Callable[[int, int, int, Any], None],
        log: Any,
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._log = log
        self._trusted = {0, os.geteuid()}
        with contextlib.suppress(KeyError, ValueError):
            self._trusted.add(
                int(slurm_user) if slurm_user.isdigit() else pwd.getpwnam(slurm_user).pw_uid
            )
        self._held: dict[int, _Connection] = {}
        self._users: Counter[int] = Counter()
        self._numbers = 0
        self._sweep_at = 0.0
        self._path = path
        self._listener = self._listen(path)
        self._full = False

    def _listen(self, path: str) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name = reachable(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            sock.bind(name)
            os.chmod(name, 0o666)
            sock.listen(512)
        except OSError as error:
            # Requests still come through the controller.
            self._log.error(f"no socket for requests about steps: {path}: {error.strerror}")
            sock.close()
            return None
        sock.setblocking(False)
        self._loop.watch(sock.fileno(), lambda _: self._accept())
        return sock

    def close(self) -> None:
        for connection in list(self._held.values()):
            self._drop(connection)
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()

    # -- connections

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_BATCH):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            _, uid, gid = _CREDENTIALS.unpack(raw)
            most = MAX_CONNECTIONS if uid in self._trusted else MAX_PER_USER
            if len(self._held) >= MAX_CONNECTIONS or self._users[uid] >= most:
                sock.close()
                continue
            sock.setblocking(False)
            self._numbers += 1
            connection = _Connection(sock, self._numbers, uid, gid)
            self._held[connection.number] = connection
            self._users[uid] += 1
            self._loop.watch(sock.fileno(), lambda _, c=connection: self._ready(c))  # type: ignore[misc]
            # What has been sent with the connection is there already.
            self._ready(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._held.pop(connection.number, None) is None:
            return
        self._users[connection.user] -= 1
        if not self._users[connection.user]:
            del self._users[connection.user]
        self._loop.unwatch(connection.sock.fileno())
        connection.sock.close()

    def _ready(self, connection: _Connection) -> None:
        if connection.number not in self._held:
            return
        if connection.out:
            self._flush(connection)
            if connection.out or connection.number not in self._held:
                return  # who does not read its answers is not listened to
        try:
            data = connection.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.since = time.monotonic()
        try:
            for payload in connection.frames.feed(data):
                self._request(connection, payload)
        except BadMessage as problem:
            self._refuse(connection, str(problem))
            self._drop(connection)

    def _request(self, connection: _Connection, payload: bytes) -> None:
        try:
            message: Any = decode(ToAgent, payload)
        except BadMessage as problem:
            self._refuse(connection, str(problem))
            return
        if isinstance(message, Behalf):
            if connection.user in self._trusted:
                connection.uid, connection.gid = message.uid, message.gid
            else:
                self._refuse(connection, "only the SlurmUser may ask for others")
                self._drop(connection)
            return
        connection.count += 1
        self._ask(connection.number, connection.uid, connection.gid, message)

    def _refuse(self, connection: _Connection, why: str) -> None:
        connection.count += 1
        self.answer(connection.number, NotTaken(f"error: {why}", "EINVAL"))

    # -- answers

    def answer(self, number: int, message: FromAgent) -> None:
        """To a connection that may have gone by now."""
        connection = self._held.get(number)
        if connection is None:
            return
        connection.count = max(0, connection.count - 1)
        connection.out += frame(encode(message))
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            sent = connection.sock.send(connection.out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        connection.out = connection.out[sent:]
        if len(connection.out) > MAX_REQUEST:
            self._drop(connection)
            return
        self._loop.watch_more(connection.sock.fileno(), write=bool(connection.out))

    def on_time(self) -> None:
        """Closes what is of no use any more. Cost: the connections, every few seconds."""
        now = time.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + HALF_S / 2
        for connection in list(self._held.values()):
            waits = connection.frames.pending or connection.out
            patience = HALF_S if waits else IDLE_S
            if now - connection.since > patience and not (connection.count and not waits):
                self._drop(connection)
