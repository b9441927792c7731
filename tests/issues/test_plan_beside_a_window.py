"""Work planned on a node made more room for others there than there is.

A job of an advance reservation was planned on a node; a job outside that would run into the
reservation was then measured against all CPUs that are free now, those that the reservation keeps
among them. It started, or took one of the exact places of the plan less, only because another job
was planned there.
"""

from __future__ import annotations

from typing import Any

import pytest

from gsched import _core
from gsched._core import Core


def core_with_a_window() -> Core:
    """16 CPUs, 8 of them and 4 of 8 GPUs in use until 230; 2 CPUs are kept from 428 to 438."""
    core = Core(1)
    links = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
    cls = core.define_class(links, [0] * 8)
    core.set_node(0, cls=cls, cpus=16, mem_mb=500, gpu_type_masks=[(0, 0xFF)], partitions=1)
    core.set_reservation(0, [(428, 438)], [(0, 2, 0)])
    core.allocate(1, [(0, 8, 0, 0x0F)], 230)
    return core


@pytest.mark.parametrize("plan", [{}, {"plan_jobs": 1, "resolution": 7, "window": 1000}])
@pytest.mark.parametrize("keep", [_core.DRAW_FORWARD, _core.HOLD_STILL])
def test_a_job_of_the_reservation_gives_nothing_to_others(plan: dict[str, Any], keep: int) -> None:
    """At 220, 8 of 16 CPUs are free and 2 of them are kept at 428: 6 are left to who stays until
    then. Two tasks of 4 CPUs and no limit do not start, one task of 1 CPU for 30 s does."""
    core = core_with_a_window()
    own = core.request(partition=0, min_nodes=1, reservation=0)
    two = core.request(partition=0, min_nodes=1, ntasks=2, gpus_per_task=2, cpus_per_gpu=2)
    one = core.request(partition=0, min_nodes=1, gpus_per_node=2)
    # The first in the queue has the only exact place in the plan.
    core.queue_add(2, own, 9, 1, 10)
    core.queue_add(3, two, 8, 2, 0)
    core.queue_add(4, one, 7, 3, 30)
    done = core.schedule(220, **plan, keep=keep if plan else 0)
    assert [(r.key, r.at) for r in done.reservations if r.key == 2] == [(2, 428)]
    assert [start.key for start in done.starts] == [4]
    assert core.verdict(3) == _core.WINDOW


def test_exact_places_of_a_plan_go_to_whom_the_order_of_choice_does_not_start() -> None:
    """Of two exact places the second is for the job that only the plan can start: the one behind
    it gets none, whatever is planned on its node."""
    core = core_with_a_window()
    own = core.request(partition=0, min_nodes=1, reservation=0)
    two = core.request(partition=0, min_nodes=1, ntasks=2, gpus_per_task=2, cpus_per_gpu=2)
    one = core.request(partition=0, min_nodes=1, gpus_per_node=2)
    core.queue_add(2, own, 9, 1, 10)
    core.queue_add(3, two, 8, 2, 0)
    core.queue_add(4, one, 7, 3, 30)
    done = core.schedule(220, plan_jobs=2, resolution=7, window=1000, keep=_core.HOLD_STILL)
    # 8 CPUs until 230, 14 when the window is open: enough at every time.
    assert [start.key for start in done.starts] == [3]
    assert [(r.key, r.at) for r in done.reservations] == [(2, 428)]
