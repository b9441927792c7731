"""Accounts, users, associations and QOS among the ledger's records (`led.book`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched.ledger import tell
from gsched.ledger.outcome import Outcome
from gsched.model.policy import Assoc, PolicyRecord, Qos, Used, key_of

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def load(led: Ledger, records: Iterable[PolicyRecord], used: Iterable[tuple[bytes, Used]]) -> None:
    """Takes over what is stored."""
    for record in records:
        led.book.put(record)
    for key, each in used:
        led.book.used[number_of(key)] = each


def begin(led: Ledger, out: Outcome) -> None:
    """A controller takes the state: one that has no accounts yet gets the first ones."""
    if not led.book.accounts:
        for record in led.book.first:
            put(led, record, out)


def put(led: Ledger, record: PolicyRecord, out: Outcome) -> None:
    """A record is new or has changed."""
    led.book.put(record)
    led.limits.outdated |= isinstance(record, Assoc | Qos)
    tell.policy(led, record, gone=False)
    out.puts["policy", key_of(record)] = record


def drop(led: Ledger, record: PolicyRecord, out: Outcome) -> None:
    """A record is gone."""
    led.book.drop(record)
    led.limits.outdated |= isinstance(record, Assoc | Qos)
    tell.policy(led, record, gone=True)
    out.puts["policy", key_of(record)] = None


def note(led: Ledger, record: PolicyRecord, gone: bool, out: Outcome) -> None:
    """A record that the book has already taken (or dropped) is stored and told."""
    led.limits.outdated |= isinstance(record, Assoc | Qos)
    tell.policy(led, record, gone=gone)
    out.puts["policy", key_of(record)] = None if gone else record


def put_used(led: Ledger, of: int | str, used: Used, out: Outcome) -> None:
    """What an association (by id) or a QOS (by name) has used is now this."""
    led.book.used[of] = used
    out.puts["used", used_key(of)] = used


def used_key(of: int | str) -> bytes:
    """Key in the table "used": of an association its id, of a QOS its name."""
    return b"qos/" + of.encode() if isinstance(of, str) else b"assoc/" + of.to_bytes(8, "big")


def number_of(key: bytes) -> int | str:
    """What a key of the table "used" is of (see used_key)."""
    kind, _, rest = bytes(key).partition(b"/")
    return rest.decode() if kind == b"qos" else int.from_bytes(rest, "big")
