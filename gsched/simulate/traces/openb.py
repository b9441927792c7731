"""Tables of Alibaba's GPU-sharing cluster (cluster-trace-gpu-v2023): tasks, and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gsched.simulate.traces.job import Trace, TraceError, TraceJob, at, number, whole
from gsched.simulate.traces.table import rows

TASKS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time")
NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

WHOLE = 1000


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A line of the node list."""

    name: str
    cpus: int
    mem_mb: int
    gpus: int
    model: str


def read(path: str, lines: Iterable[str]) -> Trace:
    """A task arrives when it was created and runs from its start to its deletion; one that was
    never started or has no end is left out and counted."""
    trace = Trace(path, "openb", [])
    never = 0
    for place, row in rows(path, lines, TASKS):
        if any(name not in row for name in TIMES):
            raise TraceError(
                f"{path}: a list of tasks without {' and '.join(TIMES)} cannot be replayed: it "
                "does not tell when they came"
            )
        created = number(row["creation_time"], "creation_time", path, place)
        began = row.get("scheduled_time") or ""
        start = number(began, "scheduled_time", path, place) if began else None
        if start is None or not row["deletion_time"]:
            never += 1
            continue
        ended = number(row["deletion_time"], "deletion_time", path, place)
        if ended < start:
            raise at(path, place, f"deletion_time {row['deletion_time']} is before {began}")
        gpus = whole(row["num_gpu"], "num_gpu", path, place)
        milli = whole(row["gpu_milli"], "gpu_milli", path, place)
        if milli > WHOLE or (gpus > 1 and milli < WHOLE):
            raise at(path, place, f"gpu_milli {milli} of {gpus} GPUs is no share")
        trace.jobs.append(
            TraceJob(
                row["name"],
                created,
                ended - start,
                nodes=1,
                cpus=-(-whole(row["cpu_milli"], "cpu_milli", path, place) // WHOLE),
                mem_mb=whole(row["memory_mib"], "memory_mib", path, place),
                gpus=gpus,
                gpu_milli=milli if gpus and 0 < milli < WHOLE else 0,
                features=(row.get("gpu_spec") or "") if gpus else "",
                qos=row.get("qos") or "",
            )
        )
    if never:
        trace.remarks.append(f"{never} tasks were never started or have no end: left out")
    return trace


def read_nodes(path: str, lines: Iterable[str]) -> list[NodeRow]:
    """The node list. Thousandths of a CPU beyond whole ones are lost."""
    return [
        NodeRow(
            row["sn"],
            whole(row["cpu_milli"], "cpu_milli", path, place, WHOLE) // WHOLE,
            whole(row["memory_mib"], "memory_mib", path, place, 1),
            whole(row["gpu"], "gpu", path, place),
            row["model"],
        )
        for place, row in rows(path, lines, NODES)
    ]
