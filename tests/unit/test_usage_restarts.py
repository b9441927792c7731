"""Usage through whole ledgers: jobs start, stand still, go on and end while the controller is
restarted and its clock is set forward and back. What every association and QOS has used is what
follows from the times at which jobs were seen to run, second by second."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest
from unit.ledger_support import CONF, at
from unit.test_limits import UIDS, bench

from gsched.ledger import Ledger, TakeOver, accounts
from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.model.policy import Qos
from gsched.wire.messages import CancelJobs, Done, SubmitJob, UpdateJob

DAY = 86400.0
SECONDS = {"0": 0.0, "1:00:00": 3600.0, "7-0": 7 * DAY}


def conf(half_life: str) -> str:
    text = CONF.replace("PriorityType=priority/basic", "PriorityType=priority/multifactor")
    text = text.replace("SlurmdTimeout=60", "SlurmdTimeout=60000000")
    period = "PriorityUsageResetPeriod=YEARLY\n" if half_life == "0" else ""
    return f"{text}PriorityDecayHalfLife={half_life}\n{period}MinJobAge=100000000\n"


class Watched:
    """A cluster, and when each of its jobs was seen to run."""

    def __init__(self, half_life: str) -> None:
        self.half = SECONDS[half_life]
        self.bench = bench("AccountingStorageEnforce=associations,limits,qos\n", conf(half_life))
        accounts.put(self.bench.led, Qos(2, "gold", usage_factor=0.5), self.bench.tick())
        self.begun: dict[int, float] = {}
        #: job, from when, until when
        self.log: list[tuple[Job, float, float]] = []

    @property
    def now(self) -> float:
        """The ledger's clock never goes back."""
        return self.bench.led.meta.last_now

    def look(self) -> None:
        for job in self.bench.led.jobs.values():
            runs = job.state == JobState.RUNNING
            if runs and job.id not in self.begun:
                self.begun[job.id] = self.now
            elif not runs and job.id in self.begun:
                self.log.append((job, self.begun.pop(job.id), self.now))

    def submit(self, rng: Random) -> None:
        shape = Shape(ntasks=rng.randint(1, 5))
        spec = JobSpec(shape=shape, qos=rng.choice(("normal", "gold")))
        user = rng.choice(("ana", "ben"))
        reply = self.bench.write(SubmitJob(spec, b"#!/bin/sh\n", b"", user, "users"), UIDS[user])
        assert isinstance(reply, Done)
        self.bench.schedule()
        job = self.bench.led.jobs[reply.value]
        job.configuring = False

    def end(self, job: Job) -> None:
        b = self.bench
        b.write(CancelJobs([str(job.id)]), 0)
        for part in list(job.alloc):
            others = [b.led.jobs[one] for one in b.led.parts[part.node] if one != job.id]
            rest = [at(one, Phase.RUNNING) for one in others if not one.finished]
            b.report(part.node, at(job, Phase.RELEASED), *rest)

    def restart(self) -> None:
        """The records alone are left."""
        old = self.bench.led
        jobs = [msgspec.convert(msgspec.to_builtins(job), Job) for job in old.jobs.values()]
        new = Ledger.load(
            self.bench.config,
            old.meta,
            jobs,
            old.nodes.values(),
            policy_records=old.book.records(),
            used_records=[(accounts.used_key(of), used) for of, used in old.book.used.items()],
        )
        self.bench.led = new
        self.bench.apply(TakeOver())
        for name in self.bench.config.nodes:
            held = [new.jobs[one] for one in new.parts[name]]
            running = [at(job, Phase.RUNNING) for job in held if not job.finished]
            self.bench.register(name, running, epoch=new.meta.epoch)

    def wanted(self) -> dict[int | str, float]:
        """CPU-seconds, each worth 2^(-age / half life)."""
        jobs = self.bench.led.jobs
        found: dict[int | str, float] = {}
        spans = [*self.log, *((jobs[one], begin, self.now) for one, begin in self.begun.items())]
        for job, begin, end in spans:
            if self.half:
                rate = math.log(2) / self.half
                worth = math.exp(-rate * (self.now - end)) - math.exp(-rate * (self.now - begin))
                seconds = worth / rate
            else:
                seconds = end - begin
            value = job.spec.shape.ntasks * seconds * (0.5 if job.spec.qos == "gold" else 1.0)
            above = {"ana": (20, 10, 1), "ben": (22, 11, 1)}[job.user]
            for of in (*above, job.spec.qos):
                found[of] = found.get(of, 0.0) + value
        return found


@pytest.mark.parametrize("half_life", SECONDS)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_counted_twice(half_life: str, seed: int) -> None:
    rng = Random(f"{half_life} {seed}")
    watched = Watched(half_life)
    b = watched.bench
    for _ in range(40):
        # Also a clock that is set back, and one that is set forward by a day.
        b.now += rng.choice((5, 60, 600, 600, -3000, DAY))
        b.tick()
        live = [job for job in b.led.jobs.values() if job.state == JobState.RUNNING]
        still = [job for job in b.led.jobs.values() if job.state == JobState.SUSPENDED]
        which = rng.random()
        if which < 0.4:
            watched.submit(rng)
        elif which < 0.55 and live:
            b.write(UpdateJob([str(rng.choice(live).id)], "suspend"), 0)
        elif which < 0.65 and still:
            b.write(UpdateJob([str(rng.choice(still).id)], "resume"), 0)
        elif which < 0.8 and live:
            watched.end(rng.choice(live))
        elif which < 0.9:
            watched.restart()
        watched.look()
        for of, value in watched.wanted().items():
            found = b.led.meter.used(of, watched.now).tres.get("cpu", 0.0)
            assert found == pytest.approx(value, rel=1e-9, abs=1e-6)
    assert watched.log
