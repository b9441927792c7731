"""Where the tasks of a step go, against what Slurm answered: transcript 038 of 26.05, and jobs of
the same shapes on a 22.05 ("-l printenv SLURM_NODEID" for each task)."""

from __future__ import annotations

import pytest
from layout_support import config, job

from gsched.layout import Busy, Planned, StepRefused, plan_step
from gsched.model import Job, NodeAlloc
from gsched.model.step import StepSpec

CONFIG = config()


def plan(where: Job, held: list[NodeAlloc] | None = None, **options: object) -> Planned:
    spec = StepSpec(job_id=where.id)
    for name, value in options.items():
        setattr(spec, name, value)
    return plan_step(spec, where, held or [], CONFIG)


def nodes_of(planned: Planned) -> list[str]:
    """The node of each task, by its number."""
    where = {task: share.node for share in planned.nodes for task in share.tasks}
    assert sorted(where) == list(range(planned.ntasks))
    return [where[task].removeprefix("node") for task in range(planned.ntasks)]


# `srun OPTIONS` in a job with 4 CPUs on each of 3 nodes (SLURM_NNODES=3 is an option too)
EVEN = [
    ({"min_nodes": 3}, "123"),
    ({"min_nodes": 3, "ntasks": 4}, "1123"),
    ({"min_nodes": 3, "ntasks": 6}, "112233"),
    ({"min_nodes": 3, "ntasks": 9}, "111222333"),
    ({"min_nodes": 2, "ntasks": 4}, "1122"),
    ({"min_nodes": 2, "ntasks": 7}, "1111222"),
    ({"min_nodes": 3, "ntasks": 4, "distribution": "block,Pack"}, "1111"),
    ({"min_nodes": 3, "ntasks": 6, "distribution": "block,Pack"}, "111122"),
    ({"min_nodes": 2, "ntasks": 6, "distribution": "block,Pack"}, "111122"),
    ({"min_nodes": 3, "ntasks": 6, "distribution": "block,NoPack"}, "112233"),
    ({"min_nodes": 3, "ntasks": 6, "distribution": "Pack"}, "111122"),
    ({"min_nodes": 3, "ntasks": 6, "distribution": "NoPack"}, "112233"),
    ({"min_nodes": 3, "ntasks": 6, "distribution": "cyclic"}, "123123"),
    ({"min_nodes": 3, "ntasks": 7, "distribution": "plane=2"}, "1122331"),
    ({"min_nodes": 3, "ntasks": 7, "distribution": "plane=3"}, "1112223"),
    ({"min_nodes": 3, "ntasks": 12, "distribution": "plane=3"}, "111222333123"),
    ({"min_nodes": 3, "ntasks": 12, "distribution": "plane=5"}, "111122223333"),
    ({"min_nodes": 1, "max_nodes": 2, "ntasks": 6}, "111222"),
    ({"min_nodes": 1, "max_nodes": 3, "ntasks": 6}, "112233"),
    ({"min_nodes": 1, "max_nodes": 3, "ntasks": 1}, "1"),
    ({"min_nodes": 1, "max_nodes": 3, "ntasks": 2}, "12"),
    ({"min_nodes": 1}, "1"),
    ({"min_nodes": 2}, "12"),
    ({"min_nodes": 1, "max_nodes": 2}, "12"),
    ({"min_nodes": 3, "cpus_per_task": 2}, "112233"),
    ({"min_nodes": 3, "cpus_per_task": 3}, "123"),
    ({"min_nodes": 3, "ntasks_per_node": 2}, "112233"),
    ({"min_nodes": 2, "ntasks_per_node": 2}, "1122"),
    ({"min_nodes": 3, "ntasks_per_node": 3, "ntasks": 9}, "111222333"),
    ({"min_nodes": 3, "ntasks_per_node": 4, "ntasks": 4}, "1123"),
    ({"min_nodes": 3, "ntasks_per_node": 2, "ntasks": 8}, "11122233"),
    ({"min_nodes": 2, "ntasks": 2, "relative": 1}, "23"),
    ({"min_nodes": 2, "relative": 1}, "23"),
    ({"min_nodes": 3, "ntasks": 4, "nodelist": ["node3", "node2"]}, "1123"),
    ({"min_nodes": 2, "ntasks": 2, "nodelist": ["node3", "node2"]}, "23"),
    ({"min_nodes": 2, "exclude": ["node2"]}, "13"),
    ({"min_nodes": 1, "ntasks": 1, "exclude": ["node2"]}, "1"),
    (
        {"min_nodes": 2, "ntasks": 2, "nodelist": ["node3", "node2"], "distribution": "arbitrary"},
        "32",
    ),
    ({"nodelist": ["node3", "node2", "node2"], "distribution": "arbitrary"}, "322"),
]


