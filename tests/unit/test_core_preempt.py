"""Whose work makes way: the cheapest set there is, nothing too much, and nothing is changed by
asking. The twin tries every set."""

from __future__ import annotations

from typing import Any

import pytest
from core_support import FULL8, SLOW, build, nodes, requests
from hypothesis import given
from hypothesis import strategies as st

from gsched import _core


def eight(n: int) -> _core.Core:
    core = _core.Core(n)
    cls = core.define_class(FULL8, [0] * 4 + [1] * 4)
    for i in range(n):
        core.set_node(i, cls=cls, cpus=16, mem_mb=1000, gpu_type_masks=[(0, 255)], partitions=1)
    return core


def state(core: _core.Core, n: int) -> list[Any]:
    return [core.node(i) for i in range(n)]


def test_the_cheapest_node_is_cleared() -> None:
    core = eight(3)
    # Node 0: two jobs of 4 GPUs that cost 50 and 60; node 1: one of 8 that costs 100; node 2: 120.
    core.allocate(1, [(0, 4, 10, 0x0F)])
    core.allocate(2, [(0, 4, 10, 0xF0)])
    core.allocate(3, [(1, 8, 10, 0xFF)])
    core.allocate(4, [(2, 8, 10, 0xFF)])
    before = state(core, 3)
    whole = core.request(gpus_per_node=8)
    found = core.cheapest(whole, [1, 2, 3, 4], [50, 60, 100, 120])
    assert found is not None
    assert found[0] == [3]
    assert [row[0] for row in found[1].nodes] == [1]
    # Half a node: the cheapest job that holds four.
    half = core.request(gpus_per_node=4)
    found = core.cheapest(half, [1, 2, 3, 4], [50, 60, 100, 120])
    assert found is not None
    assert found[0] == [1]
    # Two nodes: 110 and 100 is less than 100 and 120.
    pair = core.request(gpus_per_node=8, min_nodes=2, max_nodes=2)
    found = core.cheapest(pair, [1, 2, 3, 4], [50, 60, 100, 120])
    assert found is not None
    assert sorted(found[0]) == [1, 2, 3]
    assert state(core, 3) == before
    core.check()


def test_one_gang_rather_than_many() -> None:
    core = eight(4)
    core.allocate(1, [(0, 8, 10, 0xFF), (1, 8, 10, 0xFF)])
    core.allocate(2, [(2, 8, 10, 0xFF)])
    core.allocate(3, [(3, 8, 10, 0xFF)])
    pair = core.request(gpus_per_node=8, min_nodes=2, max_nodes=2)
    # The gang costs 50 for both nodes, the others 30 each.
    found = core.cheapest(pair, [2, 3, 1], [30, 30, 50])
    assert found is not None
    assert found[0] == [1]
    # Of the same cost the fewer.
    found = core.cheapest(pair, [2, 3, 1], [30, 30, 60])
    assert found is not None
    assert found[0] == [1]


def test_what_is_free_counts() -> None:
    core = eight(2)
    core.allocate(1, [(0, 4, 10, 0x0F)])
    core.allocate(2, [(1, 4, 10, 0x7F)])
    # 4 GPUs of node 0 are free: the one job there is enough.
    found = core.cheapest(core.request(gpus_per_node=8), [2, 1], [10, 10])
    assert found is not None
    assert found[0] in ([1], [2])
    # Where nothing is in the way nothing has to go, and it is for a pass to start it.
    core.allocate(3, [(0, 1, 10, 0x10)])
    found = core.cheapest(core.request(gpus_per_node=8), [1, 2], [1, 2])
    assert found is not None
    assert found[0] == [2]


def test_of_equals_the_one_on_one_island() -> None:
    core = _core.Core(1)
    pairs = [[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]]
    cls = core.define_class(pairs, [0, 0, 1, 1])
    core.set_node(0, cls=cls, cpus=16, mem_mb=1000, gpu_type_masks=[(0, 15)], partitions=1)
    core.allocate(1, [(0, 1, 1, 0b0101)])
    core.allocate(2, [(0, 1, 1, 0b0010)])
    core.allocate(3, [(0, 1, 1, 0b1000)])
    # 1 alone frees one GPU of each pair; 2 and 3 no pair either: 1 is one job.
    found = core.cheapest(core.request(gpus_per_node=2), [2, 3, 1], [5, 5, 10])
    assert found is not None
    assert found[0] == [1]
    found = core.cheapest(core.request(gpus_per_node=2, one_island=True), [2, 3, 1], [5, 5, 10])
    assert found is not None
    assert 1 in found[0]
    assert len(found[0]) == 2


