"""Claims come before borrowers: what an account is guaranteed is not lent to anybody first.

Of the jobs that wait those are *owed* which their accounts could have within their guarantees
(policy/quota.py), all at once: in order, as many as fit into what is left of them. They go before
all others, whatever their priorities. So nobody borrows what one of them can have, and of those
that can have nothing yet the first has its place kept before any borrower's. Before others start
the first that has no room takes back what is borrowed: nobody borrows what is taken back at once.
What they cannot use is lent as ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gsched import tres
from gsched.cluster.lines import Rank
from gsched.model import Job
from gsched.model.preempt import Claim, Preemption
from gsched.policy.quota import Quota
from gsched.policy.units import rank
from gsched.scheduling.preemption import AGAIN_S, LATEST_S, take_back
from gsched.taskset import TaskSet

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: jobs of an account that are looked at, and of all owed ones before a pass
MOST_LOOKED = 256
MOST_AHEAD = 64
#: seconds after which accounts are gone through again although nothing seems to have changed
ANEW_S = 5


def order(led: Ledger, now: int) -> list[int]:
    """The jobs that are owed, in order; the queue has them first. Cost: nothing without guarantees
    of single GPUs, else the jobs of accounts in which something has changed."""
    claims, rules = led.cluster.claims, led.rules()
    stands = led.quotas() if rules.guarantees and claims.lines.version else None
    if stands is None:
        if claims.owed:
            claims.put_first({})
        return []
    known, claims.counted = claims.counted, {}
    groups: dict[str, list[str]] = {}
    for account in claims.lines.version:
        top = stands.top(account)
        if top:
            groups.setdefault(top, []).append(account)
    found: dict[int, tuple[Rank, int]] = {}
    for top, accounts in groups.items():
        sign = (
            led.book.version,
            now // ANEW_S,
            stands.left(accounts),
            tuple((one, claims.lines.version[one]) for one in accounts),
            claims.vainly.get(top),
        )
        mine = known.get(top)
        if mine is None or mine[0] != sign:
            mine = sign, _owed(led, stands, top, accounts, now)
        claims.counted[top] = mine
        found.update(mine[1])
    claims.put_first({job_id: count for job_id, (_, count) in found.items()})
    return sorted(found, key=lambda one: found[one][0])


def _quiet(led: Ledger, now: int) -> tuple[int, ...]:
    """As long as it is the same, what was in vain is so still."""
    return led.pulse, led.book.version, led.cluster.adopted, now // LATEST_S


def _owed(
    led: Ledger, stands: Quota, top: str, accounts: list[str], now: int
) -> dict[int, tuple[Rank, int]]:
    """Job -> (rank, so many of its tasks), of accounts that have a guarantee in common."""
    left = stands.left(accounts)
    quiet, vain = led.cluster.claims.vainly.get(top, ((), frozenset()))
    if quiet != _quiet(led, now):
        vain = frozenset()
    found: dict[int, tuple[Rank, int]] = {}
    lines = [_hopeful(led, one, now) for one in accounts]
    for place, job in heapq.merge(*lines, key=lambda one: one[0]):
        wants = tres.requested(job.spec)
        tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
        count = 0
        # What one cannot have now others may have: he waits in front, and takes nothing of it.
        mine = dict(left) if job.id in vain else left
        while count < tasks and stands.owe(job.spec.account, wants, mine):
            count += 1
        if count:
            found[job.id] = place, count
    return found


def _hopeful(led: Ledger, account: str, now: int) -> Iterator[tuple[Rank, Job]]:
    """The jobs of an account that wait for room, as far as is known, in order."""
    claims = led.cluster.claims
    line = claims.lines.of(account, lambda job_id: rank(led.config.partitions, led.jobs[job_id]))
    for place, job_id in islice(line, MOST_LOOKED):
        job = led.jobs[job_id]
        if job.claim is None and job.spec.begin <= now and claims.waits(job_id):
            yield place, job


def ahead(led: Ledger, now: int) -> tuple[list[Preemption], int]:
    """Before a pass: (who makes way for one that is owed, so many may start before others are
    looked at; 0: any number). Cost: a placement, and Core.cheapest where something has changed
    since it was in vain, for each of the first MOST_AHEAD."""
    claims, quiet = led.cluster.claims, _quiet(led, now)
    room: list[Job] = []
    seen: set[int] = set()
    todo = order(led, now)
    while todo and len(seen) < MOST_AHEAD:
        job = led.jobs[todo.pop(0)]
        known, until = claims.early.get(job.id, (None, 0))
        if job.id in seen or until > now or known == quiet:
            continue
        seen.add(job.id)
        if _has_room(led, job, now):
            room.append(job)
            continue
        if room:
            todo.append(job.id)
            break
        found = _beside(led, job, now) or _back(led, job, now)
        # A plan that comes to nothing is not made again at once.
        claims.early[job.id] = (None, now + AGAIN_S) if found else (quiet, 0)
        if found is not None:
            return [found], 0
        stands = led.quotas()
        top = stands.top(job.spec.account) if stands is not None else ""
        before, vain = claims.vainly.get(top, ((), frozenset()))
        claims.vainly[top] = quiet, frozenset({job.id}) | (vain if before == quiet else frozenset())
        todo = order(led, now)
    count = len(room)
    behind = bool(todo) or len(seen) >= MOST_AHEAD
    while count:
        ways = [
            (job.spec.shape, [(name, "") for name in job.spec.partitions or (job.partition,)])
            for job in room[:count]
        ]
        if led.cluster.what_if.together(ways, now):
            break
        behind = True
        count //= 2
    for job in room[:count]:
        claims.early[job.id] = quiet, 0
    # Where all that are owed have room together, nobody takes any of it from them.
    return [], count if behind else 0


def _has_room(led: Ledger, job: Job, now: int) -> bool:
    """Whether it may start beside what is planned."""
    return any(
        led.cluster.what_if.nodes_for(job.spec.shape, name, job.time_limit, now, job_id=job.id)
        for name in job.spec.partitions or (job.partition,)
        if name in led.config.partitions
    )


def _beside(led: Ledger, job: Job, now: int) -> Preemption | None:
    """What it is promised of the room that a plan of before keeps for borrowers."""
    for name in job.spec.partitions or (job.partition,):
        if name in led.config.partitions and not job.spec.reservation:
            nodes = led.cluster.claims.room(job, name, now)
            if nodes is not None:
                return Preemption(job.id, Claim(now, name, nodes, []), [])
    return None


def _back(led: Ledger, job: Job, now: int) -> Preemption | None:
    """What it takes back; None: there is nothing, or not enough."""
    stands = led.quotas()
    if stands is None:
        return None
    for name in job.spec.partitions or (job.partition,):
        if name not in led.config.partitions:
            continue
        found = take_back(led, stands, job, name, now)
        if found is not None and found.victims:
            return found
    return None


__all__ = ["ahead", "order"]
