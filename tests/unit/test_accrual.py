"""How many waiting jobs grow older (GrpJobsAccrue, MaxJobsAccrue...): what a real Slurm (22.05.8)
did with the same commands, told by AccrueTime and by priorities."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from unit.ledger_support import CONF, Bench
from unit.test_limits import UIDS, assoc, bench, qos

from gsched.ledger import Ledger, TakeOver, ranking
from gsched.model import Job, JobSpec, JobState, Shape
from gsched.wire.messages import CancelJobs, SubmitJob, UpdateJob

#: one point for each second of age, recalculated every minute, and nothing else
AGE = CONF.replace("PriorityType=priority/basic", "PriorityType=priority/multifactor") + (
    "PriorityWeightAge=604800\nPriorityMaxAge=7-0\nPriorityCalcPeriod=1\n"
    "PriorityWeightFairshare=0\nPriorityWeightQOS=0\n"
)


def full(conf: str = AGE) -> Bench:
    """No node takes a job."""
    made = bench(conf=conf.replace("State=UP", "State=DOWN"))
    made.now += 10
    made.tick()
    return made


def one(made: Bench, user: str = "ana", **spec: Any) -> Job:
    whole = SubmitJob(JobSpec(**{"shape": Shape(), **spec}), b"#!/bin/sh\n", b"", user, "users")
    return made.led.jobs[made.write(whole, UIDS[user]).value]  # type: ignore[union-attr]


def since(made: Bench, *jobs: Job) -> list[float]:
    """Since when the ages of jobs count; -1: they do not."""
    return [made.led.ranking.factors.since(job) for job in jobs]


def later(made: Bench, seconds: int) -> None:
    made.now += seconds
    made.tick()


#: limit, and how many of five jobs of ana, ana in QOS gold, and ben (of another account) grow older
LIMITS: list[tuple[str, dict[str, int], tuple[int, int, int]]] = [
    ("ana", {"max_jobs_accrue": 2}, (2, 2, 5)),
    ("lab", {"max_jobs_accrue": 2}, (2, 2, 5)),
    ("lab", {"grp_jobs_accrue": 3}, (3, 3, 5)),
    ("root", {"grp_jobs_accrue": 4}, (4, 4, 4)),
    ("ana", {"grp_jobs_accrue": 0}, (0, 0, 5)),
    ("gold", {"max_jobs_accrue_pu": 1}, (5, 1, 5)),
    ("gold", {"max_jobs_accrue_pa": 3}, (5, 3, 5)),
    ("gold", {"grp_jobs_accrue": 2}, (5, 2, 5)),
]
NUMBERS = {"root": 1, "lab": 10, "ana": 20}


@pytest.mark.parametrize(("who", "limit", "wanted"), LIMITS)
def test_so_many_grow_older(who: str, limit: dict[str, int], wanted: tuple[int, int, int]) -> None:
    for user, name, count in zip(
        ("ana", "ana", "ben"), ("normal", "gold", "normal"), wanted, strict=True
    ):
        made = full()
        if who in NUMBERS:
            assoc(made, NUMBERS[who], **limit)
        else:
            qos(made, who, **limit)
        began = made.now
        jobs = [one(made, user, qos=name) for _ in range(5)]
        assert since(made, *jobs) == [began] * count + [-1] * (5 - count)
        later(made, 100)
        ages = [ranking.live(made.led, job) for job in jobs]
        # Of a job that does not grow older it is never 0, which means held.
        assert ages == [100] * count + [1] * (5 - count)


def test_what_a_qos_says_the_association_need_not() -> None:
    """Recorded: MaxJobsAccrue=2 of the association, MaxJobsAccruePerUser=3 of the QOS: three."""
    made = full()
    assoc(made, 20, max_jobs_accrue=2)
    qos(made, "gold", max_jobs_accrue_pu=3)
    jobs = [one(made, qos="gold") for _ in range(4)]
    assert since(made, *jobs) == [made.now] * 3 + [-1]


def test_the_qos_of_a_partition_does_not_count() -> None:
    """sacctmgr(1): "This limit only applies to the job's QOS and not the partition's QOS"."""
    made = full(AGE.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "gold", max_jobs_accrue_pu=1, grp_jobs_accrue=1)
    jobs = [one(made) for _ in range(3)]
    assert since(made, *jobs) == [made.now] * 3


def test_who_gets_a_place_later_counts_from_then() -> None:
    """Recorded: the next one's AccrueTime is the moment in which the one before it was held or
    cancelled; a released one counts from its release, if there is a place."""
    made = full()
    assoc(made, 20, max_jobs_accrue=2)
    began = made.now
    jobs = [one(made) for _ in range(5)]
    later(made, 40)
    made.write(CancelJobs([str(jobs[1].id)]), 0)
    assert since(made, *jobs) == [began, began, began + 40, -1, -1]
    later(made, 10)
    made.write(UpdateJob([str(jobs[0].id)], "hold"), 0)
    assert since(made, *jobs)[2:] == [began + 40, began + 50, -1]
    later(made, 10)
    made.write(UpdateJob([str(jobs[0].id)], "release"), 0)
    assert since(made, jobs[0], jobs[4]) == [-1, -1]
    made.write(CancelJobs([str(jobs[2].id), str(jobs[3].id)]), 0)
    assert since(made, jobs[0], jobs[4]) == [began + 60, began + 60]


def test_who_starts_makes_room() -> None:
    made = bench(conf=AGE)
    assoc(made, 20, max_jobs_accrue=1)
    whole = Shape(min_nodes=4, nodes_set=True, exclusive=1)
    first, second, third = (one(made, shape=whole) for _ in range(3))
    began = made.now
    assert since(made, first, second, third) == [began, -1, -1]
    later(made, 30)
    made.schedule()
    assert first.state == JobState.RUNNING
    assert since(made, second, third) == [began + 30, -1]


def test_tasks_of_an_array_leave_it_as_there_are_places() -> None:
    """Recorded: of 0-3 under MaxJobsAccruePerUser=1 task 0 got a record of its own."""
    made = full()
    qos(made, "gold", max_jobs_accrue_pu=1)
    array = one(made, qos="gold", array="0-3")
    assert array.array_pending == "1-3"
    (task,) = [job for job in made.led.jobs.values() if job.array_task_id == 0]
    assert since(made, task, array) == [made.now, -1]
    later(made, 20)
    made.write(CancelJobs([f"{array.id}_0"]), 0)
    assert array.array_pending == "2-3"
    (task,) = [job for job in made.led.jobs.values() if job.array_task_id == 1]
    assert since(made, task, array) == [made.now, -1]


def test_jobs_that_may_not_start_yet_take_no_place() -> None:
    made = full()
    assoc(made, 20, max_jobs_accrue=1)
    began = made.now
    to_come = one(made, begin=int(began) + 50)
    held = one(made, hold=True)
    first = one(made)
    waits = one(made, dependency=f"afterany:{first.id}")
    assert since(made, first) == [began]
    assert made.led.accrual.room((20, "normal", "ana", "lab")) == 0
    later(made, 50)
    assert since(made, to_come) == [-1]
    made.write(CancelJobs([str(first.id)]), 0)
    # The oldest of those that may start.
    assert since(made, to_come, held, waits) == [began + 50, -1, -1]


@pytest.mark.parametrize("flags", ["PriorityFlags=ACCRUE_ALWAYS\n", ""])
def test_limits_that_do_not_hold(flags: str) -> None:
    """slurm.conf(5), ACCRUE_ALWAYS: "Accrue limits are ignored"."""
    conf = AGE + flags
    made = full(conf)
    if not flags:
        made = bench("AccountingStorageEnforce=associations\n", conf)
    assoc(made, 20, max_jobs_accrue=0)
    jobs = [one(made) for _ in range(2)]
    assert since(made, *jobs) == [made.now] * 2


def test_limits_that_come_and_go() -> None:
    """Who grows older goes on; who waited does so from the moment on in which he may."""
    made = full()
    began = made.now
    first = [one(made) for _ in range(2)]
    later(made, 10)
    assoc(made, 20, max_jobs_accrue=1)
    last = one(made)
    later(made, 10)
    assert since(made, *first, last) == [began, began, -1]
    assoc(made, 20, max_jobs_accrue=None)
    assert since(made, *first, last) == [began, began, began + 20]


def test_a_restart_keeps_the_places() -> None:
    made = full()
    assoc(made, 20, max_jobs_accrue=2)
    jobs = [one(made) for _ in range(4)]
    later(made, 15)
    made.write(CancelJobs([str(jobs[0].id)]), 0)
    before = since(made, *jobs[1:])
    again = Ledger.load(
        made.config,
        made.led.meta,
        made.led.jobs.values(),
        made.led.nodes.values(),
        policy_records=made.led.book.records(),
    )
    again.apply(TakeOver(), made.now + 5)
    assert not again.accrual.wrong()
    assert [again.ranking.factors.since(job) for job in jobs[1:]] == before


@pytest.mark.parametrize("seed", range(20))
def test_random_lives(seed: int) -> None:
    """After every command (the bench checks all invariants): as many grow older as may, and nobody
    waits for a place that is free. No more than the limit ever get one."""
    rng = Random(seed)
    made = full()
    assoc(made, 20, max_jobs_accrue=rng.randint(0, 4))
    assoc(made, 10, grp_jobs_accrue=rng.randint(1, 6))
    qos(made, "gold", max_jobs_accrue_pu=rng.randint(1, 3), grp_jobs_accrue=rng.randint(1, 4))
    for _ in range(60):
        waiting = [job for job in made.led.jobs.values() if job.state == JobState.PENDING]
        which = rng.random()
        some = str(rng.choice(waiting).id) if waiting else ""
        if which < 0.5 or not some:
            extra = rng.choice(({}, {"hold": True}, {"begin": int(made.now) + 20}))
            array = rng.choice(("", "", "0-3", "0-9"))
            one(
                made,
                rng.choice(("ana", "ben")),
                array=array,
                qos=rng.choice(("normal", "gold")),
                account="lab",
                **extra,
            )
        elif which < 0.7:
            made.write(CancelJobs([some]), 0)
        elif which < 0.8:
            made.write(UpdateJob([some], rng.choice(("hold", "release"))), 0)
        elif which < 0.9:
            made.write(UpdateJob([some], "update", {"qos": rng.choice(("normal", "gold"))}), 0)
        else:
            later(made, rng.randint(1, 30))
    again = Ledger.load(
        made.config,
        made.led.meta,
        made.led.jobs.values(),
        made.led.nodes.values(),
        policy_records=made.led.book.records(),
    )
    again.apply(TakeOver(), made.now)
    for job in made.led.jobs.values():
        assert again.ranking.factors.since(job) == made.led.ranking.factors.since(job)


def test_a_released_job_has_not_waited() -> None:
    """Recorded: `scontrol hold` takes the eligible time away, and `scontrol release` sets it."""
    made = full()
    job = one(made)
    later(made, 100)
    made.write(UpdateJob([str(job.id)], "hold"), 0)
    assert job.eligible_time == 0
    later(made, 100)
    made.write(UpdateJob([str(job.id)], "release"), 0)
    assert (job.eligible_time, since(made, job)) == (made.now, [made.now])
    # One that may not start before its time keeps that.
    begin = int(made.now) + 1000
    job = one(made, begin=begin)
    made.write(UpdateJob([str(job.id)], "hold"), 0)
    assert job.eligible_time == begin
