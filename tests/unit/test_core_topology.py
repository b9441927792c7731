"""Gangs by the network: answers known from counting, and the same ones as the twin's."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import test_core_reference as common

from gsched import _core
from gsched._core import Core, Placement, Reason, Refusal

Tree = tuple[list[int], list[int]]


def cluster(nodes: int, gpus: int = 8) -> Core:
    core = Core(nodes)
    links = [[0 if i == j else 18 for j in range(gpus)] for i in range(gpus)]
    cls = core.define_class(links, [0] * gpus)
    for node in range(nodes):
        masks = [(0, (1 << gpus) - 1)]
        core.set_node(node, cls=cls, cpus=64, mem_mb=1000, gpu_type_masks=masks, partitions=1)
    return core


def fill(core: Core, nodes: Any) -> None:
    for node in nodes:
        core.allocate(1000 + node, [(node, 1, 0, 0xFF)], 500)


def placed(core: Core, **want: Any) -> list[int]:
    answer = core.place(core.request(**{"gpus_per_node": 8, **want}))
    assert isinstance(answer, Placement), answer
    return [row[0] for row in answer.nodes]


def gang(nodes: int, **more: Any) -> dict[str, Any]:
    return {"min_nodes": nodes, "max_nodes": nodes, **more}


def leaves_of(sizes: list[int]) -> list[int]:
    return [leaf for leaf, size in enumerate(sizes) for _ in range(size)]


def test_the_leaf_with_the_least_room_that_holds_the_gang() -> None:
    """Leaves of 4, 4 and 4 nodes with 4, 2 and 3 idle ones."""
    core = cluster(12)
    core.set_topology(leaves_of([4, 4, 4]), [3, 3, 3, -1])
    fill(core, [4, 5, 8])
    assert placed(core, **gang(2)) == [6, 7]
    assert placed(core, **gang(3)) == [9, 10, 11]
    assert placed(core, **gang(4)) == [0, 1, 2, 3]
    # Five: the four of the first leaf, and the smallest leaf that holds the rest.
    assert placed(core, **gang(5)) == [0, 1, 2, 3, 6]
    assert placed(core, **gang(6)) == [0, 1, 2, 3, 6, 7]
    assert placed(core, **gang(7)) == [0, 1, 2, 3, 9, 10, 11]


def test_the_smallest_subtree_goes_before_fewer_leaves() -> None:
    """Leaves 0-2 (2 nodes each) are below one switch, 3 and 4 (4 each) below the root alone."""
    core = cluster(14)
    core.set_topology(leaves_of([2, 2, 2, 4, 4]), [5, 5, 5, 6, 6, 6, -1])
    assert placed(core, **gang(5)) == [0, 1, 2, 3, 4]
    assert placed(core, **gang(8)) == list(range(6, 14))


def test_a_demand_for_few_switches_waits_for_a_leaf() -> None:
    core = cluster(8)
    core.set_topology(leaves_of([4, 4]), [2, 2, -1])
    fill(core, [0, 4])
    assert placed(core, **gang(4)) == [1, 2, 3, 5]
    refusal = core.place(core.request(gpus_per_node=8, switches=1, **gang(4)))
    assert isinstance(refusal, Refusal)
    assert refusal.reasons == (Reason("gpus", False, 2), Reason("switch", False, 6))
    assert not refusal.never
    core.release(1000)
    assert placed(core, switches=1, **gang(4)) == [0, 1, 2, 3]
    refusal = core.place(core.request(gpus_per_node=8, switches=1, **gang(5)))
    assert isinstance(refusal, Refusal) and refusal.never
    assert refusal.reasons[-1] == Reason("switch", True, 8)


def test_two_switches_are_the_two_that_suit_best_where_others_only_seem_larger() -> None:
    """Leaf 0 has the most idle nodes, but in another partition: 1 and 2 are taken."""
    core = cluster(11)
    core.set_topology(leaves_of([5, 3, 3]), [3, 3, 3, -1])
    cls = core.define_class([[0 if i == j else 18 for j in range(8)] for i in range(8)], [0] * 8)
    for node in range(4):
        core.set_node(node, cls=cls, cpus=64, mem_mb=1000, gpu_type_masks=[(0, 0xFF)], partitions=2)
    assert placed(core, partition=0, switches=2, **gang(6)) == [5, 6, 7, 8, 9, 10]


def test_several_trees_hold_no_gang_together() -> None:
    core = cluster(4)
    core.set_topology([0, 0, 1, -1], [-1, -1])
    assert placed(core, **gang(2)) == [0, 1]
    refusal = core.place(core.request(gpus_per_node=8, **gang(3)))
    assert isinstance(refusal, Refusal) and refusal.never
    # A node without a switch still takes jobs of one node.
    fill(core, [0, 1, 2])
    assert placed(core) == [3]


def test_an_optional_topology_holds_for_those_that_ask() -> None:
    core = cluster(4)
    core.set_topology([0, 1, 1, 0], [2, 2, -1], optional=True)
    assert placed(core, **gang(2)) == [0, 1]
    assert placed(core, switches=1, **gang(2)) == [0, 3]


def test_tasks_go_to_the_fewest_nodes_below_one_switch() -> None:
    """32 tasks of 4 CPUs are two nodes: of the leaf with the least room that has two."""
    core = cluster(7)
    core.set_topology(leaves_of([1, 3, 3]), [3, 3, 3, -1])
    fill(core, [4])
    req = {"gpus_per_node": 0, "ntasks": 32, "cpus_per_task": 4}
    assert placed(core, **req) == [1, 2]
    assert placed(core, gpus_per_node=0, gpus_total=16) == [5, 6]


def test_what_fits_into_a_block_lies_in_one() -> None:
    """Blocks of 4; pairs of them; all."""
    core = cluster(16)
    core.set_topology(leaves_of([4] * 4), [4, 4, 5, 5, 6, 6, -1], sizes=[4, 8, 0])
    fill(core, [0, 4, 8, 9])
    assert placed(core, **gang(4)) == [12, 13, 14, 15]
    assert placed(core, **gang(6)) == [1, 2, 3, 5, 6, 7]
    fill(core, [12])
    refusal = core.place(core.request(gpus_per_node=8, **gang(4)))
    assert isinstance(refusal, Refusal)
    assert refusal.reasons[-1] == Reason("block", False, 11)
    assert len(placed(core, **gang(10))) == 10


def test_segments_lie_within_a_block_each() -> None:
    core = cluster(16)
    core.set_topology(leaves_of([4] * 4), [4, 4, 5, 5, 6, 6, -1], sizes=[4, 8, 0])
    fill(core, [0, 4, 8, 9])
    # Two twos: both of the block that is idle.
    assert placed(core, segment=2, **gang(4)) == [12, 13, 14, 15]
    fill(core, [15])
    # Blocks 2 and 3 together have less room than 0 and 1.
    assert placed(core, segment=2, **gang(4)) == [10, 11, 12, 13]
    assert placed(core, segment=3, **gang(9)) == [1, 2, 3, 5, 6, 7, 12, 13, 14]
    refusal = core.place(core.request(gpus_per_node=8, segment=3, **gang(12)))
    assert isinstance(refusal, Refusal) and not refusal.never
    refusal = core.place(core.request(gpus_per_node=8, segment=5, **gang(10)))
    assert isinstance(refusal, Refusal) and refusal.never


def test_contiguous_nodes_follow_each_other() -> None:
    core = cluster(10)
    fill(core, [2, 6])
    assert placed(core, contiguous=True, **gang(2)) == [0, 1]
    assert placed(core, contiguous=True, **gang(3)) == [3, 4, 5]
    refusal = core.place(core.request(gpus_per_node=8, contiguous=True, **gang(4)))
    assert isinstance(refusal, Refusal)
    assert refusal.reasons == (Reason("gpus", False, 2), Reason("contiguous", False, 8))
    assert placed(core, contiguous=True, nodelist=[4], **gang(2)) == [3, 4]
    assert placed(core, contiguous=True, min_nodes=2, max_nodes=9) == [3, 4, 5]
    assert placed(core, contiguous=True, gpus_per_node=0, gpus_total=24) == [3, 4, 5]


def test_spread_jobs_take_many_nodes_and_few_if_so_asked() -> None:
    core = cluster(6)
    core.set_topology([0] * 6, [-1])
    answer = core.place(core.request(ntasks=8, spread=True))
    assert isinstance(answer, Placement)
    assert [row[2] for row in answer.nodes] == [2, 2, 1, 1, 1, 1]
    assert placed(core, min_nodes=2, max_nodes=4, use_min_nodes=True) == [0, 1]
    assert placed(core, min_nodes=2, max_nodes=4) == [0, 1, 2, 3]


def test_what_is_kept_for_a_blocked_gang_is_below_one_switch() -> None:
    """Nodes 0 and 4 come free at 100 and 200; the gang of a whole leaf waits for its own."""
    for plan in ({}, {"plan_jobs": 10, "resolution": 1}):
        core = cluster(8)
        core.set_topology(leaves_of([4, 4]), [2, 2, -1])
        core.allocate(1, [(0, 1, 0, 0xFF)], 200)
        core.allocate(2, [(5, 1, 0, 0xFF)], 100)
        req = core.request(gpus_per_node=8, switches=1, **gang(4))
        core.queue_add(3, req, 0, 1, 50)
        plan_made = core.schedule(0, **plan)
        assert plan_made.starts == []
        (kept,) = plan_made.reservations
        assert kept.at == 100
        assert [row[0] for row in kept.placement.nodes] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("leaves", "parents", "what"),
    [
        ([0, 0, 3], [-1], "leaf 3"),
        ([0, 0], [-1], "2 nodes"),
        ([0, 0, 0], [0], "unit 0 is below 0"),
        ([0, 0, 0], [1, -1, -1], "order of level"),
    ],
)
def test_what_is_no_tree_is_refused(leaves: list[int], parents: list[int], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        cluster(3).set_topology(leaves, parents)


# ---- against the twin ---------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn, nodes: int, blocks: bool | None = None) -> dict[str, Any]:
    """Switches or blocks; `blocks` None: either."""
    n_leaves = draw(st.integers(1, 4))
    leaf = [draw(st.integers(-1 if draw(st.booleans()) else 0, n_leaves - 1)) for _ in range(nodes)]
    if draw(st.integers(0, 2)) == 0 if blocks is None else blocks:
        pairs = (n_leaves + 1) // 2
        parents = [n_leaves + i // 2 for i in range(n_leaves)] + [n_leaves + pairs] * pairs + [-1]
        size = draw(st.integers(1, 3))
        return {"leaves": leaf, "parents": parents, "sizes": [size, 2 * size, 0]}
    parents = [-1] * n_leaves
    last, first = n_leaves, 0
    for _ in range(draw(st.integers(0, 2))):
        more = draw(st.integers(1, 2))
        for unit in range(first, last):
            parents[unit] = last + draw(st.integers(0, more - 1))
        # A unit without one below would be a leaf.
        used = sorted({parents[unit] for unit in range(first, last)})
        for unit in range(first, last):
            parents[unit] = last + used.index(parents[unit])
        first, last = last, last + len(used)
        parents += [-1] * len(used)
    return {"leaves": leaf, "parents": parents, "optional": draw(st.integers(0, 4)) == 0}


@st.composite
def requests(draw: st.DrawFn, nodes: int, *, joint: bool = True) -> dict[str, Any]:
    out = draw(common.requests(nodes, joint=joint))
    odd = draw(st.sampled_from(["", "", "", "contiguous", "spread", "few", "segment"]))
    alone = out["ntasks"] <= 1 and not out.get("gpus_total")
    if draw(st.integers(0, 2)) == 0:
        # Tasks on bounded numbers of nodes and leaves: the greedy choice is not monotone in time.
        out["switches"] = draw(st.integers(1, 3)) if joint or alone else 1
    if not joint and not alone and odd in ("contiguous", "segment", "spread"):
        return out
    if odd == "segment":
        out["segment"] = draw(st.integers(1, 3))
    elif odd:
        out[{"few": "use_min_nodes"}.get(odd, odd)] = True
    return out


@st.composite
def one_task_each(draw: st.DrawFn, nodes: int, *, joint: bool = True) -> dict[str, Any]:
    """Tasks in all over blocks of several sizes: the greedy choice is not monotone in time (20
    tasks fit on 16, 2, 1 and 1 CPUs, and not on 16, 2, 8 and 8), so a start may be foretold too
    late."""
    out = draw(requests(nodes, joint=joint))
    if out["ntasks"] > 1 or out.get("gpus_total"):
        kept = ("partition", "min_nodes", "max_nodes", "contiguous", "spread", "segment")
        return {name: out[name] for name in kept if name in out} | {"gpus_per_node": 1}
    return out


def together(
    data: st.DataObject, both: common.Both, nodes: int, blocks: bool | None = None
) -> None:
    tree = data.draw(trees(nodes, blocks))
    leaves, parents = tree.pop("leaves"), tree.pop("parents")
    for core in both:
        core.set_topology(leaves, parents, **tree)


@settings(common.SLOW, max_examples=100)
@given(st.data())
def test_placements_and_refusals_are_the_same(data: st.DataObject) -> None:
    cluster = data.draw(st.lists(common.nodes(), min_size=3, max_size=8))
    both, classes = common.build(cluster)
    core, twin = both
    together(data, both, len(cluster))
    keys: list[int] = []
    for step in range(data.draw(st.integers(1, 10))):
        if data.draw(st.integers(0, 3)) == 0:
            common.disturb(data, both, classes, keys, len(cluster))
        if data.draw(st.integers(0, 9)) == 0:
            together(data, both, len(cluster))
        content = data.draw(requests(len(cluster)))
        req, number = core.request(**content), twin.request(**content)
        answer = core.place(req)
        assert answer == twin.place(number), content
        assert core.can_ever(req) == twin.can_ever(number), content
        assert core.possible(req) == twin.possible(number), content
        assert core.place(req) == answer
        if isinstance(answer, _core.Placement):
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            core.allocate(step, rows, end=50 * step, gpu_milli=answer.gpu_milli)
            twin.allocate(step, rows, end=50 * step, gpu_milli=answer.gpu_milli)
            keys.append(step)
        core.check()


@settings(common.SLOW, max_examples=100)
@given(st.data())
def test_passes_are_the_same(data: st.DataObject) -> None:
    switches = functools.partial(together, blocks=False)
    common.passes(data, conservative=False, requests=requests, prepare=switches)


@settings(common.SLOW, max_examples=50)
@given(st.data())
def test_passes_in_blocks_are_the_same(data: st.DataObject) -> None:
    blocks = functools.partial(together, blocks=True)
    common.passes(data, conservative=False, requests=one_task_each, prepare=blocks)


@settings(common.SLOW, max_examples=40)
@given(st.data())
def test_conservative_plans_are_the_same(data: st.DataObject) -> None:
    switches = functools.partial(together, blocks=False)
    common.passes(data, conservative=True, requests=requests, prepare=switches)


@settings(common.SLOW, max_examples=20)
@given(st.data())
def test_conservative_plans_in_blocks_are_the_same(data: st.DataObject) -> None:
    blocks = functools.partial(together, blocks=True)
    common.passes(data, conservative=True, requests=one_task_each, prepare=blocks)
