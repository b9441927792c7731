"""The live cluster: names and records on one side, the core's numbers on the other.

The only owner of a core. Pure: it is told what changes and asked what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from gsched import _core, forecast
from gsched.cluster.allocations import Allocations
from gsched.cluster.claims import Claims
from gsched.cluster.limits import Limits, Pool, Source, Whose
from gsched.cluster.nodes import Nodes, usable_cpus
from gsched.cluster.plans import Draft
from gsched.cluster.queue import Queue
from gsched.cluster.ranks import Columns, Sweep
from gsched.cluster.requests import BOUND, TOGETHER, Requests
from gsched.cluster.verdicts import Verdicts
from gsched.cluster.what_if import Way, WhatIf
from gsched.cluster.windows import CLAIM, GUARD, Windows
from gsched.cluster.workload import Workload
from gsched.config import Config
from gsched.licenses import Licenses
from gsched.licenses import parse as parse_licenses
from gsched.model import Job, NodeAlloc, Placement, Plan, Reservation, Shape
from gsched.together import Together


class Cluster:
    """Nodes, partitions and the queue, bound to a core.

    Cost: constructing takes a few us per node; every other call is constant or says otherwise.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._core = _core.Core(max(1, len(config.nodes)))
        # sched/builtin: first in, first out.
        self._core.set_in_order(config.scheduler_type == "sched/builtin")
        self._together = Together(self._core, len(config.nodes))
        self._licenses = Licenses(self._core, config.licenses)
        self._nodes = Nodes(config, self._core, self._together)
        self._requests = Requests(self._nodes, self._core, self._together)
        self._windows = Windows(self._nodes, self._core)
        self._limits = Limits(self._nodes, self._core)
        self._queue = Queue(
            self._nodes,
            self._requests,
            self._core,
            self._together,
            self._licenses,
            self._windows,
            self._limits,
        )
        self._allocations = Allocations(
            self._nodes,
            self._core,
            self._licenses,
            self._windows,
            self._queue.new_key,
            lambda job: self._requests.owner(job.spec.shape, job.partition),
        )
        self._verdicts = Verdicts(
            self._nodes, self._queue, self._core, self._together, self._windows, self._limits
        )

        #: questions about requests that nobody has made, and about times to come
        self.what_if = WhatIf(self._nodes, self._requests, self._queue, self._core, self._windows)

        #: promises of the place of running jobs
        self.claims = Claims(
            self._nodes, self._requests, self._queue, self._core, self._windows, self._allocations
        )
        self._workload = Workload()
        #: a plan has been taken over: passes respect it
        self._planned = False
        #: jobs that came, changed or went since the last draft
        self.changes = 0
        #: the last pass met jobs whose place was gone, or that came since the plan
        self.unplanned = False
        #: nodes have come back since the last draft: places that were made without them are poor
        self.returned = False
        #: plans that have been taken over
        self.adopted = 0
        #: when a pass last looked at the whole queue
        self.last_full = 0

        # What one of the parts does alone, under the names that the ledger knows.
        self.never = self._requests.never
        self.never_together = self._requests.never_together
        self.node_changed = self._nodes.changed
        self.used = self._nodes.used
        self.gpu_types = self._nodes.gpu_types
        self.set_throttle = self._queue.set_throttle
        self.due = self._queue.due
        self.offer_licenses = self._licenses.offer
        self.licenses_free = self._licenses.free
        self.licenses_left = self._licenses.left_for
        self.licenses_held = self._licenses.held
        self.licenses_reserved = self._licenses.reserved
        self.license_holders = self._licenses.holders
        self.take_licenses = self._allocations.take_licenses
        self.assign_cpus = self._allocations.assign_cpus
        self.release_node = self._allocations.release_node
        self.bind = self._allocations.bind
        self.lend = self._allocations.lend
        self.take_back = self._allocations.take_back
        self.kept = self._allocations.kept
        self.goes_on = self._allocations.goes_on
        self.give_back = self._allocations.give_back
        self.parts_held = self._allocations.parts_held
        self.mates = self._allocations.mates
        self.shares = self._allocations.shares
        self.share = self._allocations.share
        self.gpu_bits = self._nodes.gpu_bits
        self.best_gpus = self._nodes.best_gpus

    @property
    def node_changes(self) -> int:
        """Times that a node was another, or came or went."""
        return self._nodes.changes

    def set_usable(self, name: str, usable: bool) -> None:
        """Whether new work may go to a node."""
        self.returned = self.returned or (usable and not self._nodes.usable(name))
        self._nodes.set_usable(name, usable)
        self.changes += 1
        self._verdicts.usable_changed(name)

    def limit(self, source: Source | None) -> None:
        """Who knows the limits on what jobs hold together; None: there are none. Before any job is
        queued."""
        self._limits.source = source

    def limits_changed(self) -> None:
        """Limits, or those whom they are for, have changed. Cost: ~10 us for each kind of waiting
        job."""
        self.changes += 1
        self._limits.rebuild()

    def holdings_changed(self, whose: Whose) -> None:
        """What the jobs of somebody for whom there are limits hold has changed. Cost: constant."""
        self._limits.changed(whose)

    def limit_of(self, job_id: int) -> Pool | None:
        """The pool that leaves too little for a waiting job, as of the last pass; None: none."""
        for key in self._queue.keys(job_id):
            over, chain = self._together.over.get(job_id, -1), self._queue.chain.get(key, -1)
            if over >= 0 or self._core.verdict(key) == _core.LIMIT:
                return self._limits.pool_of(key, over, chain)
            if chain in self._limits.likely:
                return self._limits.pool_of(key, self._limits.likely[chain], chain)
        return None

    def queue_job(self, job: Job) -> None:
        """Puts a pending job into the queue, or anew after it changed. An array that is still
        together has a row for each of its next tasks. Cost: its rows."""
        self.unqueue(job.id)
        self.changes += 1
        self._queue.add(job)
        self._count(job)
        self.claims.came(job)
        self._verdicts.parked(job.id)

    def open_or_close(self, config: Config, name: str) -> list[int]:
        """A configuration that differs in nothing but a partition's state. Gives back the waiting
        jobs that must be judged after it. Cost: ~0.1 us for each job that waits there."""
        self.config = config
        self._nodes.config = config
        self._requests.reword(config)
        return self._queue.open_or_close(config, name)

    def judge(self, jobs: Iterable[Job]) -> None:
        """Finds anew whether waiting jobs may start at all. Cost: ~1 us each."""
        fits: set[int] = set()
        for job in jobs:
            change = self._queue.judge(job, fits)
            if change is None:
                self.queue_job(job)
                # Request classes may have come and gone: their numbers are used again.
                fits.clear()
            elif change:
                self._verdicts.parked(job.id)

    def unqueue(self, job_id: int) -> None:
        """Takes a job out of the queue, if it is there."""
        self.claims.went(job_id)
        keys = self._queue.remove(job_id)
        self.changes += bool(keys)
        self._verdicts.forget(job_id, keys)

    def reserve(self, resv: Reservation) -> None:
        """An advance reservation is new, or has changed (see Windows.set)."""
        self.changes += 1
        self.move(resv)

    def move(self, resv: Reservation) -> None:
        """One that floats is a little later than before: whoever could start still can."""
        self._windows.set(resv)
        kept = parse_licenses(resv.licenses)[0] if resv.licenses else {}
        self._licenses.reserve(resv.name, kept, self._windows.spans(resv.name))

    def trace_accounts(self, lineage: Callable[[str], Collection[str]]) -> None:
        """How an account's name leads to those above it, whose reservations are its too."""
        self._windows.lineage = lineage

    def trace_pools(self, pools: Callable[[Job], tuple[Sequence[str], bool]]) -> None:
        """In whose units a job may be guaranteed, and whether it may start elsewhere too."""
        self._windows.pools = pools

    def rank_by(self, rank: Callable[[Job, str], tuple[Columns, int]]) -> None:
        """How the priority of a job in a partition is found when it is queued: (what it is made of,
        what it is now). Without it, it is what the job's record says."""
        self._queue.rank = rank

    def sweep(self, how: Sweep) -> dict[int, int]:
        """Recalculates the priorities of all that waits: those that are another now, by job. Cost:
        some ns for each row of the queue, 0.3 us for each priority that is another."""
        found = self._queue.sweep(how)
        if found:
            self.claims.lines.shuffle()
        self.changes += bool(found)
        return found

    def priority(self, job_id: int) -> int:
        """The priority in force of a waiting job."""
        return self._queue.priority(job_id)

    def priorities(self, job_id: int) -> dict[str, int]:
        """The same in each of its partitions. Cost: its rows of the queue."""
        return self._queue.priorities(job_id)

    def unreserve(self, name: str) -> None:
        """An advance reservation is gone (see Windows.drop)."""
        self.changes += 1
        self._licenses.reserve(name, {}, [])
        self._windows.drop(name)

    def waits_for_switches(self, job_id: int) -> bool:
        """Whether a waiting job is to lie on few leaf switches."""
        return self._queue.switches(job_id)[0] > 0

    def restore(self, job: Job) -> None:
        """Takes over what a loaded job holds, as it is recorded."""
        self._allocations.restore(job)
        self._count(job)

    def _count(self, job: Job) -> None:
        """A job is one of those that usually come."""
        try:
            words = self._requests.words(job.spec.shape, job.partition)
        except (ValueError, KeyError):
            return
        self._workload.came(job.id, words)

    def release(self, job_id: int) -> None:
        """Nothing is held for the job any more (its shares were released one by one before)."""
        self.changes += 1
        self._allocations.release(job_id)

    def set_end(self, job: Job) -> None:
        """A running job's expected end has changed."""
        self.changes += 1
        self._allocations.set_end(job)

    def expect(self, job_id: int, end: int, late: Sequence[tuple[str, int]] = ()) -> None:
        """When what a job holds is expected back (see Allocations.expect)."""
        self.changes += self._allocations.expect(job_id, end, late)

    def queued(self, job_id: int) -> bool:
        return job_id in self._queue

    # ---- decisions --------------------------------------------------------------------------

    def schedule(
        self,
        now: int,
        max_starts: int,
        max_test: int = 0,
        rules: dict[str, Any] | None = None,
    ) -> Plan:
        """One pass: what starts now (already set aside under each job), and which verdicts
        changed. What a plan has kept for others is respected. rules: of Core.schedule. Cost: see
        there, and ~1 us for each start and changed verdict."""
        how = dict(rules or {})
        if self._planned:
            how["keep"] = _core.STAND
        news = self._workload.news()
        if news:
            self._core.set_workload(news)
        self._queue.loosen(now)
        self._limits.refresh(now)
        queue = self._together if len(self._together) else self._core
        if len(self._licenses):
            blocked = self._licenses.blocked(now)
            self._together.barred = blocked[1]
            decided = self._licenses.schedule(queue, blocked, now, max_starts, max_test, **how)
        else:
            self._together.barred = set()
            if queue is self._core:
                how["grouped"] = True
            decided = queue.schedule(now, max_starts, max_test, **how)
        if self._planned:
            missed, closed = self._core.replanned()
            self.unplanned = closed or missed > 0
        starts: list[Placement] = []
        for start in decided.starts:
            job_id, partition = self._queue.row.pop(start.key)
            self._limits.took(self._queue.chain.get(start.key, -1))
            within, pool = self._queue.leave(start.key), ""
            if within.startswith(GUARD):
                within, pool = "", within[len(GUARD) :]
            elif within.startswith(CLAIM):
                limit = self._queue.limit(job_id)
                pool = self._queue.pool.get(job_id, "")
                within = self._windows.inside(within)
                number = self._windows.guard_of(pool) if pool else self._windows.number(within)
                self._allocations.unbind(start.key, now + limit if limit else 0, number)
            starts.append(
                Placement(
                    job_id,
                    partition,
                    self._nodes.shares(start.placement),
                    start.key,
                    within,
                    self._queue.choice.pop(start.key, 0),
                    pool,
                )
            )
        self._verdicts.settled()
        self._verdicts.add(decided.changed)
        self._verdicts.reserved(decided.reservations, whole="keep" not in how)
        words = self._verdicts.alike(decided.alike)
        verdicts = self._verdicts.tell(now)
        return Plan(
            starts=starts,
            verdicts=verdicts,
            planned=self._verdicts.planned(now),
            words=words,
            wake_at=self._queue.next_wake(),
            complete=not decided.more and not len(self._verdicts),
        )

    def short_of_licenses(self, job_id: int) -> list[str]:
        """The partitions in which a waiting job is held up by nothing but licences, as far as the
        last pass looked; [] where it is not."""
        return list(dict.fromkeys(self._queue.row[key][1] for key in self._licenses.short(job_id)))

    @property
    def keeps(self) -> bool:
        """Whether the plan keeps something for a waiting job."""
        return self._verdicts.keeps

    def tell_settling(self, now: int, until: int) -> Plan:
        """A pass in which nothing may start, as nodes are expected back until then at the latest.
        Cost: ~1 us for each waiting job, once."""
        self._verdicts.settling()
        verdicts = self._verdicts.tell(now)
        return Plan(verdicts=verdicts, wake_at=until, complete=not len(self._verdicts))

    # ---- plans ------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Rows of the queue."""
        return len(self._core)

    def draft(self, now: int, rules: dict[str, Any]) -> Draft:
        """A copy on which a plan for the whole queue can be made, by the rules of Core.run_plan.
        Cost: a memcpy of the arrays."""
        self.changes = 0
        self.returned = False
        self._limits.refresh(now)
        copy = self._core.copy()
        # Nothing is kept for who waits for licences, or with a component that may not start.
        waiting, barred = self._licenses.blocked(now) if len(self._licenses) else ((), set())
        for key in (*waiting, *self._together.idle(now, barred)):
            copy.queue_update(key, held=1)
        return Draft(self, copy, now, rules)

    def adopt(self, draft: Draft) -> bool:
        """The live cluster takes over what a plan has kept for jobs that still wait; the next pass
        finds out what still fits. False if it was made for another one. Cost: jobs (some ns each)
        + reservations."""
        if draft.owner is not self or not draft.done:
            return False
        self._core.adopt_plan(draft.core)
        self._planned = True
        self.adopted += 1
        self._verdicts.reserved(self._core.reservations(), whole=True)
        return True

    def estimate(self, job_id: int) -> tuple[int, list[str]]:
        """(when a waiting job is expected to start, the nodes kept for it): without nodes it is the
        time before which it will not start; 0: not known. Cost: its rows and the reservations."""
        keys = [key for key in self._queue.keys(job_id) if key in self._queue.row]
        kept = [one for one in map(self._core.reservation, keys) if one is not None]
        if kept:
            first = min(kept, key=lambda one: one.at)
            return first.at, [self._nodes.names[share[0]] for share in first.placement.nodes]
        return min(filter(None, map(self._core.start_estimate, keys)), default=0), []

    def forecast(
        self,
        components: Sequence[tuple[Shape, Sequence[Way], int]],
        now: int,
        ends: dict[int, tuple[int, str]],
    ) -> tuple[int, list[tuple[str, list[NodeAlloc]]]] | None:
        """(when, partition and shares of each) of the first moment at which all components (shape,
        ways, limit in seconds) have room at once beside what reservations keep; None if the nodes
        that are up never have it. `ends`: job -> its end, 0 none, and its reservation. Nothing is
        changed. Cost: a copy of the cluster, and a placement per running job and reservation."""
        core = self._together.copy()
        times = self._windows.onto(core)
        running = []
        for job_id, key in self._allocations.held():
            held = self._core.allocation(key)
            cores = dict(self._core.allocation_cores(key))
            shares = [
                (node, cpus, mem, gpus, tasks, cores.get(node, ()))
                for node, cpus, tasks, mem, gpus in held
            ]
            end, within = ends.get(job_id, (0, ""))
            core.allocate(
                key,
                shares,
                adopt=True,
                reservation=self._windows.number(within),
                **self._core.allocation_terms(key),
            )
            running.append((key, end))
        free = TOGETHER if len(components) > 1 else BOUND
        wanted = [
            tuple(
                {
                    **self._requests.words(shape, name, free),
                    "reservation": self._windows.number(within),
                }
                for name, within in ways
            )
            for shape, ways, _ in components
        ]
        limits = [limit for _, _, limit in components]
        found = forecast.earliest(core, wanted, now, running, limits, times)
        if found is None:
            return None
        return found.at, [
            (components[i][1][choice][0], self._nodes.shares(placement))
            for i, (choice, placement) in enumerate(found.places)
        ]

    def check(self) -> None:
        """Recounts the core; AssertionError at the first contradiction. For the tests."""
        self._core.check()
        for i, name in enumerate(self._nodes.names):
            conf = self.config.nodes[name]
            busy = usable_cpus(conf) - self._nodes.free_cpus[i].bit_count()
            assert self.used(name)[0] == busy, f"{name}: {busy} CPU ids are in use"
