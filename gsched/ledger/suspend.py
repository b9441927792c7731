"""suspend and resume: the processes of a job stand still. Its resources stay its own, unless it
stands still for others (pause.py).

What the node is told is the time limit counted from the start of the script, so the time that the
job was suspended is added to it; while it is suspended there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.errors import message
from gsched.ledger import hetero, jobs, launch, reserved, slices, use
from gsched.ledger.edit import BadValue
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState, Phase
from gsched.wire.messages import Call
from gsched.wire.nodes import Pause, SetLimit

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: of a Pause order: it goes on
GOES_ON = -1


def suspended_s(job: Job) -> int:
    """Seconds this attempt was suspended in all, without a suspension that still lasts."""
    if not job.suspend_time:
        return 0
    return max(0, job.suspend_time - job.start_time - job.pre_suspend_s)


def node_limit(led: Ledger, job: Job) -> int:
    """Seconds from the start of the script after which the node ends it; 0 none."""
    limit = hetero.limit(led, job)
    if job.state == JobState.SUSPENDED:
        return 0
    if limit:
        limit += launch.over_time(led, job) + suspended_s(job)
    return reserved.cut(led, job, limit)


def suspend(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """SIGTSTP to all processes, then SIGSTOP. Of one that is suspended already: nothing."""
    if job.finished:
        raise BadValue(message("ESLURM_ALREADY_DONE"))
    if job.state == JobState.PENDING:
        raise BadValue(message("ESLURM_JOB_PENDING"))
    if job.state == JobState.SUSPENDED:
        if job.sliced:
            # It does not go on by itself any more, as in Slurm.
            slices.forget(led, job)
            led.put_job(job, out)
        return
    if job.configuring:
        raise BadValue(message("ESLURM_TRANSITION_STATE_NO_UPDATE"))
    stop(led, job, now, out)
    slices.settle(led, [part.node for part in job.alloc], now, out)


def stop(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """A running job stands still from now on."""
    job.pre_suspend_s = int(now) - job.start_time - suspended_s(job)
    use.end(led, job, int(now), now, out)
    job.suspend_time = int(now)
    jobs.move(job, JobState.SUSPENDED)
    jobs.set_end(led, job)
    led.put_job(job, out)
    tell(led, job, now, out)


def resume(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """SIGCONT to all processes; the time limit runs on from where it stood."""
    if job.finished:
        raise BadValue(message("ESLURM_ALREADY_DONE"))
    if job.state == JobState.PENDING:
        raise BadValue(message("ESLURM_JOB_PENDING"))
    if job.state != JobState.SUSPENDED:
        raise BadValue("Job is not suspended")
    if job.paused or job.sliced:
        # Others work with what it has.
        raise BadValue(message("ESLURM_DISABLED"))
    if slices.again(led, job, now, out):
        go(led, job, now, out)
    out.schedule = True


def go(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """A suspended job goes on from now on."""
    jobs.move(job, JobState.RUNNING)
    job.suspend_time = int(now)
    use.begin(led, job)
    jobs.set_end(led, job)
    led.put_job(job, out)
    tell(led, job, now, out)


def tell(led: Ledger, job: Job, now: float, out: Outcome, node: str = "") -> None:
    """Tells the nodes (or one that has registered anew, and may have missed it) how it stands.
    Before they have been told of the attempt itself: nothing."""
    if job.prolog_due:
        return
    stop = job.state == JobState.SUSPENDED
    grace = led.rules().options.stop_after if stop else GOES_ON
    if stop and job.configuring:
        # It has not begun: there is nothing to be warned.
        grace = 0
    ever = bool(job.suspend_time)
    for index, part in enumerate(job.alloc):
        if part.phase >= Phase.ENDED or (node and part.node != node):
            continue
        if index == 0:
            limit = SetLimit(0, job.id, job.attempt, node_limit(led, job))
            if stop:
                led.order(part.node, limit, now, out)
        if ever:
            led.order(part.node, Pause(0, job.id, job.attempt, grace), now, out)
        if index == 0 and not stop:
            led.order(part.node, limit, now, out)
