"""Jobs and configurations for tests of how steps lie in them."""

from __future__ import annotations

from gsched.config import Config
from gsched.config.parse import parse_config
from gsched.model import Job, JobSpec, JobState, NodeAlloc, Shape

_CONF = """
ClusterName=peer
SlurmctldHost=vm
GresTypes=gpu
DefMemPerCPU=2000
{extra}
NodeName=node[1-4] CPUs={cpus} Sockets=2 CoresPerSocket={cores} ThreadsPerCore={threads} \
RealMemory=64000 Gres=gpu:h100:8
PartitionName=gpu Nodes=ALL Default=YES
"""
_GRES = """
NodeName=node[1-4] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-7
NodeName=node[1-4] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=8-15
"""


def config(extra: str = "", *, threads: int = 1, gres: str = _GRES) -> Config:
    """Four nodes of 2 sockets, 16 cores and 8 GPUs."""
    text = _CONF.format(extra=extra, cpus=16 * threads, cores=8, threads=threads)
    return parse_config({"slurm.conf": text, "gres.conf": gres})


def part(node: str, cpus: int, gpus: int = 0, mem_mb: int = 0, *, first: int = 0) -> NodeAlloc:
    """A share with the CPUs from `first` on and the lowest `gpus` GPUs."""
    share = NodeAlloc(node, cpus, cpus, mem_mb or cpus * 2000, (1 << gpus) - 1)
    share.cpu_ids = ((1 << cpus) - 1) << first
    return share


def job(
    *cpus: int, gpus: int = 0, mem_per_node: int | None = None, shape: Shape | None = None
) -> Job:
    """A running job on node1, node2 ... with so many CPUs each."""
    return Job(
        id=291,
        uid=0,
        gid=0,
        user="root",
        group="root",
        spec=JobSpec(name="in.sh", shape=shape or Shape(mem_per_node=mem_per_node)),
        state=JobState.RUNNING,
        partition="gpu",
        attempt=1,
        alloc=[
            part(f"node{number}", count, gpus, mem_per_node or 0)
            for number, count in enumerate(cpus, 1)
        ],
    )
