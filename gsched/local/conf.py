"""The configuration files of an all-in-one cluster: real slurm.conf, gres.conf and cgroup.conf.

The daemons read these files and nothing else, so everything that `gsched up` decides (ports,
directories, which GPUs belong to which node) stands in them.
"""

from __future__ import annotations

import errno
import os
import pwd
import random
import re
import shlex
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from gsched.local.shapes import Shape

#: first line of a slurm.conf that this module wrote; what follows is the options it was made with
MADE_BY = "# Made by: gsched up"


@dataclass(frozen=True)
class Layout:
    """The directories of one cluster."""

    dir: Path

    @property
    def etc(self) -> Path:
        return self.dir / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def keys(self) -> Path:
        return self.etc / "keys"

    @property
    def state(self) -> Path:
        return self.dir / "state"

    @property
    def run(self) -> Path:
        return self.dir / "run"

    @property
    def spool(self) -> Path:
        return self.dir / "spool"

    @property
    def log(self) -> Path:
        return self.dir / "log"


@dataclass(frozen=True)
class NodeLine:
    """One NodeName line and its share of gres.conf."""

    name: str
    cpus: int
    sockets: int
    cores: int
    threads: int
    mem_mb: int
    gpu_type: str = ""
    gpus: int = 0
    #: value of Gres= where the GPUs are not all of one type; "" gpu_type and gpus say it
    gres: str = ""
    features: str = ""
    #: Flags= of gres.conf ("" none)
    gres_flags: str = ""
    #: GPU of the machine -> minor number; () for simulated ones
    minors: tuple[int, ...] = ()
    #: topology file for the fake NVML library; None: the machine's own NVML
    topology: Path | None = None


@dataclass
class Plan:
    """What a new cluster is to look like."""

    cluster: str
    nodes: list[NodeLine]
    settings: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    #: sentences for the user: what is not enforced here and why
    remarks: list[str] = field(default_factory=list)
    #: lines of cgroup.conf
    cgroup: list[str] = field(default_factory=list)
    fake_nvml: Path | None = None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def short_host() -> str:
    return socket.gethostname().partition(".")[0] or "localhost"


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on now.

    They lie below the range that the system hands out to outgoing connections: a node that dials a
    dead controller's port from that very port would connect to itself and keep the port.
    """
    first, last = 10_000, _ephemeral_start() - 1
    if last - first < 1000:
        first, last = 1024, 65_535
    held: list[socket.socket] = []
    try:
        for port in random.sample(range(first, last + 1), min(last - first, 64 * count)):
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                one.close()
                continue
            held.append(one)
            if len(held) == count:
                break
        else:
            raise OSError(errno.EADDRINUSE, f"{count} free TCP ports could not be found")
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _ephemeral_start() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def machine_cpus() -> int:
    return len(os.sched_getaffinity(0))


def machine_mem_mb() -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) // 1024 if found else 1024


def simulated(shape: Shape, count: int) -> Plan:
    """A cluster of `count` nodes of one shape, none of whose GPUs exist."""
    half = (count + 1) // 2
    nodes = []
    for index in range(1, count + 1):
        features = shape.features
        if shape.name == "peer":
            features += ",rackA" if index <= half else ",rackB"
        nodes.append(
            NodeLine(
                f"node{index}",
                cpus=shape.cpus,
                sockets=shape.sockets,
                cores=shape.cores,
                threads=shape.threads,
                mem_mb=shape.mem_mb,
                gpu_type=shape.gpu_type if shape.gpus else "",
                gpus=shape.gpus,
                gres=shape.gres,
                features=features,
                gres_flags=shape.gres_flags,
                topology=shape.topology,
            )
        )
    plan = Plan(shape.cluster, nodes, settings=list(shape.settings))
    plan.partitions = [
        f"PartitionName={part.name} Nodes={part.nodes or node_list(nodes)} {part.options}"
        for part in shape.partitions
    ]
    if any(line.startswith("TaskPlugin=task/none") for line in shape.settings):
        plan.remarks.append("cgroups are not used (as in the real Slurm of this shape)")
    else:
        plan.cgroup, remarks = cgroup_lines(shape.cpus * count, shape.mem_mb * count)
        plan.remarks += remarks
    return plan


def node_list(nodes: list[NodeLine]) -> str:
    names = [node.name for node in nodes]
    if names == [f"node{index}" for index in range(1, len(names) + 1)] and len(names) > 1:
        return f"node[1-{len(names)}]"
    return ",".join(names)


def cgroup_lines(cpus: int, mem_mb: int) -> tuple[list[str], list[str]]:
    """cgroup.conf for nodes that claim `cpus` and `mem_mb` in all, and what they cannot enforce."""
    remarks = []
    cores = cpus <= machine_cpus()
    if not cores:
        remarks.append(
            f"CPU binding is off: the nodes claim {cpus} CPUs, this machine has {machine_cpus()}"
        )
    if mem_mb > machine_mem_mb():
        remarks.append(
            f"memory limits hold per job, but the nodes claim {mem_mb} MB in all and this "
            f"machine has {machine_mem_mb()} MB"
        )
    return [
        f"ConstrainCores={'yes' if cores else 'no'}",
        "ConstrainRAMSpace=yes",
        "ConstrainDevices=yes",
    ], remarks


def slurm_conf(plan: Plan, layout: Layout, made_with: str) -> str:
    """The text of slurm.conf; picks the ports."""
    me = user_name(os.getuid())
    ports = free_ports(1 + len(plan.nodes))
    lines = [
        f"{MADE_BY} {made_with}".rstrip(),
        f"ClusterName={plan.cluster}",
        f"SlurmctldHost={short_host()}(127.0.0.1)",
        f"SlurmUser={me}",
        f"SlurmdUser={me}",
        f"SlurmctldPort={ports[0]}",
        *directories(layout),
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        # The nodes share one machine and may claim more than it has.
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "MailProg=/bin/true",
        "GresTypes=gpu",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        *plan.settings,
    ]
    for node, port in zip(plan.nodes, ports[1:], strict=True):
        parts = [
            f"NodeName={node.name} NodeHostname={node.name} NodeAddr=127.0.0.1 Port={port}",
            f"CPUs={node.cpus} Sockets={node.sockets} CoresPerSocket={node.cores}",
            f"ThreadsPerCore={node.threads} RealMemory={node.mem_mb}",
        ]
        if node.gpus:
            kind = f"{node.gpu_type}:" if node.gpu_type else ""
            parts.append(f"Gres={node.gres or f'gpu:{kind}{node.gpus}'}")
        if node.features:
            parts.append(f"Feature={node.features}")
        lines.append(" ".join([*parts, "State=UNKNOWN"]))
    lines += plan.partitions
    return "\n".join(lines) + "\n"


def directories(layout: Layout) -> list[str]:
    """The lines of slurm.conf that say where everything of a cluster lies."""
    return [
        f"StateSaveLocation={layout.state}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.run}/slurmctld.pid",
        f"SlurmdPidFile={layout.run}/slurmd.%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd.%n.log",
    ]


def machine_numa() -> tuple[int, int, int]:
    """Sockets, cores per socket and threads per core of this machine; 1 socket if unknown."""
    try:
        text = subprocess.run(
            ["lscpu", "-p=SOCKET,CORE"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return 1, os.cpu_count() or 1, 1
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    sockets = len({row[0] for row in rows}) or 1
    cores = len({tuple(row) for row in rows}) or 1
    return sockets, max(cores // sockets, 1), max(len(rows) // cores, 1)


def quote(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
