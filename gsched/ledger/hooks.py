"""What came of PrologSlurmctld and EpilogSlurmctld, and what a new controller runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger import jobs, launch, suspend
from gsched.ledger.commands import HookEnded
from gsched.ledger.outcome import Outcome
from gsched.ledger.requeue import WAIT_S
from gsched.ledger.state import hook_key
from gsched.model import Job, JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: reason of an interactive job whose PrologSlurmctld has failed (cli/client/waiting.c)
PROLOG = "Prolog"


def ended(led: Ledger, hook: HookEnded, now: float, out: Outcome) -> None:
    """A program has ended. Of an attempt that is over a prolog's end says nothing."""
    if hook.error:
        out.log.append(("error", f"job {hook.job_id}: {hook.error}"))
    if hook.epilog:
        if led.epilogs.pop((hook.job_id, hook.attempt), None) is not None:
            out.puts["hook", hook_key(hook.job_id, hook.attempt)] = None
        return
    job = led.jobs.get(hook.job_id)
    if job is None or job.attempt != hook.attempt or not job.prolog_due:
        return
    if hook.error:
        _failed(led, job, now, out)
        return
    job.prolog_due = False
    launch.expect(led, job, now)
    launch.send(led, job, now, out)
    if job.state == JobState.SUSPENDED:
        suspend.tell(led, job, now, out)


def _failed(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """As Slurm: a batch job is queued again, as by `scontrol requeue`; one that cannot be is
    cancelled."""
    if jobs.may_requeue(led, job):
        jobs.requeue_running(led, job, False, now, out, WAIT_S)
        return
    out.log.append(("error", f"job {job.id}: PrologSlurmctld failed, job killed"))
    job.cancelled_by = 0
    # srun and salloc, which wait for it, read why.
    jobs.end(led, job, JobState.CANCELLED, PROLOG if job.spec.interactive else "", now, out)


def resume(led: Ledger, out: Outcome) -> None:
    """The controller before this one may have ended in the middle of them: they run (again)."""
    for job_id in led.preparing:
        if led.jobs[job_id].prolog_due:
            out.prologs.append(launch.image_of(led.jobs[job_id]))
    out.given_back.extend(led.epilogs.values())
