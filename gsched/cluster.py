"""The live cluster: names and records on one side, the core's numbers on the other.

The only owner of a core. Pure: it is told what changes and asked what fits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from gsched import _core, access, dependency, features, forecast, nodepolicy
from gsched.bits import bits, symmetric
from gsched.config import Config, NodeConfig
from gsched.cpuset import pick_cpus
from gsched.hostlist import compress
from gsched.licenses import LICENSES, LicenseError, Licenses
from gsched.licenses import parse as parse_licenses
from gsched.model import Hold, Job, Node, NodeAlloc, Phase, Placement, Plan, Shape, Verdict
from gsched.taskset import TaskSet
from gsched.together import Component, Row, Together

#: rows of the queue for the tasks of one array: so many of them may start in one pass
ARRAY_ROWS = 128

#: verdict codes of the core -> Slurm's reason word
_WORDS = {
    _core.UNTESTED: "None",
    _core.RESOURCES: "Resources",
    _core.PRIORITY: "Priority",
    _core.BEHIND: "Priority",
    _core.BEGIN: "BeginTime",
    _core.NODES_DOWN: (
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
        "partitions"
    ),
    _core.NEVER: "BadConstraints",
    _core.GROUP: "JobArrayTaskLimit",
    LICENSES: "Licenses",
}

#: request classes kept in the core's words: of 100,000 jobs most ask for what another asks for
REMEMBERED = 4096

#: verdicts told to the view per pass: the rest follow in the next one, so that a pass over a
#: long queue does not hold up the loop
VERDICTS_PER_PASS = 1000


class Cluster:
    """Nodes, partitions and the queue, bound to a core.

    Cost: constructing takes a few us per node; every other call is constant or says otherwise.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.names = list(config.nodes)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._core = _core.Core(max(1, len(self.names)))
        self._together = Together(self._core, len(self.names))
        self._licenses = Licenses(self._core, config.licenses)
        self._partition_bit = {name: bit for bit, name in enumerate(config.partitions)}
        self._feature_bit: dict[str, int] = {}
        self._type_id: dict[str, int] = {}
        self._partitions_of = self._partition_masks()
        self._partition_cpus = {
            name: sum(config.nodes[node].cpus for node in part.nodes)
            for name, part in config.partitions.items()
        }
        #: requests in the core's words, as this configuration has them
        self._wanted: dict[tuple[Shape, str], dict[str, Any]] = {}
        self._free_cpus: list[int] = []
        self._gpu_type: list[list[str]] = [[] for _ in self.names]
        self._gpu_cores: list[list[str]] = [[] for _ in self.names]
        #: links and NUMA domains as nodes report them -> the same as the core has them: a large
        #: cluster has few kinds of nodes
        self._wirings: dict[object, tuple[int, list[list[int]], list[int]]] = {}
        for conf in config.nodes.values():
            self._free_cpus.append((1 << conf.cpus) - 1)
            for feature in conf.features:
                self._feature_bit.setdefault(feature, len(self._feature_bit))
        #: rows of the queue: key -> (job id, partition); job id -> its keys
        self._row: dict[int, tuple[int, str]] = {}
        self._rows: dict[int, list[int]] = {}
        self._last_key = 0
        #: job id -> request classes it holds a reference to, one for each partition
        self._requests: dict[int, list[int]] = {}
        #: job id -> its time limit in seconds
        self._limit: dict[int, int] = {}
        #: job id -> key of its allocation in the core
        self._alloc_key: dict[int, int] = {}
        #: job id -> the nodes it names, for jobs in the queue that name any
        self._named: dict[int, tuple[str, ...]] = {}
        #: of those the ones that were told that a node is away: their row and verdict code
        self._away_said: dict[int, tuple[int, int]] = {}
        #: job id -> reason word while its rows are held
        self._parked: dict[int, str] = {}
        #: array id -> group in the core, for its throttle; groups that may be used again
        self._group: dict[int, int] = {}
        #: job id -> group of its rows where several partitions would each start it
        self._unit: dict[int, int] = {}
        self._groups = 0
        self._spare_groups: list[int] = []
        #: begin times to come
        self._begins: list[int] = []
        #: rows whose verdict changed and has not been told yet
        self._changed: dict[int, int] = {}

    def _partition_masks(self) -> list[int]:
        masks = [0] * len(self.names)
        for name, part in self.config.partitions.items():
            bit = 1 << self._partition_bit[name]
            for node in part.nodes:
                masks[self._index[node]] |= bit
        return masks

    # ---- nodes ------------------------------------------------------------------------------

    def node_changed(self, node: Node) -> None:
        """Takes a node's GPUs (as registered, else as configured) and its description over.
        It is unusable until `set_usable`, if it was so before."""
        i = self._index[node.name]
        conf = self.config.nodes[node.name]
        if node.gpus:
            types = [gpu.type for gpu in node.gpus]
            wiring = self._wiring([gpu.links for gpu in node.gpus], [g.numa for g in node.gpus])
            ok = sum(1 << bit for bit, gpu in enumerate(node.gpus) if not gpu.fault)
            self._gpu_cores[i] = [gpu.cores for gpu in node.gpus]
        else:
            types = [kind for kind, count in conf.gpu_types.items() for _ in range(count)]
            wiring = self._wiring([[] for _ in types], [-1] * len(types))
            ok = (1 << len(types)) - 1
            self._gpu_cores[i] = [""] * len(types)
        if node.no_gpus:
            ok = 0
        self._gpu_type[i] = types
        by_type: dict[int, int] = {}
        for bit, kind in enumerate(types):
            number = self._type_id.setdefault(kind, len(self._type_id))
            by_type[number] = by_type.get(number, 0) | 1 << bit
        cls, links, numa = wiring
        description: dict[str, Any] = {
            "cpus": conf.cpus,
            "mem_mb": conf.real_memory,
            "gpu_type_masks": tuple(by_type.items()),
            "gpu_ok_mask": ok,
            "partitions": self._partitions_of[i],
            "features": self._features(conf),
            "weight": conf.weight,
            "threads": conf.threads_per_core,
        }
        usable = self._core.node(i).usable and node.flags == 0
        self._core.set_node(i, cls=cls, usable=usable, **description)
        self._together.describe(i, cls, links, numa, description)

    def _wiring(
        self, rows: list[list[int]], numa: list[int]
    ) -> tuple[int, list[list[int]], list[int]]:
        """(class, links, NUMA domains) of a node with these links, none where a row is empty."""
        key = (tuple(map(tuple, rows)), tuple(numa))
        found = self._wirings.get(key)
        if found is None:
            links = symmetric([list(row) or [0] * len(rows) for row in rows])
            if len(self._wirings) >= REMEMBERED:
                self._wirings.clear()
            found = (self._core.define_class(links, numa), links, numa)
            self._wirings[key] = found
        return found

    def _features(self, conf: NodeConfig) -> int:
        return sum(1 << self._feature_bit[name] for name in set(conf.features))

    def set_usable(self, name: str, usable: bool) -> None:
        """Whether new work may go there."""
        self._core.set_usable(self._index[name], usable)
        self._together.usable_changed()
        for job_id, (key, code) in self._away_said.items():
            if name in self._named[job_id] and key in self._row:
                self._changed.setdefault(key, code)

    def used(self, name: str) -> tuple[int, int, int]:
        """(CPUs, MB, GPU bitmap) that jobs hold on a node."""
        i = self._index[name]
        conf = self.config.nodes[name]
        state = self._core.node(i)
        return conf.cpus - state.free_cpus, conf.real_memory - state.free_mem_mb, state.used_gpus

    # ---- requests ---------------------------------------------------------------------------

    def _request(self, shape: Shape, partition: str) -> int:
        """The core's request class for a shape in a partition. ValueError for what cannot be."""
        return int(self._core.request(**self._words(shape, partition)))

    def _words(self, shape: Shape, partition: str) -> dict[str, Any]:
        wanted = self._wanted.get((shape, partition))
        if wanted is None:
            wanted = self._translate(shape, partition)
            if len(self._wanted) >= REMEMBERED:
                self._wanted.clear()
            self._wanted[shape, partition] = wanted
        return wanted

    def _translate(self, shape: Shape, partition: str) -> dict[str, Any]:
        """The request in the core's words."""
        part = self.config.partitions[partition]
        include = [self._index[name] for name in shape.nodelist]
        min_nodes = max(1, shape.min_nodes, len(include), part.min_nodes)
        max_nodes = shape.max_nodes
        if max_nodes:
            max_nodes = max(max_nodes, min_nodes)
        per_node, per_task, total = shape.gpus_per_node, shape.gpus_per_task, shape.gpus_total
        if shape.gpus_per_socket and not per_node:
            per_node = shape.gpus_per_socket * max(1, shape.sockets_per_node)
        ntasks = shape.ntasks
        if total and per_node:
            # So many GPUs at so many a node is a number of nodes.
            min_nodes = max_nodes = max(min_nodes, -(-total // per_node))
            total = 0
        elif total and per_task:
            ntasks = ntasks or total // per_task
            total = 0
        if not ntasks and not shape.ntasks_per_node and per_task:
            ntasks = min_nodes
        gpus = per_node or per_task or total
        alternatives = [
            sum(1 << self._feature_bit.get(name, 255) for name in option)
            for option in features.parse(shape.features)
        ]
        kind = -1
        if shape.gpu_type:
            kind = self._type_id.setdefault(shape.gpu_type, len(self._type_id))
        return {
            "partition": self._partition_bit[partition],
            "features_any": tuple(alternatives),
            "min_nodes": min_nodes,
            "max_nodes": max_nodes,
            # Not a wish of the job: without -N it gets as few nodes as hold it.
            "cap_nodes": max(part.max_nodes, min_nodes) if part.max_nodes else 0,
            "ntasks": ntasks,
            "cpus_per_task": shape.cpus_per_task,
            "min_cpus_node": shape.min_cpus_node,
            "ntasks_per_node": shape.ntasks_per_node,
            "mem_per_node_mb": -1 if shape.mem_per_node is None else shape.mem_per_node,
            "mem_per_cpu_mb": shape.mem_per_cpu or 0,
            "mem_per_gpu_mb": (shape.mem_per_gpu or 0) if gpus else 0,
            "gpus_per_node": per_node,
            "gpus_per_task": per_task,
            "gpus_total": max(total, min_nodes) if total else 0,
            "cpus_per_gpu": shape.cpus_per_gpu if gpus else 0,
            "gpu_type": kind,
            "exclusive": shape.exclusive > 0 or part.oversubscribe == "EXCLUSIVE",
            "overcommit": shape.overcommit,
            "threads_per_core": shape.threads_per_core,
            "policy": nodepolicy.chosen(part, self.config),
            "nodelist": tuple(include),
            "exclude": tuple(self._index[n] for n in shape.exclude if n in self._index),
        }

    def never(self, shape: Shape, partitions: Sequence[str]) -> list[str] | None:
        """None if some partition could hold it with every node free and up, or if only its number
        of nodes or CPUs is beyond the partition (Slurm keeps those jobs waiting); else Slurm's
        remarks on why not. Cost: nodes, once per class and change of configuration."""
        notes: list[str] = []
        for partition in partitions:
            try:
                req = self._request(shape, partition)
            except ValueError:
                continue
            try:
                refusal = self._core.can_ever(req)
                if refusal is None or self._too_big(shape, partition):
                    return None
                for reason in refusal.reasons:
                    text = _NOTES.get(reason.what)
                    if reason.never and text and text not in notes:
                        notes.append(text)
            finally:
                self._core.drop_request(req)
        return notes

    def never_together(self, components: Sequence[tuple[Shape, Sequence[str]]]) -> bool:
        """Whether the empty cluster has no room for all components of a heterogeneous job at once.
        One that waits alone, being too large for its partition, is let pass as `never` does.
        Cost: as `never`."""
        for shape, partitions in components:
            if all(self._too_big(shape, partition) for partition in partitions):
                return False
        return self._together.never(
            [tuple(self._words(shape, name) for name in names) for shape, names in components]
        )

    def _too_big(self, shape: Shape, partition: str) -> bool:
        """Whether only the number of nodes or CPUs is too much: one node's share would fit."""
        part = self.config.partitions[partition]
        cpus = self._partition_cpus[partition]
        tasks = max(shape.ntasks, shape.min_nodes * max(1, shape.ntasks_per_node))
        most = min(len(part.nodes), part.max_nodes or len(part.nodes))
        if shape.min_nodes <= most and tasks * shape.cpus_per_task <= cpus:
            return False
        one = Shape(
            **{
                name: getattr(shape, name)
                for name in shape.__struct_fields__
                if name not in ("min_nodes", "max_nodes", "ntasks", "gpus_total")
            },
            min_nodes=1,
            ntasks=min(1, shape.ntasks),
        )
        req = self._request(one, partition)
        try:
            return self._core.can_ever(req) is None
        finally:
            self._core.drop_request(req)

    # ---- the queue --------------------------------------------------------------------------

    def queue_job(self, job: Job) -> None:
        """Puts a pending job into the queue, or anew after it changed. An array that is still
        together has a row for each of its next tasks. Cost: its rows."""
        self.unqueue(job.id)
        tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
        rows: list[int] = []
        places: list[Row] = []
        requests: list[int] = []
        parked = ""
        partitions = job.spec.partitions or (job.partition,)
        unit = -1
        if len(partitions) > 1:
            # A pass may find room for it in each of them: it starts once.
            unit = self._unit[job.id] = self._new_group(tasks)
        for partition in partitions:
            try:
                req = self._request(job.spec.shape, partition)
            except (ValueError, KeyError):
                # The configuration changed under the job: it waits, and says why.
                req = int(self._core.request())
                why, tier = "BadConstraints", 0
            else:
                why = self._why_parked(job, partition)
                tier = self.config.partitions[partition].priority_tier
            requests.append(req)
            if not rows:
                parked = why
            for _ in range(1 if why else min(tasks, ARRAY_ROWS)):
                self._last_key += 1
                key = self._last_key
                place = (tier * (1 << 40) + job.priority, job.id, job.time_limit, job.spec.begin)
                self._core.queue_add(
                    key,
                    req,
                    *place,
                    held=1 if why else 0,
                    group=self._group.get(job.array_job_id, -1) if job.array_job_id else -1,
                    unit=unit,
                )
                self._row[key] = (job.id, partition)
                rows.append(key)
                if job.het_job_id:
                    places.append(Row(key, req, place, unit))
        if parked:
            self._parked[job.id] = parked
            self._changed[rows[0]] = _core.HELD
        if job.spec.shape.nodelist:
            self._named[job.id] = job.spec.shape.nodelist
        if job.spec.begin:
            heapq.heappush(self._begins, job.spec.begin)
        self._rows[job.id] = rows
        self._limit[job.id] = job.time_limit
        self._requests[job.id] = requests
        if job.het_job_id:
            wanted = () if parked else tuple(self._words(job.spec.shape, p) for p in partitions)
            component = Component(job.id, places, parked, wanted)
            self._together.add(job.het_job_id, job.het_size, component)
        if job.spec.licenses and not parked:
            self._queue_licenses(job, rows)

    def _queue_licenses(self, job: Job, rows: list[int]) -> None:
        try:
            choices = parse_licenses(job.spec.licenses)
        except LicenseError:
            return
        by_partition: dict[str, list[int]] = {}
        for key in rows:
            by_partition.setdefault(self._row[key][1], []).append(key)
        row_lists = list(by_partition.values())
        self._licenses.add(job.id, choices, row_lists, job.priority, job.spec.begin)

    def _why_parked(self, job: Job, partition: str) -> str:
        if job.held:
            if job.reason:
                return job.reason
            return "JobHeldUser" if job.held == Hold.USER else "JobHeldAdmin"
        if job.deps:
            return "DependencyNeverSatisfied" if dependency.failed(job.deps) else "Dependency"
        part = self.config.partitions[partition]
        if part.state == "DOWN":
            return "PartitionDown"
        if part.state == "INACTIVE":
            return "PartitionInactive"
        if part.max_time and (not job.time_limit or job.time_limit > part.max_time):
            return "PartitionTimeLimit"
        if self._too_big(job.spec.shape, partition):
            return "PartitionConfig"
        return access.barred(part, job.spec)

    def unqueue(self, job_id: int) -> None:
        """Takes a job out of the queue, if it is there."""
        for key in self._rows.pop(job_id, ()):
            self._changed.pop(key, None)
            # A row that was started has left the core's queue and this table already.
            if self._row.pop(key, None) is not None:
                self._core.queue_remove(key)
        self._parked.pop(job_id, None)
        self._named.pop(job_id, None)
        self._away_said.pop(job_id, None)
        self._together.remove(job_id)
        self._licenses.remove(job_id)
        self._limit.pop(job_id, None)
        for req in self._requests.pop(job_id, ()):
            self._core.drop_request(req)
        unit = self._unit.pop(job_id, -1)
        if unit >= 0:
            self._spare_groups.append(unit)

    def queued(self, job_id: int) -> bool:
        return job_id in self._rows

    def set_throttle(self, array_id: int, left: int | None) -> None:
        """How many tasks of an array may still start; None: any number. Its jobs must be queued
        anew when that begins or ends to be limited."""
        group = self._group.get(array_id)
        if left is None:
            if group is not None:
                del self._group[array_id]
                self._spare_groups.append(group)
            return
        if group is None:
            self._group[array_id] = self._new_group(left)
        else:
            self._core.set_group(group, left)

    def _new_group(self, left: int) -> int:
        if self._spare_groups:
            group = self._spare_groups.pop()
        else:
            group = self._groups
            self._groups += 1
        self._core.set_group(group, left)
        return group

    def due(self, now: int) -> bool:
        """Whether a begin time has come since the last call."""
        due = False
        while self._begins and self._begins[0] <= now:
            heapq.heappop(self._begins)
            due = True
        return due

    # ---- allocations ------------------------------------------------------------------------

    def restore(self, job: Job) -> None:
        """Takes over what a loaded job holds, as it is recorded."""
        open_parts = [p for p in job.alloc if p.phase < Phase.RELEASED and p.node in self._index]
        self._last_key += 1
        key = self._last_key
        self._core.allocate(
            key,
            [(self._index[p.node], p.cpus, p.mem_mb, p.gpus, p.tasks) for p in open_parts],
            job.end_time if not job.finished else 0,
            adopt=True,
        )
        self._alloc_key[job.id] = key
        for part in open_parts:
            self._free_cpus[self._index[part.node]] &= ~part.cpu_ids
        self._licenses.take(job.id, job.licenses_alloc)

    def take_licenses(self, job: Job) -> str:
        """Those that a job which starts holds until `release`."""
        return self._licenses.take(job.id, job.spec.licenses)

    def assign_cpus(self, job: Job, alloc: Iterable[NodeAlloc]) -> None:
        """Chooses the CPUs for shares that the core has set aside by number."""
        for part in alloc:
            i = self._index[part.node]
            cores = [self._gpu_cores[i][b] for b in bits(part.gpus) if b < len(self._gpu_cores[i])]
            conf = self.config.nodes[part.node]
            part.cpu_ids = pick_cpus(
                self._free_cpus[i], part.cpus, conf.cpus, conf.sockets, conf.threads_per_core, cores
            )
            self._free_cpus[i] &= ~part.cpu_ids

    def release_node(self, job_id: int, part: NodeAlloc) -> None:
        """One node of an allocation is free again."""
        key = self._alloc_key.get(job_id)
        if key is None:
            return
        i = self._index[part.node]
        self._core.release_node(key, i)
        self._free_cpus[i] |= part.cpu_ids
        if not self._core.allocation(key):
            del self._alloc_key[job_id]

    def bind(self, job_id: int, key: int) -> None:
        """What a pass has set aside under `key` is the job's from now on."""
        self._alloc_key[job_id] = key

    def give_back(self, key: int) -> None:
        """What a pass has set aside under `key` is not wanted."""
        self._core.release(key)

    def release(self, job_id: int) -> None:
        """Nothing is held for the job any more (its shares were released one by one before)."""
        self._licenses.give(job_id)
        key = self._alloc_key.pop(job_id, None)
        if key is not None and self._core.allocation(key):
            self._core.release(key)

    def set_end(self, job: Job) -> None:
        """A running job's expected end has changed."""
        key = self._alloc_key.get(job.id)
        if key is not None:
            self._core.set_end(key, job.end_time)

    def gpu_types(self, alloc: Iterable[NodeAlloc]) -> dict[str, int]:
        """GPUs of an allocation by type."""
        found: dict[str, int] = {}
        for part in alloc:
            types = self._gpu_type[self._index[part.node]]
            for bit in bits(part.gpus):
                found[types[bit]] = found.get(types[bit], 0) + 1
        return found

    # ---- decisions --------------------------------------------------------------------------

    def schedule(self, now: int, max_starts: int, max_test: int = 0) -> Plan:
        """One pass: what starts now (already set aside under each job), and which verdicts
        changed. Cost: see Core.schedule, and ~1 us for each start and changed verdict."""
        queue = self._together if len(self._together) else self._core
        if len(self._licenses):
            blocked = self._licenses.blocked(now)
            self._together.barred = blocked[1]
            decided = self._licenses.schedule(queue, blocked, now, max_starts, max_test)
        else:
            self._together.barred = set()
            decided = queue.schedule(now, max_starts, max_test)
        starts: list[Placement] = []
        for start in decided.starts:
            job_id, partition = self._row.pop(start.key)
            starts.append(Placement(job_id, partition, self._shares(start.placement), start.key))
        for key, code in decided.changed:
            if code != _core.STARTED:
                self._changed[key] = code
        estimates = {r.key: r for r in decided.reservations}
        verdicts = self._tell(estimates, now)
        return Plan(
            starts=starts,
            verdicts=verdicts,
            wake_at=self._begins[0] if self._begins else 0,
            complete=not decided.more and not self._changed,
        )

    def forecast(
        self, components: Sequence[tuple[Shape, Sequence[str]]], now: int, ends: dict[int, int]
    ) -> tuple[int, list[tuple[str, list[NodeAlloc]]]] | None:
        """(when, partition and shares of each) of the first moment at which all components have
        room at once; None if the nodes that are up never have it. `ends`: job -> its end, 0 none.
        Nothing is changed. Cost: a copy of the cluster, and a placement per running job."""
        core = self._together.copy()
        running = []
        for job_id, key in self._alloc_key.items():
            held = self._core.allocation(key)
            shares = [(node, cpus, mem, gpus, tasks) for node, cpus, tasks, mem, gpus in held]
            core.allocate(key, shares, adopt=True)
            running.append((key, ends.get(job_id, 0)))
        wanted = [tuple(self._words(shape, name) for name in names) for shape, names in components]
        found = forecast.earliest(core, wanted, now, running)
        if found is None:
            return None
        return found.at, [
            (components[i][1][choice], self._shares(placement))
            for i, (choice, placement) in enumerate(found.places)
        ]

    def _shares(self, placement: _core.Placement) -> list[NodeAlloc]:
        return [
            NodeAlloc(self.names[node], cpus, tasks, mem, gpus)
            for node, cpus, tasks, mem, gpus in placement.nodes
        ]

    def _tell(self, estimates: dict[int, Any], now: int) -> list[Verdict]:
        verdicts = []
        # Reservations move at every pass: they are told anew each time.
        for key in estimates:
            self._changed[key] = _core.RESOURCES
        for key in list(self._changed)[:VERDICTS_PER_PASS]:
            code = self._changed.pop(key)
            row = self._row.get(key)
            if row is None or self._first_row(row[0]) != key:
                continue
            job_id = row[0]
            word = self._parked.get(job_id) or _WORDS.get(code, "None")
            verdict = Verdict(job_id, word)
            kept = estimates.get(key)
            if kept is not None and kept.at >= 0:
                verdict.start = kept.at
                verdict.nodes = ",".join(self.names[share[0]] for share in kept.placement.nodes)
            if code in (_core.RESOURCES, _core.NODES_DOWN, _core.NEVER):
                verdict.causes = self._causes(job_id, now)
                away = self._named_away(job_id) if code != _core.NEVER else ""
                if away:
                    verdict.reason = f"ReqNodeNotAvail, UnavailableNodes:{away}"
                    self._away_said[job_id] = key, code
            verdicts.append(verdict)
        return verdicts

    def _first_row(self, job_id: int) -> int:
        """The row that speaks for the job: the first that has not been started."""
        return next((key for key in self._rows[job_id] if key in self._row), 0)

    def _named_away(self, job_id: int) -> str:
        """The nodes that a job names and that take no work now, as a host list; "" none."""
        names = self._named.get(job_id, ())
        indexes = [self._index[name] for name in names if name in self._index]
        away = [self.names[i] for i in indexes if not self._core.node(i).usable]
        return compress(away) if away else ""

    def _causes(self, job_id: int, now: int) -> list[tuple[str, int, bool]]:
        refusal = self._core.place(self._requests[job_id][0], now, self._limit[job_id])
        if not isinstance(refusal, _core.Refusal):
            return []
        return [(reason.what, reason.nodes, reason.never) for reason in refusal.reasons]

    def check(self) -> None:
        """Recounts the core; AssertionError at the first contradiction. For the tests."""
        self._core.check()
        for i, name in enumerate(self.names):
            conf = self.config.nodes[name]
            busy = conf.cpus - self._free_cpus[i].bit_count()
            assert self.used(name)[0] == busy, f"{name}: {busy} CPU ids are in use"


#: what a configuration lacks for good -> Slurm's remark at submission
_NOTES = {
    "cpus": "CPU count per node can not be satisfied",
    "memory": "Memory specification can not be satisfied",
}
