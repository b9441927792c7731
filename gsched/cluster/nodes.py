"""The nodes of the live cluster: names on one side, the core's numbers and bits on the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gsched import _core, gpushare
from gsched.bits import bits, symmetric
from gsched.cluster.caps import Caps
from gsched.cluster.counted import Counted
from gsched.cluster.domains import Domains, domains_of
from gsched.cluster.keep import Keep
from gsched.cluster.lots import jobs_on_a_core
from gsched.config import Config, NodeConfig
from gsched.cpuset import specialized
from gsched.model import Gpu, Node, NodeAlloc
from gsched.together import Together
from gsched.topology import blocks, network

#: kinds of nodes (links and NUMA domains) whose words for the core are kept
KINDS = 4096


def usable_cpus(conf: NodeConfig) -> int:
    """CPUs that jobs may have: those beside CoreSpecCount and CpuSpecList."""
    return conf.cpus - specialized(conf).bit_count()


def usable_memory(conf: NodeConfig) -> int:
    """Memory that jobs may have, in MB: what is beside MemSpecLimit."""
    return max(0, conf.real_memory - conf.mem_spec_limit)


class Nodes:
    """Nodes, partitions, features and GPU types as the core numbers them.

    Cost: constructing takes a few us per node; other calls are constant.
    """

    def __init__(self, config: Config, core: _core.Core, together: Together) -> None:
        self.config = config
        self._core = core
        self._together = together
        self.names = list(config.nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.partition_bit = {name: bit for bit, name in enumerate(config.partitions)}
        self._feature_bit: dict[str, int] = {}
        self._type_id: dict[str, int] = {}
        self._partitions_of = self._partition_masks()
        self.partition_cpus = {
            name: sum(usable_cpus(config.nodes[node]) for node in part.nodes)
            for name, part in config.partitions.items()
        }
        #: CPU ids that no job holds, per node
        self.free_cpus: list[int] = []
        #: (CPUs, MB) that jobs may have, per node
        self._usable: list[tuple[int, int]] = []
        #: times that a node was another, or came or went
        self.changes = 0
        self._gpu_type: list[list[str]] = [[] for _ in self.names]
        self._gpu_cores: list[list[str]] = [[] for _ in self.names]
        self._class = [0] * len(self.names)
        #: links and NUMA domains as nodes report them -> the same as the core has them: a large
        #: cluster has few kinds of nodes
        self.counted = Counted(config)
        self.caps = Caps(config)
        for name, part in config.partitions.items():
            if jobs_on_a_core(part) > 1:
                core.set_sharing(self.partition_bit[name], jobs_on_a_core(part))
                together.sharing[self.partition_bit[name]] = jobs_on_a_core(part)
        self._keep = Keep(config)
        self.domains: list[Domains] = [Domains()] * len(self.names)
        self._domains: dict[object, Domains] = {}
        self._wirings: dict[object, tuple[int, list[list[int]], list[int]]] = {}
        #: "tree", "block", or "" where the network is not known
        self.network = ("block" if blocks(config) else "tree") if config.switches else ""
        if self.network:
            units = network(config)
            core.set_topology(
                units.leaves, units.parents, sizes=units.sizes, optional=units.optional
            )
            together.network = units
        for conf in config.nodes.values():
            self.free_cpus.append((1 << conf.cpus) - 1 & ~specialized(conf))
            self._usable.append((usable_cpus(conf), usable_memory(conf)))
            for feature in conf.features:
                self._feature_bit.setdefault(feature, len(self._feature_bit))
        #: whether any node keeps anything for its idle GPUs
        self.keeps = self._keep.any(
            (conf, *usable)
            for conf, usable in zip(config.nodes.values(), self._usable, strict=True)
        )

    def _partition_masks(self) -> list[int]:
        masks = [0] * len(self.names)
        for name, part in self.config.partitions.items():
            bit = 1 << self.partition_bit[name]
            for node in part.nodes:
                masks[self.index[node]] |= bit
        return masks

    def changed(self, node: Node) -> None:
        """Takes a node's GPUs (as registered, else as configured) and its description over.
        It is unusable until `set_usable`, if it was so before."""
        self.changes += 1
        i = self.index[node.name]
        conf = self.config.nodes[node.name]
        if node.gpus:
            types = [gpu.type for gpu in node.gpus]
            wiring = self._wiring(_links(node.gpus), [gpu.numa for gpu in node.gpus])
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
            number = self.type_id(kind)
            by_type[number] = by_type.get(number, 0) | 1 << bit
        cls, links, numa = wiring
        self._class[i] = cls
        domains = self._where(conf, tuple(self._gpu_cores[i]))
        description: dict[str, Any] = {
            "cpus": usable_cpus(conf),
            "mem_mb": usable_memory(conf),
            "gpu_type_masks": tuple(by_type.items()),
            "gpu_ok_mask": ok,
            "partitions": self._partitions_of[i],
            "features": self._features(conf),
            "weight": conf.weight,
            "threads": conf.threads_per_core,
            "sockets": conf.sockets,
            "cores_per_socket": conf.cores_per_socket,
            "domains": domains.sizes,
            "near": domains.near,
            "gpu_parts": self._parts(node),
            "extra": (*self.counted.of_node(conf), *self.caps.of_node(conf)),
            **self._kept(conf, len(types)),
        }
        usable = self._core.node(i).usable and node.flags == 0
        self._core.set_node(i, cls=cls, usable=usable, **description)
        self._together.describe(i, cls, links, numa, description)
        if domains is not self.domains[i]:
            self.domains[i] = domains
            if domains.sizes:
                used = domains.used(self.free_cpus[i], conf.threads_per_core)
                self._core.set_cores(i, used)

    def _kept(self, conf: NodeConfig, gpus: int) -> dict[str, int]:
        """What jobs without GPUs leave alone for each idle GPU of a node."""
        if not self.keeps:
            return {}
        kept = self._keep.of_node(conf, gpus, usable_cpus(conf), usable_memory(conf))
        return {"keep_cpus": kept[0], "keep_mem_mb": kept[1]}

    def _where(self, conf: NodeConfig, gpu_cores: tuple[str, ...]) -> Domains:
        """The domains of such a node; the same object for the same kind."""
        key = (
            *(conf.cpus, conf.sockets, conf.threads_per_core, conf.core_spec_count),
            *(conf.cpu_spec_list, gpu_cores),
        )
        found = self._domains.get(key)
        if found is None:
            if len(self._domains) >= KINDS:
                self._domains.clear()
            found = self._domains[key] = domains_of(conf, gpu_cores)
        return found

    def _parts(self, node: Node) -> tuple[tuple[int, int], ...] | None:
        """(kind, number) of the parts of each GPU, in the core's words."""
        found = gpushare.parts(self.config, node.name, node.gpus)
        if found is None:
            return None
        return tuple((gpushare.KINDS.get(name, 0), number) for name, number in found)

    def _wiring(
        self, rows: list[list[int]], numa: list[int]
    ) -> tuple[int, list[list[int]], list[int]]:
        """(class, links, NUMA domains) of a node with these links, none where a row is empty."""
        key = (tuple(map(tuple, rows)), tuple(numa))
        found = self._wirings.get(key)
        if found is None:
            links = symmetric([list(row) or [0] * len(rows) for row in rows])
            if len(self._wirings) >= KINDS:
                self._wirings.clear()
            found = (self._core.define_class(links, numa), links, numa)
            self._wirings[key] = found
        return found

    def _features(self, conf: NodeConfig) -> int:
        return sum(1 << self._feature_bit[name] for name in set(conf.features))

    def feature_bit(self, name: str) -> int:
        """The feature's bit; one that no node has where the name is unknown."""
        return self._feature_bit.get(name, 255)

    def type_id(self, name: str) -> int:
        """The number of a GPU type, a new one where the name is."""
        return self._type_id.setdefault(name, len(self._type_id))

    def set_usable(self, name: str, usable: bool) -> None:
        """Whether new work may go there."""
        self.changes += 1
        self._core.set_usable(self.index[name], usable)
        self._together.usable_changed()

    def usable(self, name: str) -> bool:
        """Whether new work may go there."""
        return self._core.node(self.index[name]).usable

    def used(self, name: str) -> tuple[int, int, int]:
        """(CPUs, MB, GPU bitmap) that jobs hold on a node."""
        i = self.index[name]
        cpus, mem_mb = self._usable[i]
        free_cpus, free_mb, gpus = self._core.node_free(i)
        return cpus - free_cpus, mem_mb - free_mb, gpus

    def gpu_bits(self, name: str, kind: str = "") -> int:
        """The GPUs of a node that are of a type ("" any), as a bitmap."""
        types = self._gpu_type[self.index[name]]
        return sum(1 << bit for bit, one in enumerate(types) if kind in ("", one))

    def best_gpus(self, name: str, free: int, count: int) -> int:
        """Those of a node's free GPUs that go best together; 0: there are not so many."""
        cls = self._class[self.index[name]]
        return self._core.best_gpus(cls, free, count)

    def gpu_cores(self, part: NodeAlloc) -> list[str]:
        """The CPU lists near each GPU of a share, "" where it is not known."""
        near = self._gpu_cores[self.index[part.node]]
        return [near[bit] for bit in bits(part.gpus) if bit < len(near)]

    def gpu_types(self, alloc: Iterable[NodeAlloc]) -> dict[str, int]:
        """GPUs of an allocation by type, without those of which it has only parts."""
        found: dict[str, int] = {}
        for part in alloc:
            if part.shares or not part.gpus:
                continue
            types = self._gpu_type[self.index[part.node]]
            first = types[0]
            if types.count(first) == len(types):
                found[first] = found.get(first, 0) + part.gpus.bit_count()
                continue
            for bit in bits(part.gpus):
                found[types[bit]] = found.get(types[bit], 0) + 1
        return found

    def shares(self, placement: _core.Placement) -> list[NodeAlloc]:
        return [
            NodeAlloc(self.names[node], cpus, tasks, mem, gpus, shares=placement.gpu_milli)
            for node, cpus, tasks, mem, gpus in placement.nodes
        ]


def _links(gpus: list[Gpu]) -> list[list[int]]:
    """The links of a node's GPUs. Slices of one GPU have none, but count as an island: a job that
    wants several gets them together, and what is left stays together."""
    rows = []
    for gpu in gpus:
        row = list(gpu.links)
        if gpu.uuid.startswith("MIG-"):
            row = [
                int(
                    other is not gpu
                    and other.uuid.startswith("MIG-")
                    and other.bus_id == gpu.bus_id
                )
                for other in gpus
            ]
        rows.append(row)
    return rows
