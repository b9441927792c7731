"""Counted reasons and gangs on clusters of few and of many kinds of nodes, counted by hand."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gsched._core import Core, Placement, Refusal

FULL = [[0 if i == j else 18 for j in range(8)] for i in range(8)]


@pytest.mark.parametrize("kinds", [3, 40, 700])
def test_reasons_are_counted_node_by_node(kinds: int) -> None:
    rng = random.Random(kinds)
    descriptions = [
        (rng.randrange(1, 65), rng.choice((1000, 2000)) + kind, rng.randrange(4), rng.randrange(4))
        for kind in range(kinds)
    ]
    core = Core(900)
    cls = core.define_class(FULL, [0] * 8)

    def describe(node: int) -> tuple[int, int, int, int]:
        cpus, mem, partitions, features = rng.choice(descriptions)
        core.set_node(
            node,
            cls=cls,
            cpus=cpus,
            mem_mb=mem,
            gpu_type_masks=[(0, 0xFF)],
            partitions=partitions,
            features=features,
        )
        return cpus, mem, partitions, features

    nodes = [describe(node) for node in range(900)]
    excluded = rng.sample(range(900), 50)
    for turn in range(3):
        need = (32, 48, 65)[turn]
        req = core.request(
            partition=0,
            features_all=2,
            exclude=excluded if turn else (),
            cpus_per_task=need,
            mem_per_node_mb=1500,
            min_nodes=900,
            max_nodes=900,
        )
        expected: Counter[str] = Counter()
        suited = 0
        for node, (cpus, mem, partitions, features) in enumerate(nodes):
            if not partitions & 1:
                expected["partition"] += 1
            elif turn and node in excluded:
                expected["excluded"] += 1
            elif not features & 2:
                expected["features"] += 1
            else:
                expected["cpus"] += cpus < need
                expected["memory"] += mem < 1500
                suited += cpus >= need and mem >= 1500
        refusal = core.place(req)
        assert isinstance(refusal, Refusal)
        assert {one.what: one.nodes for one in refusal.reasons} == +expected
        assert refusal.suited == suited
        # Nodes become others, and are no longer counted as what they were.
        for node in rng.sample(range(900), 100):
            nodes[node] = describe(node)


def test_a_gang_passes_over_units_whose_free_nodes_are_not_for_it() -> None:
    """Of 8 switches with 16 free nodes each one alone has 12 nodes of the partition; they lie
    apart in the order of weights."""
    rng = random.Random(1)
    core = Core(128)
    cls = core.define_class(FULL, [0] * 8)
    theirs = {unit: rng.sample(range(16), 12 if unit == 5 else 11) for unit in range(8)}
    for node in range(128):
        unit, place = divmod(node, 16)
        core.set_node(
            node,
            cls=cls,
            cpus=16,
            mem_mb=1000,
            gpu_type_masks=[(0, 0xFF)],
            partitions=1 if place in theirs[unit] else 2,
            weight=rng.randrange(1, 5),
        )
    core.set_topology([node // 16 for node in range(128)], [*[8] * 8, -1])
    req = core.request(partition=0, min_nodes=12, max_nodes=12, gpus_per_node=8)
    found = core.place(req)
    assert isinstance(found, Placement)
    assert {share[0] for share in found.nodes} == {80 + place for place in theirs[5]}
    # One of them is taken: no switch has all, so the gang spreads over two below the one above.
    core.allocate(1, [(80 + theirs[5][0], 1, 0, 1)], 100)
    found = core.place(req)
    assert isinstance(found, Placement)
    assert len({share[0] // 16 for share in found.nodes}) == 2
