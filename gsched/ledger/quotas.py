"""How the accounts stand against what they are guaranteed, as the ledger knows it now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.policy.quota import Quota, Work, names

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.model import Job


def standing(led: Ledger, starting: Iterable[int] = ()) -> Quota | None:
    """The moment's quotas; None where no account has any. Jobs that are about to start, and what
    others make way for, count as running. Cost: running jobs, times depth of the
    tree; accounts where there are none."""
    if not names(led.book):
        return None
    holders = {job_id for parts in led.parts.values() for job_id in parts}
    # Who stands still for others has nothing.
    holders -= led.paused
    held = [work(led.jobs[job_id], led.meta.last_now) for job_id in holders]
    return Quota(led.book, [*held, *_to_come(led, starting)])


def _to_come(led: Ledger, starting: Iterable[int]) -> Iterator[Work]:
    """What is as good as taken, by jobs that start last of all. Tasks of an array that are still
    together start one by one."""
    after = int(led.meta.last_now) + 1
    for number, job_id in enumerate([*led.claimants, *starting]):
        job = led.jobs.get(job_id)
        if job is not None and not job.alloc:
            wants = tres.requested(job.spec)
            yield Work(-1 - number, job.spec.account, wants, after, 0.0, job.guaranteed, job.pool)


def started(stands: Quota | None, job: Job, now: float) -> None:
    """A job has started: whether it is guaranteed from now on. One that others made way for is
    counted already."""
    if stands is not None and not job.guaranteed:
        job.guaranteed = stands.start(work(job, now))


def work(job: Job, now: float) -> Work:
    """A job that holds something. What would be lost are its GPU-seconds (its CPU-seconds, where it
    has no GPU) since it started, or said last that its work is saved."""
    held = tres.allocated(job)
    size = held.get("gres/gpu", 0) or held.get("cpu", 0)
    since = max(job.start_time, job.checkpoint_time)
    lost = size * (now - since)
    return Work(job.id, job.spec.account, held, job.start_time, lost, job.guaranteed, job.pool)


__all__ = ["standing", "started", "work"]
