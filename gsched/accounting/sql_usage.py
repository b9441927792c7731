"""Roll-ups in SQL: TRES-seconds by owner, kind, TRES and hour, day and month.

They grow in the transaction that stores the facts they count, so that a fact counts once, whenever
it comes; and any part of them can be made anew from the jobs (`reroll`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gsched.accounting import schema, sql_many, sql_sizes
from gsched.accounting.calendar import Calendar
from gsched.accounting.usage import Sums, What, counts, of_time, parts, reserved_as
from gsched.model.acct import AcctJob
from gsched.tres import BASE

#: rows of one statement
_MANY = 500
#: jobs that are counted together when roll-ups are made anew
_AT_ONCE = 5000
#: (owner, what, TRES, begin) -> TRES-seconds
Deltas = dict[tuple[int, int, str, int], int]
#: (association, account, user, WCKey)
Owner = tuple[int, str, str, str]
CLUSTER = 0
#: what counting an attempt needs of its row
_COUNTED = (
    *("account", "user_name", "wckey", "assoc_id", "reservation", "eligible", "start"),
    *("end_time", "elapsed_s", "last_report", "alloc_tres", "req_tres", "state"),
)
_NOBODY = {"job_id": 0, "restarts": 0, "begun": 0, "group_id": 0, "sub_id": 0}
_COLUMNS = ("state_uuid", "begin", "ref", "what", "tres_id", "seconds")
_LEVELS = (schema.usage_hour, schema.usage_day, schema.usage_month)


class Names:
    """Numbers of TRES and owners, as they stand in SQL. To be forgotten when a transaction
    fails."""

    def __init__(self) -> None:
        self._tres: dict[str, int] = {}
        self._owners: dict[str, dict[Owner, int]] = {}

    def tres(self, connection: sa.Connection, name: str) -> int:
        if not self._tres:
            for number, known in connection.execute(
                sa.select(schema.tres.c.id, schema.tres.c.name)
            ):
                self._tres[known] = number
        found = self._tres.get(name)
        if found is None:
            # Slurm's numbers: those of what every cluster has, others from 1001 on.
            found = BASE.index(name) + 1 if name in BASE else max([1000, *self._tres.values()]) + 1
            connection.execute(sa.insert(schema.tres), {"id": found, "name": name[:190]})
            self._tres[name] = found
        return found

    def owner(self, connection: sa.Connection, state: str, owner: Owner) -> int:
        known = self._owners.get(state)
        column = schema.owners.c
        if known is None:
            question = sa.select(
                column.id, column.assoc_id, column.account, column.user_name, column.wckey
            ).where(column.state_uuid == state)
            known = self._owners[state] = {
                (row[1], row[2], row[3], row[4]): row[0] for row in connection.execute(question)
            }
        found = known.get(owner)
        if found is None:
            found = len(known) + 1
            values = dict(zip(("assoc_id", "account", "user_name", "wckey"), owner, strict=True))
            connection.execute(
                sa.insert(schema.owners), {"state_uuid": state, "id": found, **values}
            )
            known[owner] = found
        return found

    def owners_of(self, state: str) -> Mapping[Owner, int]:
        """Those that have been asked for."""
        return self._owners.get(state, {})


def owner_of(row: AcctJob) -> Owner:
    return row.assoc_id, row.account, row.user_name, row.wckey


def add_jobs(
    connection: sa.Connection,
    state: str,
    rows: Iterable[AcctJob],
    calendar: Calendar,
    names: Names,
    since: int = 0,
) -> None:
    """Counts attempts, from `since` (the begin of a month) on."""
    some = list(rows)
    # Of thousands of attempts few differ in what they had: TRES are told apart at the end.
    alike: dict[tuple[int, int, str, int], int] = defaultdict(int)
    for row in some:
        owner = names.owner(connection, state, owner_of(row))
        kept = What.INSIDE if row.reservation else What.ALLOC
        for what, text, begin, seconds in parts(calendar, row):
            if begin < since:
                continue
            if what is What.ALLOC:
                alike[owner, What.ALLOC, text, begin] += seconds
                what = kept
            alike[CLUSTER, what, text, begin] += seconds
    deltas: Deltas = {}
    for (ref, kind, text, begin), seconds in alike.items():
        for name, count in counts(text).items():
            if count > 0:
                _add(deltas, (ref, int(kind), name, begin), count * seconds)
    grow(connection, state, deltas, calendar, names)
    sql_sizes.add_jobs(connection, state, some, calendar, names.owners_of(state), since)


def add_cluster(
    connection: sa.Connection, state: str, sums: Sums, calendar: Calendar, names: Names
) -> None:
    """Counts what is the cluster's alone."""
    deltas = {(CLUSTER, *key): seconds for key, seconds in sums.items()}
    grow(connection, state, deltas, calendar, names)


