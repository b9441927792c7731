"""How the slow twin chooses the nodes of a gang: by the network, or next to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gsched._reference.parts import Free, Node, Request

Fits = dict[int, tuple[int, int, int]]


@dataclass
class Network:
    """Units above nodes: leaves first, then level by level."""

    leaf: list[int]
    up: list[int]
    sizes: list[int]
    optional: bool

    def __post_init__(self) -> None:
        self.units = range(len(self.up))
        self._level = [0] * len(self.up)
        for unit, parent in enumerate(self.up):
            if parent >= 0:
                self._level[parent] = max(self._level[parent], self._level[unit] + 1)
        self.levels = max(self._level) + 1
        chains = {unit: self.chain(unit) for unit in self.units}
        self._above = [chains.get(leaf, []) for leaf in self.leaf]
        self._leaves = [
            [leaf for leaf in self.units if self._level[leaf] == 0 and unit in chains[leaf]]
            for unit in self.units
        ]

    def chain(self, unit: int) -> list[int]:
        found = []
        while unit >= 0:
            found.append(unit)
            unit = self.up[unit]
        return found

    def level(self, unit: int) -> int:
        return self._level[unit]

    def above(self, node: int) -> list[int]:
        """The units that a node is below, its leaf first."""
        return self._above[node]

    def leaves(self, unit: int) -> list[int]:
        return self._leaves[unit]


class LessThanSaid(Exception):
    """A leaf has fewer candidates than its room says."""


@dataclass
class Gang:
    """One choice: what is asked for, and the nodes that could each hold a part, as liked."""

    want: Request
    network: Network | None
    fits: Fits
    must: list[int]
    others: list[int]
    lower: int
    upper: int
    room: Callable[[int], int]

    def enough(self, nodes: Sequence[int]) -> bool:
        return (
            len(nodes) >= self.lower
            and sum(self.fits[i][0] for i in nodes) >= self.want.ntasks
            and sum(self.fits[i][1] for i in nodes) >= self.want.gpus_total
        )

    @property
    def in_all(self) -> bool:
        """Whether more nodes than `lower` may be needed."""
        want = self.want
        return bool(want.ntasks or want.gpus_total) and self.upper > 1 and not want.segment

    def counts(self, wanted: int) -> Iterator[int]:
        """Numbers of nodes to try."""
        for count in range(wanted, self.lower - 1, -1):
            if not self.want.segment or count % self.want.segment == 0:
                yield count

    def largest(self, nodes: Sequence[int]) -> list[int] | None:
        """The fewest of them, beside those that must be in it, that hold all."""
        fits = self.fits
        if self.want.gpus_total:
            ranked = sorted(nodes, key=lambda i: (-fits[i][1], -fits[i][0]))
        else:
            ranked = sorted(nodes, key=lambda i: -fits[i][0])
        for n in range(len(ranked) + 1):
            chosen = self.must + ranked[:n]
            if len(chosen) <= self.upper and self.enough(chosen):
                return chosen
        return None

    # --- by the network

    def below(self, leaf: int) -> list[int]:
        assert self.network is not None
        return [i for i in self.others if self.network.leaf[i] == leaf]

    def highest(self, count: int) -> int:
        assert self.network is not None
        if self.network.sizes and not self.want.segment:
            for level, size in enumerate(self.network.sizes[: self.network.levels]):
                if size and count <= size:
                    return level
        return self.network.levels - 1

    def by_network(self, wanted: int) -> list[int] | None:
        net = self.network
        assert net is not None
        if any(net.leaf[i] < 0 for i in self.must):
            return None
        for count in self.counts(wanted) if wanted else ():
            for level in range(self.highest(count) + 1):
                for unit in self.units_of(level, count - len(self.must)):
                    chosen = self.nodes_below(unit, count)
                    if chosen is not None and self.enough(chosen):
                        return chosen
        if not self.in_all:
            return None
        for level in range(net.levels):
            for unit in self.units_of(level, self.lower - len(self.must)):
                chosen = self.amount_below(unit)
                if chosen is not None:
                    return chosen
        return None

    def units_of(self, level: int, least: int) -> list[int]:
        """Units of a level that may hold so many more nodes, in the order of trying."""
        net = self.network
        assert net is not None
        least = max(least, 0 if self.must else 1)
        found = [
            unit
            for unit in net.units
            if net.level(unit) == level
            and self.room(unit) >= least
            and all(unit in net.above(i) for i in self.must)
        ]
        return sorted(found, key=lambda unit: (self.room(unit), unit))

    def nodes_below(self, unit: int, count: int) -> list[int] | None:
        """So many nodes on few leaves; leaves count by their room, or where this is wrong, by
        their candidates."""
        try:
            return self.few_leaves(unit, count, self.room)
        except LessThanSaid:
            return self.few_leaves(unit, count, lambda leaf: len(self.below(leaf)))

    def few_leaves(self, unit: int, count: int, room: Callable[[int], int]) -> list[int] | None:
        """The nodes; None: there is no such choice."""
        net, want = self.network, self.want
        assert net is not None
        segment = want.segment or 1
        taken: dict[int, list[int]] = {}
        rest = count - len(self.must)
        held = [net.leaf[i] for i in self.must]
        for leaf in dict.fromkeys(held):
            more = -held.count(leaf) % segment
            if more > len(self.below(leaf)) or more > rest:
                return None
            taken[leaf] = self.below(leaf)[:more]
            rest -= more
        for leaf in taken:
            most = (held.count(leaf) + len(self.below(leaf))) // segment * segment
            more = min(rest, most - held.count(leaf) - len(taken[leaf]))
            taken[leaf] = self.below(leaf)[: len(taken[leaf]) + more]
            rest -= more
        left = {
            leaf: room(leaf) // segment * segment for leaf in net.leaves(unit) if leaf not in taken
        }
        while rest:
            left = {leaf: there for leaf, there in left.items() if there}
            if not left:
                return None
            holding = [leaf for leaf in left if left[leaf] >= rest]
            if holding:
                best = min(holding, key=lambda leaf: (left[leaf], leaf))
            else:
                best = min(left, key=lambda leaf: (-left[leaf], leaf))
            got = min(rest, len(self.below(best)) // segment * segment)
            if got < min(left[best], rest):
                raise LessThanSaid
            taken[best] = self.below(best)[:got]
            del left[best]
            rest -= got
            if want.switches and len(taken) > want.switches:
                return None
        if want.switches and len(taken) > want.switches:
            return None
        return self.must + [i for nodes in taken.values() for i in nodes]

    def amount_below(self, unit: int) -> list[int] | None:
        """The fewest nodes that hold all tasks and GPUs, on leaves that can hold much."""
        net, want, fits = self.network, self.want, self.fits
        assert net is not None
        which = 1 if want.gpus_total else 0
        asked = want.gpus_total or want.ntasks
        leaves = {leaf: self.below(leaf) for leaf in net.leaves(unit)}
        taken = [net.leaf[i] for i in self.must]
        taken = list(dict.fromkeys(taken))

        def union() -> list[int]:
            return [i for leaf in taken for i in leaves[leaf]]

        amount = {leaf: sum(fits[i][which] for i in nodes) for leaf, nodes in leaves.items()}
        while not self.enough(self.must + union()):
            left = [leaf for leaf in leaves if leaves[leaf] and leaf not in taken]
            if not left:
                break
            rest = asked - sum(fits[i][which] for i in self.must + union())
            holding = [leaf for leaf in left if amount[leaf] >= rest] if rest > 0 else []
            if holding:
                taken.append(min(holding, key=lambda leaf: (amount[leaf], leaf)))
            else:
                taken.append(min(left, key=lambda leaf: (-amount[leaf], leaf)))
        if want.switches and len(taken) > want.switches:
            return None
        chosen = self.largest(union())
        if chosen is not None and net.level(unit) > self.highest(len(chosen)):
            chosen = None
        if chosen is None and not want.switches:
            # On so few nodes only the largest of all leaves hold it.
            taken += [leaf for leaf in leaves if leaf not in taken]
            chosen = self.largest(union())
            if chosen is not None and net.level(unit) > self.highest(len(chosen)):
                chosen = None
        return chosen

    # --- next to each other

    def by_number(self, wanted: int) -> list[int] | None:
        there = sorted(self.must + self.others)
        runs: list[list[int]] = []
        for i in there:
            if runs and runs[-1][-1] == i - 1:
                runs[-1].append(i)
            else:
                runs.append([i])
        for count in self.counts(wanted):
            for run in sorted(runs, key=lambda run: (len(run), run[0])):
                for first in range(len(run) - count + 1):
                    nodes = run[first : first + count]
                    if self.allowed(nodes) and self.enough(nodes):
                        return nodes
        if not self.in_all:
            return None
        for count in range(1, self.upper + 1):
            for run in runs:
                for first in range(len(run) - count + 1):
                    nodes = run[first : first + count]
                    if self.allowed(nodes) and self.enough(nodes):
                        return nodes
        return None

    def allowed(self, nodes: list[int]) -> bool:
        if not set(self.must) <= set(nodes):
            return False
        if self.network is None or not self.want.switches:
            return True
        leaves = {self.network.leaf[i] for i in nodes}
        return -1 not in leaves and len(leaves) <= self.want.switches


class Topology:
    """What the twin's core knows of the network."""

    nodes: list[Node]
    network: Network | None

    def __init__(self) -> None:
        self.network = None
        super().__init__()

    def set_topology(
        self,
        leaves: Sequence[int],
        parents: Sequence[int],
        *,
        sizes: Sequence[int] = (),
        optional: bool = False,
    ) -> None:
        self.network = None
        if parents:
            self.network = Network(list(leaves), list(parents), list(sizes), optional)

    def is_gang(self, want: Request) -> bool:
        if want.contiguous:
            return True
        if self.network is None or want.spread:
            return False
        return not self.network.optional or want.switches > 0 or want.segment > 0

    def gang(
        self,
        want: Request,
        free: list[Free],
        fits: Fits,
        must: list[int],
        others: list[int],
        bounds: tuple[int, int, int],
        *,
        plain: bool,
    ) -> list[int] | None:
        """The nodes, or None. others: candidates as they are liked; bounds: fewest nodes, most, and
        how many are striven for (0: as few as hold all)."""
        least = 0
        if want.wants_gpus and not want.gpu_milli:
            least = min(want.least_gpus(want.least_tasks), 64)
        network = self.network
        if plain:
            having = set(others)
        else:
            having = {i for i, f in enumerate(free) if f.usable and f.gpus.bit_count() >= least}

        def room(unit: int) -> int:
            assert network is not None
            return sum(unit in network.above(i) for i in having)

        lower, upper, wanted = bounds
        gang = Gang(want, network, fits, must, others, lower, upper, room)
        return gang.by_number(wanted) if want.contiguous else gang.by_network(wanted)
