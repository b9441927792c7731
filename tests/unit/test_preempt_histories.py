"""Random histories of a cluster with preemption, on a virtual clock: no rings, nobody in vain, each
place kept. What is asked of each history does not look at how it was decided."""

from __future__ import annotations

import os
import random

import msgspec
import pytest
from unit.ledger_support import Bench, at

from gsched.ledger import Ledger
from gsched.model import Job, JobState, Phase, Qos, Shape

CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=100
KillWait=5
SlurmdTimeout=0
MinJobAge=0
ReturnToService=2
PreemptType=preempt/qos
PreemptMode={mode}
PreemptExemptTime={exempt}
SchedulerParameters=preempt_max={most},preempt_cooldown={cool}{more}
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=node[1-3]
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00 OverSubscribe=FORCE:1
"""
#: blocks of eight histories; GSCHED_PREEMPT_HISTORIES says another number
BLOCKS = int(os.environ.get("GSCHED_PREEMPT_HISTORIES", "4"))
NODES = ("node1", "node2", "node3")
#: lists of an administrator, with rings among them
LISTS = (
    {"a": (), "b": ("a",), "c": ("a", "b")},
    {"a": ("c",), "b": ("a",), "c": ("b",)},
    {"a": ("b",), "b": ("a",), "c": ("a", "b")},
    {"a": ("a",), "b": ("a",), "c": ()},
)


#: modes by which jobs end
ENDING = ("REQUEUE", "REQUEUE,WITHIN", "CANCEL")


class History:
    """One seed."""

    def __init__(
        self, seed: int, modes: tuple[str, ...] = ENDING, own: tuple[str, ...] = ("",)
    ) -> None:
        self.rnd = rnd = random.Random(seed)
        conf = CONF.format(
            mode=rnd.choice(modes),
            exempt=rnd.choice([0, 0, 1]),
            most=rnd.choice([0, 2, 16]),
            cool=rnd.choice([0, 30]),
            more=rnd.choice(["", "", ",preempt_wait=60"]),
        )
        self.most = int(conf.partition("preempt_max=")[2].partition(",")[0])
        self.b = Bench(conf)
        for number, (name, lower) in enumerate(rnd.choice(LISTS).items()):
            grace = rnd.choice([0, 0, 10])
            mode = rnd.choice(own) if own[1:] else own[0]
            self.b.led.book.put(
                Qos(number + 2, name, preempt=lower, grace_time=grace, preempt_mode=mode)
            )
        #: job -> when its script would end
        self.ends: dict[tuple[int, int], float] = {}
        #: who made way for whom
        self.edges: set[tuple[int, int]] = set()
        #: promises: preemptor -> its victims, as long as it has one
        self.promised: dict[int, list[tuple[int, int]]] = {}
        self.eligible: dict[int, int] = {}
        self.kept = self.broken = 0
        #: seconds that jobs have worked; when that was added up; those that ever stood still
        self.worked: dict[tuple[int, int], float] = {}
        self.lengths = [5, 50, 5000]
        self.then = self.b.now
        self.stood: set[tuple[int, int]] = set()

    def submit(self) -> None:
        rnd = self.rnd
        nodes = rnd.choice([1, 1, 1, 2])
        shape = Shape(gpus_per_node=rnd.choice([1, 2, 4, 8, 8]), min_nodes=nodes, max_nodes=nodes)
        job = self.b.job(shape=shape, qos=rnd.choice("abc"), time_limit=rnd.choice([60, 600]))
        job.priority = rnd.randrange(1, 50)
        self.b.led.cluster.queue_job(job)

    def step(self) -> None:
        b, rnd = self.b, self.rnd
        b.now += rnd.choice([0, 1, 5, 20])
        for _ in range(rnd.choice([0, 0, 1, 2])):
            self.submit()
        waiting = [job for job in b.led.jobs.values() if job.state == JobState.PENDING]
        if waiting and rnd.random() < 0.05:
            job = rnd.choice(waiting)
            job.priority = rnd.randrange(1, 50)
            b.led.cluster.queue_job(job)
        b.tick()
        self.passes()
        for name in NODES:
            b.report(name, *(self.said(b.led.jobs[one], name) for one in list(b.led.parts[name])))

    def passes(self) -> None:
        """A pass, and as the controller does, another one as long as one asks for it."""
        for _ in range(20):
            again = self.b.schedule().schedule
            self.note()
            if not again:
                return

    def rest(self, seconds: int) -> None:
        """Time goes on, and nothing else comes."""
        b = self.b
        b.now += seconds
        b.tick()
        self.passes()
        for name in NODES:
            b.report(name, *(self.said(b.led.jobs[one], name) for one in list(b.led.parts[name])))

    def said(self, job: Job, name: str) -> object:
        now, rnd = self.b.now, self.rnd
        key = (job.id, job.attempt)
        if job.configuring and len(job.alloc) > 1 and not job.finished:
            return at(job, Phase.PREPARED)
        end = self.ends.setdefault(key, rnd.choice(self.lengths))
        if job.finished:
            # Its processes take their time.
            return at(job, Phase.RELEASED if rnd.random() < 0.6 else Phase.RUNNING)
        if job.way is not None and (now >= job.way.until or rnd.random() < 0.1):
            return at(job, Phase.ENDED, cause="preempted", wstatus=15)
        over = name == job.batch_host and self.worked.get(key, 0) >= end
        if over and not job.paused:
            return at(job, Phase.RELEASED, wstatus=0)
        saved = rnd.randrange(20_000) if rnd.random() < 0.1 else -1
        return at(job, Phase.RUNNING, checkpoint_ms=saved)

    def note(self) -> None:
        led = self.b.led
        for job in led.jobs.values():
            key = (job.id, job.attempt)
            if job.state == JobState.RUNNING and not job.configuring:
                self.worked[key] = self.worked.get(key, 0) + self.b.now - self.then
            if job.paused:
                self.stood.add(key)
                self.edges |= {(one, job.id) for one in job.above[:1]}
        self.then = self.b.now
        for job in led.jobs.values():
            if job.way is not None:
                self.edges.add((job.way.by, job.id))
                by = led.jobs.get(job.way.by)
                if not job.finished:
                    # Who makes way does so for one that has been promised its place.
                    assert by is not None
                    assert by.claim is not None
                    assert (job.id, job.attempt) in by.claim.victims
            if self.most:
                assert job.preempted <= self.most
            if job.state == JobState.RUNNING and job.id in self.promised:
                self.kept += 1
                del self.promised[job.id]
            if job.claim is not None:
                assert job.state == JobState.PENDING
                self.promised[job.id] = job.claim.victims + job.claim.lenders
            elif job.id in self.promised:
                self.broken += 1
                del self.promised[job.id]
            if job.state == JobState.RUNNING and job.id not in self.eligible:
                self.eligible[job.id] = job.eligible_time
            elif job.state == JobState.PENDING and job.id in self.eligible:
                # Queued again, at the place that it had.
                assert job.eligible_time == self.eligible[job.id]

    def rings(self) -> list[int]:
        """Jobs on a ring of "preempted"."""
        below: dict[int, set[int]] = {}
        for upper, lower in self.edges:
            below.setdefault(upper, set()).add(lower)
        found = []
        for first in below:
            seen: set[int] = set()
            todo = list(below[first])
            while todo:
                one = todo.pop()
                if one == first:
                    found.append(first)
                    break
                if one not in seen:
                    seen.add(one)
                    todo.extend(below.get(one, ()))
        return found


def reopened(b: Bench) -> None:
    """Who would load the records now would count the same."""
    loaded = Ledger.load(
        b.config,
        b.led.meta,
        msgspec.msgpack.decode(msgspec.msgpack.encode(list(b.led.jobs.values())), type=list[Job]),
        b.led.nodes.values(),
        policy_records=b.led.book.records(),
    )
    assert loaded.paused == b.led.paused
    for name in NODES:
        assert loaded.cluster.used(name) == b.led.cluster.used(name)
        for job_id in loaded.paused & loaded.parts[name].keys():
            assert loaded.cluster.kept(job_id, name) == b.led.cluster.kept(job_id, name)


def test_nobody_stands_still_for_ever() -> None:
    """With SUSPEND, alone and beside other modes: CPUs and GPUs are counted once (the ledger's
    invariants), who stands still does so for one that then starts, and goes on, or ends."""
    stood = kept = broken = on_top = 0
    own = ("", "", "suspend", "requeue", "cancel")
    for seed in range(BLOCKS * 6):
        history = History(seed, ("SUSPEND,GANG", "SUSPEND,GANG,WITHIN"), own)
        for number in range(50):
            history.step()
            if number % 5 == 0:
                reopened(history.b)
            on_top += any(job.turn > 1 for job in history.b.led.jobs.values())
        assert not history.rings(), seed
        # Nobody comes any more, and all that works comes to its end.
        history.lengths = [5, 50]
        history.ends = {key: min(end, 60) for key, end in history.ends.items()}
        for _ in range(150):
            history.rest(20)
        jobs = history.b.led.jobs.values()
        left = [(job.id, job.state.name, job.paused) for job in jobs if not job.finished]
        assert not left, (seed, left)
        stood += len(history.stood)
        kept += history.kept
        broken += history.broken
    assert stood > 40
    assert on_top
    assert kept > 40
    assert broken == 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_histories(block: int) -> None:
    kept = broken = edges = 0
    for seed in range(block * 8, block * 8 + 8):
        history = History(seed)
        for _ in range(60):
            history.step()
        assert not history.rings(), seed
        kept += history.kept
        broken += history.broken
        edges += len(history.edges)
    # They preempt, and nobody in vain: every promise was kept.
    assert edges > 8
    assert kept > 4
    assert broken == 0
