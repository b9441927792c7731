"""What `sacct --parsable2` (or -P) prints at a real site, columns in any order:

    sacct -a -P -S 2025-03-01 -E 2025-04-01 -o JobID,Submit,Start,End,Elapsed,Timelimit,State,\
User,Account,Partition,QOS,NNodes,NCPUS,AllocTRES,ReqTRES,ReqMem,Priority

JobID, Submit and Elapsed (or Start and End) must be there. Steps are passed over; a task of an
array and a component of a heterogeneous job are jobs of their own; jobs that never started, or
have not ended, are left out and counted.
"""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from gsched.simulate.traces.job import Trace, TraceError, TraceJob, at
from gsched.simulate.traces.table import rows
from gsched.units import UnitError, parse_duration, parse_memory

NEEDED = ("jobid", "submit")

_ID = re.compile(r"[0-9]+(?:_[0-9]+)?(?:\+[0-9]+)?\Z")
_UNKNOWN = {"", "unknown", "none", "n/a", "invalid"}
#: states of jobs that are not over
_OPEN = {"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING"}
_NO_LIMIT = {"unlimited", "infinite"}


def read(path: str, lines: Iterable[str]) -> Trace:
    """The trace's zero is the first submission. TraceError names the line that is no job."""
    trace = Trace(path, "sacct", [])
    left: Counter[str] = Counter()
    for place, row in rows(path, _lower(lines), NEEDED, "|"):
        name = row["jobid"]
        if "." in name:
            continue
        job = _job(_Row(path, place, row), left)
        if job is not None:
            trace.jobs.append(job)
    for why, count in left.items():
        trace.remarks.append(f"{count} jobs {why}: left out")
    if trace.jobs:
        trace.epoch = int(min(job.submit for job in trace.jobs))
        for job in trace.jobs:
            job.submit -= trace.epoch
    return trace


def _lower(lines: Iterable[str]) -> Iterable[str]:
    """The head in lower case, without the bar that -p puts at the end of each line."""
    tail = False
    for place, line in enumerate(lines):
        text = line.rstrip("\r\n")
        if place == 0:
            text = text.lower()
            tail = text.endswith("|")
        yield text[:-1] if tail and text.endswith("|") else text


class _Row:
    """One line, its values by column."""

    def __init__(self, path: str, place: int, values: Mapping[str, str]) -> None:
        self.path, self.place, self.values = path, place, values

    def get(self, column: str) -> str:
        return self.values.get(column, "").strip()

    def error(self, column: str, text: str) -> TraceError:
        return at(self.path, self.place, f'{column} "{self.get(column)[:60]}" {text}')

    def time(self, column: str) -> int | None:
        """Epoch seconds as if the site's clock were UTC: only differences count."""
        text = self.get(column)
        if text.lower() in _UNKNOWN:
            return None
        if text.isdecimal():
            return int(text)
        try:
            return calendar.timegm(datetime.fromisoformat(text).timetuple())
        except ValueError:
            raise self.error(column, "is not a time") from None

    def seconds(self, column: str) -> int | None:
        """Of [D-]HH:MM:SS; None where there is none."""
        text = self.get(column).partition(".")[0]
        if text.lower() in _UNKNOWN:
            return None
        try:
            return parse_duration(text)
        except UnitError:
            raise self.error(column, "is not a time") from None

    def number(self, column: str) -> int:
        text = self.get(column)
        if not text:
            return 0
        if not text.isdecimal() or len(text) > 12:
            raise self.error(column, "is not a number")
        return int(text)

    def tres(self, column: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in self.get(column).split(","):
            name, mark, value = item.partition("=")
            if item and not mark:
                raise self.error(column, "is not a list of name=count")
            found[name.strip().lower()] = value.strip()
        return found

    def memory(self, text: str, column: str) -> int:
        try:
            return parse_memory(text) if text and text not in ("?", "0") else 0
        except UnitError:
            raise self.error(column, "is not a size of memory") from None

    def count(self, text: str, column: str) -> int:
        if text and (not text.isdecimal() or len(text) > 12):
            raise self.error(column, f'has "{text[:20]}" where a number is expected')
        return int(text or 0)


def _job(row: _Row, left: Counter[str]) -> TraceJob | None:
    state = row.get("state").split(" ")[0].upper()
    name = row.get("jobid")
    if state == "PENDING" or "[" in name:
        left["had not started"] += 1
        return None
    if not _ID.match(name):
        raise row.error("jobid", "is not a job id")
    submit, start, end = row.time("submit"), row.time("start"), row.time("end")
    if submit is None:
        raise row.error("submit", "is not a time")
    if state in _OPEN:
        left["had not ended"] += 1
        return None
    run = row.seconds("elapsed")
    if run is None and start is not None and end is not None:
        run = end - start
    if ("start" in row.values and start is None) or not run:
        # Cancelled while it waited; some releases give such a job its end as its start.
        left["never ran"] += 1
        return None
    if run < 0:
        raise row.error("end", "is before the start")
    job = TraceJob(name, float(submit), float(run))
    _limit(row, job)
    _size(row, job)
    job.user, job.account = row.get("user"), row.get("account")
    # A job that named several partitions has them all until it starts.
    job.partition, job.qos = row.get("partition").split(",")[0], row.get("qos")
    if row.get("priority"):
        job.priority = row.number("priority")
    job.good = state in ("", "COMPLETED", "CANCELLED", "TIMEOUT", "PREEMPTED")
    return job


def _limit(row: _Row, job: TraceJob) -> None:
    text = row.get("timelimit").lower()
    if text in _NO_LIMIT:
        job.limit = 0.0
    elif text and text != "partition_limit":
        seconds = row.seconds("timelimit")
        job.limit = None if seconds is None else float(seconds)


def _size(row: _Row, job: TraceJob) -> None:
    """What it held, or where that is not told what it asked for."""
    column = "alloctres" if row.get("alloctres") else "reqtres"
    tres = row.tres(column)
    job.nodes = row.count(tres.get("node", ""), column) or row.number("nnodes")
    job.cpus = row.count(tres.get("cpu", ""), column) or row.number("ncpus")
    job.gpus = row.count(tres.get("gres/gpu", ""), column)
    kinds = {
        name.partition(":")[2]: row.count(value, column)
        for name, value in tres.items()
        if name.startswith("gres/gpu:")
    }
    if kinds:
        job.gpus = max(job.gpus, sum(kinds.values()))
        if len(kinds) == 1:
            job.gpu_type = next(iter(kinds))
    nodes = max(1, job.nodes)
    if tres.get("mem"):
        job.mem_mb = -(-row.memory(tres["mem"], column) // nodes)
    else:
        # Older releases end it with c (of each CPU) or n (of each node).
        text = row.get("reqmem")
        each = row.memory(text.rstrip("cn"), "reqmem")
        job.mem_mb = each * (-(-job.cpus // nodes) if text.endswith("c") else 1)
