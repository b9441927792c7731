"""The process died, or answered with GPUs that are no more, when it was asked what would be at a
later time after a node had been described anew with fewer GPUs: the plan's lines of time were
still those of the node as it was.
"""

from __future__ import annotations

import pytest

from gsched import _core
from gsched._core import Core


def links(gpus: int) -> list[list[int]]:
    return [[0 if i == j else 18 for j in range(gpus)] for i in range(gpus)]


@pytest.mark.parametrize("keep", [_core.DRAW_FORWARD, _core.HOLD_STILL, _core.STAND])
def test_only_gpus_that_are_there_are_promised(keep: int) -> None:
    """A node with 8 GPUs, all in use until 200, comes back with two: a job for three never fits
    there, one for two does when they are free."""
    core = Core(1)
    eight = core.define_class(links(8), [0] * 8)
    two = core.define_class(links(2), [0] * 2)
    core.set_node(0, cls=eight, cpus=16, mem_mb=500, gpu_type_masks=[(0, 0xFF)], partitions=1)
    core.allocate(1, [(0, 8, 0, 0xFF)], 200)
    want = {n: core.request(partition=0, gpus_per_node=n) for n in (2, 3)}
    core.queue_add(2, core.request(partition=0, gpus_per_node=8), 1, 1, 60)
    done = core.schedule(100, plan_jobs=10, resolution=1, window=1000, keep=keep)
    assert [(r.key, r.at) for r in done.reservations] == [(2, 200)]
    core.set_node(0, cls=two, cpus=16, mem_mb=500, gpu_type_masks=[(0, 0b11)], partitions=1)
    for without in ((), (2,)):
        for at in (150, 250, 300):
            assert core.what_if(want[3], 100, 60, at=at, without=without) is None
            core.survey(want[2], 100, 60, at=at, without=without)
        there = core.what_if(want[2], 100, 60, at=300, without=without)
        assert there is not None and there.nodes[0][4] == 0b11
        assert core.earliest(want[3], 100, 60, without=without) == 0
    assert core.earliest(want[2], 100, 60, without=(2,)) == 200
    core.check()
