"""Guarantees in whole nodes or islands: which of them are whose at a moment.

A guarantee of GPUs says nothing of where they are: four teams with eight GPUs each may leave each
other two on each of four nodes. An account with GuaranteeUnit=node (or =island) is guaranteed
*units*: what it could do with so many nodes of its own it can do here, whatever the others do.

**Pools.** Each account with such a guarantee has a pool: its units, less those that accounts below
it are guaranteed. A job that is guaranteed is so in the pool of its account or of one above
(`Job.pool`), and lies on units of that pool alone.

**Bound units** of a pool are those that hold its guaranteed jobs, or are kept for one that others
make way for. Nobody else starts there. No unit is bound to two pools, and no pool has more of them
than it is guaranteed. **Its other units** are chosen among those that are bound to nobody: free
ones first, then those from which least work would have to go (unit_choice.py). They are bound as
long as a job of the pool waits; without one anybody may borrow them.

**The invariant.** Of a kind of unit there are at least as many as are guaranteed in all, so that of
those that are bound to nobody there are always as many as all pools lack together. On these lies
borrowed work only, which makes way: each pool can have what it lacks, whole, whatever the others
hold. So a pool is at all times a private cluster, of which its guaranteed jobs hold the same as
they would there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gsched.config import PartitionConfig
from gsched.model import Job
from gsched.model.policy import Assoc
from gsched.policy.book import Book
from gsched.policy.quota import promised_below

#: the place of a job in the order of all, the first one lowest
Rank = tuple[int, int, int]
NODE, ISLAND = "node", "island"
GPU = "gres/gpu"
WORDS = {NODE: "nodes", ISLAND: "islands"}


@dataclass(frozen=True)
class Unit:
    """A node, or GPUs of one that are linked."""

    node: str
    #: its GPUs, as a bitmap
    gpus: int
    #: type of these GPUs; "" it has none, or several
    kind: str
    #: it is all of its node
    whole: bool = True
    #: number of its GPUs
    size: int = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.gpus.bit_count())
        object.__setattr__(self, "_hash", hash((self.node, self.gpus)))

    def __hash__(self) -> int:
        # There are many of them, in sets.
        return self._hash


@dataclass
class Pool:
    """The units of one account, less those of accounts below it."""

    account: str
    unit: str
    #: TRES name ("gres/gpu", "gres/gpu:h100") -> GPUs
    gpus: dict[str, int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def suits(self, unit: Unit) -> str:
        """The name under which a unit counts here; "" it does not."""
        found = self._names.get(unit.kind)
        if found is None:
            typed = f"{GPU}:{unit.kind}"
            other = GPU if GPU in self.gpus else ""
            found = self._names[unit.kind] = typed if typed in self.gpus else other
        return found

    def takes(self, wants: Mapping[str, int]) -> bool:
        """Whether it is GPUs of its kind that a job wants."""
        kinds = [name for name, count in wants.items() if count and name.startswith(f"{GPU}:")]
        if not wants.get(GPU):
            return False
        return any(self.gpus.values()) and (GPU in self.gpus or set(kinds) <= self.gpus.keys())


def pools(book: Book) -> dict[str, Pool]:
    """All pools by account. Cost: accounts."""
    found: dict[str, Pool] = {}
    for one in book.assocs.values():
        if not (one.is_account and one.guarantee_unit and one.guarantee):
            continue
        left = {
            name: count - promised_below(book, one, name) for name, count in one.guarantee.items()
        }
        found[one.account] = Pool(one.account, one.guarantee_unit, left)
    return found


# ---- promises ------------------------------------------------------------------------------------


def broken(book: Book, units: Callable[[str], Iterable[Unit]]) -> str:
    """Why guarantees in whole units cannot all be kept, as what is guaranteed is no whole number of
    them, or something else is guaranteed beside them; "" they can. `units`: all of the cluster's
    by what they are called. Cost: accounts + units; nothing without such a guarantee."""
    accounts = [one for one in book.assocs.values() if one.is_account]
    mine = [one for one in accounts if one.guarantee_unit and one.guarantee]
    if not mine:
        return ""
    words = {one.guarantee_unit for one in mine}
    if len(words) > 1:
        return "some accounts are guaranteed whole nodes, others islands: it must be the same"
    word = next(iter(words))
    there = [one for one in units(word) if one.size]
    named = {name for one in mine for name in one.guarantee}
    for one in mine:
        for name, count in one.guarantee.items():
            if name != GPU and not name.startswith(f"{GPU}:"):
                return f"{one.account} is guaranteed {name}, which is not counted in {WORDS[word]}"
            sizes = sorted({unit.size for unit in there if name in (GPU, f"{GPU}:{unit.kind}")})
            if len(sizes) > 1:
                found = " or ".join(map(str, sizes))
                return f"{WORDS[word]} with {name} have {found} of them: name a type that all have"
            if sizes and count % sizes[0]:
                return (
                    f"{name}={count} of {one.account} is no whole number of {WORDS[word]}, which "
                    f"have {sizes[0]}"
                )
    if GPU in named and len(named) > 1:
        return f"some guarantees in {WORDS[word]} name a type of GPU, others none"
    for other in accounts:
        if other.guarantee and not other.guarantee_unit:
            what = next(iter(sorted(other.guarantee)))
            return (
                f"{other.account} is guaranteed {what} in no whole {WORDS[word]}, "
                f"{mine[0].account} is: neither could be kept beside the other"
            )
    for name in sorted(named):
        have = sum(unit.size for unit in there if name in (GPU, f"{GPU}:{unit.kind}"))
        tops = [one for one in mine if not _under(book, one)]
        wanted = sum(one.guarantee.get(name, 0) for one in tops)
        if wanted > have:
            size = next((u.size for u in there if name in (GPU, f"{GPU}:{u.kind}")), 1)
            return (
                f"{wanted // size} {WORDS[word]} with {name} are guaranteed in all, "
                f"the cluster has {have // size}"
            )
    return ""


def _under(book: Book, assoc: Assoc) -> bool:
    """Whether an account above has a guarantee."""
    return any(
        above.guarantee
        for name in book.lineage(assoc.account)[1:]
        if (above := book.account(name)) is not None
    )


def rank(partitions: Mapping[str, PartitionConfig], job: Job) -> Rank:
    """The place of a job in the order of all, the first one lowest."""
    names = job.spec.partitions or (job.partition,)
    tier = max((partitions[name].priority_tier for name in names if name in partitions), default=0)
    return -tier, -job.priority, job.id


# ---- whose they are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A job that holds GPUs or CPUs, or is to have the place of others."""

    job_id: int
    #: the pool in which it is guaranteed; "" it is borrowed work
    pool: str
    #: the pools in which it could be, lowest account first
    may: Sequence[str]
    #: first in order first
    rank: Rank
    units: frozenset[Unit]


