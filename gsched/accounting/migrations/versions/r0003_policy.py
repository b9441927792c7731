"""Policy, transactions, events, reservations and roll-ups."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    f"{server}_{key}": value
    for server in ("mysql", "mariadb")
    for key, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
_LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
#: table -> columns: k number in the key, K text in the key, n number, t text, T text with an index
_TABLES = {
    "clusters": "state_uuid:K name:t zone:t",
    "policies": (
        "state_uuid:K kind:K name:K created:n modified:n deleted:n account:t user_name:t detail:t"
    ),
    "transactions": "state_uuid:K seq:k n:k time:n actor:t action:t where_text:t info:t",
    "events": (
        "state_uuid:K seq:k n:k node:T begin:n end_time:n state:t reason:t uid:n cluster_nodes:t "
        "tres:t"
    ),
    "reservations": (
        "state_uuid:K seq:k name:T begin:n end_time:n planned_start:n planned_end:n open:n flags:t "
        "nodes:t tres:t assocs:t"
    ),
    "tres": "id:k name:T",
    "owners": "state_uuid:K id:k assoc_id:n account:t user_name:t wckey:t",
    "usage_hour": "state_uuid:K begin:k ref:k what:k tres_id:k seconds:n",
    "usage_day": "state_uuid:K begin:k ref:k what:k tres_id:k seconds:n",
    "usage_month": "state_uuid:K begin:k ref:k what:k tres_id:k seconds:n",
}
_INDEXES = {
    "transactions_by_time": ("transactions", ["time"]),
    "events_by_node": ("events", ["state_uuid", "node", "end_time"]),
    "events_by_time": ("events", ["begin"]),
    "reservations_by_name": ("reservations", ["state_uuid", "name", "open"]),
    "reservations_by_time": ("reservations", ["begin"]),
    "jobs_by_start": ("jobs", ["start"]),
}
_SIZES = {"state_uuid": 64, "kind": 16}


def _column(text: str) -> sa.Column[Any]:
    name, _, sort = text.partition(":")
    if sort == "k":
        return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)
    if sort == "K":
        return sa.Column(name, sa.String(_SIZES.get(name, 190)), primary_key=True)
    if sort == "T":
        return sa.Column(name, sa.String(190), nullable=False)
    return sa.Column(name, sa.BigInteger if sort == "n" else _LONG, nullable=False)


def upgrade() -> None:
    """Makes what is not there yet: not every server can take back a change of a table."""
    there = sa.inspect(op.get_bind())
    known = {name: {i["name"] for i in there.get_indexes(name)} for name in there.get_table_names()}
    for table, text in _TABLES.items():
        if table not in known:
            op.create_table(table, *(_column(each) for each in text.split()), **_MYSQL)
    jobs = {column["name"] for column in there.get_columns("jobs")}
    for name in ("assoc_id", "last_report", "uncertain"):
        if name not in jobs:
            zero = sa.text("0")
            op.add_column(
                "jobs", sa.Column(name, sa.BigInteger, nullable=False, server_default=zero)
            )
    for name, (table, columns) in _INDEXES.items():
        if name not in known.get(table, ()):
            op.create_index(name, table, columns)