@pytest.mark.parametrize(("options", "expected"), EVEN)
def test_even_nodes(options: dict[str, object], expected: str) -> None:
    planned = plan(job(4, 4, 4), **options)
    assert "".join(nodes_of(planned)) == expected
    assert planned.warnings == []


# in a job with 3 CPUs on node1 and 1 on node2
UNEVEN = [
    ({"min_nodes": 2, "ntasks": 4}, "1112"),
    ({"min_nodes": 2, "ntasks": 2}, "12"),
    ({"min_nodes": 2, "ntasks": 3}, "112"),
    ({"min_nodes": 2, "ntasks": 4, "distribution": "cyclic"}, "1211"),
    ({"min_nodes": 2, "ntasks": 4, "distribution": "plane=2"}, "1121"),
    ({"min_nodes": 2, "ntasks": 3, "distribution": "plane=1"}, "121"),
    ({"min_nodes": 2, "ntasks": 4, "distribution": "block,Pack"}, "1112"),
    ({"min_nodes": 2, "ntasks": 2, "distribution": "block,Pack"}, "12"),
    ({"min_nodes": 2, "ntasks": 7, "overcommit": True}, "1111122"),
    ({"min_nodes": 2, "ntasks": 7, "overcommit": True, "distribution": "cyclic"}, "1212121"),
    ({"min_nodes": 2, "ntasks": 7, "overcommit": True, "distribution": "plane=3"}, "1112111"),
    ({"min_nodes": 2, "ntasks": 7, "overcommit": True, "distribution": "Pack"}, "1111122"),
    ({"min_nodes": 1, "ntasks": 4, "overcommit": True}, "1111"),
    ({"min_nodes": 2, "ntasks": 4, "nodelist": ["node2"]}, "1112"),
    ({"min_nodes": 1, "ntasks": 1, "nodelist": ["node2"]}, "2"),
    ({"min_nodes": 1, "ntasks": 1, "exclude": ["node1"]}, "2"),
    ({"min_nodes": 1, "ntasks": 1, "relative": 1}, "2"),
    ({"min_nodes": 2, "ntasks": 3, "ntasks_per_node": 3}, "112"),
    ({"min_nodes": 2, "max_nodes": 3, "ntasks": 2}, "12"),
    ({"min_nodes": 1, "ntasks": 1, "relative": 1}, "2"),
    (
        {
            "min_nodes": 2,
            "ntasks": 4,
            "distribution": "arbitrary",
            "nodelist": ["node2", "node1", "node1", "node1"],
        },
        "2111",
    ),
    (
        {
            "min_nodes": 2,
            "ntasks": 3,
            "distribution": "arbitrary",
            "nodelist": ["node2", "node1", "node1"],
        },
        "211",
    ),
    # More tasks than the second node has CPUs, as Slurm 22.05 started them.
    (
        {
            "min_nodes": 2,
            "ntasks": 4,
            "distribution": "arbitrary",
            "nodelist": ["node2", "node2", "node2", "node1"],
        },
        "2221",
    ),
]


