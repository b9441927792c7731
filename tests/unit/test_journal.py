"""The journal: what was put is there again, whatever happened to the end of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched.model import Job, JobSpec, Phase
from gsched.wire.nodes import LaunchSpec
from slurmd_compat.agent import Identity, Record
from slurmd_compat.journal import Journal, SpoolBusy


def record(job_id: int, phase: Phase = Phase.PREPARING, attempt: int = 1) -> Record:
    job = Job(job_id, 1000, 1000, "u", "g", JobSpec(name="x" * 50))
    return Record(job_id, attempt, "c-1", "boot", LaunchSpec(job, 0, ["GPU-1"], 60), phase)


def test_what_was_put_is_there_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put(record(1))
    journal.put(record(2))
    journal.put(record(1, Phase.RUNNING))
    journal.delete(record(2).key)
    journal.put_identity(Identity("c-1", {"c-1": 7}))
    journal.close()
    again = Journal(tmp_path)
    assert again.records() == [record(1, Phase.RUNNING)]
    assert again.identity == Identity("c-1", {"c-1": 7})
    assert record(1).key in again and record(2).key not in again
    assert again.problems == []
    again.close()


def test_two_daemons_cannot_share_a_spool(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(SpoolBusy, match="another slurmd is using"):
        Journal(tmp_path)
    journal.close()


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, 400))
def test_a_torn_end_costs_only_the_last_record(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    journal = Journal(spool)
    journal.put(record(1))
    before = (spool / "journal").stat().st_size
    journal.put(record(2))
    journal.close()
    data = (spool / "journal").read_bytes()
    cut = min(cut, len(data) - before)
    (spool / "journal").write_bytes(data[: len(data) - cut])
    again = Journal(spool)
    assert again.records() == [record(1)]
    # What is put afterwards does not stand behind the torn part.
    again.put(record(3))
    again.close()
    last = Journal(spool)
    assert last.records() == [record(1), record(3)]
    last.close()


def test_garbage_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"something else")
    journal = Journal(tmp_path)
    assert journal.records() == [] and len(journal.problems) == 1
    assert (tmp_path / "journal.bad").read_bytes() == b"something else"
    journal.close()


def test_the_file_does_not_grow_with_the_number_of_jobs(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for job_id in range(1, 3000):
        journal.put(record(job_id))
        journal.put(record(job_id, Phase.RELEASED))
        journal.delete(record(job_id).key)
    assert (tmp_path / "journal").stat().st_size < 600_000
    journal.close()
