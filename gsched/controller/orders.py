"""Orders on their way out: script and environment are put in, and messages kept in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from gsched.wire.messages import LaunchSpec, Order, Orders, Prepare, encode

#: A message grows no further once it carries this much, bytes; one order always fits.
ENOUGH = 4 << 20

#: Content of at most this many bytes is kept while a batch is sent.
KEPT = 64 << 10

#: content hash -> content, None when it is not stored
Content = Callable[[str], bytes | None]


class Contents:
    """Content while a batch is sent: what many jobs have in common is read once. Large content is
    not kept, since there may be much of it."""

    def __init__(self, read: Content) -> None:
        self._read = read
        self._kept: dict[str, bytes | None] = {}

    def __call__(self, digest: str) -> bytes | None:
        if digest in self._kept:
            return self._kept[digest]
        found = self._read(digest)
        if found is not None and len(found) <= KEPT:
            self._kept[digest] = found
        return found


def wire_form(orders: Orders, images: dict[int, msgspec.Raw]) -> bytes:
    """The bytes of a message. A job on many nodes, which names them all, is encoded once for all
    of them: `images` keeps that, by the identity of the job's image, while a batch is sent."""
    sent: list[Order] = []
    for order in orders.orders:
        if isinstance(order, Prepare) and len(order.launch.job.alloc) > 1:
            image = order.launch.job
            raw: Any = images.get(id(image))
            if raw is None:
                raw = images[id(image)] = msgspec.Raw(msgspec.msgpack.encode(image))
            order = Prepare(order.n, msgspec.structs.replace(order.launch, job=raw), order.go)
        sent.append(order)
    return encode(Orders(orders.epoch, orders.session, sent))


def pack(epoch: int, session: str, orders: Sequence[Order], content: Content) -> Iterator[Orders]:
    """The orders of one node as few messages, in order.

    The ledger's own objects stay without content: they wait there for the node's word, and scripts
    are not to be kept in memory.
    """
    batch: list[Order] = []
    size = 0
    for order in orders:
        if isinstance(order, Prepare) and order.launch.batch:
            filled = _filled(order.launch, content)
            size += len(filled.script) + len(filled.environment)
            order = Prepare(order.n, filled, order.go)
        batch.append(order)
        size += 1024
        if size >= ENOUGH:
            yield Orders(epoch, session, batch)
            batch, size = [], 0
    if batch:
        yield Orders(epoch, session, batch)


def _filled(launch: LaunchSpec, content: Content) -> LaunchSpec:
    """For the batch host. Content that is not there stays empty: the node then refuses."""
    job = launch.job
    return msgspec.structs.replace(
        launch,
        script=(content(job.script) if job.script else None) or b"",
        environment=(content(job.environment) if job.environment else None) or b"",
    )