@pytest.mark.parametrize(("options", "expected"), UNEVEN)
def test_uneven_nodes(options: dict[str, object], expected: str) -> None:
    planned = plan(job(3, 1), **options)
    assert "".join(nodes_of(planned)) == expected
    assert planned.warnings == []


@pytest.mark.parametrize(
    ("options", "expected", "warning"),
    [
        (
            {"min_nodes": 2, "ntasks": 1},
            "1",
            "can't run 1 processes on 2 nodes, setting nnodes to 1",
        ),
        (
            {"min_nodes": 2, "ntasks": 1, "nodelist": ["node2"]},
            "2",
            "can't run 1 processes on 2 nodes, setting nnodes to 1",
        ),
        (
            {"min_nodes": 2, "ntasks": 4, "ntasks_per_node": 1},
            "1112",
            "can't honor --ntasks-per-node set to 1 which doesn't match the requested tasks 4 with "
            "the number of requested nodes 2. Ignoring --ntasks-per-node.",
        ),
        (
            {"min_nodes": 2, "ntasks": 3, "ntasks_per_node": 2},
            "112",
            "can't honor --ntasks-per-node set to 2 which doesn't match the requested tasks 3 with "
            "the number of requested nodes 2. Ignoring --ntasks-per-node.",
        ),
    ],
)
def test_warnings(options: dict[str, object], expected: str, warning: str) -> None:
    planned = plan(job(3, 1), **options)
    assert "".join(nodes_of(planned)) == expected
    assert planned.warnings == [warning]


