"""A node with a full disk took one job after the other out of the queue and failed to launch it,
until every waiting job was held, although all other nodes were free. Slurm drains such a node.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import CONF, Bench, at
from test_agent import World, key_of, launch

from gsched.accounting.rows import row
from gsched.ledger import HookEnded
from gsched.model import Fact, JobSpec, JobState, NodeFlag, Phase
from gsched.wire.messages import SubmitJob
from gsched.wire.nodes import Prepare
from slurmd_compat.agent import Failed, HookDone

ACCOUNTING = "AccountingStorageType=accounting_storage/slurmdbd\n"


@pytest.mark.parametrize(
    ("cause", "reason"), [("disk", "batch job complete failure"), ("prolog", "Prolog error")]
)
def test_it_is_drained_and_the_next_job_runs_elsewhere(cause: str, reason: str) -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    bench.report(host, at(job, Phase.RELEASED, cause=cause, error="No space left on device"))
    node = bench.led.nodes[host]
    assert node.flags & NodeFlag.DRAIN and node.reason == reason
    assert (job.state, bool(job.held)) == (JobState.PENDING, True)
    other = bench.job()
    bench.schedule()
    assert other.state is JobState.RUNNING and other.batch_host != host


def test_a_job_that_cannot_be_launched_drains_nothing() -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    bench.report(host, at(job, Phase.RELEASED, cause="failed", error="too large"))
    assert not bench.led.nodes[host].flags & NodeFlag.DRAIN


def test_the_node_says_whose_fault_it_is() -> None:
    world = World(prolog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.feed(HookDone(key_of(5), "prolog", "prolog /p failed with exit code 1"))
    report = world.one()
    assert (report.cause, report.phase) == ("prolog", Phase.RELEASED)


def test_a_supervisor_without_room_for_its_record_is_the_nodes_fault() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    text = "setup: could not write the step's record: No space left on device"
    world.step(key_of(5), "released", Failed(key_of(5), text))
    report = world.one()
    assert (report.cause, report.error) == ("disk", text)


# ---- what becomes of the job, as measured with a 22.05 -------------------------------------------
# Before, sacct called its first try BOOT_FAIL, and a job with --no-requeue was queued again.


@pytest.mark.parametrize(
    ("parameters", "how", "state", "held", "reason", "shown"),
    [
        ("", {}, "PENDING", True, "launch failed requeued held", "REQUEUED"),
        ("nohold_on_prolog_fail", {}, "PENDING", False, "", "REQUEUED"),
        ("", {"requeue": False}, "CANCELLED", False, "", "CANCELLED"),
        ("", {"interactive": "srun"}, "FAILED", False, "JobLaunchFailure", "FAILED"),
    ],
)
def test_the_job_after_a_prolog_that_failed(
    parameters: str, how: dict[str, object], state: str, held: bool, reason: str, shown: str
) -> None:
    bench = Bench(f"{CONF}\nSchedulerParameters={parameters}\n{ACCOUNTING}")
    bench.apply_write(SubmitJob(JobSpec(**how), b"#!/bin/sh\n", b"A=1", "user", "group"))  # type: ignore[arg-type]
    job = bench.led.jobs[1]
    bench.schedule()
    host = job.batch_host
    failed = at(job, Phase.RELEASED, cause="prolog", error="prolog /p failed with exit code 1")
    out = bench.report(host, failed)
    assert (job.state.name, bool(job.held), job.reason) == (state, held, reason)
    (fact,) = [one for one in out.puts.values() if isinstance(one, Fact) and one.job]
    assert fact.job is not None
    found = row(fact.job, "c", int(bench.now))
    assert (found.state, found.wstatus) == (shown, 0)
    if not how.get("interactive"):
        # Its script was to start, and did not.
        assert [(step.step, step.state) for step in found.steps] == [("batch", "CANCELLED")]
    if parameters:
        # It is eligible after 121 s there.
        assert job.eligible_time == bench.now + 121
        for _ in range(5):
            bench.now += 30
            for name in bench.config.nodes:
                bench.report(name)
            bench.tick()
        bench.schedule()
        assert job.state is JobState.RUNNING and job.batch_host != host


def test_a_script_that_nobody_was_asked_to_start() -> None:
    """PrologSlurmctld failed: sacct told of a batch step that had completed."""
    bench = Bench(f"{CONF}\nPrologSlurmctld=/site/prolog\n{ACCOUNTING}")
    job = bench.job()
    bench.schedule()
    out = bench.apply(HookEnded(job.id, job.attempt, error="ended with 3"))
    (fact,) = [one for one in out.puts.values() if isinstance(one, Fact) and one.job]
    assert fact.job is not None
    found = row(fact.job, "c", int(bench.now))
    assert (found.state, found.steps) == ("REQUEUED", [])
