"""What a replay comes to, in numbers. All of it follows from the trace, the cluster and the rules:
the same input gives the same numbers (how long passes took is told apart from them)."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gsched.simulate.replay_record import PENDING, REFUSED, Record, Row

#: jobs shorter than that count as so long in the bounded slowdown
SHORT_S = 10.0
HOUR = 3600.0


def rank(values: Sequence[float], share: float) -> float:
    """The value that so large a share of the sorted `values` does not exceed (nearest rank)."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: list[float]) -> dict[str, float] | None:
    """Mean, median, 95th and 99th percentile and maximum; None of nothing."""
    if not values:
        return None
    values = sorted(values)
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "p95": rank(values, 0.95),
        "p99": rank(values, 0.99),
        "max": values[-1],
    }


def slowdown(row: Row) -> float:
    """Bounded: max(1, (wait + run) / max(run, 10 s))."""
    run = row.end - row.start
    return max(1.0, (row.wait + run) / max(run, SHORT_S))


def summary(record: Record, passes: int, refused: Counter[str]) -> dict[str, Any]:
    """All measures by name; seconds, hours where the name says so, shares between 0 and 1."""
    rows = record.rows
    ran = [row for row in rows if row.end >= 0]
    first = rows[0].job.submit
    last = max((row.end for row in ran), default=first)
    arrivals = rows[-1].job.submit
    backfilled = sum(row.backfilled for row in ran)
    left = Counter(row.reason for row in rows if row.state == PENDING)
    found: dict[str, Any] = {
        "jobs": len(rows),
        "ended": len(ran),
        "states": dict(sorted(Counter(row.state for row in rows).items())),
        "never_started": dict(sorted(left.items())),
        "refusals": dict(sorted(refused.items())),
        "wait_s": spread([row.wait for row in ran]),
        "bounded_slowdown": spread([slowdown(row) for row in ran]),
        "makespan_s": last - first,
        "gpus": record.total_gpus,
        "cpus": record.total_cpus,
        "gpu_hours": sum(row.gpus * (row.end - row.start) for row in ran) / HOUR,
        "cpu_hours": sum(row.cpus * (row.end - row.start) for row in ran) / HOUR,
        **over_time(record, first, last, arrivals),
        "backfilled": backfilled,
        "backfilled_share": backfilled / len(ran) if ran else 0.0,
        "passes": passes,
    }
    for name, key in (("users", _user), ("accounts", _account), ("partitions", _partition)):
        found[name] = grouped(rows, key)
    return found


def over_time(record: Record, first: float, last: float, arrivals: float) -> dict[str, Any]:
    """Means weighted by time, from the first submission to the last end; `_arrivals`: to the last
    submission. Shares of what the cluster has; `fragmentation` is the share of the free GPUs."""
    gpus = cpus = early_gpus = early_cpus = queue = queued_gpus = lost = free = 0.0
    for now, after in zip(record.samples, record.samples[1:], strict=False):
        span = min(after.time, last) - now.time
        if span > 0:
            gpus += span * now.gpus
            cpus += span * now.cpus
            queue += span * now.waiting
            queued_gpus += span * now.waiting_gpus
            lost += span * now.fragmented
            free += span * (record.total_gpus - now.gpus)
        early = min(after.time, arrivals) - now.time
        if early > 0:
            early_gpus += early * now.gpus
            early_cpus += early * now.cpus

    def share(amount: float, total: float) -> float:
        return amount / total if total > 0 else 0.0

    return {
        "gpu_utilisation": share(gpus, record.total_gpus * (last - first)),
        "gpu_utilisation_arrivals": share(early_gpus, record.total_gpus * (arrivals - first)),
        "cpu_utilisation": share(cpus, record.total_cpus * (last - first)),
        "cpu_utilisation_arrivals": share(early_cpus, record.total_cpus * (arrivals - first)),
        "fragmentation": share(lost, free),
        "fragmented_gpus": share(lost, last - first),
        "queue_length": share(queue, last - first),
        "queue_length_max": max((sample.waiting for sample in record.samples), default=0),
        "queued_gpus": share(queued_gpus, last - first),
    }


def _user(row: Row) -> str:
    return row.job.user


def _account(row: Row) -> str:
    return row.job.account


def _partition(row: Row) -> str:
    return row.partition


def grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> list[dict[str, Any]]:
    """A line for each user, account or partition, most GPU hours first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.state != REFUSED and key(row):
            groups.setdefault(key(row), []).append(row)
    lines = []
    for name, members in groups.items():
        ran = [row for row in members if row.end >= 0]
        waits = sorted(row.wait for row in ran)
        lines.append(
            {
                "name": name,
                "jobs": len(members),
                "gpu_hours": sum(row.gpus * (row.end - row.start) for row in ran) / HOUR,
                "cpu_hours": sum(row.cpus * (row.end - row.start) for row in ran) / HOUR,
                "wait_mean_s": statistics.fmean(waits) if ran else None,
                "wait_p95_s": rank(waits, 0.95) if ran else None,
                "slowdown_mean": statistics.fmean(map(slowdown, ran)) if ran else None,
            }
        )
    return sorted(lines, key=lambda line: (-line["gpu_hours"], -line["cpu_hours"], line["name"]))
