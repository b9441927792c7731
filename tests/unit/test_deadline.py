"""Deadlines, by arithmetic; the state and the reason word are those of a Slurm 22.05."""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.ledger import Tick
from gsched.model import Job, JobState, Phase, Shape
from gsched.wire.messages import Done, Refused, UpdateJob
from gsched.wire.nodes import Kill


def tick(b: Bench, now: float) -> None:
    b.now = now
    for name in b.led.nodes:
        b.report(name, *(at(j, Phase.RUNNING) for j in b.led.jobs.values() if holds(j, name)))
    b.apply(Tick())


def holds(job: Job, name: str) -> bool:
    return any(part.node == name and part.phase < Phase.ENDED for part in job.alloc)


def test_a_waiting_job_ends_when_it_can_no_longer_be_done() -> None:
    b = Bench()
    start = b.now
    job = b.job(hold=True, time_limit=60, deadline=int(start) + 180)
    tick(b, start + 120)
    assert job.state == JobState.PENDING
    tick(b, start + 121)
    assert job.state == JobState.DEADLINE and job.reason == "DeadLine"


def test_a_shorter_least_time_gives_it_longer() -> None:
    b = Bench()
    start = b.now
    job = b.job(hold=True, time_limit=120, time_min=60, deadline=int(start) + 180)
    tick(b, start + 120)
    assert job.state == JobState.PENDING
    tick(b, start + 121)
    assert job.state == JobState.DEADLINE


def test_a_running_job_ends_at_its_deadline() -> None:
    b = Bench()
    start = b.now
    job = b.job(time_limit=60, deadline=int(start) + 90)
    b.schedule()
    b.write(UpdateJob(["1"], "update", {"timelimit": "30"}), 0)
    tick(b, start + 89)
    assert job.state == JobState.RUNNING
    tick(b, start + 90)
    assert job.state == JobState.DEADLINE and job.completing
    assert isinstance(b.sent["node1"][-1], Kill)
    b.report("node1", at(job, Phase.RELEASED, wstatus=15, cause="timeout"))
    assert job.state == JobState.DEADLINE and not job.completing


def test_a_deadline_can_be_moved() -> None:
    b = Bench()
    start = b.now
    job = b.job(hold=True, time_limit=60, deadline=int(start) + 180)
    b.write(UpdateJob(["1"], "update", {"deadline": str(int(start) + 400)}), 0)
    tick(b, start + 200)
    assert job.state == JobState.PENDING
    b.write(UpdateJob(["1"], "update", {"deadline": str(int(start) + 230)}), 0)
    tick(b, start + 202)
    assert job.state == JobState.DEADLINE


def test_each_task_of_an_array_has_it() -> None:
    b = Bench()
    start = b.now
    b.job(array="1-5", shape=Shape(gpus_per_node=8), time_limit=60, deadline=int(start) + 90)
    b.schedule()
    states = [job.state for job in b.led.jobs.values()]
    assert states.count(JobState.RUNNING) == 4
    tick(b, start + 31)
    states = [job.state for job in b.led.jobs.values()]
    assert states.count(JobState.DEADLINE) == 1 and states.count(JobState.RUNNING) == 4
    tick(b, start + 91)
    assert all(job.state == JobState.DEADLINE for job in b.led.jobs.values())


def test_it_survives_a_restart() -> None:
    from unit.test_live_admin import reloaded

    b = Bench()
    b.job(hold=True, time_limit=60, deadline=int(b.now) + 180)
    led = reloaded(b)
    led.apply(Tick(), b.now + 121)
    assert led.jobs[1].state == JobState.DEADLINE


def test_a_deadline_that_has_passed_is_refused() -> None:
    """As Slurm 22.05, of held jobs too; one that leaves too little time is taken."""
    b = Bench()
    for hold in (False, True):
        reply = b.submit(hold=hold, deadline=int(b.now) - 1)
        assert isinstance(reply, Refused)
        assert reply.message == ("Requested time limit is invalid (missing or exceeds some limit)")
    assert isinstance(b.submit(time_limit=600, deadline=int(b.now) + 300), Done)