TOO_MANY = "error: Unable to create step for job 291: More processors requested than permitted"
NO_CONFIG = (
    "error: Unable to create step for job 291: Requested node configuration is not available"
)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_nodes": 2, "ntasks": 5}, TOO_MANY),
        ({"min_nodes": 2, "ntasks": 8}, TOO_MANY),
        ({"min_nodes": 1, "ntasks": 4}, TOO_MANY),
        ({"min_nodes": 1, "ntasks": 1, "exact": True, "cpus_per_task": 4}, TOO_MANY),
        ({"min_nodes": 2, "ntasks": 4, "cpus_per_task": 5}, TOO_MANY),
        ({"min_nodes": 2, "ntasks": 2, "cpus_per_task": 3}, TOO_MANY),
        ({"min_nodes": 3, "ntasks": 4}, "error: Only allocated 2 nodes asked for 3"),
        ({"min_nodes": 2, "ntasks": 4, "nodelist": ["node9"]}, NO_CONFIG),
        ({"min_nodes": 1, "ntasks": 1, "cpus_per_task": 2, "nodelist": ["node2"]}, NO_CONFIG),
        ({"min_nodes": 1, "ntasks": 2, "cpus_per_task": 2, "nodelist": ["node1"]}, NO_CONFIG),
        (
            {"min_nodes": 1, "ntasks": 4, "nodelist": ["node1", "node2"]},
            "error: Required nodelist includes more nodes than permitted by max-node count "
            f"(2 > 1). Eliminating nodes from the nodelist.\n{NO_CONFIG}",
        ),
        (
            {"min_nodes": 2, "ntasks": 2, "exclude": ["node1"]},
            "error: Only allocated 1 nodes asked for 2\n"
            "error: Are required nodes explicitly excluded?",
        ),
        (
            {"min_nodes": 2, "ntasks": 4, "exclude": ["node9"]},
            "error: Unable to create step for job 291: Invalid node name specified",
        ),
        (
            {"min_nodes": 1, "ntasks": 1, "exclude": ["node1", "node2"]},
            "error: Hostlist is empty!  Can't run job.",
        ),
        (
            {"min_nodes": 1, "ntasks": 1, "relative": 2},
            "error: --relative and --nodes option incompatible with count of allocated nodes "
            "(2+1>2)",
        ),
        (
            {"min_nodes": 2, "relative": 1},
            "error: --relative and SLURM_JOB_NUM_NODES option incompatible with count of allocated "
            "nodes (1+2>2)",
        ),
        (
            {"ntasks": 4, "distribution": "arbitrary", "nodelist": ["node2", "node1", "node1"]},
            "error: You asked for 4 tasks but hostlist specified 3 nodes",
        ),
        ({"distribution": "sideways"}, "error: Invalid --distribution specification"),
    ],
)
def test_refusals(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(StepRefused) as caught:
        plan(job(3, 1), **options)
    assert str(caught.value) == sentence


def test_nodes_that_are_too_many_are_left_out_of_the_list() -> None:
    planned = plan(job(3, 1), min_nodes=1, ntasks=1, nodelist=["node1", "node2"])
    assert nodes_of(planned) == ["1"]
    assert planned.notes == [
        "Required nodelist includes more nodes than permitted by max-node count (2 > 1). "
        "Eliminating nodes from the nodelist."
    ]


# ---- CPUs, memory -------------------------------------------------------------------------------


def shares(planned: Planned) -> list[tuple[str, int, int, int]]:
    """(node, CPUs, MB, GPUs) as in AllocTRES of sacct."""
    return [
        (item.node, item.alloc.cpus, item.alloc.mem_mb, item.alloc.gpus.bit_count())
        for item in planned.nodes
    ]


def test_shares_of_transcript_038() -> None:
    where = job(3, 1, gpus=2)
    inherited = {"min_nodes": 2, "ntasks": 4, "gpus_per_node": 2, "mem_per_cpu": 2000}
    whole = [("node1", 3, 6000, 2), ("node2", 1, 2000, 2)]
    assert shares(plan(where, **inherited)) == whole
    assert shares(plan(where, **{**inherited, "ntasks": 1})) == whole[:1]
    assert shares(plan(where, **{**inherited, "min_nodes": 1, "ntasks": 2})) == whole[:1]
    per_task = plan(where, **{**inherited, "ntasks": 2}, gpus_per_task=1, gpus_set=True)
    assert shares(per_task) == whole
    assert per_task.task_gpus == [[1], [1]]
    exact = {"min_nodes": 1, "ntasks": 1, "exact": True, "gpus_total": 1, "gpus_set": True}
    exact["mem_per_cpu"] = 2000
    first = plan(where, **exact)
    assert shares(first) == [("node1", 1, 2000, 1)]
    held = [first.nodes[0].alloc, NodeAlloc("node2", 0, 0, 0)]
    assert shares(plan(where, held, **exact)) == [("node2", 1, 2000, 1)]
    assert shares(plan(where, **{**inherited, "ntasks": 8}, overcommit=True)) == whole
    assert (
        shares(plan(where, **{**inherited, "min_nodes": 1, "ntasks": 1}, relative=1)) == whole[1:]
    )


def test_steps_share_nothing_unless_they_say_so() -> None:
    where = job(4, gpus=2)
    running = plan(where, ntasks=1, exact=True, gpus_per_node=1, gpus_set=True)
    held = [running.nodes[0].alloc]
    assert shares(running) == [("node1", 1, 2000, 1)]
    # The next GPU, and the next core.
    beside = plan(where, held, ntasks=1, exact=True, gpus_per_node=1, gpus_set=True)
    assert (beside.nodes[0].alloc.gpus, beside.nodes[0].alloc.cpu_ids) == (0b10, 0b10)
    # One that takes all of the node waits, as does one for more than is left.
    for options in (
        {"ntasks": 1},
        {"ntasks": 1, "gpus_per_node": 1, "gpus_set": True},
        {"ntasks": 1, "exact": True},
        {"ntasks": 4, "exact": True, "gpus_per_node": 1, "gpus_set": True},
        {"ntasks": 1, "exact": True, "gpus_per_node": 2, "gpus_set": True},
    ):
        with pytest.raises(Busy, match="Requested nodes are busy"):
            plan(where, held, **options)
    assert shares(plan(where, held, ntasks=1, exact=True, no_gpus=True)) == [("node1", 1, 2000, 0)]
    over = plan(where, held, ntasks=1, overlap=True, gpus_per_node=1, gpus_set=True)
    assert (over.nodes[0].alloc.cpus, over.nodes[0].alloc.gpus) == (4, 1)
    assert plan(where, held, ntasks=1, overlap=True).nodes[0].alloc.gpus == 0b11


def test_idle_nodes_go_first() -> None:
    where = job(4, 4, 4, gpus=3, mem_per_node=4000)
    options = {"exact": True, "mem_per_node": 1000, "gpus_per_node": 1, "gpus_set": True}
    running = plan(where, min_nodes=1, ntasks=1, **options)
    assert nodes_of(running) == ["1"]
    second = plan(where, [running.nodes[0].alloc], min_nodes=2, ntasks=2, **options)
    assert nodes_of(second) == ["2", "3"]
    # Where only the busy one is named, it is taken.
    third = plan(
        where, [running.nodes[0].alloc], min_nodes=1, ntasks=1, nodelist=["node1"], **options
    )
    assert nodes_of(third) == ["1"]
    assert third.nodes[0].alloc.gpus == 0b10


def test_memory_of_a_step() -> None:
    with_mem = job(4, gpus=2, mem_per_node=4000)
    # A job with --mem: a step that names none has all of it.
    assert shares(plan(with_mem, ntasks=1, exact=True, no_gpus=True))[0][2] == 4000
    held = [plan(with_mem, ntasks=1, exact=True, no_gpus=True).nodes[0].alloc]
    with pytest.raises(Busy):
        plan(with_mem, held, ntasks=1, exact=True, no_gpus=True, mem_per_node=100)
    assert shares(plan(with_mem, ntasks=1, mem_per_node=100))[0][2] == 100
    assert shares(plan(with_mem, ntasks=1, mem_per_node=0))[0][2] == 4000
    assert shares(plan(with_mem, ntasks=2, cpus_per_task=2, mem_per_cpu=100))[0][2] == 400
    assert shares(plan(with_mem, ntasks=1, mem_per_gpu=300))[0][2] == 600


# ---- GPUs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ({"min_nodes": 3, "ntasks": 3, "gpus_total": 3}, ["0", "0", "0"]),
        ({"min_nodes": 3, "ntasks": 3, "gpus_total": 5}, ["012", "0", "0"]),
        ({"min_nodes": 2, "ntasks": 2, "gpus_total": 3}, ["01", "0"]),
        ({"min_nodes": 3, "ntasks": 6, "gpus_per_task": 1}, ["01", "01", "01"]),
        ({"min_nodes": 2, "ntasks": 4, "gpus_per_task": 1}, ["01", "01"]),
        ({"min_nodes": 2, "ntasks": 6, "gpus_total": 2}, ["0", "0"]),
        ({"min_nodes": 1, "ntasks": 1, "gpus_per_task": 2}, ["01"]),
        ({"min_nodes": 1, "ntasks": 1, "gpus_per_node": 2}, ["01"]),
        ({"min_nodes": 1, "ntasks": 1}, ["012"]),
        ({"min_nodes": 1, "ntasks": 1, "exact": True}, ["012"]),
        ({"min_nodes": 1, "ntasks": 1, "no_gpus": True}, [""]),
        ({"min_nodes": 1, "ntasks_per_gpu": 2, "gpus_total": 2}, ["01"]),
    ],
)
def test_gpus_of_a_step(options: dict[str, object], gpus: list[str]) -> None:
    planned = plan(job(4, 4, 4, gpus=3), gpus_set=True, **options)
    found = [
        "".join(str(bit) for bit in range(3) if item.alloc.gpus >> bit & 1)
        for item in planned.nodes
    ]
    assert found == gpus


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ntasks": 2, "gpus_total": 2, "gpu_bind": "single:1"}, [1, 2]),
        ({"ntasks": 4, "gpus_total": 2, "gpu_bind": "single:2"}, [1, 1, 2, 2]),
        ({"ntasks": 4, "gpus_total": 3, "gpu_bind": "single:1"}, [1, 2, 4, 1]),
        ({"ntasks": 4, "gpus_total": 3, "gpu_bind": "per_task:1"}, [1, 2, 4, 1]),
        ({"ntasks": 4, "gpus_total": 3, "gpu_bind": "map_gpu:0,2,1"}, [1, 4, 2, 1]),
        ({"ntasks": 4, "gpus_total": 3, "gpu_bind": "mask_gpu:1,3,0x6"}, [1, 3, 6, 1]),
        ({"ntasks": 4, "gpus_total": 3, "gpu_bind": "map_gpu:0*2,1*2"}, [1, 1, 2, 2]),
        ({"ntasks": 2, "gpus_total": 3, "gpu_bind": "closest"}, [7, 7]),
        ({"ntasks": 2, "gpus_total": 3, "gpu_bind": "verbose,single:1"}, [1, 2]),
        ({"ntasks": 2, "gpus_per_task": 1, "gpu_bind": "none"}, []),
        ({"ntasks": 2, "gpus_per_task": 1}, [1, 2]),
        ({"ntasks": 2, "tres_per_task": "gres/gpu=1"}, [1, 2]),
        ({"ntasks": 2, "gpus_per_task": 1, "gres_flags": "allow-task-sharing"}, []),
        ({"ntasks_per_gpu": 2, "gpus_total": 2}, [1, 1, 2, 2]),
        # "GPU binding is ignored if there is only one task"
        ({"ntasks": 1, "gpus_total": 3, "gpu_bind": "single:1"}, []),
        ({"ntasks": 2, "gpus_total": 3}, []),
    ],
)
def test_gpus_of_tasks(options: dict[str, object], expected: list[int]) -> None:
    planned = plan(job(4, gpus=3), gpus_set=True, min_nodes=1, **options)
    assert planned.task_gpus == [expected]


