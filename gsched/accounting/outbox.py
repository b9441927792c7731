"""Reading the outbox from a snapshot of the controller's state."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gsched.model import Fact
from gsched.model.policy import PolicyRecord
from gsched.store import Snapshot, number_key


class Meta(msgspec.Struct, array_like=True):
    """The first fields of the record about the cluster."""

    #: uuid of the state: numbers of facts belong to it
    cluster: str
    epoch: int = 0
    next_job_id: int = 1
    last_now: float = 0.0
    format: int = 1
    outbox_first: int = 1
    outbox_next: int = 1


_meta = msgspec.msgpack.Decoder(Meta)
_policy: msgspec.msgpack.Decoder[PolicyRecord] = msgspec.msgpack.Decoder(PolicyRecord)
_fact = msgspec.msgpack.Decoder(Fact)


def read_meta(snapshot: Snapshot) -> Meta | None:
    """The record about the cluster; None before the controller's first start."""
    found = snapshot.get("meta", b"meta")
    return None if found is None else _meta.decode(found)


def read_facts(snapshot: Snapshot, first: int, most: int) -> list[Fact]:
    """Up to `most` facts from number `first` on; they are numbered without gaps."""
    facts: list[Fact] = []
    for seq in range(first, first + most):
        found = snapshot.get("outbox", number_key(seq))
        if found is None:
            break
        facts.append(_fact.decode(found))
    return facts


def raw_facts(snapshot: Snapshot) -> Iterator[tuple[int, bytes]]:
    """(number, packed fact) of all that is in the outbox."""
    for key, value in snapshot.scan("outbox"):
        yield int.from_bytes(key, "big"), bytes(value)


def read_policy(snapshot: Snapshot) -> list[PolicyRecord]:
    """All accounts, users, associations, QOS and WCKeys."""
    return [_policy.decode(value) for _, value in snapshot.scan("policy")]
