"""What jobs usually ask for, and that SelectTypeParameters=FGD goes by it."""

from __future__ import annotations

import pytest

from gsched.cluster.workload import HALF_LIFE, MOST_SHAPES, UNIT, Workload
from gsched.model import Shape
from gsched.wire.messages import CancelJobs
from tests.unit.ledger_support import CONF, Bench

#: PACK takes the node with the fewest free GPUs; FGD the one where a job for 4 GPUs, as they
#: usually come, still has room afterwards
NODE_OF = {"CR_CORE": "node2", "CR_CORE,FGD": "node1"}


@pytest.mark.parametrize("policy", NODE_OF)
def test_fgd_leaves_room_for_what_usually_comes(policy: str) -> None:
    """5 GPUs are free on node 1, 4 on node 2, none elsewhere: a job for one GPU comes after many
    for four."""
    b = Bench(CONF + f"SelectTypeParameters={policy}\n")
    for node, gpus in (("node1", 3), ("node2", 4), ("node3", 8), ("node4", 8)):
        held = b.job(shape=Shape(gpus_per_node=gpus, nodelist=(node,)))
        b.schedule()
        assert held.alloc
    for _ in range(40):
        b.job(shape=Shape(gpus_per_node=4, min_nodes=4, max_nodes=4))
    b.write(CancelJobs([str(number) for number in range(5, 45)]))
    one = b.job(shape=Shape(gpus_per_node=1))
    b.schedule()
    assert one.alloc[0].node == NODE_OF[policy]


def words(gpus: int = 0, cpus: int = 1, **more: int) -> dict[str, int]:
    none = ("ntasks", "ntasks_per_node", "gpus_per_task", "gpus_total", "cpus_per_gpu")
    found = dict.fromkeys((*none, "min_cpus_node"), 0) | {"min_nodes": 1, "gpu_type": -1}
    return found | {"gpus_per_node": gpus, "cpus_per_task": cpus} | more


def test_it_is_told_when_it_has_changed_enough_and_each_job_counts_once() -> None:
    load = Workload()
    for job_id in range(1, 16):
        load.came(job_id, words(4))
    load.came(15, words(8))
    assert load.news() == []
    load.came(16, words(0, 3))
    assert load.news() == [(1, 4, 0, (), 15 * UNIT), (3, 0, 0, (), UNIT)]
    assert load.news() == []


def test_the_share_of_a_node_is_what_counts() -> None:
    load = Workload()
    for job_id in range(1, 17):
        load.came(job_id, words(min_nodes=4, gpus_total=16, ntasks=8, cpus_per_gpu=2, gpu_type=3))
    assert load.news() == [(8, 4, 0, (3,), 16 * UNIT)]


def test_old_shapes_fade_and_rare_ones_are_forgotten() -> None:
    load = Workload()
    for job_id in range(1, HALF_LIFE + 1):
        load.came(job_id, words(4))
    for job_id in range(HALF_LIFE + 1, 2 * HALF_LIFE + 1):
        load.came(job_id, words(1))
    counts = {row[1]: row[4] for row in load.news()}
    assert counts[4] < counts[1] / 1.9
    for job_id in range(9000, 9000 + 3 * MOST_SHAPES):
        load.came(job_id, words(1, job_id))
    assert len(load.news()) <= MOST_SHAPES
