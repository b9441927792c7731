"""A held job that no node can hold was refused. A real Slurm (22.05.8) takes it, so that it may be
changed before it is released; released as it is, it waits with BadConstraints. Names that do not
exist are refused all the same, and so is the like of it that is not held, if only for a later
begin."""

from __future__ import annotations

import pytest
from unit.ledger_support import Bench

from gsched.model import JobSpec, JobState, Shape
from gsched.wire.messages import Done, Refused, SubmitJob, UpdateJob

NODE_CONFIG = "Requested node configuration is not available"
#: nodes have 16 CPUs, 64,000 MB, 8 GPUs and no disk for files
TOO_MUCH = [
    {"cpus_per_task": 17},
    {"mem_per_node": 921600},
    {"gpus_total": 99},
    {"gpus_per_node": 9},
    {"min_nodes": 1, "max_nodes": 1, "nodes_set": True, "ntasks": 40},
    {"tmp_disk_mb": 5120},
]


def change(b: Bench, job_id: int, verb: str = "update", **fields: str) -> str:
    reply = b.write(UpdateJob([str(job_id)], verb, fields), 0)
    assert isinstance(reply, Done)
    return reply.errors[0][1] if reply.errors else ""


@pytest.mark.parametrize("shape", TOO_MUCH)
def test_it_is_taken_and_waits_once_it_is_released(shape: dict[str, int]) -> None:
    b = Bench()
    job = b.job(shape=Shape(**shape), hold=True)  # type: ignore[arg-type]
    b.schedule()
    assert b.verdict(job) == "JobHeldUser"
    assert change(b, job.id, "release") == ""
    b.schedule()
    assert job.state == JobState.PENDING and b.verdict(job) == "BadConstraints"


@pytest.mark.parametrize("shape", TOO_MUCH)
def test_who_begins_later_is_refused(shape: dict[str, int]) -> None:
    b = Bench()
    spec = JobSpec(shape=Shape(**shape), begin=int(b.now) + 3600)  # type: ignore[arg-type]
    reply = b.write(SubmitJob(spec, b"#!/bin/sh\n", b"", "ana", "users"), 1001)
    assert isinstance(reply, Refused)
    assert reply.message == NODE_CONFIG


def test_changed_to_what_a_node_holds_it_starts() -> None:
    b = Bench()
    job = b.job(shape=Shape(gpus_per_node=9), hold=True)
    # Not right at once: Slurm looks at a held job's demands when it is released.
    assert change(b, job.id, mincpusnode="17") == ""
    assert change(b, job.id, mincpusnode="2", trespernode="gres:gpu:2") == ""
    assert change(b, job.id, "release") == ""
    b.schedule()
    assert job.state == JobState.RUNNING
    other = b.job(begin=int(b.now) + 3600)
    assert change(b, other.id, mincpusnode="17") == NODE_CONFIG


@pytest.mark.parametrize("wrong", [{"features": "none"}, {"nodelist": ("node9",)}])
def test_names_are_looked_at_all_the_same(wrong: dict[str, str]) -> None:
    b = Bench()
    spec = JobSpec(shape=Shape(**wrong), hold=True)  # type: ignore[arg-type]
    reply = b.write(SubmitJob(spec, b"#!/bin/sh\n", b"", "ana", "users"), 1001)
    assert isinstance(reply, Refused)
