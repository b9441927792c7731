"""Answers to reports: SQL's roll-ups and rows together with what has not left the controller."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from gsched.accounting import schema, sql_usage
from gsched.accounting.calendar import Calendar, overlap
from gsched.accounting.database import Database, last_seq
from gsched.accounting.sizes import Sizes
from gsched.accounting.usage import What, counts, hourly, of_job, reserved_as, span
from gsched.hostlist import HostlistError, expand
from gsched.model.acct import AcctJob
from gsched.wire.report import (
    BillRow,
    ClusterRow,
    EventRow,
    ReportQuery,
    ReportRows,
    ResvRow,
    RunawayRow,
    SizeRow,
    TransactionRow,
    UsageRow,
)

#: how often an answer is begun anew because facts came in between
_TRIES = 5
_DAY = 86400


@dataclass
class LiveRows:
    """What the controller's state holds of accounting."""

    state_uuid: str = ""
    cluster: str = ""
    now: int = 0
    #: facts in the outbox (number, attempt), and attempts that run or wait
    facts: list[tuple[int, AcctJob]] = dataclasses.field(default_factory=list)
    jobs: list[AcctJob] = dataclasses.field(default_factory=list)
    #: number of the next fact when the state was read
    outbox_next: int = 1


def answer(database: Database, query: ReportQuery, live: LiveRows) -> ReportRows:
    """The rows that a question means. Raises what Database raises, ValueError for an unknown
    kind."""
    return database.work(lambda connection: _answer(connection, database.calendar, query, live))


def _answer(
    connection: sa.Connection, calendar: Calendar, query: ReportQuery, live: LiveRows
) -> ReportRows:
    for _ in range(_TRIES):
        before = last_seq(connection, live.state_uuid)
        report = Report(connection, calendar, query, live, before)
        found = report.answer()
        if last_seq(connection, live.state_uuid) == before:
            break
        # What came in between may have been counted from both sides.
        connection.rollback()
    return found


