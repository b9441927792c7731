"""Attempts by owner and what they had: how many ran in a span of time, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from gsched.accounting import schema
from gsched.accounting.calendar import overlap
from gsched.accounting.usage import span
from gsched.hostlist import HostlistError, expand
from gsched.model.acct import AcctJob
from gsched.wire.report import ReportQuery

#: (account, user, WCKey, allocated TRES, state)
Key = tuple[str, str, str, str, str]
#: key -> (attempts, seconds)
Found = dict[Key, tuple[int, int]]


class Sizes:
    """Of one question."""

    def __init__(
        self, connection: sa.Connection, states: Sequence[str], query: ReportQuery
    ) -> None:
        self._connection = connection
        self._states = states
        self._only: Mapping[str, list[str]] = query.only
        #: states matter to bills; elsewhere they would only make more rows
        self._by_state = query.kind == "bill"

    def oldest(self, live: Iterable[AcctJob]) -> int:
        """First start of all."""
        column = schema.jobs.c
        question = sa.select(sa.func.min(column.start)).where(
            column.state_uuid.in_(self._states), column.start > 0
        )
        found = self._connection.execute(question).scalar()
        starts = [row.start for row in live if row.start]
        return min([*([int(found)] if found else []), *starts], default=1 << 40)

    def stored(self, begin: int, end: int) -> Found:
        """Those in SQL. Cost: a look at each attempt in the span, by the database."""
        column = schema.jobs.c
        until = sa.case((column.last_report > 0, column.last_report), else_=column.end_time)
        first = sa.case((column.start > begin, column.start), else_=begin)
        last = sa.case((until < end, until), else_=end)
        whole = until - column.start
        part = sa.case((last > first, last - first), else_=0)
        used = sa.case((column.elapsed_s < whole, column.elapsed_s), else_=whole)
        # Time that it was suspended counts evenly.
        seconds = sa.case((whole > 0, part * used // sa.func.nullif(whole, 0)), else_=0)
        state = column.state if self._by_state else sa.literal("").label("state")
        keys: list[sa.ColumnElement[str]] = [
            *(column.account, column.user_name, column.wckey, column.alloc_tres),
            state,
        ]
        conditions = [
            column.state_uuid.in_(self._states),
            column.start > 0,
            column.start < end,
            column.end_time >= begin,
            *self._conditions(),
        ]
        found: Found = {}
        nodes = self._only.get("nodes")
        if nodes:
            question = sa.select(*keys, column.nodes, seconds).where(*conditions)
            wanted = frozenset(nodes)
            for *key, where, n in self._connection.execute(question):
                if not wanted.isdisjoint(_names(where)):
                    _add(found, _key(key), 1, int(n))
            return found
        grouped = keys if self._by_state else keys[:-1]
        question = (
            sa.select(*keys, sa.func.count(), sa.func.sum(seconds))
            .where(*conditions)
            .group_by(*grouped)
        )
        for *key, jobs, n in self._connection.execute(question):
            _add(found, _key(key), int(jobs), int(n or 0))
        return found

    def add(self, found: Found, live: Iterable[AcctJob], begin: int, end: int, now: int) -> None:
        """Those that SQL does not have."""
        for row in live:
            start, until, used = span(row, now)
            if not start or start >= end or until < begin or not self._takes(row):
                continue
            whole = until - start
            seconds = overlap((start, until), begin, end) * used // whole if whole > 0 else 0
            state = row.state if self._by_state else ""
            key = row.account, row.user_name, row.wckey, row.alloc_tres, state
            _add(found, key, 1, seconds)

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


def _add(found: Found, key: Key, jobs: int, seconds: int) -> None:
    old = found.get(key, (0, 0))
    found[key] = old[0] + jobs, old[1] + seconds


def _numbers(texts: Iterable[str]) -> list[int]:
    return [int(text) for text in texts if text.isascii() and text.isdigit()]


def _names(nodes: str) -> list[str]:
    try:
        return expand(nodes) if nodes else []
    except HostlistError:
        return []
