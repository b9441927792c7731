"""What a node tells the supervisor of a step."""

from __future__ import annotations

import pytest
from layout_support import config, job

from gsched.layout import plan_step
from gsched.model import Gpu, NodeAlloc, Step, StepNode
from gsched.model.step import NO_TASK, Callback, StepSpec
from gsched.wire.steps import LaunchStep
from slurmd_compat import binding
from slurmd_compat.failure import LaunchError
from slurmd_compat.launcher import Grant
from slurmd_compat.tasks import Order, process_mapping, step_order

CONFIG = config()


def order(index: int = 0, extra: str = "", grant: Grant | None = None, **options: object) -> Order:
    """The order for a node of a step in a job with 4 CPUs and 3 GPUs on each of 2 nodes."""
    where = job(4, 4, gpus=3)
    where.spec.name, where.user = "in.sh", "root"
    setup = config(extra) if extra else CONFIG
    spec = StepSpec(job_id=291, argv=["prog", "-x"], cwd="/work", min_nodes=2)
    for name, value in options.items():
        setattr(spec, name, value)
    planned = plan_step(spec, where, [], setup)
    launch = LaunchStep(
        step=Step(291, 1, 5, ntasks=planned.ntasks, nodes=planned.nodes),
        spec=spec,
        index=index,
        callback=Callback("10.0.0.1", 4000, bytes(range(32))),
        environment=b"PATH=/bin\0SLURM_JOB_ID=291",
        task_cpus=planned.task_cpus[index],
        task_gpus=planned.task_gpus[index],
    )
    return step_order(
        launch,
        where,
        setup,
        planned.nodes[index].node,
        grant or Grant(),
        owner=(1000, 100),
        groups="100,27",
        rlimits=[("rlimit_core", "0:unlimited")],
    )


def of(items: Order, key: str) -> list[str | bytes | int]:
    return [value for name, value in items if name == key]


def each_task(items: Order, key: str) -> list[list[str | bytes | int]]:
    """The values of a key for each task."""
    found: list[list[str | bytes | int]] = []
    for name, value in items:
        if name == "task":
            found.append([])
        elif name == key and found:
            found[-1].append(value)
    return found


def test_the_step() -> None:
    items = dict(order(1, ntasks=6, umask=0o027))
    for key, value in {
        "uid": 1000,
        "gid": 100,
        "groups": "100,27",
        "umask": "27",
        "cwd": "/work",
        "label": "STEP 291.5 ON node2",
        "pid_env": "SLURM_TASK_PID",
        "ntasks": 6,
        "nnodes": 2,
        "io": "10.0.0.1:4000",
        "io_secret": bytes(range(32)).hex(),
        "io_index": 1,
        "stdin_task": -1,
        "openmode": "truncate",
        "rlimit_core": "0:unlimited",
    }.items():
        assert items[key] == value, key
    assert of(order(), "arg") == ["prog", "-x"]
    assert "pty" not in items and "pmi" not in items


def test_tasks_of_a_node() -> None:
    items = order(1, ntasks=6)
    assert of(items, "task") == [3, 4, 5]
    assert each_task(items, "tenv") == [
        [b"SLURM_LOCALID=0", b"SLURM_PROCID=3", b"TMPDIR=/tmp"],
        [b"SLURM_LOCALID=1", b"SLURM_PROCID=4"],
        [b"SLURM_LOCALID=2", b"SLURM_PROCID=5"],
    ]
    # Records of the step come before those of tasks.
    keys = [key for key, _ in items]
    assert set(keys[keys.index("task") :]) == {"task", "tenv", "tstdin", "tstdout", "tstderr"}
    assert b"SLURM_GTIDS=3,4,5" in of(items, "env")


