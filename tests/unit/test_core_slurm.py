"""What Slurm 26.05 allocated on its 4 idle nodes (16 CPUs, 64000 MB, 8 GPUs), and who starts when.

The expected shares are those of the golden transcripts 012, 013 and 018: SLURM_JOB_CPUS_PER_NODE,
SLURM_TASKS_PER_NODE, SLURM_JOB_GPUS, SLURM_JOB_NODELIST and AllocTRES; node1 is node 0 here.
DefMemPerCPU is 2000.
"""

from __future__ import annotations

from typing import Any

import pytest

from gsched import _core
from gsched._core import Core, Placement, Refusal

H100 = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
RACK_A, RACK_B = 2, 4
PER_CPU = {"mem_per_cpu_mb": 2000}


def peer(nodes: int = 4) -> Core:
    core = Core(nodes)
    cls = core.define_class(H100, [0] * 4 + [1] * 4)
    for node in range(nodes):
        core.set_node(
            node,
            cls=cls,
            cpus=16,
            mem_mb=64000,
            gpu_type_masks=[(0, 0xFF)],
            partitions=1,
            features=1 | (RACK_A if node < 2 else RACK_B),
        )
    return core


def placed(core: Core, **request: Any) -> tuple[tuple[int, int, int, int, int], ...]:
    answer = core.place(core.request(partition=0, **request))
    assert isinstance(answer, Placement), answer
    return answer.nodes


