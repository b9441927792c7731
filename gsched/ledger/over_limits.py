"""What limits of associations and QOS refuse: new jobs, and changes of those that wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched.errors import message
from gsched.model import Job, JobSpec
from gsched.policy import limits as rules
from gsched.policy.limits import Limit, Scope
from gsched.taskset import TaskSet
from gsched.wire.messages import Call, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

CODE = "ESLURM_ACCOUNTING_POLICY"
#: what EnforcePartLimits says of a fair share that is too low
SHARE_CODE = "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE"


def refusal(led: Ledger, call: Call, made: Iterable[Job], tasks: int) -> Refused | None:
    """Why new jobs (components of one, or an array of so many tasks) are not taken; None: they
    are. Slurm's reason is said before its error."""
    keeper = led.limits
    if not keeper.on:
        return None
    new: dict[Scope, int] = {}
    for job in made:
        limits = keeper.limits_of(job)
        for scope in limits.scopes:
            new[scope] = new.get(scope, 0) + tasks
        asked = keeper.asked(job, job.partition) if limits.deny else {}
        if led.config.enforce_part_limits != "NO" and keeper.too_low(limits):
            return Refused(call.request_id, message(SHARE_CODE), SHARE_CODE)
        for limit in rules.at_submission(limits):
            scope, what, _ = limit.pool
            if what in ("submit", "maxsubmit"):
                over = keeper.tally.of(scope).submitted + new[scope] > limit.value
            else:
                over = rules.exceeds(limit, asked, job.time_limit)
            if over:
                return _refused(call, limit.word)
    return None


def too_big(led: Ledger, job: Job) -> Limit | None:
    """With DenyOnLimit: the limit that a job would exceed even if no other ran."""
    limits = led.limits.limits_of(job)
    if not limits.deny:
        return None
    return rules.impossible(limits, led.limits.asked(job, job.partition), job.time_limit)


def forbids(led: Ledger, job: Job, changed: Job) -> bool:
    """Whether a waiting job may not become this, by what would be refused at submission: where it
    comes to an association or QOS that has no room for more jobs, and with DenyOnLimit."""
    keeper = led.limits
    if not keeper.on:
        return False
    tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
    before = keeper.limits_of(job).scopes
    for limit in keeper.limits_of(changed).submit:
        scope = limit.pool[0]
        if scope not in before and keeper.tally.of(scope).submitted + tasks > limit.value:
            return True
    return too_big(led, changed) is not None and too_big(led, job) is None


def _refused(call: Call, word: str) -> Refused:
    return Refused(call.request_id, message(CODE), CODE, notes=[word])


def without_reservation(led: Ledger, spec: JobSpec) -> str:
    """Slurm's code where the QOS asks for a reservation (RequiresReservation) and the request names
    none; "" it may."""
    qos = led.book.qos.get(spec.qos)
    wants = led.limits.on and qos is not None and "RequiresReservation" in qos.flags
    return "ESLURM_INVALID_QOS" if wants and not spec.reservation else ""
