"""Attempts by owner and what they had: how many ran in a span of time, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from gsched.accounting import schema, sql_sizes
from gsched.accounting.calendar import Calendar
from gsched.accounting.sql_sizes import Found, Key
from gsched.accounting.usage import span
from gsched.hostlist import HostlistError, expand
from gsched.model.acct import AcctJob
from gsched.wire.report import ReportQuery

#: key -> (attempts, of these begun in the time, seconds)
Counted = dict[Key, tuple[int, int, int]]


class Sizes:
    """Of one question."""

    def __init__(
        self,
        connection: sa.Connection,
        states: Sequence[str],
        query: ReportQuery,
        calendar: Calendar,
    ) -> None:
        self._connection = connection
        self._states = states
        self._calendar = calendar
        self._only: Mapping[str, list[str]] = query.only
        #: states matter to bills; elsewhere they would only make more rows
        self._by_state = query.kind == "bill"

    def oldest(self, live: Iterable[AcctJob]) -> int:
        """No attempt began before."""
        return min([self._first(), *(row.start for row in live if row.start)])

    def stored(self, begin: int, end: int) -> Found:
        """Those in SQL. Cost: rows of roll-ups for whole days and months; for parts of days, and
        where roll-ups cannot tell (partitions, groups, nodes, job ids), a look at each attempt in
        that time, by the database."""
        found: Found = {}
        pieces: list[sql_sizes.Piece] = [(None, begin, end)]
        if self._only.keys() <= {"accounts", "users", "wckeys"}:
            pieces = list(sql_sizes.pieces(self._calendar, max(begin, self._first()), end))
        rolled: dict[str, dict[int, Counted]] = {}
        for level in sql_sizes.LEVELS:
            begins = [first for each, first, _ in pieces if each is level]
            rolled[level.name] = sql_sizes.read(
                self._connection, level, begins, self._states, self._only.get("accounts")
            )
        for n, (table, first, last) in enumerate(pieces):
            some = self._looked_at(first, last) if table is None else rolled[table.name].get(first)
            for key, (jobs, starts, seconds) in (some or {}).items():
                if table is None or self._wanted(*key[:3]):
                    # Whatever was there before a piece has been counted with the one before it.
                    self._add(found, key, starts if n else jobs, seconds)
        return {key: each for key, each in found.items() if each[0] or each[1]}

    def _first(self) -> int:
        """Begin of the first day that has something."""
        column = schema.size_day.c
        question = sa.select(sa.func.min(column.begin)).where(column.state_uuid.in_(self._states))
        found = self._connection.execute(question).scalar()
        return 1 << 40 if found is None else int(found)

    def _looked_at(self, begin: int, end: int) -> Counted:
        """(attempts, begun, seconds) of [begin, end), by looking at attempts."""
        column = schema.jobs.c
        reported = sa.case((column.last_report > 0, column.last_report), else_=column.end_time)
        until = sa.case((reported > column.start, reported), else_=column.start)
        whole = sa.func.nullif(until - column.start, 0, type_=sa.BigInteger)
        used = sa.case((column.elapsed_s < whole, column.elapsed_s), else_=whole)
        used = sa.case((used > 0, used), else_=0)

        def before(at: int) -> sa.ColumnElement[int]:
            # Time that it was suspended counts evenly.
            passed = sa.case((column.start > at, 0), (until < at, whole), else_=at - column.start)
            return sa.func.coalesce(used * passed // whole, 0)

        begun = sa.case((column.start >= begin, 1), else_=0)
        seconds = before(end) - before(begin)
        keys = (column.account, column.user_name, column.wckey, column.alloc_tres, column.state)
        conditions = [
            column.state_uuid.in_(self._states),
            column.start > 0,
            column.start < end,
            column.end_time >= begin,
            sa.or_(until >= begin, column.start >= begin),
            *self._conditions(),
        ]
        found: Counted = {}
        nodes = self._only.get("nodes")
        if nodes:
            question = sa.select(*keys, column.nodes, begun, seconds).where(*conditions)
            wanted = frozenset(nodes)
            for *key, where, starts, n in self._connection.execute(question):
                if not wanted.isdisjoint(_names(where)):
                    old = found.get(_key(key), (0, 0, 0))
                    found[_key(key)] = old[0] + 1, old[1] + int(starts), old[2] + int(n)
            return found
        question = (
            sa.select(*keys, sa.func.count(), sa.func.sum(begun), sa.func.sum(seconds))
            .where(*conditions)
            .group_by(*keys)
        )
        for *key, jobs, starts, n in self._connection.execute(question):
            found[_key(key)] = int(jobs), int(starts), int(n or 0)
        return found

    def _wanted(self, account: str, user: str, wckey: str) -> bool:
        only = self._only
        return all(
            not only.get(name) or value in only[name]
            for name, value in (("accounts", account), ("users", user), ("wckeys", wckey))
        )

    def _add(self, found: Found, key: Key, jobs: int, seconds: int) -> None:
        if not self._by_state:
            key = (*key[:4], "")
        old = found.get(key, (0, 0))
        found[key] = old[0] + jobs, old[1] + seconds

    def add(self, found: Found, live: Iterable[AcctJob], begin: int, end: int, now: int) -> None:
        """Those that SQL does not have."""
        for row in live:
            start, until, total = span(row, now)
            until = max(until, start)
            if not start or start >= end or until < begin or not self._takes(row):
                continue
            seconds = sql_sizes.used(start, until, total, begin, end)
            key = row.account, row.user_name, row.wckey, row.alloc_tres, row.state
            self._add(found, key, 1, seconds)

    def _conditions(self) -> list[sa.ColumnElement[bool]]:
        column, only = schema.jobs.c, self._only
        found: list[sa.ColumnElement[bool]] = []
        for one, name in (
            (column.account, "accounts"),
            (column.user_name, "users"),
            (column.wckey, "wckeys"),
            (column.partition_name, "partitions"),
        ):
            if only.get(name):
                found.append(one.in_(only[name]))
        if only.get("gids"):
            found.append(column.gid.in_(_numbers(only["gids"])))
        if only.get("ids"):
            ids = _numbers(only["ids"])
            found.append(sa.or_(column.job_id.in_(ids), column.group_id.in_(ids)))
        return found

    def _takes(self, row: AcctJob) -> bool:
        only = self._only
        for value, name in (
            (row.account, "accounts"),
            (row.user_name, "users"),
            (row.wckey, "wckeys"),
            (row.partition_name, "partitions"),
            (str(row.gid), "gids"),
        ):
            if only.get(name) and value not in only[name]:
                return False
        if only.get("ids") and {row.job_id, row.group_id}.isdisjoint(_numbers(only["ids"])):
            return False
        nodes = only.get("nodes")
        return not nodes or not set(nodes).isdisjoint(_names(row.nodes))


def _key(values: Sequence[str]) -> Key:
    account, user, wckey, text, state = values
    return account, user, wckey, text, state


def _numbers(texts: Iterable[str]) -> list[int]:
    return [int(text) for text in texts if text.isascii() and text.isdigit()]


def _names(nodes: str) -> list[str]:
    try:
        return expand(nodes) if nodes else []
    except HostlistError:
        return []
