"""Node policies and shares of GPUs: answers known from arithmetic and the yardstick's rules."""

from __future__ import annotations

import math

import pytest

from gsched import _core
from gsched._core import Core, Placement, Refusal


def cluster(*nodes: tuple[int, int]) -> Core:
    """Nodes of (CPUs, GPUs) without links."""
    core = Core(len(nodes))
    for number, (cpus, gpus) in enumerate(nodes):
        cls = core.define_class([[0] * gpus for _ in range(gpus)], [0] * gpus)
        masks = [(0, (1 << gpus) - 1)] if gpus else []
        core.set_node(number, cls=cls, cpus=cpus, mem_mb=1000, gpu_type_masks=masks)
    return core


def taken(core: Core, key: int, req: int) -> tuple[int, int]:
    """Node and GPU bitmap of a placement, which is allocated."""
    answer = core.place(req)
    assert isinstance(answer, Placement)
    node, cpus, _, mem, gpus = answer.nodes[0]
    core.allocate(key, [(node, cpus, mem, gpus)], gpu_milli=answer.gpu_milli)
    return node, gpus


@pytest.mark.parametrize(
    ("policy", "node"),
    [
        # 2 of 8 CPUs and no GPU in use; 5 of 16 and 3 of 4; idle.
        (_core.FIRST_FIT, 0),
        # Left after it, as parts of 16 CPUs and 4 GPUs: 5/16 + 1/4; 10/16 + 0; 15/16 + 3/4.
        (_core.BEST_FIT, 0),
        # In use after it: 3/8 + 1/2; 6/16 + 4/4; 1/16 + 1/4.
        (_core.BIN_PACK, 1),
        # Idle CPUs: 6, 11, 16.
        (_core.LEAST_LOADED, 2),
        # The default: the fewest free GPUs.
        (_core.PACK, 1),
    ],
)
def test_each_policy_takes_another_node(policy: int, node: int) -> None:
    core = cluster((8, 2), (16, 4), (16, 4))
    core.allocate(1, [(0, 2, 0, 0)])
    core.allocate(2, [(1, 5, 0, 0b0111)])
    answer = core.place(core.request(gpus_per_node=1, policy=policy))
    assert isinstance(answer, Placement)
    assert answer.nodes[0][0] == node


def test_shares_lie_beside_each_other_and_whole_gpus_apart() -> None:
    core = cluster((8, 2))
    half = core.request(gpus_per_node=1, gpu_milli=500)
    assert taken(core, 1, half) == (0, 0b01)
    assert taken(core, 2, half) == (0, 0b01)
    assert core.node(0).free_milli == 1000
    whole = core.request(gpus_per_node=1)
    assert taken(core, 3, whole) == (0, 0b10)
    refusal = core.place(half)
    assert isinstance(refusal, Refusal)
    assert not refusal.never
    assert refusal.reasons == (_core.Reason("gpus", False, 1),)
    core.release(1)
    assert taken(core, 4, half) == (0, 0b01)
    core.release(2)
    core.release(4)
    assert core.node(0).free_gpus == 0b01
    core.check()


def test_a_share_takes_the_tightest_gpu_that_suffices() -> None:
    core = cluster((8, 3), (8, 3))
    core.allocate(1, [(0, 1, 0, 0b001)], gpu_milli=300)
    core.allocate(2, [(1, 1, 0, 0b010)], gpu_milli=600)
    core.allocate(3, [(1, 1, 0, 0b100)], gpu_milli=800)
    assert taken(core, 4, core.request(gpus_per_node=1, gpu_milli=400)) == (1, 0b010)
    assert taken(core, 5, core.request(gpus_per_node=1, gpu_milli=400)) == (0, 0b001)
    assert taken(core, 6, core.request(gpus_per_node=1, gpu_milli=200)) == (1, 0b100)


def test_bad_shares_are_refused() -> None:
    core = cluster((8, 2))
    core.allocate(1, [(0, 1, 0, 0b01)], gpu_milli=600)
    core.allocate(2, [(0, 1, 0, 0b10)])
    with pytest.raises(ValueError, match="only 400 are free"):
        core.allocate(3, [(0, 1, 0, 0b01)], gpu_milli=500)
    with pytest.raises(ValueError, match="held by another job"):
        core.allocate(3, [(0, 1, 0, 0b01)])
    with pytest.raises(ValueError, match="held by another job"):
        core.allocate(3, [(0, 1, 0, 0b10)], gpu_milli=100)
    with pytest.raises(ValueError, match="a share of one"):
        core.allocate(3, [(0, 1, 0, 0b11)], gpu_milli=100)
    for bad in (
        {"gpu_milli": 1000, "gpus_per_node": 1},
        {"gpu_milli": 500, "gpus_per_node": 2},
        {"gpu_milli": 500},
        {"gpu_milli": 500, "gpus_per_node": 1, "exclusive": True},
        {"policy": 7},
    ):
        with pytest.raises(ValueError):
            core.request(**bad)
    for shape in ((1, 2, 500, (), 1), (1, 65, 0, (), 1), (1, 1, 0, (256,), 1), (1, 1, 0, (), 0)):
        with pytest.raises(ValueError):
            core.set_workload([shape])
    core.check()


def test_mig_slices_are_units_of_their_own_type() -> None:
    """Two GPUs cut into 7 slices each are 14 units without links between them."""
    core = Core(1)
    cls = core.define_class([[0] * 14 for _ in range(14)], [0] * 14)
    small, large = 0b1111100_1111100, 0b0000011_0000011
    core.set_node(0, cls=cls, cpus=64, mem_mb=1, gpu_type_masks=[(0, small), (1, large)])
    assert taken(core, 1, core.request(gpus_per_node=1, gpu_type=1)) == (0, 0b1)
    assert taken(core, 2, core.request(gpus_per_node=2, gpu_type=0)) == (0, 0b1100)
    answer = core.place(core.request(gpus_per_node=4, gpu_type=1))
    assert isinstance(answer, Refusal)


def test_fgd_keeps_what_usual_jobs_need() -> None:
    """Usual: two whole GPUs. A share on the idle node would spoil two GPUs for it, on the other
    only what is left of one: 1000 > 500 thousandths of fragments more."""
    core = cluster((8, 2), (8, 2))
    core.set_workload([(1, 2, 0, (), 1)])
    core.allocate(1, [(1, 1, 0, 0b01)])
    req = core.request(gpus_per_node=1, gpu_milli=500, policy=_core.FGD)
    assert taken(core, 2, req) == (1, 0b10)


def test_fgd_scores_by_hundredths() -> None:
    """Usual: 400 thousandths. A share of 30 makes a rest of 420 one of 390: 390 of no use, a score
    of floor(100 / (1 + e^0.39)) = 40. On an untouched GPU it spoils nothing: 50. So does it on a
    rest of 990, and the first of two equal nodes is taken although the second is the tighter."""
    assert math.floor(100 / (1 + math.exp(0.39))) == 40
    core = cluster((9, 1), (9, 1), (9, 1))
    core.set_workload([(1, 1, 400, (), 1)])
    core.allocate(1, [(0, 1, 0, 1)], gpu_milli=580)
    core.allocate(2, [(2, 1, 0, 1)], gpu_milli=10)
    req = core.request(gpus_per_node=1, gpu_milli=30, policy=_core.FGD)
    assert taken(core, 3, req) == (1, 1)
