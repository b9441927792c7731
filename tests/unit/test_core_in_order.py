"""First in, first out: nobody overtakes the first blocked job of his partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from unit.test_core_queue import cluster, started
from unit.test_core_reference import SLOW, Both, passes

from gsched import _core


def test_the_first_blocked_job_stops_its_partition() -> None:
    """8 GPUs: 1 takes six, 2 wants four and waits; 3 would fit, now and without delaying 2, and
    starts only where jobs may overtake."""
    for in_order, expected in ((True, [1]), (False, [1, 3])):
        core = cluster(1)
        core.set_in_order(in_order)
        six, four, one = (core.request(partition=0, gpus_per_node=n) for n in (6, 4, 1))
        core.queue_add(1, six, 0, 1, limit_s=100)
        core.queue_add(2, four, 0, 2, limit_s=100)
        core.queue_add(3, one, 0, 3, limit_s=50)
        assert started(core.schedule(0)) == expected
        assert core.verdict(2) == _core.RESOURCES
    core = cluster(1)
    core.set_in_order(True)
    core.queue_add(1, core.request(partition=0, gpus_per_node=6), 0, 1)
    core.queue_add(2, core.request(partition=0, gpus_per_node=4), 0, 2)
    core.queue_add(3, core.request(partition=0, gpus_per_node=1), 0, 3)
    core.schedule(0)
    assert core.verdict(3) == _core.PRIORITY


def test_other_partitions_and_jobs_that_can_never_run_stop_nobody() -> None:
    core = cluster(1, partitions=3)
    core.set_in_order(True)
    core.queue_add(1, core.request(partition=0, gpus_per_node=6), 0, 1)
    core.queue_add(2, core.request(partition=0, gpus_per_node=9), 0, 2)
    core.queue_add(3, core.request(partition=0, gpus_per_node=1), 0, 3)
    core.queue_add(4, core.request(partition=0, gpus_per_node=8), 0, 4)
    core.queue_add(5, core.request(partition=0, gpus_per_node=9), 0, 5)
    core.queue_add(6, core.request(partition=1, gpus_per_node=1), 0, 6, limit_s=10)
    core.allocate(9, [(0, 1, 0, 0)], end=100)
    assert started(core.schedule(0)) == [1, 3, 6]
    assert [core.verdict(k) for k in (2, 4, 5)] == [_core.NEVER, _core.RESOURCES, _core.NEVER]


@SLOW
@given(st.data())
def test_passes_in_order_are_the_twins(data: st.DataObject) -> None:
    def prepare(_data: st.DataObject, both: Both, _nodes: int) -> None:
        for one in both:
            one.set_in_order(True)

    passes(data, conservative=False, prepare=prepare)
