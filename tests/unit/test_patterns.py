"""File name patterns, against 015-sbatch-output-patterns of Slurm 26.05 and `man sbatch`."""

from __future__ import annotations

import pytest

from gsched.model import Job, JobSpec
from gsched.patterns import batch_files, expand


def make_job(**spec: str) -> Job:
    fields = {"name": "pat x", "work_dir": "/work", **spec}
    return Job(
        id=168,
        uid=0,
        gid=0,
        user="root",
        group="root",
        spec=JobSpec(**fields),  # type: ignore[arg-type]
        array_job_id=168,
        array_task_id=7,
    )


def plain_job(**spec: str) -> Job:
    job = make_job(**spec)
    job.id, job.array_job_id, job.array_task_id = 128, 0, -1
    return job


def test_all_symbols() -> None:
    pattern = "o-%A-%a-%j-%x-%u-%N-%n-%s-%t-%%-%5j.out"
    assert (
        expand(pattern, make_job(), "node1", 0)
        == "o-168-7-168-pat x-root-node1-0-batch-0-%-00168.out"
    )


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("job%4j.out", "job0128.out"),
        ("job%j-%2t.out", "job128-00.out"),
        ("%5x", "pat x"),
        ("%A_%a", "128_4294967294"),
        ("%q%", "%q%"),
        ("no\\%j", "no%j"),
        ("%99999j", "0000000128"),
    ],
)
def test_patterns(pattern: str, name: str) -> None:
    assert expand(pattern, plain_job(), "node1", 0) == name


def test_short_host_name_and_modulo() -> None:
    job = make_job()
    job.array_task_id = 123
    assert expand("%N-%b", job, "n7.example.org", 0) == "n7-3"


def test_step_id() -> None:
    assert expand("job%J.out", plain_job(), "n", 0, step="0") == "job128.0.out"


def test_default_files() -> None:
    assert batch_files(plain_job(), "n") == (
        "/dev/null",
        "/work/slurm-128.out",
        "/work/slurm-128.out",
    )
    assert batch_files(make_job(), "n")[1] == "/work/slurm-168_7.out"


def test_named_files() -> None:
    job = plain_job(std_in="in.txt", std_out="/abs/%j.out", std_err="sub/e.%u")
    assert batch_files(job, "n") == ("/work/in.txt", "/abs/128.out", "/work/sub/e.root")
