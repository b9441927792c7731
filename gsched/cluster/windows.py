"""Advance reservations of the live cluster: by name on one side, by number in the core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gsched import _core, reserve
from gsched.cluster.nodes import Nodes
from gsched.model import Job, Reservation
from gsched.model.preempt import Claim

#: number of a reservation that keeps nothing: of jobs that ask for one that is gone
NOWHERE = 0
#: how a promise is called in the queue, before the job's number: no reservation has such a name
CLAIM = "\0"
#: how the units of an account are called there, before its name (see policy/units.py)
GUARD = "\1"
#: they are in force from 0 to then: longer than anything
EVER = 1 << 40
#: a promise is kept so much longer than the job may run, seconds
LATE_S = 86400


class Windows:
    """What reservations keep. Cost: see Core.set_reservation; nothing while there is none."""

    def __init__(self, nodes: Nodes, core: _core.Core) -> None:
        self._nodes = nodes
        self._core = core
        self._known: dict[str, Reservation] = {}
        #: an account's name -> its own and those above it: their reservations are its too
        self.lineage: Callable[[str], Collection[str]] = lambda account: (account,)
        self._spans: dict[str, list[tuple[int, int]]] = {}
        self._number: dict[str, int] = {}
        #: numbers are not used again: a job may outlive its reservation
        self._last = NOWHERE
        #: promises to waiting jobs (see claims.py), by the job; numbers that may be used again
        self._claims: dict[int, int] = {}
        #: and the advance reservations within which they are
        self._inside: dict[int, str] = {}
        self._spare: list[int] = []
        self._claimed: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int, int, int]]]] = {}
        #: account -> number, and what is kept for it
        self._guards: dict[str, int] = {}
        self._guarded: dict[str, list[tuple[int, int, int]]] = {}
        #: a job -> (accounts in whose units it may start, whether it may start elsewhere too)
        self.pools: Callable[[Job], tuple[Sequence[str], bool]] = lambda job: ((), True)

    def set(self, resv: Reservation) -> None:
        """A reservation is new, or has changed. Jobs that may use it must be queued anew when it
        is new, or becomes magnetic, or is so no more."""
        name = resv.name
        if name not in self._number:
            self._last += 1
            self._number[name] = self._last
        self._known[name] = resv
        self._spans[name] = reserve.spans(resv)
        rows = self._rows(resv)
        self._core.set_reservation(
            self._number[name], self._spans[name], rows, firm=resv.maintenance, flex=resv.flex
        )

    def claim(self, job_id: int, claim: Claim, now: int, limit: int) -> None:
        """What a claim names is kept for one waiting job: nobody else starts there, and it starts
        nowhere else."""
        self.unclaim(job_id)
        if self._spare:
            number = self._spare.pop()
        else:
            self._last += 1
            number = self._last
        # Also what is late is kept for its whole time.
        until = now + (limit or reserve.YEAR) + LATE_S
        rows = [
            (self._nodes.index[share.node], share.cpus, share.gpus, share.mem_mb)
            for share in claim.nodes
            if share.node in self._nodes.index
        ]
        self._claims[job_id] = number
        self._inside[job_id] = claim.reservation
        self._claimed[number] = [(claim.at, until)], rows
        self._core.set_reservation(number, [(claim.at, until)], rows, firm=True)

    def unclaim(self, job_id: int) -> None:
        """Nothing is kept for it any more."""
        number = self._claims.pop(job_id, None)
        self._inside.pop(job_id, None)
        if number is not None:
            self._core.set_reservation(number, (), ())
            del self._claimed[number]
            self._spare.append(number)

    def guard(self, shares: Mapping[str, Sequence[tuple[str, int, int]]]) -> None:
        """What is kept for the guaranteed jobs of accounts from now on: (node, CPUs, GPUs) each,
        CPUs -1 the whole node. Cost: where any of it is news, as an advance reservation's."""
        index, news = self._nodes.index, []
        for account, mine in shares.items():
            rows = [(index[node], cpus, gpus) for node, cpus, gpus in mine if node in index]
            if self._guarded.get(account, []) == rows:
                continue
            if rows:
                self._guarded[account] = rows
            else:
                del self._guarded[account]
            news.append((self.guard_of(account), [(0, EVER)] if rows else [], rows))
        if news:
            self._core.set_reservations(news)

    def guards(self) -> frozenset[str]:
        """Accounts for which something is kept."""
        return frozenset(self._guarded)

    def guard_of(self, account: str) -> int:
        """The number of an account's units in the core."""
        number = self._guards.get(account)
        if number is None:
            self._last += 1
            number = self._guards[account] = self._last
            self._core.set_reservation(number, (), ())
        return number

    def onto(self, core: _core.Core) -> list[int]:
        """Another core keeps the same under the same numbers; the times at which something begins
        or ends. One number more keeps nothing, for jobs whose reservation is gone."""
        core.set_reservation(NOWHERE, (), ())
        for name, resv in self._known.items():
            core.set_reservation(
                self._number[name],
                self._spans[name],
                self._rows(resv),
                firm=resv.maintenance,
                flex=resv.flex,
            )
        for number, (spans, rows) in self._claimed.items():
            core.set_reservation(number, spans, rows, firm=True)
        for account, mine in self._guarded.items():
            core.set_reservation(self._guards[account], [(0, EVER)], mine)
        return [time for spans in self._spans.values() for span in spans for time in span]

    def _rows(self, resv: Reservation) -> list[tuple[int, int, int]]:
        return [
            (self._nodes.index[share.node], share.cpus, share.gpus)
            for share in resv.nodes
            if share.node in self._nodes.index
        ]

    def __len__(self) -> int:
        return len(self._known)

    def drop(self, name: str) -> None:
        """A reservation is gone. Jobs that may use it must be queued anew."""
        self._core.set_reservation(self._number.pop(name), (), ())
        del self._known[name], self._spans[name]

    def inside(self, way: str) -> str:
        """The advance reservation within which a promise is, by its name in the queue; "" none."""
        return self._inside.get(int(way[len(CLAIM) :]), "")

    def number(self, name: str) -> int:
        """Its number in the core; -1 for none, and for one whose jobs may run anywhere."""
        if name.startswith(CLAIM):
            return self._claims.get(int(name[len(CLAIM) :]), NOWHERE)
        if name.startswith(GUARD):
            return self.guard_of(name[len(GUARD) :])
        known = self._known.get(name)
        if not name or (known is not None and known.any_nodes):
            return -1
        return self._number.get(name, NOWHERE)

    def spans(self, name: str) -> list[tuple[int, int]]:
        """Times at which a known one is in force: this one, and some that follow."""
        return self._spans[name]

    def ready_at(self, name: str, begin: int) -> int:
        """When a job that may begin then may start in a reservation: not before that is in force,
        where nothing else would keep it from starting (see number)."""
        known = self._known.get(name)
        return max(begin, known.start) if known is not None and known.any_nodes else begin

    def ways(self, job: Job) -> list[str]:
        """The reservations in which a job may start, in order; "" is outside of all."""
        if job.id in self._claims:
            return [f"{CLAIM}{job.id}"]
        named = reserve.names(job.spec.reservation)
        if named:
            return list(named)
        drawn = [
            name
            for name, resv in self._known.items()
            if "MAGNETIC" in resv.flags and self._may(resv, job, (job.group,))
        ]
        pools, outside = self.pools(job)
        return [*drawn, *(f"{GUARD}{one}" for one in pools), *([""] if outside else [])]

    def known(self, name: str) -> Reservation | None:
        """A reservation by its name."""
        return self._known.get(name)

    def maintenance_ahead(
        self, now: int, limit: int, partition: str, named: Sequence[str] = ()
    ) -> bool:
        """Whether a job that starts now would meet a maintenance: of nodes of its partition, or of
        those that it names. Cost: what maintenances keep."""
        until = now + (limit or reserve.YEAR)
        part = self._nodes.config.partitions.get(partition)
        mine = set(named or (part.nodes if part is not None else ()))
        return any(
            start < until and now < end
            for name, resv in self._known.items()
            if resv.maintenance and any(share.node in mine for share in resv.nodes)
            for start, end in self._spans[name]
        )

    def meets(self, within: str, at: int, limit: int) -> list[tuple[Reservation, int, int]]:
        """The reservations that a job would meet which starts then in `within` ("" in none), each
        with the time, (start, end), that it would meet first."""
        until = at + (limit or reserve.YEAR)
        mine = self._known.get(within)
        found = []
        for name, resv in self._known.items():
            # Those that overlap share what both keep; a maintenance has it for itself.
            if name == within or (mine is not None and not mine.flex and not resv.maintenance):
                continue
            span = next((s for s in self._spans[name] if s[0] < until and at < s[1]), None)
            if span is not None:
                found.append((resv, *span))
        return sorted(found, key=lambda one: (one[1], one[0].name))

    def opens(self, name: str, at: int) -> int:
        """When a reservation is in force, from `at` on; 0 never. At any time where a job of it may
        also run outside of it."""
        resv = self._known.get(name)
        if resv is None:
            return 0
        if resv.flex:
            return at
        return next((max(start, at) for start, end in self._spans[name] if at < end), 0)

    def usable(self, job: Job, at: int, groups: Collection[str]) -> list[str]:
        """Reservations in force that the job's owner may use and has not asked for."""
        return [
            name
            for name, resv in self._known.items()
            if name not in reserve.names(job.spec.reservation)
            and self.opens(name, at) == at
            and not resv.maintenance
            and self._may(resv, job, (*groups, job.group))
        ]

    def _may(self, resv: Reservation, job: Job, groups: Collection[str]) -> bool:
        partitions = job.spec.partitions or (job.partition,)
        return reserve.takes(resv, job.spec.qos, partitions) and reserve.may_use(
            resv, job.user, groups, self.lineage(job.spec.account)
        )
