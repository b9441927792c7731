"""Whole nodes and islands that accounts are guaranteed: whose they are as the ledger knows it now.

The rules are policy/units.py's. Nothing of it is kept but the pool of each guaranteed job
(`Job.pool`): the rest follows from what runs and waits, before every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.ledger import expected
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, NodeAlloc, Phase
from gsched.policy import units as rules
from gsched.policy.units import ISLAND, NODE, Pool, Rank, Running, Unit

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: more than any work costs: it does not make way
STAYS = 1e15


class Units:
    """Pools, and the units that are theirs until the next pass. Cost: nothing while no account is
    guaranteed whole units."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        self._version = -1
        self.pools: dict[str, Pool] = {}
        #: pool -> its units as the last pass had them
        self.own: dict[str, set[Unit]] = {}
        #: account -> (pools, lowest first; whether its jobs may borrow)
        self._ways: dict[str, tuple[tuple[str, ...], bool]] = {}
        #: node -> (its GPUs as they were, its units by the word for them)
        self._known: dict[str, tuple[object, dict[str, tuple[Unit, ...]]]] = {}
        #: pool -> (its first job, until when it is not tried again while nothing changes): it can
        #: have no place now
        self.tried: dict[str, tuple[int, int]] = {}
        #: jobs whose records have changed since the last pass; what is known of those that hold
        #: something
        self.touched: set[int] = set()
        self._running: dict[int, Running] = {}
        #: job -> (what its going costs at least, GPUs, since when their seconds would be lost)
        self._price: dict[int, tuple[float, int, int]] = {}
        #: unit -> the pool that had it last; pools on whose units something has changed since they
        #: were looked at
        self._owner: dict[Unit, str] = {}
        self.news: set[str] = set()
        #: units of each pool as they were told to the cluster
        self._told: dict[str, set[Unit]] = {}
        self._cluster: object = None
        #: borrowed work on units of others, which is expected to end at once
        self._cut: set[int] = set()

    # ---- the tree ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Pools as the accounts are now. Cost: accounts, once after a change."""
        book = self._led.book
        if book.version != self._version:
            self._version = book.version
            self.pools = rules.pools(book)
            self._ways.clear()
            self._running.clear()
            self.touched.update(self._led.jobs if self.pools else ())

    def changed(self) -> Iterator[Job]:
        """Waiting jobs that may start in other pools since the accounts have changed. Cost:
        accounts; jobs where it is so for any of them."""
        before = dict(self._ways)
        self.refresh()
        other = {name for name, ways in before.items() if self._path(name) != ways}
        for job in list(self._led.jobs.values()) if other else ():
            if job.state == JobState.PENDING and job.spec.account in other:
                if self._led.cluster.queued(job.id):
                    yield job

    def _path(self, account: str) -> tuple[tuple[str, ...], bool]:
        known = self._ways.get(account)
        if known is not None:
            return known
        found, outside = [], True
        for name in self._led.book.lineage(account):
            if name in self.pools:
                found.append(name)
                assoc = self._led.book.account(name)
                if assoc is not None and any(
                    assoc.borrow.get(each) == 0 for each in self.pools[name].gpus
                ):
                    outside = False
                    break
        self._ways[account] = tuple(found), outside
        return self._ways[account]

    def ways(self, job: Job) -> tuple[list[str], bool]:
        """(the pools in which a job may be guaranteed, lowest account first; whether it may also
        be borrowed work). Cost: depth of the tree."""
        self.refresh()
        if not self.pools or job.het_job_id or job.spec.reservation:
            return [], True
        names, outside = self._path(job.spec.account)
        wants = tres.requested(job.spec) if names else {}
        found = [name for name in names if self.pools[name].takes(wants)]
        return found, outside or not found

    # ---- the units -----------------------------------------------------------------------------

    def of_nodes(self, word: str) -> list[Unit]:
        """All units of the cluster. Cost: nodes."""
        return [unit for name in self._led.nodes for unit in self._on(name, word)]

    def _on(self, name: str, word: str) -> tuple[Unit, ...]:
        gpus = self._led.nodes[name].gpus
        known = self._known.get(name)
        if known is None or known[0] is not gpus:
            known = self._known[name] = gpus, {}
            self.touched.update(self._led.parts[name])
        found = known[1].get(word)
        if found is None:
            found = known[1][word] = tuple(self._make(name, gpus, word))
        return found

    def _make(self, name: str, gpus: list[Gpu], word: str) -> Iterator[Unit]:
        if gpus:
            types = [gpu.type for gpu in gpus]
            masks = islands([gpu.links for gpu in gpus]) if word == ISLAND else []
        else:
            conf = self._led.config.nodes[name]
            types = [kind for kind, count in conf.gpu_types.items() for _ in range(count)]
            masks = []
        every = (1 << len(types)) - 1
        for mask in masks or [every]:
            kinds = {kind for bit, kind in enumerate(types) if mask >> bit & 1}
            yield Unit(name, mask, kinds.pop() if len(kinds) == 1 else "", mask == every)

    def _usable(self, now: int) -> Callable[[Unit], bool]:
        """Whether a unit takes work: none of its GPUs has failed, and no advance reservation keeps
        it, now or later."""
        led = self._led
        reserved = {
            share.node
            for resv in led.reservations.values()
            if not resv.maintenance and resv.end > now
            for share in resv.nodes
        }

        def usable(unit: Unit) -> bool:
            if unit.node in reserved or not led.node_up(unit.node):
                return False
            gpus = led.nodes[unit.node].gpus
            return not any(gpu.fault and unit.gpus >> bit & 1 for bit, gpu in enumerate(gpus))

        return usable

    def touched_by(self, alloc: Iterable[NodeAlloc], word: str) -> frozenset[Unit]:
        """The units that shares of nodes lie on."""
        found: set[Unit] = set()
        for part in alloc:
            if part.phase < Phase.RELEASED and part.node in self._led.nodes:
                for unit in self._on(part.node, word):
                    if unit.whole or unit.gpus & part.gpus:
                        found.add(unit)
        return frozenset(found)

    # ---- before a pass -------------------------------------------------------------------------

    def arrange(self, now: int, strict: bool = False) -> dict[int, str]:
        """Chooses the units of each pool for the next pass; gives back the running jobs whose pool
        is another from now on. `strict`: nobody overtakes another. Cost: jobs that hold nodes,
        and nodes, times a few us."""
        self.refresh()
        led = self._led
        if not self.pools:
            self.touched.clear()
            return self._dissolve() if self.own or self._running else {}
        word = next(iter(self.pools.values())).unit
        self._follow(word)
        waiting = led.cluster.claims.guarded()
        firsts: dict[str, Rank | None] = {}

        def first(pool: str) -> Rank | None:
            if pool not in firsts:
                ids = led.cluster.claims.hopeful(pool) if pool in waiting else ()
                firsts[pool] = min((rank(led, led.jobs[one]) for one in ids), default=None)
            return firsts[pool]

        sure = [one for one in self._running.values() if one.pool]
        # Who may have no pool at all is of no interest here.
        others = [one for one in self._running.values() if one.may and not one.pool]
        others.sort(key=lambda one: one.rank)
        moved, stuck, held = rules.settle(
            self.pools, [*sure, *self._promised(word)], others, first, strict
        )
        # Strictly in order nobody overtakes one that runs on what is borrowed until it is its turn.
        wanting = [
            pool
            for pool in waiting & self.pools.keys()
            if not (strict and pool in stuck and stuck[pool] < (first(pool) or stuck[pool]))
        ]
        short = any(not held[pool].full for pool in wanting)
        there = self.of_nodes(word) if short else []
        before, self.own = (
            self.own,
            rules.choose(
                held, sorted(wanting), there, self._cost(now), self._usable(now), self.own
            ),
        )
        for pool, own in self.own.items():
            if own != before.get(pool):
                self.news.add(pool)
                self._owner.update(dict.fromkeys(own, pool))
        self._bind()
        self._foresee(now, wanting, moved)
        return moved

    def _bind(self) -> None:
        """Tells the cluster whose units have changed. Cost: these."""
        claims = self._led.cluster.claims
        if self._cluster is not claims:
            self._cluster = claims
            self._told.clear()
        for name in self.pools:
            if self._told.get(name) != self.own[name]:
                self._told[name] = self.own[name]
                claims.bind(name, self._rows(self.own[name]))
        for name in claims.bound() - self.pools.keys():
            claims.bind(name, [])
            self._told.pop(name, None)

    def _dissolve(self) -> dict[int, str]:
        """Nobody is guaranteed whole units any more."""
        led = self._led
        for name in led.cluster.claims.bound():
            led.cluster.claims.bind(name, [])
        self.own = {}
        self._told.clear()
        self._foresee(0, (), {})
        self._running.clear()
        return {one: "" for one in led.cluster.claims.holders() if led.jobs[one].pool}

    def _follow(self, word: str) -> None:
        """Takes note of jobs that have changed. Cost: a few us for each."""
        led = self._led
        while self.touched:
            job_id = self.touched.pop()
            job = led.jobs.get(job_id)
            gone = self._running.pop(job_id, None)
            if gone is not None:
                self.news.update(self._owner.get(unit, "") for unit in gone.units)
                self._price.pop(job_id, None)
            if job is None or not any(job_id in led.parts.get(p.node, ()) for p in job.alloc):
                continue
            units = self.touched_by(job.alloc, word)
            may: list[str] = []
            if job.state in (JobState.RUNNING, JobState.SUSPENDED) and units and not job.paused:
                may, _ = self.ways(job)
            if job.pool:
                # Also while it ends.
                may = may or [job.pool]
            self._running[job_id] = Running(job_id, job.pool, may, rank(led, job), units)
            self._note(job, units)

    def _note(self, job: Job, units: frozenset[Unit]) -> None:
        """What it would cost if a job had to go, and whose units it is on."""
        stays = job.het_job_id or job.spec.reservation or self._led.rules().exempt_until(job) < 0
        size = sum(part.gpus.bit_count() for part in job.alloc) or 1
        since = max(job.start_time, job.checkpoint_time)
        self._price[job.id] = STAYS if stays else 1.0, size, since
        self.news.update(self._owner.get(unit, "") for unit in units)

    def _promised(self, word: str) -> Iterator[Running]:
        led = self._led
        for job_id in led.claimants:
            job = led.jobs[job_id]
            if job.pool and job.claim is not None and not job.alloc:
                nodes = {share.node: share.gpus for share in job.claim.nodes}
                kept = frozenset(
                    unit
                    for node, gpus in nodes.items()
                    if node in led.nodes
                    for unit in self._on(node, word)
                    if unit.whole or not gpus or unit.gpus & gpus
                )
                # What is promised is not promised to another: it stays first.
                yield Running(job_id, job.pool, [job.pool], (-(1 << 62), 0, job_id), kept)

    def _cost(self, now: int) -> Callable[[Unit], float]:
        parts, price, running = self._led.parts, self._price, self._running

        def cost(unit: Unit) -> float:
            total = 0.0
            for job_id in parts[unit.node]:
                one = running.get(job_id)
                if one is not None and (unit.whole or unit in one.units):
                    least, size, since = price[job_id]
                    total += least + size * max(0, now - since)
            return total

        return cost

    def _rows(self, units: Iterable[Unit]) -> list[tuple[str, int, int]]:
        """(node, CPUs, GPUs) of what is kept: CPUs -1 for whole nodes, else as large a part of them
        as of the GPUs."""
        gpus: dict[str, int] = {}
        every: dict[str, int] = {}
        for unit in units:
            gpus[unit.node] = gpus.get(unit.node, 0) | unit.gpus
            every[unit.node] = self._led.cluster.gpu_bits(unit.node)
        rows = []
        for node, mask in sorted(gpus.items()):
            if mask == every[node] or not every[node]:
                rows.append((node, -1, 0))
                continue
            conf = self._led.config.nodes[node]
            share = conf.cpus * mask.bit_count() // every[node].bit_count()
            rows.append((node, share // conf.threads_per_core * conf.threads_per_core, mask))
        return rows

    def _foresee(self, now: int, waiting: Iterable[str], moved: dict[int, str]) -> None:
        """Borrowed work on units of pools for which jobs wait is as good as gone: what waits there
        waits for guaranteed work alone."""
        led, found = self._led, set[int]()
        for pool in waiting:
            for unit in self.own.get(pool, ()):
                for job_id in led.parts[unit.node]:
                    one = self._running.get(job_id)
                    if one is not None and not moved.get(job_id, one.pool):
                        found.add(job_id)
        for job_id in self._cut - found:
            if job_id in led.jobs:
                led.cluster.expect(job_id, expected.end_of(led, led.jobs[job_id]))
        for job_id in found - self._cut:
            led.cluster.claims.ends(job_id, now)
        self._cut = found

    def move(self, job_id: int, pool: str, out: Outcome) -> None:
        """A running job is guaranteed in the units of that account from now on; "" in none."""
        job = self._led.jobs.get(job_id)
        if job is None or job.pool == pool or (pool and job.state == JobState.PENDING):
            return
        job.pool, job.guaranteed = pool, bool(pool)
        if job.alloc:
            self._led.cluster.claims.move(job, pool)
        self._led.put_job(job, out)

    # ---- taking back ---------------------------------------------------------------------------

    def borrowers(self, job: Job, pool: str) -> list[Job]:
        """The running jobs that make way for a job that waits in a pool: borrowed work on its
        units, but for work of the pool that comes before the job. Cost: jobs on its units."""
        led = self._led
        mine = rank(led, job)
        found: dict[int, Job] = {}
        for unit in self.own.get(pool, ()):
            for job_id in led.parts[unit.node]:
                other = led.jobs[job_id]
                # Of who stands still it is the memory.
                if other.pool or (pool in self.ways(other)[0] and rank(led, other) < mine):
                    continue
                found[job_id] = other
        return list(found.values())


def rank(led: Ledger, job: Job) -> Rank:
    """The place of a job in the order of all, the first one lowest."""
    names = job.spec.partitions or (job.partition,)
    known = led.config.partitions
    tier = max((known[name].priority_tier for name in names if name in known), default=0)
    return -tier, -job.priority, job.id


def islands(links: list[list[int]]) -> list[int]:
    """GPUs that are linked with each other, as bitmaps: what each of them reaches over others.
    Cost: square of the GPUs of a node."""
    found: list[int] = []
    seen = 0
    for first in range(len(links)):
        if seen >> first & 1:
            continue
        mask, todo = 1 << first, [first]
        while todo:
            for other, count in enumerate(links[todo.pop()]):
                if count and not mask >> other & 1:
                    mask |= 1 << other
                    todo.append(other)
        found.append(mask)
        seen |= mask
    return found


__all__ = ["ISLAND", "NODE", "Units", "islands", "rank"]
