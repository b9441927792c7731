"""What a node of a trial cluster looks like: sockets, cores, memory and GPUs.

The figures of the boxes are those of the vendors' data sheets; the link matrix and the affinity of
the GPUs stand in the topology files of the fake NVML library, which this module only names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class ShapeError(Exception):
    """A shape that does not exist or cannot be understood; the text is one sentence."""


@dataclass(frozen=True)
class Partition:
    """One PartitionName line of a simulated cluster; `nodes` "" means all nodes."""

    name: str
    options: str
    nodes: str = ""


@dataclass(frozen=True)
class Shape:
    """One kind of simulated node. Memory in MB, as slurm.conf counts it."""

    name: str
    sockets: int
    cores: int
    threads: int
    mem_mb: int
    gpu_type: str
    gpus: int
    #: topology file of the fake NVML library
    topology: Path
    features: str = ""
    #: Flags= of gres.conf: which variables tell a job its GPUs
    gres_flags: str = ""
    #: lines of slurm.conf beyond those that every cluster has
    settings: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    cluster: str = "gsched"
    #: value of Gres= where the GPUs are not all alike; "" gpu_type and gpus say it
    gres: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads


#: name -> (sockets, cores per socket, threads per core, MB, GPU type)
BOXES: dict[str, tuple[int, int, int, int, str]] = {
    "dgx-h100": (2, 56, 2, 2_060_000, "h100"),
    "dgx-a100": (2, 64, 2, 1_030_000, "a100"),
    "dgx-1v": (2, 20, 2, 515_000, "v100"),
    "a100-pcie": (2, 32, 2, 1_030_000, "a100"),
}

#: The nodes of the real Slurm that the project is measured against, so that both answer alike.
PEER_SETTINGS = (
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "MpiDefault=none",
    "PriorityType=priority/multifactor",
    "PriorityWeightAge=1000",
    "PriorityWeightFairshare=10000",
    "PriorityWeightJobSize=1000",
    "PriorityWeightPartition=1000",
    "PriorityWeightQOS=2000",
    "PriorityMaxAge=7-0",
    "PreemptType=preempt/qos",
    "PreemptMode=REQUEUE",
    "JobRequeue=1",
    "JobAcctGatherType=jobacct_gather/linux",
    "JobAcctGatherFrequency=30",
    "AccountingStorageTRES=gres/gpu,gres/gpu:h100",
    "DefMemPerCPU=2000",
    "MaxJobCount=60000",
    "MaxArraySize=20001",
    "KillWait=5",
    "UnkillableStepTimeout=30",
)
PEER_PARTITIONS = (
    Partition(
        "gpu",
        "Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP PriorityJobFactor=1",
    ),
    Partition(
        "debug",
        "MaxTime=00:30:00 DefaultTime=00:10:00 State=UP PriorityJobFactor=10",
        nodes="node1",
    ),
)

USUAL_SETTINGS = (
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup,task/affinity",
    # MPI programs start under a plain srun.
    "MpiDefault=pmi2",
)


def names() -> list[str]:
    """The shapes that --simulate knows by name."""
    return [*BOXES, "a100-mig", "peer"]


def fake_nvml_dir() -> Path:
    """The folder of the fake NVML library and its topology files; ShapeError if not installed."""
    spec = find_spec("slurmd_compat.fake_nvml")
    if spec is None or not spec.submodule_search_locations:
        raise ShapeError("the fake NVML library is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def find(name: str) -> Shape:
    """The shape that `--simulate NAME` means: a known name or a topology file."""
    if name == "peer":
        return Shape(
            "peer",
            sockets=2,
            cores=8,
            threads=1,
            mem_mb=64_000,
            gpu_type="h100",
            gpus=8,
            topology=fake_nvml_dir() / "peer.json",
            features="h100",
            # The real one has plain files for GPUs, and sets the variables of every vendor.
            gres_flags="nvidia_gpu_env,amd_gpu_env,intel_gpu_env,opencl_env",
            settings=PEER_SETTINGS,
            partitions=PEER_PARTITIONS,
            cluster="peer",
        )
    if name in BOXES:
        sockets, cores, threads, mem_mb, gpu_type = BOXES[name]
        cpus = sockets * cores * threads
        return Shape(
            name,
            sockets=sockets,
            cores=cores,
            threads=threads,
            mem_mb=mem_mb,
            gpu_type=gpu_type,
            gpus=8,
            topology=fake_nvml_dir() / f"{name}.json",
            features=gpu_type,
            settings=(*USUAL_SETTINGS, f"DefMemPerCPU={mem_mb // cpus}", "KillWait=30"),
            partitions=(
                Partition("gpu", "Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP"),
            ),
        )
    if name in names():
        return from_file(str(fake_nvml_dir() / f"{name}.json"))
    return from_file(name)


def from_file(name: str) -> Shape:
    """The shape that a topology file of the fake NVML library describes.

    CPUs and sockets come from the GPUs' affinity; a "node" object in the file may say more:
    {"sockets": 2, "cores": 8, "threads": 1, "mem_mb": 64000, "type": "h100"}.
    """
    path = Path(name)
    try:
        described = json.loads(path.read_text())
    except OSError as error:
        known = ", ".join(names())
        raise ShapeError(
            f"--simulate {name}: neither a shape ({known}) nor a readable file: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ShapeError(f"--simulate {name}: not a topology file: {error}") from None
    gpus = described.get("gpus") if isinstance(described, dict) else None
    if not isinstance(gpus, list) or not all(isinstance(gpu, dict) for gpu in gpus):
        raise ShapeError(f'--simulate {name}: not a topology file: it has no list "gpus"')
    node: dict[str, Any] = described.get("node") or {}
    defaults: dict[str, Any] = described.get("defaults") or {}
    numas = {int(gpu.get("numa", 0)) for gpu in gpus}
    sockets = int(node.get("sockets", max(len(numas), 1)))
    threads = int(node.get("threads", 1))
    cpus = 1 + max((_last_cpu(str(gpu.get("cpus", ""))) for gpu in gpus), default=7)
    cores = int(node.get("cores", max(cpus // (sockets * threads), 1)))
    first = gpus[0] if gpus else {}
    gpu_type = str(node.get("type") or _type_of(str(first.get("name", defaults.get("name", "")))))
    mem_mb = int(node.get("mem_mb", 8000 * sockets * cores))
    types = _units(gpus, defaults, gpu_type)
    return Shape(
        path.stem,
        sockets=sockets,
        cores=cores,
        threads=threads,
        mem_mb=mem_mb,
        gpu_type=gpu_type,
        gpus=len(types),
        gres=",".join(f"gpu:{kind}:{types.count(kind)}" for kind in dict.fromkeys(types))
        if len(set(types)) > 1
        else "",
        topology=path.resolve(),
        features=gpu_type,
        settings=(
            *USUAL_SETTINGS,
            f"DefMemPerCPU={max(mem_mb // (sockets * cores * threads), 1)}",
        ),
        partitions=(
            Partition("gpu", "Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP"),
        ),
    )


def _units(gpus: list[dict[str, Any]], defaults: dict[str, Any], gpu_type: str) -> list[str]:
    """Types of what can be given out: whole GPUs, and the slices of those in MIG mode."""
    types: list[str] = []
    for gpu in gpus:
        slices = gpu.get("mig") or []
        if gpu.get("mig_capable", defaults.get("mig_capable")) and (slices or gpu.get("mig_mode")):
            types += [str(one.get("name", "mig")) for one in slices]
        else:
            types.append(gpu_type)
    return types


def _last_cpu(cpus: str) -> int:
    return max((int(number) for number in re.findall(r"\d+", cpus)), default=7)


def type_of(name: str) -> str:
    """Slurm's gres type for NVML's product name: "NVIDIA H100 80GB HBM3" -> "h100"."""
    return _type_of(name)


def _type_of(name: str) -> str:
    for word in re.findall(r"[a-z0-9]+", name.lower()):
        if re.fullmatch(r"[a-z]{1,3}\d{1,4}[a-z]?", word):
            return str(word)
    return "gpu"
