"""How messages between processes are packed: msgspec structs, as msgpack arrays with a tag.

New fields go at the end with a default: an old reader skips what it does not know. A union per
direction is decoded in one call (`decode`), which raises BadMessage for anything malformed.
"""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL = 1
#: largest frame anybody may send, bytes (a script of 4 MB and its environment fit)
MAX_FRAME = 16 << 20


class BadMessage(Exception):
    """A frame that cannot be understood; the text says why."""


class Message(msgspec.Struct, array_like=True, tag=True, gc=False):
    """One of a union, told apart by its name."""


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[object, msgspec.msgpack.Decoder[object]] = {}


def encode(message: msgspec.Struct) -> bytes:
    """Packs any message of this module; ValueError for text that is not UTF-8. About 1 us for a
    small one."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError as problem:
        # What users write and where they are is bytes to the system: names are text here.
        shown = ascii(problem.object)[1:-1].replace("\\udc", "\\x")
        raise ValueError(f"this is not UTF-8 text: {shown[:200]}") from None


def decode(union: Any, frame: bytes | memoryview) -> Any:
    """Unpacks `frame` as one of `union`'s types; BadMessage says what is wrong with it.

    `union` is one of this module's unions of messages, which the type system cannot name.
    """
    decoder = _decoders.get(union)
    if decoder is None:
        decoder = msgspec.msgpack.Decoder(union)
        _decoders[union] = decoder
    if len(frame) > MAX_FRAME:
        raise BadMessage(f"message of {len(frame)} bytes is larger than {MAX_FRAME}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