def test_more_tasks_than_gpus_for_them() -> None:
    with pytest.raises(StepRefused) as caught:
        plan(job(4, 4, 4, gpus=3), min_nodes=2, ntasks=8, gpus_per_task=1, gpus_set=True)
    assert str(caught.value) == TOO_MANY
    with pytest.raises(StepRefused) as caught:
        plan(
            job(4, 4, 4, gpus=3),
            min_nodes=1,
            ntasks=4,
            gpus_per_task=1,
            gpus_set=True,
            nodelist=["node1"],
        )
    assert str(caught.value) == NO_CONFIG


NO_GRES = "Unable to create step for job 291: Invalid generic resource (gres) specification"


def test_gpus_that_the_job_has_not() -> None:
    for options in (
        {"gpus_total": 1},
        {"gpus_per_task": 1},
        {"gpus_per_node": 1},
        {"ntasks_per_gpu": 1},
    ):
        with pytest.raises(StepRefused) as caught:
            plan(job(4), min_nodes=1, ntasks=1, gpus_set=True, **options)
        assert str(caught.value) == (
            f"error: Step requested GRES but job doesn't have GRES\nerror: {NO_GRES}"
        )
    with pytest.raises(StepRefused) as caught:
        plan(job(3, 1, gpus=2), min_nodes=1, ntasks=1, gpus_set=True, gpus_per_node=3)
    assert str(caught.value) == (
        "error: Step requested gres_per_node=gpu:3 is more than the job's gres_per_node=gpu:2\n"
        f"error: {NO_GRES}"
    )
    with pytest.raises(StepRefused) as caught:
        plan(job(3, 1, gpus=2), min_nodes=1, ntasks=1, gpus_set=True, gpus_total=3)
    assert str(caught.value) == f"error: {NO_GRES}"
    # What only the job's own options say gives way to what there is.
    assert shares(plan(job(3, 1, gpus=2), min_nodes=1, ntasks=1, gpus_total=4))[0][3] == 2
    assert shares(plan(job(3), min_nodes=1, ntasks=1, no_gpus=True))[0][3] == 0


