"""The batch environment, against transcripts of Slurm 26.05."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsched.config import Config, Host
from gsched.environment import (
    array_indices,
    batch_environment,
    export_items,
    exported,
    parse,
    repeats,
    sluid,
    wants_login,
)
from gsched.model import Job, JobSpec, JobState, NodeAlloc, Shape

PEER = Config(
    path="PEER_DIR/etc/slurm.conf",
    cluster_name="peer",
    slurmctld_host=(Host(name="vm", addr="vm"),),
    def_mem_per_cpu=2000,
)

GPUS = {
    "CUDA_VISIBLE_DEVICES": "0,1",
    "GPU_DEVICE_ORDINAL": "0,1",
    "ROCR_VISIBLE_DEVICES": "0,1",
    "ZE_AFFINITY_MASK": "0,1",
    "SLURM_JOB_GPUS": "0,1",
    "SLURM_GPUS_ON_NODE": "2",
}

SUBMITTED = {
    "HOME": "(home)",
    "LANG": "C.UTF-8",
    "LOGNAME": "root",
    "MYVAR": "hello",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "PWD": "CWD",
    "SHELL": "/bin/bash",
    "SHLVL": "0",
    "SLURM_PRIO_PROCESS": "0",
    "SLURM_SUBMIT_DIR": "CWD",
    "SLURM_SUBMIT_HOST": "vm",
    "TERM": "dumb",
    "USER": "root",
    "_": "/usr/bin/sbatch",
}


def packed(environment: dict[str, str]) -> bytes:
    return b"\0".join(f"{name}={value}".encode() for name, value in environment.items())


def make_job(spec: JobSpec, alloc: list[NodeAlloc], **fields: object) -> Job:
    job = Job(
        id=181,
        uid=0,
        gid=0,
        user="root",
        group="root",
        spec=spec,
        state=JobState.RUNNING,
        partition="gpu",
        alloc=alloc,
        attempt=1,
    )
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def text_of(environment: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in environment.items()}


def transcript(path: Path, command: str, nth: int = 1) -> dict[str, str]:
    """The NAME=value lines printed by the nth `command` of a transcript."""
    text = path.read_text()
    for _ in range(nth):
        text = text[text.index(f"$ {command}\n--- stdout\n") :].partition("--- stdout\n")[2]
    lines = text.partition("--- stderr\n")[0].splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith(" "))
    return {name: value for name, equals, value in pairs if equals and name.isidentifier()}


@pytest.mark.shared
def test_the_whole_environment_of_a_batch_job(shared: Path) -> None:
    expected = transcript(shared / "golden/26.05/018-env-batch.txt", "cat envb.out")
    assert len(expected) > 60
    # Put in by the supervisor, which alone knows it.
    del expected["SLURM_TASK_PID"]
    spec = JobSpec(
        name="envjob",
        shape=Shape(
            min_nodes=2,
            max_nodes=2,
            nodes_set=True,
            ntasks=4,
            cpus_per_task=2,
            cpus_per_task_set=True,
            gpus_per_node=2,
            mem_per_node=4096,
        ),
        account="research",
        qos="normal",
        tres={"per_node": "gres/gpu:2", "per_task": "cpu=2"},
    )
    alloc = [
        NodeAlloc("node1", cpus=6, tasks=3, mem_mb=4096, gpus=3),
        NodeAlloc("node2", cpus=2, tasks=1, mem_mb=4096, gpus=3),
    ]
    job = make_job(
        spec, alloc, time_limit=600, start_time=1795960298, sluid=expected["SLURM_JOB_SLUID"]
    )
    made = batch_environment(job, 0, PEER, packed(SUBMITTED), now=0, gpus=GPUS)
    assert text_of(made) == expected


@pytest.mark.shared
@pytest.mark.parametrize(("nth", "task", "job_id"), [(1, 2, 186), (2, 4, 185)])
def test_an_array_task(shared: Path, nth: int, task: int, job_id: int) -> None:
    path = shared / "golden/26.05/022-env-array.txt"
    blocks = path.read_text().split("==> enva-")[1:]
    lines = blocks[nth - 1].partition("--- stderr")[0].splitlines()[1:]
    expected = dict(line.split("=", 1) for line in lines if "=" in line)
    del expected["SLURM_TASK_PID"]
    job = make_job(
        JobSpec(name="enva", account="research", array="2,4"),
        [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=2000)],
        id=job_id,
        array_job_id=185,
        array_task_id=task,
        time_limit=3600,
        start_time=1795960304,
        sluid=expected["SLURM_JOB_SLUID"],
    )
    made = text_of(batch_environment(job, 0, PEER, packed(SUBMITTED), now=0))
    assert {n: v for n, v in made.items() if n.startswith("SLURM")} == expected


def variables(shape: Shape, alloc: list[NodeAlloc], tres: dict[str, str]) -> dict[str, str]:
    """Of a job like those in 012-sbatch-gpu-options and 013-sbatch-tasks-nodes, what those show."""
    job = make_job(JobSpec(shape=shape, tres=tres), alloc)
    shown = ("GPU", "NTASKS", "TASKS_PER", "CPUS", "MEM_", "TRES", "NPROCS", "EXCLUSIVE")
    made = text_of(batch_environment(job, 0, PEER, b"", now=0))
    return {n: v for n, v in made.items() if any(word in n for word in shown)}


def test_gpus_of_the_job() -> None:
    shape = Shape(gpus_total=2, gpu_type="h100")
    alloc = [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=2000, gpus=3)]
    assert variables(shape, alloc, {"per_job": "gres/gpu:h100:2"}) == {
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_GPUS": "h100:2",
        "SLURM_JOB_CPUS_PER_NODE": "1",
        "SLURM_JOB_EXCLUSIVE": "NO",
        "SLURM_MEM_PER_CPU": "2000",
        "SLURM_TASKS_PER_NODE": "1",
    }


def test_gpus_per_task() -> None:
    shape = Shape(min_nodes=2, ntasks=4, gpus_per_task=1, gpu_type="h100")
    alloc = [
        NodeAlloc("node1", cpus=3, tasks=3, mem_mb=6000, gpus=7),
        NodeAlloc("node2", cpus=1, tasks=1, mem_mb=2000, gpus=1),
    ]
    tres = {"per_task": "gres/gpu:h100=1", "bind": "gres/gpu:per_task:1"}
    assert variables(shape, alloc, tres) == {
        "SLURM_CPUS_ON_NODE": "3",
        "SLURM_JOB_CPUS_PER_NODE": "3,1",
        "SLURM_JOB_EXCLUSIVE": "NO",
        "SLURM_MEM_PER_CPU": "2000",
        "SLURM_NPROCS": "4",
        "SLURM_NTASKS": "4",
        "SLURM_TASKS_PER_NODE": "3,1",
        "SLURM_TRES_BIND": "gres/gpu:per_task:1",
        "SLURM_TRES_PER_TASK": "gres/gpu:h100=1",
    }


def test_gres_leaves_no_variable_of_its_own() -> None:
    shape = Shape(min_nodes=2, max_nodes=2, nodes_set=True, gpus_per_node=3)
    alloc = [NodeAlloc(f"node{i}", cpus=1, tasks=1, mem_mb=2000, gpus=7) for i in (1, 2)]
    assert variables(shape, alloc, {"per_node": "gres/gpu:3", "gres": "gres/gpu:3"}) == {
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
        "SLURM_JOB_EXCLUSIVE": "NO",
        "SLURM_MEM_PER_CPU": "2000",
        "SLURM_TASKS_PER_NODE": "1(x2)",
    }


def test_memory_and_cpus_per_gpu() -> None:
    alloc = [NodeAlloc("node1", cpus=6, tasks=1, mem_mb=6144, gpus=3)]
    made = variables(Shape(gpus_total=2, mem_per_gpu=3072, cpus_per_gpu=3), alloc, {})
    assert made["SLURM_MEM_PER_GPU"] == "3072"
    assert made["SLURM_CPUS_PER_GPU"] == "3"
    assert made["SLURM_TASKS_PER_NODE"] == "6"
    assert "SLURM_MEM_PER_CPU" not in made


def test_all_memory_is_no_number_and_whole_nodes_are_said() -> None:
    alloc = [NodeAlloc("node1", cpus=16, tasks=1, mem_mb=64000, gpus=255)]
    made = variables(Shape(mem_per_node=0, exclusive=1), alloc, {})
    assert not [name for name in made if "MEM" in name]
    assert made["SLURM_JOB_EXCLUSIVE"] == "NODE"
    assert made["SLURM_TASKS_PER_NODE"] == "16"


def test_tasks_per_node() -> None:
    shape = Shape(min_nodes=2, max_nodes=2, nodes_set=True, ntasks_per_node=4)
    alloc = [NodeAlloc(f"node{i}", cpus=4, tasks=4, mem_mb=8000) for i in (1, 2)]
    made = variables(shape, alloc, {})
    assert made["SLURM_NTASKS"] == "8"
    assert made["SLURM_NTASKS_PER_NODE"] == "4"
    assert made["SLURM_TASKS_PER_NODE"] == "4(x2)"


@pytest.mark.parametrize(
    ("counts", "text"),
    [([6, 2], "6,2"), ([2, 2, 2], "2(x3)"), ([2, 1, 1, 1], "2,1(x3)"), ([72, 72, 36], "72(x2),36")],
)
def test_repeats(counts: list[int], text: str) -> None:
    assert repeats(counts) == text


def test_restart_count_only_after_a_requeue() -> None:
    alloc = [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=1)]
    job = make_job(JobSpec(), alloc)
    assert b"SLURM_RESTART_COUNT" not in batch_environment(job, 0, PEER, b"", now=0)
    job.restarts = 2
    assert batch_environment(job, 0, PEER, b"", now=0)[b"SLURM_RESTART_COUNT"] == b"2"


LOGIN = {b"HOME": b"/home/u", b"PATH": b"/login/bin", b"USER": b"u"}


@pytest.mark.parametrize(
    ("export", "myvar", "new", "path", "slurm_foo", "said"),
    [
        # 011-sbatch-env-export: what the job then saw
        ("ALL", "hello", "", "/bin", "", ""),
        ("NONE", "", "", "/login/bin", "", "NONE"),
        ("NIL", "", "", "", "", "NIL"),
        ("MYVAR", "hello", "", "/login/bin", "", "MYVAR"),
        ("NEW=1,MYVAR", "hello", "1", "/login/bin", "", "NEW=1,MYVAR"),
        ("ALL,NEW=a b", "hello", "a b", "/bin", "", "ALL,NEW=a b"),
        ("SLURM_FOO=1", "", "", "/login/bin", "1", "SLURM_FOO=1"),
    ],
)
def test_export(export: str, myvar: str, new: str, path: str, slurm_foo: str, said: str) -> None:
    job = make_job(JobSpec(export=export), [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=1)])
    login = LOGIN if wants_login(export) else None
    submitted = packed({"MYVAR": "hello", "PATH": "/bin", "SLURM_PRIO_PROCESS": "5"})
    made = text_of(batch_environment(job, 0, PEER, submitted, now=0, login=login))
    assert made.get("MYVAR", "") == myvar
    assert made.get("NEW", "") == new
    assert made.get("PATH", "") == path
    assert made.get("SLURM_FOO", "") == slurm_foo
    assert made.get("SLURM_EXPORT_ENV", "") == said
    assert made["SLURM_PRIO_PROCESS"] == "5"


def test_export_filtered_twice_is_filtered_once() -> None:
    submitted = {b"A": b"1", b"B": b"2", b"SLURM_X": b"3"}
    for export in ("ALL", "NONE", "NIL", "A", "A,C=4", "ALL,C=4"):
        once = exported(submitted, export)
        assert exported(once, export) == once


def test_export_list_with_quotes() -> None:
    assert export_items("A='x,y',B,C=\"p q\"") == ["A=x,y", "B", "C=p q"]


def test_nothing_of_the_job_that_ran_sbatch_is_passed_on() -> None:
    submitted = packed(
        {
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_GPUS": "3",
            "SLURM_GPUS_PER_NODE": "1",
            "SLURM_ARRAY_TASK_ID": "5",
            "SLURM_NTASKS": "64",
            "SLURM_JOB_NAME": "inner",
            "SLURM_SUBMIT_DIR": "/there",
            "CUDA_VISIBLE_DEVICES": "0",
            "PATH": "/bin",
        }
    )
    job = make_job(JobSpec(name="inner"), [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=1)], id=8)
    made = text_of(batch_environment(job, 0, PEER, submitted, now=0))
    for name in ("SLURM_JOB_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_ARRAY_TASK_ID", "SLURM_NTASKS"):
        assert name not in made
    assert "CUDA_VISIBLE_DEVICES" not in made
    assert made["SLURM_JOB_ID"] == "8"
    assert made["SLURM_SUBMIT_DIR"] == "/there"


def test_bytes_that_are_no_text_survive() -> None:
    job = make_job(JobSpec(), [NodeAlloc("node1", cpus=1, tasks=1, mem_mb=1)])
    made = batch_environment(job, 0, PEER, b"A=\xff\xfe\0B=x=y\0junk\0=z\0A=second", now=0)
    assert made[b"A"] == b"\xff\xfe"
    assert made[b"B"] == b"x=y"
    assert parse(b"junk\0=z\0") == {}


def test_array_indices() -> None:
    assert array_indices("1,3,5-9:2%2") == [1, 3, 5, 7, 9]
    assert array_indices("0-3") == [0, 1, 2, 3]
    assert array_indices("junk") == []


def test_sluid_is_a_number_of_cluster_time_and_sequence() -> None:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    made = sluid("peer", 1795960297527, 3)
    assert len(made) == 14 and made[0] == "s"
    number = 0
    for char in made[1:]:
        number = number * 32 + digits.index(char)
    assert number >> 10 & (1 << 42) - 1 == 1795960297527
    assert number & 1023 == 3
    # Slurm's own id of a job submitted then ends in the same digits (its cluster differs).
    assert sluid("peer", 1795960297527, 0)[4:] == "s0Z9M8KS6P1Q00"[4:]


@pytest.mark.shared
def test_the_leader_of_a_heterogeneous_job_sees_all_components(shared: Path) -> None:
    text = (shared / "golden/26.05/023-env-het.txt").read_text()
    lines = text[text.index("already allocated 1 nodes") :].partition("--- stderr\n")[0]
    pairs = (line.partition("=") for line in lines.splitlines()[1:])
    expected = {name: value for name, equals, value in pairs if equals}
    assert expected["SLURM_HET_SIZE"] == "2"
    first = JobSpec(
        name="het.sh",
        shape=Shape(ntasks=1, gpus_total=1, mem_per_cpu=2000),
        account="research",
        qos="normal",
        tres={"per_job": "gres/gpu:1"},
    )
    second = JobSpec(
        name="het.sh",
        shape=Shape(ntasks=2, mem_per_cpu=2000),
        account="research",
        qos="normal",
    )
    members = [
        make_job(first, [NodeAlloc("node2", cpus=1, tasks=1, mem_mb=2000, gpus=1)], id=188),
        make_job(second, [NodeAlloc("node1", cpus=2, tasks=2, mem_mb=4000)], id=189),
    ]
    for number, job in enumerate(members):
        job.het_job_id, job.het_offset, job.het_size = 188, number, 2
        job.sluid, job.time_limit, job.start_time = "s0Z9M8KS6ZV400", 3600, 1795960307
    made = text_of(
        batch_environment(
            members[0],
            0,
            PEER,
            packed(SUBMITTED | {"SLURM_SUBMIT_DIR": "CWD", "SLURM_SUBMIT_HOST": "vm"}),
            now=0,
            gpus={"SLURM_JOB_GPUS": "0", "SLURM_GPUS_ON_NODE": "1"},
            components=members,
        )
    )
    shown = {name: value for name, value in made.items() if "SLURM" in name}
    del expected["SLURM_TASK_PID"]
    assert shown == expected
