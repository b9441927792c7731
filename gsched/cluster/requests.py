"""What jobs ask for, in the core's words; and what a cluster can never hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsched import _core, gpushare, nodepolicy
from gsched.cluster.lots import shares
from gsched.cluster.nodes import Nodes
from gsched.cluster.shapes import rare_words
from gsched.config import Config
from gsched.model import Shape
from gsched.together import Together

#: request classes kept in the core's words: of 100,000 jobs most ask for what another asks for
REMEMBERED = 4096

#: owner of a job that wants its nodes for one user and does not say for whom
NOBODY = -2

#: what a configuration lacks for good -> Slurm's remark at submission
_NOTES = {
    "cpus": "CPU count per node can not be satisfied",
    "layout": "Socket, core and/or thread specification can not be satisfied",
    "memory": "Memory specification can not be satisfied",
}

#: what a shape says of several nodes together
#: flags of a QOS: what jobs need not keep to of a partition's limits
TIME_LIMIT, MAX_NODES, MIN_NODES = "PartitionTimeLimit", "PartitionMaxNodes", "PartitionMinNodes"
BOUND: frozenset[str] = frozenset()
#: the same of components of heterogeneous jobs: they need not leave alone what nodes keep for their
#: idle GPUs, as they might fit so one by one and never together
TOGETHER = frozenset(("gpu_keep",))
_OF_SEVERAL = ("min_nodes", "max_nodes", "ntasks", "gpus_total", "segment", "contiguous")


class Requests:
    """Shapes and partitions as request classes of the core."""

    def __init__(self, nodes: Nodes, core: _core.Core, together: Together) -> None:
        self._nodes = nodes
        self._config = nodes.config
        self._core = core
        self._together = together
        #: requests in the core's words, as this configuration has them
        self._wanted: dict[tuple[Shape, str, frozenset[str]], dict[str, Any]] = {}
        #: uid -> number of the core for those who want nodes for themselves
        self._owners: dict[int, int] = {}

    def reword(self, config: Config) -> None:
        """The same, but for the partitions' states."""
        self._config = config

    def acquire(
        self,
        shape: Shape,
        partition: str,
        switches: int = 0,
        reservation: int = -1,
        free: frozenset[str] = BOUND,
    ) -> int:
        """The core's request class for a shape in a partition, on at most so many leaf switches
        (0: any number), in an advance reservation by its number. `free`: limits of the partition
        that do not hold (flags of a QOS). ValueError for what cannot be."""
        words = self.words(shape, partition, free)
        if switches:
            words = {**words, "switches": switches}
        return int(self._core.request(**words, reservation=reservation))

    def words(self, shape: Shape, partition: str, free: frozenset[str] = BOUND) -> dict[str, Any]:
        """The arguments of Core.request. Cost: a look-up, for a shape seen before."""
        wanted = self._wanted.get((shape, partition, free))
        if wanted is None:
            wanted = self._translate(shape, partition, free)
            if len(self._wanted) >= REMEMBERED:
                self._wanted.clear()
            self._wanted[shape, partition, free] = wanted
        return wanted

    def _translate(self, shape: Shape, partition: str, free: frozenset[str]) -> dict[str, Any]:
        """The request in the core's words."""
        part = self._config.partitions[partition]
        include = [self._nodes.index[name] for name in shape.nodelist]
        fewest = 0 if MIN_NODES in free else part.min_nodes
        most = 0 if MAX_NODES in free else part.max_nodes
        min_nodes = max(1, shape.min_nodes, len(include), fewest)
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
        exclusive = shape.exclusive == 1 or part.oversubscribe == "EXCLUSIVE"
        owner = self.owner(shape, partition)
        if owner == NOBODY:
            # Nobody knows any more whose it is: it shares with nobody.
            exclusive, owner = True, -1
        if shape.share:
            # With all of a node's GPUs none is left to be in parts: it gets them whole.
            per_node = 1
        kind = -1
        if shape.gpu_type:
            kind = self._nodes.type_id(shape.gpu_type)
        words = {
            "partition": self._nodes.partition_bit[partition],
            "min_nodes": min_nodes,
            "max_nodes": max_nodes,
            # Not a wish of the job: without -N it gets as few nodes as hold it.
            "cap_nodes": max(most, min_nodes) if most else 0,
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
            "exclusive": exclusive,
            "owner": -1 if exclusive else owner,
            "extra": self._nodes.counted.of_shape(shape) if shape.counted else (),
            "overcommit": shape.overcommit,
            "cpu_caps": self._nodes.caps.of_request(partition, bool(gpus)),
            "shares_cpus": shares(shape, part),
            "leaves_gpus": self._nodes.keeps and not gpus and not free & TOGETHER,
            "threads_per_core": shape.threads_per_core,
            "policy": nodepolicy.chosen(part, self._config),
            **({} if exclusive or not shape.share else self._parts(shape)),
            "nodelist": tuple(include),
            "contiguous": shape.contiguous,
            "spread": shape.spread,
            "use_min_nodes": shape.use_min_nodes,
            "segment": shape.segment if self._nodes.network == "block" else 0,
            "exclude": self._left_out(shape),
        }
        return words | rare_words(shape, self._nodes, words)

    def _left_out(self, shape: Shape) -> tuple[int, ...]:
        """The nodes that it does not want, and those with less TmpDisk than it needs. Cost: nodes
        for who asks for that."""
        index, nodes = self._nodes.index, self._config.nodes
        names = set(shape.exclude)
        if shape.tmp_disk_mb:
            names.update(name for name in index if nodes[name].tmp_disk < shape.tmp_disk_mb)
        return tuple(sorted(index[name] for name in names if name in index))

    def owner(self, shape: Shape, partition: str) -> int:
        """The core's number of the user whose jobs alone may be on its nodes; -1: anybody's may."""
        part = self._config.partitions.get(partition)
        if shape.exclusive != 2 and not (part is not None and part.exclusive_user):
            return -1
        if shape.owner < 0:
            return NOBODY
        return self._owners.setdefault(shape.owner, len(self._owners))

    def _parts(self, shape: Shape) -> dict[str, Any]:
        """A share of one GPU on each node."""
        return {
            "gpu_milli": shape.share_count,
            "gpu_kind": gpushare.KINDS[shape.share],
            "one_shared": gpushare.one_shared(self._config, shape.share),
        }

    def never(self, shape: Shape, partitions: Sequence[str]) -> list[str] | None:
        """None if some partition could hold it with every node free and up, or if only its number
        of nodes or CPUs is beyond the partition (Slurm keeps those jobs waiting); else Slurm's
        remarks on why not. Cost: nodes, once per class and change of configuration."""
        notes: list[str] = []
        for partition in partitions:
            try:
                req = self.acquire(shape, partition)
            except ValueError:
                continue
            try:
                refusal = self._core.can_ever(req)
                if refusal is None or self.too_big(shape, partition):
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
            if all(self.too_big(shape, partition) for partition in partitions):
                return False
        return self._together.never(
            [
                tuple(self.words(shape, name, TOGETHER) for name in names)
                for shape, names in components
            ]
        )

    def _capped(self, shape: Shape, partition: str) -> bool:
        """Whether only the CPUs of a node that the partition may use are too few. Who wants whole
        nodes is refused as Slurm does."""
        words = self.words(shape, partition)
        if words["exclusive"]:
            return False
        fits = []
        for caps in (words["cpu_caps"], ()):
            req = self._core.request(**{**words, "cpu_caps": caps})
            try:
                fits.append(self._core.can_ever(req) is None)
            finally:
                self._core.drop_request(req)
        return fits == [False, True]

    def too_big(self, shape: Shape, partition: str, free: frozenset[str] = BOUND) -> bool:
        """Whether only the number of nodes or CPUs is too much: one node's share would fit."""
        part = self._config.partitions[partition]
        cpus = self._nodes.partition_cpus[partition]
        tasks = max(shape.ntasks, shape.min_nodes * max(1, shape.ntasks_per_node))
        if (part.max_cpus_per_node or part.max_cpus_per_socket) and self._capped(shape, partition):
            return True
        most = len(part.nodes)
        if part.max_nodes and MAX_NODES not in free:
            most = min(most, part.max_nodes)
        if shape.min_nodes <= most and tasks * shape.cpus_per_task <= cpus:
            return False
        one = Shape(
            **{
                name: getattr(shape, name)
                for name in shape.__struct_fields__
                if name not in _OF_SEVERAL
            },
            min_nodes=1,
            ntasks=min(1, shape.ntasks),
        )
        req = self.acquire(one, partition)
        try:
            return self._core.can_ever(req) is None
        finally:
            self._core.drop_request(req)
