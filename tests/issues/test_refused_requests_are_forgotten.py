"""The controller remembered texts of requests that it refused, however long they were: some hundred
refusals of 16 MB filled its memory.
"""

from __future__ import annotations

import tracemalloc

from gsched.controller.sharing import Sharing
from gsched.model import JobSpec, Shape


def test_large_values_are_not_kept() -> None:
    sharing = Sharing()
    tracemalloc.start()
    for number in range(20):
        text = f"/{number}" + "x" * (1 << 20)
        names = tuple(f"{number}-{item}" for item in range(10_000))
        sharing.spec(
            JobSpec(name=text, work_dir=text, partitions=names, shape=Shape(nodelist=names))
        )
    del text, names
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1 << 20


def test_equal_values_are_kept_once() -> None:
    sharing = Sharing()
    first = sharing.spec(JobSpec(work_dir="/home/" + "a" * 20, shape=Shape(nodelist=("n1", "n2"))))
    again = sharing.spec(JobSpec(work_dir="/home/" + "a" * 20, shape=Shape(nodelist=("n1", "n2"))))
    assert again.work_dir is first.work_dir
    assert again.shape is first.shape
