"""What jobs without GPUs leave alone on a node for each of its idle GPUs: so these can be used.

By default it is what partitions say that a GPU goes with (DefCpuPerGPU, DefMemPerGPU: the most of
those that have the node), else an eighth of the cores and of the memory, in even parts: nothing
where the node has fewer than eight cores for a GPU, as one may only guess what is spare there.
gpu_keep_cpus and gpu_keep_mem of SchedulerParameters say it instead. In any case it is no more than
one of GPUs + 1 even parts of the node: something is left to jobs without GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from gsched.config import Config, NodeConfig

#: of so many cores of a node one is kept
_SHARE = 8
_MOST = 1 << 30


def said(config: Config) -> tuple[int, int] | None:
    """(CPUs, MB) by SchedulerParameters; None: nothing is said there."""
    found: dict[str, int] = {}
    for word in config.scheduler_parameters.split(","):
        name, _, text = word.strip().partition("=")
        if name.lower() in ("gpu_keep_cpus", "gpu_keep_mem") and text.isascii() and text.isdigit():
            found[name.lower()] = min(int(text), _MOST)
    if not found:
        return None
    return found.get("gpu_keep_cpus", 0), found.get("gpu_keep_mem", 0)


class Keep:
    """What is kept, by a configuration."""

    def __init__(self, config: Config) -> None:
        self._said = said(config)
        #: node -> (DefCpuPerGPU, DefMemPerGPU), where a partition has one
        self._natural: dict[str, tuple[int, int]] = {}
        if self._said is None:
            for name, part in config.partitions.items():
                cpus, mem_mb = config.def_cpu_gpu(name) or 0, config.def_mem_gpu(name) or 0
                for node in part.nodes if cpus or mem_mb else ():
                    before = self._natural.get(node, (0, 0))
                    self._natural[node] = max(cpus, before[0]), max(mem_mb, before[1])

    def of_node(self, conf: NodeConfig, gpus: int, cpus: int, mem_mb: int) -> tuple[int, int]:
        """(CPUs, MB) for each idle GPU of a node with so many of each that jobs may have."""
        if not gpus:
            return 0, 0
        threads = conf.threads_per_core
        most = cpus // threads // (gpus + 1) * threads
        if self._said is not None:
            return min(_cores(self._said[0], threads), most), min(
                self._said[1], mem_mb // (gpus + 1)
            )
        natural = self._natural.get(conf.name, (0, 0))
        kept = natural[0] or cpus // threads // (_SHARE * gpus) * threads
        if natural[1]:
            # Memory without a core is of no use.
            kept = max(kept, threads)
        kept = min(_cores(kept, threads), most)
        mem = natural[1] or mem_mb * kept // max(cpus, 1)
        return kept, min(mem, mem_mb // (gpus + 1))

    def any(self, nodes: Iterable[tuple[NodeConfig, int, int]]) -> bool:
        """Whether any of these (node, CPUs, MB) keeps anything."""
        return any(self.of_node(conf, conf.gpus, *has) != (0, 0) for conf, *has in nodes)


def _cores(cpus: int, threads: int) -> int:
    """So many CPUs, in whole cores."""
    return -(-cpus // threads) * threads
