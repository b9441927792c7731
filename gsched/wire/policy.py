"""What is asked of accounts, users, associations and QOS: a part of `gsched.wire.messages`."""

from __future__ import annotations

import msgspec

from gsched.model.policy import PolicyRecord, Used


class PolicyQuery(msgspec.Struct, array_like=True, tag=True, gc=False):
    """All accounts, users, associations, QOS and WCKeys, and what was used."""

    min_version: int = 0
    #: usage too (sshare): it changes with every job that ends
    used: bool = False


class PolicyRows(msgspec.Struct, array_like=True, tag=True, gc=False):
    version: int
    records: list[PolicyRecord]
    #: key of the table "used" in hexadecimal digits -> usage (see gsched.policy.book.number_of)
    used: dict[str, Used] = {}
