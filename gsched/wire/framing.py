"""Frames on a stream: four bytes of length, big-endian, then the message. Cheap to import."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING

from gsched.wire.codec import MAX_FRAME, BadMessage

if TYPE_CHECKING:
    from socket import socket

_LENGTH = struct.Struct(">I")
HEADER = _LENGTH.size
#: Answers may be larger than what a stranger may send: a table of a million jobs, bytes.
MAX_ANSWER = 2 << 30


class ConnectionClosed(Exception):
    """The other side closed the connection in the middle of a frame, or before one."""


def frame(payload: bytes) -> bytes:
    """`payload` with its length before it; BadMessage when it is too long for any frame."""
    if len(payload) > MAX_ANSWER:
        raise BadMessage(f"message of {len(payload)} bytes is larger than {MAX_ANSWER}")
    return _LENGTH.pack(len(payload)) + payload


class Unframer:
    """Cuts a stream into frames. Holds at most one incomplete frame of `limit` bytes."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> Generator[bytes]:
        """Takes what was read, gives the frames that are complete now. Who stops in between closes
        the generator: the frames not taken come first at the next call.

        Raises BadMessage for a frame over the limit: the stream cannot be read on after it.
        """
        held = self._held
        held += data
        start, size = 0, len(held)
        try:
            while size - start >= HEADER:
                (length,) = _LENGTH.unpack_from(held, start)
                if length > self._limit:
                    raise BadMessage(f"message of {length} bytes is larger than {self._limit}")
                end = start + HEADER + length
                if end > size:
                    break
                payload = bytes(memoryview(held)[start + HEADER : end])
                start = end
                yield payload
        finally:
            del held[:start]

    @property
    def pending(self) -> int:
        """Bytes that are held: an incomplete frame, and frames not taken yet."""
        return len(self._held)


def send_frame(sock: socket, payload: bytes) -> None:
    """Writes one frame to a blocking socket; OSError when the other side is gone."""
    sock.sendall(frame(payload))


def recv_frame(sock: socket, limit: int = MAX_ANSWER) -> bytes:
    """Reads one frame from a blocking socket.

    Raises ConnectionClosed, BadMessage (over the limit), OSError (also for a timeout).
    """
    (length,) = _LENGTH.unpack(_recv_exactly(sock, HEADER))
    if length > limit:
        raise BadMessage(f"message of {length} bytes is larger than {limit}")
    return _recv_exactly(sock, length)


def _recv_exactly(sock: socket, size: int) -> bytes:
    if size == 0:
        return b""
    first = sock.recv(size)
    if len(first) == size:
        return first
    data = bytearray(first)
    while len(data) < size:
        more = sock.recv(min(size - len(data), 1 << 20))
        if not more:
            break
        data += more
    if len(data) < size:
        raise ConnectionClosed("connection closed")
    return bytes(data)
