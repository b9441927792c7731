"""Up to when jobs have been purged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column, unless it is there."""
    there = sa.inspect(op.get_bind())
    if "purged" not in {column["name"] for column in there.get_columns("clusters")}:
        zero = sa.text("0")
        column = sa.Column("purged", sa.BigInteger, nullable=False, server_default=zero)
        op.add_column("clusters", column)
