"""The thin client's requests as a worker reads them."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.frontend.commands import _Files
from gsched.wire.codec import BadMessage
from gsched.wire.commandline import Conversation, parse


def field(letter: bytes, value: bytes) -> bytes:
    return letter + struct.pack(">I", len(value)) + value


ID = field(b"i", b"00112233445566778899aabbccddeeff")
LEAST = field(b"n", b"squeue") + ID + field(b"d", b"/home/alice")


def test_fields() -> None:
    data = LEAST + field(b"u", b"27") + field(b"s", b"4711") + field(b"h", b"login1")
    data += field(b"l", b"NOFILE=1024") + field(b"l", b"CORE=-1")
    data += field(b"a", b"-o") + field(b"a", b"%i \xe9") + field(b"?", b"of another time")
    data += field(b"e", b"A=b=c") + field(b"e", b"EMPTY=")
    line = parse(data)
    assert (line.name, line.cwd, line.umask, line.sid) == ("squeue", "/home/alice", 0o27, 4711)
    assert line.request_id == bytes.fromhex("00112233445566778899aabbccddeeff")
    assert line.argv == ["-o", "%i \udce9"]
    assert line.env == {"A": "b=c", "EMPTY": ""}
    assert (line.host, line.limits) == ("login1", {"NOFILE": 1024, "CORE": -1})


def test_the_first_of_two_variables_counts() -> None:
    """As getenv finds it."""
    assert parse(LEAST + field(b"e", b"A=1") + field(b"e", b"A=2")).env == {"A": "1"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        LEAST[:-1],
        LEAST + b"a",
        LEAST + b"a\xff\xff\xff\xff",
        LEAST + field(b"u", b"99"),
        LEAST + field(b"s", b"x"),
        LEAST + field(b"l", b"NOFILE=many"),
        ID + field(b"d", b"/"),
        field(b"n", b"squeue") + field(b"i", b"00") + field(b"d", b"/"),
        field(b"n", b"squeue") + ID + field(b"d", b"here"),
    ],
)
def test_malformed_requests(data: bytes) -> None:
    with pytest.raises(BadMessage):
        parse(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_read_or_refused(junk: bytes, at: int) -> None:
    for data in (junk, LEAST[:at] + junk, LEAST + junk):
        with contextlib.suppress(BadMessage):
            parse(data)


def test_what_a_client_cannot_read_is_an_error_with_its_number() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        talk = Conversation(ours)
        theirs.sendall(struct.pack(">I", 3) + b"N" + b"13")
        with pytest.raises(PermissionError) as problem:
            talk.ask(b"R", b"/etc/shadow")
        assert problem.value.filename == "/etc/shadow"
        assert theirs.recv(100) == struct.pack(">I", 12) + b"R" + b"/etc/shadow"


def test_a_script_that_went_along_is_not_asked_for() -> None:
    line = parse(LEAST + field(b"f", b"./job.sh\0#!/bin/sh\ntrue\0\n"))
    assert line.script == ("./job.sh", b"#!/bin/sh\ntrue\0\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files = _Files(Conversation(ours), line)
        assert files.kind("/home/alice/job.sh") == "f"
        assert files.read("/home/alice/job.sh", 100) == b"#!/bin/sh\ntrue\0\n"
        assert files.read("/home/alice/job.sh", 4) == b"#!/b"
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        # Any other one is the client's to read.
        theirs.sendall(struct.pack(">I", 6) + b"Dother")
        assert files.read("/home/alice/other.sh", 100) == b"other"
        assert theirs.recv(100) == struct.pack(">I", 21) + b"R/home/alice/other.sh"


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_messages_come_in_pieces_of_any_size(piece: int) -> None:
    """What came together with one message is the next one's."""
    data = b"".join(struct.pack(">I", len(what) + 1) + b"D" + what for what in (b"one", b"", b"2"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        talk = Conversation(ours)
        for at in range(0, len(data), piece):
            theirs.sendall(data[at : at + piece])
        assert [talk.ask(b"R", b"x") for _ in range(3)] == [b"one", b"", b"2"]
        theirs.close()
        with pytest.raises(OSError):
            talk.ask(b"R", b"x")
