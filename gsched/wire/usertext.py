"""Messages as commands pack and unpack them: with users' text, which need not be UTF-8
(gsched/rawtext.py)."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gsched import rawtext
from gsched.wire.codec import MAX_FRAME, BadMessage

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[object, msgspec.msgpack.Decoder[Any]] = {}


def encode(message: msgspec.Struct) -> bytes:
    """Packs any message, whatever bytes its texts stand for."""
    return rawtext.pack(message, _encoder)


def kept(message: T) -> T:
    """A message of a command's for those who pack it by themselves."""
    return rawtext.kept(message, _encoder)


def shown(message: T) -> T:
    """One for a command, of those who unpack it by themselves."""
    return rawtext.shown(message, _encoder)


def decode(union: Any, frame: bytes | memoryview) -> Any:
    """As `gsched.wire.codec.decode`, with texts as commands have them."""
    decoder = _decoders.get(union)
    if decoder is None:
        decoder = _decoders[union] = msgspec.msgpack.Decoder(union)
    if len(frame) > MAX_FRAME:
        raise BadMessage(f"message of {len(frame)} bytes is larger than {MAX_FRAME}")
    try:
        return rawtext.unpack(frame, decoder)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
