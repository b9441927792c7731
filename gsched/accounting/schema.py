"""The tables, as this release reads and writes them; the migrations make them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    MetaData,
    String,
    Table,
    Text,
    and_,
    func,
)
from sqlalchemy.dialects import mysql

from gsched.model.acct import AcctJob, AcctStep

metadata = MetaData()
#: MySQL's TEXT ends at 64 KB, which a submit line may exceed.
LONG = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
#: uuid of a cluster's state: sequence numbers and job ids start anew with it
CLUSTER = String(64)


def columns(kind: type[msgspec.Struct], *, without: frozenset[str]) -> list[Column[object]]:
    """One column for each field of a record: numbers are big integers, texts have no limit."""
    found: list[Column[object]] = []
    for item in msgspec.structs.fields(kind):
        if item.name in without:
            continue
        sort = BigInteger() if item.type is int else LONG
        found.append(Column(item.name, sort, nullable=False))
    return found


#: One row per attempt that is over; `seq` is the number of its fact.
jobs = Table(
    "jobs",
    metadata,
    Column("state_uuid", CLUSTER, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *columns(AcctJob, without=frozenset({"steps"})),
    Index("jobs_by_end", "end_time"),
    Index("jobs_by_job", "job_id"),
    Index("jobs_by_group", "group_id"),
    Index("jobs_by_start", "start"),
    Index("jobs_by_uid", "uid", "end_time"),
    Index("jobs_in_order", "begun", "group_id", "sub_id", "job_id", "restarts"),
)

#: An account's name has no limit, what an index takes of a text has one. MariaDB cuts the text in
#: the index itself, PostgreSQL has an index of the cut text; SQLite takes all of it.
_CUT = 190
_cut = func.left(jobs.c.account, _CUT)
Index("jobs_by_account", _cut, jobs.c.end_time).ddl_if(dialect="postgresql")
Index(
    "jobs_by_account",
    jobs.c.account,
    jobs.c.end_time,
    mysql_length={"account": _CUT},
    mariadb_length={"account": _CUT},
).ddl_if(callable_=lambda *_, **more: more["dialect"].name != "postgresql")


def of_accounts(connection: Connection, accounts: Sequence[str]) -> ColumnElement[bool]:
    """That an attempt's account is one of these, said so that the index of them is used."""
    exact = jobs.c.account.in_(accounts)
    if connection.dialect.name != "postgresql":
        return exact
    return and_(_cut.in_({name[:_CUT] for name in accounts}), exact)


#: Steps of those attempts, numbered in the order they are shown; and of attempts that may still run
#: as they end: those have a fact of their own, and name job, attempt and their number in the job.
steps = Table(
    "steps",
    metadata,
    Column("state_uuid", CLUSTER, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    *columns(AcctStep, without=frozenset()),
    Column("job_id", BigInteger, nullable=False),
    Column("restarts", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Index("steps_by_job", "job_id", "restarts", "number"),
)

#: Number of the last fact stored, written in the transaction that stores it.
progress = Table(
    "progress",
    metadata,
    Column("state_uuid", CLUSTER, primary_key=True),
    Column("last_seq", BigInteger, nullable=False),
)


def _id(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _state() -> Column[str]:
    return Column("state_uuid", CLUSTER, primary_key=True)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, LONG, nullable=False)


#: Names of the clusters whose states are here, the zone of their roll-ups, and before when
#: jobs that ended have been purged; `rolled` 1: roll-ups of attempts hold all that are in `jobs`.
clusters = Table(
    "clusters",
    metadata,
    _state(),
    _text("name"),
    _text("zone"),
    _number("purged"),
    _number("rolled"),
)

#: Accounts, users, associations, QOS and WCKeys, as they are, or were when they were deleted:
#: `detail` is the record as JSON.
policies = Table(
    "policies",
    metadata,
    _state(),
    Column("kind", String(16), primary_key=True),
    #: the record's key in the controller's state, in hexadecimal digits
    Column("name", String(190), primary_key=True),
    _number("created"),
    _number("modified"),
    #: when it was deleted; 0 it was not
    _number("deleted"),
    _text("account"),
    _text("user_name"),
    _text("detail"),
)

#: Who did what with them.
transactions = Table(
    "transactions",
    metadata,
    _state(),
    _id("seq"),
    _id("n"),
    _number("time"),
    _text("actor"),
    _text("action"),
    _text("where_text"),
    _text("info"),
    Index("transactions_by_time", "time"),
)

#: Nodes out of service ("end_time" 0: still), and with node "" the sizes of the cluster.
events = Table(
    "events",
    metadata,
    _state(),
    _id("seq"),
    _id("n"),
    Column("node", String(190), nullable=False),
    _number("begin"),
    _number("end_time"),
    _text("state"),
    _text("reason"),
    _number("uid"),
    _text("cluster_nodes"),
    _text("tres"),
    Index("events_by_node", "state_uuid", "node", "end_time"),
    Index("events_by_time", "begin"),
)

#: Reservations: one row for each time that one was the same.
reservations = Table(
    "reservations",
    metadata,
    _state(),
    _id("seq"),
    Column("name", String(190), nullable=False),
    #: when the row's reservation began to keep its nodes and ceased to; what it was made for
    _number("begin"),
    _number("end_time"),
    _number("planned_start"),
    _number("planned_end"),
    #: the row is the present word on that name
    _number("open"),
    _text("flags"),
    _text("nodes"),
    _text("tres"),
    _text("assocs"),
    Index("reservations_by_name", "state_uuid", "name", "open"),
    Index("reservations_by_time", "begin"),
)

#: Numbers of TRES, as Slurm numbers them.
tres = Table("tres", metadata, _id("id"), Column("name", String(190), nullable=False))

#: Whose usage it is: `ref` of the roll-ups.
owners = Table(
    "owners",
    metadata,
    _state(),
    _id("id"),
    _number("assoc_id"),
    _text("account"),
    _text("user_name"),
    _text("wckey"),
)


def _usage(name: str) -> Table:
    return Table(
        name,
        metadata,
        _state(),
        #: of the hour, day or month
        _id("begin"),
        #: owner; 0 the cluster
        _id("ref"),
        #: gsched.accounting.usage.What
        _id("what"),
        _id("tres_id"),
        _number("seconds"),
    )


#: Roll-ups: TRES-seconds. They grow in the transaction that stores what they count.
usage_hour, usage_day, usage_month = (
    _usage(name) for name in ("usage_hour", "usage_day", "usage_month")
)

#: What attempts had, as it stands in `jobs.alloc_tres`; the number is made from the text.
shapes = Table("shapes", metadata, _id("id"), _text("tres"))


def _sizes(name: str) -> Table:
    return Table(
        name,
        metadata,
        _state(),
        #: of the day or month
        _id("begin"),
        #: owner
        _id("ref"),
        _id("shape"),
        #: of the attempt
        Column("state", String(32), primary_key=True),
        #: attempts that were there in this time, and of these those that began in it
        _number("jobs"),
        _number("starts"),
        #: of wall time, in all
        _number("seconds"),
    )


#: Roll-ups of attempts: how many, and how long.
size_day, size_month = (_sizes(name) for name in ("size_day", "size_month"))