@dataclass
class Held:
    """What a pool has of what it is guaranteed."""

    pool: Pool
    #: units with its guaranteed jobs
    units: set[Unit] = field(default_factory=set)
    #: GPUs that it may still have, by the name under which they count
    left: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = dict(self.pool.gpus)

    def fits(self, units: Collection[Unit]) -> bool:
        """Whether it may have all these units, too."""
        used: dict[str, int] = {}
        for unit in units:
            if unit not in self.units:
                name = self.pool.suits(unit)
                if not name:
                    return False
                used[name] = used.get(name, 0) + unit.size
        return all(count <= self.left[name] for name, count in used.items())

    def take(self, units: Collection[Unit]) -> None:
        for unit in units:
            if unit not in self.units:
                self.units.add(unit)
                name = self.pool.suits(unit)
                self.left[name] = self.left.get(name, 0) - unit.size

    def give(self, unit: Unit) -> None:
        """Nothing guaranteed is on a unit any more."""
        self.units.discard(unit)
        self.left[self.pool.suits(unit)] += unit.size

    @property
    def full(self) -> bool:
        return not any(count > 0 for count in self.left.values())


class Bound:
    """Whose units are bound to which pool, kept as guaranteed jobs come and go."""

    def __init__(self, known: Mapping[str, Pool]) -> None:
        self.held = {name: Held(pool) for name, pool in known.items()}
        self.whose: dict[Unit, str] = {}
        #: guaranteed jobs on each
        self._jobs: dict[Unit, int] = {}
        #: units that were bound, or are so no more, since anybody looked, and their pools
        self.moved: set[Unit] = set()
        self.changed: set[str] = set(known)

    def add(self, one: Running) -> bool:
        """A job is guaranteed in its pool; False: that has no room for it, and nothing here holds
        any more. Cost: its units."""
        mine = self.held.get(one.pool)
        if mine is None or one.pool not in one.may:
            return False
        if any(self.whose.get(unit, one.pool) != one.pool for unit in one.units):
            return False
        if any(unit not in mine.units and not mine.pool.suits(unit) for unit in one.units):
            return False
        self.put(one.pool, one.units)
        return all(count >= 0 for count in mine.left.values())

    def put(self, pool: str, units: Iterable[Unit]) -> None:
        """The same for one that fits."""
        for unit in units:
            count = self._jobs.get(unit, 0)
            if not count:
                self.held[pool].take((unit,))
                self.whose[unit] = pool
                self.moved.add(unit)
                self.changed.add(pool)
            self._jobs[unit] = count + 1

    def drop(self, one: Running) -> None:
        """It is so no more."""
        for unit in one.units:
            count = self._jobs.get(unit, 0) - 1
            if count > 0:
                self._jobs[unit] = count
            elif not count:
                del self._jobs[unit]
                pool = self.whose.pop(unit)
                self.held[pool].give(unit)
                self.moved.add(unit)
                self.changed.add(pool)

    def theirs(self, pool: str, units: Iterable[Unit]) -> bool:
        """Whether some of the units are another pool's."""
        return any(self.whose.get(unit, pool) != pool for unit in units)