def test_memory_that_is_nothing_to_be_given() -> None:
    setup = config("SelectTypeParameters=CR_Core")
    where = job(4, mem_per_node=4000)
    spec = StepSpec(job_id=291, ntasks=1, exact=True, mem_per_node=99_000)
    held = [plan_step(spec, where, [], setup).nodes[0].alloc]
    assert nodes_of(plan_step(spec, where, held, setup)) == ["1"]


def test_memory_that_the_job_has_not() -> None:
    memory = "error: Unable to create step for job 291: Memory required by task is not available"
    for options, sentence in (
        ({"ntasks": 1, "mem_per_node": 99_000, "overlap": True}, memory),
        ({"ntasks": 1, "mem_per_cpu": 9_000}, memory),
        ({"ntasks": 4, "mem_per_cpu": 2048}, TOO_MANY),
        ({"ntasks": 1, "cpus_per_task": 5, "mem_per_cpu": 2000}, TOO_MANY),
    ):
        with pytest.raises(StepRefused) as caught:
            plan(job(4), min_nodes=1, **options)
        assert str(caught.value) == sentence
    # Needed for the CPUs that tasks ask for; the others get what there is.
    assert shares(plan(job(3), min_nodes=1, ntasks=1, mem_per_cpu=3000)) == [("node1", 3, 6000, 0)]
    # More tasks than CPUs take no more memory than the CPUs stand for.
    many = plan(job(3, 1), min_nodes=2, ntasks=8, mem_per_cpu=2000, overcommit=True)
    assert shares(many) == [("node1", 3, 6000, 0), ("node2", 1, 2000, 0)]


