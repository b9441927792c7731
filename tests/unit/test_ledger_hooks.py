"""PrologSlurmctld and EpilogSlurmctld in the ledger: what a real Slurm 22.05 did is expected.

There a batch job whose PrologSlurmctld failed was PENDING (BeginTime, 121 s, Restarts=1), one with
--no-requeue and those of srun and salloc were CANCELLED.
"""

from __future__ import annotations

import msgspec
import pytest
from unit.ledger_support import CONF, Bench

from gsched.ledger import HookEnded, Ledger, TakeOver
from gsched.ledger.invariants import check
from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.wire.messages import CancelJobs, SubmitJob
from gsched.wire.nodes import AttemptReport, Forget, Prepare

BOTH = CONF + "PrologSlurmctld=/site/prolog\nEpilogSlurmctld=/site/epilog\n"


@pytest.fixture
def bench() -> Bench:
    return Bench(BOTH)


def prepared(bench: Bench) -> list[str]:
    return [
        node
        for node, orders in bench.sent.items()
        for order in orders
        if isinstance(order, Prepare)
    ]


def passes(bench: Bench, seconds: int) -> None:
    """Time, in which all nodes report that they hold nothing."""
    bench.now += seconds
    for name in bench.config.nodes:
        bench.report(name)
    bench.tick()


def ended(bench: Bench, job: Job, error: str = "") -> None:
    bench.apply(HookEnded(job.id, job.attempt, error=error))


def test_nodes_hear_of_a_job_once_the_program_has_ended(bench: Bench) -> None:
    job = bench.job(shape=Shape(min_nodes=2, max_nodes=2), time_limit=600)
    out = bench.schedule()
    assert [image.id for image in out.prologs] == [job.id]
    assert out.prologs[0].alloc == job.alloc and out.prologs[0] is not job
    assert job.state == JobState.RUNNING and job.configuring
    # A report without it, and all the time in the world, change nothing.
    for _ in range(100):
        passes(bench, 30)
    assert job.configuring and not prepared(bench)
    ended(bench, job)
    assert sorted(prepared(bench)) == ["node1", "node2"]
    # What it took counts for the time limit, as with Slurm.
    (order,) = [o for o in bench.sent["node1"] if isinstance(o, Prepare)]
    assert order.launch.limit_s == 1


def test_what_the_program_took_is_gone_from_the_limit(bench: Bench) -> None:
    job = bench.job(time_limit=600)
    bench.schedule()
    bench.now += 45
    ended(bench, job)
    (order,) = [o for o in bench.sent[job.batch_host] if isinstance(o, Prepare)]
    assert order.launch.limit_s == 555


def test_a_failure_queues_a_batch_job_again(bench: Bench) -> None:
    job = bench.job()
    bench.schedule()
    ended(bench, job, "ended with 3")
    assert job.state == JobState.PENDING and job.restarts == 1 and not job.held
    assert job.eligible_time == bench.now + 121
    assert not prepared(bench)
    for _ in range(4):
        passes(bench, 31)
    out = bench.schedule()
    assert [image.attempt for image in out.prologs] == [2]


@pytest.mark.parametrize("how", [{"requeue": False}, {"interactive": "salloc"}])
def test_a_failure_cancels_what_cannot_be_queued_again(
    bench: Bench, how: dict[str, object]
) -> None:
    # The answer to salloc waits for the pass.
    bench.apply_write(SubmitJob(JobSpec(**how), b"#!/bin/sh\n", b"A=1", "user", "group"))  # type: ignore[arg-type]
    job = bench.led.jobs[1]
    bench.schedule()
    ended(bench, job, "ended with 3")
    assert job.state == JobState.CANCELLED and job.cancelled_by == 0
    assert not job.completing


def test_a_job_cancelled_meanwhile_is_over_at_once(bench: Bench) -> None:
    job = bench.job()
    bench.schedule()
    bench.sent.clear()
    out = bench.apply_write(CancelJobs([str(job.id)]))
    assert job.state == JobState.CANCELLED and not job.completing
    assert [image.id for image in out.given_back] == [job.id]
    # No node has heard of it.
    assert {type(o) for orders in bench.sent.values() for o in orders} <= {Forget}
    ended(bench, job)
    assert not prepared(bench) and job.state == JobState.CANCELLED


def test_the_end_of_an_older_attempt_s_program_says_nothing(bench: Bench) -> None:
    job = bench.job()
    bench.schedule()
    ended(bench, job, "ended with 3")
    for _ in range(4):
        passes(bench, 31)
    bench.schedule()
    bench.apply(HookEnded(job.id, 1))
    assert job.configuring and not prepared(bench)


def reloaded(bench: Bench) -> Ledger:
    def copy(value: object) -> object:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))

    return Ledger.load(
        bench.config,
        copy(bench.led.meta),  # type: ignore[arg-type]
        [copy(job) for job in bench.led.jobs.values()],  # type: ignore[misc]
        [copy(node) for node in bench.led.nodes.values()],  # type: ignore[misc]
        hook_records=[copy(job) for job in bench.led.epilogs.values()],  # type: ignore[misc]
    )


def test_a_new_controller_runs_again_what_had_not_ended(bench: Bench) -> None:
    waits, over = bench.job(), bench.job()
    bench.schedule()
    ended(bench, over)
    host = over.batch_host
    bench.report(host, AttemptReport(over.id, 1, Phase.RUNNING))
    out = bench.report(host, AttemptReport(over.id, 1, Phase.RELEASED, wstatus=0))
    assert over.state == JobState.COMPLETED
    (image,) = out.given_back
    key = ("hook", over.id.to_bytes(8, "big") + (1).to_bytes(4, "big"))
    assert out.puts[key] is image

    bench.led = reloaded(bench)
    check(bench.led)
    out = bench.apply(TakeOver())
    assert [job.id for job in out.prologs] == [waits.id]
    assert [job.id for job in out.given_back] == [over.id]
    out = bench.apply(HookEnded(over.id, 1, True))
    assert out.puts[key] is None and not bench.led.epilogs
    assert not bench.apply(TakeOver()).given_back


def test_without_programs_nothing_is_due() -> None:
    bench = Bench()
    job = bench.job()
    out = bench.schedule()
    assert not out.prologs and prepared(bench) == [job.batch_host]
