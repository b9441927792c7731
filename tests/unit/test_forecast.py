"""sbatch --test-only: when a job could start, without one."""

from __future__ import annotations

import msgspec
from unit.ledger_support import Bench, at

from gsched.model import JobSpec, JobState, Phase, Shape
from gsched.wire.messages import Done, Forecast, Refused, SubmitJob, UpdateNode

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


def test_what_cannot_be_is_refused_as_at_submission() -> None:
    bench = Bench()
    bench.write(UpdateNode(["node1"], "drain", "x"), uid=0)
    write = SubmitJob(JobSpec(partitions=("debug",)), b"#!/bin/sh\n", b"", "u", "g", test_only=True)
    reply = bench.write(write)
    assert isinstance(reply, Refused)
    assert reply.message == "Requested node configuration is not available"
