"""How the accounts stand against what they are guaranteed, as the ledger knows it now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.policy.quota import Quota, Work, names

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.model import Job

#: start of work that has not begun: it comes after all that has
LAST = 1 << 62


class Standings:
    """The moment's quotas, kept up to date job by job; whoever counts all anew must get the same
    (`recount`)."""

    def __init__(self) -> None:
        #: jobs whose records have changed since anybody asked
        self.touched: set[int] = set()
        self._version = -1
        self._quota: Quota | None = None
        #: work that has not begun, as it was counted last
        self._to_come: dict[int, Work] = {}

    def of(self, led: Ledger, starting: Iterable[int] = ()) -> Quota | None:
        """None where no account has any. Jobs that are about to start, and what others make way
        for, count as running. Cost: a few us for each job that has changed, and the jobs of its
        account (see Quota); all running jobs after a change of accounts."""
        if led.book.version != self._version:
            self._version = led.book.version
            self._quota = recount(led, []) if names(led.book) else None
            self._to_come.clear()
        quota = self._quota
        if quota is None:
            self.touched.clear()
            return None
        for job_id in self.touched:
            job = led.jobs.get(job_id)
            if job is not None and holds(led, job):
                quota.put(work(job))
            else:
                quota.drop(job_id)
        self.touched.clear()
        to_come = {one.job_id: one for one in _to_come(led, starting)}
        for number in self._to_come.keys() - to_come.keys():
            quota.drop(number)
        for one in to_come.values():
            quota.put(one)
        self._to_come = to_come
        return quota


def recount(led: Ledger, starting: Iterable[int] = ()) -> Quota:
    """The same from the beginning. Cost: running jobs, and accounts."""
    holders = {job_id for parts in led.parts.values() for job_id in parts} - led.paused
    held = [work(led.jobs[job_id]) for job_id in holders]
    return Quota(led.book, [*held, *_to_come(led, starting)])


def holds(led: Ledger, job: Job) -> bool:
    """Whether a job has anything on some node; who stands still for others has nothing."""
    if job.id in led.paused:
        return False
    return any(job.id in led.parts.get(part.node, ()) for part in job.alloc)


def _to_come(led: Ledger, starting: Iterable[int]) -> Iterator[Work]:
    """What is as good as taken, by jobs that start last of all. Tasks of an array that are still
    together start one by one."""
    for number, job_id in enumerate([*sorted(led.claimants), *starting]):
        job = led.jobs.get(job_id)
        if job is not None and not job.alloc:
            wants = tres.requested(job.spec)
            yield Work(
                *(-1 - number, job.spec.account, wants, LAST),
                secured=job.guaranteed,
                pool=job.pool,
            )


def started(stands: Quota | None, job: Job) -> None:
    """A job has started: whether it is guaranteed from now on. One that others made way for is
    counted already."""
    if stands is not None and not job.guaranteed:
        job.guaranteed = stands.start(work(job))


def work(job: Job) -> Work:
    """A job that holds something. What would be lost are its GPU-seconds (its CPU-seconds, where it
    has no GPU) since it started, or said last that its work is saved."""
    held = tres.allocated(job)
    size = held.get("gres/gpu", 0) or held.get("cpu", 0)
    since = max(job.start_time, job.checkpoint_time)
    return Work(
        *(job.id, job.spec.account, held, job.start_time),
        since=since,
        size=size,
        secured=job.guaranteed,
        pool=job.pool,
    )


__all__ = ["Standings", "holds", "recount", "started", "work"]
