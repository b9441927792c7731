"""A cluster out of this machine's own GPUs, divided among the nodes, none given twice."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from gsched.local.conf import (
    NodeLine,
    Plan,
    machine_cpus,
    machine_mem_mb,
    machine_numa,
    node_list,
)
from gsched.local.shapes import USUAL_SETTINGS, type_of

#: MB of the machine's memory that no node offers: for the daemons and the system
SYSTEM_MEM_MB = 1024


@dataclass(frozen=True)
class Device:
    """A GPU that NVML found."""

    minor: int
    type: str


def devices() -> list[Device]:
    """The machine's GPUs by minor number; [] without an NVIDIA driver. About 0.1 s."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                name = pynvml.nvmlDeviceGetName(handle)
                minor = pynvml.nvmlDeviceGetMinorNumber(handle)
            except pynvml.NVMLError as error:
                logging.getLogger(__name__).warning("GPU %d is left out: %s", index, error)
                continue
            found.append(Device(int(minor), type_of(name if isinstance(name, str) else "")))
    finally:
        pynvml.nvmlShutdown()
    return sorted(found, key=lambda device: device.minor)


def shares(gpus: list[Device], nodes: int) -> list[list[Device]]:
    """The GPUs in contiguous runs, as evenly as possible: 8 among 3 gives 3, 3, 2."""
    base, more = divmod(len(gpus), nodes)
    result, at = [], 0
    for index in range(nodes):
        size = base + (index < more)
        result.append(gpus[at : at + size])
        at += size
    return result


def real(gpus: list[Device], nodes: int) -> Plan:
    """A cluster of `nodes` nodes that share this machine: its GPUs, CPUs and memory divided."""
    cpus = machine_cpus()
    mem_mb = max((machine_mem_mb() - SYSTEM_MEM_MB) // nodes, 256)
    sockets, cores, threads = machine_numa()
    if nodes > 1 or sockets * cores * threads != cpus:
        sockets, cores, threads = 1, max(cpus // nodes, 1), 1
    lines = []
    for index, share in enumerate(shares(gpus, nodes), 1):
        kinds = {device.type for device in share}
        lines.append(
            NodeLine(
                f"node{index}",
                cpus=sockets * cores * threads,
                sockets=sockets,
                cores=cores,
                threads=threads,
                mem_mb=mem_mb,
                gpu_type=min(kinds) if len(kinds) == 1 else "",
                gpus=len(share),
                features=",".join(sorted(kinds)),
                minors=tuple(device.minor for device in share),
            )
        )
    per_cpu = max(mem_mb // (sockets * cores * threads), 1)
    plan = Plan("gsched", lines, settings=[*USUAL_SETTINGS, f"DefMemPerCPU={per_cpu}"])
    plan.partitions = [
        f"PartitionName=gpu Nodes={node_list(lines)} Default=YES MaxTime=INFINITE "
        "DefaultTime=01:00:00 State=UP"
    ]
    plan.cgroup = [
        f"ConstrainCores={'yes' if nodes == 1 else 'no'}",
        "ConstrainRAMSpace=yes",
        "ConstrainDevices=yes",
    ]
    if nodes > 1:
        plan.remarks.append(
            f"CPU binding is off: {nodes} nodes share this machine's CPUs and would count them "
            "from 0 each"
        )
    return plan