def grow(
    connection: sa.Connection, state: str, deltas: Deltas, calendar: Calendar, names: Names
) -> None:
    """Adds to hours, and to the days and months that they are of. Cost: some 20 us for each row
    that changes."""
    if not deltas:
        return
    by_level: list[Deltas] = [deltas, {}, {}]
    for (ref, what, name, begin), seconds in deltas.items():
        _add(by_level[1], (ref, what, name, calendar.day(begin)[0]), seconds)
        _add(by_level[2], (ref, what, name, calendar.month(begin)[0]), seconds)
    for table, some in zip(_LEVELS, by_level, strict=True):
        _grow(connection, table, state, some, names)


def _grow(
    connection: sa.Connection, table: sa.Table, state: str, deltas: Deltas, names: Names
) -> None:
    rows = [
        (state, begin, ref, what, names.tres(connection, name), seconds)
        for (ref, what, name, begin), seconds in deltas.items()
    ]
    # In the order of the key: pages of the table are taken one after the other.
    sql_many.add(connection, table, _COLUMNS, sorted(rows))


def _add(deltas: dict[Any, int], key: Any, seconds: int) -> None:
    deltas[key] = deltas.get(key, 0) + seconds


def reroll(
    connection: sa.Connection, state: str, calendar: Calendar, names: Names, since: int = 0
) -> None:
    """Makes the roll-ups anew from the month of `since` on, or of the oldest job that is there: of
    what was purged they are all that is left."""
    jobs, events, resvs = schema.jobs.c, schema.events.c, schema.reservations.c
    oldest = connection.execute(
        sa.select(sa.func.min(jobs.submit)).where(jobs.state_uuid == state)
    ).scalar()
    if oldest is None:
        return
    since = calendar.month(max(since, int(oldest)))[0]
    table = schema.clusters
    purged = connection.execute(
        sa.select(table.c.purged).where(table.c.state_uuid == state)
    ).scalar()
    if purged:
        # Attempts of that month, and of what reaches into the next, are gone.
        since = max(since, calendar.month(int(purged) - 1)[1])
    for table in (*_LEVELS, *sql_sizes.LEVELS):
        connection.execute(
            sa.delete(table).where(table.c.state_uuid == state, table.c.begin >= since)
        )
    for rows in _counted(connection, state, since):
        add_jobs(connection, state, rows, calendar, names, since)
    _note_rolled(connection, state)
    spans: Sums = {}
    downs = sa.select(events.begin, events.end_time, events.tres).where(
        events.state_uuid == state, events.node != "", events.end_time > since
    )
    for begin, end, text in connection.execute(downs).all():
        _merge(spans, of_time(calendar, What.DOWN, dict(counts(text)), begin, end), since)
    kept = sa.select(resvs.begin, resvs.end_time, resvs.tres, resvs.flags).where(
        resvs.state_uuid == state, resvs.open == 0, resvs.end_time > since
    )
    for begin, end, text, flags in connection.execute(kept).all():
        what = reserved_as(flags)
        if what is not None:
            _merge(spans, of_time(calendar, what, dict(counts(text)), begin, end), since)
    add_cluster(connection, state, spans, calendar, names)


