"""Jobs whose group may be on so many nodes and no more: by arithmetic, in the core and its twin."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from gsched import _core, _reference

#: features of a node, as bits
OLD, NEW = 1, 2


def placed(cls: Any, content: dict[str, Any], *, left: int, jobs: list[int]) -> list[int]:
    """The nodes of a job that starts under a limit of nodes; [] if it does not. Four nodes of eight
    CPUs, the last two of them new; the fuller a node the better it is liked otherwise."""
    made = cls(4)
    for node in range(4):
        features = OLD if node < 2 else NEW
        made.set_node(node, cpus=8, mem_mb=1000, partitions=1, features=features)
    made.set_bin(0, left, jobs=array("i", jobs))
    made.set_chain(0, [(0, _core.COUNTED["hosts"], 1, False, 1.0, 0)])
    made.queue_add(1, made.request(partition=0, **content), 0, 1, 60, chain=0)
    (*starts,) = made.schedule(100).starts
    return [row[0] for start in starts for row in start.placement.nodes]


@pytest.mark.parametrize("cls", [_core.Core, _reference.Core], ids=["core", "twin"])
@pytest.mark.parametrize(
    ("content", "left", "jobs", "nodes"),
    [
        # The first node is liked best, and is one too many.
        ({"ntasks": 4}, 0, [0, 1, 0, 0], [1]),
        ({"ntasks": 4}, 1, [0, 1, 0, 0], [0]),
        # 12 tasks need a second node: one that is left beside that of the group.
        ({"ntasks": 12}, 1, [0, 1, 0, 0], [0, 1]),
        ({"ntasks": 12}, 1, [0, 0, 0, 1], [0, 3]),
        ({"ntasks": 12}, 0, [0, 0, 0, 1], []),
        # Sets of features are tried in turn, whatever the first of them gives.
        ({"ntasks": 4, "variants": (((OLD,), ()), ((NEW,), ()))}, 0, [0, 1, 0, 0], [1]),
        ({"ntasks": 4, "variants": (((OLD,), ()), ((NEW,), ()))}, 0, [0, 0, 0, 1], [3]),
        ({"ntasks": 4, "variants": (((OLD,), ()),)}, 0, [0, 0, 1, 1], []),
    ],
)
def test_a_place_on_the_nodes_that_are_left(
    cls: Any, content: dict[str, Any], left: int, jobs: list[int], nodes: list[int]
) -> None:
    assert placed(cls, content, left=left, jobs=jobs) == nodes
