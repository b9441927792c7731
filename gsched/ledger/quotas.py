"""How the accounts stand against what they are guaranteed, as the ledger knows it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched import tres
from gsched.policy.quota import Quota, Work, names

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.model import Job


def standing(led: Ledger) -> Quota | None:
    """The moment's quotas; None where no account has any. Cost: running jobs, times depth of the
    tree; accounts where there are none."""
    if not names(led.book):
        return None
    holders = {job_id for parts in led.parts.values() for job_id in parts}
    return Quota(led.book, (work(led.jobs[job_id], led.meta.last_now) for job_id in holders))


def work(job: Job, now: float) -> Work:
    """A job that holds something. What would be lost are its GPU-seconds (its CPU-seconds, where it
    has no GPU)."""
    held = tres.allocated(job)
    size = held.get("gres/gpu", 0) or held.get("cpu", 0)
    return Work(job.id, job.spec.account, held, job.start_time, size * (now - job.start_time))


__all__ = ["standing", "work"]
