"""Finding the jobs that a command names: ids as users write them, owners, filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.model import Job

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

INVALID_ID = "Invalid job id specified"
DENIED = "Access/permission denied"
FINISHED = "Job/step already completing or completed"


def by_id(led: Ledger, text: str) -> Job | None:
    """The job that "17" names; None for anything else (unknown, malformed)."""
    if not text.isdecimal() or len(text) > 18:
        return None
    return led.jobs.get(int(text))


def may_touch(led: Ledger, uid: int, job: Job) -> bool:
    """Owners touch their own jobs, administrators all."""
    return job.uid == uid or led.is_admin(uid)
