"""What waiting jobs have been promised of the place of running ones, and what they could be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from gsched import _core, reserve
from gsched.cluster.allocations import Allocations
from gsched.cluster.lines import Lines, Rank
from gsched.cluster.nodes import Nodes
from gsched.cluster.queue import Queue
from gsched.cluster.requests import Requests
from gsched.cluster.windows import GUARD, Windows
from gsched.model import Job, ReservedNode
from gsched.model.preempt import Claim

#: what a pass says of a row that waits for room
_BLOCKED = frozenset({_core.RESOURCES, _core.PRIORITY, _core.BEHIND})
#: and of one that waits for nothing else as far as is known
_HOPEFUL = _BLOCKED | {_core.UNTESTED, _core.WINDOW, _core.NODES_DOWN}

#: or of one whose time to begin had not come when it was looked at
_OPEN = _HOPEFUL | {_core.BEGIN}


class Claims:
    """Promises, and the questions from which they are made."""

    def __init__(
        self,
        nodes: Nodes,
        requests: Requests,
        queue: Queue,
        core: _core.Core,
        windows: Windows,
        allocations: Allocations,
    ) -> None:
        self._nodes = nodes
        self._requests = requests
        self._queue = queue
        self._core = core
        self._windows = windows
        self._allocations = allocations
        #: waiting jobs that may preempt others; those of them that were looked at -> until when not
        self.may: set[int] = set()
        self.tried: dict[int, int] = {}
        #: before when they are not gone through again, where there are many
        self.look_at = 0
        #: what there was when all of them, and when one of them, was looked at in vain, and when
        #: time alone may change that (0: never)
        self.quiet: tuple[object, int] = None, 0
        self.vain: dict[int, tuple[object, int]] = {}
        #: those of them that may take something back, by account; of these who goes before all
        #: others (so many of his tasks), and how that was found: first account with a guarantee ->
        #: (what was so then, who)
        self.lines = Lines()
        self.owed: dict[int, int] = {}
        self.counted: dict[str, tuple[object, dict[int, tuple[Rank, int]]]] = {}
        #: first account -> (what there was, who could have nothing then)
        self.vainly: dict[str, tuple[tuple[int, ...], frozenset[int]]] = {}
        #: those of them that were looked at before a pass: (what there was then, until when not)
        self.early: dict[int, tuple[object, int]] = {}
        #: whether a job is one of them
        self.judge: Callable[[Job], bool] = lambda _: False

    # ---- the queue -----------------------------------------------------------------------------

    def came(self, job: Job) -> None:
        """A job waits, or has changed."""
        if self.judge(job):
            self.may.add(job.id)
            self.lines.add(job.id, job.spec.account)
            self.owed.pop(job.id, None)
            self.tried.pop(job.id, None)
            self.vain.pop(job.id, None)

    def went(self, job_id: int) -> None:
        """A job waits no more."""
        self.may.discard(job_id)
        self.lines.drop(job_id)
        self.owed.pop(job_id, None)
        self.early.pop(job_id, None)
        self.tried.pop(job_id, None)
        self.vain.pop(job_id, None)

    def put_first(self, owed: Mapping[int, int]) -> None:
        """These go before all others, each with so many of his tasks. Cost: what has changed."""
        before = self.owed
        for job_id in before.keys() - owed.keys():
            self._queue.put_first(job_id, 0)
        for job_id, count in owed.items():
            if before.get(job_id) != count:
                self._queue.put_first(job_id, count)
        self.owed = dict(owed)

    def waits(self, job_id: int) -> bool:
        """Whether a queued job waits for room, as far as is known. Cost: its rows."""
        if job_id in self._queue.parked:
            return False
        return any(self._core.verdict(key) in _OPEN for key in self._queue.leads(job_id))

    def blocked(self, job_id: int) -> list[str]:
        """Partitions in which the last pass found no room for a waiting job, and nothing else in
        its way. Cost: its rows."""
        if job_id in self._queue.parked:
            return []
        found = []
        for key in self._queue.leads(job_id):
            if self._core.verdict(key) in _BLOCKED:
                found.append(self._queue.row[key][1])
        return list(dict.fromkeys(found))

    def planned(self) -> Iterator[tuple[int, list[str]]]:
        """(job, nodes) of what the plan keeps for waiting jobs. Cost: reservations."""
        for one in self._core.reservations():
            row = self._queue.row.get(one.key)
            if row is not None and one.at >= 0:
                yield row[0], [self._nodes.names[share[0]] for share in one.placement.nodes]

    def holders(self) -> Iterator[int]:
        """Jobs that hold nodes."""
        for job_id, _ in self._allocations.held():
            yield job_id

    # ---- whose work ----------------------------------------------------------------------------

    def cheapest(
        self,
        job: Job,
        partition: str,
        victims: Sequence[tuple[int, int]],
        now: int,
        *,
        avoid: Collection[str] = (),
        strict: bool = False,
        still: Collection[int] = (),
        pool: str = "",
        inside: str = "",
        together: Mapping[int, Sequence[int]] | None = None,
    ) -> tuple[list[int], list[ReservedNode]] | None:
        """Of the jobs (id, cost), in order, those whose going makes a waiting job fit in a
        partition (in the units of `pool`, or what the reservation `inside` keeps) at the least
        cost, and what it then takes; None: all of them are not enough. Those in `still` stand
        still: what they have on the nodes that it takes is kept as well, so that they get back
        what it leaves. `together`: those that go with one of them. Cost: Core.cheapest."""
        if not victims:
            return None
        keys: list[int | tuple[int, ...]] = []
        costs: list[int] = []
        whose: dict[int | tuple[int, ...], int] = {}
        for job_id, cost in victims:
            key: int | tuple[int, ...] | None = self._allocations.key(job_id)
            more = together.get(job_id) if together else None
            if more is not None:
                each = [self._allocations.key(one) for one in more]
                key = tuple(one for one in each if one is not None)
            if key:
                keys.append(key)
                costs.append(cost)
                whose[key] = job_id
        few = self._queue.switches(job.id)[0]
        try:
            words = self._requests.words(job.spec.shape, partition)
            within = self._windows.guard_of(pool) if pool else self._windows.number(inside)
            req = self._requests.acquire(job.spec.shape, partition, few, within)
        except (ValueError, KeyError):
            return None
        try:
            found = self._core.cheapest(
                req,
                keys,
                costs,
                now,
                job.time_limit,
                avoid=[self._nodes.index[name] for name in avoid],
                strict=strict,
                lent=[key for key, one in whose.items() if isinstance(key, int) and one in still],
            )
        finally:
            self._core.drop_request(req)
        if found is None:
            return None
        chosen, placement = found
        lent: dict[int, tuple[int, int]] = {}
        for key in chosen:
            if isinstance(key, int) and whose[key] in still:
                for node, cpus, _, _, gpus in self._core.allocation(key):
                    had = lent.get(node, (0, 0))
                    lent[node] = had[0] + cpus, had[1] | gpus
        return [whose[key] for key in chosen], self._shares(placement, words, lent)

    def room(self, job: Job, partition: str, now: int) -> list[ReservedNode] | None:
        """What a waiting job that goes before others takes in a partition beside the plans for
        those before whom it goes not; None: it has no room there. Cost: Core.what_if."""
        few = self._queue.switches(job.id)[0]
        rows = self._queue.row
        others = [
            one.key
            for one in self._core.reservations()
            if one.key in rows and rows[one.key][0] not in self.owed
        ]
        try:
            words = self._requests.words(job.spec.shape, partition)
            req = self._requests.acquire(job.spec.shape, partition, few, -1)
        except (ValueError, KeyError):
            return None
        try:
            without = [*others, *self._queue.keys(job.id)]
            found = self._core.what_if(req, now, job.time_limit, without=without)
        finally:
            self._core.drop_request(req)
        return None if found is None else self._shares(found, words, {})

    def _shares(
        self, placement: _core.Placement, words: dict[str, Any], lent: dict[int, tuple[int, int]]
    ) -> list[ReservedNode]:
        """What a promise of a placement names."""
        kept = []
        for node, cpus, _, mem, gpus in placement.nodes:
            name = self._nodes.names[node]
            every = self._nodes.gpu_bits(name)
            # Who has all GPUs of a node has it for himself: also its memory is kept then.
            whole = words["exclusive"] or (every and gpus == every)
            if node in lent:
                free = self._core.node_free(node)[0]
                cpus = lent[node][0] + min(cpus, max(0, free))
                gpus |= lent[node][1]
            kept.append(ReservedNode(name) if whole else ReservedNode(name, cpus, gpus, mem))
        return kept

    # ---- whole units ---------------------------------------------------------------------------

    def bind(self, shares: Mapping[str, Sequence[tuple[str, int, int]]]) -> None:
        """What the guaranteed jobs of accounts have for themselves (see Windows.guard)."""
        self._windows.guard(shares)

    def bound(self) -> frozenset[str]:
        """Accounts for which units are kept."""
        return self._windows.guards()

    def guarded(self) -> set[str]:
        """Accounts in whose units some job waits for room, as far as anybody knows. Cost: rows
        that do not, before the first that does."""
        return {pool for pool in self._queue.guards if next(self._hopeful(pool), 0)}

    def newest(self, pool: str) -> int:
        """The last of the rows that have come to wait in an account's units; 0 none."""
        return next(reversed(self._queue.guards.get(pool, {})), 0)

    def hopeful(self, pool: str) -> set[int]:
        """The jobs that do. Cost: rows."""
        return set(self._hopeful(pool))

    def _hopeful(self, pool: str) -> Iterator[int]:
        for key in self._queue.guards.get(pool, ()):
            job_id = self._queue.row[key][0]
            if job_id not in self._queue.parked and self._core.verdict(key) in _HOPEFUL:
                yield job_id

    def heads(self) -> dict[str, int]:
        """Account -> the first of the jobs that wait in its units, as the last pass found it. Cost:
        reservations."""
        found: dict[str, int] = {}
        for one in self._core.reservations():
            within = self._queue.within.get(one.key, "")
            if within.startswith(GUARD):
                found.setdefault(within[len(GUARD) :], self._queue.row[one.key][0])
        return found

    def ends(self, job_id: int, now: int) -> None:
        """What a job holds is expected back at once."""
        self._allocations.overdue(job_id, now)

    def move(self, job: Job, pool: str) -> None:
        """A running job is in the units of that account from now on; "" of none."""
        self._allocations.move(job, pool)

    # ---- promises ------------------------------------------------------------------------------

    def promise(self, job: Job, claim: Claim, now: int) -> None:
        """What a claim names is kept for the job, which must be queued anew. Cost: as an advance
        reservation's."""
        self._windows.claim(job.id, claim, now, job.time_limit)

    def drop(self, job_id: int) -> None:
        """Nothing is kept for a job any more; one that waits must be queued anew."""
        self._windows.unclaim(job_id)

    def inside(self, job: Job, now: int) -> str | None:
        """The advance reservation within which a waiting job could have others' place now; "" it
        asks for none, None for none that is in force. Cost: reservations that it asks for."""
        named = reserve.names(job.spec.reservation)
        for name in named:
            known = self._windows.known(name)
            if known is None or known.maintenance or known.any_nodes:
                continue
            if any(start <= now < end for start, end in self._windows.spans(name)):
                return name
        return None if named else ""

    def usable(self, claim: Claim) -> bool:
        """Whether all nodes of a claim take work."""
        return all(
            share.node in self._nodes.index and self._nodes.usable(share.node)
            for share in claim.nodes
        )
