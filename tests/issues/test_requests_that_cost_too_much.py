"""Requests that an ordinary user may send brought the controller down or kept it busy for minutes:
nested constraints ended it (a call for each parenthesis), overlapping array ranges were written out
task by task before anybody looked at their size, and ids could be repeated by the million.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import Bench

from gsched import features
from gsched.model import JobSpec, JobState, Shape
from gsched.taskset import TaskSet, TaskSetError
from gsched.wire.messages import CancelJobs, Done, Refused, SubmitJob, UpdateJob

#: seconds of CPU that one refusal may take; the faults took minutes
SOON = 2.0


def submission(shape: Shape | None = None, **spec: object) -> SubmitJob:
    made = JobSpec(shape=shape or Shape(), work_dir="/", **spec)  # type: ignore[arg-type]
    return SubmitJob(made, b"#!/bin/sh\n", b"")


@pytest.mark.parametrize("depth", [17, 500, 100_000])
def test_nested_constraints_are_refused(depth: int) -> None:
    text = "(" * depth + "h100" + ")" * depth
    reply = Bench().write(submission(Shape(features=text)))
    assert isinstance(reply, Refused)
    assert reply.message == "Invalid feature specification"
    with pytest.raises(features.FeatureError):
        features.parse(text)


def test_a_constraint_in_parentheses_still_works() -> None:
    bench = Bench()
    assert isinstance(bench.write(submission(Shape(features="((h100&rackA)|rackB)"))), Done)
    job = bench.job(hold=True)
    deep = "(" * 500 + "h100" + ")" * 500
    reply = bench.write(UpdateJob([str(job.id)], "update", {"features": deep}))
    assert isinstance(reply, Done) and reply.value == 0 and len(reply.errors) == 1


@pytest.mark.parametrize(
    "text",
    ["0-999999999,5", "0-4000000:2,1-4000000:3", ",".join(["0-4000000:2", "0-4000000:3"] * 1000)],
)
def test_overlapping_ranges_are_not_written_out(text: str) -> None:
    start = time.process_time()
    reply = Bench().write(submission(array=text))
    assert isinstance(reply, Refused)
    assert reply.message == "Invalid job array specification"
    with pytest.raises(TaskSetError):
        TaskSet.parse(text)
    assert time.process_time() - start < SOON


def test_many_equal_ranges_are_one() -> None:
    start = time.process_time()
    assert TaskSet.parse(",".join(["0-999"] * 40_000)).text() == "0-999"
    assert TaskSet.parse("5-9,0-7,20-30:5,25").text() == "0-9,20,25,30"
    reply = Bench().write(submission(array=",".join(["0-999"] * 40_000)))
    assert isinstance(reply, Done)
    assert time.process_time() - start < SOON


def test_membership_in_a_set_of_runs() -> None:
    tasks = TaskSet.parse("0-3,7,10-20:2")
    inside = {0, 1, 2, 3, 7, 10, 12, 14, 16, 18, 20}
    assert {task for task in range(-1, 25) if task in tasks} == inside


def test_an_id_counts_once_and_not_by_the_million() -> None:
    bench = Bench()
    job = bench.job(hold=True)
    start = time.process_time()
    reply = bench.write(CancelJobs([str(job.id)] * 3_000_000))
    assert isinstance(reply, Done) and reply.value == 1
    assert job.state is JobState.CANCELLED
    for write in (
        CancelJobs([str(number) for number in range(200_000)]),
        UpdateJob([str(number) for number in range(200_000)], "hold"),
        CancelJobs([f"{number}_[{'0,' * 2000}1]" for number in range(1000)]),
    ):
        assert isinstance(bench.write(write), Refused)
    assert time.process_time() - start < SOON
