"""What administrators do to the database itself: mend rows that never ended, change fields of jobs
that are over, take old rows out and bring them back.

The rows of attempts that are over are nowhere else: these changes are made to SQL, once what is in
the outbox has come there. All may be done twice.
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from gsched.accounting import archive, schema
from gsched.accounting.database import Database
from gsched.model.policy import User
from gsched.wire.report import ReportQuery, ReportRows, RunawayRow

#: who may: the least AdminLevel
ACTS = {"mend": "Operator", "archive": "Administrator", "load": "Administrator", "change": "None"}
_LEVELS = ("None", "Operator", "Administrator")
#: fields of jobs that can be changed when they are over; an owner may set these himself
FIELDS = ("comment", "derived_wstatus", "admin_comment", "system_comment", "wckey")
_OWN = frozenset({"comment", "derived_wstatus"})
#: seconds that are waited for facts on their way into SQL
_PATIENCE_S = 20.0
DENIED = "Access/permission denied"


class Denied(Exception):
    """The user may not."""

    def __str__(self) -> str:
        return DENIED


class Asker(NamedTuple):
    """Who asks; `admin` is root or the SlurmUser."""

    uid: int
    admin: bool


def act(
    database: Database,
    query: ReportQuery,
    state: str,
    waiting: Sequence[int],
    keys: Mapping[str, str],
    asker: Asker,
) -> ReportRows:
    """Does it. `waiting` are the facts of attempts that lie in the outbox, `keys` those of
    slurmdbd.conf. Raises Denied, ArchiveError, and what Database raises."""
    level = "Administrator" if asker.admin else _level(database, state, asker.uid)
    if _LEVELS.index(level) < _LEVELS.index(ACTS[query.kind]):
        raise Denied
    if query.kind == "archive":
        own = {name: values[0] for name, values in query.only.items() if values}
        gone = archive.purge(database, {**keys, **own}, int(time.time()))
        return ReportRows([], gone)
    if query.kind == "load":
        return ReportRows([], {"rows": archive.load(database, Path(query.only["file"][0]))})
    if query.kind == "mend":
        return ReportRows(list(_mend(database, query.only["ids"])))
    _await(database, state, max(waiting, default=0))
    return ReportRows(list(_change(database, query.only, level, asker)))


def _level(database: Database, state: str, uid: int) -> str:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return "None"
    column = schema.policies.c
    question = sa.select(column.detail).where(
        *(column.state_uuid == state, column.kind == "user", column.name == name),
        column.deleted == 0,
    )
    found = database.work(lambda connection: connection.execute(question).scalar())
    return msgspec.json.decode(found, type=User).admin_level if found else "None"


def _await(database: Database, state: str, seq: int) -> None:
    """Until SQL has a fact, or patience ends: what is not there is not changed."""
    until = time.monotonic() + _PATIENCE_S
    while database.last_seq(state) < seq and time.monotonic() < until:
        time.sleep(0.1)


def _attempts(words: Iterable[str]) -> list[tuple[str, int, int]]:
    """(state, job, restarts) of "STATE/JOB/RESTARTS" (STATE "" any)."""
    found = []
    for word in words:
        state, job_id, restarts = word.rsplit("/", 2)
        found.append((state, int(job_id), int(restarts)))
    return found


def _rows(
    connection: sa.Connection, words: Iterable[str]
) -> list[tuple[str, int, RunawayRow, int, int]]:
    """(state, fact, row, eligible, owner) of attempts."""
    column = schema.jobs.c
    found = []
    for state, job_id, restarts in _attempts(words):
        question = sa.select(
            *(column.state_uuid, column.seq, column.job_id, column.restarts, column.name),
            *(column.partition_name, column.account, column.user_name, column.state),
            *(column.submit, column.start, column.end_time, column.eligible, column.uid),
        ).where(column.job_id == job_id, column.restarts == restarts)
        if state:
            question = question.where(column.state_uuid == state)
        for row in connection.execute(question):
            found.append((row[0], row[1], RunawayRow(*row[2:12]), row[12], row[13]))
    return found


def _mend(database: Database, words: Sequence[str]) -> list[RunawayRow]:
    """Gives attempts without an end one, as Slurm does: the latest of their times, and the state
    COMPLETED. Roll-ups are made anew."""

    def run(connection: sa.Connection) -> tuple[list[RunawayRow], dict[str, int]]:
        column = schema.jobs.c
        done: list[RunawayRow] = []
        since: dict[str, int] = {}
        for state, seq, row, eligible, _ in _rows(connection, words):
            if row.end and row.state not in ("RUNNING", "PENDING", "SUSPENDED"):
                continue
            end = row.end or max(row.start, eligible, row.submit)
            connection.execute(
                sa.update(schema.jobs)
                .where(column.state_uuid == state, column.seq == seq)
                .values(
                    state="COMPLETED",
                    changed=1,
                    end_time=end,
                    elapsed_s=max(0, end - row.start) if row.start else 0,
                )
            )
            row.state, row.end = "COMPLETED", end
            done.append(row)
            since[state] = min(since.get(state, row.submit), row.submit)
        return done, since

    done, since = database.work(run)
    for state, first in since.items():
        database.reroll(state, first)
    return done


def _change(
    database: Database, only: Mapping[str, Sequence[str]], level: str, asker: Asker
) -> list[RunawayRow]:
    """Sets fields of attempts that are over. Raises Denied for those of others."""
    values: dict[str, object] = {name: only[name][0] for name in FIELDS if only.get(name)}
    own = values.keys() <= _OWN
    values["changed"] = 1
    if "derived_wstatus" in values:
        values["derived_wstatus"] = int(only["derived_wstatus"][0])

    def run(connection: sa.Connection) -> tuple[list[RunawayRow], dict[str, int]]:
        column = schema.jobs.c
        done: list[RunawayRow] = []
        since: dict[str, int] = {}
        for state, seq, row, _, owner in _rows(connection, only["ids"]):
            if level == "None" and (owner != asker.uid or not own):
                raise Denied
            connection.execute(
                sa.update(schema.jobs)
                .where(column.state_uuid == state, column.seq == seq)
                .values(**values)
            )
            done.append(row)
            since[state] = min(since.get(state, row.submit), row.submit)
        return done, since if "wckey" in values else {}

    done, since = database.work(run)
    for state, first in since.items():
        # Their use is another's now.
        database.reroll(state, first)
    return done
