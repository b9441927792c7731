"""The environment of tasks and of salloc's shell, against transcripts 019, 020 and 021 of 26.05 and
what a 22.05 showed for other options."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from layout_support import config, job

from gsched.config import Config
from gsched.layout import plan_step
from gsched.model import Job, JobSpec, NodeAlloc, Shape, Step
from gsched.model.step import Callback, StepSpec
from gsched.stepenv import salloc_environment, step_environment

CONFIG = msgspec.structs.replace(config(), path="PEER_DIR/etc/slurm.conf")
CALLBACK = Callback("127.0.0.1", 41857, b"s" * 32)
#: of the node's devices, of the supervisor, or of the recording shell
NOT_OURS = {
    *("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_TASK_PID", "SHLVL", "_"),
}


def run_step(
    where: Job,
    submitted: dict[str, str],
    *,
    setup: Config = CONFIG,
    components: list[Job] | None = None,
    step_id: int = 0,
    callback: Callback = CALLBACK,
    **options: object,
) -> list[dict[str, str]]:
    """The environment of each task of a step, by its number."""
    spec = StepSpec(job_id=where.id, argv=["env"], name="env", cwd="CWD")
    for name, value in options.items():
        setattr(spec, name, value)
    nodes = []
    ntasks = 0
    for component in components or [where]:
        planned = plan_step(spec, component, [], setup)
        for node in planned.nodes:
            node.tasks = [ntasks + task for task in node.tasks]
            nodes.append(node)
        ntasks += planned.ntasks
    step = Step(where.id, 1, step_id, ntasks=ntasks, nodes=nodes)
    packed = b"\0".join(f"{name}={value}".encode() for name, value in submitted.items())
    found = {}
    for index, node in enumerate(nodes):
        shared, tasks = step_environment(
            where, step, spec, index, setup, packed, callback, components or []
        )
        for task, own in zip(node.tasks, tasks, strict=True):
            found[task] = {
                name.decode(): value.decode() for name, value in {**shared, **own}.items()
            }
    return [found[task] for task in range(ntasks)]


def recorded(path: Path, command: str) -> list[str]:
    """The lines that a command of a transcript printed."""
    text = path.read_text().split(f"$ {command}", 1)[1]
    return text.split("--- stdout\n", 1)[1].split("--- stderr\n", 1)[0].splitlines()


def by_task(lines: list[str]) -> list[dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for line in lines:
        label, _, rest = line.partition(": ")
        name, _, value = rest.partition("=")
        found.setdefault(int(label), {})[name] = value
    return [found[task] for task in sorted(found)]


def ours(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in NOT_OURS}


def variables(lines: list[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z_]+=", line))


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden/26.05"


def step_job(number: int, start: int, sluid: str, *cpus: int, gpus: int, name: str) -> Job:
    where = job(*cpus, gpus=gpus)
    where.id, where.start_time, where.time_limit = number, start, 600
    where.sluid = sluid
    where.spec.name, where.spec.account, where.spec.work_dir = name, "research", "CWD"
    where.spec.alloc_node = "vm"
    return where


@pytest.mark.shared
def test_tasks_inside_a_job(golden: Path) -> None:
    batch = variables(recorded(golden / "018-env-batch.txt", "cat envb.out"))
    tasks = by_task(recorded(golden / "019-env-srun-task.txt", "cat envs.out"))
    start = int(tasks[0]["SLURM_JOB_START_TIME"])
    where = step_job(182, start, tasks[0]["SLURM_JOB_SLUID"], 6, 2, gpus=2, name="envjob")
    # The batch script's environment of a job of the same options is what srun inherits.
    batch |= {"SLURM_JOB_ID": "182", "SLURM_JOBID": "182"}
    found = run_step(where, batch, ntasks=4, min_nodes=2, cpus_per_task=2, label=True)
    shown = re.compile("SLURM|CUDA|GPU|PMI")
    for task, expected in enumerate(tasks):
        mine = {name: value for name, value in found[task].items() if shown.search(name)}
        assert ours(mine) == ours(expected)


@pytest.mark.shared
def test_tasks_outside_a_job(golden: Path) -> None:
    tasks = by_task(
        recorded(
            golden / "020-env-srun-alone.txt",
            "srun -n2 --gres=gpu:1 -l bash -c 'env | sort' | sort",
        )
    )
    start = int(tasks[0]["SLURM_JOB_START_TIME"])
    where = step_job(183, start, tasks[0]["SLURM_JOB_SLUID"], 2, gpus=1, name="bash")
    where.time_limit, where.spec.interactive = 3600, "srun"
    client = {
        "HOME": "(home)",
        "LANG": "C.UTF-8",
        "LOGNAME": "root",
        "MYVAR": "hello",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PWD": "CWD",
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "USER": "root",
    }
    found = run_step(
        where,
        client,
        callback=Callback("127.0.0.1", 36091, b"s" * 32),
        ntasks=2,
        gpus_per_node=1,
        gpus_set=True,
        label=True,
        name="bash",
    )
    for task, expected in enumerate(tasks):
        assert ours(found[task]) == ours(expected)


@pytest.mark.shared
def test_shell_of_salloc(golden: Path) -> None:
    lines = recorded(
        golden / "021-env-salloc.txt",
        "salloc -N2 --gres=gpu:1 -t 5 bash -c 'env | grep ",
    )
    where = step_job(184, 1, "s", 1, 1, gpus=1, name="interactive")
    # The controller has put in DefMemPerCPU.
    where.spec.shape = Shape(min_nodes=2, gpus_per_node=1, mem_per_cpu=2000)
    where.spec.tres = {"per_node": "gres/gpu:1", "gres": "gpu:1"}
    found = salloc_environment(where, CONFIG)
    expected = variables(lines)
    # The recording's own: where salloc runs the file may have another path.
    del expected["SLURM_CONF"]
    # "SLURM" is what the recording looked for.
    assert {name: value for name, value in found.items() if "SLURM" in name} == expected


@pytest.mark.parametrize(
    ("shape", "spec", "expected"),
    [
        ({"ntasks": 4}, {}, {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4"}),
        ({"mem_per_node": 100}, {}, {"SLURM_MEM_PER_NODE": "100"}),
        ({"mem_per_cpu": 100}, {}, {"SLURM_MEM_PER_CPU": "100"}),
        ({"gpus_total": 2}, {}, {"SLURM_GPUS": "2"}),
        ({"gpus_per_node": 2}, {}, {"SLURM_GPUS_PER_NODE": "2"}),
        ({"overcommit": True}, {}, {"SLURM_OVERCOMMIT": "1"}),
        ({"threads_per_core": 1}, {}, {"SLURM_THREADS_PER_CORE": "1"}),
        ({"cpus_per_gpu": 2}, {}, {"SLURM_CPUS_PER_GPU": "2"}),
        ({}, {"distribution": "cyclic"}, {"SLURM_DISTRIBUTION": "cyclic"}),
        (
            {},
            {"distribution": "plane=2"},
            {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"},
        ),
        ({}, {"gpu_bind": "single:1"}, {"SLURM_GPU_BIND": "single:1"}),
        ({}, {"hint": "nomultithread"}, {"SLURM_HINT": "nomultithread"}),
        ({}, {"network": "x"}, {"SLURM_NETWORK": "x"}),
    ],
)
def test_what_options_of_salloc_leave(
    shape: dict[str, object], spec: dict[str, object], expected: dict[str, str]
) -> None:
    def told(one: JobSpec) -> dict[str, str]:
        where = job(4)
        where.spec = one
        return salloc_environment(where, CONFIG)

    plain = told(JobSpec(name="interactive"))
    found = told(JobSpec(name="interactive", shape=Shape(**shape), **spec))  # type: ignore[arg-type]
    assert {name: value for name, value in found.items() if plain.get(name) != value} == expected


INSIDE = {"SLURM_JOB_ID": "291", "SLURM_JOB_NAME": "in.sh", "PATH": "/bin", "HOME": "/root"}


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (
            {"min_nodes": 1, "ntasks": 1},
            {
                "SLURM_DISTRIBUTION": "cyclic",
                "SLURM_GTIDS": "0",
                "SLURM_NNODES": "1",
                "SLURM_NPROCS": "1",
                "SLURM_NTASKS": "1",
                "SLURM_STEP_NODELIST": "node1",
                "SLURM_STEP_NUM_NODES": "1",
                "SLURM_STEP_NUM_TASKS": "1",
                "SLURM_STEP_TASKS_PER_NODE": "1",
                "SLURM_TASKS_PER_NODE": "1",
            },
        ),
        (
            {"cpu_bind": "verbose,none"},
            {
                "SLURM_CPU_BIND": "verbose,none",
                "SLURM_CPU_BIND_LIST": "",
                "SLURM_CPU_BIND_TYPE": "none",
                "SLURM_CPU_BIND_VERBOSE": "verbose",
            },
        ),
        (
            {"distribution": "cyclic:block"},
            {"SLURM_DISTRIBUTION": "cyclic:block", "SLURM_GTIDS": "0,2"},
        ),
        (
            {"threads_per_core": 1},
            {
                "SLURM_CPU_BIND": "quiet,threads",
                "SLURM_CPU_BIND_LIST": "",
                "SLURM_CPU_BIND_TYPE": "threads",
                "SLURM_CPU_BIND_VERBOSE": "quiet",
                "SLURM_THREADS_PER_CORE": "1",
            },
        ),
        (
            {"ntasks_per_core": 1},
            {
                "SLURM_CPU_BIND": "quiet,cores",
                "SLURM_CPU_BIND_LIST": "",
                "SLURM_CPU_BIND_TYPE": "cores",
                "SLURM_CPU_BIND_VERBOSE": "quiet",
                "SLURM_NTASKS_PER_CORE": "1",
            },
        ),
        (
            {"mem_bind": "local"},
            {
                "SLURM_MEM_BIND": "quiet,local",
                "SLURM_MEM_BIND_LIST": "",
                "SLURM_MEM_BIND_TYPE": "local",
                "SLURM_MEM_BIND_VERBOSE": "quiet",
            },
        ),
        ({"name": "nm"}, {"SLURM_JOB_NAME": "nm"}),
        ({"ntasks_per_node": 2}, {"SLURM_NTASKS_PER_NODE": "2"}),
        ({"mem_per_node": 100}, {}),
        ({"kill_on_bad_exit": True, "wait": 5, "time_limit": 120}, {}),
        ({"verbose": 1}, {"SRUN_DEBUG": "4"}),
        ({"quiet": True}, {"SRUN_DEBUG": "2"}),
        ({"umask": 0o077}, {"SLURM_UMASK": "0077"}),
        ({"export": "ALL,FOO=bar"}, {"FOO": "bar"}),
        ({"mpi": "pmi2"}, {"SLURM_MPI_TYPE": "pmi2"}),
        ({"cpu_freq": "high"}, {"SLURM_CPU_FREQ_REQ": "High"}),
    ],
)
def test_what_options_of_srun_leave(options: dict[str, object], changed: dict[str, str]) -> None:
    """What a task has with an option that it has not without, as a 22.05 showed in `srun env` of a
    job with 6 and 2 CPUs (4 tasks, two on each node as the job's own -c was no option)."""
    where = job(6, 2)
    plain = run_step(where, INSIDE, ntasks=4, min_nodes=2)[0]
    assert (plain["SLURM_DISTRIBUTION"], plain["SRUN_DEBUG"]) == ("block", "3")
    found = run_step(where, INSIDE, **{"ntasks": 4, "min_nodes": 2, **options})[0]
    assert plain.keys() <= found.keys()
    assert {name: text for name, text in found.items() if plain.get(name) != text} == changed


def test_what_export_lets_through() -> None:
    where = job(2)
    client = {**INSIDE, "SLURM_ARRAY_TASK_ID": "4", "MINE": "1"}
    for export in ("NONE", "NIL"):
        found = run_step(where, client, ntasks=1, export=export)[0]
        assert found["SLURM_ARRAY_TASK_ID"] == "4"
        assert not {"PATH", "HOME", "MINE", "SRUN_DEBUG"} & found.keys()
    found = run_step(where, client, ntasks=1, export="HOME,FOO=bar")[0]
    assert (found["HOME"], found["FOO"], found["SLURM_ARRAY_TASK_ID"]) == ("/root", "bar", "4")
    assert not {"PATH", "MINE"} & found.keys()


def test_old_gpus_are_not_passed_on() -> None:
    client = {
        **INSIDE,
        "CUDA_VISIBLE_DEVICES": "5",
        "ROCR_VISIBLE_DEVICES": "2",
        "SLURM_STEP_GPUS": "3",
        "SLURM_GPUS_ON_NODE": "7",
        "SLURM_FOO": "1",
        "SLURM_UMASK": "7",
        "TMPDIR": "/x",
    }
    found = run_step(job(1), client, ntasks=1)[0]
    assert not {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS"} & found.keys()
    assert "SLURM_GPUS_ON_NODE" not in found
    assert (found["SLURM_FOO"], found["SLURM_UMASK"], found["TMPDIR"]) == ("1", "7", "/x")
    # Where there are no GPUs to give, what a user says of them stays.
    bare = msgspec.structs.replace(CONFIG, gres_types=())
    assert run_step(job(1), client, setup=bare, ntasks=1)[0]["CUDA_VISIBLE_DEVICES"] == "5"


def test_heterogeneous_steps_are_one() -> None:
    """As in a 22.05: `srun --het-group=0,1` of a job with 2 tasks on node1 and 3 on node2."""
    first, second = job(2), job(3)
    for place, component in enumerate((first, second)):
        component.het_job_id, component.het_offset, component.het_size = 291, place, 2
        component.alloc[0] = NodeAlloc(f"node{place + 1}", 2 + place, 2 + place, 4000)
        component.alloc[0].cpu_ids = (1 << 2 + place) - 1
    second.id = 292
    spec = {"het_group": [0, 1]}
    nodes = []
    for component, count in ((first, 2), (second, 3)):
        planned = plan_step(StepSpec(job_id=291, ntasks=count, **spec), component, [], CONFIG)  # type: ignore[arg-type]
        nodes += planned.nodes
    nodes[1].tasks = [2, 3, 4]
    step = Step(291, 1, 0, ntasks=5, nodes=nodes)
    shared, tasks = step_environment(
        first,
        step,
        StepSpec(job_id=291),
        1,
        CONFIG,
        b"SLURM_JOB_ID=291",
        CALLBACK,
        [first, second],
    )
    for name, value in {
        "SLURM_JOB_ID": "291",
        "SLURM_JOB_CPUS_PER_NODE": "2,3",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODELIST": "node[1-2]",
        "SLURM_NTASKS": "5",
        "SLURM_NODEID": "1",
        "SLURM_CPUS_ON_NODE": "3",
        "SLURM_GTIDS": "2,3,4",
        "SLURM_STEP_TASKS_PER_NODE": "2,3",
        "SLURM_DISTRIBUTION": "block",
    }.items():
        assert shared[name.encode()].decode() == value, name
    assert [task[b"SLURM_PROCID"] for task in tasks] == [b"2", b"3", b"4"]
    assert [task[b"SLURM_LOCALID"] for task in tasks] == [b"0", b"1", b"2"]


def test_preserve_env() -> None:
    """srun -E -n1 -N1 in a job of two nodes and four tasks, as measured with Slurm 22.05: the
    numbers of the job stay, those of the step are its own."""
    conf = config()
    whole = job(3, 1)
    client = b"SLURM_JOB_ID=291\0SLURM_NTASKS=4\0SLURM_NPROCS=4\0SLURM_NNODES=2\0A=b"
    spec = StepSpec(291, argv=["a"], ntasks=1, min_nodes=1, max_nodes=1, preserve_env=True)
    planned = plan_step(spec, whole, [], conf)
    step = Step(291, 1, 0, "a", 1, planned.nodes)
    found, _ = step_environment(whole, step, spec, 0, conf, client, Callback("h", 1, bytes(32)))
    told = [found[name] for name in (b"SLURM_NTASKS", b"SLURM_NPROCS", b"SLURM_NNODES")]
    assert told == [b"4", b"4", b"2"]
    assert (found[b"SLURM_STEP_NUM_TASKS"], found[b"SLURM_STEP_NUM_NODES"]) == (b"1", b"1")


def test_the_number_of_an_interactive_step() -> None:
    """Slurm's SLURM_INTERACTIVE_STEP, 0xfffffffa, unsigned: what `env` shows in such a shell."""
    (task,) = run_step(job(3, 1), {}, step_id=-6, ntasks=1, min_nodes=1, max_nodes=1)
    assert (task["SLURM_STEP_ID"], task["SLURM_STEPID"]) == ("4294967290", "4294967290")
