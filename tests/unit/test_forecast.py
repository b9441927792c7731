"""sbatch --test-only: when a job could start, without one."""

from __future__ import annotations

import msgspec
from unit.ledger_support import CONF, Bench, at

from gsched.model import JobSpec, JobState, Phase, Shape
from gsched.wire.messages import Done, Forecast, Refused, SubmitJob, UpdateNode, UpdateReservation

WHOLE = Shape(min_nodes=4, max_nodes=4, nodes_set=True, exclusive=1)


def ask(bench: Bench, *specs: JobSpec) -> Forecast:
    write = SubmitJob(specs[0], b"#!/bin/sh\n", b"A=1", "u", "g", list(specs[1:]), test_only=True)
    reply = bench.write(write)
    assert isinstance(reply, Done), reply
    assert not reply.value or reply.value not in bench.led.jobs
    return msgspec.json.decode(reply.data, type=Forecast)


def test_on_an_idle_cluster_it_is_now() -> None:
    bench = Bench()
    # Transcript 009: one processor on node1 in partition gpu; 64 on node[1-4].
    assert ask(bench, JobSpec()) == Forecast(int(bench.now), 1, "node1", "gpu")
    assert ask(bench, JobSpec(shape=WHOLE)) == Forecast(int(bench.now), 64, "node[1-4]", "gpu")
    assert not bench.led.jobs and bench.led.meta.next_job_id == 1
    assert not bench.led.answers and not bench.led.blob_refs


def test_behind_running_jobs_it_is_when_enough_of_them_end() -> None:
    bench = Bench()
    jobs = [bench.job(shape=Shape(exclusive=1), time_limit=60 * (i + 1)) for i in range(4)]
    bench.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)
    now = int(bench.now)
    assert ask(bench, JobSpec()).start == now + 60
    assert ask(bench, JobSpec(shape=WHOLE)).start == now + 240
    two = Shape(min_nodes=2, max_nodes=2, nodes_set=True, exclusive=1)
    found = ask(bench, JobSpec(shape=two))
    names = sorted(job.alloc[0].node for job in jobs[:2])
    assert (found.start, found.cpus) == (now + 120, 32)
    assert found.nodes == f"node[{names[0][-1]}-{names[1][-1]}]"
    bench.report(jobs[0].alloc[0].node, at(jobs[0], Phase.RELEASED, wstatus=0))
    assert ask(bench, JobSpec()).start == now


def test_a_begin_time_is_waited_for() -> None:
    bench = Bench()
    assert ask(bench, JobSpec(begin=int(bench.now) + 3600)).start == int(bench.now) + 3600


def test_components_together() -> None:
    bench = Bench()
    one, two = JobSpec(shape=Shape(ntasks=1)), JobSpec(shape=Shape(ntasks=2))
    assert ask(bench, one, two).cpus == 3


def reserve(bench: Bench, after: int, seconds: int, **fields: str) -> None:
    given = {"starttime": str(int(bench.now) + after), "duration": str(seconds)}
    given |= {"users": "somebody"} | fields
    assert isinstance(bench.write(UpdateReservation("r", "create", given), 0), Done)


def resting() -> Bench:
    return Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))


def test_reservations_of_others_are_waited_for() -> None:
    """The answers of a real sbatch 22.05."""
    bench = resting()
    now = int(bench.now)
    reserve(bench, 0, 3600, nodes="ALL")
    assert ask(bench, JobSpec(time_limit=300)) == Forecast(now + 3600, 1, "node1", "gpu")
    bench = resting()
    reserve(bench, 1800, 3600, nodes="ALL")
    assert ask(bench, JobSpec(time_limit=300)).start == now
    assert ask(bench, JobSpec(time_limit=3000)).start == now + 5400
    # Nothing is kept of the day after.
    assert ask(bench, JobSpec(time_limit=3000, begin=now + 86400)).start == now + 86400


def test_other_nodes_than_those_that_are_reserved() -> None:
    bench = resting()
    now = int(bench.now)
    reserve(bench, 0, 3600, nodes="node[1-2]", flags="MAINT")
    found = ask(bench, JobSpec(time_limit=300))
    assert (found.start, found.nodes) == (now, "node3")
    assert ask(bench, JobSpec(shape=WHOLE, time_limit=300)).start == now + 3600


def test_within_a_reservation() -> None:
    bench = resting()
    now = int(bench.now)
    reserve(bench, 0, 3600, nodes="node3", users="u,user")
    for limit in (3000, 30000):
        found = ask(bench, JobSpec(reservation="r", time_limit=limit))
        assert (found.start, found.nodes) == (now, "node3")
    # A job in it has it until it ends.
    running = bench.job(shape=Shape(exclusive=1), reservation="r", time_limit=1200)
    bench.schedule()
    assert running.state == JobState.RUNNING
    found = ask(bench, JobSpec(reservation="r", time_limit=60))
    assert (found.start, found.nodes) == (now + 1200, "node3")
    two = Shape(min_nodes=2, max_nodes=2, nodes_set=True)
    write = SubmitJob(
        JobSpec(shape=two, reservation="r"), b"#!/bin/sh\n", b"", "u", "g", test_only=True
    )
    reply = bench.write(write)
    assert isinstance(reply, Refused)
    assert reply.message == "Requested node configuration is not available"


def test_a_reservation_to_come_is_waited_for() -> None:
    bench = resting()
    reserve(bench, 1800, 3600, nodes="node3", users="u")
    found = ask(bench, JobSpec(reservation="r", time_limit=60))
    assert (found.start, found.nodes) == (int(bench.now) + 1800, "node3")


def test_a_running_job_of_a_reservation_that_is_gone() -> None:
    bench = resting()
    reserve(bench, 0, 60, nodes="node3", users="user", flags="FLEX")
    bench.job(shape=Shape(exclusive=1), reservation="r", time_limit=1200)
    bench.schedule()
    bench.now += 61
    bench.tick()
    assert not bench.led.reservations
    assert ask(bench, JobSpec(shape=WHOLE, time_limit=60)).start == int(bench.now) + 1139


def test_what_cannot_be_is_refused_as_at_submission() -> None:
    bench = Bench()
    bench.write(UpdateNode(["node1"], "drain", "x"), uid=0)
    write = SubmitJob(JobSpec(partitions=("debug",)), b"#!/bin/sh\n", b"", "u", "g", test_only=True)
    reply = bench.write(write)
    assert isinstance(reply, Refused)
    assert reply.message == "Requested node configuration is not available"
