"""Questions to the live cluster: why a request has no room, and what would. Nothing is changed.

Every answer is of the last pass: reservations are those that it made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gsched import _core
from gsched.cluster.nodes import Nodes
from gsched.cluster.queue import Queue
from gsched.cluster.requests import TOGETHER, Requests
from gsched.cluster.windows import GUARD, Windows
from gsched.forecast import place_all
from gsched.hostlist import compress
from gsched.model import Job, Shape
from gsched.model.reservation import ReservedNode
from gsched.model.why import Kept, Lack, Place, Start

#: names of nodes that are told of those that lack something
MOST_NAMES = 256
YEAR = 365 * 86400

_BITS = {what: 1 << bit for bit, what in enumerate(_core.LACKS)}
#: nodes that a request does not speak of
_OUTSIDE = _BITS["partition", True]
_OTHERS = _OUTSIDE | _BITS["excluded", True] | _BITS["features", True]
_RESERVED = _BITS["reserved", False]
_WINDOW = _BITS["reservation", False]

#: a partition, and an advance reservation ("" none), in which a job may start
Way = tuple[str, str]


class Planned:
    """A reservation of the last pass, by names."""

    __slots__ = ("at", "job_id", "nodes", "until")

    def __init__(self, job_id: int, at: int, until: int, nodes: list[str]) -> None:
        self.job_id, self.at, self.until, self.nodes = job_id, at, until, nodes


class WhatIf:
    """The cluster's answers to requests that nobody has made."""

    def __init__(
        self,
        nodes: Nodes,
        requests: Requests,
        queue: Queue,
        core: _core.Core,
        windows: Windows,
    ) -> None:
        self._nodes = nodes
        self._requests = requests
        self._queue = queue
        self._core = core
        self.windows = windows

    # ---- would it start ------------------------------------------------------------------------

    def nodes_for(
        self,
        shape: Shape,
        partition: str,
        limit: int,
        now: int,
        *,
        at: int = 0,
        job_id: int = 0,
        planned: bool = True,
        switches: bool = True,
        within: str = "",
    ) -> str | None:
        """The nodes (host list) that a request would get now, or at a later time, beside the
        plans for all but `job_id` (or as if there were none); None: it does not fit. `limit`:
        seconds, 0 none; switches: on as few as `job_id` waits for; within: in that advance
        reservation. Cost: as Core.what_if."""
        few = self._queue.switches(job_id)[0] if switches else 0
        try:
            req = self._requests.acquire(shape, partition, few, self.windows.number(within))
        except (ValueError, KeyError):
            return None
        try:
            found = self._core.what_if(
                req, now, limit if planned else -1, at=at, without=self._queue.keys(job_id)
            )
        finally:
            self._core.drop_request(req)
        return None if found is None else self._host_list(row[0] for row in found.nodes)

    def together(self, wanted: Sequence[tuple[Shape, Sequence[Way]]], now: int) -> bool:
        """Whether all of these have room at once in what is free, each in one of its ways. Cost:
        a placement each."""
        requests: list[list[int]] = []
        try:
            for shape, ways in wanted:
                numbers = [(name, self.windows.number(within)) for name, within in ways]
                requests.append(
                    [
                        self._requests.acquire(shape, name, 0, number, TOGETHER)
                        for name, number in numbers
                    ]
                )
            return place_all(self._core, requests, now) is not None
        except (ValueError, KeyError):
            return False
        finally:
            for choices in requests:
                for req in choices:
                    self._core.drop_request(req)

    # ---- why not -------------------------------------------------------------------------------

    def place(
        self, job: Job, shape: Shape, way: Way, limit: int, now: int, at: int = 0
    ) -> tuple[Place, list[Planned]]:
        """How a partition (and a reservation) answers a request, and whose plans a start would
        disturb. Cost: nodes, and the plans; at a later time the shares of running jobs too."""
        partition, within = way
        part = self._nodes.config.partitions[partition]
        place = Place(partition, len(part.nodes), needed=max(1, shape.min_nodes))
        place.reservation = within
        place.gpu_type, place.features = shape.gpu_type, shape.features
        place.gres = ",".join(
            ":".join(filter(None, (name, kind, str(count)))) for name, kind, count in shape.counted
        )
        if shape.share:
            place.share = f"{shape.share}:{shape.share_count}"
        try:
            words = self._requests.words(shape, partition)
            switches = self._queue.switches(job.id)[0]
            req = self._requests.acquire(shape, partition, switches, self.windows.number(within))
        except (ValueError, KeyError):
            place.never = True
            return place, []
        try:
            return place, self._answer(place, words, req, job, limit, now, at)
        finally:
            self._core.drop_request(req)

    def _answer(
        self, place: Place, words: dict[str, Any], req: int, job: Job, limit: int, now: int, at: int
    ) -> list[Planned]:
        own = self._queue.keys(job.id)
        survey = self._core.survey(req, now, limit, at=at, without=own)
        lacks = memoryview(survey.lacks).cast("I")
        place.alone = "node" if words["exclusive"] else "user" if words["owner"] >= 0 else ""
        place.needed = max(words["min_nodes"], len(words["nodelist"]))
        place.tasks, place.cpus, place.gpus = survey.need
        place.mem_mb = _memory(words, place)
        gpus_of = _gpus_of(words)
        place.gpus_wanted = max(
            place.needed * place.gpus,
            gpus_of("gpus_total"),
            words["ntasks"] * gpus_of("gpus_per_task"),
        )
        place.cpus_wanted = max(
            place.needed * place.cpus, words["ntasks"] * max(1, words["cpus_per_task"])
        )
        place.gpus_free = sum(
            count for lack, count in zip(lacks, survey.gpus, strict=True) if not lack & _OTHERS
        )
        counts = Counter(lacks)
        place.suited = counts.pop(0, 0)
        place.lacks = [
            self._lack(what, never, lacks, survey.gpus, counts)
            for (what, never) in _core.LACKS
            if what != "partition" and any(mask & _BITS[what, never] for mask in counts)
        ]
        if words["nodelist"]:
            self._of_named(place, words["nodelist"], lacks)
        if place.reservation:
            place.within = self._within(place)
        place.never = not self._ever(req, words, job)
        room = self._core.what_if(req, now, -1, at=at)
        place.room = room is not None
        if room is None and place.suited >= place.needed and at <= now:
            place.lacks += self._apart(req)
        start = self._core.what_if(req, now, limit, at=at, without=own)
        place.starts = start is not None
        if start is not None:
            place.on = self._host_list(row[0] for row in start.nodes)
        begin = max(now, at)
        if start is None and any(mask & _WINDOW for mask in counts):
            self._keep(place, lacks, begin, limit)
            if room is not None:
                # Is it in the way of a reservation, whatever is planned?
                plans = [one.key for one in self._core.reservations()]
                alone = self._core.what_if(req, now, limit, at=at, without=plans)
                place.windowed = alone is None
        if room is None or start is not None or place.windowed:
            return []
        touched = {row[0] for row in room.nodes}
        touched |= {i for i, mask in enumerate(lacks) if mask & _RESERVED}
        end = begin + (limit or YEAR)
        mine = set(own)
        return [
            planned
            for key, planned in self._planned()
            if key not in mine
            and planned.at < end
            and planned.until > begin
            and not touched.isdisjoint(self._nodes.index[name] for name in planned.nodes)
        ]

    def _of_named(self, place: Place, named: Sequence[int], lacks: memoryview[int]) -> None:
        """The nodes that a job names, and what those of them lack that have no room."""
        place.named = self._host_list(named)
        for what, never in _core.LACKS:
            found = [i for i in named if lacks[i] & _BITS[what, never]]
            if found:
                names = self._host_list(found)
                place.named_lacks.append(Lack(what, never, len(found), names=names))

    def _within(self, place: Place) -> Kept | None:
        """What the reservation keeps in which the job would start."""
        resv = self.windows.known(place.reservation)
        if resv is None:
            return None
        kept = Kept(resv.name, resv.start, resv.end, len(resv.nodes), maintenance=resv.maintenance)
        kept.nodes = compress([share.node for share in resv.nodes])
        kept.whole = resv.whole
        kept.gpus = self._gpus_kept(resv.nodes)
        kept.cpus = 0 if resv.whole else sum(max(share.cpus, 0) for share in resv.nodes)
        return kept

    def _gpus_kept(self, shares: Iterable[ReservedNode]) -> int:
        """GPUs that these shares of reservations keep."""
        confs = self._nodes.config.nodes
        return sum(
            confs[share.node].gpus if share.cpus < 0 else share.gpus.bit_count()
            for share in shares
            if share.node in confs
        )

    def _keep(self, place: Place, lacks: memoryview[int], at: int, limit: int) -> None:
        """The reservations that are in the way, with what they keep of these nodes."""
        index = self._nodes.index
        for resv, start, end in self.windows.meets(place.reservation, at, limit):
            shares = [
                share
                for share in resv.nodes
                if share.node in index and lacks[index[share.node]] & _WINDOW
            ]
            if not shares:
                continue
            kept = Kept(resv.name, start, end, len(shares), maintenance=resv.maintenance)
            kept.nodes = compress([share.node for share in shares])
            kept.whole = all(share.cpus < 0 for share in shares)
            kept.gpus = self._gpus_kept(shares)
            place.kept.append(kept)

    def _ever(self, req: int, words: dict[str, Any], job: Job) -> bool:
        """Whether the empty cluster could hold it; few switches are not asked for ever."""
        if self._queue.switches(job.id)[0]:
            req = self._core.request(**words)
            ever = self._core.can_ever(req) is None
            self._core.drop_request(req)
            return ever
        return self._core.can_ever(req) is None

    def _apart(self, req: int) -> list[Lack]:
        """Nodes that have room one by one, but lie apart."""
        answer = self._core.place(req)
        if not isinstance(answer, _core.Refusal):
            return []
        return [
            Lack(reason.what, reason.never, reason.nodes)
            for reason in answer.reasons
            if reason.what in ("switch", "block", "contiguous")
        ]

    def _lack(
        self,
        what: str,
        never: bool,
        lacks: memoryview[int],
        gpus: bytes,
        counts: Counter[int],
    ) -> Lack:
        bit = _BITS[what, never]
        lack = Lack(what, never, 0)
        lack.nodes = sum(count for mask, count in counts.items() if mask & bit)
        lack.alone = counts.get(bit, 0)
        found = [i for i, mask in enumerate(lacks) if mask & bit]
        lack.names = self._host_list(found[:MOST_NAMES])
        lack.gpus = sum(gpus[i] for i in found)
        return lack

    def _planned(self) -> list[tuple[int, Planned]]:
        """The reservations of waiting jobs, by the keys of their rows, first things first."""
        found = []
        for one in self._core.reservations():
            row = self._queue.row.get(one.key)
            if row is not None and one.at >= 0:
                names = [self._nodes.names[share[0]] for share in one.placement.nodes]
                found.append((one.key, Planned(row[0], one.at, one.until, names)))
        return sorted(found, key=lambda item: (item[1].at, item[1].job_id))

    def possible(self, shape: Shape, partition: str, within: str = "") -> bool:
        """Whether it would fit if no job ran: False where nodes or GPUs out of use are missing.
        Cost: nodes, once per change."""
        try:
            req = self._requests.acquire(shape, partition, 0, self.windows.number(within))
        except (ValueError, KeyError):
            return False
        try:
            return self._core.possible(req)
        finally:
            self._core.drop_request(req)

    # ---- when ----------------------------------------------------------------------------------

    def start(self, job: Job, partitions: Iterable[str], now: int) -> Start:
        """When a job in the queue is expected to start, as far as resources go. Cost: jobs (a few
        ns each); where no plan speaks of it, a search for the first room."""
        own = set(self._queue.keys(job.id))
        kept = [planned for key, planned in self._planned() if key in own]
        if kept:
            return Start(kept[0].at, "planned", compress(kept[0].nodes))
        known = [time for time in map(self._core.start_estimate, own) if time]
        if known:
            return Start(max(min(known), now), "not_before")
        found = []
        switches, end = self._queue.switches(job.id)
        for partition, within in ((name, way) for name in partitions for way in self.ways(job)):
            number = self.windows.number(within)
            # On few switches as long as it waits for them, then on any number.
            for few, least in {(switches, now), (0, end)}:
                try:
                    req = self._requests.acquire(job.spec.shape, partition, few, number)
                except (ValueError, KeyError):
                    continue
                try:
                    at = self._core.earliest(req, now, job.time_limit, without=own)
                finally:
                    self._core.drop_request(req)
                if at:
                    found.append(max(at, least))
        return Start(min(found), "earliest") if found else Start()

    def ahead(self, job_id: int) -> tuple[int, int]:
        """(how many jobs, or tasks of arrays that may be next, come first in its partitions and
        could start; the first of them that waits for room, or 0). Cost: jobs, some ns each."""
        jobs, first = 0, 0
        for key in self._queue.leads(job_id):
            rows, head = self._core.ahead(key)
            jobs += rows
            if not first and head in self._queue.row:
                first = self._queue.row[head][0]
        return jobs, first if first != job_id else 0

    def ways(self, job: Job) -> list[str]:
        """The reservations in which a job may start, in order; "" is outside of all."""
        # In an account's units, or as borrowed work: to the user that is outside of all.
        ways = ("" if way.startswith(GUARD) else way for way in self.windows.ways(job))
        return list(dict.fromkeys(ways))

    def switches(self, job_id: int) -> tuple[int, int]:
        """(leaf switches it has to lie on, until when it waits for them); (0, 0): any number."""
        return self._queue.switches(job_id)

    # ---- names ---------------------------------------------------------------------------------

    def barred(self, job: Job, partition: str) -> str:
        """Slurm's reason why a job takes no part in passes for a partition; "" it does."""
        return self._queue.why_parked(job, partition)

    def _host_list(self, nodes: Iterable[int]) -> str:
        return compress([self._nodes.names[i] for i in nodes])


def _gpus_of(words: dict[str, Any]) -> Any:
    return lambda name: int(words.get(name) or 0)


def _memory(words: dict[str, Any], place: Place) -> int:
    """MB that each node has to give; 0: none asked, or all it has."""
    if words["mem_per_node_mb"] >= 0:
        return int(words["mem_per_node_mb"])
    return int(words["mem_per_cpu_mb"] * place.cpus + words["mem_per_gpu_mb"] * place.gpus)
