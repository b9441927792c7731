"""Accounts take back whole nodes or islands that they are guaranteed (policy/units.py).

The first of the jobs that wait in an account's units takes back borrowed work on these, that which
loses least, all or nothing. Where all of that is not enough, as it waits for guaranteed work of its
account, so do jobs behind it that do not delay it, as backfill has it: that are gone by the time at
which it starts, or lie on other nodes than are kept for it then. What makes way
ends, whatever PreemptMode says: who stands still would keep memory of what is to be whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING

from gsched.model import Job, Placement
from gsched.model.preempt import Preemption
from gsched.policy.preempt import lost
from gsched.policy.units import rank
from gsched.scheduling import reclaim
from gsched.scheduling.options import options_of
from gsched.scheduling.preemption import Candidate, propose

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: jobs behind the first one that are looked at
MOST_AROUND = 16
#: a time that does not come
NEVER = 1 << 60


def decide(led: Ledger, now: int, starts: Iterable[Placement]) -> tuple[list[Preemption], int]:
    """(who makes way for whom, when time alone may change that; 0: nothing). After a pass, for the
    first blocked job of each pool. Cost: pools, and Core.cheapest for those in which something has
    changed since it was asked in vain."""
    units, claims = led.units, led.cluster.claims
    strict = options_of(led.config).strict
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
        known, until = units.tried.get(pool, ((0, 0), 0))
        mine = job_id, claims.newest(pool)
        if known == mine and pool not in units.news and now < until:
            if until < NEVER:
                wake = min(wake or until, until)
            continue
        units.news.discard(pool)
        back = units.borrowers(job, pool)
        one = plan(led, job, pool, back, taken, now)
        if one is None and not strict:
            one = _around(led, job, pool, back, taken, now)
        if one is not None:
            found.append(one)
            taken.update(victim.job_id for victim in one.victims)
            units.tried.pop(pool, None)
            continue
        # Who is left alone for a while may be asked later.
        until = reclaim.exempt(back, led, now) or NEVER
        units.tried[pool] = mine, until
        if until < NEVER:
            wake = min(wake or until, until)
    return found, wake


def _around(
    led: Ledger, head: Job, pool: str, back: Collection[Job], taken: Collection[int], now: int
) -> Preemption | None:
    """The first job behind one that waits which does not delay it, and what it takes back: one that
    is gone by the time at which that starts, or lies on other nodes than are kept for that. Cost:
    jobs that wait in the pool, Core.cheapest for up to MOST_AROUND."""
    at, kept = led.cluster.estimate(head.id)
    if at <= now or not back or not kept:
        return None
    behind = [led.jobs[one] for one in led.cluster.claims.hopeful(pool) if one != head.id]
    ready = (job for job in behind if job.claim is None and job.spec.begin <= now)
    for job in nsmallest(MOST_AROUND, ready, key=lambda one: rank(led.config.partitions, one)):
        mine = led.units.borrowers(job, pool)
        gone = bool(job.time_limit) and now + job.time_limit <= at
        found = plan(led, job, pool, mine, taken, now, avoid=() if gone else kept)
        if found is not None:
            return found
    return None


def plan(
    led: Ledger,
    job: Job,
    pool: str,
    back: Iterable[Job],
    taken: Collection[int],
    now: int,
    avoid: Collection[str] = (),
) -> Preemption | None:
    """Who of these jobs makes way for one that waits in a pool, but for those that are taken and
    for some nodes; None: not even all of them do, or it does not wait for room. Cost:
    Core.cheapest."""
    wanted = []
    for other in back:
        victim = reclaim.victim(led, job, other.id, now, ends=True)
        if victim is not None and other.id not in taken:
            wanted.append(Candidate(lost(other, now), -other.start_time, other.id, victim))
    for partition in led.cluster.claims.blocked(job.id) if wanted else ():
        found = propose(led, job, partition, wanted, now, pool=pool, avoid=avoid)
        if found is not None:
            return found
    return None


__all__ = ["decide", "plan"]
