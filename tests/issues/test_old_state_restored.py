"""After an old copy of the state directory was put back, running jobs that it did not know were
left alone only until their ids were given out anew: then they were killed, or passed for the new
job, whose script never ran. Jobs that it held for waiting were started a second time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

import msgspec
from ledger_support import Bench, at

from gsched.ledger import Ledger, Meta
from gsched.ledger.invariants import check
from gsched.model import JobState, NodeFlag, Phase
from gsched.wire.messages import UpdateJob
from gsched.wire.nodes import AttemptReport, Forget, Kill


def orders(bench: Bench, node: str) -> list[object]:
    return list(bench.sent.get(node, []))


def test_an_unknown_attempt_outlives_new_jobs() -> None:
    bench = Bench(register=False)
    unknown = AttemptReport(1, 1, Phase.RUNNING)
    bench.register("node1", [unknown])
    bench.register("node2")
    job = bench.job()
    assert job.id == 2
    bench.schedule()
    assert job.batch_host == "node2"
    bench.report("node1", unknown)
    # Nor does a restart of the controller change that.
    meta = msgspec.msgpack.decode(msgspec.msgpack.encode(bench.led.meta), type=Meta)
    bench.led = Ledger.load(bench.config, meta, [job], bench.led.nodes.values())
    bench.register("node1", [unknown])
    bench.report("node1", unknown)
    assert not [order for order in orders(bench, "node1") if isinstance(order, Kill)]
    bench.report("node1", AttemptReport(1, 1, Phase.RELEASED, wstatus=0))
    assert [type(order) for order in orders(bench, "node1")] == [Forget]
    assert bench.led.nodes["node1"].flags & NodeFlag.DRAIN
    check(bench.led)


def test_a_waiting_job_that_runs_is_not_started_again() -> None:
    bench = Bench(register=False)
    bench.register("node2")
    job = bench.job(hold=True)
    running = at(job, Phase.RUNNING)
    running.attempt = 1
    bench.register("node1", [running])
    assert job.held and bench.led.nodes["node1"].flags & NodeFlag.DRAIN
    bench.schedule()
    assert job.state is JobState.PENDING
    # An administrator who knows better may start it; it does not pass for the one that runs.
    bench.write(UpdateJob([str(job.id)], "release"), uid=0)
    bench.schedule()
    assert (job.state, job.batch_host, job.attempt) == (JobState.RUNNING, "node2", 2)
    bench.report("node1", running)
    assert not [order for order in orders(bench, "node1") if isinstance(order, Kill)]
