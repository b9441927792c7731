"""The controller dies while jobs make way: what is on disk is enough to go on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.ledger_support import CONF, Bench, at
from unit.test_preempt import NODES

from gsched.controller.load import encode_records, load_ledger
from gsched.controller.sharing import Sharing
from gsched.ledger import Outcome, TakeOver
from gsched.ledger.invariants import check
from gsched.model import Job, JobState, Phase, Shape
from gsched.store import Store
from gsched.wire.nodes import Kill, Pause, Preempt

TIERS = (
    CONF.replace("DefaultTime=1:00:00 State=UP", "DefaultTime=1:00:00 {low} OverSubscribe=FORCE:1")
    + "PartitionName=top Nodes=ALL PriorityTier=10 MaxTime=7-0 OverSubscribe=FORCE:1\n"
    + "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"
)
WHOLE = Shape(gpus_per_node=8, min_cpus_node=16, mem_per_node=16000)


class Durable(Bench):
    """Each outcome is committed before anybody hears of it."""

    def __init__(self, place: Path, low: str) -> None:
        self.place = str(place)
        self.store = Store.open(self.place)
        super().__init__(TIERS.format(low=low))

    def apply(self, command: object) -> Outcome:
        out = super().apply(command)
        if out.puts:
            out.puts["meta", b"meta"] = self.led.meta
            self.store.commit(encode_records(out.puts))
        return out

    def die(self) -> None:
        """kill -9, and another controller on the same directory: it knows what was committed, the
        nodes hold what they held."""
        held = {
            name: [
                (self.led.jobs[one], self.led.jobs[one].alloc[i].phase) for one, i in row.items()
            ]
            for name, row in self.led.parts.items()
        }
        before = {name: self.led.cluster.used(name) for name in NODES}
        ids = {job.id: job.state for job in self.led.jobs.values()}
        self.store.close()
        self.store = Store.open(self.place)
        complain = pytest.fail
        self.led = load_ledger(self.store, self.config, (0,), complain=complain, sharing=Sharing())
        check(self.led)
        assert {job.id: job.state for job in self.led.jobs.values()} == ids
        assert {name: self.led.cluster.used(name) for name in NODES} == before
        self.now += 1
        self.apply(TakeOver())
        self.sent.clear()
        for name in NODES:
            row = [at(job, phase) for job, phase in held[name] if phase < Phase.RELEASED]
            self.register(name, row, epoch=self.led.meta.epoch - 1)

    def close(self) -> None:
        self.store.close()

    def beat(self) -> None:
        """Nodes are heard of; all that is launched runs."""
        for name in NODES:
            jobs = [self.led.jobs[one] for one in self.led.parts[name]]
            self.report(name, *(at(job, Phase.RUNNING) for job in jobs if not job.finished))


def ends(b: Durable, job: Job, **kw: Any) -> None:
    for part in list(job.alloc):
        others = [b.led.jobs[one] for one in b.led.parts[part.node] if one != job.id]
        b.report(part.node, at(job, Phase.RELEASED, **kw), *(at(o, Phase.RUNNING) for o in others))


@pytest.fixture
def make(tmp_path: Path) -> Any:
    made: list[Durable] = []

    def one(low: str) -> Durable:
        made.append(Durable(tmp_path, low))
        return made[0]

    yield one
    for each in made:
        each.close()


def setting(b: Durable) -> tuple[int, int]:
    """Four of low rank run, one of high rank has come: (whom it is to have the place of, it)."""
    jobs = [b.job(shape=WHOLE, time_limit=3600) for _ in range(4)]
    b.schedule()
    b.beat()
    high = b.job(shape=WHOLE, partitions=("top",), time_limit=600)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None or job.paused]
    return victim.id, high.id


def orders(b: Durable, kind: type, job_id: int) -> list[Any]:
    return [
        one
        for sent in b.sent.values()
        for one in sent
        if isinstance(one, kind) and one.job_id == job_id
    ]


def test_in_the_grace_time(make: Callable[[str], Durable]) -> None:
    b = make("PreemptMode=REQUEUE GraceTime=30")
    victim, high = setting(b)
    until = b.led.jobs[victim].way.until  # type: ignore[union-attr]
    b.die()
    # Told again what its node may have missed: so long as is left, and nothing is ended.
    (order,) = orders(b, Preempt, victim)
    assert order.grace_s == until - int(b.now)
    assert not orders(b, Kill, victim)
    assert b.led.jobs[victim].preempted == 1
    b.now = until
    ends(b, b.led.jobs[victim], cause="preempted", wstatus=15)
    b.die()
    b.schedule()
    job = b.led.jobs[victim]
    assert (job.state, job.restarts, job.preempted) == (JobState.PENDING, 1, 1)
    assert b.led.jobs[high].state == JobState.RUNNING
    assert b.led.jobs[high].attempt == 1


def test_while_it_ends(make: Callable[[str], Durable]) -> None:
    b = make("PreemptMode=REQUEUE")
    victim, high = setting(b)
    assert b.led.jobs[victim].state == JobState.PREEMPTED
    b.die()
    # The node may not have heard it.
    assert [order.cause for order in orders(b, Kill, victim)] != []
    ends(b, b.led.jobs[victim], cause="preempted", wstatus=15)
    b.die()
    b.schedule()
    assert b.led.jobs[high].state == JobState.RUNNING
    assert (b.led.jobs[victim].restarts, b.led.jobs[victim].attempt) == (1, 1)


@pytest.mark.parametrize("times", [1, 3])
def test_between_suspension_and_start(make: Callable[[str], Durable], times: int) -> None:
    b = make("")
    victim, high = setting(b)
    assert b.led.jobs[victim].state == JobState.SUSPENDED
    for _ in range(times):
        b.die()
    assert [order.grace_s for order in orders(b, Pause, victim)] == [2]
    assert b.led.paused == {victim}
    b.schedule()
    assert b.led.jobs[high].state == JobState.RUNNING
    assert b.led.jobs[high].alloc[0].node == b.led.jobs[victim].alloc[0].node


def test_while_one_stands_still(make: Callable[[str], Durable]) -> None:
    b = make("")
    victim, high = setting(b)
    b.schedule()
    b.beat()
    b.die()
    assert b.led.jobs[victim].state == JobState.SUSPENDED
    # It ends while nobody listens: the first word of its node lets the other go on, once.
    ends(b, b.led.jobs[high], wstatus=0)
    assert b.led.jobs[victim].state == JobState.RUNNING
    assert [order.grace_s for order in orders(b, Pause, victim)] == [2, -1]
    assert b.led.jobs[victim].attempt == 1
    # The order to go on may have been lost with the one that gave it.
    b.die()
    assert b.led.jobs[victim].state == JobState.RUNNING
    assert [order.grace_s for order in orders(b, Pause, victim)] == [-1]


def test_nobody_ever_heard_that_it_was_to_stand_still(make: Callable[[str], Durable]) -> None:
    """The commit was not made: the next controller decides anew."""
    b = make("")
    jobs = [b.job(shape=WHOLE, time_limit=3600) for _ in range(4)]
    b.schedule()
    b.beat()
    high = b.job(shape=WHOLE, partitions=("top",), time_limit=600)
    b.die()
    assert all(b.led.jobs[job.id].state == JobState.RUNNING for job in jobs)
    b.schedule()
    b.schedule()
    assert b.led.jobs[high.id].state == JobState.RUNNING
    assert len(b.led.paused) == 1
