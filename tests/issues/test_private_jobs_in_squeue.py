"""`PrivateData=jobs` held for sacct and for explanations, but squeue, `scontrol show job` and
`squeue -s` showed everybody's jobs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gsched.frontend.reader import Reads
from gsched.model import Job, JobSpec, JobState, NodeAlloc
from gsched.store import Store, number_key
from gsched.wire.codec import decode
from gsched.wire.messages import FromFrontend, JobQuery, JobRows, StepQuery, StepRows


@pytest.mark.parametrize(
    ("uid", "private", "seen"),
    [(1001, True, [1]), (1002, True, [2]), (0, True, [1, 2]), (1001, False, [1, 2])],
)
def test_private_jobs(tmp_path: Path, uid: int, private: bool, seen: list[int]) -> None:
    store = Store.open(str(tmp_path), map_size=64 << 20)
    for number in (1, 2):
        job = Job(number, 1000 + number, 100, "u", "g", JobSpec(), script="s" * 40)
        job.state, job.alloc = JobState.RUNNING, [NodeAlloc("n1", 1, 1, 1)]
        store.commit({("job", number_key(number)): msgspec.msgpack.encode(job)})
    store.close()
    reads = Reads(str(tmp_path), "c", frozenset({0}), private=private)

    def ids(query: JobQuery | StepQuery) -> list[int]:
        rows = decode(FromFrontend, reads.answer(query, uid, True))
        assert isinstance(rows, JobRows | StepRows)
        return [job.id for job in rows.jobs]

    assert ids(JobQuery()) == seen
    assert ids(StepQuery()) == seen
    assert ids(JobQuery([1])) == [n for n in seen if n == 1]
    assert ids(JobQuery(uids=[1002], active_only=True)) == [n for n in seen if n == 2]
    assert ids(StepQuery(uids=[1002])) == [n for n in seen if n == 2]
