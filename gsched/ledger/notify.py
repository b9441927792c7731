"""notify: a line from somebody in the error file of a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.errors import message
from gsched.ledger.edit import BadValue
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.wire.messages import Call
from gsched.wire.nodes import Notify

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: bytes of a line: what a supervisor takes
MAX_LINE = 900


def notify(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """Sends `given["message"]` to the job's batch host; nothing is kept of it."""
    if job.state not in (JobState.RUNNING, JobState.SUSPENDED):
        raise BadValue(message("ESLURM_DISABLED"))
    text = "".join(c if c.isprintable() else " " for c in given.get("message", ""))
    line = text.encode()[:MAX_LINE].decode(errors="ignore")
    led.order(job.alloc[0].node, Notify(0, job.id, job.attempt, line), now, out)
