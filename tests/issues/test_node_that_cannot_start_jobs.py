"""A node with a full disk took one job after the other out of the queue and failed to launch it,
until every waiting job was held, although all other nodes were free. Slurm drains such a node.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import Bench, at
from test_agent import World, key_of, launch

from gsched.model import JobState, NodeFlag, Phase
from gsched.wire.messages import Prepare
from slurmd_compat.agent import HookDone


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
