"""Bounds on the CPUs of a node that some jobs may hold together, in the core's words:
MaxCPUsPerNode and MaxCPUsPerSocket of partitions, RestrictedCoresPerGPU of nodes. Each is a counted
resource of which a job takes as many as it takes CPUs."""

from __future__ import annotations

from gsched.cluster.counted import Counts
from gsched.config import Config, NodeConfig, PartitionConfig
from gsched.config.partitions import cap_numbers, restricts
from gsched.cpuset import specialized
from gsched.gres import FIRST_CAP

#: how many a node has that does not bound
_ENDLESS = 1_000_000_000


def bound_of(part: PartitionConfig, conf: NodeConfig) -> int | None:
    """CPUs of such a node that the jobs of a partition may hold together; None: all."""
    found = [part.max_cpus_per_node] if part.max_cpus_per_node else []
    if part.max_cpus_per_socket:
        found.append(part.max_cpus_per_socket * conf.sockets)
    return min(found, default=None)


class Caps:
    """The bounds of a configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._numbers = cap_numbers(config.partitions, config.nodes)
        self._restricts = restricts(config.nodes)
        self._parts_of: dict[str, list[str]] = {}
        for name in self._numbers:
            for node in config.partitions[name].nodes:
                self._parts_of.setdefault(node, []).append(name)

    def of_node(self, conf: NodeConfig) -> Counts:
        """What a node has of each. Cost: its partitions."""
        found = dict.fromkeys(self._numbers.values(), _ENDLESS)
        for name in self._parts_of.get(conf.name, ()):
            bound = bound_of(self._config.partitions[name], conf)
            if bound is not None:
                found[self._numbers[name]] = bound
        if self._restricts:
            kept = conf.restricted_cores_per_gpu * conf.threads_per_core * conf.gpus
            usable = conf.cpus - specialized(conf).bit_count()
            found[0] = max(0, usable - kept) if kept else _ENDLESS
        return tuple((FIRST_CAP + number, count) for number, count in sorted(found.items()))

    def of_request(self, partition: str, gpus: bool) -> tuple[int, ...]:
        """Those that a job in a partition, with GPUs or without, counts against."""
        found = [self._numbers[partition]] if partition in self._numbers else []
        if self._restricts and not gpus:
            found.append(0)
        return tuple(FIRST_CAP + number for number in sorted(found))
