"""Accounts take back whole nodes or islands that they are guaranteed (policy/units.py).

The first of the jobs that wait in an account's units, and it alone: whoever comes after it would
take the room for which it waits. It takes back borrowed work on these units, that which loses
least, all or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from gsched.model import Job, Placement
from gsched.model.preempt import Preemption
from gsched.policy.preempt import lost
from gsched.scheduling import reclaim
from gsched.scheduling.preemption import AGAIN_S, Candidate, propose

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def decide(led: Ledger, now: int, starts: Iterable[Placement]) -> tuple[list[Preemption], int]:
    """(who makes way for whom, when time alone may change that; 0: nothing). After a pass, for the
    first blocked job of each pool. Cost: pools, and Core.cheapest for those in which something has
    changed since it was asked in vain."""
    units, claims = led.units, led.cluster.claims
    if not units.pools or led.awaits(now):
        return [], 0
    begun = {start.job_id for start in starts}
    found: list[Preemption] = []
    taken: set[int] = set()
    wake = 0
    heads = claims.heads()
    for gone in units.tried.keys() - heads.keys():
        del units.tried[gone]
    for pool, job_id in heads.items():
        job = led.jobs.get(job_id)
        if job is None or job_id in begun or job.claim is not None or job.spec.begin > now:
            continue
        known, until = units.tried.get(pool, (0, 0))
        if known == job_id and pool not in units.news and now < until:
            if until <= now + AGAIN_S:
                wake = min(wake or until, until)
            continue
        units.news.discard(pool)
        back = units.borrowers(job, pool)
        plan = _plan(led, job, pool, back, taken, now)
        if plan is not None:
            found.append(plan)
            taken.update(one.job_id for one in plan.victims)
            units.tried.pop(pool, None)
            continue
        # Who is left alone for a while may be asked later.
        units.tried[pool] = job_id, now + (AGAIN_S if back else 1 << 40)
        if back:
            wake = min(wake or now + AGAIN_S, now + AGAIN_S)
    return found, wake


def _plan(
    led: Ledger, job: Job, pool: str, back: Iterable[Job], taken: Collection[int], now: int
) -> Preemption | None:
    wanted = []
    for other in back:
        victim = reclaim.victim(led, job, other.id, now)
        if victim is not None and other.id not in taken:
            wanted.append(Candidate(lost(other, now), -other.start_time, other.id, victim))
    for partition in led.cluster.claims.blocked(job.id) if wanted else ():
        plan = propose(led, job, partition, wanted, now, pool=pool)
        if plan is not None:
            return plan
    return None


__all__ = ["decide"]
