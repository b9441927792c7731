"""Sharing equal values changes nothing that can be compared."""

from __future__ import annotations

import msgspec

from gsched.controller.sharing import Sharing
from gsched.model import Job, JobSpec, Shape


def job(number: int) -> Job:
    spec = JobSpec(name=f"job{number}", shape=Shape(gpus_per_node=2), work_dir="/home/" + "u" * 9)
    packed = msgspec.msgpack.encode(Job(number, 1000, 1000, "user", "group", spec))
    # Decoded: no two values are the same object.
    return msgspec.msgpack.decode(packed, type=Job)


def test_equal_values_become_one_and_stay_equal() -> None:
    sharing = Sharing()
    first, second = (sharing.job(job(n)) for n in (1, 2))
    assert (first, second) == (job(1), job(2))
    assert first.spec.shape is second.spec.shape
    assert first.spec.work_dir is second.spec.work_dir
    assert first.spec is not second.spec
    # What may be changed in place is never shared.
    assert first.alloc is not second.alloc
    assert first.spec.tres is not second.spec.tres
