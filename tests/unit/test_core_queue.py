"""The pass: order, starts, reservations, verdicts."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched import _core
from gsched._core import Core, Plan

FULL = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
YEAR = 365 * 86400


def cluster(nodes: int, *, partitions: int = 1) -> Core:
    core = Core(nodes)
    cls = core.define_class(FULL, [0] * 8)
    for node in range(nodes):
        core.set_node(
            node,
            cls=cls,
            cpus=16,
            mem_mb=1000,
            gpu_type_masks=[(0, 0xFF)],
            partitions=partitions,
        )
    return core


def started(plan: Plan) -> list[int]:
    return [start.key for start in plan.starts]


def test_priority_then_order_then_key() -> None:
    core = cluster(1)
    req = core.request(partition=0, gpus_per_node=1)
    core.queue_add(5, req, 10, 3)
    core.queue_add(4, req, 10, 3)
    core.queue_add(3, req, 10, 1)
    core.queue_add(2, req, 99, 9)
    core.queue_add(1, req, -5, 0)
    plan = core.schedule(0)
    assert started(plan) == [2, 3, 4, 5, 1]
    assert [s.placement.nodes[0][4] for s in plan.starts] == [1, 2, 4, 8, 16]
    assert len(core) == 0
    core.check()


def test_a_reservation_keeps_gpus_not_nodes() -> None:
    """Eight GPUs, four held until 100. The head wants six: from 100 on two are left for others."""
    core = cluster(1)
    core.allocate(1, [(0, 4, 0, 0x0F)], end=100)
    six = core.request(partition=0, gpus_per_node=6)
    one = core.request(partition=0, gpus_per_node=1)
    core.queue_add(10, six, 9, 0, limit_s=50)
    # Two jobs that last beyond 100 use the two that the head leaves; a third one would delay it.
    for key in (11, 12, 13):
        core.queue_add(key, one, 5, key, limit_s=1000)
    # One that ends in time may use what is reserved.
    core.queue_add(14, one, 1, 14, limit_s=100)
    core.queue_add(15, one, 1, 15, limit_s=101)
    plan = core.schedule(0)
    assert started(plan) == [11, 12, 14]
    assert [(r.key, r.at, r.until) for r in plan.reservations] == [(10, 100, 150)]
    assert core.verdict(10) == _core.RESOURCES
    assert core.verdict(13) == _core.PRIORITY
    assert core.verdict(15) == _core.PRIORITY
    core.release(1)
    core.release(14)
    assert started(core.schedule(100)) == [10]


def test_a_job_without_limit_does_not_pass_the_head() -> None:
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 0b1)], end=0)
    core.queue_add(2, core.request(partition=0, gpus_per_node=8), 9, 0)
    core.queue_add(3, core.request(partition=0, gpus_per_node=1), 1, 0)
    core.queue_add(4, core.request(partition=0, gpus_per_node=1), 1, 1, limit_s=YEAR)
    plan = core.schedule(50)
    assert [(r.key, r.at) for r in plan.reservations] == [(2, 50 + YEAR)]
    assert started(plan) == [4]
    assert core.verdict(3) == _core.PRIORITY


def test_memory_and_cpus_are_reserved_too() -> None:
    core = cluster(1)
    core.allocate(1, [(0, 8, 500, 0)], end=100)
    core.queue_add(2, core.request(partition=0, cpus_per_task=12, mem_per_node_mb=800), 9, 0, 10)
    core.queue_add(3, core.request(partition=0, cpus_per_task=5, mem_per_node_mb=1), 1, 0, 200)
    core.queue_add(4, core.request(partition=0, cpus_per_task=1, mem_per_node_mb=201), 1, 1, 200)
    core.queue_add(5, core.request(partition=0, cpus_per_task=4, mem_per_node_mb=200), 1, 2, 200)
    assert started(core.schedule(0)) == [5]
    assert [core.verdict(k) for k in (2, 3, 4)] == [
        _core.RESOURCES,
        _core.PRIORITY,
        _core.PRIORITY,
    ]


def test_each_partition_has_its_head() -> None:
    core = cluster(2, partitions=3)
    core.allocate(1, [(0, 1, 0, 0xFF)], end=100)
    core.allocate(2, [(1, 1, 0, 0xFF)], end=200)
    for key, partition in ((10, 0), (11, 0), (20, 1)):
        req = core.request(partition=partition, gpus_per_node=8)
        core.queue_add(key, req, 0, key, limit_s=1000)
    plan = core.schedule(0)
    assert [(r.key, r.at, r.placement.nodes[0][0]) for r in plan.reservations] == [
        (10, 100, 0),
        (20, 200, 1),
    ]
    assert [core.verdict(k) for k in (10, 11, 20)] == [
        _core.RESOURCES,
        _core.BEHIND,
        _core.RESOURCES,
    ]


def test_jobs_for_drained_nodes_do_not_block_others() -> None:
    core = cluster(2)
    core.set_usable(1, False)
    core.queue_add(1, core.request(partition=0, min_nodes=2, max_nodes=2), 9, 0)
    core.queue_add(2, core.request(partition=0, nodelist=[1]), 8, 0)
    core.queue_add(3, core.request(partition=0, gpus_per_node=9), 7, 0)
    core.queue_add(4, core.request(partition=0), 1, 0)
    plan = core.schedule(0)
    assert started(plan) == [4]
    assert [core.verdict(k) for k in (1, 2, 3)] == [
        _core.NODES_DOWN,
        _core.NODES_DOWN,
        _core.NEVER,
    ]
    core.set_usable(1, True)
    assert started(core.schedule(1)) == [1, 2]


def test_held_begin_and_groups() -> None:
    core = cluster(1)
    core.set_group(0, 1)
    req = core.request(partition=0)
    core.queue_add(1, req, 0, 1, held=1)
    core.queue_add(2, req, 0, 2, ready_at=100)
    core.queue_add(3, req, 0, 3, group=0)
    core.queue_add(4, req, 0, 4, group=0)
    plan = core.schedule(99)
    assert started(plan) == [3]
    assert dict(plan.changed) == {
        1: _core.HELD,
        2: _core.BEGIN,
        3: _core.STARTED,
        4: _core.GROUP,
    }
    core.queue_update(1, held=0)
    core.set_group(0, 1)
    assert started(core.schedule(100)) == [1, 2, 4]


def test_a_job_for_two_partitions_starts_once() -> None:
    core = cluster(2, partitions=3)
    core.set_group(0, 5)
    core.set_group(1, 1)
    for key, partition in ((1, 0), (2, 1)):
        core.queue_add(key, core.request(partition=partition), 0, key, group=0, unit=1)
    plan = core.schedule(0)
    assert started(plan) == [1]
    assert core.verdict(2) == _core.GROUP


def test_only_changed_verdicts_are_told() -> None:
    core = cluster(1)
    core.queue_add(1, core.request(partition=0), 0, 0, held=1)
    assert core.schedule(0).changed == [(1, _core.HELD)]
    assert core.schedule(1).changed == []
    assert core.verdicts() == (array("q", [1]).tobytes(), bytes([_core.HELD]))


def test_bounds_of_a_pass() -> None:
    core = cluster(1)
    req = core.request(partition=0)
    for key in range(5):
        core.queue_add(key, req, 0, key)
    plan = core.schedule(0, 2)
    assert (started(plan), plan.more) == ([0, 1], True)
    plan = core.schedule(0, 0, 2)
    assert (started(plan), plan.more, plan.tested) == ([2, 3], False, 2)
    assert core.verdict(4) == _core.UNTESTED


def test_places_in_the_queue_are_used_again() -> None:
    core = cluster(1)
    req = core.request(partition=0)
    for turn in range(50):
        for key in range(3):
            core.queue_add(key, req, turn, key, held=1)
        core.queue_remove(1)
        core.queue_add(1, req, 0, 99, held=1)
        core.schedule(turn)
        assert len(core) == 3
        keys = array("q", core.verdicts()[0]).tolist()
        assert keys == [0, 2, 1]
        for key in range(3):
            core.queue_remove(key)
    assert len(core) == 0


def test_many_priorities_at_once() -> None:
    core = cluster(1)
    req = core.request(partition=0)
    for key in range(1000):
        core.queue_add(key, req, 0, key, held=1)
    core.schedule(0)
    keys = array("q", range(1000))
    assert core.queue_priorities(keys, array("q", [(k * 7919) % 1000 for k in keys])) == 999
    core.schedule(1)
    seen = array("q", core.verdicts()[0]).tolist()
    assert seen == sorted(range(1000), key=lambda k: -((k * 7919) % 1000))
    with pytest.raises(ValueError, match="2 keys, 1 priorities"):
        core.queue_priorities(array("q", [1, 2]), array("q", [1]))


def test_equal_jobs_cost_one_placement() -> None:
    core = cluster(2)
    core.allocate(1, [(0, 16, 0, 0), (1, 16, 0, 0)], end=10)
    req = core.request(partition=0)
    for key in range(2, 2000):
        core.queue_add(key, req, 0, key, limit_s=key)
    plan = core.schedule(0)
    assert (plan.tested, plan.placed) == (1998, 1)


jobs = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 4, 8]),  # GPUs per node
        st.sampled_from([1, 1, 1, 2]),  # nodes
        st.sampled_from([1, 2, 5, 9]),  # CPUs
        st.integers(1, 40),  # limit
        st.integers(0, 2),  # priority
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(jobs, st.integers(1, 3))
def test_the_head_is_never_delayed(rows: list[tuple[int, int, int, int, int]], nodes: int) -> None:
    """All jobs last as long as their limit: the head starts when it was promised or before.

    And every job that fits starts in the end: nothing is lost.
    """
    core = cluster(nodes)
    left = 0
    for key, (gpus, count, cpus, limit, priority) in enumerate(rows):
        if count > nodes:
            continue
        left += 1
        req = core.request(
            partition=0, min_nodes=count, max_nodes=count, gpus_per_node=gpus, cpus_per_task=cpus
        )
        core.queue_add(key, req, priority, key, limit_s=limit)
    ends: dict[int, int] = {}
    promise: dict[int, int] = {}
    now = 0
    while left:
        plan = core.schedule(now)
        core.check()
        for start in plan.starts:
            left -= 1
            ends[start.key] = now + rows[start.key][3]
            assert now <= promise.get(start.key, now)
        for planned in plan.reservations:
            assert planned.at > now
            # Of the same head the promise never gets worse.
            assert planned.at <= promise.get(planned.key, planned.at)
            promise[planned.key] = planned.at
        if not left:
            break
        now = min(ends.values())
        for key in [k for k, end in ends.items() if end == now]:
            core.release(key)
            del ends[key]
