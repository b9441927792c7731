"""Whole nodes and islands that accounts are guaranteed: whose they are as the ledger knows it now.

The rules are policy/units.py's. Nothing of it is kept but the pool of each guaranteed job
(`Job.pool`): the rest follows from what runs and waits, before every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, NodeAlloc, Phase
from gsched.policy import units as rules
from gsched.policy.preempt import lost
from gsched.policy.units import ISLAND, NODE, Pool, Running, Unit

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: more than any work costs: it does not make way
STAYS = 1e15

Rank = tuple[int, int, int]


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
        #: pool -> (what there was, until when the same is not tried again): its first job can have
        #: no place now
        self.tried: dict[str, tuple[object, int]] = {}
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

    def _up(self, reserved: set[str], word: str) -> list[Unit]:
        """Those that take work: none of which a GPU has failed, or that an advance reservation
        keeps for others."""
        led, found = self._led, []
        for name, node in led.nodes.items():
            if name in reserved or not led.node_up(name):
                continue
            bad = sum(1 << bit for bit, gpu in enumerate(node.gpus) if gpu.fault)
            found += [unit for unit in self._on(name, word) if unit.gpus and not unit.gpus & bad]
        return found

    def touched(self, alloc: Iterable[NodeAlloc], word: str) -> frozenset[Unit]:
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
            if self.own or any(led.jobs[one].pool for one in led.cluster.claims.holders()):
                return self._dissolve()
            return {}
        word = next(iter(self.pools.values())).unit
        running = list(self._running(word))
        waiting = led.cluster.claims.guarded(now)
        firsts: dict[str, Rank | None] = {}

        def first(pool: str) -> Rank | None:
            if pool not in firsts:
                ids = waiting.get(pool, ())
                firsts[pool] = min((rank(led, led.jobs[one]) for one in ids), default=None)
            return firsts[pool]

        moved, stuck = rules.settle(self.pools, running, first, strict)
        # Nor one that runs on what is borrowed until it is its turn.
        wanting = [
            pool
            for pool in waiting
            if not (strict and pool in stuck and stuck[pool] < (first(pool) or stuck[pool]))
        ]
        held: dict[str, set[Unit]] = {}
        for one in running:
            pool = moved.get(one.job_id, one.pool)
            if pool:
                held.setdefault(pool, set()).update(one.units)
        reserved = {
            share.node
            for resv in led.reservations.values()
            if not resv.maintenance and resv.end > now
            for share in resv.nodes
        }
        there = self._up(reserved, word) if wanting else []
        self.own = rules.choose(self.pools, held, wanting, there, self._cost(now), self.own)
        for name in self.pools:
            rows = self._rows(self.own[name])
            led.cluster.claims.bind(name, rows)
        for name in led.cluster.claims.bound() - self.pools.keys():
            led.cluster.claims.bind(name, [])
        self._foresee(now, wanting, moved)
        return moved

    def _dissolve(self) -> dict[int, str]:
        """Nobody is guaranteed whole units any more."""
        led = self._led
        for name in led.cluster.claims.bound():
            led.cluster.claims.bind(name, [])
        self.own = {}
        self._foresee(0, (), {})
        return {one: "" for one in led.cluster.claims.holders() if led.jobs[one].pool}

    def _running(self, word: str) -> Iterator[Running]:
        led = self._led
        for job_id in {one for parts in led.parts.values() for one in parts}:
            job = led.jobs[job_id]
            units = self.touched(job.alloc, word)
            may: list[str] = []
            if job.state in (JobState.RUNNING, JobState.SUSPENDED) and units and not job.paused:
                may, _ = self.ways(job)
            if may or job.pool:
                yield Running(job_id, job.pool, may, rank(led, job), units)
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

    def _cost(self, now: int) -> Callable[[Unit, str], float]:
        led = self._led

        def cost(unit: Unit, pool: str) -> float:
            total = 0.0
            for job_id in led.parts[unit.node]:
                job = led.jobs[job_id]
                if unit.whole or any(
                    part.gpus & unit.gpus for part in job.alloc if part.node == unit.node
                ):
                    stays = job.het_job_id or job.spec.reservation or led.rules().exempt_until(job)
                    total += STAYS if stays else 1 + lost(job, now)
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
                    job = led.jobs[job_id]
                    if not moved.get(job_id, job.pool) and job.state == JobState.RUNNING:
                        found.add(job_id)
        for job_id in self._cut - found:
            if job_id in led.jobs:
                led.cluster.set_end(led.jobs[job_id])
        for job_id in found:
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

    def stamp(self, pool: str) -> object:
        """Changes where its units, or what is guaranteed on them, have changed."""
        own = self.own.get(pool, ())
        led = self._led
        held = {one for unit in own for one in led.parts[unit.node] if led.jobs[one].pool == pool}
        return frozenset(own), frozenset(held)

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
                # Who stands still has nothing that could be taken.
                if (
                    other.pool
                    or other.paused
                    or (pool in self.ways(other)[0] and rank(led, other) < mine)
                ):
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
