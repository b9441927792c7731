"""A report about jobs that is kept: asks for what is different since it was shown last."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from gsched.model.job import Job
from gsched.model.node import Verdict
from gsched.rawtext import unpack
from gsched.wire.changes import JobChanges, JobDelta
from gsched.wire.messages import JobQuery
from gsched_cli.common import Reader
from gsched_cli.kept import Kept
from gsched_cli.queue_lines import QueueLines
from gsched_cli.queue_records import Records

T = TypeVar("T", QueueLines, Records)
Stored = Kept[QueueLines | Records]

#: records asked for at once
PART = 20_000
#: an answer in parts is asked for again where too much has happened meanwhile, so often at most
TRIES = 3

_job = msgspec.msgpack.Decoder(Job)
_verdict = msgspec.msgpack.Decoder(Verdict)


def kept_text(
    reader: Reader,
    kept: Stored,
    key: object,
    make: Callable[[], QueueLines],
    uids: Collection[int],
    *,
    active_only: bool,
    planned: bool,
) -> str:
    """The report's lines as they are now. `key` names all that they depend on but the jobs and who
    asks; `make` makes a report without lines. Raises ControllerDown, RequestRefused.

    Cost: what has changed; the first time 2 us a job, and 20 us a job where nobody has asked for
    any report.
    """
    now = reader.now()
    lines = _taken(reader, kept, key, QueueLines)
    state = b""
    if lines is not None and lines.now <= now:
        state = lines.state
    query = JobChanges(sorted(uids), active_only, state, planned)
    if not state:
        lines, whose = _first(reader, kept, query, make, now)
    else:
        assert lines is not None
        delta = reader.changes(query)
        if delta.whole:
            lines, delta = _whole(reader, query, make, delta, now)
        else:
            _update(reader, lines, delta, now)
        lines.state, whose = delta.state, delta.whose
    text = lines.text(now)
    _put(reader, kept, key, lines, whose)
    return text


def _taken(reader: Reader, kept: Stored, key: object, kind: type[T]) -> T | None:
    # Whose jobs he sees is known from the answer: his own report goes before everybody's.
    for owner in (reader.uid, None):
        found = kept.take((owner, key))
        if isinstance(found, kind):
            return found
    return None


def _put(
    reader: Reader,
    kept: Stored,
    key: object,
    value: QueueLines | Records,
    whose: int,
) -> None:
    kept.put((reader.uid if whose >= 0 else None, key), value, value.bytes)


def _first(
    reader: Reader,
    kept: Stored,
    query: JobChanges,
    make: Callable[[], QueueLines],
    now: float,
) -> tuple[QueueLines, int]:
    """A report that nobody has asked for before, of the jobs that are kept for that, and whose jobs
    they are (JobDelta.whose)."""
    key = Records, query.active_only
    records = _taken(reader, kept, key, Records)
    if records is None and query.uids:
        # Few jobs of many, perhaps.
        lines, delta = _whole(reader, query, make, reader.changes(query), now)
        lines.state = delta.state
        return lines, delta.whose
    everything = JobChanges([], query.active_only, b"" if records is None else records.state, True)
    delta = reader.changes(everything)
    if delta.more:
        # So many that their records are not kept.
        everything.planned = query.planned
        lines, delta = _whole(reader, everything, make, delta, now)
        lines.state = delta.state
        return lines, delta.whose
    if records is None or delta.whole:
        records = Records()
    records.take(delta)
    lines = make()
    lines.fill(records, now)
    lines.state = records.state = delta.state
    records.tidy()
    _put(reader, kept, key, records, delta.whose)
    return lines, delta.whose


def _whole(
    reader: Reader, query: JobChanges, make: Callable[[], QueueLines], delta: JobDelta, now: float
) -> tuple[QueueLines, JobDelta]:
    """A report of all jobs that `delta` begins to tell of, and the last answer: where they came in
    parts, what has changed since the first of them is in the report, too."""
    for _ in range(TRIES):
        lines = make()
        first, parts = delta, 1
        _fill(lines, delta, now)
        while delta.more:
            query.after, query.state = _job.decode(delta.jobs[-1]).id, b""
            delta = reader.changes(query)
            _fill(lines, delta, now)
            parts += 1
        if parts == 1 or not first.state:
            break
        query.after, query.state = 0, first.state
        delta = reader.changes(query)
        if not delta.whole:
            _update(reader, lines, delta, now)
            break
    return lines, delta


def _fill(lines: QueueLines, delta: JobDelta, now: float) -> None:
    lines.expect_also(delta.not_before or {})
    verdicts = delta.verdicts
    for record in delta.jobs:
        job = unpack(record, _job)
        job.priority = delta.priorities.get(job.id, job.priority)
        packed = verdicts.get(job.id)
        lines.put(job, None if packed is None else _verdict.decode(packed), now)


def _update(reader: Reader, lines: QueueLines, delta: JobDelta, now: float) -> None:
    lines.drop(delta.gone)
    again: set[int] = set()
    if delta.not_before is not None:
        again.update(lines.expect(delta.not_before))
    told: dict[int, Verdict | None] = dict.fromkeys(delta.silent)
    told |= {job_id: _verdict.decode(packed) for job_id, packed in delta.verdicts.items()}
    for record in delta.jobs:
        job = unpack(record, _job)
        job.priority = delta.priorities.get(job.id, job.priority)
        lines.put(job, told.pop(job.id, None), now)
        again.discard(job.id)
    again.update(lines.doubtful(told.items()))
    again.update(lines.joined())
    ids = sorted(again)
    for start in range(0, len(ids), PART):
        part = ids[start : start + PART]
        rows = reader.jobs(JobQuery(part, min_version=delta.version))
        lines.drop(part)
        for job in rows.jobs:
            # The id of an array means its tasks, too.
            if job.id in again:
                job.priority = rows.priorities.get(job.id, job.priority)
                lines.put(job, rows.verdicts.get(job.id), now)
