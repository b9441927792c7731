"""Dependencies: who waits for whom, and what an event of one job means for the others."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from gsched import dependency
from gsched.dependency import FAILED, FULFILLED, WAITING
from gsched.ledger import arrays, mail
from gsched.ledger.outcome import Outcome
from gsched.model import Dep, Job, JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


Key = TypeVar("Key")


class DependencyProblem(ValueError):
    """A list that names jobs which do not exist, or the job itself."""


class CircularDependency(DependencyProblem):
    """A list that names a job which waits for this one."""


def resolve(led: Ledger, text: str, job_id: int) -> list[Dep]:
    """The items of a list for job `job_id`; DependencyProblem where one cannot be."""
    try:
        deps = dependency.parse(text)
    except dependency.DependencyError as error:
        raise DependencyProblem(str(error)) from None
    for dep in deps:
        if dep.kind == "singleton":
            continue
        if dep.job_id not in led.jobs and dep.job_id not in led.array_members:
            raise DependencyProblem(f"job {dep.job_id} does not exist")
        if dep.job_id == job_id:
            raise DependencyProblem(f"job {job_id} would wait for itself")
        if _leads_to(led, dep.job_id, job_id, set()):
            raise CircularDependency(f"job {job_id} would wait for itself")
        dep.array = dep.job_id in led.array_members
    return deps


def _leads_to(led: Ledger, start: int, goal: int, seen: set[int]) -> bool:
    stack = [start]
    while stack:
        job = led.jobs.get(stack.pop())
        if job is None:
            continue
        for dep in job.deps:
            if dep.job_id == goal:
                return True
            if dep.job_id and dep.job_id not in seen:
                seen.add(dep.job_id)
                stack.append(dep.job_id)
    return False


def attach(led: Ledger, job: Job) -> None:
    """Enters a waiting job into the indexes by what it waits for."""
    for dep in job.deps:
        if dep.kind == "singleton":
            led.singletons.setdefault((job.uid, job.spec.name), set()).add(job.id)
        else:
            led.waiters.setdefault(dep.job_id, set()).add(job.id)


def detach(led: Ledger, job: Job) -> None:
    """Takes a job out of the indexes."""
    for dep in job.deps:
        if dep.kind == "singleton":
            _drop(led.singletons, (job.uid, job.spec.name), job.id)
        else:
            _drop(led.waiters, dep.job_id, job.id)


def _drop(index: dict[Key, set[int]], key: Key, job_id: int) -> None:
    waiting = index.get(key)
    if waiting is not None:
        waiting.discard(job_id)
        if not waiting:
            del index[key]


def notify(led: Ledger, job: Job, now: float, out: Outcome) -> list[Job]:
    """The job started or ended: those that wait for it are looked at again. Returns those that are
    to be cancelled, because their dependency can never be fulfilled."""
    waiting = led.waiters.get(job.id, set()) | led.waiters.get(job.array_job_id or job.id, set())
    if job.finished:
        waiting = waiting | _foremost(led, led.singletons.get((job.uid, job.spec.name), set()))
    doomed: list[Job] = []
    for job_id in sorted(waiting):
        other = led.jobs.get(job_id)
        if other is not None:
            doomed += settle(led, other, now, out)
    return doomed


def _foremost(led: Ledger, waiting: set[int]) -> set[int]:
    """Of the singletons of one name those that may be next: each waits for all before it."""
    jobs = [led.jobs[job_id] for job_id in waiting if job_id in led.jobs]
    first = min(map(_turn, jobs), default=0)
    return {job.id for job in jobs if _turn(job) == first}


def _turn(job: Job) -> int:
    """A singleton's place in the row; tasks of an array, and components, have one together."""
    return job.array_job_id or job.het_job_id or job.id


