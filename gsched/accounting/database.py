"""SQL: making the tables, storing facts once, asking for rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from gsched.accounting import schema, sql_many, sql_usage
from gsched.accounting.calendar import Calendar
from gsched.accounting.rows import clean, stripped
from gsched.accounting.sql_news import Told, Writer
from gsched.accounting.sql_usage import Names
from gsched.model.acct import AcctJob, AcctStep, AcctSteps
from gsched.model.policy import PolicyRecord
from gsched.wire.messages import AcctQuery

#: Seconds to wait for a server, or for another writer of the file.
CONNECT_S = 5
BUSY_S = 10
#: Names that fit into one statement on every kind of server.
_IN_LIMIT = 500

_JOB_FIELDS = tuple(name for name in AcctJob.__struct_fields__ if name != "steps")
_STEP_FIELDS = AcctStep.__struct_fields__
#: columns as rows are stored, and where among a job's fields its steps stand
_JOB_COLUMNS = ("state_uuid", "seq", *_JOB_FIELDS)
_STEP_STORED = ("state_uuid", "seq", "n", *_STEP_FIELDS, "job_id", "restarts", "number")
_STEPS_AT = AcctJob.__struct_fields__.index("steps")
_STEP_COLUMNS = tuple(schema.steps.c[name] for name in _STEP_FIELDS)
_ORDER = tuple(
    schema.jobs.c[name] for name in ("begun", "group_id", "sub_id", "job_id", "restarts")
)

T = TypeVar("T")
#: what a fact is made into
Row = AcctJob | AcctSteps | Told

#: uuid of the state, job, and how often it had been requeued before
StepsKey = tuple[str, int, int]


class DatabaseDown(Exception):
    """The database does not answer; the text is one sentence. Trying again later may help."""


class DatabaseRefuses(Exception):
    """The database does not take what it was given; trying again does not help."""


class Database:
    """A connection pool to the accounting database. May be used by several threads."""

    def __init__(
        self, url: str, *, read_only: bool = False, calendar: Calendar | None = None
    ) -> None:
        """Nothing is opened yet; `calendar` is that of the roll-ups, else the machine's. Raises
        DatabaseRefuses for a URL that makes no sense."""
        self.url = url
        self._read_only = read_only
        self.calendar = calendar or Calendar()
        self._names = Names()
        try:
            self._engine = _engine(url, read_only)
        except (exc.ArgumentError, ImportError, ValueError) as error:
            raise DatabaseRefuses(f"the database cannot be used: {_words(error)}") from None

    def migrate(self) -> None:
        """Brings the tables to this release's form. Raises DatabaseDown, DatabaseRefuses."""
        from alembic import command, util
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.set_main_option("path_separator", "os")

        def run(connection: sa.Connection) -> None:
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except util.CommandError as error:
                # A database of a newer release has a revision that is not known here.
                raise DatabaseRefuses(f"the tables cannot be brought up to date: {error}") from None

        self._do(run)

    def last_seq(self, state_uuid: str) -> int:
        """Number of the last fact of that state that is stored; 0 none."""
        return self._do(lambda connection: last_seq(connection, state_uuid))

    def store(self, state_uuid: str, facts: Sequence[tuple[int, Row]]) -> int:
        """Stores facts, what they add to the roll-ups, and how far they go, in one transaction;
        those already there are skipped.

        Returns the number of the last one stored. Raises DatabaseDown or DatabaseRefuses with
        nothing stored. 1,000 facts take some 100 ms on SQLite.
        """

        def run(connection: sa.Connection) -> int:
            last = last_seq(connection, state_uuid)
            new = [(seq, row) for seq, row in facts if seq > last]
            if not new:
                return last
            ended = [(seq, row) for seq, row in new if not isinstance(row, Told)]
            for _, one in ended:
                clean(one)
            jobs = [(seq, row) for seq, row in ended if isinstance(row, AcctJob)]
            values = [_job_values(state_uuid, seq, row) for seq, row in jobs]
            sql_many.insert(connection, schema.jobs, _JOB_COLUMNS, values)
            rows = [row for _, row in jobs]
            sql_usage.add_jobs(connection, state_uuid, rows, self.calendar, self._names)
            steps = [
                _step_values(state_uuid, seq, n, step, row)
                for seq, row in ended
                for n, step in enumerate(row.steps)
            ]
            sql_many.insert(connection, schema.steps, _STEP_STORED, steps)
            writer = Writer(connection, state_uuid, self.calendar, self._names)
            for seq, row in new:
                if isinstance(row, Told):
                    writer.store(seq, row)
            _set_last_seq(connection, state_uuid, new[-1][0], first=last == 0)
            return new[-1][0]

        return self._do(run)

    def store_stripped(self, state_uuid: str, seq: int, row: Row) -> int:
        """Stores one fact that was refused, with its texts cut to what every database takes; of
        other news only that they came."""
        if isinstance(row, Told):
            self.skip_to(state_uuid, seq)
            return seq
        return self.store(state_uuid, [(seq, stripped(row))])

    def sync(
        self, state_uuid: str, cluster: str, records: Sequence[PolicyRecord], now: int
    ) -> None:
        """The cluster of a state, and its policy as it is: what SQL lacks of it is put right, and
        roll-ups of another time zone are made anew."""

        def run(connection: sa.Connection) -> None:
            table = schema.clusters
            mine = table.c.state_uuid == state_uuid
            zone = self.calendar.name
            known = connection.execute(sa.select(table.c.zone).where(mine)).scalar()
            if known is None:
                row = {"state_uuid": state_uuid, "name": cluster, "zone": zone}
                connection.execute(sa.insert(table), {**row, "purged": 0, "rolled": 1})
            else:
                connection.execute(sa.update(table).where(mine).values(name=cluster, zone=zone))
            if known is not None and known != zone:
                sql_usage.reroll(connection, state_uuid, self.calendar, self._names)
            # What an earlier release stored, of whatever state.
            for state in connection.execute(
                sa.select(table.c.state_uuid).where(table.c.rolled == 0)
            ):
                sql_usage.fill_sizes(connection, state[0], self.calendar, self._names)
            Writer(connection, state_uuid, self.calendar, self._names).sync(records, now)

        self._do(run)

    def reroll(self, state_uuid: str, since: int = 0) -> None:
        """Makes the roll-ups anew from jobs, events and reservations, from the month that `since`
        lies in on. Cost: some 20 us for each job."""
        self._do(lambda c: sql_usage.reroll(c, state_uuid, self.calendar, self._names, since))

    def skip_to(self, state_uuid: str, seq: int) -> None:
        """Notes that facts up to `seq` will never come."""

        def run(connection: sa.Connection) -> None:
            last = last_seq(connection, state_uuid)
            if seq > last:
                _set_last_seq(connection, state_uuid, seq, first=last == 0)

        self._do(run)

    def rows(self, query: AcctQuery, limit: int) -> list[tuple[str, int, AcctJob]]:
        """(state, number of the fact, attempt) in sacct's order, up to `limit`.

        What can be an index or a comparison is asked of SQL: the result may hold more than what
        matches, never less. Raises DatabaseDown.
        """
        return self._do(lambda connection: _rows(connection, query, limit))

    def step_counts(self, keys: Sequence[StepsKey]) -> dict[StepsKey, int]:
        """How many steps of these attempts came as they ended; none: not in it."""
        return self._do(lambda connection: _step_counts(connection, keys))

    def steps_of(
        self,
        keys: Sequence[StepsKey],
        bound: tuple[str, int],
        after: int | None = None,
        limit: int = 0,
    ) -> dict[StepsKey, dict[int, AcctStep]]:
        """Steps by number, of the state `bound[0]` those of facts up to `bound[1]`; with `after`
        only above that number, with `limit` at most so many, the lowest."""
        return self._do(lambda connection: _steps_of(connection, keys, bound, after, limit))

    def close(self) -> None:
        self._engine.dispose()

    def work(self, work: Callable[[sa.Connection], T]) -> T:
        """Whatever else is asked, in one transaction. Raises DatabaseDown, DatabaseRefuses."""
        return self._do(work)

    def _do(self, work: Callable[[sa.Connection], T]) -> T:
        begin = self._engine.connect if self._read_only else self._engine.begin
        done = False
        try:
            with begin() as connection:
                found = work(connection)
            done = True
            return found
        except (exc.DataError, exc.IntegrityError, exc.StatementError) as error:
            transient = (exc.OperationalError, exc.InterfaceError, exc.InternalError)
            if isinstance(error, transient) or (
                isinstance(error, exc.DBAPIError) and error.connection_invalidated
            ):
                raise DatabaseDown(_words(error)) from None
            raise DatabaseRefuses(_words(error)) from None
        except (exc.SQLAlchemyError, OSError) as error:
            raise DatabaseDown(_words(error)) from None
        finally:
            if not done:
                # Numbers that were given out in it have been taken back.
                self._names = Names()


