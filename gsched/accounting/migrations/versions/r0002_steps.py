"""Steps that end before their job: whose they are, and what more is measured of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

#: column -> its value in the rows that are there
_NEW = {
    "cancelled_by": -1,
    "max_rss_task": 0,
    "ave_rss_kb": -1,
    "gpu_util_ave": -1,
    "gpu_util_max": -1,
    "gpu_mem_max_mb": -1,
    "job_id": 0,
    "restarts": 0,
    "number": 0,
}


def upgrade() -> None:
    """Adds the columns and the index. Whatever of it was done before the process was killed stays:
    not every server can take back a change of a table."""
    there = sa.inspect(op.get_bind())
    known = {column["name"] for column in there.get_columns("steps")}
    for name, value in _NEW.items():
        if name not in known:
            default = sa.text(str(value))
            column = sa.Column(name, sa.BigInteger, nullable=False, server_default=default)
            op.add_column("steps", column)
    if "steps_by_job" not in {index["name"] for index in there.get_indexes("steps")}:
        op.create_index("steps_by_job", "steps", ["job_id", "restarts", "number"])
