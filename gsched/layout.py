"""Where the tasks of a step run: its nodes out of the job's, its share of each, and each task's
own CPUs and GPUs.

Pure: the same answer for the same question. The rules and sentences are srun's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gsched.config import Config
from gsched.cpuset import pick_cpus
from gsched.distribution import Distribution, arbitrary, distribute, parse_distribution
from gsched.errors import message
from gsched.model import Job, NodeAlloc, StepNode
from gsched.model.step import StepSpec
from gsched.multiprog import MultiProgError, multi_prog
from gsched.taskbind import GpuBind, StepGpus, gpu_bind_of, lowest, task_gpus, tres_per_task
from gsched.taskcpus import OutsideError, task_cpus

#: more tasks than any node takes
_MANY = 1 << 20


class Busy(Exception):
    """The step fits into the job, but not beside the steps that run now; the text is Slurm's."""

    def __init__(self) -> None:
        super().__init__(message("ESLURM_NODES_BUSY"))


class StepRefused(Exception):
    """The step will never fit into the job. The text is srun's, without its name in front: a line
    for each sentence."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        #: Slurm's symbolic name, "" where the sentence has none
        self.code = code


@dataclass(slots=True)
class Planned:
    """A step's place."""

    nodes: list[StepNode]
    ntasks: int
    cpus_per_task: int
    #: sentences that srun says after "warning: ", and those after "error: " although it goes on
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: for each node, each task's own CPUs (abstract numbers) as a list "0-3,8"; [] not bound
    task_cpus: list[list[str]] = field(default_factory=list)
    #: for each node, the bits of each task's own GPUs; [] all that the step has there
    task_gpus: list[list[int]] = field(default_factory=list)
    #: as in SLURM_DISTRIBUTION
    layout: str = "block"


def plan_step(spec: StepSpec, job: Job, held: Sequence[NodeAlloc], config: Config) -> Planned:
    """Places a step in its job.

    `held[i]` is what running steps that share nothing hold of `job.alloc[i]`. Raises Busy when it
    fits once they end, StepRefused when it never will. Cost: nodes of the job and tasks of the
    step.
    """
    return _Plan(spec, job, held, config).place()


def refused(job: Job, code: str, *before: str) -> StepRefused:
    """The answer to a step that cannot be made, after other sentences."""
    text = f"Unable to create step for job {job.het_job_id or job.id}: {message(code)}"
    return StepRefused("\n".join([*(f"error: {line}" for line in before), f"error: {text}"]), code)


@dataclass(slots=True)
class _Here:
    """A node of the job, as a step sees it."""

    index: int
    alloc: NodeAlloc
    #: not held by others; with --overlap all that the job has
    cpus: int
    cpu_ids: int
    gpus: int
    mem_mb: int
    #: nobody has anything of it
    idle: bool