def test_files_of_tasks() -> None:
    items = order(
        1, ntasks=4, std_out="/o/%j.%s-%3t-%N-%n", std_err="err-%J-%x", std_in="/dev/null"
    )
    assert each_task(items, "tstdout") == [["/o/291.5-002-node2-1"], ["/o/291.5-003-node2-1"]]
    assert each_task(items, "tstderr") == [["/work/err-291.5-in.sh"]] * 2
    assert each_task(items, "tstdin") == [["/dev/null"]] * 2
    items = order(0, ntasks=4, stdout_task=1, stdin_task=NO_TASK, append=True)
    assert each_task(items, "tstdout") == [["/dev/null"], [""]]
    assert each_task(items, "tstderr") == [[""], [""]]
    assert of(items, "stdin_task") == [-2]
    assert of(items, "openmode") == ["append"]


def test_programs_of_their_own() -> None:
    items = order(1, ntasks=4, multi_prog="0-1 first %t\n* second %o\n", argv=["m.conf", "more"])
    assert each_task(items, "targ") == [["second", "2", "more"], ["second", "3", "more"]]
    with pytest.raises(LaunchError, match="no record for task id 3"):
        where = job(4)
        spec = StepSpec(job_id=291, argv=["m.conf"], multi_prog="0 a\n")
        share = StepNode(NodeAlloc("node1", 4, 4, 0), [0, 1, 2, 3])
        launch = LaunchStep(
            Step(291, 1, 0, ntasks=4, nodes=[share]),
            StepSpec(job_id=291, argv=["m.conf"], multi_prog="0-2 a\n"),
            0,
            Callback("h", 1, b""),
            b"",
        )
        assert spec
        step_order(launch, where, CONFIG, "node1", Grant(), owner=(0, 0), groups="", rlimits=[])


def test_programs_in_an_image() -> None:
    extra = "ContainerLauncher=/usr/local/sbin/enter-image"
    image = {"container_image": "/images/a b", "container_mounts": "/x:/y"}
    items = order(extra=extra, **image)
    assert of(items, "arg") == ["/usr/local/sbin/enter-image", "/images/a b", "--", "prog", "-x"]
    said = {value for value in of(items, "env") if b"CONTAINER" in value}  # type: ignore[operator]
    assert said == {b"SLURM_CONTAINER_IMAGE=/images/a b", b"SLURM_CONTAINER_MOUNTS=/x:/y"}
    programs = {"multi_prog": "0-1 first\n* second %o\n", "argv": ["m.conf", "more"]}
    items = order(1, extra=extra, ntasks=4, **image, **programs)
    assert each_task(items, "targ") == [
        ["/usr/local/sbin/enter-image", "/images/a b", "--", "second", offset, "more"]
        for offset in ("2", "3")
    ]


def test_mpi() -> None:
    assert of(order(ntasks=4, mpi="pmi2"), "pmi") == [2]
    assert of(order(ntasks=4, mpi="pmi2"), "pmi_jobid") == ["291.5"]
    assert of(order(ntasks=4, mpi="pmi2"), "pmi_mapping") == ["(vector,(0,2,2))"]
    assert of(order(ntasks=4, extra="MpiDefault=pmi2"), "pmi") == [2]
    assert of(order(ntasks=4, extra="MpiDefault=pmi2", mpi="none"), "pmi") == []


def nodes(*tasks: list[int]) -> list[StepNode]:
    return [StepNode(NodeAlloc(f"n{i}", 1, 1, 1), mine) for i, mine in enumerate(tasks)]


def test_process_mapping() -> None:
    """The PMI-1 wiki's words: (first node, number of nodes, processes on each)."""
    assert process_mapping(nodes([0])) == "(vector,(0,1,1))"
    assert process_mapping(nodes([0, 1], [2, 3], [4, 5])) == "(vector,(0,3,2))"
    assert process_mapping(nodes([0, 1, 2], [3])) == "(vector,(0,1,3),(1,1,1))"
    assert process_mapping(nodes([0, 2], [1, 3])) == "(vector,(0,2,1),(0,2,1))"
    assert process_mapping(nodes([1], [0])) == "(vector,(1,1,1),(0,1,1))"


def test_hooks() -> None:
    extra = "TaskProlog=/etc/tp\nTaskEpilog=/etc/te"
    items = dict(order(extra=extra, task_prolog="mine", task_epilog="/x/mine"))
    assert (items["task_prolog"], items["task_epilog"]) == ("/etc/tp", "/etc/te")
    assert (items["user_task_prolog"], items["user_task_epilog"]) == ("/work/mine", "/x/mine")


