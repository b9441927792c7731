"""The request that stands for a job of a trace: what its user would have told sbatch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from gsched import gpushare
from gsched.config import Config
from gsched.model import JobSpec, Shape
from gsched.simulate.fragmentation import Demand
from gsched.simulate.traces import TraceJob

#: how gangs lie: on as few nodes as hold them, or on any GPUs wherever they are
GANGS = ("packed", "anywhere")

#: memory of a job whose trace tells of none, in a cluster without a default: as good as nothing
SOME_MB = 1


class Requests:
    """Makes requests for one cluster. `limits`: "trace", "exact" (the run time), or a number by
    which run times are multiplied; `kill`: False raises limits below the run time to it; `strict`:
    types and features that no node has are demanded all the same."""

    def __init__(
        self,
        config: Config,
        gangs: str = "packed",
        limits: str = "trace",
        kill: bool = True,
        strict: bool = False,
    ) -> None:
        self._config = config
        self._gangs, self._limits, self._kill = gangs, limits, kill
        self._partition = config.default_partition
        self._strict = strict
        self._types = {kind for conf in config.nodes.values() for kind in conf.gpu_types if kind}
        self._features = {word for conf in config.nodes.values() for word in conf.features}
        #: parts of a GPU on nodes that have any
        self._shards = max(
            (
                number
                for name in config.nodes
                for kind, number in gpushare.parts(config, name) or ()
                if kind == "shard"
            ),
            default=0,
        )
        #: jobs that get a whole GPU for a part
        self.rounded = 0
        #: jobs whose type or features no node has
        self.unheard = 0
        #: jobs that named a partition which is not there
        self.moved = 0
        #: jobs without a limit of their own
        self.unlimited = 0
        self._largest = {
            part.name: max((config.nodes[name].gpus for name in part.nodes), default=0)
            for part in config.partitions.values()
        }

    def spec(self, job: TraceJob) -> JobSpec:
        """The request of one job."""
        partition = self._partition
        if job.partition in self._config.partitions:
            partition = job.partition
        elif job.partition:
            self.moved += 1
        return JobSpec(
            name=job.name[:64] or "job",
            shape=self._shape(job, partition),
            partitions=(partition,) if partition else (),
            account=job.account,
            qos=job.qos,
            time_limit=self._limit(job),
            requeue=True,
        )

    def remarks(self) -> list[str]:
        """Sentences for the user on what could not be asked for as the trace tells it."""
        found = []
        if self.moved:
            found.append(
                f"{self.moved:,} jobs name partitions that are not there: they go to "
                f"{self._partition}"
            )
        if self.unheard:
            found.append(
                f"{self.unheard:,} jobs want GPU types or features that no node has: they take any"
            )
        if self.rounded:
            found.append(f"{self.rounded:,} jobs get a whole GPU for a part: no node has shards")
        if self.unlimited:
            found.append(f"{self.unlimited:,} jobs have no time limit of their own")
        return found

    def _limit(self, job: TraceJob) -> int | None:
        if self._limits == "exact":
            limit: float | None = job.run
        elif self._limits != "trace":
            limit = job.run * float(self._limits)
        else:
            limit = job.limit
        if limit is None:
            self.unlimited += 1
            return None
        if not limit and self._limits == "trace":
            return 0
        if not self._kill:
            limit = max(limit, job.run)
        return max(1, math.ceil(limit))

    def _shape(self, job: TraceJob, partition: str) -> Shape:
        nodes = job.nodes
        gpus, type_ = job.gpus, job.gpu_type
        if gpus and not nodes and self._gangs == "packed":
            nodes = max(1, -(-gpus // max(1, self._largest.get(partition, 0))))
        features = job.features
        if not self._strict:
            if type_ not in self._types:
                type_ = ""
            if self._features.isdisjoint(re.split(r"[^A-Za-z0-9_.-]+", features)):
                features = ""
            self.unheard += (features, type_) != (job.features, job.gpu_type)
        fields: dict[str, object] = {"features": features, "gpu_type": type_}
        if nodes:
            fields |= {"min_nodes": nodes, "max_nodes": nodes, "nodes_set": True}
        if job.gpu_milli and self._shards:
            fields["share"] = "shard"
            fields["share_count"] = max(1, -(-job.gpu_milli * self._shards // 1000))
        elif gpus and nodes and gpus % nodes == 0:
            fields["gpus_per_node"] = gpus // nodes
            self.rounded += job.gpu_milli > 0
        elif gpus:
            fields["gpus_total"] = gpus
        if job.cpus and nodes and job.cpus % nodes == 0:
            fields |= {"cpus_per_task": job.cpus // nodes, "cpus_per_task_set": True}
        elif job.cpus:
            fields["ntasks"] = job.cpus
        if job.mem_mb:
            fields["mem_per_node"] = job.mem_mb
        elif not self._default_memory(partition, bool(gpus)):
            fields["mem_per_node"] = SOME_MB
        return Shape(**fields)  # type: ignore[arg-type]

    def _default_memory(self, partition: str, gpus: bool) -> bool:
        config = self._config
        return bool(config.def_mem(partition) or (gpus and config.def_mem_gpu(partition)))


def demand(shape: Shape, parts: int = 1) -> Demand:
    """What it needs of one node at least, where a GPU has so many parts."""
    gpus: float = shape.gpus_per_node
    if shape.share:
        gpus = shape.share_count / parts
    elif not gpus and shape.gpus_total:
        gpus = shape.gpus_total // shape.min_nodes if shape.nodes_set else 1
    memory = shape.mem_per_node or shape.cpus_per_task * (shape.mem_per_cpu or 0)
    return Demand(gpus, shape.cpus_per_task, memory)


def specs(requests: Requests, jobs: Iterable[TraceJob]) -> list[JobSpec]:
    """Equal shapes are one object: most jobs of a trace ask for what another asks for."""
    known: dict[Shape, Shape] = {}
    made = []
    for job in jobs:
        spec = requests.spec(job)
        spec.shape = known.setdefault(spec.shape, spec.shape)
        made.append(spec)
    return made
