"""What an attempt has used, hour by hour: pure arithmetic, the same for SQL's roll-ups and for what
still runs. Sums over hours are exactly what the attempt has used."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from gsched import tres
from gsched.accounting.calendar import Calendar
from gsched.model.acct import AcctJob
from gsched.model.policy import Tres


class What(enum.IntEnum):
    """What TRES-seconds were spent on. Stored: never renumber."""

    #: by jobs
    ALLOC = 1
    #: by jobs in a reservation (these are not in the cluster's ALLOC)
    INSIDE = 2
    #: jobs that could have run and had no place: what they asked for
    WAIT = 3
    DOWN = 4
    PLANNED_DOWN = 5
    RESERVED = 6


#: (what, TRES, begin of the hour) -> TRES-seconds
Sums = dict[tuple[int, str, int], int]


@lru_cache(maxsize=65536)
def counts(text: str) -> Mapping[str, int]:
    """The TRES of a text in a record; what cannot be read counts nothing."""
    try:
        return tres.parse(text)
    except tres.TresError:
        return {}


def span(row: AcctJob, now: int = 0) -> tuple[int, int, int]:
    """(begin, end, seconds used) of an attempt: exact where its end was reported; of one that a
    lost node ended up to that node's last report; of one that runs up to `now`."""
    if not row.start:
        return 0, 0, 0
    until = row.last_report or row.end_time or now
    return row.start, until, max(0, min(row.elapsed_s, until - row.start))


def hourly(calendar: Calendar, begin: int, end: int, total: int) -> Iterator[tuple[int, int]]:
    """(begin of the hour, seconds) of so many seconds that lie evenly in [begin, end): they are
    fewer where a job was suspended. Nothing is lost by rounding."""
    length = end - begin
    if length <= 0 or total <= 0:
        return
    done = 0
    for first, last in calendar.hours(begin, end):
        until = total * (min(last, end) - begin) // length
        if until > done:
            yield first, until - done
        done = until


def parts(calendar: Calendar, row: AcctJob, now: int = 0) -> Iterator[tuple[What, str, int, int]]:
    """(what, TRES as a text, begin of the hour, seconds) of what it used (ALLOC) and waited for
    (WAIT)."""
    begin, end, total = span(row, now)
    for hour, seconds in hourly(calendar, begin, end, total):
        yield What.ALLOC, row.alloc_tres, hour, seconds
    if row.eligible:
        until = row.start or row.end_time or now
        for hour, seconds in hourly(calendar, row.eligible, until, until - row.eligible):
            yield What.WAIT, row.req_tres, hour, seconds


def of_job(calendar: Calendar, row: AcctJob, now: int = 0) -> Sums:
    """What it used (ALLOC), and what it waited for (WAIT)."""
    found: Sums = {}
    for what, text, hour, seconds in parts(calendar, row, now):
        _add(found, what, counts(text), ((hour, seconds),))
    return found


def of_time(calendar: Calendar, what: What, has: Tres, begin: int, end: int) -> Sums:
    """Resources for some time: a node that was down, a reservation."""
    found: Sums = {}
    _add(found, what, has, hourly(calendar, begin, end, end - begin))
    return found


def reserved_as(flags: str) -> What | None:
    """What a reservation's time counts as: planned down time for MAINT, not at all where jobs may
    run on in it (IGNORE_JOBS)."""
    words = set(flags.split(","))
    if "IGNORE_JOBS" in words:
        return None
    return What.PLANNED_DOWN if "MAINT" in words else What.RESERVED


def _add(found: Sums, what: What, has: Mapping[str, int], hours: Iterable[tuple[int, int]]) -> None:
    for first, seconds in hours:
        for name, count in has.items():
            if count > 0:
                key = int(what), name, first
                found[key] = found.get(key, 0) + count * seconds