def _counted(connection: sa.Connection, state: str, since: int) -> Iterator[list[AcctJob]]:
    """All attempts that ended since, with what counting them needs, some at a time."""
    jobs = schema.jobs.c
    columns = [jobs[name] for name in _COUNTED]
    last = 0
    while True:
        question = (
            sa.select(jobs.seq, *columns)
            .where(jobs.state_uuid == state, jobs.seq > last, jobs.end_time >= since)
            .order_by(jobs.seq)
            .limit(_AT_ONCE)
        )
        some = connection.execute(question).all()
        if not some:
            return
        last = some[-1][0]
        yield [AcctJob(**{**_NOBODY, **dict(zip(_COUNTED, row, strict=True))}) for _, *row in some]


def fill_sizes(connection: sa.Connection, state: str, calendar: Calendar, names: Names) -> None:
    """Makes the roll-ups of attempts from all that are there."""
    for table in sql_sizes.LEVELS:
        connection.execute(sa.delete(table).where(table.c.state_uuid == state))
    for rows in _counted(connection, state, 0):
        for row in rows:
            names.owner(connection, state, owner_of(row))
        sql_sizes.add_jobs(connection, state, rows, calendar, names.owners_of(state))
    _note_rolled(connection, state)


def _note_rolled(connection: sa.Connection, state: str) -> None:
    table = schema.clusters
    connection.execute(sa.update(table).where(table.c.state_uuid == state).values(rolled=1))


def _merge(into: Sums, more: Sums, since: int) -> None:
    for key, seconds in more.items():
        if key[2] >= since:
            _add(into, key, seconds)


# ---- reading ---------------------------------------------------------------------------------


def sums(
    connection: sa.Connection,
    states: Sequence[str],
    calendar: Calendar,
    begin: int,
    end: int,
) -> dict[tuple[str, int, str], int]:
    """(state, owner, TRES) -> TRES-seconds by jobs in [begin, end), for whole hours. Cost: the rows
    of the months, days and hours that make it up."""
    found: dict[tuple[str, int, str], int] = {}
    for table, spans in zip(_LEVELS, calendar.split(begin, end), strict=True):
        column = table.c
        for at in range(0, len(spans), _MANY):
            begins = [span[0] for span in spans[at : at + _MANY]]
            question = (
                sa.select(
                    column.state_uuid, column.ref, schema.tres.c.name, sa.func.sum(column.seconds)
                )
                .join(schema.tres, schema.tres.c.id == column.tres_id)
                .where(
                    column.state_uuid.in_(states),
                    column.begin.in_(begins),
                    column.what == int(What.ALLOC),
                    column.ref != CLUSTER,
                )
                .group_by(column.state_uuid, column.ref, schema.tres.c.name)
            )
            for state, ref, name, seconds in connection.execute(question):
                key = state, ref, name
                found[key] = found.get(key, 0) + int(seconds)
    return found


def cluster_hours(
    connection: sa.Connection, states: Sequence[str], calendar: Calendar, begin: int, end: int
) -> dict[tuple[int, int, str], int]:
    """(begin of the hour, what, TRES) -> the cluster's TRES-seconds. Cost: those rows."""
    column = schema.usage_hour.c
    # By hour: the key finds the cluster's rows, and all owners' beside them are not looked at.
    hours = [first for first, _ in calendar.hours(begin, end)]
    found: dict[tuple[int, int, str], int] = {}
    for at in range(0, len(hours), _MANY):
        question = (
            sa.select(column.begin, column.what, schema.tres.c.name, sa.func.sum(column.seconds))
            .join(schema.tres, schema.tres.c.id == column.tres_id)
            .where(
                column.state_uuid.in_(states),
                column.begin.in_(hours[at : at + _MANY]),
                column.ref == CLUSTER,
            )
            .group_by(column.begin, column.what, schema.tres.c.name)
        )
        for first, what, name, seconds in connection.execute(question):
            found[first, what, name] = int(seconds)
    return found


def owners(connection: sa.Connection, states: Sequence[str]) -> dict[tuple[str, int], Owner]:
    """Who the numbers of owners are."""
    column = schema.owners.c
    question = sa.select(
        column.state_uuid,
        column.id,
        column.assoc_id,
        column.account,
        column.user_name,
        column.wckey,
    ).where(column.state_uuid.in_(states))
    return {
        (row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in connection.execute(question)
    }