@pytest.mark.parametrize(
    ("options", "request_", "shares"),
    [
        # 012: GPU options
        ("--gpus=3", {"gpus_total": 3, "ntasks": 1}, [(0, 1, 1, 2000, 0b111)]),
        (
            "-N2 --gpus-per-node=2",
            {"min_nodes": 2, "max_nodes": 2, "gpus_per_node": 2},
            [(0, 1, 1, 2000, 0b11), (1, 1, 1, 2000, 0b11)],
        ),
        ("-n4 --gpus-per-task=1", {"ntasks": 4, "gpus_per_task": 1}, [(0, 4, 4, 8000, 0b1111)]),
        (
            "-N2 -n4 --gpus-per-task=h100:1",
            {"min_nodes": 2, "max_nodes": 2, "ntasks": 4, "gpus_per_task": 1, "gpu_type": 0},
            [(0, 3, 3, 6000, 0b111), (1, 1, 1, 2000, 0b1)],
        ),
        ("--gres=gpu:h100:1", {"gpus_per_node": 1, "gpu_type": 0}, [(0, 1, 1, 2000, 0b1)]),
        (
            "-N2 --gres=gpu:3",
            {"min_nodes": 2, "max_nodes": 2, "gpus_per_node": 3},
            [(0, 1, 1, 2000, 0b111), (1, 1, 1, 2000, 0b111)],
        ),
        (
            "--gpus=2 --cpus-per-gpu=3",
            {"gpus_total": 2, "cpus_per_gpu": 3, "ntasks": 1},
            [(0, 6, 1, 12000, 0b11)],
        ),
        (
            "--gpus=2 --mem-per-gpu=3G",
            {"gpus_total": 2, "mem_per_gpu_mb": 3072, "mem_per_cpu_mb": 0, "ntasks": 1},
            [(0, 1, 1, 6144, 0b11)],
        ),
        (
            "--gpus=10",
            {"gpus_total": 10, "ntasks": 1},
            [(0, 1, 1, 2000, 0xFF), (1, 1, 1, 2000, 0b11)],
        ),
        (
            "--gpus=2 --ntasks-per-gpu=2",
            {"gpus_total": 2, "ntasks": 4},
            [(0, 4, 4, 8000, 0b11)],
        ),
        (
            "--gpus=16 -N2-4",
            {"gpus_total": 16, "min_nodes": 2, "max_nodes": 4, "ntasks": 1},
            [(0, 1, 1, 2000, 0xFF), (1, 1, 1, 2000, 0xFF)],
        ),
        ("--exclusive", {"exclusive": True, "ntasks": 1}, [(0, 16, 1, 32000, 0xFF)]),
        (
            "--exclusive --gpus=1",
            {"exclusive": True, "ntasks": 1, "gpus_total": 1},
            [(0, 16, 1, 32000, 0xFF)],
        ),
        (
            "--gpus-per-node=8 --mem=0",
            {"gpus_per_node": 8, "mem_per_node_mb": 0, "mem_per_cpu_mb": 0},
            [(0, 1, 1, 64000, 0xFF)],
        ),
        # 013: tasks and nodes
        (
            "-N2 --ntasks-per-node=4",
            {"min_nodes": 2, "max_nodes": 2, "ntasks_per_node": 4, "ntasks": 8},
            [(0, 4, 4, 8000, 0), (1, 4, 4, 8000, 0)],
        ),
        ("-n6", {"ntasks": 6}, [(0, 6, 6, 12000, 0)]),
        ("-n20", {"ntasks": 20}, [(0, 16, 16, 32000, 0), (1, 4, 4, 8000, 0)]),
        (
            "-n32 -N2",
            {"ntasks": 32, "min_nodes": 2, "max_nodes": 2},
            [(0, 16, 16, 32000, 0), (1, 16, 16, 32000, 0)],
        ),
        (
            "-n3 -c8",
            {"ntasks": 3, "cpus_per_task": 8},
            [(0, 16, 2, 32000, 0), (1, 8, 1, 16000, 0)],
        ),
        (
            "-N2-3",
            {"min_nodes": 2, "max_nodes": 3, "ntasks": 1},
            [(0, 1, 1, 2000, 0), (1, 1, 1, 2000, 0), (2, 1, 1, 2000, 0)],
        ),
        (
            "-N4 -n5",
            {"min_nodes": 4, "max_nodes": 4, "ntasks": 5},
            [(0, 2, 2, 4000, 0)] + [(i, 1, 1, 2000, 0) for i in (1, 2, 3)],
        ),
        ("-w node3", {"nodelist": [2], "ntasks": 1}, [(2, 1, 1, 2000, 0)]),
        (
            "-w node[2-3]",
            {"nodelist": [1, 2], "min_nodes": 2, "max_nodes": 2, "ntasks": 2},
            [(1, 1, 1, 2000, 0), (2, 1, 1, 2000, 0)],
        ),
        ("-x node1", {"exclude": [0], "ntasks": 1}, [(1, 1, 1, 2000, 0)]),
        (
            "-x node[1-2] -N2",
            {"exclude": [0, 1], "min_nodes": 2, "max_nodes": 2, "ntasks": 2},
            [(2, 1, 1, 2000, 0), (3, 1, 1, 2000, 0)],
        ),
        ("-C rackB", {"features_all": RACK_B, "ntasks": 1}, [(2, 1, 1, 2000, 0)]),
        (
            "-C rackA -N2",
            {"features_all": RACK_A, "min_nodes": 2, "max_nodes": 2, "ntasks": 2},
            [(0, 1, 1, 2000, 0), (1, 1, 1, 2000, 0)],
        ),
        (
            "-C 'rackA|rackB'",
            {"features_any": [RACK_A, RACK_B], "ntasks": 1},
            [(0, 1, 1, 2000, 0)],
        ),
        (
            "--mem=1G",
            {"mem_per_node_mb": 1024, "mem_per_cpu_mb": 0, "ntasks": 1},
            [(0, 1, 1, 1024, 0)],
        ),
        ("--mem-per-cpu=100", {"mem_per_cpu_mb": 100, "ntasks": 1}, [(0, 1, 1, 100, 0)]),
        (
            "-O -n32 -N1",
            {"overcommit": True, "ntasks": 32, "min_nodes": 1, "max_nodes": 1},
            [(0, 1, 32, 2000, 0)],
        ),
        # 018: the batch environment
        (
            "-N2 -n4 -c2 --gpus-per-node=2 --mem=4G",
            {
                "min_nodes": 2,
                "max_nodes": 2,
                "ntasks": 4,
                "cpus_per_task": 2,
                "gpus_per_node": 2,
                "mem_per_node_mb": 4096,
                "mem_per_cpu_mb": 0,
            },
            [(0, 6, 3, 4096, 0b11), (1, 2, 1, 4096, 0b11)],
        ),
    ],
)
def test_golden_allocations(
    options: str, request_: dict[str, Any], shares: list[tuple[int, ...]]
) -> None:
    core = peer()
    assert list(placed(core, **{**PER_CPU, **request_})) == shares, options
    assert core.can_ever(core.request(partition=0, **{**PER_CPU, **request_})) is None


