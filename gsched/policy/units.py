"""Guarantees in whole nodes or islands: which of them are whose at a moment.

A guarantee of GPUs says nothing of where they are: four teams with eight GPUs each may leave each
other two on each of four nodes. An account with GuaranteeUnit=node (or =island) is guaranteed
*units*: what it could do with so many nodes of its own it can do here, whatever the others do.

**Pools.** Each account with such a guarantee has a pool: its units, less those that accounts below
it are guaranteed. A job that is guaranteed is so in the pool of its account or of one above
(`Job.pool`), and lies on units of that pool alone.

**Bound units** of a pool are those that hold its guaranteed jobs, or are kept for one that others
make way for. Nobody else starts there. No unit is bound to two pools, and no pool has more of them
than it is guaranteed. **Its other units** are chosen anew for each pass, among those that are
bound to nobody: free ones first, then those from which least work would have to go. They are bound
as long as a job of the pool waits; without one anybody may borrow them.

**The invariant.** Of a kind of unit there are at least as many as are guaranteed in all, so that of
those that are bound to nobody there are always as many as all pools lack together. On these lies
borrowed work only, which makes way: each pool can have what it lacks, whole, whatever the others
hold. So a pool is at all times a private cluster, of which its guaranteed jobs hold the same as
they would there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gsched.model.policy import Assoc
from gsched.policy.book import Book

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
        left = {name: count - sum(_below(book, one, name)) for name, count in one.guarantee.items()}
        found[one.account] = Pool(one.account, one.guarantee_unit, left)
    return found


def _below(book: Book, assoc: Assoc, name: str) -> Iterable[int]:
    """What the accounts below one are guaranteed of a TRES, each with what is below it."""
    for child in book.below(assoc.account):
        if not child.is_account:
            continue
        own = child.guarantee.get(name)
        yield own if own is not None else sum(_below(book, child, name))


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

    @property
    def full(self) -> bool:
        return not any(count > 0 for count in self.left.values())


def settle(
    known: Mapping[str, Pool],
    guaranteed: Iterable[Running],
    others: Iterable[Running],
    first: Callable[[str], Rank | None],
    strict: bool = False,
) -> tuple[dict[int, str], dict[str, Rank], dict[str, Held]]:
    """Running jobs whose pool changes: job -> pool; by pool the first that has no room there; and
    what each pool has then.

    Jobs of a pool that is smaller than what they hold, or is no more, are borrowed work, the last
    in order first; borrowed work (`others`, in order) is guaranteed where its pool has room for the
    units that it lies on and no waiting job of the pool comes before it (`first`: the rank of the
    first one); `strict`: nor a running one that has none. Cost: running jobs."""
    stuck: dict[str, Rank] = {}
    changed: dict[int, str] = {}
    whose: dict[Unit, str] = {}
    held = {name: Held(pool) for name, pool in known.items()}
    guaranteed = list(guaranteed)
    if _all_fit(guaranteed, held, whose):
        # As nearly always: in whatever order.
        guaranteed.clear()
    else:
        held = {name: Held(pool) for name, pool in known.items()}
        whose.clear()
    for one in sorted(guaranteed, key=lambda each: each.rank):
        name = one.pool
        mine = held.get(name) if name in one.may else None
        theirs = any(whose.get(unit, name) != name for unit in one.units)
        if mine is None or theirs or not mine.fits(one.units):
            changed[one.job_id] = ""
            continue
        mine.take(one.units)
        for unit in one.units:
            whose[unit] = name
    for one in others:
        for name in one.may:
            mine = held[name]
            if mine.full and not one.units <= mine.units:
                stuck.setdefault(name, one.rank)
                continue
            before = first(name)
            late = (before is not None and before < one.rank) or (strict and name in stuck)
            theirs = any(whose.get(unit, name) != name for unit in one.units)
            if late or theirs or not mine.fits(one.units):
                stuck.setdefault(name, one.rank)
                continue
            mine.take(one.units)
            for unit in one.units:
                whose[unit] = name
            changed[one.job_id] = name
            break
    return changed, stuck, held


def _all_fit(
    guaranteed: Iterable[Running], held: Mapping[str, Held], whose: dict[Unit, str]
) -> bool:
    """Whether guaranteed jobs are all where they may be; each pool has what they hold then."""
    for one in guaranteed:
        mine = held.get(one.pool)
        if mine is None or one.pool not in one.may:
            return False
        for unit in one.units:
            if unit not in mine.units:
                if whose.setdefault(unit, one.pool) != one.pool or not mine.pool.suits(unit):
                    return False
                mine.take((unit,))
    return all(count >= 0 for one in held.values() for count in one.left.values())


def choose(
    held: Mapping[str, Held],
    wanting: Collection[str],
    there: Iterable[Unit],
    cost: Callable[[Unit], float],
    usable: Callable[[Unit], bool],
    before: Mapping[str, Collection[Unit]],
) -> dict[str, set[Unit]]:
    """Pool -> the units that are its own until the next pass: those that are bound to it, and for
    pools for which jobs wait all that they lack: first those on which nobody is (cost 0), of them
    those that were its own `before`; then those that cost least. `there`: all units, of which
    those that are not `usable` are left out. Cost: units; n log n in those that somebody is on,
    where there are not enough others."""
    found = {name: set(one.units) for name, one in held.items()}
    lacking = {name: dict(held[name].left) for name in wanting if not held[name].full}
    if not lacking:
        return found
    taken = {unit for one in held.values() for unit in one.units}
    free: dict[Unit, None] = {}
    busy: list[tuple[float, Unit]] = []
    for unit in there:
        if unit not in taken:
            price = cost(unit)
            if price:
                busy.append((price, unit))
            else:
                free[unit] = None
    busy.sort(key=lambda one: one[0])

    def take(name: str, units: Iterable[Unit]) -> None:
        left, pool = lacking[name], held[name].pool
        for unit in units:
            if not any(count > 0 for count in left.values()):
                return
            kind = pool.suits(unit)
            if kind and unit not in taken and 0 < unit.size <= left[kind] and usable(unit):
                left[kind] -= unit.size
                found[name].add(unit)
                taken.add(unit)

    for name in lacking:
        take(name, [unit for unit in before.get(name, ()) if unit in free])
    for name in lacking:
        take(name, free)
    for name in lacking:
        take(name, (unit for _, unit in busy))
        # Whatever has been taken is looked at but once.
        busy = [one for one in busy if one[1] not in taken]
    return found


__all__ = [
    "GPU",
    "ISLAND",
    "NODE",
    "Held",
    "Pool",
    "Rank",
    "Running",
    "Unit",
    "broken",
    "choose",
    "pools",
    "settle",
]
