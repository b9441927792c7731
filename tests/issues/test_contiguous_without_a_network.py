"""The process died when nodes next to each other were asked for after the network was forgotten:
what their choice is worked out in had gone with it.
"""

from __future__ import annotations

from gsched._core import Core, Placement


def placed(core: Core, req: int) -> list[int]:
    answer = core.place(req)
    assert isinstance(answer, Placement)
    return [row[0] for row in answer.nodes]


def test_nodes_next_to_each_other_are_found_after_the_network_is_gone() -> None:
    """Of four nodes the second is full: two that follow each other are the last ones."""
    core = Core(4)
    for node in range(4):
        core.set_node(node, cpus=4, mem_mb=100, partitions=1)
    core.allocate(1, [(1, 4, 0, 0)], 100)
    pair = core.request(min_nodes=2, contiguous=True)
    assert placed(core, pair) == [2, 3]
    core.set_topology([], [])
    assert placed(core, pair) == [2, 3]
    core.set_topology([0, 0, 1, 1], [2, 2, -1])
    core.set_topology([], [])
    assert placed(core, pair) == [2, 3]
    copy = core.copy()
    copy.set_topology([], [])
    assert placed(copy, pair) == [2, 3]
    core.set_topology([0, 0, 1, 1], [2, 2, -1])
    assert placed(core, pair) == [2, 3]
