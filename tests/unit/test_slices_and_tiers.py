"""Turns beside preemption that suspends (PreemptMode=SUSPEND,GANG with OverSubscribe=FORCE:2), and
when what stands still is expected back: nothing is planned into the place of one that goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from unit.test_gang_examples import Page, on
from unit.test_suspend_examples import CONF as TIERS
from unit.test_time_slices import reload, states, why

from gsched.model import Job, Shape

#: what a real Slurm 22.05 was asked: slices of 6 s, two partitions of which one preempts
CONF = TIERS.replace("FORCE:1", "FORCE:2") + "SchedulerTimeSlice=6\n"
#: all CPUs of one node, and half of them
WHOLE = Shape(min_nodes=1, max_nodes=1, ntasks=16, nodelist=("n12",))
HALF = msgspec.structs.replace(WHOLE, ntasks=8)


def put(page: Page, shape: Shape, partition: str = "active", **kw: Any) -> Job:
    job = page.sbatch(1, shape=shape, partitions=(partition,), **kw)
    page.turn()
    page.turn()
    return job


def test_those_above_take_turns_too_and_then_those_below() -> None:
    """Seen on a real Slurm: 26 and 27 take turns, 28 and 29 come above them and take turns, and
    after both have ended 26 works on, 27 waiting for its turn."""
    page = Page(CONF)
    job26, job27 = put(page, WHOLE, length=100), put(page, WHOLE, length=100)
    page.wait(3)
    assert page.squeue(job26, job27) == [("R", 3), ("S", 0)]
    job28 = put(page, WHOLE, "hipri", length=9)
    job29 = put(page, WHOLE, "hipri", length=12)
    assert states(job26, job27, job28, job29) == ["S", "S", "R", "S"]
    reload(page)
    page.wait(6)
    assert states(job26, job27, job28, job29) == ["S", "S", "S", "R"]
    page.wait(6)
    assert states(job26, job27, job28, job29) == ["S", "S", "R", "S"]
    reload(page)
    page.wait(3)
    assert states(job26, job27, job28, job29) == ["S", "S", "CD", "R"]
    page.wait(6)
    assert page.squeue(job28, job29) == [("CD", 9), ("CD", 12)]
    assert page.squeue(job26, job27) == [("R", 3), ("S", 0)]
    reload(page)
    page.wait(6)
    assert states(job26, job27) == ["S", "R"]
    # They share their cores as before: a third of their partition finds no place, one of its own
    # tier neither.
    assert job26.alloc[0].cpu_ids == job27.alloc[0].cpu_ids
    assert states(put(page, WHOLE), put(page, HALF)) == ["PD", "PD"]


def test_what_is_left_of_a_shared_place_is_theirs() -> None:
    """The one above takes half of the CPUs: nobody else of the lower tier has the other half."""
    page = Page(CONF)
    first, second = put(page, WHOLE), put(page, WHOLE)
    high = put(page, HALF, "hipri", length=20)
    assert states(first, second, high) == ["S", "S", "R"]
    assert states(put(page, HALF)) == ["PD"]
    reload(page)
    page.wait(20)
    assert states(first, second, high) == ["R", "S", "CD"]
    page.wait(6)
    assert states(first, second) == ["S", "R"]


def test_on_other_nodes_the_turn_passes_on() -> None:
    """A job on two nodes stands still for one on the first of them: on the second it is the turn of
    whoever waits there."""
    page = Page(CONF)
    wide = put(page, Shape(min_nodes=2, max_nodes=2, ntasks=32, nodelist=("n12", "n13")))
    there = put(page, msgspec.structs.replace(WHOLE, nodelist=("n13",)))
    assert (states(wide, there), on(wide)) == (["R", "S"], ["n12", "n13"])
    high = put(page, WHOLE, "hipri", length=20)
    assert states(wide, there, high) == ["S", "R", "R"]
    page.wait(14)
    assert states(wide, there) == ["S", "R"]
    page.wait(6)
    # It has its place back, and waits for its turn like anybody.
    assert states(wide, there, high) == ["S", "R", "CD"]
    page.wait(6)
    assert states(wide, there) == ["R", "S"]


# ---- when it is over -----------------------------------------------------------------------------


def start_of(page: Page, job: Job) -> int:
    """Seconds from now until a waiting job is expected to start, after a pass."""
    page.b.schedule()
    return page.b.led.cluster.estimate(job.id)[0] - int(page.b.now)


def planning(conf: str) -> Page:
    return Page(conf.replace("priority/basic", "priority/basic\nSchedulerType=sched/backfill"))


def test_nothing_is_planned_into_the_place_of_one_that_goes_on() -> None:
    """600 s of the one above, then the 500 that the other has left: only then a third."""
    page = planning(TIERS)
    low = put(page, WHOLE, length=900)
    page.wait(100)
    high = put(page, HALF, "hipri", length=900)
    assert states(low, high) == ["S", "R"]
    third = put(page, WHOLE, length=900)
    assert start_of(page, third) == 1100
    assert why(page, low) == [
        "It stands still for job 2, and goes on when that has ended, at +600 at the latest."
    ]
    page.wait(100)
    page.b.now += 0
    assert start_of(page, third) == 1000
    # Once it is over the other one's own limit counts again.
    page.length[high.id] = 100
    page.turn()
    assert states(low, high) == ["R", "CD"]
    assert start_of(page, third) == 500


def test_of_three_on_top_of_each_other_each_goes_on() -> None:
    """600 + 600 + 600."""
    conf = TIERS + "PartitionName=best PriorityTier=3 OverSubscribe=FORCE:1 Nodes=n[12-16]\n"
    page = planning(conf)
    jobs = [put(page, WHOLE, name, length=900) for name in ("active", "hipri", "best")]
    assert states(*jobs) == ["S", "S", "R"]
    assert start_of(page, put(page, WHOLE, length=900)) == 1800


def test_those_who_take_turns_need_the_time_of_both() -> None:
    """Two of 600 s on the same CPUs: they are over after 1200 s, and FORCE:2 has no place before.
    When one has 6 s less to go than the other it is over when both have had what it has left."""
    page = planning(CONF)
    first, second = put(page, WHOLE, length=900), put(page, WHOLE, length=900)
    third = put(page, WHOLE, length=900)
    assert states(first, second, third) == ["R", "S", "PD"]
    assert start_of(page, third) == 1200
    page.wait(6)
    assert states(first, second) == ["S", "R"]
    assert start_of(page, third) == 594 + 594


@pytest.mark.parametrize(("node", "at"), [("n12", 900), ("n13", 300)])
def test_where_nobody_stands_still_it_is_free_with_the_preemptor(node: str, at: int) -> None:
    page = planning(TIERS)
    low = put(page, WHOLE, length=900)
    shape = Shape(min_nodes=2, max_nodes=2, ntasks=32, nodelist=("n12", "n13"))
    high = put(page, shape, "hipri", length=900, time_limit=300)
    assert states(low, high) == ["S", "R"]
    waits = put(page, msgspec.structs.replace(WHOLE, nodelist=(node,)), length=900)
    assert (states(waits), start_of(page, waits)) == (["PD"], at)
