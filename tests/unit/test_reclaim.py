"""Guarantees are taken back from borrowers: on 4 nodes of 8 GPUs, two teams with 16 each."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, at
from unit.test_limits import Bench, accounts, assoc, bench, submit

from gsched.ledger.invariants import check
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState, Phase
from gsched.model.policy import Account, Assoc, User
from gsched.wire.messages import Done, UpdateJob
from gsched.wire.nodes import Kill, Prepare

GPU = "gres/gpu"
#: nodes stay up however much time passes
PATIENT = CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0")
NODE = {"gpus_total": 8, "max_nodes": 1, "min_nodes": 1}


def teams(**changes: object) -> Bench:
    """lab (ana, ben) and other (ben) with half of the cluster each."""
    made = bench(conf=PATIENT)
    for number in (10, 11):
        assoc(made, number, guarantee={GPU: 16}, **changes)
    return made


def job(made: Bench, user: str = "ana", account: str = "lab", **shape: object) -> Job:
    answer = submit(made, user, account=account, time_limit=3600, **(NODE | shape))
    assert isinstance(answer, Done), answer
    return made.led.jobs[answer.value]


def settle(made: Bench) -> None:
    """Passes, and the nodes' word that whatever was killed is gone, until nothing changes."""
    for _ in range(12):
        made.schedule()
        made.tick()
        check(made.led)
        for node, orders in list(made.sent.items()):
            for order in orders:
                if isinstance(order, Prepare) and not order.go:
                    made.report(node, at(made.led.jobs[order.launch.job.id], Phase.PREPARED))
                if isinstance(order, Kill):
                    gone = made.led.jobs[order.job_id]
                    if gone.attempt == order.attempt and gone.alloc:
                        made.report(node, at(gone, Phase.RELEASED))
            made.sent[node] = []
        made.now += 1


def test_borrowed_work_makes_way_youngest_first() -> None:
    made = teams()
    old = []
    for _ in range(4):
        old.append(job(made))
        settle(made)
    assert all(one.state == JobState.RUNNING for one in old)
    mine = job(made, "ben", "other")
    settle(made)
    assert mine.state == JobState.RUNNING
    # The youngest of lab's borrowed jobs waits again; the guaranteed ones never moved.
    assert [one.restarts for one in old] == [0, 0, 0, 1]
    assert old[3].state == JobState.PENDING
    second = job(made, "ben", "other")
    settle(made)
    assert second.state == JobState.RUNNING and [one.restarts for one in old] == [0, 0, 1, 1]
    third = job(made, "ben", "other")
    settle(made)
    # other has its 16: it has no claim to more.
    assert third.state == JobState.PENDING and [one.restarts for one in old] == [0, 0, 1, 1]


def test_work_comes_back_once_there_is_room_and_nothing_swings() -> None:
    made = teams()
    old = []
    for _ in range(4):
        old.append(job(made))
        settle(made)
    mine = job(made, "ben", "other")
    settle(made)
    assert old[3].state == JobState.PENDING
    settle(made)
    # What came for its own is not asked for it again, by anybody.
    assert mine.state == JobState.RUNNING and mine.restarts == 0
    made.report(mine.alloc[0].node, at(mine, Phase.RELEASED, wstatus=0))
    settle(made)
    assert old[3].state == JobState.RUNNING and old[3].restarts == 1


def test_a_gang_takes_back_all_that_it_needs_at_once() -> None:
    """A claim for two whole nodes."""
    made = teams()
    own = [job(made) for _ in range(2)]
    settle(made)
    loans = [job(made, gpus_total=8) for _ in range(2)]
    settle(made)
    assert all(one.state == JobState.RUNNING for one in [*own, *loans])
    wide = job(made, "ben", "other", gpus_total=16, max_nodes=2, min_nodes=2)
    settle(made)
    assert wide.state == JobState.RUNNING and [one.restarts for one in loans] == [1, 1]
    assert [one.restarts for one in own] == [0, 0]


