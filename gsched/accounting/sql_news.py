"""Storing what is told besides jobs: policy, transactions, events, sizes, reservations."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from gsched import tres
from gsched.accounting import schema
from gsched.accounting.calendar import Calendar
from gsched.accounting.sql_usage import Names, add_cluster
from gsched.accounting.usage import What, counts, of_time, reserved_as
from gsched.hostlist import HostlistError, compress
from gsched.model import ClusterSize, NodeState, PolicyChange, Reservation, Reserved
from gsched.model.policy import Account, Assoc, PolicyRecord, Resource, User, Wckey

#: what is told, and when (epoch seconds)
News = PolicyChange | NodeState | ClusterSize | Reserved


class Told(msgspec.Struct):
    """News, and when it was told."""

    time: int
    news: News


class Writer:
    """Stores news in one transaction."""

    def __init__(
        self, connection: sa.Connection, state: str, calendar: Calendar, names: Names
    ) -> None:
        self._connection = connection
        self._state = state
        self._calendar = calendar
        self._names = names

    def store(self, seq: int, told: Told) -> None:
        """One fact."""
        news, time = told.news, told.time
        if isinstance(news, PolicyChange):
            self._policy(seq, time, news)
        elif isinstance(news, NodeState):
            self._node(seq, 0, time, news)
        elif isinstance(news, ClusterSize):
            self._size(seq, time, news)
        else:
            self._reserved(seq, time, news)

    # ---- policy ------------------------------------------------------------------------------

    def _policy(self, seq: int, time: int, news: PolicyChange) -> None:
        for record in news.put:
            self.put_record(record, time)
        for record in news.gone:
            self._change(record, deleted=time, modified=time)
        if news.done:
            rows = [
                {
                    "state_uuid": self._state,
                    "seq": seq,
                    "n": n,
                    "time": time,
                    "actor": done.actor,
                    "action": done.action,
                    "where_text": done.where,
                    "info": done.info,
                }
                for n, done in enumerate(news.done)
            ]
            self._connection.execute(sa.insert(schema.transactions), rows)

    def put_record(self, record: PolicyRecord, time: int) -> None:
        """It is as it is here."""
        detail = msgspec.json.encode(record).decode()
        account, user = _of(record)
        values = {"account": account, "user_name": user, "detail": detail, "deleted": 0}
        if not self._change(record, modified=time, **values):
            kind, name = key(record)
            created = getattr(record, "created", 0) or time
            row = {"state_uuid": self._state, "kind": kind, "name": name, "created": created}
            self._connection.execute(
                sa.insert(schema.policies), {**row, "modified": time, **values}
            )

    def sync(self, records: Iterable[PolicyRecord], time: int) -> None:
        """All that there are: what SQL lacks or has otherwise is put right."""
        column = schema.policies.c
        question = sa.select(column.kind, column.name, column.detail).where(
            column.state_uuid == self._state, column.deleted == 0
        )
        known = {(kind, name): detail for kind, name, detail in self._connection.execute(question)}
        for record in records:
            if known.pop(key(record), None) != msgspec.json.encode(record).decode():
                self.put_record(record, time)
        for kind, name in known:
            self._connection.execute(
                sa.update(schema.policies)
                .where(column.state_uuid == self._state, column.kind == kind, column.name == name)
                .values(deleted=time, modified=time)
            )

    def _change(self, record: PolicyRecord, **values: object) -> bool:
        kind, name = key(record)
        column = schema.policies.c
        found = self._connection.execute(
            sa.select(column.created).where(
                column.state_uuid == self._state, column.kind == kind, column.name == name
            )
        ).first()
        if found is None:
            return False
        self._connection.execute(
            sa.update(schema.policies)
            .where(column.state_uuid == self._state, column.kind == kind, column.name == name)
            .values(**values)
        )
        return True

    # ---- events ------------------------------------------------------------------------------

    def _node(self, seq: int, n: int, time: int, news: NodeState) -> None:
        begin = min(news.since or time, time)
        self._close(news.node, begin)
        if news.state:
            self._open(seq, n, begin, news.node, news.tres, news.state, news.reason, news.uid)

    def _size(self, seq: int, time: int, news: ClusterSize) -> None:
        column = schema.events.c
        before = self._connection.execute(
            sa.select(column.cluster_nodes, column.tres).where(
                column.state_uuid == self._state, column.node == "", column.end_time == 0
            )
        ).first()
        text = tres.sorted_text(news.tres)
        if before is None or tuple(before) != (news.nodes, text):
            self._close("", time)
            self._open(
                seq, 0, time, "", news.tres, "", "Cluster Registered TRES", 0, nodes=news.nodes
            )
        if not news.whole:
            return
        question = sa.select(column.node, column.state, column.reason).where(
            column.state_uuid == self._state, column.node != "", column.end_time == 0
        )
        known = {node: (state, why) for node, state, why in self._connection.execute(question)}
        for n, each in enumerate(news.down, 1):
            if known.pop(each.node, None) != (each.state, each.reason):
                self._node(seq, n, time, each)
        for node in known:
            self._close(node, time)

    def _open(
        self,
        seq: int,
        n: int,
        begin: int,
        node: str,
        has: dict[str, int],
        state: str,
        reason: str,
        uid: int,
        nodes: str = "",
    ) -> None:
        row = {
            "state_uuid": self._state,
            "seq": seq,
            "n": n,
            "node": node,
            "begin": begin,
            "end_time": 0,
            "state": state,
            "reason": reason,
            "uid": uid,
            "cluster_nodes": nodes,
            "tres": tres.sorted_text(has),
        }
        self._connection.execute(sa.insert(schema.events), row)

    def _close(self, node: str, at: int) -> None:
        column = schema.events.c
        mine = (column.state_uuid == self._state, column.node == node, column.end_time == 0)
        found = self._connection.execute(sa.select(column.begin, column.tres).where(*mine)).all()
        if not found:
            return
        # An event of no length ends a second after its begin: 0 would mean that it goes on.
        ends = max(at, *(begin for begin, _ in found), 1)
        self._connection.execute(sa.update(schema.events).where(*mine).values(end_time=ends))
        if node:
            for begin, text in found:
                time = of_time(self._calendar, What.DOWN, dict(counts(text)), begin, ends)
                add_cluster(self._connection, self._state, time, self._calendar, self._names)

    # ---- reservations ------------------------------------------------------------------------

    def _reserved(self, seq: int, time: int, news: Reserved) -> None:
        resv = news.resv
        column = schema.reservations.c
        mine = (column.state_uuid == self._state, column.name == resv.name, column.open == 1)
        row = _reservation(resv, news.tres)
        described = [column[name] for name in row if name != "name"]
        question = sa.select(column.begin, *described).where(*mine)
        for begin, *found in self._connection.execute(question).all():
            old = dict(zip((each.name for each in described), found, strict=True))
            if not news.gone and {"name": row["name"], **old} == row:
                return
            planned, flags, text = int(old["planned_end"]), str(old["flags"]), str(old["tres"])
            ends = max(begin, min(planned, time))
            self._connection.execute(
                sa.update(schema.reservations).where(*mine).values(end_time=ends, open=0)
            )
            what = reserved_as(flags)
            if what is not None:
                sums = of_time(self._calendar, what, dict(counts(text)), begin, ends)
                add_cluster(self._connection, self._state, sums, self._calendar, self._names)
        if not news.gone:
            row |= {
                "state_uuid": self._state,
                "seq": seq,
                "begin": max(resv.start, time),
                "end_time": 0,
                "open": 1,
            }
            self._connection.execute(sa.insert(schema.reservations), row)


def _reservation(resv: Reservation, has: dict[str, int]) -> dict[str, object]:
    names = [share.node for share in resv.nodes]
    try:
        nodes = compress(names) if names else ""
    except HostlistError:
        nodes = ",".join(names)
    return {
        "name": resv.name[:190],
        "planned_start": resv.start,
        "planned_end": resv.end,
        "flags": ",".join(resv.flags),
        "nodes": nodes,
        "tres": tres.sorted_text(has),
        "assocs": ",".join([*resv.accounts, *(f"user:{each}" for each in resv.users)]),
    }


def key(record: PolicyRecord) -> tuple[str, str]:
    """(kind, name) of a record in SQL."""
    if isinstance(record, Assoc | Wckey):
        return type(record).__name__.lower(), str(record.id)
    name = record.full if isinstance(record, Resource) else record.name
    return type(record).__name__.lower(), name[:190]


def _of(record: PolicyRecord) -> tuple[str, str]:
    if isinstance(record, Assoc):
        return record.account, record.user
    if isinstance(record, Account):
        return record.name, ""
    if isinstance(record, User):
        return record.default_account, record.name
    if isinstance(record, Wckey):
        return "", record.user
    return "", ""
