"""Which units are a pool's beyond those that are bound to it: chosen, and kept while they serve.

All are chosen anew where it is asked for (`Choice.anew`: nodes or accounts have changed, or the
work that would have to go has grown for a while). In between a choice stands: what comes free takes
the place of what somebody is on, and who lacks a unit gets one (`Choice.mend`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from gsched.policy.units import Held, Unit

Cost = Callable[[Unit], float]


class Choice:
    """The units that pools for which jobs wait have beside their bound ones."""

    def __init__(self) -> None:
        #: pool -> its units, unit -> whose it is
        self.of: dict[str, dict[Unit, None]] = {}
        self._owner: dict[Unit, str] = {}
        #: by type of GPU those that are nobody's and on which nobody is
        self._free: dict[str, dict[Unit, None]] = {}
        #: all that a pool could have
        self._there: frozenset[Unit] = frozenset()
        #: pools whose units are others than they were
        self.changed: set[str] = set()

    def owner(self, unit: Unit) -> str:
        """Whose it is; "" nobody's."""
        return self._owner.get(unit, "")

    def anew(
        self,
        held: Mapping[str, Held],
        whose: Mapping[Unit, str],
        wanting: Collection[str],
        there: Iterable[Unit],
        cost: Cost,
    ) -> None:
        """Chooses for pools for which jobs wait all that they lack, in this order: first of the
        units on which nobody is (cost 0), of them those that were their own before; then of those
        that cost least. `there`: all that can be used. Cost: units; n log n in those that somebody
        is on, where there are not enough others."""
        before = {name: dict(units) for name, units in self.of.items()}
        self._owner.clear()
        self.of.clear()
        self._free.clear()
        self._there = frozenset(there)
        # The order is that of the nodes, not of the set.
        everything = there if isinstance(there, list) else list(self._there)
        lacking = {name: dict(held[name].left) for name in wanting if not held[name].full}
        busy: dict[str, list[tuple[float, int, Unit]]] = {}
        for number, unit in enumerate(everything):
            if unit in whose:
                continue
            price = cost(unit)
            if price:
                busy.setdefault(unit.kind, []).append((price, number, unit))
            else:
                self._free.setdefault(unit.kind, {})[unit] = None
        for name, left in lacking.items():
            kept = [u for u in before.get(name, ()) if u in self._free.get(u.kind, ())]
            self._take(name, held[name], left, kept)
        for name, left in lacking.items():
            self._take(name, held[name], left, self._idle(held[name]))
        lacking = {name: left for name, left in lacking.items() if _some(left)}
        if lacking:
            # Of a type all have the same size: a pool takes them from the front.
            for rows in busy.values():
                rows.sort(key=lambda one: one[:2], reverse=True)
            for name, left in lacking.items():
                self._take(name, held[name], left, _cheapest(held[name], busy, self._owner))
        for name in before.keys() | self.of.keys():
            if before.get(name, {}).keys() != self.of.get(name, {}).keys():
                self.changed.add(name)

    def mend(
        self,
        held: Mapping[str, Held],
        whose: Mapping[Unit, str],
        wanting: Collection[str],
        moved: Iterable[Unit],
        cost: Cost,
    ) -> bool:
        """The same where jobs have come or gone on the units in `moved`; False: there are not
        enough on which nobody is, choose anew. Cost: pools, these units and what changes."""
        for unit in moved:
            if unit not in self._there:
                continue
            name = self._owner.get(unit)
            if unit in whose:
                self._free.get(unit.kind, {}).pop(unit, None)
                if name is not None:
                    self._give(name, unit, False)
            elif name is None:
                self._put(unit, not cost(unit))
        for name in [one for one in self.of if one not in wanting or held[one].full]:
            for unit in list(self.of[name]):
                self._give(name, unit, not cost(unit))
        enough = True
        for name in wanting:
            mine = held[name]
            if mine.full and name not in self.of:
                continue
            left = dict(mine.left)
            for unit in self.of.get(name, ()):
                left[mine.pool.suits(unit)] -= unit.size
            if any(count < 0 for count in left.values()):
                self._shed(name, mine, left, cost)
            self._take(name, mine, left, self._idle(mine))
            enough = enough and not _some(left)
        if enough and any(self._free.values()):
            for name in wanting:
                self._swap(name, held[name], cost)
        return enough

    def _shed(self, name: str, mine: Held, left: dict[str, int], cost: Cost) -> None:
        """More than it lacks: what costs most goes."""
        for unit in sorted(self.of[name], key=cost, reverse=True):
            kind = mine.pool.suits(unit)
            if left[kind] < 0:
                left[kind] += unit.size
                self._give(name, unit, not cost(unit))

    def _swap(self, name: str, mine: Held, cost: Cost) -> None:
        """What is free takes the place of what somebody is on, of the same type."""
        by_kind: dict[str, list[Unit]] = {}
        for unit in self.of.get(name, ()):
            if self._free.get(unit.kind):
                by_kind.setdefault(unit.kind, []).append(unit)
        for kind, units in by_kind.items():
            priced = [(cost(unit), number) for number, unit in enumerate(units)]
            for price, number in sorted(priced, reverse=True):
                if not price or not self._free[kind]:
                    break
                other = next(iter(self._free[kind]))
                if other.size != units[number].size:
                    break
                self._give(name, units[number], False)
                self._own(name, other)

    def _idle(self, mine: Held) -> Iterable[Unit]:
        kinds = [kind for kind, units in self._free.items() if units and _suits(mine, units)]
        return (
            [unit for kind in kinds for unit in self._free[kind]]
            if len(kinds) > 1
            else (self._free[kinds[0]] if kinds else ())
        )

    def _take(self, name: str, mine: Held, left: dict[str, int], units: Iterable[Unit]) -> None:
        found: list[Unit] = []
        if not _some(left):
            return
        for unit in units:
            kind = mine.pool.suits(unit)
            if kind and unit not in self._owner and 0 < unit.size <= left[kind]:
                left[kind] -= unit.size
                found.append(unit)
                if not _some(left):
                    break
        for unit in found:
            self._own(name, unit)

    def _own(self, name: str, unit: Unit) -> None:
        self.of.setdefault(name, {})[unit] = None
        self._owner[unit] = name
        self._free.get(unit.kind, {}).pop(unit, None)
        self.changed.add(name)

    def _give(self, name: str, unit: Unit, free: bool) -> None:
        del self._owner[unit]
        del self.of[name][unit]
        if not self.of[name]:
            del self.of[name]
        self.changed.add(name)
        self._put(unit, free)

    def _put(self, unit: Unit, free: bool) -> None:
        if free:
            self._free.setdefault(unit.kind, {})[unit] = None
        else:
            self._free.get(unit.kind, {}).pop(unit, None)


def _some(left: Mapping[str, int]) -> bool:
    return any(count > 0 for count in left.values())


def _suits(mine: Held, units: Iterable[Unit]) -> bool:
    return bool(mine.pool.suits(next(iter(units))))


def _cheapest(
    mine: Held, busy: Mapping[str, list[tuple[float, int, Unit]]], taken: Mapping[Unit, str]
) -> Iterable[Unit]:
    """Those of its types that nobody has taken, the cheapest first."""
    rows: list[tuple[float, int, Unit]] = []
    kinds = [kind for kind, one in busy.items() if one and mine.pool.suits(one[-1][2])]
    for kind in kinds:
        # The cheapest are last: whatever has been taken goes for good.
        while busy[kind] and busy[kind][-1][2] in taken:
            busy[kind].pop()
    if len(kinds) == 1:
        return (unit for _, _, unit in reversed(busy[kinds[0]]))
    for kind in kinds:
        rows += busy[kind]
    rows.sort(key=lambda one: one[:2])
    return (unit for _, _, unit in rows)


__all__ = ["Choice"]