def test_borrowed_work_does_not_take_back() -> None:
    made = teams()
    for number in (10, 11):
        assoc(made, number, guarantee={GPU: 8})
    first = [job(made) for _ in range(3)]
    settle(made)
    others = [job(made, "ben", "other") for _ in range(3)]
    settle(made)
    running = [one for one in [*first, *others] if one.state == JobState.RUNNING]
    # lab had three nodes, other one free one: that is its own guarantee.
    assert running == [*first, others[0]]
    assert all(one.restarts == 0 for one in running)


@pytest.mark.parametrize("requeue", [True, False])
def test_who_may_not_be_queued_again_is_cancelled(requeue: bool) -> None:
    made = teams()
    jobs = []
    for _ in range(4):
        answer = submit(made, account="lab", time_limit=3600, **NODE)
        assert isinstance(answer, Done)
        one = made.led.jobs[answer.value]
        one.spec.requeue = requeue
        jobs.append(one)
        settle(made)
    job(made, "ben", "other")
    settle(made)
    assert jobs[3].state == (JobState.PENDING if requeue else JobState.PREEMPTED)


def test_a_child_takes_its_own_from_its_sister_first() -> None:
    made = bench(conf=PATIENT)
    for record in (
        Account("vision"),
        Account("speech"),
        Assoc(30, "vision", parent="lab", guarantee={GPU: 8}),
        Assoc(31, "speech", parent="lab", guarantee={GPU: 8}),
        User("ana", "lab"),
        Assoc(32, "vision", "ana"),
        Assoc(33, "speech", "ben"),
    ):
        accounts.put(made.led, record, Outcome())
    made.tick()
    assoc(made, 10, guarantee={GPU: 16})
    assoc(made, 11, guarantee={GPU: 16})
    outside = [job(made, "ben", "other") for _ in range(2)]
    settle(made)
    sister = []
    for _ in range(2):
        sister.append(job(made, "ana", "vision"))
        settle(made)
    mine = job(made, "ben", "speech")
    settle(made)
    assert mine.state == JobState.RUNNING
    assert [one.restarts for one in [*outside, *sister]] == [0, 0, 0, 1]


def still_world(mem_mb: int) -> tuple[Bench, list[Job]]:
    """Lab has all four nodes under PreemptMode=SUSPEND, each job with so much of 64000 MB."""
    conf = PATIENT.replace("State=UP", "OverSubscribe=FORCE:1 State=UP")
    made = bench(conf=conf + "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n")
    for number in (10, 11):
        assoc(made, number, guarantee={GPU: 16})
    jobs = [job(made, mem_per_node=mem_mb) for _ in range(4)]
    settle(made)
    for one in jobs:
        made.report(one.alloc[0].node, at(one, Phase.RUNNING))
    assert all(one.state == JobState.RUNNING and not one.configuring for one in jobs)
    return made, jobs


def test_where_that_is_enough_borrowed_work_stands_still() -> None:
    made, jobs = still_world(20000)
    mine = job(made, "ben", "other", mem_per_node=20000)
    settle(made)
    assert mine.state == JobState.RUNNING
    assert [one.state for one in jobs].count(JobState.SUSPENDED) == 1


def test_a_guarantee_is_had_back_from_work_whose_memory_would_stay() -> None:
    """50,000 of 64,000 MB are the borrower's: standing still it leaves too little."""
    made, jobs = still_world(50000)
    mine = job(made, "ben", "other", mem_per_node=20000)
    settle(made)
    assert mine.state == JobState.RUNNING
    assert [one.state for one in jobs].count(JobState.PENDING) == 1


def test_and_from_work_that_is_suspended() -> None:
    """Its GPUs stay its own then, as in Slurm."""
    made, jobs = still_world(20000)
    for one in jobs:
        made.write(UpdateJob([str(one.id)], "suspend"), uid=0)
    mine = job(made, "ben", "other", mem_per_node=20000)
    settle(made)
    assert mine.state == JobState.RUNNING
    assert [one.state for one in jobs].count(JobState.PENDING) == 1
