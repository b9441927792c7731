"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, -1 for what
is not known, comments with `;` before them that tell of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gsched.simulate.traces.job import Trace, TraceJob, at, number

_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*)")
FIELDS = 18

#: the columns that count here, from 0
_NUMBER, _SUBMIT, _RUN, _USED = 0, 1, 3, 4
_WANTED, _LIMIT, _MEMORY, _STATUS = 7, 8, 9, 10
_USER, _GROUP, _QUEUE, _PARTITION = 11, 12, 14, 15

#: a processor's memory stands in it in KB
_KB = 1024


def read(path: str, lines: Iterable[str], gpus: bool = False) -> Trace:
    """`gpus`: its processors are GPUs. A job has the processors it asked for, or those it used
    where the log does not tell. Jobs that never ran (cancelled while they waited) and jobs without
    processors are left out and counted."""
    trace = Trace(path, "swf", [])
    header: dict[str, str] = {}
    no_run = no_size = 0
    for place, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if text.startswith(";"):
            if found := _HEADER.match(text):
                header.setdefault(found[1].lower(), found[2].strip())
            continue
        words = text.split()
        if len(words) != FIELDS:
            raise at(path, place, f"a job has {FIELDS} fields, here are {len(words)}")
        row = [number(word, f"field {i}", path, place, -1e14) for i, word in enumerate(words, 1)]
        if row[_RUN] < 0:
            no_run += 1
            continue
        size = int(row[_WANTED] if row[_WANTED] > 0 else row[_USED])
        if size <= 0:
            no_size += 1
            continue
        job = TraceJob(words[_NUMBER], row[_SUBMIT], row[_RUN])
        if gpus:
            job.gpus = size
        else:
            job.cpus = size
        if row[_LIMIT] > 0:
            job.limit = row[_LIMIT]
        job.good = row[_STATUS] != 0
        job.user = _named("u", row[_USER])
        job.account = _named("g", row[_GROUP])
        job.partition = _named("q", row[_QUEUE]) or _named("p", row[_PARTITION])
        trace.jobs.append(job)
    for count, why in ((no_run, "never ran"), (no_size, "name no processors")):
        if count:
            trace.remarks.append(f"{count} jobs of the log {why}: left out")
    trace.nodes = _count(header.get("maxnodes", ""))
    processors = _count(header.get("maxprocs", ""))
    trace.gpus, trace.cpus = (processors, 0) if gpus else (0, processors)
    trace.epoch = _count(header.get("unixstarttime", "")) or None
    return trace


def _named(letter: str, value: float) -> str:
    return f"{letter}{int(value)}" if value >= 0 else ""


def _count(text: str) -> int:
    found = re.match(r"[0-9]+", text)
    return int(found[0]) if found else 0
