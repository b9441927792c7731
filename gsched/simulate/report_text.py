"""The measures of replays as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gsched.units import format_elapsed

#: lines of the tables of users, accounts, partitions
MOST = 10

#: (words, path into the summary, kind of value); kinds: time, share, count, number, hours
_MEASURES = (
    ("jobs", "jobs", "count"),
    ("jobs that ended", "ended", "count"),
    ("wait, mean", "wait_s.mean", "time"),
    ("wait, median", "wait_s.median", "time"),
    ("wait, 95 %", "wait_s.p95", "time"),
    ("wait, 99 %", "wait_s.p99", "time"),
    ("wait, longest", "wait_s.max", "time"),
    ("bounded slowdown, mean", "bounded_slowdown.mean", "number"),
    ("bounded slowdown, median", "bounded_slowdown.median", "number"),
    ("bounded slowdown, 95 %", "bounded_slowdown.p95", "number"),
    ("GPUs in use", "gpu_utilisation", "share"),
    ("GPUs in use while jobs came", "gpu_utilisation_arrivals", "share"),
    ("CPUs in use", "cpu_utilisation", "share"),
    ("CPUs in use while jobs came", "cpu_utilisation_arrivals", "share"),
    ("free GPUs of no use", "fragmentation", "share"),
    ("waiting jobs, mean", "queue_length", "number"),
    ("waiting jobs, most", "queue_length_max", "count"),
    ("GPUs waited for, mean", "queued_gpus", "number"),
    ("backfilled starts", "backfilled", "count"),
    ("makespan", "makespan_s", "time"),
    ("GPU hours", "gpu_hours", "hours"),
    ("CPU hours", "cpu_hours", "hours"),
    ("passes", "passes", "count"),
)

_OF_GPUS = {"gpu_utilisation", "gpu_utilisation_arrivals", "fragmentation", "queued_gpus"}


def _value(found: dict[str, Any], path: str) -> float | None:
    value: Any = found
    for name in path.split("."):
        value = value[name] if value is not None else None
    return value  # type: ignore[no-any-return]


def _shown(value: float | None, kind: str) -> str:
    if value is None:
        return "-"
    if kind == "time":
        return format_elapsed(round(value))
    if kind == "share":
        return f"{100 * value:.1f} %"
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "hours":
        return f"{value:,.0f} h"
    return f"{value:,.2f}"


def _difference(one: float | None, other: float | None, kind: str) -> str:
    if one is None or other is None:
        return ""
    if kind == "share":
        return f"{100 * (other - one):+.1f}"
    if one == other:
        return "="
    return f"{100 * (other - one) / one:+.1f} %" if one else "new"


def _measures(summaries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    gpus = any(found["gpus"] for found in summaries)
    for words, path, kind in _MEASURES:
        if gpus or not (path in _OF_GPUS or path == "gpu_hours"):
            yield words, path, kind


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def summary_text(found: dict[str, Any]) -> str:
    """One replay: the measures, then who had what of it."""
    rows = [(words, _shown(_value(found, path), kind)) for words, path, kind in _measures([found])]
    states = ", ".join(f"{count:,} {state}" for state, count in found["states"].items())
    lines = [f"states: {states}"]
    lines += [f"refused: {count:,} x {why}" for why, count in found["refusals"].items()]
    lines += [f"never started: {count:,} x {why}" for why, count in found["never_started"].items()]
    groups = [
        _groups(name, found[name])
        for name in ("users", "accounts", "partitions")
        if len(found[name]) > 1
    ]
    return "\n\n".join([table(rows), "\n".join(lines), *groups])


def _groups(name: str, lines: list[dict[str, Any]]) -> str:
    rows = [(name, "jobs", "GPU hours", "CPU hours", "mean wait", "wait 95 %", "slowdown")]
    for line in lines[:MOST]:
        rows.append(
            (
                line["name"],
                f"{line['jobs']:,}",
                f"{line['gpu_hours']:,.0f}",
                f"{line['cpu_hours']:,.0f}",
                _shown(line["wait_mean_s"], "time"),
                _shown(line["wait_p95_s"], "time"),
                _shown(line["slowdown_mean"], "number"),
            )
        )
    more = len(lines) - MOST
    return table(rows) + (f"\n... and {more} more" if more > 0 else "")


def compare_text(names: Sequence[str], summaries: Sequence[dict[str, Any]]) -> str:
    """Side by side; beside each but the first its difference to the first (of shares in points of
    a hundred)."""
    head = ["", names[0]]
    for name in names[1:]:
        head += [name, ""]
    rows = [head]
    for words, path, kind in _measures(summaries):
        values = [_value(found, path) for found in summaries]
        row = [words, _shown(values[0], kind)]
        for value in values[1:]:
            row += [_shown(value, kind), _difference(values[0], value, kind)]
        rows.append(row)
    return table(rows)
