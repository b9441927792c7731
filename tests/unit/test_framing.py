"""Frames on a stream: any cut of the bytes gives the same frames; nothing over a limit is held."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.framing import ConnectionClosed, Unframer, frame, recv_frame, send_frame
from gsched.wire.messages import Call, Ping, ToFrontend


def test_header_is_four_bytes_big_endian() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_any_cut_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    unframer = Unframer()
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        size = cuts[len(found) % len(cuts)]
        found += unframer.feed(stream[position : position + size])
        position += size
    assert found == payloads
    assert unframer.pending == 0


def test_too_long_a_frame_is_refused_before_its_bytes_arrive() -> None:
    unframer = Unframer(limit=100)
    assert list(unframer.feed(frame(b"x" * 100))) == [b"x" * 100]
    with pytest.raises(BadMessage, match="101"):
        list(unframer.feed(struct.pack(">I", 101)))


def test_blocking_ends() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_frame(left, b"")
        send_frame(left, b"hello")
        left.sendall(b"\x00\x00\x00\x05he")
        left.shutdown(socket.SHUT_WR)
        assert recv_frame(right) == b""
        assert recv_frame(right) == b"hello"
        with pytest.raises(ConnectionClosed):
            recv_frame(right)
        with pytest.raises(ConnectionClosed):
            recv_frame(right)


@given(st.binary(max_size=400))
def test_noise_is_a_bad_message_and_nothing_else(noise: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(ToFrontend, noise)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_message_is_read_or_refused(position: int, byte: int) -> None:
    whole = bytearray(encode(Call(request_id=b"0123456789abcdef", write=Ping(), uid=1000)))
    whole[position % len(whole)] = byte
    with contextlib.suppress(BadMessage):
        decode(ToFrontend, bytes(whole))
