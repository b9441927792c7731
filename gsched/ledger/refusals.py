"""A node could not start its share of an attempt: what becomes of the job, and of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger import hetero, jobs
from gsched.ledger.outcome import Outcome
from gsched.ledger.requeue import WAIT_S
from gsched.model import Job, JobState, NodeFlag
from gsched.wire.nodes import AttemptReport

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: reason and state text after a node could not launch a job, as Slurm words it
LAUNCH_FAILED = "launch failed requeued held"
#: why a node refused an attempt, where that is its own fault -> the reason it is drained for, in
#: Slurm's words
NODE_FAULTS = {"disk": "batch job complete failure", "prolog": "Prolog error"}


def taken(led: Ledger, job: Job, node: str, rep: AttemptReport, now: float, out: Outcome) -> bool:
    """Takes in that a node has refused an attempt or failed to launch it; whether that was its
    end."""
    if rep.cause in NODE_FAULTS:
        drain(led, node, NODE_FAULTS[rep.cause], now, out)
    if job.finished:
        return False
    _launch_failed(led, job, node, rep, now, out)
    return True


def drain(led: Ledger, name: str, why: str, now: float, out: Outcome) -> None:
    """Keeps a node that cannot start jobs from taking the next ones out of the queue."""
    node = led.nodes[name]
    if node.flags & NodeFlag.DRAIN:
        return
    node.flags |= NodeFlag.DRAIN
    node.reason, node.reason_uid, node.reason_time = why, 0, int(now)
    led.put_node(node, out)
    led.cluster.set_usable(name, False)
    out.log.append(("error", f"node {name} drained: {why}"))


def _launch_failed(
    led: Ledger, job: Job, node: str, rep: AttemptReport, now: float, out: Outcome
) -> None:
    """A node refused or failed to launch: nothing ran; take all back, and hold the job, or it
    would fail the same way again at once (nohold_on_prolog_fail: the node is drained, another may
    have it). An interactive job is over, and so is one that nobody may queue again."""
    job.system_comment = f"{node}: {rep.error}"[:1024]
    out.log.append(("error", f"job {job.id} could not be launched on {node}: {rep.error}"))
    if job.spec.interactive:
        jobs.end(led, job, JobState.FAILED, "JobLaunchFailure", now, out, cause="launch")
        return
    if not jobs.may_requeue(led, job):
        job.cancelled_by = 0
        jobs.end(led, job, JobState.CANCELLED, "", now, out, cause="launch")
        return
    job.requeue_after = True
    job.hold_after = not (rep.cause == "prolog" and led.config.nohold_on_prolog_fail)
    job.requeue_wait = 0 if job.hold_after else WAIT_S
    reason = LAUNCH_FAILED if job.hold_after else ""
    jobs.end(led, job, JobState.BOOT_FAIL, reason, now, out, cause="launch")
    for member in hetero.unit(led, job):
        member.reason = reason
