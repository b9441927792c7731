"""What the thin client (cli/client) and a worker say to each other: a command line to run.

A message is four bytes of length, big-endian, a letter, and so many bytes less one. The client
says:

C  a request: fields of a letter, four bytes of length, and bytes (see `CommandLine`)
D  what it was asked for        N  an errno instead

The worker says:

H  that it is there, first of all
O E  bytes for standard output and standard error
X  one byte, the exit code: the end
M  a plan (docs/design.md, section 7), by which the client goes on alone: the end
P  the command has to run in a process of the user's: the end, and nothing was said before
R S I  asks for a file, for what lies at a path ("-" nothing, "f" a file, "d" a directory, "o"
       anything else), for standard input
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gsched.wire.codec import MAX_FRAME, BadMessage

_LENGTH = struct.Struct(">I")
#: seconds for one step of the conversation: a client that sleeps does not hold a worker longer
PATIENCE_S = 10.0
#: of the secret by which agents and supervisors know a client, and it them
SECRET_BYTES = 32


@dataclass
class CommandLine:
    """A request, and what the client knows of its process."""

    name: str = ""
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/"
    #: the base of the ids of all that the command asks for
    request_id: bytes = b""
    umask: int = 0o022
    sid: int = 0
    host: str = ""
    #: soft limits by name, -1 infinite
    limits: dict[str, int] = field(default_factory=dict)
    #: where the client listens for the agents of its step, and its secret; 0: it does not
    port: int = 0
    secret: bytes = b""
    #: standard input is a terminal; None: not told
    terminal: bool | None = None
    #: its rows and columns; 0 not known
    window: tuple[int, int] = (0, 0)
    #: an argument that names a script, and what is in it; "": none went along
    script: tuple[str, bytes] = ("", b"")


def parse(data: bytes) -> CommandLine:
    """Reads the fields of a request; BadMessage for anything malformed. Cost: its bytes."""
    found = CommandLine()
    at, size = 0, len(data)
    while at < size:
        if size - at < 5:
            raise BadMessage("a field breaks off")
        letter = data[at]
        (length,) = _LENGTH.unpack_from(data, at + 1)
        at += 5
        if length > size - at:
            raise BadMessage("a field is longer than its request")
        _take(found, letter, data[at : at + length])
        at += length
    if not found.name or len(found.request_id) != 16 or not found.cwd.startswith("/"):
        raise BadMessage("a request without name, id or directory")
    return found


def _take(found: CommandLine, letter: int, value: bytes) -> None:
    try:
        match chr(letter):
            case "a":
                found.argv.append(os.fsdecode(value))
            case "e":
                name, _, text = value.partition(b"=")
                found.env.setdefault(os.fsdecode(name), os.fsdecode(text))
            case "n":
                found.name = value.decode("ascii")
            case "d":
                found.cwd = os.fsdecode(value)
            case "i":
                found.request_id = bytes.fromhex(value.decode("ascii"))
            case "u":
                found.umask = int(value, 8)
            case "s":
                found.sid = int(value)
            case "h":
                found.host = os.fsdecode(value)
            case "l":
                name, _, text = value.partition(b"=")
                found.limits[name.decode("ascii")] = int(text)
            case "c":
                port, _, secret = value.partition(b" ")
                found.port, found.secret = int(port), bytes.fromhex(secret.decode("ascii"))
                if not 0 < found.port < 1 << 16 or len(found.secret) != SECRET_BYTES:
                    raise ValueError("no port, or no secret")
            case "f":
                path, _, content = value.partition(b"\0")
                found.script = os.fsdecode(path), content
            case "t":
                words = value.split()
                found.terminal = words[:1] == [b"1"]
                if len(words) >= 5:
                    found.window = int(words[3]), int(words[4])
            case _:
                pass  # of a newer client
    except ValueError as problem:
        raise BadMessage(f"field {chr(letter)!r}: {problem}") from None


class Conversation:
    """A worker's side of one connection. Every method raises OSError when the client is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        #: of it, not looked at yet
        self._read = bytearray()
        sock.settimeout(PATIENCE_S)

    def request(self) -> CommandLine:
        """What is to be run. Raises BadMessage too."""
        letter, data = self._receive()
        if letter != b"C":
            raise BadMessage(f"{letter!r} is no request")
        return parse(data)

    def say(self, letter: bytes, data: bytes | memoryview) -> None:
        """Sends one message."""
        self.say_all([(letter, data)])

    def say_all(self, messages: Sequence[tuple[bytes, bytes | memoryview]]) -> None:
        """Sends messages in one piece, so that the client is woken once."""
        parts: list[bytes | memoryview] = []
        for letter, data in messages:
            parts += (_LENGTH.pack(len(data) + 1) + letter, data)
        if parts:
            self._sock.sendall(b"".join(parts))

    def ask(self, letter: bytes, what: bytes = b"") -> bytes:
        """What the client answers; OSError with its errno where it could not."""
        self.say(letter, what)
        got, data = self._receive()
        if got == b"N":
            number = int(data) if data.isdigit() else 5
            raise OSError(number, os.strerror(number), os.fsdecode(what))
        if got != b"D":
            raise ConnectionResetError(f"{got!r} is no answer")
        return data

    def _receive(self) -> tuple[bytes, bytes]:
        self._fill(5)
        (length,) = _LENGTH.unpack_from(self._read)
        if not 1 <= length <= MAX_FRAME:
            raise BadMessage(f"message of {length} bytes")
        size = 4 + length
        self._fill(size)
        letter, data = bytes(self._read[4:5]), bytes(self._read[5:size])
        del self._read[:size]
        return letter, data

    def _fill(self, size: int) -> None:
        """Until so much is there that was not looked at yet."""
        while len(self._read) < size:
            # All of a usual request comes in one piece.
            data = self._sock.recv(min(max(size - len(self._read), 64 << 10), 1 << 20))
            if not data:
                raise ConnectionResetError("the client has gone")
            self._read += data
