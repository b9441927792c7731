"""Text that is no UTF-8: names, paths, arguments and environments are bytes to the system.

Commands have it as Python has file names: a byte that belongs to no character is one of the
surrogates U+DC80-DCFF. Messages, records and databases take only true characters: there such a
byte is one of U+10FE80-10FEFF, of the last private plane, where nobody has any. Those of this range
that somebody does have are taken apart into their four bytes, so that every text comes out as it
went in.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

#: of the character that stands for byte 0
_BASE = 0x10FE00
#: what the characters of the range begin with in UTF-8
_MARKS = (b"\xf4\x8f\xba", b"\xf4\x8f\xbb")
_LOOSE = re.compile("[\udc80-\udcff\U0010fe80-\U0010feff]")
_KEPT = re.compile("[\U0010fe80-\U0010feff]")
_PACKED = re.compile(rb"\xf4\x8f([\xba\xbb])([\x80-\xbf])")


def keep(text: str) -> str:
    """What may stand in messages and records for a text as commands have it."""
    return _LOOSE.sub(_kept, text)


def _kept(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0xDD00:
        return chr(_BASE + code - 0xDC00)
    return "".join(chr(_BASE + byte) for byte in found[0].encode())


def show(text: str) -> str:
    """The opposite of `keep`."""
    return _KEPT.sub(lambda found: chr(ord(found[0]) - _BASE + 0xDC00), text)


def to_bytes(text: str) -> bytes:
    """What the system gets for a text that was kept."""
    data = text.encode("utf-8", "surrogateescape")
    return _PACKED.sub(_byte, data) if marked(data) else data


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([found[2][0] + (0x40 if found[1] == b"\xbb" else 0)])


def marked(data: bytes | memoryview) -> bool:
    """Whether packed data may hold kept bytes. Cost: a look at all of it."""
    if not isinstance(data, bytes):
        data = bytes(data)
    # A single byte is looked for much faster, and is mostly not there.
    return b"\xf4" in data and (_MARKS[0] in data or _MARKS[1] in data)


def pack(value: Any, encoder: msgspec.msgpack.Encoder) -> bytes:
    """Packs a struct of a command's, whose text need not be UTF-8. Text that is costs a look at the
    packed data, other text several times the packing."""
    try:
        data = encoder.encode(value)
    except UnicodeEncodeError:
        pass
    else:
        if not marked(data):
            return data
    return encoder.encode(_each(msgspec.to_builtins(value, builtin_types=(bytes,)), keep))


def unpack(data: bytes | memoryview, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """Unpacks for a command. Raises what `decoder` raises. The cost is that of `pack`."""
    found = decoder.decode(data)
    if not marked(data):
        return found
    return msgspec.convert(_each(msgspec.msgpack.decode(data), show), decoder.type)


def kept(value: T, encoder: msgspec.msgpack.Encoder) -> T:
    """A struct of a command's as messages may hold it; itself where its texts are plain."""
    try:
        if not marked(encoder.encode(value)):
            return value
    except UnicodeEncodeError:
        pass
    return _changed(value, keep)


def shown(value: T, encoder: msgspec.msgpack.Encoder) -> T:
    """The opposite of `kept`."""
    return _changed(value, show) if marked(encoder.encode(value)) else value


def _changed(value: T, change: Any) -> T:
    plain = _each(msgspec.to_builtins(value, builtin_types=(bytes,)), change)
    return msgspec.convert(plain, type(value))


def _each(value: Any, change: Any) -> Any:
    """The same with every text changed. Built-in types alone."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_each(key, change): _each(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(one, change) for one in value]
    return value