class _Plan:
    def __init__(self, spec: StepSpec, job: Job, held: Sequence[NodeAlloc], config: Config) -> None:
        self.spec, self.job, self.config = spec, job, config
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.gpus = StepGpus.of(spec)
        self.nodes = [
            self._here(index, part, held[index] if index < len(held) else None)
            for index, part in enumerate(job.alloc)
        ]
        self.counts_memory = any("MEMORY" in item for item in config.select_type_parameters)
        self.how = self._distribution()
        self.bind = self._gpu_bind()
        own_cpus = spec.cpus_per_task or tres_per_task(spec.tres_per_task).get("cpu", 0)
        self.cpus_per_task = own_cpus or 1
        self.cpus_named = own_cpus > 0
        #: the step gets what it asks for and no more
        self.exact = (spec.exact or spec.exclusive or self.cpus_named) and not spec.whole

    def _here(self, index: int, part: NodeAlloc, taken: NodeAlloc | None) -> _Here:
        idle = taken is None or not (taken.cpus or taken.gpus or taken.tasks or taken.mem_mb)
        if taken is None or self.spec.overlap:
            taken = NodeAlloc(part.node, 0, 0, 0)
        ids = part.cpu_ids & ~taken.cpu_ids
        return _Here(
            index=index,
            alloc=part,
            cpus=ids.bit_count() if part.cpu_words else max(0, part.cpus - taken.cpus),
            cpu_ids=ids,
            gpus=self.gpus.usable(part, part.gpus & ~taken.gpus, self.config),
            mem_mb=max(0, part.mem_mb - taken.mem_mb),
            idle=idle,
        )

    def _distribution(self) -> Distribution:
        try:
            how = parse_distribution(self.spec.distribution)
        except ValueError:
            raise StepRefused("error: Invalid --distribution specification") from None
        if how.pack is None and "CR_PACK_NODES" in self.config.select_type_parameters:
            how = msgspec.structs.replace(how, pack=True)
        return how

    def _gpu_bind(self) -> GpuBind:
        try:
            return gpu_bind_of(self.spec)
        except ValueError:
            raise StepRefused(f"error: Invalid --gpu-bind argument: {self.spec.gpu_bind}") from None

    # -- how many

    def _counts(self) -> tuple[int, int, int]:
        """Tasks (0: what fits), and the least and most nodes."""
        spec = self.spec
        least, most = spec.min_nodes, max(spec.max_nodes, spec.min_nodes)
        if not least:
            least, most = 1, len(self.job.alloc)
        ntasks = spec.ntasks
        if not ntasks and self.how.nodes == "arbitrary" and spec.nodelist:
            ntasks = len(spec.nodelist)
        if not ntasks and spec.ntasks_per_gpu:
            ntasks = spec.ntasks_per_gpu * self._gpus_in_all(most)
        if ntasks and spec.min_nodes and ntasks < least:
            self.warnings.append(
                f"can't run {ntasks} processes on {least} nodes, setting nnodes to {ntasks}"
            )
            least = most = ntasks
        if ntasks:
            most = min(most, ntasks)
        return ntasks, least, most

    def _gpus_in_all(self, nodes: int) -> int:
        if self.gpus.total:
            return self.gpus.total
        if self.gpus.per_node:
            return self.gpus.per_node * nodes
        return sum(node.alloc.gpus.bit_count() for node in self.nodes[:nodes])

    def _required(self, candidates: list[_Here], least: int, most: int) -> list[str]:
        """The nodes that it must have. Refuses what the node options can never mean."""
        spec, job = self.spec, self.job
        there = len(job.alloc)
        if any(name not in self.config.nodes for name in spec.exclude):
            raise refused(job, "ESLURM_INVALID_NODE_NAME")
        if least > there:
            raise StepRefused(f"error: Only allocated {there} nodes asked for {least}")
        if spec.relative >= 0 and spec.relative + least > there:
            option = "SLURM_JOB_NUM_NODES" if least == there else "--nodes"
            raise StepRefused(
                f"error: --relative and {option} option incompatible with count of allocated "
                f"nodes ({spec.relative}+{least}>{there})"
            )
        if not candidates:
            raise StepRefused("error: Hostlist is empty!  Can't run job.")
        if least > len(candidates):
            raise StepRefused(
                f"error: Only allocated {len(candidates)} nodes asked for {least}\n"
                "error: Are required nodes explicitly excluded?"
            )
        names = list(dict.fromkeys(spec.nodelist))
        mine = {node.alloc.node for node in candidates}
        if any(name not in mine for name in names):
            raise self._too_many(True)
        if self.how.nodes != "arbitrary" and len(names) > most:
            self.notes.append(
                "Required nodelist includes more nodes than permitted by max-node count "
                f"({len(names)} > {most}). Eliminating nodes from the nodelist."
            )
            names = names[:most]
        return names

    # -- the place

    def place(self) -> Planned:
        """The answer; see plan_step."""
        spec = self.spec
        ntasks, least, most = self._counts()
        without = set(spec.exclude)
        candidates = [node for node in self.nodes if node.alloc.node not in without]
        candidates = candidates[max(0, spec.relative) :]
        required = self._required(candidates, least, most)
        if self.how.nodes == "arbitrary" and required:
            chosen, tasks = self._arbitrary(candidates, ntasks)
        else:
            chosen, tasks = self._distributed(candidates, set(required), ntasks, least, most)
        planned = self._shares(chosen, tasks)
        if spec.multi_prog and not self.job.het_size:
            try:
                multi_prog(spec.multi_prog, planned.ntasks, spec.argv[0] if spec.argv else "", ())
            except MultiProgError as error:
                lines = str(error).split("\n")
                raise StepRefused("\n".join(f"error: {line}" for line in lines)) from None
        return planned

    def _count_tasks(self, ntasks: int, nodes: int) -> None:
        """No more than MaxTasksPerNode on average, whatever --overcommit says."""
        if ntasks > nodes * self.config.max_tasks_per_node:
            raise refused(self.job, "ESLURM_BAD_TASK_COUNT")

    def _arbitrary(
        self, candidates: list[_Here], ntasks: int
    ) -> tuple[list[_Here], list[list[int]]]:
        """Each task where the list says."""
        hosts = self.spec.nodelist if ntasks > 1 else self.spec.nodelist[:1]
        if ntasks != len(hosts):
            raise StepRefused(
                f"error: You asked for {ntasks} tasks but hostlist specified {len(hosts)} nodes"
            )
        chosen = [node for node in candidates if node.alloc.node in set(hosts)]
        tasks = arbitrary(hosts, [node.alloc.node for node in chosen])
        for node, mine in zip(chosen, tasks, strict=True):
            # The list has the last word: tasks of a node may be more than its CPUs, as in Slurm.
            most = self._room(node, free=False)
            if not most:
                raise self._too_many(True)
            if min(len(mine), most) > self._room(node, free=True):
                raise Busy
        return chosen, tasks

    def _distributed(
        self, candidates: list[_Here], required: set[str], ntasks: int, least: int, most: int
    ) -> tuple[list[_Here], list[list[int]]]:
        """The nodes, in the order of the job, and the tasks of each."""
        spec = self.spec
        most = min(most, len(candidates))
        best = self._pick(candidates, required, ntasks, least, most, free=False)
        if best is None:
            raise self._never(candidates, required, most)
        chosen = self._pick(candidates, required, ntasks, least, most, free=True)
        if chosen is None or (not spec.min_nodes and len(chosen) < len(best)):
            raise Busy
        ntasks = ntasks or self._default_tasks(chosen, free=False)
        self._count_tasks(ntasks, len(chosen))
        each = spec.ntasks_per_node
        if each and spec.ntasks and ntasks > each and ntasks // len(chosen) != each:
            self.warnings.append(
                f"can't honor --ntasks-per-node set to {each} which doesn't match the requested "
                f"tasks {ntasks} with the number of requested nodes {len(chosen)}. "
                "Ignoring --ntasks-per-node."
            )
        room = [self._room(node, free=True) for node in chosen]
        if not spec.overcommit and sum(room) < ntasks:
            raise Busy
        if each and not spec.ntasks:
            room = [min(most_here, each) for most_here in room]
        if spec.overcommit:
            # CPUs give the proportion, and are no limit.
            room = [max(1, node.cpus // self.cpus_per_task) for node in chosen]
        tasks = distribute(ntasks, room, self.how, overcommit=spec.overcommit)
        used = [index for index, mine in enumerate(tasks) if mine]
        return [chosen[index] for index in used], [tasks[index] for index in used]

    def _default_tasks(self, chosen: list[_Here], *, free: bool) -> int:
        """How many tasks run where none were counted: one a node, or as many as there are CPUs
        for where the size of a task was named."""
        if self.spec.ntasks_per_node:
            return self.spec.ntasks_per_node * len(chosen)
        if self.spec.cpus_per_task and not self.spec.overcommit:
            return max(1, sum(self._room(node, free=free) for node in chosen))
        return len(chosen)

    def _never(self, candidates: list[_Here], required: set[str], most: int) -> StepRefused:
        """Why all that the job has is not enough."""
        there = [self._gpus_at(node, free=False).bit_count() for node in candidates]
        gpus = self.gpus
        if gpus.said and gpus.named:
            if not any(part.gpus for part in self.job.alloc):
                lines = ["Step requested GRES but job doesn't have GRES"]
                return refused(self.job, "ESLURM_INVALID_GRES", *lines)
            if gpus.per_node > max(there):
                return refused(
                    self.job,
                    "ESLURM_INVALID_GRES",
                    f"Step requested gres_per_node=gpu:{gpus.per_node} is more than the job's "
                    f"gres_per_node=gpu:{max(there)}",
                )
            if gpus.total > sum(sorted(there)[-most:]) or gpus.per_task > max(there):
                return refused(self.job, "ESLURM_INVALID_GRES")
        able = [node.alloc for node in candidates if node.alloc.cpus >= self.cpus_per_task]
        if able and all(self._least_memory(part) > part.mem_mb for part in able):
            return refused(self.job, "ESLURM_INVALID_TASK_MEMORY")
        return self._too_many(bool(required))

    def _too_many(self, named: bool) -> StepRefused:
        code = "ESLURM_TOO_MANY_REQUESTED_CPUS"
        if named:
            code = "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
        return refused(self.job, code, *self.notes)

    def _pick(
        self,
        candidates: list[_Here],
        required: set[str],
        ntasks: int,
        least: int,
        most: int,
        *,
        free: bool,
    ) -> list[_Here] | None:
        """At most `most` of the nodes, with room for the tasks: required ones, then those where
        nothing runs, then those first in the job; else the larger ones. None if there is no such
        choice. `free`: of what is free now, else of all that the job has."""
        room = {node.index: self._room(node, free=free) for node in candidates}
        usable = [node for node in candidates if room[node.index] > 0]
        must = [node for node in usable if node.alloc.node in required]
        others = [node for node in usable if node.alloc.node not in required]
        if len(must) < len(required):
            return None
        if free:
            others.sort(key=lambda node: not node.idle)
        most = max(most, len(must))
        for order in (others, sorted(others, key=lambda node: -room[node.index])):
            found = [*must, *order[: most - len(must)]]
            wanted = ntasks or self._default_tasks(found, free=False)
            enough = self.spec.overcommit or sum(room[node.index] for node in found) >= wanted
            if self.spec.ntasks_per_node and not self.spec.ntasks and not self.spec.overcommit:
                enough = all(room[node.index] >= self.spec.ntasks_per_node for node in found)
            if len(found) >= max(1, least) and enough and self._gpu_counts(found, free=free):
                return sorted(found, key=lambda node: node.index)
        return None

    def _room(self, node: _Here, *, free: bool) -> int:
        """How many tasks the node takes, of all that the job has there or of what is free."""
        spec, part = self.spec, node.alloc
        if free and not (self.exact or node.idle or spec.overlap):
            return 0
        mem_mb = node.mem_mb if free and not spec.overlap else part.mem_mb
        if self._least_memory(part) > mem_mb:
            return 0
        cpus = node.cpus if free else part.cpus
        threads, most = self._threads(part)
        usable = cpus // threads * most if most < threads else cpus
        room = usable // self.cpus_per_task
        if spec.overcommit:
            # One CPU is enough for all of them.
            room = _MANY if cpus else 0
        elif self.counts_memory and spec.mem_per_cpu and spec.mem_per_node is None:
            room = min(room, mem_mb // (spec.mem_per_cpu * self.cpus_per_task))
        gpus = self._gpus_at(node, free=free).bit_count()
        if self.gpus.none or part.shares:
            return room
        if not self.gpus.named:
            # All that the job has there.
            return room if gpus == self._gpus_at(node, free=False).bit_count() else 0
        if self.gpus.said and gpus < self.gpus.on_node(1, self._sockets(part)):
            return 0
        if not self.gpus.said and free and gpus < self._gpu_need(node, 1):
            return 0
        return min(room, gpus // self.gpus.per_task) if self.gpus.per_task else room

    def _threads(self, part: NodeAlloc) -> tuple[int, int]:
        """How many threads a core of the node has, and how many of them tasks use."""
        conf = self.config.nodes.get(part.node)
        threads = conf.threads_per_core if conf is not None else 1
        most = self.spec.threads_per_core or threads
        if self.spec.hint in ("nomultithread", "compute_bound"):
            most = 1
        return threads, min(most, threads)

    # -- GPUs

    def _gpus_at(self, node: _Here, *, free: bool) -> int:
        if free:
            return node.gpus
        return self.gpus.usable(node.alloc, node.alloc.gpus, self.config)

    def _sockets(self, part: NodeAlloc) -> int:
        """On how many sockets the job has CPUs there."""
        conf = self.config.nodes.get(part.node)
        if conf is None or not part.cpu_words:
            return 1
        each = max(1, conf.cpus // max(1, conf.sockets))
        return sum(
            1 for first in range(0, conf.cpus, each) if part.cpu_ids >> first & (1 << each) - 1
        )

    def _gpu_need(self, node: _Here, ntasks: int) -> int:
        """GPUs for so many tasks on a node; what is only the job's own request gives way to what
        it has there."""
        need = self.gpus.on_node(ntasks, self._sockets(node.alloc))
        return need if self.gpus.said else min(need, self._gpus_at(node, free=False).bit_count())

    def _gpu_counts(
        self, chosen: list[_Here], tasks: Sequence[int] = (), *, free: bool
    ) -> list[int] | None:
        """How many GPUs each node gives to the step; None if it has not so many."""
        there = [self._gpus_at(node, free=free).bit_count() for node in chosen]
        if self.gpus.none:
            return [0] * len(chosen)
        if not self.gpus.named:
            return there
        counts = [
            self._gpu_need(node, tasks[place] if tasks else 1) for place, node in enumerate(chosen)
        ]
        if self.gpus.total and not self.gpus.per_task:
            total = self.gpus.total
            if not self.gpus.said:
                total = min(total, sum(there))
            spread = self.gpus.spread(total, there)
            if spread is None:
                return None
            counts = [max(pair) for pair in zip(counts, spread, strict=True)]
        if any(count > most for count, most in zip(counts, there, strict=True)):
            return None
        return counts

    # -- shares

    def _shares(self, chosen: list[_Here], tasks: list[list[int]]) -> Planned:
        spec = self.spec
        gpus = self._gpu_counts(chosen, [len(mine) for mine in tasks], free=True)
        if gpus is None:
            raise Busy
        planned = Planned([], sum(map(len, tasks)), self.cpus_per_task, self.warnings)
        planned.notes = self.notes
        planned.layout = self.how.text
        for node, mine, count in zip(chosen, tasks, gpus, strict=True):
            bits = lowest(node.gpus, count)
            cpus, ids = self._cpus_of(node, len(mine))
            memory = self._memory_of(node.alloc, cpus, bits)
            there = node.alloc.mem_mb if spec.overlap else node.mem_mb
            if spec.mem_per_cpu:
                # Needed for the CPUs that tasks ask for; the others get what there is.
                needed = spec.mem_per_cpu * min(len(mine) * self.cpus_per_task, cpus)
                memory = max(needed, min(memory, there))
            if self.counts_memory and memory > there:
                raise Busy
            share = NodeAlloc(node.alloc.node, cpus, len(mine), memory, bits)
            share.cpu_ids = ids
            share.shares = node.alloc.shares if bits else 0
            planned.nodes.append(StepNode(share, mine, self.job.het_offset))
            own = self._task_cpus(share, len(mine))
            planned.task_cpus.append(own)
            # With one task there is nothing to tell apart.
            bound = planned.ntasks > 1 or self.bind.kind == "per_task"
            planned.task_gpus.append(
                task_gpus(self.bind, share, len(mine), own, self.config) if bound else []
            )
        return planned

    def _task_cpus(self, share: NodeAlloc, ntasks: int) -> list[str]:
        try:
            return task_cpus(self.spec, self.how, share, ntasks, self.cpus_per_task, self.config)
        except ValueError:
            word = self.spec.cpu_bind.rpartition(",")[2]
            raise StepRefused(
                f'error: unrecognized --cpu-bind argument "{word}"\n'
                "fatal: Failed to parse --cpu-bind= values."
            ) from None
        except OutsideError as error:
            raise StepRefused(
                f"error: {error}\n"
                "error: Application launch failed: Unable to satisfy cpu bind request\n"
                "Job step aborted"
            ) from None

    def _cpus_of(self, node: _Here, ntasks: int) -> tuple[int, int]:
        """How many CPUs of the node the step gets, and which."""
        if not self.exact:
            return node.cpus, node.cpu_ids
        conf = self.config.nodes.get(node.alloc.node)
        wanted = min(max(1, ntasks * self.cpus_per_task), node.cpus)
        if conf is None or not node.alloc.cpu_words:
            return wanted, 0
        # Cores are not shared between steps.
        threads, most = self._threads(node.alloc)
        wanted = min(-(-wanted // most) * threads, node.cpus)
        ids = pick_cpus(node.cpu_ids, wanted, conf.cpus, conf.sockets, threads)
        return ids.bit_count(), ids

    def _least_memory(self, part: NodeAlloc) -> int:
        """MB that a step with one task needs on a node; 0 where memory is nothing to be given."""
        if not self.counts_memory:
            return 0
        if self.exact or self.spec.mem_per_cpu:
            return self._memory_of(part, self.cpus_per_task, 0)
        return self._memory_of(part, 0, 0)

    def _memory_of(self, part: NodeAlloc, cpus: int, gpus: int) -> int:
        """MB of the step on a node where it has so many CPUs, and these GPUs."""
        spec = self.spec
        if spec.mem_per_node is not None:
            return spec.mem_per_node or part.mem_mb
        if spec.mem_per_cpu is not None:
            return spec.mem_per_cpu * cpus if spec.mem_per_cpu else part.mem_mb
        if spec.mem_per_gpu is not None:
            return spec.mem_per_gpu * gpus.bit_count() if spec.mem_per_gpu else part.mem_mb
        if self.job.spec.shape.mem_per_node is not None or not part.cpus:
            return part.mem_mb
        # DefMemPerCPU, --mem-per-cpu: in proportion.
        return part.mem_mb * min(cpus, part.cpus) // part.cpus