class Report:
    """One question, put to SQL as it stands at one fact."""

    def __init__(
        self,
        connection: sa.Connection,
        calendar: Calendar,
        query: ReportQuery,
        live: LiveRows,
        last: int,
    ) -> None:
        self._connection = connection
        self._calendar = calendar
        self._query = query
        self._live = live
        self._states = self._clusters()
        #: (attempts that SQL does not have)
        self._jobs = self._not_stored(last)

    def _clusters(self) -> list[str]:
        column = schema.clusters.c
        found = self._connection.execute(sa.select(column.state_uuid, column.name))
        return [state for state, name in found if name == self._live.cluster]

    def _not_stored(self, last: int) -> list[AcctJob]:
        live = self._live
        found = [row for seq, row in live.facts if seq > last]
        known = {(row.job_id, row.restarts) for row in found}
        known |= {(row.job_id, row.restarts) for seq, row in live.facts if seq <= last}
        column = schema.jobs.c
        newer = sa.select(column.job_id, column.restarts).where(
            column.state_uuid == live.state_uuid, column.seq >= live.outbox_next
        )
        known |= {(job_id, restarts) for job_id, restarts in self._connection.execute(newer)}
        found += [row for row in live.jobs if (row.job_id, row.restarts) not in known]
        return found

    def answer(self) -> ReportRows:
        query = self._query
        if query.kind == "usage":
            return ReportRows(list(self._usage()), self._totals())
        if query.kind == "cluster":
            return ReportRows(list(self._cluster()))
        if query.kind == "sizes":
            return ReportRows(list(self._sizes()))
        if query.kind == "bill":
            return ReportRows(list(self._bill()))
        if query.kind == "reservations":
            return ReportRows(list(self._reservations()))
        if query.kind == "events":
            return ReportRows(list(self._events()))
        if query.kind == "transactions":
            return ReportRows(list(self._transactions()))
        if query.kind == "deleted":
            return ReportRows(list(self._deleted()))
        if query.kind == "runaway":
            return ReportRows(list(self._runaway()))
        raise ValueError(f"there is no report {query.kind!r}")

    # ---- usage -------------------------------------------------------------------------------

    def _usage(self) -> list[UsageRow]:
        query, calendar = self._query, self._calendar
        begin, end = self._window()
        found: dict[sql_usage.Owner, dict[str, int]] = defaultdict(dict)
        owners = sql_usage.owners(self._connection, self._states)
        sums = sql_usage.sums(self._connection, self._states, calendar, begin, end)
        for (state, ref, name), seconds in sums.items():
            _grow(found[owners[state, ref]], name, seconds)
        for row in self._jobs:
            mine = found[sql_usage.owner_of(row)]
            for (what, name, hour), seconds in of_job(calendar, row, self._live.now).items():
                if what == What.ALLOC and begin <= hour < end:
                    _grow(mine, name, seconds)
        for owner, name, seconds in self._idle_reserved(begin, end):
            _grow(found[owner], name, seconds)
        only = query.only
        return [
            UsageRow(account, user, wckey, assoc, has)
            for (assoc, account, user, wckey), has in sorted(found.items())
            if has
            and _among(account, only.get("accounts"))
            and _among(user, only.get("users"))
            and _among(wckey, only.get("wckeys"))
        ]

    def _idle_reserved(self, begin: int, end: int) -> Iterator[tuple[sql_usage.Owner, str, int]]:
        """(owner, TRES, seconds) of what reservations kept and no job used: as in Slurm it is
        charged, in equal parts, to the associations that may use them."""
        column = schema.reservations.c
        question = sa.select(schema.reservations).where(
            column.state_uuid.in_(self._states), column.begin < end
        )
        rows = [dict(row) for row in self._connection.execute(question).mappings()]
        assocs: list[sql_usage.Owner] | None = None
        for row in rows:
            until = row["planned_end"] if row["open"] else row["end_time"]
            first, last = max(row["begin"], begin), min(until, end, self._live.now)
            if last <= first or reserved_as(row["flags"]) != What.RESERVED:
                continue
            if assocs is None:
                assocs = self._assocs()
            mine = allowed(row["assocs"], assocs)
            has = dict(counts(row["tres"]))
            used = self._used_in(row["name"], first, last, has)
            for name, count in has.items():
                idle = max(count * (last - first) - used.get(name, 0), 0)
                for place, owner in enumerate(mine):
                    # The rest of the division goes to the first ones.
                    yield owner, name, idle // len(mine) + (place < idle % len(mine))

    def _assocs(self) -> list[sql_usage.Owner]:
        column = schema.policies.c
        question = sa.select(column.name, column.account, column.user_name).where(
            column.state_uuid.in_(self._states), column.kind == "assoc", column.deleted == 0
        )
        found = self._connection.execute(question)
        return sorted((int(number), account, user, "") for number, account, user in found)

    def _window(self) -> tuple[int, int]:
        """The whole hours that the question means; none that is yet to come."""
        begin = self._calendar.hour(max(self._query.start, 0))[0]
        end = min(self._query.end, self._live.now + 1)
        return begin, self._calendar.hour(end - 1)[1] if end > begin else begin

    # ---- the cluster -------------------------------------------------------------------------

    def _cluster(self) -> list[ClusterRow]:
        begin, end = self._window()
        if end <= begin:
            return []
        now = max(self._live.now, begin)
        spent = sql_usage.cluster_hours(self._connection, self._states, self._calendar, begin, end)
        for row in self._jobs:
            inside = bool(row.reservation)
            for (what, name, hour), seconds in of_job(self._calendar, row, now).items():
                if begin <= hour < end:
                    kind = What.INSIDE if inside and what == What.ALLOC else what
                    _grow(spent, (hour, int(kind), name), seconds)
        self._open_events(spent, begin, end, now)
        self._open_reservations(spent, begin, end, now)
        sizes, last = self._sizes_of_cluster(begin, end)
        found: dict[str, ClusterRow] = {}
        for (hour, name), reported in sorted(sizes.items()):
            whats = {what: spent.get((hour, int(what), name), 0) for what in What}
            parts = divide(reported, whats)
            sums = found.get(name)
            if sums is None:
                sums = found[name] = ClusterRow(name, last.get(name, 0), 0, 0, 0, 0, 0, 0, 0)
            for field, seconds in parts.items():
                setattr(sums, field, getattr(sums, field) + seconds)
        return [found[name] for name in sorted(found)]

    def _totals(self) -> dict[str, int]:
        """TRES -> TRES-seconds that there were."""
        begin, end = self._window()
        found: dict[str, int] = {}
        for since, until, has in self._size_events(begin, end):
            for name, count in has.items():
                _grow(found, name, count * (until - since))
        return found

    def _size_events(self, begin: int, end: int) -> Iterator[tuple[int, int, dict[str, int]]]:
        """(since, until, TRES) of what the cluster had, within a span, in order."""
        end = min(end, max(self._live.now, begin))
        column = schema.events.c
        question = (
            sa.select(column.begin, column.end_time, column.tres)
            .where(
                column.state_uuid.in_(self._states),
                column.node == "",
                column.begin < end,
                sa.or_(column.end_time == 0, column.end_time > begin),
            )
            .order_by(column.begin)
        )
        for since, until, text in self._connection.execute(question):
            yield max(since, begin), min(until or end, end), dict(counts(text))

    def _sizes_of_cluster(
        self, begin: int, end: int
    ) -> tuple[dict[tuple[int, str], int], dict[str, int]]:
        """((hour, TRES) -> TRES-seconds that there were; TRES -> count at the end)."""
        found: dict[tuple[int, str], int] = {}
        last: dict[str, int] = {}
        for since, until, has in self._size_events(begin, end):
            last = has
            for hour, seconds in hourly(self._calendar, since, until, until - since):
                for name, count in has.items():
                    _grow(found, (hour, name), count * seconds)
        return found, last

    def _open_events(
        self, spent: dict[tuple[int, int, str], int], begin: int, end: int, now: int
    ) -> None:
        column = schema.events.c
        question = sa.select(column.begin, column.tres).where(
            column.state_uuid.in_(self._states), column.node != "", column.end_time == 0
        )
        for since, text in self._connection.execute(question):
            self._spend(spent, What.DOWN, text, max(since, begin), min(end, now))

    def _open_reservations(
        self, spent: dict[tuple[int, int, str], int], begin: int, end: int, now: int
    ) -> None:
        column = schema.reservations.c
        question = sa.select(column.begin, column.planned_end, column.flags, column.tres).where(
            column.state_uuid.in_(self._states), column.open == 1
        )
        for since, until, flags, text in self._connection.execute(question):
            what = reserved_as(flags)
            if what is not None:
                self._spend(spent, what, text, max(since, begin), min(end, now, until))

    def _spend(
        self, spent: dict[tuple[int, int, str], int], what: What, text: str, begin: int, end: int
    ) -> None:
        for hour, seconds in hourly(self._calendar, begin, end, end - begin):
            for name, count in counts(text).items():
                _grow(spent, (hour, int(what), name), count * seconds)

    # ---- jobs --------------------------------------------------------------------------------

    def _sizes(self) -> list[SizeRow]:
        sizes = Sizes(self._connection, self._states, self._query, self._calendar)
        found = sizes.stored(self._query.start, self._query.end)
        sizes.add(found, self._jobs, self._query.start, self._query.end, self._live.now)
        return [
            SizeRow(account, user, wckey, text, jobs, seconds)
            for (account, user, wckey, text, _), (jobs, seconds) in sorted(found.items())
        ]

    def _bill(self) -> list[BillRow]:
        sizes = Sizes(self._connection, self._states, self._query, self._calendar)
        rows: list[BillRow] = []
        begin, end = max(self._query.start, 0), min(self._query.end, self._live.now + 1)
        at = max(begin, sizes.oldest(self._jobs))
        while at < end:
            first, after = self._calendar.month(at)
            since, until = max(first, begin), min(after, end)
            found = sizes.stored(since, until)
            sizes.add(found, self._jobs, since, until, self._live.now)
            rows += [
                BillRow(account, user, first, text, state, jobs, seconds)
                for (account, user, _, text, state), (jobs, seconds) in sorted(found.items())
            ]
            at = after
        return rows

    # ---- reservations ------------------------------------------------------------------------

    def _reservations(self) -> list[ResvRow]:
        query, column = self._query, schema.reservations.c
        question = (
            sa.select(schema.reservations)
            .where(column.state_uuid.in_(self._states), column.begin < query.end)
            .order_by(column.begin, column.name)
        )
        found: list[ResvRow] = []
        numbers: dict[str, int] = {}
        for row in self._connection.execute(question).mappings():
            ends = row["planned_end"] if row["open"] else row["end_time"]
            number = numbers.setdefault(row["name"], len(numbers) + 1)
            if ends <= query.start or ends <= row["begin"]:
                continue
            if not _among(row["name"], query.only.get("names")):
                continue
            if not _among(str(number), query.only.get("ids")):
                continue
            if not _on(row["nodes"], query.only.get("nodes")):
                continue
            has = dict(counts(row["tres"]))
            used = self._used_in(row["name"], row["begin"], min(ends, self._live.now), has)
            found.append(
                ResvRow(
                    row["name"],
                    number,
                    row["begin"],
                    ends,
                    row["flags"],
                    row["nodes"],
                    row["assocs"],
                    has,
                    used,
                )
            )
        return found

    def _used_in(self, name: str, begin: int, end: int, has: dict[str, int]) -> dict[str, int]:
        column = schema.jobs.c
        question = sa.select(
            column.start, column.end_time, column.elapsed_s, column.last_report, column.alloc_tres
        ).where(
            column.state_uuid.in_(self._states),
            column.reservation == name,
            column.start > 0,
            column.start < end,
            column.end_time > begin,
        )
        found: dict[str, int] = {}
        parts = [
            (start, last or over, elapsed, text)
            for start, over, elapsed, last, text in self._connection.execute(question)
        ]
        for row in self._jobs:
            if row.reservation == name and row.start:
                start, until, total = span(row, self._live.now)
                parts.append((start, until, total, row.alloc_tres))
        for start, until, elapsed, text in parts:
            seconds = overlap((start, until), begin, end)
            if until > start:
                seconds = seconds * min(elapsed, until - start) // (until - start)
            for kind, count in counts(text).items():
                if kind in has:
                    _grow(found, kind, count * seconds)
        return found

    # ---- sacctmgr ----------------------------------------------------------------------------

    def _events(self) -> list[EventRow]:
        query, column = self._query, schema.events.c
        question = (
            sa.select(
                column.node,
                column.begin,
                column.end_time,
                column.state,
                column.reason,
                column.uid,
                column.cluster_nodes,
                column.tres,
            )
            .where(
                column.state_uuid.in_(self._states),
                column.begin < query.end,
                sa.or_(column.end_time == 0, column.end_time >= query.start),
            )
            .order_by(column.begin, column.seq, column.n)
        )
        nodes, states = query.only.get("nodes"), query.only.get("states")
        return [
            EventRow(*row)
            for row in self._connection.execute(question)
            if _among(row[0], nodes) and (not states or row[3].rstrip("*") in states)
        ]

    def _transactions(self) -> list[TransactionRow]:
        query, column = self._query, schema.transactions.c
        question = (
            sa.select(column.time, column.actor, column.action, column.where_text, column.info)
            .where(
                column.state_uuid.in_(self._states),
                column.time >= query.start,
                column.time < query.end,
            )
            .order_by(column.time, column.seq, column.n)
        )
        actors, actions = query.only.get("actors"), query.only.get("actions")
        return [
            TransactionRow(*row)
            for row in self._connection.execute(question)
            if _among(row[1], actors)
            and _among(row[2], actions)
            and all(
                not query.only.get(name) or _mentions(f"{row[3]} {row[4]}", query.only[name])
                for name in ("accounts", "users")
            )
        ]

    def _deleted(self) -> list[TransactionRow]:
        """As in Slurm what went within a day of its making, and under which no job ran, was never
        there."""
        column, jobs = schema.policies.c, schema.jobs.c
        question = (
            sa.select(
                *(column.kind, column.name, column.account, column.user_name),
                *(column.created, column.deleted, column.detail),
            )
            .where(column.state_uuid.in_(self._states), column.deleted > 0)
            .order_by(column.deleted, column.name)
        )
        found = []
        for kind, name, account, user, made, gone, detail in self._connection.execute(question):
            in_account = schema.of_accounts(self._connection, [account])
            by = {"user": jobs.user_name == name, "qos": jobs.qos == name}
            ran = sa.select(jobs.seq).where(
                jobs.state_uuid.in_(self._states),
                by.get(kind, in_account if account else jobs.user_name == user),
            )
            if gone - made >= _DAY or self._connection.execute(ran.limit(1)).first() is not None:
                found.append(TransactionRow(gone, name, kind, "", detail))
        return found

    def _runaway(self) -> list[RunawayRow]:
        """Rows are written when an attempt is over: none can be running but by damage (or by the
        data of another system that was loaded)."""
        column = schema.jobs.c
        question = (
            sa.select(
                column.job_id,
                column.restarts,
                column.name,
                column.partition_name,
                column.account,
                column.user_name,
                column.state,
                column.submit,
                column.start,
                column.end_time,
            )
            .where(
                column.state_uuid.in_(self._states),
                sa.or_(column.end_time == 0, column.state.in_(("RUNNING", "PENDING", "SUSPENDED"))),
            )
            .order_by(column.job_id)
        )
        known = {(row.job_id, row.restarts) for row in self._live.jobs}
        return [
            RunawayRow(*tuple(row))
            for row in self._connection.execute(question)
            if (row[0], row[1]) not in known
        ]


