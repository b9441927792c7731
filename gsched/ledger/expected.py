"""When what jobs hold is expected back, where their limits alone do not say it.

One that stands still for another goes on once that is over, and needs the rest of its own time
then: until then nothing else can be there (`late` of Core.set_end). Those that take turns need as
long as all of them together, as far as they are at it at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched.ledger import slices
from gsched.model import Job, JobState, NodeAlloc

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def refresh(led: Ledger, names: Iterable[str]) -> None:
    """Something has changed on nodes: the cluster is told what is expected there now. Cost: nothing
    where nobody stands still or takes turns; else pairs of jobs on these nodes, and on those of
    jobs that stand still there."""
    if not led.paused and not slices.seconds(led.config):
        return
    ahead = _Ahead(led)
    there, todo = set[str](), list(names)
    found: dict[int, Job] = {}
    while todo:
        name = todo.pop()
        if name in there or name not in led.parts:
            continue
        there.add(name)
        for job_id in led.parts[name]:
            job = found[job_id] = led.jobs[job_id]
            if job.paused:
                todo += [part.node for part in job.unreleased]
    for job in found.values():
        if not job.finished:
            end = ahead.end(job)
            late = [] if job.paused else ahead.late(job)
            led.cluster.expect(job.id, _time(end), [(name, _time(at)) for name, at in late])


def end_of(led: Ledger, job: Job) -> int:
    """When a job that holds nodes is expected to have ended (epoch seconds); 0 never. Cost: jobs on
    its nodes."""
    if not job.paused and not slices.seconds(led.config):
        return job.end_time
    return _time(_Ahead(led).end(job))


def free_at(led: Ledger, job: Job) -> int:
    """When all that it holds is expected to be free, also of those that go on after it."""
    if not led.paused or job.finished:
        return end_of(led, job)
    ahead = _Ahead(led)
    late = [] if job.paused else ahead.late(job)
    return _time(max([ahead.end(job), *(at for _, at in late)]))


def _time(at: float) -> int:
    return 0 if at == math.inf else int(at)


def _still(job: Job) -> bool:
    """Whether it stands still for another."""
    return bool(job.paused) and not job.finished


def _on(job: Job, name: str) -> NodeAlloc:
    return next(part for part in job.alloc if part.node == name)


class _Ahead:
    """The future of those that stand still or take turns, as of now."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        self._now = led.meta.last_now
        self._turns = bool(slices.seconds(led.config))
        self._known: dict[int, float] = {}

    def _left(self, job: Job) -> float:
        """Seconds of work that are left of its limit."""
        if not job.time_limit:
            return math.inf
        if job.state == JobState.SUSPENDED:
            return max(0, job.time_limit - job.pre_suspend_s)
        return max(0.0, job.end_time - self._now)

    def end(self, job: Job) -> float:
        if job.id not in self._known:
            for one in self._in_order(job):
                self._known[one.id] = self._end(one)
        return self._known[job.id]

    def _in_order(self, job: Job) -> list[Job]:
        """A job, and before it all that it stands still for, by however many others, each after
        those that go before it. A loop: such a chain may be as long as a node has memory for."""
        found, todo = {job.id: job}, [job]
        while todo:
            one = todo.pop()
            for other, _ in self._beside(one) if _still(one) else ():
                new = other.id not in found and other.id not in self._known
                if new and self._above(other, one):
                    found[other.id] = other
                    todo.append(other)
        return sorted(found.values(), key=lambda one: (_still(one), -one.turn))

    def _end(self, job: Job) -> float:
        if _still(job):
            over = [self.end(other) for other, _ in self._beside(job) if self._above(other, job)]
            return max([self._now, *over]) + self._left(job)
        if not self._turns or job.finished or not slices.takes_turns(self._led, job):
            return job.end_time or math.inf
        if job.state != JobState.RUNNING and not job.sliced:
            return job.end_time or math.inf
        mine = self._left(job)
        mates = {
            other.id: other
            for other, _ in self._beside(job)
            if other.partition == job.partition
            and (other.state == JobState.RUNNING or other.sliced)
            and not other.finished
            and slices.takes_turns(self._led, other)
        }
        if not mates:
            return job.end_time or math.inf
        return self._now + mine + sum(min(mine, self._left(other)) for other in mates.values())

    def late(self, job: Job) -> list[tuple[str, float]]:
        """(node, until) where others go on after a job that works."""
        if not self._led.paused:
            return []
        found: dict[str, float] = {}
        for other, name in self._beside(job):
            if _still(other):
                found[name] = max(found.get(name, 0), self.end(other))
        return [(name, at) for name, at in found.items() if at > self.end(job)]

    def _beside(self, job: Job) -> Iterable[tuple[Job, str]]:
        """(other, node) of those that have some of its CPUs or GPUs."""
        for part in job.unreleased:
            for job_id in self._led.parts.get(part.node, ()):
                other = self._led.jobs[job_id]
                its = _on(other, part.node)
                if other is not job and (its.cpu_ids & part.cpu_ids or its.gpus & part.gpus):
                    yield other, part.node

    @staticmethod
    def _above(other: Job, job: Job) -> bool:
        """Whether it goes before one that stands still."""
        return not other.paused or other.turn > job.turn