def settle(led: Ledger, job: Job, now: float, out: Outcome) -> list[Job]:
    """Decides what can be decided of a waiting job's list now. Returns jobs to be cancelled."""
    doomed: list[Job] = []
    if job.state != JobState.PENDING or not job.deps:
        return doomed
    if job.array_pending and any(_by_task(led, dep) for dep in job.deps):
        doomed = _settle_tasks(led, job, now, out)
    changed = False
    for dep in job.deps:
        if dep.state != WAITING:
            continue
        if job.array_pending and _by_task(led, dep) and not all(map(_over, _records(led, dep))):
            # Its tasks go one by one; those without a counterpart when all of them have ended.
            continue
        dep.state = _state(led, job, dep, now, out)
        changed = changed or dep.state != WAITING
    if not changed:
        return doomed
    if dependency.failed(job.deps):
        mail.never(led, job, now, out)
    if dependency.fulfilled(job.deps):
        detach(led, job)
        job.deps = []
        job.eligible_time = max(int(now), job.spec.begin)
    led.put_job(job, out)
    if dependency.failed(job.deps) and _kills(led, job):
        return [*doomed, job]
    led.cluster.queue_job(job)
    out.schedule = True
    return doomed


def _kills(led: Ledger, job: Job) -> bool:
    """--kill-on-invalid-dep, else DependencyParameters=kill_invalid_depend."""
    if job.spec.kill_on_invalid_dep is not None:
        return job.spec.kill_on_invalid_dep
    return "kill_invalid_depend" in led.config.raw.get("dependencyparameters", "").lower()


def _records(led: Ledger, dep: Dep) -> list[Job]:
    """The records that a dependency speaks of."""
    members = led.array_members.get(dep.job_id)
    if members is None:
        job = led.jobs.get(dep.job_id)
        return [job] if job is not None else []
    found = [led.jobs[job_id] for job_id in members]
    if dep.task < 0:
        return found
    return [
        job for job in found if job.array_task_id == dep.task or dep.task in arrays.tasks_of(job)
    ]


def _over(job: Job) -> bool:
    return job.finished and not job.completing and not job.requeue_after


def _state(led: Ledger, job: Job, dep: Dep, now: float, out: Outcome) -> int:
    if dep.kind == "singleton":
        return FULFILLED if not any(_before(led, job)) else WAITING
    records = _records(led, dep)
    # What is not known any more ended long ago, and its end was judged then.
    if dep.kind == "after":
        begun = [r.start_time or r.end_time for r in records]
        if not all(begun):
            return WAITING
        due = max(begun, default=0) + 60 * dep.minutes
        if due > now:
            heapq.heappush(led.timed, (due, job.id))
            out.wake(due)
            return WAITING
        return FULFILLED
    if dep.kind in ("afterany", "afterburstbuffer"):
        return FULFILLED if all(_over(r) for r in records) else WAITING
    bad = any(_over(r) and r.state != JobState.COMPLETED for r in records)
    if dep.kind == "afternotok":
        if not all(_over(r) for r in records):
            return WAITING
        return FULFILLED if bad else FAILED
    if bad:
        return FAILED
    return FULFILLED if all(_over(r) for r in records) else WAITING


def _before(led: Ledger, job: Job) -> Iterator[bool]:
    """Unfinished jobs of the same user and name that came earlier (tasks of an array are one)."""
    mine = _turn(job)
    # Another one that waits is found at once; only the first of the row looks at all jobs.
    for job_id in led.singletons.get((job.uid, job.spec.name), ()):
        if job_id in led.jobs and _turn(led.jobs[job_id]) < mine:
            yield True
    for other in led.jobs.values():
        if (
            other.uid == job.uid
            and other.spec.name == job.spec.name
            and _turn(other) < mine
            and not _over(other)
        ):
            yield True


def _by_task(led: Ledger, dep: Dep) -> bool:
    return dep.kind == "aftercorr" and dep.state == WAITING and dep.job_id in led.array_members


def _settle_tasks(led: Ledger, master: Job, now: float, out: Outcome) -> list[Job]:
    """aftercorr between arrays: a task goes its own way once its counterpart has ended."""
    doomed: list[Job] = []
    for dep in [dep for dep in master.deps if _by_task(led, dep)]:
        for record in _records(led, dep):
            task = record.array_task_id
            if not _over(record) or task < 0 or task not in arrays.tasks_of(master):
                continue
            child = arrays.split(led, master, task, now, out)
            for mine in child.deps:
                if mine.kind == "aftercorr" and mine.job_id == dep.job_id:
                    mine.task = task
            if child is master:
                return doomed
            attach(led, child)
            led.cluster.queue_job(child)
            doomed += settle(led, child, now, out)
        led.cluster.queue_job(master)
    return doomed