@pytest.mark.parametrize(
    "request_",
    [
        {"gpus_per_node": 9},
        {"gpus_total": 33},
        {"gpu_type": 1, "gpus_per_node": 1},
        {"min_nodes": 5, "max_nodes": 5},
        {"cpus_per_task": 17},
        {"ntasks": 33, "min_nodes": 2, "max_nodes": 2},
        {"mem_per_node_mb": 64001},
        {"features_all": 8},
        {"features_all": RACK_A, "min_nodes": 3, "max_nodes": 3},
        {"partition": 1},
    ],
)
def test_what_never_fits(request_: dict[str, Any]) -> None:
    core = peer()
    answer = core.can_ever(core.request(**{"partition": 0, **request_}))
    assert isinstance(answer, Refusal)
    assert answer.never


def test_a_drained_cluster_can_still_hold_it() -> None:
    """Slurm takes a job at submission whose nodes are merely down."""
    core = peer()
    req = core.request(partition=0, gpus_per_node=8)
    for node in range(4):
        core.set_usable(node, False)
    assert core.can_ever(req) is None
    assert not core.possible(req)
    answer = core.place(req)
    assert answer == Refusal(False, 1, 0, (_core.Reason("state", False, 4),))


def test_refusals_count_what_each_node_lacks() -> None:
    core = peer()
    core.set_usable(3, False)
    core.allocate(1, [(0, 16, 1000, 0), (1, 1, 63000, 0b1)])
    core.allocate(2, [(2, 1, 1000, 0xFF)])
    req = core.request(partition=0, gpus_per_node=2, mem_per_node_mb=2000, exclude=[])
    assert core.place(req) == Refusal(
        False,
        1,
        0,
        (
            _core.Reason("state", False, 1),
            _core.Reason("cpus", False, 1),
            _core.Reason("memory", False, 1),
            _core.Reason("gpus", False, 1),
        ),
    )


def test_a_partitions_bound_is_not_striven_for() -> None:
    core = peer()
    assert [s[0] for s in placed(core, ntasks=2, cap_nodes=3)] == [0]
    assert [s[0] for s in placed(core, ntasks=20, cap_nodes=3)] == [0, 1]
    refusal = core.can_ever(core.request(partition=0, ntasks=49, cap_nodes=3))
    assert isinstance(refusal, Refusal)


# --- which node, which GPUs


def test_best_fit_leaves_whole_nodes_free() -> None:
    core = peer()
    core.allocate(1, [(2, 1, 1000, 0b111)])
    assert placed(core, gpus_per_node=1)[0][0] == 2
    assert placed(core, gpus_per_node=6)[0][0] == 0
    assert placed(core, gpus_total=5, ntasks=1)[0][0] == 2
    # Without GPUs: where the fewest GPUs are free.
    assert placed(core, ntasks=1)[0][0] == 2


def test_weight_and_number_decide_between_equals() -> None:
    core = peer()
    cls = core.define_class(H100, [0] * 4 + [1] * 4)
    for node, weight in enumerate([20, 10, 10, 30]):
        core.set_node(
            node,
            cls=cls,
            cpus=16,
            mem_mb=64000,
            gpu_type_masks=[(0, 0xFF)],
            partitions=1,
            weight=weight,
        )
    assert placed(core, gpus_per_node=1)[0][0] == 1
    assert placed(core, ntasks=1)[0][0] == 1
    assert [s[0] for s in placed(core, min_nodes=3, max_nodes=3, gpus_per_node=1)] == [0, 1, 2]


def pairs(*joined: tuple[int, int], gpus: int, links: int = 4) -> list[list[int]]:
    matrix = [[0] * gpus for _ in range(gpus)]
    for a, b in joined:
        matrix[a][b] = matrix[b][a] = links
    return matrix


