"""Jobs that make way for the licences that they hold (PreemptParameters=reclaim_licenses).

A job that waits for licences, and may preempt, gets those of jobs that rank lower: the cheapest set
of them that is enough, and whoever else it takes to have room. One that would stand still keeps its
licences, as it goes on with them, and what an advance reservation keeps is for its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from gsched import licenses, reserve
from gsched.licenses import Counts
from gsched.model import Job
from gsched.model.preempt import SUSPEND, Preemption
from gsched.scheduling import preemption

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.scheduling.preemption import Candidate

#: among so many holders every set is tried
_EXACT = 10

#: one that may be asked, and what comes free with it
Holder = tuple["Candidate", Counts]


def partitions(led: Ledger, job: Job) -> list[str]:
    """Those in which a job waits for licences that it may take from others; [] for the rest. Cost:
    its partitions."""
    return led.cluster.short_of_licenses(job.id) if led.rules().options.reclaim_licenses else []


def propose(
    led: Ledger, job: Job, partition: str, allowed: Iterable[Candidate], now: int
) -> Preemption | None:
    """The jobs among `allowed` without which it has its licences and room; None: there are none.
    Cost: preemption.propose, for each of its choices of licences."""
    known = list(allowed)
    holders = [(one, counts) for one in known if (counts := _frees(led, job, one))]
    left = led.cluster.licenses_left(job.id, now)
    for choice in licenses.parse(job.spec.licenses):
        lacks = {n: count - left.get(n, 0) for n, count in choice.items() if left.get(n, 0) < count}
        chosen = cheapest(lacks, holders) if lacks else None
        if chosen is None:
            continue
        text = licenses.shown(choice)
        plan = preemption.propose(led, job, partition, known, now, first=chosen, licenses=text)
        if plan is not None:
            return plan
    return None


def _frees(led: Ledger, job: Job, one: Candidate) -> Counts:
    """The licences that come free for a job when another, with all its components, has ended."""
    found: Counts = {}
    if one.victim.mode == SUSPEND:
        return found
    within = reserve.names(job.spec.reservation)
    for each in led.unit(led.jobs[one.job_id]):
        if not each.reservation or each.reservation in within:
            for name, count in led.cluster.licenses_held(each.id).items():
                found[name] = found.get(name, 0) + count
    return found


def cheapest(lacks: Mapping[str, int], holders: list[Holder]) -> list[Candidate] | None:
    """Those whose licences are enough, at the least cost, of equals the fewest, then those that
    started last; None: all of them are not. With more than _EXACT that hold any the dearest of
    whom it does not take stay. Cost: 2^_EXACT, or twice the holders."""
    useful = [item for item in holders if not lacks.keys().isdisjoint(item[1])]
    useful.sort(key=lambda item: item[0])
    if not _enough(lacks, useful):
        return None
    if len(useful) <= _EXACT:
        sets = (
            chosen
            for size in range(1, len(useful) + 1)
            for chosen in combinations(useful, size)
            if _enough(lacks, chosen)
        )
        best = min(sets, key=lambda chosen: (sum(one.cost for one, _ in chosen), len(chosen)))
        return [one for one, _ in best]
    kept = list(useful)
    for item in reversed(useful):
        rest = [other for other in kept if other is not item]
        if _enough(lacks, rest):
            kept = rest
    return [one for one, _ in kept]


def _enough(lacks: Mapping[str, int], holders: Iterable[Holder]) -> bool:
    found: Counts = {}
    for _, counts in holders:
        for name, count in counts.items():
            found[name] = found.get(name, 0) + count
    return all(found.get(name, 0) >= count for name, count in lacks.items())
