"""Which attempts were changed when they were over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column, unless it is there."""
    there = sa.inspect(op.get_bind())
    if "changed" not in {column["name"] for column in there.get_columns("jobs")}:
        zero = sa.text("0")
        column = sa.Column("changed", sa.BigInteger, nullable=False, server_default=zero)
        op.add_column("jobs", column)