def test_pairs_are_given_whole_and_kept_whole() -> None:
    core = Core(1)
    cls = core.define_class(pairs((0, 1), (2, 3), gpus=4), [0, 0, 1, 1])
    assert core.islands(cls) == (0b0011, 0b1100)
    assert core.best_gpus(cls, 0b1111, 2) == 0b0011
    # One GPU: not out of the pair that is whole.
    assert core.best_gpus(cls, 0b1101, 1) == 0b0001
    assert core.best_gpus(cls, 0b1110, 1) == 0b0010
    # Two GPUs: the pair, though lower numbers are free.
    assert core.best_gpus(cls, 0b1101, 2) == 0b1100
    assert core.best_gpus(cls, 0b0111, 3, one_island=True) == 0


def test_pcie_gpus_come_from_one_numa_domain() -> None:
    core = Core(1)
    cls = core.define_class([[0] * 4 for _ in range(4)], [0, 0, 1, 1])
    assert core.best_gpus(cls, 0b1110, 2) == 0b1100
    assert core.best_gpus(cls, 0b1110, 1) == 0b0010


def test_a_quad_of_the_cube_mesh_comes_first() -> None:
    """DGX-1: GPUs 0-3 are joined all to all by 9 links, no other four by more."""
    core = Core(1)
    matrix = [[0] * 8 for _ in range(8)]
    text = "01:1 02:1 03:2 04:2 12:2 13:1 15:2 23:2 26:1 37:1 45:1 46:1 47:2 56:2 57:1 67:2"
    for pair in text.split():
        a, b, n = int(pair[0]), int(pair[1]), int(pair[3])
        matrix[a][b] = matrix[b][a] = n
    cls = core.define_class(matrix, [0] * 4 + [1] * 4)
    assert core.best_gpus(cls, 0xFF, 4) == 0x0F
    assert core.best_gpus(cls, 0xF0, 4) == 0xF0
    # A pair with two links, and of those one that breaks least.
    best = core.best_gpus(cls, 0xFF, 2)
    a, b = (i for i in range(8) if best >> i & 1)
    assert matrix[a][b] == 2


def test_a_job_goes_where_its_gpus_are_joined() -> None:
    """Node 0 has free the halves of two islands, node 1 one island of eight: four go to node 1."""
    core = Core(2)
    split = core.define_class(
        [[int(i != j and i // 4 == j // 4) for j in range(8)] for i in range(8)], [0] * 8
    )
    whole = core.define_class(H100, [0] * 8)
    for node, cls in enumerate([split, whole]):
        core.set_node(node, cls=cls, cpus=16, mem_mb=1000, gpu_type_masks=[(0, 0xFF)])
    core.allocate(1, [(0, 1, 0, 0b11001100)])
    assert core.place(core.request(gpus_per_node=4)) == Placement(((1, 1, 1, 0, 0b1111),))
    assert core.place(core.request(gpus_per_node=2)) == Placement(((0, 1, 1, 0, 0b0011),))
    core.set_usable(1, False)
    assert core.place(core.request(gpus_per_node=4)) == Placement(((0, 1, 1, 0, 0b00110011),))
    refusal = core.place(core.request(gpus_per_node=4, one_island=True))
    assert isinstance(refusal, Refusal)
    assert _core.Reason("island", False, 1) in refusal.reasons


def test_lost_gpus_take_no_new_work_but_keep_their_job() -> None:
    core = peer(1)
    core.allocate(1, [(0, 1, 1000, 0b1)])
    core.set_gpu_ok(0, 0b11111000)
    assert placed(core, gpus_per_node=5)[0][4] == 0b11111000
    assert isinstance(core.place(core.request(partition=0, gpus_per_node=6)), Refusal)
    assert core.can_ever(core.request(partition=0, gpus_per_node=8)) is None
    core.release(1)
    assert core.node(0).free_gpus == 0b11111000
    core.set_gpu_ok(0, 0xFF)
    assert core.node(0).free_gpus == 0xFF
    core.check()


def test_threads_are_allocated_by_whole_cores() -> None:
    core = Core(1)
    core.set_node(0, cpus=8, mem_mb=1000, threads=2)
    assert core.place(core.request(ntasks=3)) == Placement(((0, 4, 3, 0, 0),))
    assert core.place(core.request(ntasks=3, threads_per_core=1)) == Placement(((0, 6, 3, 0, 0),))
    assert isinstance(core.place(core.request(ntasks=5, threads_per_core=1)), Refusal)
