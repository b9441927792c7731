"""Many rows at a time, in the way that each database takes them fastest.

SQLAlchemy makes the statements; the values go to the driver as they are (numbers and texts need no
conversion): a dictionary for each row and a look at each of its values would cost more than all the
rest of storing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

#: names of columns, and rows with their values in that order
Columns = tuple[str, ...]
Rows = Sequence[tuple[Any, ...]]

_Insert = Callable[[Any, sa.Table], Any]


def insert(connection: sa.Connection, table: sa.Table, columns: Columns, rows: Rows) -> None:
    """Rows that are not there yet. Cost: less than 1 us for each value, besides indices."""
    _run(connection, table, columns, rows, "insert", lambda made, _: made)


def insert_missing(
    connection: sa.Connection, table: sa.Table, columns: Columns, rows: Rows
) -> None:
    """Those of the rows whose keys are not there."""
    _run(connection, table, columns, rows, "missing", _or_nothing)


def add(connection: sa.Connection, table: sa.Table, columns: Columns, rows: Rows) -> None:
    """Rows of sums: where the key is there, what stands beside it grows. No key comes twice."""
    _run(connection, table, columns, rows, "add", _or_grow)


def _or_nothing(made: Any, table: sa.Table) -> Any:
    if isinstance(made, mysql.Insert):
        # IGNORE would hide more than what is meant.
        first = next(iter(table.primary_key.columns))
        return made.on_duplicate_key_update({first.name: first})
    return made.on_conflict_do_nothing()


def _or_grow(made: Any, table: sa.Table) -> Any:
    sums = [column for column in table.columns if not column.primary_key]
    if isinstance(made, mysql.Insert):
        return made.on_duplicate_key_update(
            {column.name: column + made.inserted[column.name] for column in sums}
        )
    return made.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={column.name: column + made.excluded[column.name] for column in sums},
    )


#: (driver, table, columns, what) -> statement
_made: dict[tuple[str, str, Columns, str], str] = {}


def _run(
    connection: sa.Connection,
    table: sa.Table,
    columns: Columns,
    rows: Rows,
    what: str,
    more: _Insert,
) -> None:
    if not rows:
        return
    key = connection.dialect.driver, table.name, columns, what
    known = _made.get(key)
    if known is None:
        statement = more(_insert(connection, table, columns), table)
        dialect = connection.dialect
        if dialect.name not in ("postgresql", "sqlite"):
            # Rows, not a dictionary each.
            dialect = mysql.dialect(paramstyle="format")
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        assert compiled.positiontup in (None, list(columns))
        known = _made[key] = str(compiled)
    if connection.dialect.name == "postgresql":
        arrays: dict[str, Any] = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
        connection.exec_driver_sql(known, arrays)
    else:
        connection.exec_driver_sql(known, list(rows))


def _insert(connection: sa.Connection, table: sa.Table, columns: Columns) -> Any:
    kind = connection.dialect.name
    if kind == "sqlite":
        return sqlite.insert(table)
    if kind != "postgresql":
        return mysql.insert(table)
    # An array for each column: rows cost neither parsing nor trips of their own.
    arrays = [sa.bindparam(name, type_=postgresql.ARRAY(table.c[name].type)) for name in columns]
    rows = sa.func.unnest(*arrays).table_valued(*columns).render_derived()
    return postgresql.insert(table).from_select(
        list(columns), sa.select(*(rows.c[name] for name in columns))
    )