def settle(known: Mapping[str, Pool], guaranteed: Iterable[Running]) -> tuple[set[int], Bound]:
    """(jobs that are guaranteed no more, what the pools have of the others): those of a pool that
    is smaller than what they hold, or is no more, the last in order first. Cost: these jobs."""
    out: set[int] = set()
    bound = Bound(known)
    for one in sorted(guaranteed, key=lambda each: each.rank):
        mine = bound.held.get(one.pool) if one.pool in one.may else None
        if mine is None or bound.theirs(one.pool, one.units) or not mine.fits(one.units):
            out.add(one.job_id)
        else:
            bound.put(one.pool, one.units)
    return out, bound


def promote(
    bound: Bound,
    others: Iterable[Running],
    first: Callable[[str], Rank | None],
    strict: bool = False,
) -> tuple[dict[int, str], dict[str, Rank]]:
    """(borrowed work that is guaranteed from now on: job -> pool; by pool the first that has no
    room there): in order, where its pool has room for the units that it lies on and no waiting job
    of the pool comes before it (`first`: the rank of the first one); `strict`: nor a running one
    that has none. The caller has them put into `bound`. Cost: these jobs."""
    stuck: dict[str, Rank] = {}
    changed: dict[int, str] = {}
    for one in others:
        for name in one.may:
            mine = bound.held[name]
            if mine.full and not one.units <= mine.units:
                stuck.setdefault(name, one.rank)
                continue
            before = first(name)
            late = (before is not None and before < one.rank) or (strict and name in stuck)
            if late or bound.theirs(name, one.units) or not mine.fits(one.units):
                stuck.setdefault(name, one.rank)
                continue
            bound.put(name, one.units)
            changed[one.job_id] = name
            break
    return changed, stuck


__all__ = [
    "GPU",
    "ISLAND",
    "NODE",
    "Bound",
    "Held",
    "Pool",
    "Rank",
    "Running",
    "Unit",
    "broken",
    "pools",
    "promote",
    "rank",
    "settle",
]
