"""Components of heterogeneous jobs in the queue: all of them start in one pass, or none.

Every component has rows of its own in the core's queue. A pass that started only some of them
takes them back. So that nobody waits for resources that are set aside and given back for ever,
only the first such job, and only if all of it would fit on the nodes that are up, may set aside
what it cannot use yet; the others take part in a pass only if all of them fits at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from gsched import _core
from gsched.forecast import Wanted, place_all
from gsched.topology import Network

#: heterogeneous jobs that are tried in one pass; the rest waits behind them
MOST_TRIED = 64
#: how often a pass is repeated because a job could not start whole
MOST_PASSES = 3
#: value of `held` for rows that take no part in a pass
_KEPT = 2


@dataclass
class Row:
    """A component in one partition's queue."""

    key: int
    req: int
    #: arguments of queue_add after key and request
    place: tuple[int, int, int, int]
    #: group of its rows in several partitions; -1 none
    unit: int
    #: the limits that it is under; -1 none
    chain: int = -1


@dataclass
class Component:
    """One component: its rows, and why it may not start however much is free ("" it may)."""

    job_id: int
    rows: list[Row]
    parked: str
    wanted: Wanted

    @property
    def begin(self) -> int:
        return self.rows[0].place[3]

    @property
    def limit(self) -> int:
        return self.rows[0].place[2]


@dataclass
class Unit:
    """A heterogeneous job that waits."""

    leader: int
    size: int
    parts: dict[int, Component] = field(default_factory=dict)

    @property
    def in_order(self) -> list[Component]:
        return [self.parts[job_id] for job_id in sorted(self.parts)]

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts by the leader's place in the queue."""
        first = self.parts[min(self.parts)].rows[0].place
        return -first[0], first[1]

    def ready(self, now: int) -> bool:
        """Whether nothing but resources is missing."""
        return len(self.parts) == self.size and not any(
            part.parked or part.begin > now for part in self.parts.values()
        )


