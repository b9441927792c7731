"""Heterogeneous jobs make way as one (slurm.conf's manual page on PreemptMode: all components must
be eligible, the highest of their modes is that of all)."""

from __future__ import annotations

from typing import Any

from unit.ledger_support import Bench
from unit.test_hetero import release, submit
from unit.test_hetero import run as run_unit
from unit.test_preempt import QOS, WHOLE, bench, pass_time, run, sent, tell

from gsched.model import Job, JobSpec, JobState, Phase, Qos, Shape
from gsched.wire.messages import CancelJobs, SubmitJob
from gsched.wire.nodes import Preempt

TWO = (Shape(gpus_per_node=8), Shape(gpus_per_node=4, min_cpus_node=4))


def setting(qos: str = "low", conf: str = QOS, **low: Any) -> tuple[Bench, list[Job]]:
    """A job of two components; the rest of the cluster is in use by others of high rank."""
    b = bench(conf, **low)
    members = submit(b, *TWO, qos=qos, time_limit=3600)
    run_unit(b, members)
    assert [job.state for job in members] == [JobState.RUNNING] * 2
    others = [b.job(shape=WHOLE, qos="high", time_limit=3600) for _ in range(2)]
    others.append(b.job(shape=Shape(gpus_per_node=4), qos="high", time_limit=3600))
    run(b, *others)
    return b, members


def test_all_of_it_goes_for_what_one_component_has() -> None:
    b, members = setting()
    high = b.job(shape=Shape(gpus_per_node=4), qos="high", time_limit=60)
    b.schedule()
    assert [job.state for job in members] == [JobState.PREEMPTED] * 2
    assert high.claim is not None
    assert high.claim.victims == [(job.id, 1) for job in members]
    release(b, members, 15, "preempted")
    assert [job.state for job in members] == [JobState.PENDING] * 2
    assert [job.restarts for job in members] == [1, 1]
    b.schedule()
    assert high.state == JobState.RUNNING


def test_what_several_components_have_is_one() -> None:
    b, members = setting()
    gang = b.job(shape=Shape(gpus_per_node=4, min_nodes=2, max_nodes=2), qos="high", time_limit=60)
    b.schedule()
    assert [job.state for job in members] == [JobState.PREEMPTED] * 2
    release(b, members, 15, "preempted")
    b.schedule()
    assert gang.state == JobState.RUNNING


def test_it_is_told_whole_and_has_the_longest_grace() -> None:
    b, members = setting(grace_time=30)
    b.led.book.put(Qos(2, "low", grace_time=30))
    b.job(shape=Shape(gpus_per_node=4), qos="high", time_limit=60)
    b.schedule()
    for job in members:
        assert job.way is not None
        assert job.state == JobState.RUNNING
        for part in job.alloc:
            told = [one for one in sent(b, part.node, Preempt) if one.job_id == job.id]
            assert [one.grace_s for one in told] == [30]
    b.now += 36
    tell(b, Phase.RUNNING)
    b.tick()
    assert [job.state for job in members] == [JobState.PREEMPTED] * 2


def test_it_goes_on_whole_where_who_asked_goes_away() -> None:
    b, members = setting(grace_time=30)
    high = b.job(shape=Shape(gpus_per_node=4), qos="high", time_limit=60)
    b.schedule()
    assert all(job.way is not None for job in members)
    b.write(CancelJobs([str(high.id)]))
    assert all(job.way is None and job.preempted == 0 for job in members)
    pass_time(b, 60)
    assert [job.state for job in members] == [JobState.RUNNING] * 2


def test_one_component_that_may_not_keeps_all() -> None:
    b = bench()
    specs = [
        JobSpec(shape=shape, qos=qos, time_limit=3600)
        for shape, qos in zip(TWO, ("low", "high"), strict=True)
    ]
    write = SubmitJob(specs[0], b"#!/bin/sh\ntrue\n", b"A=1", "user", "group", specs[1:])
    first = b.write(write).value  # type: ignore[union-attr]
    members = [b.led.jobs[first], b.led.jobs[first + 1]]
    run_unit(b, members)
    others = [b.job(shape=WHOLE, qos="high", time_limit=3600) for _ in range(2)]
    run(b, *others)
    high = b.job(shape=WHOLE, qos="high", time_limit=60)
    b.schedule()
    assert high.state == JobState.PENDING
    assert [job.state for job in members] == [JobState.RUNNING] * 2


def test_it_never_stands_still() -> None:
    # "Heterogeneous jobs are excluded from GANG scheduling operations."
    conf = QOS.replace("State=UP", "OverSubscribe=FORCE:1 State=UP")
    conf = conf.replace("PreemptMode=REQUEUE", "PreemptMode=SUSPEND,GANG")
    b, members = setting(conf=conf)
    b.job(shape=Shape(gpus_per_node=4), qos="high", time_limit=60)
    b.schedule()
    assert [job.state for job in members] == [JobState.RUNNING] * 2
    assert not b.led.paused
