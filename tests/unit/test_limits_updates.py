"""Limits and changes of waiting jobs: what would be refused at submission."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF
from unit.test_limits import BASE, REFUSED, UIDS, bench, qos, run, submit

from gsched.config import parse_config
from gsched.ledger import Configure
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


def test_limits_that_are_enforced_from_now_on_count_what_is_there() -> None:
    """AccountingStorageEnforce=limits comes with a reconfigure: what runs and waits counts."""
    made = bench("AccountingStorageEnforce=associations\n")
    qos(made, grp_jobs=1)
    jobs = submit(made), submit(made)
    assert run(made, *jobs) == ["R", "R"]
    made.apply(Configure(parse_config({"slurm.conf": BASE + CONF})))
    assert made.led.limits.tally.of(("qos", "normal", "")).jobs == 2
    assert run(made, submit(made)) == ["QOSGrpJobsLimit"]
