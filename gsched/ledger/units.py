"""Whole nodes and islands that accounts are guaranteed: whose they are as the ledger knows it now.

The rules are policy/units.py's. Nothing of it is recorded but the pool of each guaranteed job
(`Job.pool`): the rest follows from what runs and waits, and is brought up to date before each pass
from the jobs that have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.ledger import expected
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, NodeAlloc, Phase
from gsched.policy import units as rules
from gsched.policy.unit_choice import Choice
from gsched.policy.units import ISLAND, NODE, Bound, Pool, Rank, Running, Unit

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: more than any work costs: it does not make way
STAYS = 1e15
#: seconds after which units are chosen anew though nodes and accounts are the same: what would be
#: lost on them has grown
ANEW_S = 60


class Units:
    """Pools, and the units that are theirs until the next pass. Cost: nothing while no account is
    guaranteed whole units."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        self._version = -1
        self.pools: dict[str, Pool] = {}
        #: nothing is guaranteed but whole units
        self.alone = False
        #: pool -> its units as the last pass had them
        self.own: dict[str, set[Unit]] = {}
        #: account -> (pools, lowest first; whether its jobs may borrow)
        self._ways: dict[str, tuple[tuple[str, ...], bool]] = {}
        #: node -> (its GPUs as they were, its units by the word for them)
        self._known: dict[str, tuple[object, dict[str, tuple[Unit, ...]]]] = {}
        #: pool -> (its first job and the newest row of its queue, until when they are not tried
        #: again while nothing changes): they can have no place now
        self.tried: dict[str, tuple[tuple[int, int], int]] = {}
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
        #: how the cluster was when units were chosen; the cluster that they were told to
        self._chosen: object = None
        self._cluster: object = None
        #: what the pools have bound; None: it must be counted anew
        self._bound: Bound | None = None
        self._choice = Choice()
        #: guaranteed work that is not recorded as such, and what others make way for
        self._proposed: list[Running] = []
        self._promises: dict[int, Running] = {}
        #: pool -> borrowed work that could be guaranteed there; of it what lies on its bound units
        self._lent: dict[str, set[int]] = {}
        self._beside: dict[str, set[int]] = {}
        #: units on which jobs have come or gone; pools whose borrowed work is to be looked at
        self._moved: set[Unit] = set()
        self._stirred: set[str] = set()
        self._waiting: frozenset[str] = frozenset()
        #: borrowed work on units of others, which is expected to end at once: by pool, and on how
        #: many pools' units each is
        self._cuts: dict[str, set[int]] = {}
        self._cut: dict[int, int] = {}

    # ---- the tree ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Pools as the accounts are now. Cost: accounts, once after a change."""
        book = self._led.book
        if book.version != self._version:
            self._version = book.version
            self.pools = rules.pools(book)
            accounts = [one for one in book.assocs.values() if one.is_account and one.guarantee]
            self.alone = bool(self.pools) and all(one.guarantee_unit for one in accounts)
            self._ways.clear()
            self._forget()
            self.touched.update(self._led.jobs if self.pools else ())

    def _forget(self) -> None:
        """All that runs is to be counted anew."""
        self._running.clear()
        self._lent.clear()
        self._beside.clear()
        self._bound = self._chosen = None

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

    def _reserved(self, now: int) -> frozenset[str]:
        """Nodes that an advance reservation keeps, now or later."""
        return frozenset(
            share.node
            for resv in self._led.reservations.values()
            if not resv.maintenance and resv.end > now
            for share in resv.nodes
        )

    def _usable(self, word: str, reserved: frozenset[str]) -> list[Unit]:
        """The units that take work: none of their GPUs has failed, and no advance reservation keeps
        them. Cost: nodes."""
        led = self._led
        found = []
        for name, node in led.nodes.items():
            if name not in reserved and led.node_up(name):
                bad = sum(1 << bit for bit, gpu in enumerate(node.gpus) if gpu.fault)
                found += [unit for unit in self._on(name, word) if not unit.gpus & bad]
        return found

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
        is another from now on. `strict`: nobody overtakes another. Cost: accounts, what has
        changed, and the borrowed work of pools that have room; nodes where those have changed."""
        self.refresh()
        led = self._led
        if not self.pools:
            self.touched.clear()
            return self._dissolve() if self.own or self._running else {}
        word = next(iter(self.pools.values())).unit
        for one in self._proposed if self._bound is not None else ():
            self._bound.drop(one)  # type: ignore[union-attr]
        self._proposed.clear()
        self._follow(word)
        self._repledge(word)
        waiting = led.cluster.claims.guarded() & self.pools.keys()
        firsts: dict[str, Rank | None] = {}

        def first(pool: str) -> Rank | None:
            if pool not in firsts:
                ids = led.cluster.claims.hopeful(pool) if pool in waiting else ()
                firsts[pool] = min((rank(led, led.jobs[one]) for one in ids), default=None)
            return firsts[pool]

        bound, out, others = self._bound, set[int](), None
        if bound is None:
            sure = [one for one in self._running.values() if one.pool]
            out, bound = rules.settle(self.pools, [*sure, *self._promises.values()])
            # Who is guaranteed no more is so on record, until the pass is carried out.
            self._bound = None if out else bound
            self._chosen = None
            others = {one for mine in self._lent.values() for one in mine}
        elif strict:
            others = {one for mine in self._lent.values() for one in mine}
        moved, stuck = rules.promote(bound, self._candidates(bound, others), first, strict)
        self._proposed = [
            Running(one, pool, (pool,), self._running[one].rank, self._running[one].units)
            for one, pool in moved.items()
        ]
        moved = dict.fromkeys(out, "") | moved
        # Strictly in order nobody overtakes one that runs on what is borrowed until it is its turn.
        wanting = [
            pool
            for pool in sorted(waiting)
            if not (strict and pool in stuck and stuck[pool] < (first(pool) or stuck[pool]))
        ]
        self._choose(bound, wanting, word, now)
        self._tell(bound)
        self._foresee(now, wanting, moved)
        return moved

    def _candidates(self, bound: Bound, others: set[int] | None) -> list[Running]:
        """Borrowed work that may become guaranteed, in order: all of `others`, or that of pools
        that have room, and what lies on bound units of its own pool."""
        for unit in bound.moved:
            name = bound.whose.get(unit)
            if name is not None and name in self._lent:
                self._beside.setdefault(name, set()).update(
                    self._lent[name].intersection(self._led.parts[unit.node])
                )
        if others is None:
            others = set()
            for name, mine in self._lent.items():
                if not bound.held[name].full:
                    others |= mine
                elif name in self._beside:
                    self._beside[name] &= mine
                    others |= self._beside[name]
        return sorted((self._running[one] for one in others), key=lambda one: one.rank)

    def _choose(self, bound: Bound, wanting: list[str], word: str, now: int) -> None:
        """The units that pools have beside their bound ones. Cost: see Choice."""
        led, cost = self._led, self._cost(now)
        moved = self._moved | bound.moved
        self._moved.clear()
        bound.moved.clear()
        short = any(not bound.held[pool].full for pool in wanting)
        reserved = self._reserved(now) if short else frozenset()
        how = led.cluster, led.cluster.node_changes, reserved, now // ANEW_S
        if short and how != self._chosen:
            enough = False
        else:
            enough = self._choice.mend(bound.held, bound.whose, wanting, moved, cost)
            if not short:
                self._chosen = None
        if not enough:
            there = self._usable(word, reserved)
            self._choice.anew(bound.held, bound.whose, wanting, there, cost)
            self._chosen = how

    def _tell(self, bound: Bound) -> None:
        """Takes note of pools that have other units, and tells the cluster. Cost: their units."""
        claims, choice = self._led.cluster.claims, self._choice
        names = bound.changed | choice.changed
        bound.changed.clear()
        choice.changed.clear()
        if self._cluster is not claims:
            self._cluster, names = claims, set(self.pools)
            self._cut.clear()
            self._cuts.clear()
            self._stirred.update(self.pools)
        rows: dict[str, list[tuple[str, int, int]]] = {}
        for name in sorted(names & self.pools.keys()):
            own = bound.held[name].units | choice.of.get(name, {}).keys()
            if own != self.own.get(name):
                self.news.add(name)
                self._stirred.add(name)
                self._owner.update(dict.fromkeys(own, name))
                self.own[name] = own
            rows[name] = self._rows(own)
        for name in self.own.keys() - self.pools.keys():
            del self.own[name]
        for name in claims.bound() - self.pools.keys():
            rows[name] = []
        claims.bind(rows)

    def _dissolve(self) -> dict[int, str]:
        """Nobody is guaranteed whole units any more."""
        led = self._led
        led.cluster.claims.bind({name: [] for name in led.cluster.claims.bound()})
        self.own = {}
        self._stirred.update(self._cuts)
        self._foresee(0, (), {})
        self._forget()
        self._choice = Choice()
        self._promises.clear()
        self._proposed.clear()
        return {one: "" for one in led.cluster.claims.holders() if led.jobs[one].pool}

    def _follow(self, word: str) -> None:
        """Takes note of jobs that have changed. Cost: a few us for each."""
        led = self._led
        while self.touched:
            job_id = self.touched.pop()
            job = led.jobs.get(job_id)
            gone = self._running.pop(job_id, None)
            if gone is not None:
                self._stir(gone.units)
                self._price.pop(job_id, None)
                if gone.pool:
                    if self._bound is not None:
                        self._bound.drop(gone)
                for name in gone.may:
                    self._lent.get(name, set()).discard(job_id)
            if job is None or not any(job_id in led.parts.get(p.node, ()) for p in job.alloc):
                continue
            units = self.touched_by(job.alloc, word)
            may: list[str] = []
            if job.state in (JobState.RUNNING, JobState.SUSPENDED) and units and not job.paused:
                may, _ = self.ways(job)
            if job.pool:
                # Also while it ends.
                may = may or [job.pool]
            one = self._running[job_id] = Running(job_id, job.pool, may, rank(led, job), units)
            self._note(job, units)
            if one.pool:
                if self._bound is not None and not self._bound.add(one):
                    self._bound = None
                continue
            for name in may:
                self._lent.setdefault(name, set()).add(job_id)
                if self._bound is not None and any(
                    self._bound.whose.get(unit) == name for unit in units
                ):
                    self._beside.setdefault(name, set()).add(job_id)

    def _stir(self, units: Iterable[Unit]) -> None:
        """Jobs on these have come, gone or changed."""
        self._moved.update(units)
        names = {self._owner.get(unit, "") for unit in units}
        self.news |= names
        self._stirred |= names

    def _note(self, job: Job, units: frozenset[Unit]) -> None:
        """What it would cost if a job had to go, and whose units it is on."""
        stays = job.het_job_id or job.spec.reservation or self._led.rules().exempt_until(job) < 0
        size = sum(part.gpus.bit_count() for part in job.alloc) or 1
        since = max(job.start_time, job.checkpoint_time)
        self._price[job.id] = STAYS if stays else 1.0, size, since
        self._stir(units)

    def _repledge(self, word: str) -> None:
        """What others make way for is as good as taken. Cost: promises."""
        now = {one.job_id: one for one in self._promised(word)}
        if now != self._promises and self._bound is not None:
            for job_id, one in self._promises.items():
                if now.get(job_id) != one:
                    self._bound.drop(one)
            for job_id, one in now.items():
                if self._promises.get(job_id) != one and not self._bound.add(one):
                    self._bound = None
                    break
        self._promises = now

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
        rows = []
        for unit in units:
            if unit.whole:
                rows.append((unit.node, -1, 0))
            else:
                gpus[unit.node] = gpus.get(unit.node, 0) | unit.gpus
        for node, mask in gpus.items():
            every = self._led.cluster.gpu_bits(node)
            if mask == every or not every:
                rows.append((node, -1, 0))
                continue
            conf = self._led.config.nodes[node]
            share = conf.cpus * mask.bit_count() // every.bit_count()
            rows.append((node, share // conf.threads_per_core * conf.threads_per_core, mask))
        return sorted(rows)

    def _foresee(self, now: int, waiting: Iterable[str], moved: dict[int, str]) -> None:
        """Borrowed work on units of pools for which jobs wait is as good as gone: what waits there
        waits for guaranteed work alone. Cost: jobs on units of pools in which something changed."""
        led, before = self._led, set(self._cut)
        names = set(self._waiting ^ frozenset(waiting))
        self._waiting = frozenset(waiting)
        names = self._stirred | names | {self._running[one].pool for one in moved}
        names |= set(moved.values())
        self._stirred.clear()
        for pool in names - {""}:
            found = set[int]()
            for unit in self.own.get(pool, ()) if pool in self._waiting else ():
                for job_id in led.parts[unit.node]:
                    one = self._running.get(job_id)
                    if one is not None and not moved.get(job_id, one.pool):
                        found.add(job_id)
            was = self._cuts.pop(pool, set())
            if found:
                self._cuts[pool] = found
            for job_id in found - was:
                self._cut[job_id] = self._cut.get(job_id, 0) + 1
            for job_id in was - found:
                self._cut[job_id] -= 1
                if not self._cut[job_id]:
                    del self._cut[job_id]
        for job_id in before - self._cut.keys():
            if job_id in led.jobs:
                led.cluster.expect(job_id, expected.end_of(led, led.jobs[job_id]))
        for job_id in self._cut.keys() - before:
            led.cluster.claims.ends(job_id, now)

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
    return rules.rank(led.config.partitions, job)


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
