"""torchx names tasks per node without nodes, and writes a date and a time with "-" between them; a
real Slurm takes both."""

from __future__ import annotations

from datetime import UTC

import pytest

from gsched.request import Options, finish
from gsched.units import parse_time_point


def test_gpus_per_task_with_tasks_per_node_alone() -> None:
    shape = finish(Options(ntasks_per_node=2, gpus_per_task="3")).spec.shape
    assert (shape.ntasks, shape.min_nodes, shape.gpus_per_task) == (2, 1, 3)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1970-01-01-00:00:01", "1970-01-01T00:00:01"),
        ("1970-01-02-01:00", "1970-01-02T01:00"),
        ("010270-01:00", "2070-01-02T01:00"),
    ],
)
def test_a_date_and_a_time(text: str, same: str) -> None:
    now = 1_795_960_000
    assert parse_time_point(text, now, UTC) == parse_time_point(same, now, UTC)