# ---- CPUs of tasks ------------------------------------------------------------------------------


def cpus_of(ntasks: int, *, threads: int = 1, cpus: int = 8, **options: object) -> list[str]:
    """The CPUs of the tasks of a step that has the first half of both sockets of 8 cores."""
    where = job(cpus)
    half = (1 << cpus // 2) - 1
    where.alloc[0].cpu_ids = half | half << 8 * threads
    setup = config("TaskPlugin=task/affinity", threads=threads)
    spec = StepSpec(job_id=where.id, ntasks=ntasks)
    for name, value in options.items():
        setattr(spec, name, value)
    return plan_step(spec, where, [], setup).task_cpus[0]


def test_cpus_of_tasks() -> None:
    """man srun: block:cyclic by default, a socket in turn for each task."""
    # Bound by themselves where they fill what the step has, or its sockets.
    assert cpus_of(8) == ["0", "8", "1", "9", "2", "10", "3", "11"]
    assert cpus_of(2) == ["0-3", "8-11"]
    assert cpus_of(3) == []
    assert cpus_of(4, cpus_per_task=2) == ["0-1", "8-9", "2-3", "10-11"]
    assert cpus_of(3, cpu_bind="cores") == ["0", "8", "1"]
    assert cpus_of(3, cpu_bind="cores", distribution="block:block") == ["0", "1", "2"]
    assert cpus_of(3, cpu_bind="sockets") == ["0-3", "8-11", "0-3"]
    assert cpus_of(3, cpu_bind="ldoms") == ["0-3", "8-11", "0-3"]
    assert cpus_of(3, cpu_bind="none") == []
    assert cpus_of(8, cpu_bind="none") == []
    assert cpus_of(3, cpu_bind="rank") == ["0", "1", "2"]
    assert cpus_of(3, cpu_bind="map_cpu:9,0") == ["9", "0", "9"]
    assert cpus_of(2, cpu_bind="mask_cpu:3,0x300") == ["0-1", "8-9"]
    assert cpus_of(2, cpu_bind="map_ldom:1,0") == ["8-11", "0-3"]
    assert cpus_of(2, cpu_bind="cores", distribution="block:fcyclic", cpus_per_task=2) == [
        "0,8",
        "1,9",
    ]
    assert cpus_of(10, overcommit=True, cpu_bind="cores")[8:] == ["0", "8"]


def test_cpus_of_tasks_on_cores_with_two_threads() -> None:
    # CPUs 0-1 are core 0; 16 is the first of the second socket.
    assert cpus_of(8, threads=2, cpus=8) == ["0", "16", "1", "17", "2", "18", "3", "19"]
    assert cpus_of(4, threads=2, cpus=8) == ["0-1", "16-17", "2-3", "18-19"]
    assert cpus_of(3, threads=2, cpus=8, cpu_bind="cores") == ["0-1", "16-17", "2-3"]
    assert cpus_of(3, threads=2, cpus=8, threads_per_core=1) == ["0", "16", "2"]
    assert cpus_of(3, threads=2, cpus=8, hint="nomultithread") == ["0", "16", "2"]


def test_cpus_that_the_step_has_not() -> None:
    with pytest.raises(StepRefused) as caught:
        cpus_of(2, cpu_bind="map_cpu:0,4")
    assert str(caught.value) == (
        "error: CPU binding outside of job step allocation, allocated CPUs are: 0xF0F.\n"
        "error: Application launch failed: Unable to satisfy cpu bind request\n"
        "Job step aborted"
    )
    with pytest.raises(StepRefused) as caught:
        cpus_of(2, cpu_bind="boards")
    assert str(caught.value) == (
        'error: unrecognized --cpu-bind argument "boards"\n'
        "fatal: Failed to parse --cpu-bind= values."
    )


def test_gpus_beside_the_cpus_of_a_task() -> None:
    """Cores= of gres.conf: GPUs 0-3 lie beside the first socket, 4-7 beside the second."""
    where = job(16, gpus=8)
    setup = config("TaskPlugin=task/affinity")
    spec = StepSpec(job_id=291, ntasks=4, gpus_total=8, gpus_set=True, cpus_per_task=4)
    spec.gpu_bind = "closest"
    planned = plan_step(spec, where, [], setup)
    assert planned.task_cpus == [["0-3", "8-11", "4-7", "12-15"]]
    assert planned.task_gpus == [[0x0F, 0xF0, 0x0F, 0xF0]]
    # Tasks near the same GPUs take them in turn.
    spec.gpu_bind = "single:1"
    assert plan_step(spec, where, [], setup).task_gpus == [[0x01, 0x10, 0x02, 0x20]]
    spec.gpu_bind = "single:2"
    assert plan_step(spec, where, [], setup).task_gpus == [[0x01, 0x10, 0x01, 0x10]]


def test_one_thread_of_each_core() -> None:
    """man srun: "In task layout, use the specified maximum number of threads per core"."""
    where, setup = job(8), config(threads=2)

    def step(**options: object) -> Planned:
        spec = StepSpec(job_id=291)
        for name, value in options.items():
            setattr(spec, name, value)
        return plan_step(spec, where, [], setup)

    assert step(ntasks=8).ntasks == 8
    for options in ({"threads_per_core": 1}, {"hint": "nomultithread"}):
        assert step(ntasks=4, **options).ntasks == 4
        with pytest.raises(StepRefused):
            step(ntasks=5, **options)
        # Cores whole: two tasks have two of them.
        assert step(ntasks=2, exact=True, **options).nodes[0].alloc.cpu_ids == 0b1111
    # An odd task on its core alone.
    assert step(ntasks=3, exact=True).nodes[0].alloc.cpu_ids == 0b1111
