"""Gang tables: CSV with the columns job_id, submit_s, runtime_s, gpus and, where known,
estimate_s (the user's limit) and user. Other columns are passed over."""

from __future__ import annotations

from collections.abc import Iterable

from gsched.simulate.traces.job import Trace, TraceJob, number, whole
from gsched.simulate.traces.table import rows

NEEDED = ("job_id", "submit_s", "runtime_s", "gpus")


def read(path: str, lines: Iterable[str]) -> Trace:
    """TraceError names the line that is no job."""
    trace = Trace(path, "gang", [])
    for place, row in rows(path, lines, NEEDED):
        job = TraceJob(
            row["job_id"],
            number(row["submit_s"], "submit_s", path, place),
            number(row["runtime_s"], "runtime_s", path, place),
            gpus=whole(row["gpus"], "gpus", path, place, 1),
        )
        if row.get("estimate_s"):
            job.limit = number(row["estimate_s"], "estimate_s", path, place)
        for column in ("user", "account", "partition", "qos"):
            value = row.get(column) or ""
            setattr(job, column, "" if value == "-" else value)
        trace.jobs.append(job)
    return trace