def test_strict_takes_the_first_ones() -> None:
    core = eight(3)
    for i in range(3):
        core.allocate(i, [(i, 8, 10, 0xFF)])
    # Node 2 is cheapest of all, but the order says 0 before it.
    found = core.cheapest(core.request(gpus_per_node=8), [0, 1, 2], [9, 9, 1], strict=True)
    assert found is not None
    assert found[0] == [0]
    with pytest.raises(ValueError, match="costs must rise"):
        core.cheapest(core.request(gpus_per_node=8), [0, 1, 2], [9, 9, 1])


def test_nodes_to_avoid_and_no_way() -> None:
    core = eight(2)
    core.allocate(1, [(0, 8, 10, 0xFF)])
    core.allocate(2, [(1, 8, 10, 0xFF)])
    whole = core.request(gpus_per_node=8)
    found = core.cheapest(whole, [1, 2], [1, 2], avoid=[0])
    assert found is not None
    assert found[0] == [2]
    assert core.cheapest(whole, [1, 2], [1, 2], avoid=[0, 1]) is None
    assert core.cheapest(core.request(gpus_per_node=8, min_nodes=3), [1, 2], [1, 2]) is None
    assert core.cheapest(whole, [], []) is None


@SLOW
@given(st.data())
def test_as_the_twin_that_tries_every_set(data: st.DataObject) -> None:
    cluster = data.draw(st.lists(nodes(), min_size=1, max_size=4))
    both, _ = build(cluster)
    core, twin = both
    keys: list[int] = []
    multi = False
    for step in range(data.draw(st.integers(1, 9))):
        content = data.draw(requests(len(cluster)))
        req, _ = core.request(**content), twin.request(**content)
        answer = core.place(req)
        if isinstance(answer, _core.Placement):
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            for one in both:
                one.allocate(step, rows, gpu_milli=answer.gpu_milli)
            keys.append(step)
            multi = multi or len(rows) > 1
    content = data.draw(requests(len(cluster)))
    req, number = core.request(**content), twin.request(**content)
    if isinstance(core.place(req), _core.Placement):
        return
    victims = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    costs = sorted(data.draw(st.lists(st.integers(0, 9), min_size=20, max_size=20)))
    costs = costs[: len(victims)]
    avoid = [0] if data.draw(st.integers(0, 4)) == 0 else []
    before = state(core, len(cluster))
    found = core.cheapest(req, victims, costs, avoid=avoid)
    assert state(core, len(cluster)) == before
    core.check()
    least = twin.least_cost(number, victims, costs, avoid)
    if least is None:
        assert found is None
        return
    assert found is not None
    chosen, placement = found
    assert twin.fits_without(number, chosen, avoid)
    for key in chosen:
        assert not twin.fits_without(number, [one for one in chosen if one != key], avoid)
    price = dict(zip(victims, costs, strict=True))
    cost = sum(price[key] for key in chosen)
    assert cost >= least[0]
    if content["max_nodes"] == 1:
        assert (cost, len(chosen)) == least
    # Where it says that it goes there is room.
    for key in chosen:
        core.release(key)
    rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in placement.nodes]
    core.allocate(99, rows, gpu_milli=placement.gpu_milli)
    core.check()


@SLOW
@given(st.data())
def test_gangs_of_whole_nodes_cost_least(data: st.DataObject) -> None:
    """Jobs on one node each, a request for some whole nodes: the cheapest nodes are the answer."""
    n = data.draw(st.integers(2, 8))
    core = eight(n)
    keys, costs, per_node = [], {}, [0] * n
    for i in range(n):
        masks = data.draw(st.sampled_from([[], [255], [15, 240], [3, 12, 240]]))
        for mask in masks:
            key = len(keys)
            core.allocate(key, [(i, 2, 10, mask)])
            costs[key] = data.draw(st.integers(1, 20))
            per_node[i] += costs[key]
            keys.append(key)
    want = data.draw(st.integers(1, n))
    req = core.request(gpus_per_node=8, min_nodes=want, max_nodes=want)
    least = sum(sorted(per_node)[:want])
    order = sorted(keys, key=lambda key: costs[key])
    found = core.cheapest(req, order, [costs[key] for key in order])
    if least == 0:
        return
    assert found is not None
    assert sum(costs[key] for key in found[0]) == least
