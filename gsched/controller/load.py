"""From the store to a ledger: what a controller knows before its first message."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from gsched.config import Config
from gsched.controller.sharing import Sharing
from gsched.ledger.ledger import Ledger
from gsched.ledger.state import FORMAT, Meta, StoredAnswer
from gsched.model import Job, Node, PartitionChange, PolicyRecord, Reservation, Step, Used
from gsched.store import StateTooNew, Store, StoreError
from gsched.store.versioned import Key

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode


def load_ledger(
    store: Store,
    config: Config,
    admins: Iterable[int],
    *,
    ignore_errors: bool = False,
    complain: Callable[[str], Any],
    sharing: Sharing,
) -> Ledger:
    """The ledger that the stored records describe, or that of a new cluster.

    A record that cannot be read is a StoreError, or with `ignore_errors` (slurmctld -i) left out
    and told to `complain`. Cost: some 5 us a job.
    """

    def records(table: str, kind: type[T]) -> Iterator[tuple[bytes, T]]:
        decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        for key, value in store.load(table):
            try:
                yield key, decoder.decode(value)
            except (msgspec.DecodeError, ValueError) as error:
                text = f"the {table} record {key.hex()} cannot be read: {error}"
                if not ignore_errors:
                    raise StoreError(text) from None
                complain(text)

    found = store.get("meta", b"meta")
    if found is None:
        meta = Meta(cluster=str(uuid.uuid4()), next_job_id=config.first_job_id)
    else:
        try:
            meta = msgspec.msgpack.decode(found, type=Meta)
        except msgspec.DecodeError as error:
            raise StoreError(f"the record of the cluster cannot be read: {error}") from None
        if meta.format > FORMAT:
            raise StateTooNew(f"the records have format {meta.format}, this release reads {FORMAT}")
    return Ledger.load(
        config,
        meta,
        (sharing.job(job) for _, job in records("job", Job)),
        (node for _, node in records("node", Node)),
        records("answer", StoredAnswer),
        admins,
        (change for _, change in records("partition", PartitionChange)),
        (resv for _, resv in records("reservation", Reservation)),
        (step for _, step in records("step", Step)),
        (record for _, record in records("policy", cast(type[PolicyRecord], PolicyRecord))),
        records("used", Used),
        (job for _, job in records("hook", Job)),
    )


def encode_record(value: msgspec.Struct | bytes | None) -> bytes | None:
    """A record as it lies in the store; bytes (content) as they are."""
    return value if value is None or isinstance(value, bytes) else _encode(value)


def encode_records(
    records: Mapping[Key, msgspec.Struct | bytes | None],
) -> dict[Key, bytes | None]:
    """The same for all of a batch: there may be thousands."""
    encode = _encode
    return {
        key: value if value is None or isinstance(value, bytes) else encode(value)
        for key, value in records.items()
    }
