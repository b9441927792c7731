"""Jobs, steps and how far the facts have come."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: whatever the server's defaults are
_MYSQL: dict[str, Any] = {
    f"{server}_{key}": value
    for server in ("mysql", "mariadb")
    for key, value in (("engine", "InnoDB"), ("charset", "utf8mb4"))
}
_LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
_JOB_NUMBERS = """
    job_id restarts begun group_id sub_id array_job_id array_task_id array_throttle het_job_id
    het_offset uid gid cancelled_by wstatus derived_wstatus priority submit eligible start
    end_time elapsed_s suspended_s time_limit req_cpus req_nodes req_mem_mb alloc_cpus
    alloc_nodes
"""
_JOB_TEXTS = """
    array_tasks sluid cluster user_name group_name account wckey name partition_name qos
    reservation licenses constraints comment admin_comment system_comment extra container state
    reason req_tres alloc_tres nodes exclusive oversubscribe std_in std_out std_err submit_line
    work_dir
"""
_STEP_NUMBERS = """
    wstatus start end elapsed_s suspended_s ncpus nnodes ntasks user_ms system_ms max_rss_kb
"""
_STEP_TEXTS = """
    step name state nodes alloc_tres max_rss_node layout submit_line
"""


def _columns(numbers: str, texts: str) -> list[sa.Column[Any]]:
    return [
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in numbers.split()),
        *(sa.Column(name, _LONG, nullable=False) for name in texts.split()),
    ]


def _key(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Makes the first tables. Whatever of it was done before the process was killed stays: not
    every server can take back the making of a table."""
    there = sa.inspect(op.get_bind())
    known = {name: {i["name"] for i in there.get_indexes(name)} for name in there.get_table_names()}
    uuid = ("state_uuid", sa.String(64))
    if "jobs" not in known:
        columns = _columns(_JOB_NUMBERS, _JOB_TEXTS)
        op.create_table("jobs", sa.Column(*uuid, primary_key=True), _key("seq"), *columns, **_MYSQL)
    indexes = {
        "jobs_by_end": ["end_time"],
        "jobs_by_job": ["job_id"],
        "jobs_by_group": ["group_id"],
        "jobs_by_uid": ["uid", "end_time"],
        "jobs_in_order": ["begun", "group_id", "sub_id", "job_id", "restarts"],
    }
    for name, names in indexes.items():
        if name not in known.get("jobs", ()):
            op.create_index(name, "jobs", names)
    if "steps" not in known:
        columns = _columns(_STEP_NUMBERS, _STEP_TEXTS)
        keys = (_key("seq"), _key("n"))
        op.create_table("steps", sa.Column(*uuid, primary_key=True), *keys, *columns, **_MYSQL)
    if "progress" not in known:
        last = sa.Column("last_seq", sa.BigInteger, nullable=False)
        op.create_table("progress", sa.Column(*uuid, primary_key=True), last, **_MYSQL)