def allowed(text: str, assocs: Sequence[sql_usage.Owner]) -> list[sql_usage.Owner]:
    """The associations that a reservation is for: those of its users (in its accounts, where it
    names both), else its accounts' own."""
    words = [word for word in text.split(",") if word and not word.startswith(("-", "user:-"))]
    users = {word.removeprefix("user:") for word in words if word.startswith("user:")}
    accounts = {word for word in words if not word.startswith("user:")}
    if users:
        return [one for one in assocs if one[2] in users and (not accounts or one[1] in accounts)]
    return [one for one in assocs if not one[2] and one[1] in accounts]


def divide(reported: int, spent: dict[What, int]) -> dict[str, int]:
    """How an hour's TRES-seconds were spent; the parts are never more than there was, and together
    with `idle` are all of it."""
    allocated = spent[What.ALLOC] + max(spent[What.RESERVED], spent[What.INSIDE])
    left = reported
    found = {"reported": reported}
    for field, seconds in (
        ("allocated", allocated),
        ("down", spent[What.DOWN]),
        ("planned_down", spent[What.PLANNED_DOWN]),
        ("planned", spent[What.WAIT]),
    ):
        found[field] = min(seconds, left)
        left -= found[field]
    found["overcommitted"] = spent[What.WAIT] - found["planned"]
    found["idle"] = left
    return found


def _grow(found: dict, key: object, seconds: int) -> None:  # type: ignore[type-arg]
    found[key] = found.get(key, 0) + seconds


def _among(name: str, wanted: Sequence[str] | None) -> bool:
    return not wanted or name in wanted


def _mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names is a word of the text."""
    return not set(re.findall(r"[\w.@+-]+", text)).isdisjoint(names)


def _on(nodes: str, wanted: Iterable[str] | None) -> bool:
    if not wanted:
        return True
    try:
        return not set(wanted).isdisjoint(expand(nodes) if nodes else [])
    except HostlistError:
        return False
