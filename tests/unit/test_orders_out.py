"""Orders on the wire: the same message, however it was made."""

from __future__ import annotations

import msgspec

from gsched.controller.orders import KEPT, Contents, pack
from gsched.model import Job, JobSpec, NodeAlloc
from gsched.wire.codec import decode, encode
from gsched.wire.nodes import Forget, LaunchSpec, Orders, Prepare, ToNode


def order(n: int, job: Job, index: int) -> Prepare:
    return Prepare(n, LaunchSpec(job, index, [f"GPU-{index}"], 60), False)


def test_a_job_of_many_nodes_is_encoded_once_and_reads_the_same() -> None:
    alloc = [NodeAlloc(f"n{i}", 4, 1, 100, 1 << i) for i in range(5)]
    gang = Job(7, 1000, 1000, "user", "group", JobSpec(), alloc=alloc)
    single = Job(8, 1000, 1000, "user", "group", JobSpec(), alloc=alloc[:1])
    images: dict[int, msgspec.Raw] = {}
    for index in range(5):
        orders = Orders(3, "session", [order(1, gang, index), Forget(2, 6, 1), order(3, single, 0)])
        (message,) = pack(3, "session", orders.orders, lambda digest: None, images)
        sent = encode(message)
        assert sent == encode(orders)
        assert decode(ToNode, sent) == orders
    assert list(images) == [id(gang)]


def test_what_many_jobs_have_in_common_is_read_once() -> None:
    stored = {"small": b"x" * 100, "large": b"y" * (KEPT + 1)}
    reads: list[str] = []

    def read(digest: str) -> bytes | None:
        reads.append(digest)
        return stored.get(digest)

    contents = Contents(read)
    for _ in range(3):
        assert contents("small") == stored["small"]
        assert contents("large") == stored["large"]
        assert contents("none") is None
    assert [reads.count(name) for name in ("small", "large", "none")] == [1, 3, 3]