def _engine(url: str, read_only: bool) -> sa.Engine:
    place = sa.make_url(url)
    kind = place.get_backend_name()
    if kind == "sqlite":
        path = place.database or ""
        if read_only:
            place = sa.make_url(f"sqlite:///file:{_escaped(path)}?mode=ro&uri=true")
        engine = sa.create_engine(place, connect_args={"timeout": BUSY_S})

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            if not read_only:
                connection.execute("PRAGMA journal_mode=WAL")
                # The controller drops a fact once it is stored: that must outlive a power failure.
                connection.execute("PRAGMA synchronous=FULL")
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o600)

        return engine
    arguments: dict[str, object] = {"connect_timeout": CONNECT_S}
    if kind in ("mysql", "mariadb"):
        arguments.update(read_timeout=60, write_timeout=60, charset="utf8mb4")
    return sa.create_engine(
        place, connect_args=arguments, pool_pre_ping=True, pool_size=2, pool_recycle=3600
    )


def _escaped(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _words(error: BaseException) -> str:
    """The driver's own sentence, without SQLAlchemy's statement and background lines."""
    original = getattr(error, "orig", None) or error
    return (str(original).strip().splitlines() or [type(original).__name__])[0]


# ---- writing ---------------------------------------------------------------------------------


def last_seq(connection: sa.Connection, state_uuid: str) -> int:
    """Number of the last fact of that state that is stored; 0 none."""
    question = sa.select(schema.progress.c.last_seq).where(
        schema.progress.c.state_uuid == state_uuid
    )
    return int(connection.execute(question).scalar() or 0)


def _set_last_seq(connection: sa.Connection, state_uuid: str, seq: int, *, first: bool) -> None:
    if not first:
        table = schema.progress
        change = sa.update(table).where(table.c.state_uuid == state_uuid).values(last_seq=seq)
        connection.execute(change)
        return
    connection.execute(sa.insert(schema.progress), {"state_uuid": state_uuid, "last_seq": seq})


def _job_values(state_uuid: str, seq: int, row: AcctJob) -> tuple[object, ...]:
    values = msgspec.structs.astuple(row)
    return (state_uuid, seq, *values[:_STEPS_AT], *values[_STEPS_AT + 1 :])


def _step_values(
    state_uuid: str, seq: int, n: int, step: AcctStep, row: AcctJob | AcctSteps
) -> tuple[object, ...]:
    """Steps that come with their job are found by its fact, others by their job."""
    place = (row.job_id, row.restarts, step.number) if isinstance(row, AcctSteps) else (0, 0, 0)
    return (state_uuid, seq, n, *msgspec.structs.astuple(step), *place)


# ---- reading ---------------------------------------------------------------------------------


def _rows(
    connection: sa.Connection, query: AcctQuery, limit: int
) -> list[tuple[str, int, AcctJob]]:
    table = schema.jobs
    question = (
        sa.select(table.c.state_uuid, table.c.seq, *(table.c[name] for name in _JOB_FIELDS))
        .where(*_conditions(connection, query))
        .order_by(*_ORDER)
        .limit(limit)
    )
    found: list[tuple[str, int, AcctJob]] = []
    by_key: dict[tuple[str, int], AcctJob] = {}
    for state_uuid, seq, *values in connection.execute(question):
        row = AcctJob(**dict(zip(_JOB_FIELDS, values, strict=True)))
        row.steps = []
        found.append((state_uuid, seq, row))
        by_key[state_uuid, seq] = row
    _add_steps(connection, by_key)
    return found


def _add_steps(connection: sa.Connection, by_key: dict[tuple[str, int], AcctJob]) -> None:
    table = schema.steps
    keys = sorted(by_key)
    for state_uuid in {state for state, _ in keys}:
        numbers = [seq for state, seq in keys if state == state_uuid]
        for at in range(0, len(numbers), _IN_LIMIT):
            some = numbers[at : at + _IN_LIMIT]
            question = (
                sa.select(table.c.seq, *(table.c[name] for name in _STEP_FIELDS))
                .where(table.c.state_uuid == state_uuid, table.c.seq.in_(some))
                .order_by(table.c.seq, table.c.n)
            )
            for seq, *values in connection.execute(question):
                by_key[state_uuid, seq].steps.append(AcctStep(*values))


def _by_state(keys: Sequence[StepsKey]) -> Iterator[tuple[str, list[int]]]:
    """The keys' jobs by state, as many at a time as fit into one statement."""
    for state_uuid in dict.fromkeys(state for state, _, _ in keys):
        numbers = sorted({job_id for state, job_id, _ in keys if state == state_uuid})
        for at in range(0, len(numbers), _IN_LIMIT):
            yield state_uuid, numbers[at : at + _IN_LIMIT]


def _step_counts(connection: sa.Connection, keys: Sequence[StepsKey]) -> dict[StepsKey, int]:
    column = schema.steps.c
    found: dict[StepsKey, int] = {}
    for state_uuid, some in _by_state(keys):
        question = (
            sa.select(column.job_id, column.restarts, sa.func.count())
            .where(column.job_id.in_(some), column.state_uuid == state_uuid)
            .group_by(column.job_id, column.restarts)
        )
        for job_id, restarts, count in connection.execute(question):
            found[state_uuid, job_id, restarts] = count
    return found


def _steps_of(
    connection: sa.Connection,
    keys: Sequence[StepsKey],
    bound: tuple[str, int],
    after: int | None,
    limit: int,
) -> dict[StepsKey, dict[int, AcctStep]]:
    column = schema.steps.c
    wanted = frozenset(keys)
    found: dict[StepsKey, dict[int, AcctStep]] = {}
    for state_uuid, some in _by_state(keys):
        question = (
            sa.select(column.job_id, column.restarts, column.number, *_STEP_COLUMNS)
            .where(column.job_id.in_(some), column.state_uuid == state_uuid)
            .order_by(column.job_id, column.restarts, column.number)
        )
        if state_uuid == bound[0]:
            question = question.where(column.seq <= bound[1])
        if len(wanted) == 1:
            question = question.where(column.restarts == keys[0][2])
        if after is not None:
            question = question.where(column.number > after)
        if limit:
            question = question.limit(limit)
        for job_id, restarts, number, *values in connection.execute(question):
            key = state_uuid, job_id, restarts
            if key in wanted:
                found.setdefault(key, {})[number] = AcctStep(*values)
    return found


def _conditions(connection: sa.Connection, query: AcctQuery) -> list[sa.ColumnElement[bool]]:
    column = schema.jobs.c
    # Every row here is over: one that ended before the window cannot have been in it.
    found: list[sa.ColumnElement[bool]] = [column.end_time >= query.start]
    ids = sorted({job_id for job_id, _ in query.ids})
    if ids and len(ids) <= _IN_LIMIT:
        found.append(sa.or_(column.job_id.in_(ids), column.group_id.in_(ids)))
    elif ids:
        found.append(column.job_id >= ids[0])
    lists: tuple[tuple[sa.Column[Any], Sequence[object]], ...] = (
        (column.uid, query.uids),
        (column.gid, query.gids),
        (column.assoc_id, query.assocs),
        (column.name, query.names),
        (column.wckey, query.wckeys),
    )
    for one, wanted in lists:
        if wanted and len(wanted) <= _IN_LIMIT:
            found.append(one.in_(wanted))
    if query.accounts and len(query.accounts) <= _IN_LIMIT:
        found.append(schema.of_accounts(connection, query.accounts))
    if query.end < 1 << 40:
        found.append(column.submit <= query.end)
    if query.after:
        # A sixth number: steps of that attempt are still to come.
        place = sa.tuple_(*query.after[:5])
        order = sa.tuple_(*_ORDER)
        found.append(order >= place if len(query.after) > 5 else order > place)
    return found
