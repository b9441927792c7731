"""Roll-ups of attempts; they are made from the attempts that are there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    f"{server}_{key}": value
    for server in ("mysql", "mariadb")
    for key, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
_LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _id(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Makes what is not there yet. Who goes on from here (`Database.sync`) fills what is new."""
    there = sa.inspect(op.get_bind())
    known = set(there.get_table_names())
    if "shapes" not in known:
        op.create_table("shapes", _id("id"), sa.Column("tres", _LONG, nullable=False), **_MYSQL)
    for name in ("size_day", "size_month"):
        if name not in known:
            op.create_table(
                name,
                sa.Column("state_uuid", sa.String(64), primary_key=True),
                *(_id(each) for each in ("begin", "ref", "shape")),
                sa.Column("state", sa.String(32), primary_key=True),
                *(_number(each) for each in ("jobs", "starts", "seconds")),
                **_MYSQL,
            )
    columns = {column["name"] for column in there.get_columns("clusters")}
    if "rolled" not in columns:
        zero = sa.text("0")
        op.add_column(
            "clusters", sa.Column("rolled", sa.BigInteger, nullable=False, server_default=zero)
        )
