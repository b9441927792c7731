"""Accounts, users, associations or QOS have changed: what follows for jobs that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched import access
from gsched.ledger import offered, ranking
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.policy.enforce import enforced

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def changed(led: Ledger, now: float, out: Outcome) -> None:
    """The one place that is called after every change of policy, once for a command. Waiting jobs
    whose association or QOS is gone wait with Slurm's reason, and go on once it is back. Limits and
    priorities follow from here too. Cost: ~1 us for each waiting job."""
    offered.changed(led)
    wanted = enforced(led.config.accounting_storage_enforce)
    for job in led.jobs.values():
        if job.state != JobState.PENDING or job.finished:
            continue
        before = (job.assoc_id, job.reason if job.reason in access.UNCHARGED else "")
        word = _lost(led, job, wanted)
        if before == (job.assoc_id, word):
            continue
        if word or before[1]:
            job.reason = word
        led.put_job(job, out)
        led.cluster.queue_job(job)
    for job in led.units.changed():
        led.cluster.queue_job(job)
    ranking.recalculate(led, now, out)
    out.schedule = True


def _lost(led: Ledger, job: Job, wanted: frozenset[str]) -> str:
    """Why a waiting job cannot be charged any more; "" it can. An association that was made anew
    takes the place of the old one."""
    book = led.book
    if job.assoc_id not in book.assocs:
        names = job.spec.partitions or (job.partition,)
        found = book.find(job.spec.account, job.user, names[0])
        job.assoc_id = found.id if found is not None else 0
        if found is None and "associations" in wanted:
            return access.INVALID_ACCOUNT
    if "qos" not in wanted:
        return ""
    if job.spec.qos not in book.qos:
        return access.INVALID_QOS
    return ""
