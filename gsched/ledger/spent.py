"""Jobs end when the minutes of a group are used up: GrpTRESMins and GrpWall, unless
AccountingStorageEnforce has "safe", with which only those start that can end in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger import jobs
from gsched.ledger.outcome import Outcome
from gsched.model import JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds between two looks: Slurm looks when it has added up usage, every PriorityCalcPeriod
EVERY = 10
#: what a real Slurm says of such a job
REASON = "TimeLimit"


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Ends the running jobs of those who have nothing left. Cost: running jobs, if there is such a
    limit at all."""
    keeper = led.limits
    if now < keeper.look_at or not keeper.on or keeper.safe or not keeper.minutes:
        return
    keeper.look_at = now + EVERY
    live = (JobState.RUNNING, JobState.SUSPENDED)
    for job in [job for job in led.jobs.values() if job.state in live]:
        if job.finished:
            # With another component of the same job.
            continue
        spent = keeper.spent(job, int(now))
        if spent is None:
            continue
        job.requeue_after = False
        out.log.append(("info", f"job {job.id} ends: {spent.whose} has reached {spent.word}"))
        jobs.end(led, job, JobState.TIMEOUT, REASON, now, out, cause="timeout")
