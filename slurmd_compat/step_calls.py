"""The control connections that a node makes to clients: srun's, salloc's, sattach's.

A client may be anything that a user has written: nothing here waits for it, and one that does not
read is let go of.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gsched.model.step import Callback
from slurmd_compat.step_socket import Loop

VERSION = 1
#: largest message of a client: signals and wait statuses, the word of a task that aborts
MAX_MESSAGE = 1 << 16
#: most bytes kept for a client that does not read
MAX_OUT = 1 << 22
#: ms for a connection to stand, for the client to close one that has ended, between two tries
CONNECT_MS = 5_000
LINGER_MS = 10_000
RETRY_MS = 500


def hello(kind: bytes, index: int, secret: bytes) -> bytes:
    """The first 44 bytes of any connection to a client."""
    return (
        b"GSIO"
        + bytes([VERSION])
        + kind
        + index.to_bytes(2, "big")
        + bytes(4)
        + secret[:32].ljust(32, b"\0")
    )


@dataclass
class _Call:
    number: int
    callback: Callback
    #: monotonic ms: give up, try again, close
    until: int
    retry_at: int = -1
    close_at: int = -1
    sock: socket.socket | None = None
    connected: bool = False
    out: bytearray = field(default_factory=bytearray)
    held: bytearray = field(default_factory=bytearray)
    ending: bool = False
    resolving: bool = False


class ClientCalls:
    """All of them. `said(number, letter, data)` tells of what comes, `lost(number, met)` of its
    end: `met` where there was a connection."""

    def __init__(
        self,
        loop: Loop,
        addresses: dict[str, str],
        said: Callable[[int, str, bytes], None],
        lost: Callable[[int, bool], None],
        clock: Callable[[], int],
        log: Any,
    ) -> None:
        self._loop = loop
        self._said = said
        self._lost = lost
        self._clock = clock
        self._log = log
        self._held: dict[int, _Call] = {}
        #: host -> numeric address; what the configuration says of nodes first
        self._addresses = addresses
        self._found: list[tuple[int, str]] = []
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        loop.watch(self._wake_read, lambda _: self._resolved())

    def close(self) -> None:
        for call in self._held.values():
            if call.sock is not None:
                if call.connected and call.out:
                    # What has been said last goes out before, as far as there is room.
                    with contextlib.suppress(OSError):
                        call.sock.send(call.out)
                call.sock.close()
        self._held.clear()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # -- what the agent wants

    def call(self, number: int, callback: Callback, patience_ms: int) -> None:
        call = _Call(number, callback, self._clock() + patience_ms)
        call.out += hello(b"C", 0, callback.secret)
        self._held[number] = call
        self._connect(call)

    def tell(self, number: int, letter: str, data: bytes) -> None:
        call = self._held.get(number)
        if call is None:
            return
        call.out += (len(data) + 1).to_bytes(4, "big") + letter.encode() + data
        if len(call.out) > MAX_OUT:
            self._drop(call)
        elif call.connected:
            self._flush(call)

    def hang_up(self, number: int) -> None:
        call = self._held.get(number)
        if call is None:
            return
        call.ending = True
        call.close_at = self._clock() + LINGER_MS
        if call.connected:
            self._flush(call)

    # -- connecting

    def _connect(self, call: _Call) -> None:
        host = call.callback.host
        address = self._addresses.get(host, host)
        try:
            ipaddress.ip_address(address)
        except ValueError:
            self._resolve(call, host)
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        call.sock = sock
        try:
            problem = sock.connect_ex((address, call.callback.port))
        except (OverflowError, OSError):
            # A port or scope that there is not: of a record of another release.
            self._drop(call)
            return
        if problem not in (0, errno.EINPROGRESS):
            self._failed(call, problem)
            return
        self._loop.watch(sock.fileno(), lambda _: self._ready(call), write=True)
        call.retry_at = self._clock() + CONNECT_MS

    def _resolve(self, call: _Call, host: str) -> None:
        """A name service may take its time: not in this thread."""
        if call.resolving or sum(c.resolving for c in self._held.values()) >= 16:
            call.retry_at = self._clock() + RETRY_MS
            return
        call.resolving = True
        number = call.number

        def look_up() -> None:
            address = ""
            with contextlib.suppress(OSError, UnicodeError):
                address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
            self._found.append((number, address))
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"x")

        threading.Thread(target=look_up, daemon=True).start()

    def _resolved(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake_read, 4096)
        while self._found:
            number, address = self._found.pop(0)
            call = self._held.get(number)
            if call is None:
                continue
            call.resolving = False
            if not address:
                self._drop(call)
                continue
            call.callback = Callback(address, call.callback.port, call.callback.secret)
            self._connect(call)

    def _failed(self, call: _Call, problem: int) -> None:
        """Nobody listens: gone. Anything else may pass."""
        self._unhook(call)
        now = self._clock()
        if problem == errno.ECONNREFUSED or now >= call.until:
            self._drop(call)
        else:
            call.retry_at = now + RETRY_MS

    def _unhook(self, call: _Call) -> None:
        if call.sock is not None:
            with contextlib.suppress(OSError, ValueError):
                self._loop.unwatch(call.sock.fileno())
            call.sock.close()
            call.sock = None

    # -- moving

    def _ready(self, call: _Call) -> None:
        sock = call.sock
        if sock is None:
            return
        if not call.connected:
            problem = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                self._failed(call, problem)
                return
            try:
                sock.getpeername()
            except OSError:
                return  # not yet
            call.connected = True
            call.retry_at = -1
        if call.out:
            self._flush(call)
        if call.sock is not None:
            self._read(call)

    def _flush(self, call: _Call) -> None:
        sock = call.sock
        assert sock is not None
        while call.out:
            try:
                sent = sock.send(memoryview(call.out)[: 1 << 18])
            except BlockingIOError:
                break
            except OSError:
                self._drop(call)
                return
            del call.out[:sent]
        if not call.out and call.ending:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        self._loop.watch_more(sock.fileno(), write=bool(call.out))

    def _read(self, call: _Call) -> None:
        sock = call.sock
        assert sock is not None
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(call)
            return
        held = call.held
        held += data
        while len(held) >= 5:
            size = int.from_bytes(held[:4], "big")
            if not 1 <= size <= MAX_MESSAGE:
                self._drop(call)
                return
            if len(held) < 4 + size:
                return
            letter, body = chr(held[4]), bytes(held[5 : 4 + size])
            del held[: 4 + size]
            if letter in "GZBA":
                self._said(call.number, letter, body)

    def _drop(self, call: _Call) -> None:
        if self._held.pop(call.number, None) is None:
            return
        self._unhook(call)
        self._lost(call.number, call.connected)

    # -- time

    def deadline(self) -> int | None:
        """Monotonic ms at which `on_time` has something to do."""
        marks = [m for c in self._held.values() for m in (c.retry_at, c.close_at) if m >= 0]
        return min(marks, default=None)

    def on_time(self, now: int) -> None:
        for call in list(self._held.values()):
            if 0 <= call.close_at <= now:
                self._drop(call)
            elif 0 <= call.retry_at <= now and not call.connected:
                call.retry_at = -1
                self._unhook(call)
                if now >= call.until:
                    self._drop(call)
                else:
                    self._connect(call)
