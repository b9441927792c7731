"""What a user wants to be told of by mail (--mail-type)."""

from __future__ import annotations

from enum import IntFlag


class MailType(IntFlag):
    """The bits of JobSpec.mail_type, named and numbered as Slurm's."""

    NONE = 0
    BEGIN = 0x1
    END = 0x2
    FAIL = 0x4
    REQUEUE = 0x8
    TIME_LIMIT = 0x10
    TIME_LIMIT_90 = 0x20
    TIME_LIMIT_80 = 0x40
    TIME_LIMIT_50 = 0x80
    STAGE_OUT = 0x100
    ARRAY_TASKS = 0x200
    INVALID_DEPEND = 0x400
    ALL = BEGIN | END | FAIL | REQUEUE | STAGE_OUT | INVALID_DEPEND


#: word -> bits
MAIL_WORDS: dict[str, int] = {name: int(bits) for name, bits in MailType.__members__.items()}
