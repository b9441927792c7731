"""An index that leads to the attempts of an account."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

#: an account's name may be longer than what an index of a server takes
_LENGTH = 190


def upgrade() -> None:
    """Makes the index, unless it is there."""
    bind = op.get_bind()
    if "jobs_by_account" in {index["name"] for index in sa.inspect(bind).get_indexes("jobs")}:
        return
    # MariaDB cuts the text in the index itself; PostgreSQL needs an expression.
    cut = sa.text(f"left(account, {_LENGTH})")
    first = cut if bind.dialect.name == "postgresql" else "account"
    columns = [first, "end_time"]
    length = {"account": _LENGTH}
    op.create_index("jobs_by_account", "jobs", columns, mysql_length=length, mariadb_length=length)
