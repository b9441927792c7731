"""The short way from a frontend to the controller of its host: one message, one system call.

ZeroMQ has threads of its own at both ends of a link: four changes of thread for a request and its
answer, which cost more than what they carry. Here the loop of the one writes to the loop of the
other. Nothing depends on it: what is too large, and whatever is not answered, goes the other way
with the same request id.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence

from gsched.wire.identity import Admission, stream_peer
from gsched.wire.paths import reachable

#: the largest message, bytes
LIMIT = 64 << 10
#: connections at once
MOST = 256
#: without room for another file new connections are looked for only so often, seconds
REST_S = 0.25
_BACKLOG = 64
#: of a connection that went before it was accepted
_GONE = {errno.EAGAIN, errno.ECONNABORTED, errno.EINTR}
#: what a connection's name begins with: names that ZeroMQ gives begin with a zero
MARK = b"S"
_NUMBER = struct.Struct("=Q")


def short_socket(control: str) -> str:
    """The socket beside the controller's one for ZeroMQ."""
    return os.path.splitext(control)[0] + ".short"


class ShortEnd:
    """The controller's end. One thread."""

    def __init__(self, admission: Admission, path: str) -> None:
        """Listens (mode 0600). Raises OSError."""
        self._admission = admission
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            old = os.umask(0o177)
            try:
                self._listener.bind(reachable(path))
            finally:
                os.umask(old)
            self._listener.listen(_BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        #: name -> connection, and descriptor -> name
        self._links: dict[bytes, socket.socket] = {}
        self._names: dict[int, bytes] = {}
        self._made = 0
        #: the listener is not watched until then, for want of files; 0: it is
        self._rest_until = 0.0

    def fileno(self) -> int:
        """Readable when `receive` has something to do."""
        return self._poll.fileno()

    def receive(self, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Messages that wait, some `limit` of them, each with the name of its connection."""
        taken = 0
        if self._rest_until and time.monotonic() >= self._rest_until:
            self._rest_until = 0.0
            self._poll.register(self._listener.fileno(), select.EPOLLIN)
        while taken < limit:
            ready = self._poll.poll(0, limit)
            if not ready:
                return
            for fd, _ in ready:
                if fd == self._listener.fileno():
                    self._accept()
                    continue
                name = self._names[fd]
                message = self._read(name)
                if message is not None:
                    taken += 1
                    yield name, message

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as problem:
            if problem.errno not in _GONE:
                # No file is left, or no memory for one: the connection stays to be accepted, and
                # asking again at once would never end.
                self._poll.unregister(self._listener.fileno())
                self._rest_until = time.monotonic() + REST_S
            return
        if len(self._links) >= MOST or stream_peer(sock).uid not in self._admission.proxies:
            sock.close()
            return
        sock.setblocking(False)
        try:
            self._poll.register(sock.fileno(), select.EPOLLIN)
        except OSError:
            sock.close()
            return
        self._made += 1
        name = MARK + _NUMBER.pack(self._made)
        self._links[name] = sock
        self._names[sock.fileno()] = name

    def _read(self, name: bytes) -> bytes | None:
        sock = self._links[name]
        try:
            message = sock.recv(LIMIT + 1)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message or len(message) > LIMIT:
            self._drop(name)
            return None
        return message

    def answer(self, name: bytes, payloads: Sequence[bytes]) -> bool:
        """Sends messages; False when the connection is gone, or has no room for them."""
        sock = self._links.get(name)
        if sock is None:
            return False
        try:
            for payload in payloads:
                sock.send(payload)
        except BlockingIOError:
            return False
        except OSError:
            self._drop(name)
            return False
        return True

    def _drop(self, name: bytes) -> None:
        sock = self._links.pop(name)
        del self._names[sock.fileno()]
        self._poll.unregister(sock.fileno())
        sock.close()

    def close(self) -> None:
        for name in list(self._links):
            self._drop(name)
        self._poll.close()
        self._listener.close()


class ShortWay:
    """A frontend's end: for one that waits for its answers. One thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._sock: socket.socket | None = None

    def ask(self, message: bytes) -> bool:
        """Sends a message; False: it cannot go this way now. Never waits."""
        if len(message) > LIMIT:
            return False
        for fresh in (False, True):
            if self._sock is None and not (fresh and self._dial()):
                continue
            assert self._sock is not None
            try:
                self._sock.send(message)
                return True
            except BlockingIOError:
                return False
            except OSError:
                # The controller is another than before.
                self.close()
        return False

    def hear(self, patience_s: float) -> bytes | None:
        """A message, waited for so long; None: there is none, and will be none on this link."""
        if self._sock is None:
            return None
        self._sock.settimeout(patience_s)
        try:
            message = self._sock.recv(LIMIT + 1)
        except OSError:
            message = b""
        if not message or len(message) > LIMIT:
            self.close()
            return None
        self._sock.setblocking(False)
        return message

    def _dial(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.connect(reachable(self._path))
        except OSError:
            sock.close()
            return False
        self._sock = sock
        return True

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