class Together:
    """The heterogeneous jobs in a core's queue. Without any it costs nothing."""

    def __init__(self, core: _core.Core, n_nodes: int) -> None:
        self._core = core
        self._n_nodes = n_nodes
        self._units: dict[int, Unit] = {}
        self._leader: dict[int, int] = {}
        #: job -> verdict that was told last
        self._told: dict[int, tuple[int, int]] = {}
        #: of jobs that are under a limit that leaves too little for all components: its bin
        self.over: dict[int, int] = {}
        #: jobs that may not start for another reason, as of the next pass
        self.barred: set[int] = set()
        #: what describes each node, and the classes of links by number
        self._nodes: list[dict[str, Any]] = [{} for _ in range(n_nodes)]
        self._classes: dict[int, tuple[list[list[int]], list[int]]] = {}
        self._version = 0
        #: partition's bit -> jobs on a core, where they may be several
        self.sharing: dict[int, int] = {}
        #: where the nodes are
        self.network = Network()
        #: cores with the same nodes and no jobs: (version, core); all nodes up, as they are
        self._whole: tuple[int, _core.Core] | None = None
        self._up: tuple[int, _core.Core] | None = None

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, job_id: int) -> bool:
        """Whether a waiting job is a component of one."""
        return job_id in self._leader

    def describe(
        self, node: int, cls: int, links: list[list[int]], numa: list[int], rest: dict[str, Any]
    ) -> None:
        """What was said of a node to the core."""
        if cls and cls not in self._classes:
            self._classes[cls] = (links, numa)
        self._nodes[node] = {"cls": cls, **rest}
        self._version += 1

    def usable_changed(self) -> None:
        """A node went up or down."""
        self._up = None

    # ---- the queue --------------------------------------------------------------------------

    def add(self, leader: int, size: int, part: Component) -> None:
        """A component has entered the core's queue."""
        unit = self._units.setdefault(leader, Unit(leader, size))
        unit.parts[part.job_id] = part
        self._leader[part.job_id] = leader
        self._told.pop(part.job_id, None)

    def remove(self, job_id: int) -> None:
        """A job leaves the queue; nothing if it is no component."""
        leader = self._leader.pop(job_id, None)
        if leader is None:
            return
        self._told.pop(job_id, None)
        unit = self._units[leader]
        del unit.parts[job_id]
        if not unit.parts:
            del self._units[leader]

    def parked(self, job_id: int) -> str:
        """Slurm's reason why another component of the job may not start; "" none."""
        leader = self._leader.get(job_id)
        if leader is None:
            return ""
        parts = self._units[leader].in_order
        return next((part.parked for part in parts if part.parked), "")

    def idle(self, now: int, barred: Collection[int]) -> list[int]:
        """Rows of the jobs that cannot start now however much is free, as one of their components
        may not: no room is to be kept for the others. `barred`: jobs that wait for licences."""
        return [
            row.key
            for unit in self._units.values()
            if not unit.ready(now) or not unit.parts.keys().isdisjoint(barred)
            for part in unit.parts.values()
            for row in part.rows
        ]

    # ---- a pass -------------------------------------------------------------------------------

    def schedule(
        self, now: int, max_starts: int = 0, max_test: int = 0, **rules: Any
    ) -> _core.Plan:
        """Core.schedule, with the starts of whole heterogeneous jobs only, component by component.

        Cost: a pass, at most MOST_PASSES of them, and a placement per component of the first
        MOST_TRIED jobs.
        """
        head, tried, verdicts = self._choose(now)
        kept = [unit for unit in self._units.values() if unit.leader not in tried]
        for unit in kept:
            self._keep(unit)
        started: dict[int, _core.Start] = {}
        starts: list[_core.Start] = []
        reservations: dict[int, _core.Reservation] = {}
        changed: dict[int, int] = {}
        owner = {row.key: part for u in self._units.values() for part in u.parts.values()
                 for row in part.rows}  # fmt: skip
        for number in range(MOST_PASSES):
            plan = self._core.schedule(now, max_starts, max_test, **rules)
            reservations.update({one.key: one for one in plan.reservations})
            changed.update(plan.changed)
            for start in plan.starts:
                part = owner.get(start.key)
                if part is None:
                    starts.append(start)
                else:
                    started[part.job_id] = start
            last = number == MOST_PASSES - 1
            broken = [
                unit
                for unit in tried.values()
                if unit.leader != head and self._partly(unit, started)
            ]
            for unit in broken:
                self._take_back(unit, started)
                if not last:
                    self._keep(unit)
                    kept.append(unit)
                    del tried[unit.leader]
            if not broken or last:
                break
        if head in tried and self._partly(tried[head], started):
            self._take_back(tried[head], started)
        for unit in kept:
            for part in unit.parts.values():
                for row in part.rows if not part.parked else ():
                    self._core.queue_update(row.key, held=0)
        for unit in sorted(tried.values(), key=lambda each: each.rank):
            starts += [started[part.job_id] for part in unit.in_order if part.job_id in started]
        for key in owner:
            changed.pop(key, None)
        changed |= self._news(verdicts, started)
        return plan._replace(
            starts=starts, changed=list(changed.items()), reservations=list(reservations.values())
        )

    def _choose(self, now: int) -> tuple[int, dict[int, Unit], dict[int, int]]:
        """(the job that may set aside what it cannot use yet, or 0; those that take part; verdicts
        by leader)."""
        head = 0
        tried: dict[int, Unit] = {}
        verdicts: dict[int, int] = {}
        looked_at = 0
        self.over.clear()
        for unit in sorted(self._units.values(), key=lambda each: each.rank):
            if not unit.ready(now):
                late = len(unit.parts) == unit.size and any(
                    part.begin > now for part in unit.parts.values()
                )
                verdicts[unit.leader] = _core.BEGIN if late else _core.UNTESTED
                continue
            if self.barred and not self.barred.isdisjoint(unit.parts):
                verdicts[unit.leader] = _core.UNTESTED
                continue
            over = self._over(unit)
            if over >= 0:
                verdicts[unit.leader] = _core.LIMIT
                self.over.update(dict.fromkeys(unit.parts, over))
                continue
            looked_at += 1
            if looked_at > MOST_TRIED:
                verdicts[unit.leader] = _core.BEHIND
            elif self._fits(self._core, unit, now):
                tried[unit.leader] = unit
                verdicts[unit.leader] = _core.RESOURCES
                head = head or unit.leader
            elif head:
                verdicts[unit.leader] = _core.RESOURCES
            elif self._fits(self._empty(), unit, now):
                head = unit.leader
                tried[head] = unit
                verdicts[head] = _core.RESOURCES
            else:
                verdicts[unit.leader] = _core.NODES_DOWN
        return head, tried, verdicts

    def _over(self, unit: Unit) -> int:
        """The bin of a limit that all of it together would exceed; -1 none."""
        rows = [part.rows[0] for part in unit.in_order]
        if all(row.chain < 0 for row in rows):
            return -1
        return self._core.over_limit([(row.chain, row.place[2]) for row in rows])

    def _fits(self, core: _core.Core, unit: Unit, now: int) -> bool:
        """Whether all of it has room at once in what is free in `core`; nothing is changed."""
        if core is not self._core:
            return _room(core, [part.wanted for part in unit.in_order])
        wanted = [[row.req for row in part.rows] for part in unit.in_order]
        return place_all(core, wanted, now) is not None

    @staticmethod
    def _partly(unit: Unit, started: dict[int, _core.Start]) -> bool:
        return 0 < sum(job_id in started for job_id in unit.parts) < unit.size

    def _keep(self, unit: Unit) -> None:
        for part in unit.parts.values():
            for row in part.rows if not part.parked else ():
                self._core.queue_update(row.key, held=_KEPT)

    def _take_back(self, unit: Unit, started: dict[int, _core.Start]) -> None:
        """What a pass gave to some components is free again, and they wait again."""
        for part in unit.parts.values():
            start = started.pop(part.job_id, None)
            if start is None:
                continue
            row = next(row for row in part.rows if row.key == start.key)
            if row.chain >= 0:
                self._core.give_limits(row.key, row.chain, row.place[2])
            self._core.release(row.key)
            if row.unit >= 0:
                self._core.set_group(row.unit, 1)
            self._core.queue_add(row.key, row.req, *row.place, unit=row.unit, chain=row.chain)

    def _news(self, verdicts: dict[int, int], started: dict[int, _core.Start]) -> dict[int, int]:
        news: dict[int, int] = {}
        for unit in self._units.values():
            for part in unit.parts.values():
                if part.parked or part.job_id in started:
                    continue
                verdict = verdicts[unit.leader]
                told = verdict, self.over.get(part.job_id, -1)
                if self._told.get(part.job_id) != told:
                    self._told[part.job_id] = told
                    news[part.rows[0].key] = verdict
        return news

    # ---- what could be ------------------------------------------------------------------------

    def never(self, wanted: Iterable[Wanted]) -> bool:
        """True if not even the empty cluster with all nodes up has room for all at once. Cost:
        nodes, once per change of them."""
        if self._whole is None or self._whole[0] != self._version:
            self._whole = (self._version, self._copy(lambda node: True))
        return not _room(self._whole[1], list(wanted))

    def _empty(self) -> _core.Core:
        """The nodes that are up, without jobs."""
        if self._up is None or self._up[0] != self._version:
            self._up = (self._version, self.copy())
        return self._up[1]

    def copy(self) -> _core.Core:
        """A core with the nodes that are up, and no jobs. Cost: nodes."""
        usable = self._core.node
        return self._copy(lambda node: usable(node).usable)

    def _copy(self, usable: Callable[[int], bool]) -> _core.Core:
        core = _core.Core(max(1, self._n_nodes))
        for number, (links, numa) in sorted(self._classes.items()):
            found = core.define_class(links, numa)
            assert found == number, f"link class {number} came out as {found}"
        for partition, jobs in self.sharing.items():
            core.set_sharing(partition, jobs)
        for node, description in enumerate(self._nodes):
            core.set_node(node, usable=usable(node), **description)
        if self.network:
            net = self.network
            core.set_topology(net.leaves, net.parents, sizes=net.sizes, optional=net.optional)
        return core


def _room(core: _core.Core, wanted: list[Wanted]) -> bool:
    requests = [[core.request(**one) for one in choices] for choices in wanted]
    try:
        return place_all(core, requests, 0) is not None
    finally:
        for choices in requests:
            for req in choices:
                core.drop_request(req)
