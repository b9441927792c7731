"""Orders on their way out: script and environment are put in, and messages kept in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from gsched.wire.nodes import LaunchSpec, Order, Orders, Prepare

_encode = msgspec.msgpack.Encoder().encode

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


def pack(
    epoch: int,
    session: str,
    orders: Sequence[Order],
    content: Content,
    images: dict[int, msgspec.Raw] | None = None,
) -> Iterator[Orders]:
    """The orders of one node as few messages, in order.

    The ledger's own objects stay without content: they wait there for the node's word, and scripts
    are not to be kept in memory. `images`: packed jobs by the identity of their image, for a batch
    that is sent: a job on many nodes, which names them all, is packed once for all of them.
    """
    batch: list[Order] = []
    size = 0
    for order in orders:
        if isinstance(order, Prepare):
            filled = _filled(order.launch, content, images)
            size += len(filled.script) + len(filled.environment)
            order = Prepare(order.n, filled, order.go)
        batch.append(order)
        size += 1024
        if size >= ENOUGH:
            yield Orders(epoch, session, batch)
            batch, size = [], 0
    if batch:
        yield Orders(epoch, session, batch)


def _filled(
    launch: LaunchSpec, content: Content, images: dict[int, msgspec.Raw] | None
) -> LaunchSpec:
    """With what the batch host needs. Content that is not there stays empty: the node then
    refuses."""
    job: Any = launch.job
    script = environment = b""
    if launch.batch:
        script = (content(job.script) if job.script else None) or b""
        environment = (content(job.environment) if job.environment else None) or b""
    if images is not None:
        raw = images.get(id(job))
        if raw is None and len(job.alloc) > 1:
            raw = images[id(job)] = msgspec.Raw(_encode(job))
        job = raw or job
    return msgspec.structs.replace(launch, job=job, script=script, environment=environment)
