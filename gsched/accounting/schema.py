"""The tables, as this release reads and writes them; the migrations make them."""

from __future__ import annotations

import msgspec
from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table, Text
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
    Index("jobs_by_uid", "uid", "end_time"),
    Index("jobs_in_order", "begun", "group_id", "sub_id", "job_id", "restarts"),
)

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
