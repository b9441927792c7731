"""Preemption within an advance reservation."""

from __future__ import annotations

import pytest
from unit.ledger_support import Bench
from unit.test_preempt import QOS, WHOLE, bench, fill, over, pass_time, run
from unit.test_reservations import make

from gsched.model import Job, JobState, Phase, Shape
from gsched.wire.messages import CancelJobs


def inside(b: Bench) -> tuple[Job, Job]:
    """Node 1 is reserved, and a job of low rank is there; one of high rank wants in as well."""
    assert make(b, "mine", 0, 7200, nodes="node1") == "mine"
    first = b.job(shape=WHOLE, qos="low", time_limit=600, reservation="mine")
    run(b, first)
    return first, b.job(shape=WHOLE, qos="high", time_limit=600, reservation="mine")


def test_those_inside_make_way_for_one_who_wants_in() -> None:
    b = bench()
    first, high = inside(b)
    assert first.alloc[0].node == "node1"
    others = [b.job(shape=WHOLE, qos="low", time_limit=600) for _ in range(3)]
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in others)
    b.schedule()
    assert first.state == JobState.PREEMPTED
    assert high.claim is not None
    assert high.claim.reservation == "mine"
    over(b, first, cause="preempted", wstatus=15)
    b.schedule()
    # Neither the one who made way nor anybody outside is in between.
    assert (high.state, high.reservation) == (JobState.RUNNING, "mine")
    assert [part.node for part in high.alloc] == ["node1"]
    assert all(job.state == JobState.RUNNING for job in others)
    over(b, high, wstatus=0)
    pass_time(b, 200)
    b.schedule()
    assert (first.state, first.reservation) == (JobState.RUNNING, "mine")


def test_who_is_outside_takes_nothing_of_it() -> None:
    b = bench()
    assert make(b, "mine", 0, 7200, nodes="node1") == "mine"
    first = b.job(shape=WHOLE, qos="low", time_limit=600, reservation="mine")
    run(b, first)
    others = [b.job(shape=WHOLE, qos="low", time_limit=600) for _ in range(3)]
    run(b, *others)
    high = b.job(shape=Shape(gpus_per_node=8, nodelist=("node1",)), qos="high", time_limit=600)
    b.schedule()
    b.schedule()
    assert first.state == JobState.RUNNING
    assert high.claim is None


def test_nobody_goes_for_a_reservation_that_is_not_yet() -> None:
    b = bench()
    jobs = fill(b)
    assert make(b, "later", 3600, 7200, nodes="node1", flags="ignore_jobs") == "later"
    high = b.job(shape=WHOLE, qos="high", time_limit=600, reservation="later")
    b.schedule()
    b.schedule()
    assert high.claim is None
    assert all(job.state == JobState.RUNNING for job in jobs)


@pytest.mark.parametrize("cancel", [True, False])
def test_what_is_promised_inside_is_given_back(cancel: bool) -> None:
    b = bench(QOS, grace_time=30)
    first, high = inside(b)
    b.schedule()
    assert first.way is not None
    if cancel:
        b.write(CancelJobs([str(high.id)]), uid=0)
        assert first.way is None
    b.now += 31
    assert first.state == JobState.RUNNING
    assert first.alloc[0].phase == Phase.RUNNING
