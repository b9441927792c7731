"""Roll-ups of attempts: how many an owner had with the same resources and state, and how long they
ran, by day and month. Sums of a span are put together from them, so that bills of years need not
look at each attempt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import sqlalchemy as sa

from gsched.accounting import schema, sql_many
from gsched.accounting.calendar import Calendar, Span
from gsched.accounting.usage import span
from gsched.model.acct import AcctJob

LEVELS = (schema.size_day, schema.size_month)
#: times and shapes of one statement
_MANY = 500
_COLUMNS = ("state_uuid", "begin", "ref", "shape", "state", "jobs", "starts", "seconds")
#: (account, user, WCKey, allocated TRES, state)
Key = tuple[str, str, str, str, str]
#: key -> (attempts, seconds)
Found = dict[Key, tuple[int, int]]
#: (table that has it, begin, end)
Piece = tuple[sa.Table | None, int, int]
#: (begin, owner, shape, state) -> [attempts, begun, seconds]
_Sums = dict[tuple[int, int, int, str], list[int]]


def shape(text: str) -> int:
    """The number of a text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def used(begin: int, until: int, total: int, first: int, last: int) -> int:
    """Of `total` seconds that lie evenly in [begin, until) those in [first, last): parts of a span
    add up to the whole."""
    length = until - begin
    if length <= 0:
        return 0
    first, last = min(max(first, begin), until), min(max(last, begin), until)
    return total * (last - begin) // length - total * (first - begin) // length


def add_jobs(
    connection: sa.Connection,
    state: str,
    rows: Iterable[AcctJob],
    calendar: Calendar,
    owners: Mapping[tuple[int, str, str, str], int],
    since: int = 0,
    sign: int = 1,
) -> None:
    """Counts attempts that have run, from `since` (the begin of a month) on; `sign` -1 takes them
    out again."""
    texts: dict[str, int] = {}
    levels: tuple[_Sums, _Sums] = ({}, {})
    for row in rows:
        start, until, total = span(row)
        if not start:
            continue
        until = max(until, start)
        number = texts.get(row.alloc_tres)
        if number is None:
            number = texts[row.alloc_tres] = shape(row.alloc_tres)
        ref = owners[row.assoc_id, row.account, row.user_name, row.wckey]
        for find, sums in zip((calendar.day, calendar.month), levels, strict=True):
            for begin, end in _units(find, start, until):
                if begin < since:
                    continue
                one = sums.setdefault((begin, ref, number, row.state[:32]), [0, 0, 0])
                one[0] += sign
                one[1] += sign * (start >= begin)
                one[2] += sign * used(start, until, total, begin, end)
    if not texts:
        return
    sql_many.insert_missing(
        connection,
        schema.shapes,
        ("id", "tres"),
        sorted((number, text) for text, number in texts.items()),
    )
    for table, sums in zip(LEVELS, levels, strict=True):
        grown = sorted((state, *key, *values) for key, values in sums.items())
        sql_many.add(connection, table, _COLUMNS, grown)


def _units(find: Callable[[int], Span], start: int, until: int) -> Iterator[Span]:
    """Days or months that an attempt was there in: what ends as one begins was there in it."""
    at = start
    while at <= until:
        unit = find(at)
        yield unit
        at = unit[1]


def pieces(calendar: Calendar, begin: int, end: int) -> Iterator[Piece]:
    """What [begin, end) is made of, in order: months and days with the tables that have them, and
    what is left of days, which no table has."""
    at = begin
    while at < end:
        month, day = calendar.month(at), calendar.day(at)
        if month[0] == at and month[1] <= end:
            yield schema.size_month, *month
            at = month[1]
        elif day[0] == at and day[1] <= end:
            yield schema.size_day, *day
            at = day[1]
        else:
            yield None, at, min(day[1], end)
            at = min(day[1], end)


def read(
    connection: sa.Connection,
    table: sa.Table,
    begins: Sequence[int],
    states: Sequence[str],
    accounts: Sequence[str] | None = None,
) -> dict[int, dict[Key, tuple[int, int, int]]]:
    """By begin: key -> (attempts, begun, seconds). Cost: the rows of those days or months."""
    found: dict[int, dict[Key, tuple[int, int, int]]] = {}
    column, owner = table.c, schema.owners.c
    for at in range(0, len(begins), _MANY):
        question = (
            sa.select(
                *(column.begin, owner.account, owner.user_name, owner.wckey),
                *(schema.shapes.c.tres, column.state),
                *(column.jobs, column.starts, column.seconds),
            )
            .join(schema.shapes, schema.shapes.c.id == column.shape)
            .join(
                owner.id.table,
                sa.and_(owner.state_uuid == column.state_uuid, owner.id == column.ref),
            )
            .where(column.state_uuid.in_(states), column.begin.in_(begins[at : at + _MANY]))
        )
        if accounts:
            question = question.where(owner.account.in_(accounts))
        for begin, account, user, wckey, text, state, *numbers in connection.execute(question):
            if not any(numbers):
                continue
            mine = found.setdefault(begin, {})
            key = account, user, wckey, text, state
            old = mine.get(key, (0, 0, 0))
            mine[key] = old[0] + numbers[0], old[1] + numbers[1], old[2] + numbers[2]
    return found
