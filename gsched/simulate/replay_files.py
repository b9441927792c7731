"""A replay's schedule and the state of its cluster over time, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from gsched.cpuset import format_cpu_list
from gsched.hostlist import compress
from gsched.simulate.replay_record import Record, Row

SCHEDULE = (
    *("job_id", "submit", "start", "end", "wait", "user", "account", "partition", "nodes"),
    *("gpus", "state", "backfilled"),
)
TIMELINE = (
    *("time", "gpus_in_use", "cpus_in_use", "running", "waiting", "waiting_gpus"),
    "fragmented_gpus",
)


def number(value: float) -> str:
    """Seconds with as many digits as they need, at most six after the point."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _places(row: Row) -> str:
    """`n1:0-3|n2:0-7`: GPUs by node; "" for a job without."""
    return "|".join(f"{node}:{format_cpu_list(gpus)}" for node, gpus in row.places if gpus)


def _row(row: Row) -> tuple[str, ...]:
    job = row.job
    begun = row.start >= 0
    return (
        job.name,
        number(job.submit),
        number(row.start) if begun else "",
        number(row.end) if row.end >= 0 else "",
        number(row.wait) if begun else "",
        job.user,
        job.account,
        row.partition,
        compress([node for node, _ in row.places]),
        _places(row),
        row.state,
        "1" if row.backfilled else "0",
    )


def write_schedule(path: Path, record: Record) -> None:
    """A line for each job, in order of submission; seconds of the trace."""
    _write(path, SCHEDULE, (_row(row) for row in record.rows))


def write_timeline(path: Path, record: Record) -> None:
    """A line for each moment at which something changed."""
    _write(
        path,
        TIMELINE,
        (tuple(number(value) for value in sample) for sample in record.samples),
    )


def _write(path: Path, head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(head)
        table.writerows(rows)
