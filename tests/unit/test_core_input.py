"""Bad input at the core's boundary: ValueError naming the value, nothing changed, never a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsched._core import Core

LINKS = [[0, 1], [1, 0]]


@pytest.fixture
def core() -> Core:
    core = Core(3)
    cls = core.define_class(LINKS, [0, 0])
    for node in range(2):
        core.set_node(node, cls=cls, cpus=4, mem_mb=100, gpu_type_masks=[(0, 3)])
    req = core.request(gpus_per_node=1)
    core.allocate(1, [(0, 2, 50, 0b01)])
    core.queue_add(9, req, 0, 0)
    return core


@pytest.mark.parametrize("n", [0, -1, 100_001, 1 << 70, "4", 2.5, None])
def test_size(n: Any) -> None:
    with pytest.raises(ValueError):
        Core(n)


CALLS: list[tuple[str, Callable[[Core], object]]] = [
    ("node 3", lambda c: c.set_usable(3, True)),
    ("node -1", lambda c: c.set_usable(-1, True)),
    ("node 3", lambda c: c.node(3)),
    ("'a'", lambda c: c.node("a")),  # type: ignore[arg-type]
    ("row 0", lambda c: c.define_class([[0], [0, 0]], [0, 0])),
    ("1 NUMA domains for 2", lambda c: c.define_class(LINKS, [0])),
    ("0-1|1-0", lambda c: c.define_class([[0, 1], [2, 0]], [0, 0])),
    ("1001", lambda c: c.define_class([[0, 1001], [1001, 0]], [0, 0])),
    ("65 GPUs", lambda c: c.define_class([[0] * 65] * 65, [0] * 65)),
    ("class 9", lambda c: c.set_node(0, cls=9, cpus=1, mem_mb=1)),
    ("CPUs -1", lambda c: c.set_node(0, cpus=-1, mem_mb=1)),
    ("memory -1", lambda c: c.set_node(0, cpus=1, mem_mb=-1)),
    ("0x1 has bits beyond", lambda c: c.set_node(0, cpus=1, mem_mb=1, gpu_type_masks=[(0, 1)])),
    (
        "second type",
        lambda c: c.set_node(0, cls=1, cpus=1, mem_mb=1, gpu_type_masks=[(0, 1), (1, 3)]),
    ),
    ("type 256", lambda c: c.set_node(0, cls=1, cpus=1, mem_mb=1, gpu_type_masks=[(256, 1)])),
    ("256 bits", lambda c: c.set_node(0, cpus=1, mem_mb=1, partitions=1 << 256)),
    ("features -1", lambda c: c.set_node(0, cpus=1, mem_mb=1, features=-1)),
    ("threads per core 0", lambda c: c.set_node(0, cpus=1, mem_mb=1, threads=0)),
    ("64 bits", lambda c: c.set_gpu_ok(0, 1 << 64)),
    ("0x8", lambda c: c.best_gpus(1, 8, 1)),
    ("65", lambda c: c.best_gpus(1, 3, 65)),
    ("min_nodes 0", lambda c: c.request(min_nodes=0)),
    ("max_nodes 1 is below", lambda c: c.request(min_nodes=2, max_nodes=1)),
    ("cpus_per_task 0", lambda c: c.request(cpus_per_task=0)),
    ("ntasks 1000000001", lambda c: c.request(ntasks=1_000_000_001)),
    ("partition 256", lambda c: c.request(partition=256)),
    ("gpus_total 1 is below", lambda c: c.request(gpus_total=1, min_nodes=2)),
    ("gpus_total 4 with", lambda c: c.request(gpus_total=4, gpus_per_node=2)),
    ("only one", lambda c: c.request(mem_per_cpu_mb=1, mem_per_node_mb=1)),
    ("without GPUs", lambda c: c.request(cpus_per_gpu=1)),
    ("node 7", lambda c: c.request(nodelist=[7])),
    ("node 1 is included and excluded", lambda c: c.request(nodelist=[1], exclude=[1])),
    ("2 nodes to include", lambda c: c.request(nodelist=[0, 1], max_nodes=1)),
    ("class 5", lambda c: c.place(5)),
    ("class 5", lambda c: c.can_ever(5)),
    ("class -1", lambda c: c.place(-1)),
    ("used by 1 queued", lambda c: c.drop_request(0)),
    ("allocation 1 exists", lambda c: c.allocate(1, [(1, 1, 0, 0)])),
    ("0 nodes", lambda c: c.allocate(2, [])),
    ("node 0 comes twice", lambda c: c.allocate(2, [(0, 1, 0, 0), (0, 1, 0, 0)])),
    ("GPUs 0x1 of node 0 are held", lambda c: c.allocate(2, [(1, 1, 0, 0), (0, 1, 0, 1)])),
    ("node 0 has no GPUs 0x4", lambda c: c.allocate(2, [(0, 1, 0, 4)])),
    ("3 CPUs of node 0: only 2", lambda c: c.allocate(2, [(0, 3, 0, 0)])),
    ("51 MB of node 0: only 50", lambda c: c.allocate(2, [(0, 1, 51, 0)])),
    ("CPUs -1", lambda c: c.allocate(2, [(0, -1, 0, 0)])),
    ("is not", lambda c: c.allocate(2, [(0, 1)])),  # type: ignore[list-item]
    ("end -5", lambda c: c.allocate(2, [(0, 1, 0, 0)], -5)),
    ("allocation 7 is not known", lambda c: c.release(7)),
    ("nothing on node 1", lambda c: c.release_node(1, 1)),
    ("allocation 7", lambda c: c.set_end(7, 1)),
    ("key", lambda c: c.release(1 << 64)),
    ("job 9 is in the queue", lambda c: c.queue_add(9, 0, 0, 0)),
    ("job 1 holds", lambda c: c.queue_add(1, 0, 0, 0)),
    ("limit_s -1", lambda c: c.queue_add(2, 0, 0, 0, -1)),
    ("held 256", lambda c: c.queue_add(2, 0, 0, 0, held=256)),
    ("group 0", lambda c: c.queue_add(2, 0, 0, 0, group=0)),
    ("group 1", lambda c: c.set_group(1, 5)),
    ("job 8", lambda c: c.queue_remove(8)),
    ("class 4", lambda c: c.queue_update(9, req=4)),
    ("job 8", lambda c: c.verdict(8)),
    ("now -1", lambda c: c.schedule(-1)),
    ("max_starts -1", lambda c: c.schedule(0, -1)),
]


@pytest.mark.parametrize(("text", "call"), CALLS, ids=[str(i) for i in range(len(CALLS))])
def test_value_errors_name_the_value(core: Core, text: str, call: Callable[[Core], object]) -> None:
    before = [core.node(n) for n in range(3)], core.allocation(1), len(core)
    with pytest.raises(ValueError, match=text):
        call(core)
    assert ([core.node(n) for n in range(3)], core.allocation(1), len(core)) == before
    core.check()


def test_work_on_a_shrunk_node_stays_and_can_be_adopted(core: Core) -> None:
    core.allocate(2, [(0, 2, 50, 0b10)])
    core.set_node(0, cls=1, cpus=1, mem_mb=10, gpu_type_masks=[(0, 0b11)])
    assert core.node(0).free_cpus == -3
    assert core.node(0).used_gpus == 0b11
    core.check()
    core.release(1)
    with pytest.raises(ValueError, match="only -1 are free"):
        core.allocate(1, [(0, 2, 50, 0b01)])
    core.allocate(1, [(0, 2, 50, 0b01)], adopt=True)
    with pytest.raises(ValueError, match="held by another job"):
        core.allocate(3, [(0, 0, 0, 0b01)], adopt=True)
    core.release(1)
    core.release(2)
    assert core.node(0) == (1, 10, 0b11, 0, 0, True, 2000)
    core.check()


def test_nodes_of_a_job_come_free_one_by_one(core: Core) -> None:
    core.allocate(5, [(0, 1, 1, 0b10), (1, 4, 100, 0b11)], end=9)
    core.release_node(5, 0)
    assert core.allocation(5) == ((1, 4, 0, 100, 0b11),)
    assert core.node(0) == (2, 50, 0b10, 0b01, 1, True, 1000)
    core.release_node(5, 1)
    assert core.allocation(5) == ()
    core.check()


def test_request_classes_are_shared_and_forgotten() -> None:
    core = Core(1)
    a = core.request(features_all=3, exclude=[0])
    assert core.request(exclude=[0], features_any=[3]) == a
    b = core.request(features_all=1)
    assert b != a
    core.drop_request(a)
    core.drop_request(a)
    with pytest.raises(ValueError, match=f"class {a}"):
        core.place(a)
    assert core.request(features_all=5) == a
    core.queue_add(1, b, 0, 0)
    c = core.request(features_all=7)
    core.queue_update(1, req=c)
    core.drop_request(b)


def test_the_largest_cluster() -> None:
    core = Core(100_000)
    cls = core.define_class([[0] * 4 for _ in range(4)], [0] * 4)
    for node in (0, 99_999):
        core.set_node(node, cls=cls, cpus=1, mem_mb=1, gpu_type_masks=[(0, 15)])
    answer = core.place(core.request(gpus_per_node=4, min_nodes=2, max_nodes=2))
    assert answer.nodes == ((0, 1, 1, 0, 15), (99_999, 1, 1, 0, 15))


def test_sixty_four_gpus() -> None:
    core = Core(1)
    cls = core.define_class(
        [[int(i // 8 == j // 8) for j in range(64)] for i in range(64)], [0] * 64
    )
    every = (1 << 64) - 1
    core.set_node(0, cls=cls, cpus=64, mem_mb=1, gpu_type_masks=[(0, every)])
    assert len(core.islands(cls)) == 8
    answer = core.place(core.request(gpus_per_node=64))
    assert answer.nodes == ((0, 1, 1, 0, every),)
    core.allocate(1, [(0, 1, 0, 0x7F)])
    # One GPU: the one that is alone on its island; nine: an island and one.
    assert core.best_gpus(cls, every & ~0x7F, 1) == 0x80
    assert core.best_gpus(cls, every & ~0x7F, 9) == 0xFF80
    core.check()
