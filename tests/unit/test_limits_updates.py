"""Limits and changes of waiting jobs: what would be refused at submission."""

from __future__ import annotations

import pytest
from unit.test_limits import REFUSED, UIDS, bench, qos

from gsched.model import JobSpec
from gsched.wire.messages import Done, SubmitJob, UpdateJob


@pytest.mark.parametrize(
    ("fields", "refused"),
    [({"qos": "gold"}, True), ({"numtasks": "3"}, True), ({"nice": "1"}, False)],
)
def test_changes_of_a_waiting_job_are_judged_like_submissions(
    fields: dict[str, str], refused: bool
) -> None:
    made = bench()
    qos(made, "gold", max_submit_jobs_pu=0)
    qos(made, flags=("DenyOnLimit",), max_tres_per_job={"cpu": 2})
    answer = made.write(
        SubmitJob(JobSpec(hold=True), b"#!/bin/sh\n", b"", "ana", "users"), UIDS["ana"]
    )
    assert isinstance(answer, Done)
    update = UpdateJob([str(answer.value)], "update", fields)
    told = made.write(update, UIDS["ana"])
    assert isinstance(told, Done)
    assert [text for _, text in told.errors] == ([REFUSED] if refused else [])
    # An operator may, as in a real Slurm.
    told = made.write(update, 0)
    assert isinstance(told, Done) and not told.errors