def test_gpus_of_tasks() -> None:
    grant = Grant({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "0,1"})
    grant.of_gpus = lambda bits: {"CUDA_VISIBLE_DEVICES": f"bits {bits}"}
    items = order(grant=grant, ntasks=4, gpus_per_task=1, gpus_set=True)
    assert b"SLURM_STEP_GPUS=0,1" in of(items, "env")
    assert [values[-1] for values in each_task(items, "tenv")] == [
        b"CUDA_VISIBLE_DEVICES=bits 1",
        b"CUDA_VISIBLE_DEVICES=bits 2",
    ]


def test_cpus_of_tasks() -> None:
    grant = Grant()
    grant.machine_cpus = lambda cpus: binding.machine_cpus(cpus, [0, 2, 4, 6, 1, 3, 5, 7])
    items = order(extra="TaskPlugin=task/affinity", grant=grant, ntasks=4, cpu_bind="rank")
    assert each_task(items, "tcpus") == [["0"], ["2"]]
    # The masks in the words of Slurm, as wide as the node has CPUs.
    assert b"SLURM_CPU_BIND=quiet,mask_cpu:0x0001,0x0004" in of(items, "env")
    assert b"SLURM_CPU_BIND_LIST=0x0001,0x0004" in of(items, "env")
    assert b"SLURM_CPU_BIND_TYPE=mask_cpu:" in of(items, "env")
    items = order(extra="TaskPlugin=task/affinity", grant=grant, ntasks=2)
    # As many tasks as sockets: each has its own.
    assert each_task(items, "tcpus") == [["0,2,4,6"]]
    assert b"SLURM_CPU_BIND=quiet,mask_cpu:0x0055" in of(items, "env")
    # A simulated node has more CPUs than the machine.
    grant.machine_cpus = lambda cpus: None
    items = order(extra="TaskPlugin=task/affinity", grant=grant, ntasks=4, cpu_bind="rank")
    assert each_task(items, "tcpus") == [[], []]


def test_lines_about_bindings() -> None:
    """As a 22.05 wrote them (it says "task  0  0 [PID]: mask 0x1 set")."""
    extra = "TaskPlugin=task/affinity"
    items = order(1, extra=extra, ntasks=4, cpu_bind="verbose,rank")
    assert each_task(items, "tnote") == [
        ["cpu-bind=RANK - node2, task  2  0 []: mask 0x1 set\n"],
        ["cpu-bind=RANK - node2, task  3  1 []: mask 0x2 set\n"],
    ]
    items = order(extra=extra, ntasks=4, cpu_bind="verbose,none")
    assert each_task(items, "tnote")[1] == ["cpu-bind=NONE - node1, task  1  1 []: mask 0x0\n"]
    assert each_task(order(ntasks=4, cpu_bind="verbose"), "tnote") == [[], []]
    items = order(ntasks=4, gpus_total=6, gpus_set=True, gpu_bind="verbose,single:1")
    assert each_task(items, "tnote")[1] == [
        "gpu-bind: usable_gres=0x2; bit_alloc=0x7; local_inx=0; global_list=1; local_list=1\n"
    ]


def test_numbers_of_gpus_in_a_group_that_sees_more() -> None:
    """With the devices confined to those of the job, a step's count within them."""
    gpus = [Gpu(f"GPU-{index}") for index in range(8)]
    found = binding.gpu_variables(
        gpus, 0b100000, True, scope=0b101100, name="SLURM_STEP_GPUS", autodetect="nvml"
    )
    assert found == {"SLURM_STEP_GPUS": "5", "CUDA_VISIBLE_DEVICES": "2"}
    free = binding.gpu_variables(gpus, 0b100000, False, scope=0b101100, autodetect="nvml")
    assert free == {"SLURM_JOB_GPUS": "5", "CUDA_VISIBLE_DEVICES": "5"}
