"""Jobs of srun and salloc: whoever submits one waits, and wants to know how it looks at once.

The answer to such a submission is durable like any other, but given only once a pass has looked at
the job (or a moment has passed): it says whether the job has started, and if not, what Slurm says
of that. A job that must start at once or within some seconds (--immediate) ends where it does not.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gsched.errors import message
from gsched.ledger import jobs
from gsched.ledger.outcome import Outcome
from gsched.model import Hold, Job, JobState, Plan
from gsched.wire.messages import Done, FirstLook, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds after which the answer is given although no pass has come to the job
LOOK_S = 2.0
#: reason words of limits and states of partitions, and of nodes that are out of service
_PARTITION = frozenset(
    {
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "PartitionDown",
        "PartitionInactive",
    }
)
_NODES = ("ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN")


@dataclass
class Waiting:
    """An answer that is held back."""

    request_id: bytes
    reply: Done
    until: float


@dataclass
class Looks:
    """Of this process alone: a repeated request is answered from what is stored."""

    #: job -> the answer to its submission
    held: dict[int, Waiting] = field(default_factory=dict)
    requests: set[bytes] = field(default_factory=set)
    #: (time, job) by which a job must have started
    starts_by: list[tuple[float, int]] = field(default_factory=list)


def hold(led: Ledger, request_id: bytes, reply: Done, now: float, out: Outcome) -> None:
    """Keeps the answer to the submission of an interactive job back until it was looked at."""
    led.looks.held[reply.value] = Waiting(request_id, reply, now + LOOK_S)
    led.looks.requests.add(request_id)
    out.wake(now + LOOK_S)


def watch(led: Ledger, job: Job, out: Outcome | None = None) -> None:
    """A job that has some seconds to start in is looked at when they are over."""
    if job.spec.immediate >= 0 and job.state == JobState.PENDING and not job.het_offset:
        end = job.submit_time + max(job.spec.immediate, LOOK_S)
        heapq.heappush(led.looks.starts_by, (end, job.id))
        if out is not None:
            out.wake(end)


def looked(led: Ledger, plan: Plan, now: float, out: Outcome) -> None:
    """A pass is over: who waits for it is told. Cost: the
    verdicts of the plan, where somebody waits."""
    if not led.looks.held:
        return
    reasons = plan.reasons()
    for job_id in list(led.looks.held):
        job = led.jobs.get(job_id)
        waits = job is not None and job.state == JobState.PENDING
        if waits and job_id not in reasons and (not plan.complete or led.awaits(now)):
            continue
        _tell(led, job_id, reasons.get(job_id, ""), now, out)


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """What no pass has come to in time; jobs that had to start by now."""
    for job_id, waiting in list(led.looks.held.items()):
        if now >= waiting.until and not led.awaits(now):
            _tell(led, job_id, "", now, out)
    queue = led.looks.starts_by
    while queue and queue[0][0] <= now:
        job = led.jobs.get(heapq.heappop(queue)[1])
        if job is None or job.state != JobState.PENDING:
            continue
        if job.id in led.looks.held:
            heapq.heappush(queue, (now + 1, job.id))
            continue
        # Whoever asked for it has taken it back by now, or is gone.
        job.cancelled_by = job.uid
        jobs.end(led, job, JobState.CANCELLED, "", now, out)
    if queue:
        out.wake(queue[0][0])


def _tell(led: Ledger, job_id: int, reason: str, now: float, out: Outcome) -> None:
    waiting = led.looks.held.pop(job_id)
    led.looks.requests.discard(waiting.request_id)
    job = led.jobs.get(job_id)
    started = job is not None and job.state != JobState.PENDING and not job.finished
    code = _code(job, reason) if job is not None and not started else ""
    if job is not None and job.state == JobState.PENDING and 0 <= job.spec.immediate <= 1:
        code = code or "ESLURM_NODES_BUSY"
        refusal = Refused(waiting.request_id, message(code), code)
        # Repeated it is refused again.
        led.remember(waiting.request_id, refusal, now, out)
        out.answers.append((waiting.request_id, refusal))
        job.start_time, job.wstatus = int(now), 1 << 8
        jobs.end(led, job, JobState.FAILED, "", now, out)
        return
    look = FirstLook(started, reason, message(code) if code else "")
    waiting.reply.data = msgspec.json.encode(look).decode()
    out.answers.append((waiting.request_id, waiting.reply))


def _code(job: Job, reason: str) -> str:
    """What Slurm says when it queues a job instead of starting it; "" nothing."""
    if job.held != Hold.NONE:
        return "ESLURM_JOB_HELD"
    if reason in _PARTITION:
        return "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE"
    return "ESLURM_NODE_NOT_AVAIL" if reason.startswith(_NODES) else ""
