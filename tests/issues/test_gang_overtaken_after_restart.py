"""A controller that had started anew gave nodes to whoever fitted as they came back one by one,
also those that were being kept for a gang, which then waited for those jobs to end.
"""

from __future__ import annotations

import copy

from unit.ledger_support import Bench, at

from gsched.ledger import Ledger, TakeOver
from gsched.ledger.settle import SETTLE_S
from gsched.model import JobState, Phase, Shape
from gsched.scheduling import Planner
from gsched.wire.messages import UpdateNode

WHOLE = Shape(gpus_per_node=8, min_nodes=1)
GANG = Shape(gpus_per_node=8, min_nodes=4, max_nodes=4, nodes_set=True)


class Restarted(Bench):
    """One node is in use for ten minutes, three are kept for a gang of four, and a long job that
    would fit on one waits behind it; then the controller begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.job(shape=WHOLE, time_limit=600)
        self.schedule()
        self.report(self.running.alloc[0].node, at(self.running, Phase.RUNNING))
        self.gang = self.job(shape=GANG, time_limit=600)
        self.small = self.job(shape=WHOLE, time_limit=36000)
        self.schedule()
        assert self.small.state == JobState.PENDING
        old = self.led
        self.led = Ledger.load(
            self.config,
            copy.deepcopy(old.meta),
            copy.deepcopy(list(old.jobs.values())),
            copy.deepcopy(list(old.nodes.values())),
        )
        self.apply(TakeOver())
        self.schedule()

    def back(self, name: str) -> None:
        job = self.running
        held = [at(job, Phase.RUNNING)] if job.alloc[0].node == name else []
        self.register(name, held, epoch=2)
        self.schedule()

    def state(self, job: object) -> JobState:
        return self.led.jobs[job.id].state  # type: ignore[attr-defined]


def test_nobody_takes_the_nodes_of_a_gang_as_they_come_back() -> None:
    b = Restarted()
    busy = b.running.alloc[0].node
    for name in sorted(b.config.nodes, key=lambda name: name == busy):
        b.back(name)
        assert b.state(b.small) == JobState.PENDING
    assert b.led.cluster.estimate(b.gang.id) is not None
    b.report(busy, at(b.running, Phase.RELEASED, wstatus=0))
    b.schedule()
    assert b.state(b.gang) == JobState.RUNNING


def test_jobs_start_as_soon_as_the_last_node_is_back() -> None:
    b = Restarted()
    short = b.job(shape=WHOLE, time_limit=60)
    for name in b.config.nodes:
        assert b.state(short) == JobState.PENDING
        b.back(name)
    assert b.state(short) == JobState.RUNNING


def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever() -> None:
    b = Restarted()
    short = b.job(shape=WHOLE, time_limit=60)
    names = [name for name in b.config.nodes if name != b.running.alloc[0].node]
    for name in names[:2]:
        b.back(name)
    assert b.state(short) == JobState.PENDING
    assert Planner().due_at(b.led) == float("inf"), "a plan of half the cluster is of no use"
    b.now += SETTLE_S - 1
    assert b.schedule().wake_at == b.now + 1
    assert not b.tick().schedule
    b.now += 1
    assert b.tick().schedule
    assert not b.tick().schedule
    b.schedule()
    assert b.state(short) == JobState.RUNNING


def test_a_node_that_is_drained_meanwhile_is_not_waited_for() -> None:
    b = Restarted()
    short = b.job(shape=WHOLE, time_limit=60)
    last = b.running.alloc[0].node
    for name in b.config.nodes:
        if name != last:
            b.back(name)
    assert b.state(short) == JobState.PENDING
    b.write(UpdateNode([last], "drain", reason="fan"), uid=0)
    b.schedule()
    assert b.state(short) == JobState.RUNNING
