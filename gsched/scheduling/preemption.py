"""Whose running work makes way for a waiting job: one plan, all or nothing.

A job that ranks strictly above running ones (policy/preempt.py) and is blocked gets the cheapest
set of them whose going makes it fit: `propose`, which anybody with another relation (guarantees of
accounts) calls with the victims that it allows. Nobody goes unless the job then has room, nobody
goes in vain, and what they free is kept for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gsched import tres
from gsched.model import Job, JobState, Placement
from gsched.model.preempt import CANCEL, REQUEUE, SUSPEND, Claim, Preemption, Victim
from gsched.policy.preempt import above, lost
from gsched.policy.quota import Quota
from gsched.scheduling import license_claims, reclaim

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: blocked jobs that are looked at in one pass, and seconds until one is looked at again
MOST_TRIES = 8
AGAIN_S = 2
#: seconds after which it is looked at again by the next pass, though nothing seems to have changed
LATEST_S = 60
#: running jobs among which is chosen: those that cost least
MOST_VICTIMS = 4096
#: with more jobs waiting that may preempt, they are gone through every AGAIN_S only, if in vain
MANY = 256


@dataclass(order=True)
class Candidate:
    """One that may be asked to make way. Sorted by cost: equals by what is written next."""

    #: what its going costs
    cost: int
    #: of equals the one that started last
    since: int
    job_id: int
    victim: Victim = field(compare=False)


@dataclass
class Spared:
    """A running job that ranks lower and is left alone."""

    job: Job
    #: epoch seconds; -1 for good
    until: int


def decide(led: Ledger, now: int, starts: Iterable[Placement] = ()) -> tuple[list[Preemption], int]:
    """(who makes way for whom, when time alone may change that; 0: nothing). After a pass, for jobs
    that it found blocked, beside those that it starts. Cost: nothing while no waiting job may
    preempt; else jobs that hold nodes, and Core.cheapest, for up to MOST_TRIES of them."""
    rules, cluster = led.rules(), led.cluster
    if not cluster.claims.may or led.awaits(now):
        return [], 0
    if led.units.alone and not rules.kind:
        # All that is taken back is so in whole units (whole.py).
        return [], 0
    # Plans and reservations change more slowly than jobs: after a while that counts as a change.
    quiet = (led.pulse, led.book.version, cluster.adopted, now // LATEST_S)
    known, until = cluster.claims.quiet
    if known == quiet and (not until or now < until):
        # Nothing has changed since all of them were looked at in vain.
        return [], until
    if len(cluster.claims.may) > MANY and now < cluster.claims.look_at:
        return [], cluster.claims.look_at
    begun = [start.job_id for start in starts]
    stands = led.quotas(begun)
    wake = 0
    tries = 0
    soonest = late = 0
    unsure = bool(begun)
    waiting: list[tuple[int, int, int, int]] = []
    for job_id in cluster.claims.may:
        known, until = cluster.claims.vain.get(job_id, (None, 0))
        if known == quiet and (not until or now < until):
            soonest = min(filter(None, (soonest, until)), default=0)
            continue
        again = cluster.claims.tried.get(job_id, 0)
        if again > now:
            wake = late = min(wake or again, again)
            continue
        job = led.jobs[job_id]
        if job.claim is None and job.spec.begin <= now:
            waiting.append(_rank(led, job))
    # Few of many are looked at.
    heapq.heapify(waiting)
    while waiting:
        job = led.jobs[heapq.heappop(waiting)[-1]]
        # What is guaranteed in whole units is taken back in these alone (whole.py).
        pools = led.units.ways(job)[0] if led.units.pools else []
        if pools and not rules.kind:
            continue
        short = license_claims.partitions(led, job)
        partitions = short or cluster.claims.blocked(job.id)
        if not partitions or (
            rules.options.wait and _starts_soon(led, job, now + rules.options.wait)
        ):
            unsure = True
            continue
        tries += 1
        if tries > MOST_TRIES:
            wake = late = min(wake or now + 1, now + 1)
            break
        cluster.claims.tried[job.id] = now + AGAIN_S
        times: set[int] = set()
        for partition in partitions:
            allowed, spared = candidates(led, job, partition, now, stands)
            times.update(one.until for one in spared if one.until > 0)
            wanted = license_claims.propose if short else propose
            plan = wanted(led, job, partition, allowed, now)
            if plan is None and stands is not None and not pools and not short:
                plan = take_back(led, stands, job, partition, now)
                times.add(reclaim.soonest(led, stands, job, now) if plan is None else 0)
            if plan is not None:
                # What the first ones are promised is kept from the next pass on.
                return [plan], now + 1
        until = min(filter(None, times), default=0)
        soonest = min(filter(None, (soonest, until)), default=0)
        if not begun:
            cluster.claims.vain[job.id] = quiet, until
    cluster.claims.look_at = now + AGAIN_S
    if not late and not unsure:
        cluster.claims.quiet = quiet, soonest
    return [], min(filter(None, (wake, soonest)), default=0)


def _rank(led: Ledger, job: Job) -> tuple[int, int, int, int]:
    known, names = led.config.partitions, job.spec.partitions
    if names:
        tier = max((known[name].priority_tier for name in names if name in known), default=0)
    else:
        tier = known[job.partition].priority_tier if job.partition in known else 0
    return -(job.id in led.cluster.claims.owed), -tier, -job.priority, job.id


def _starts_soon(led: Ledger, job: Job, by: int) -> bool:
    at, nodes = led.cluster.estimate(job.id)
    return bool(nodes) and 0 < at <= by


def candidates(
    led: Ledger, job: Job, partition: str, now: int, stands: Quota | None = None
) -> tuple[list[Candidate], list[Spared]]:
    """The running jobs that a waiting one may preempt, and those that rank lower and are exempt
    now, or are guaranteed work that is not for borrowed work to take. Cost: jobs that hold
    nodes."""
    allowed: list[Candidate] = []
    spared: list[Spared] = []
    for other in _running(led) if led.rules().kind else ():
        found: list[Candidate | Spared | None] = [
            _asked(led, job, partition, one, now, stands) for one in led.unit(other)
        ]
        asked = [one for one in found if isinstance(one, Candidate)]
        if len(asked) == len(found) == max(1, other.het_size):
            whole = _whole(asked)
            if whole is not None:
                allowed.append(whole)
        elif all(found):
            until = [one.until for one in found if isinstance(one, Spared)]
            spared.append(Spared(other, -1 if -1 in until else max(until)))
    return allowed, spared


def _asked(
    led: Ledger, job: Job, partition: str, other: Job, now: int, stands: Quota | None
) -> Candidate | Spared | None:
    """What a job, or a component of one, is to the preemptor; None: nothing that it could have."""
    rules = led.rules()
    if other.way is not None or not rules.preempts(job, partition, other):
        return None
    if above(job, other, led.jobs.get):
        return None
    if reclaim.spared(stands, job, other):
        return Spared(other, -1)
    mode = rules.mode(other, led.may_requeue(other))
    if not mode or not possible(led, job, partition, other, mode):
        return None
    until = rules.exempt_until(other, mode)
    if until < 0 or until > now:
        return Spared(other, until)
    cost = lost(other, now, mode)
    if rules.options.youngest_first:
        cost = now - other.start_time
    grace = 0 if mode == SUSPEND else rules.grace(other)
    victim = Victim(other.id, other.attempt, mode, grace, _KIND[rules.kind])
    return Candidate(cost, -other.start_time, other.id, victim)


def _whole(asked: list[Candidate]) -> Candidate | None:
    """The components of a heterogeneous job make way as one, as Slurm has it by the first mode of
    SUSPEND, REQUEUE, CANCEL that one of them has; but it never stands still."""
    if len(asked) == 1:
        return asked[0]
    modes = {one.victim.mode for one in asked}
    if SUSPEND in modes:
        return None
    first = asked[0]
    first.cost = sum(one.cost for one in asked)
    first.victim.mode = REQUEUE if REQUEUE in modes else CANCEL
    first.victim.grace = max(one.victim.grace for one in asked)
    return first


_KIND = {"qos": "qos", "partition_prio": "partition"}


def _running(led: Ledger) -> Iterator[Job]:
    """Those that could make way; of a heterogeneous job its first component."""
    for job_id in led.cluster.claims.holders():
        job = led.jobs.get(job_id)
        if job is None or job.het_offset:
            continue
        still = job.paused or job.sliced
        if job.state == JobState.RUNNING or (still and not job.finished):
            yield job


def possible(led: Ledger, job: Job, partition: str, other: Job, mode: str) -> bool:
    """Whether a running job, or one that stands still, can make way for `job` in this way: only one
    that works is ended, and nothing comes free by its end that those take back who stand still for
    it, unless they may stand still for `job` as well."""
    if mode == SUSPEND:
        # What is in parts is not taken from the whole.
        return not other.configuring and not job.spec.shape.share_count
    if other.paused:
        return False
    rules = led.rules()
    for lender in led.beneath(other):
        if not rules.preempts(job, partition, lender) or above(job, lender, led.jobs.get):
            return False
        if rules.mode(lender, led.may_requeue(lender)) != SUSPEND:
            return False
    return True


def propose(
    led: Ledger,
    job: Job,
    partition: str,
    allowed: Iterable[Candidate],
    now: int,
    *,
    ordered: bool = False,
    pool: str = "",
    first: Sequence[Candidate] = (),
    licenses: str = "",
    avoid: Collection[str] = (),
) -> Preemption | None:
    """The cheapest of the sets among `allowed` that make a blocked job fit in a partition; None:
    not even all of them do. With PreemptParameters=strict_order the lowest in rank go first, else
    those that cost least; `ordered`: in the order of costs, the last of them as early in it as can
    be; `pool`: in the units of that account, but for nodes in `avoid`; `first`: those of them that
    go in any case, for these `licenses`. Nothing is changed: ledger/preempt.py carries it out.
    Cost: sorting, and Core.cheapest."""
    strict = led.rules().options.strict_order
    order = sorted(allowed)
    if strict and not ordered:
        order.sort(key=lambda one: (led.jobs[one.job_id].priority, one))
    going = [one.job_id for one in first]
    order = [*first, *(one for one in order[:MOST_VICTIMS] if one.job_id not in going)]
    inside = led.cluster.claims.inside(job, now)
    if inside is None or (inside and pool):
        return None
    together = {
        one.job_id: [each.id for each in led.unit(led.jobs[one.job_id])]
        for one in order
        if led.jobs[one.job_id].het_job_id
    }
    found = led.cluster.claims.cheapest(
        job,
        partition,
        [(one.job_id, 0 if one.job_id in going else one.cost) for one in order],
        now,
        avoid=avoid if pool else _kept_for_others(led, job),
        strict=strict or ordered,
        still={one.job_id for one in order if one.victim.mode == SUSPEND},
        pool=pool,
        inside=inside,
        together=together,
    )
    if found is None:
        return None
    ids, nodes = list(dict.fromkeys((*going, *found[0]))), found[1]
    by_id = {one.job_id: one.victim for one in order}
    victims = [by_id[one] for one in ids]
    if _in_vain(led, job, partition, [one.node for one in nodes], victims, now):
        return None
    claim = Claim(
        now,
        partition,
        nodes,
        [
            (each.id, each.attempt)
            for one in victims
            if one.mode != SUSPEND
            for each in led.unit(led.jobs[one.job_id])
        ],
        lenders=[(one.job_id, one.attempt) for one in victims if one.mode == SUSPEND],
        reservation=inside,
        licenses=licenses,
    )
    return Preemption(job.id, claim, victims, pool)


def take_back(led: Ledger, stands: Quota, job: Job, partition: str, now: int) -> Preemption | None:
    """What the account of a waiting job has back for it. Where it is not enough that borrowed work
    stands still, as PreemptMode has it, it ends: its memory is in the way, or it stands already.
    Cost: propose, twice where that may differ."""
    tried: list[Victim] = []
    for ends in (False, True):
        found = reclaim.victims(led, stands, job, now, ends=ends)
        if not found or found == tried:
            continue
        tried = found
        back = (Candidate(place, 0, one.job_id, one) for place, one in enumerate(found, 1))
        plan = propose(led, job, partition, back, now, ordered=True)
        if plan is not None:
            return plan
    return None


def _in_vain(
    led: Ledger, job: Job, partition: str, nodes: list[str], victims: list[Victim], now: int
) -> bool:
    """Whether a limit that is known only with a place would keep the job waiting once these have
    made way: who has nodes for himself holds all that they have."""
    held = led.limits.asked(job, partition) | {"node": len(nodes)}
    if job.spec.shape.exclusive == 1:
        have = [led.config.nodes[name] for name in nodes]
        held["cpu"] = sum(node.cpus for node in have)
        held["gres/gpu"] = sum(node.gpus for node in have)
        held = tres.with_billing(led.config, partition, held)
    gone = [one.job_id for one in victims if one.mode != SUSPEND]
    return led.limits.over(job, partition, held, nodes, gone, now) is not None


def _kept_for_others(led: Ledger, job: Job) -> set[str]:
    """Nodes that the plan keeps for jobs which come first: they are not taken from them."""
    mine = _rank(led, job)
    found: set[str] = set()
    for other_id, nodes in led.cluster.claims.planned():
        other = led.jobs.get(other_id)
        if other is not None and other.id != job.id and _rank(led, other) < mine:
            found.update(nodes)
    return found
