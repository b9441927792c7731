"""A job that was too big for its partition and ran too long there said PartitionTimeLimit: of the
two a real Slurm (22.05.8) names the size."""

from __future__ import annotations

from unit.ledger_support import Bench

from gsched.model import JobSpec, Shape, Verdict
from gsched.wire.messages import Done, SubmitJob


def why(cpus: int, minutes: int) -> str:
    made = Bench()
    spec = JobSpec(shape=Shape(ntasks=cpus), partitions=("debug",), time_limit=minutes * 60)
    answer = made.write(SubmitJob(spec, b"#!/bin/sh\n", b"", "ana", "users"), 1001)
    assert isinstance(answer, Done)
    made.schedule()
    verdict = made.view.get(("verdict", answer.value.to_bytes(8, "big")))
    assert isinstance(verdict, Verdict)
    return verdict.reason


def test_the_size_is_named_before_the_time() -> None:
    assert why(20, 60) == "PartitionConfig"
    assert why(20, 10) == "PartitionConfig"
    assert why(16, 60) == "PartitionTimeLimit"
