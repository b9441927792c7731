"""Parts of GPUs in whole numbers: three thirds fill a GPU, and nothing is rounded."""

from __future__ import annotations

import pytest

from gsched import _core

SHARD, MPS = 1, 2


def cluster(*nodes: list[tuple[int, int]]) -> _core.Core:
    """Nodes whose GPUs divide as given, without links."""
    core = _core.Core(len(nodes))
    for number, parts in enumerate(nodes):
        n = len(parts)
        cls = core.define_class([[0] * n for _ in range(n)], [0] * n)
        core.set_node(
            number,
            cls=cls,
            cpus=64,
            mem_mb=1000,
            gpu_type_masks=[(0, (1 << n) - 1)],
            gpu_parts=parts,
        )
    return core


def share(core: _core.Core, count: int, kind: int = SHARD, *, one: bool = False) -> int:
    return core.request(gpus_per_node=1, gpu_milli=count, gpu_kind=kind, one_shared=one)


def start(core: _core.Core, key: int, req: int) -> tuple[int, int] | None:
    """(node, GPU bitmap) that it now holds; None if there is no room."""
    found = core.place(req)
    if not isinstance(found, _core.Placement):
        return None
    rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in found.nodes]
    core.allocate(key, rows, gpu_milli=found.gpu_milli)
    core.check()
    return rows[0][0], rows[0][3]


@pytest.mark.parametrize("parts", [1, 3, 7, 12, 100, 128, 1000, 16383])
def test_so_many_parts_fill_a_gpu_and_not_one_more(parts: int) -> None:
    core = cluster([(SHARD, parts)])
    one, rest = share(core, 1), parts - 2
    assert start(core, 1, one) == (0, 1)
    if parts > 2:
        assert start(core, 2, share(core, rest)) == (0, 1)
    if parts > 1:
        assert start(core, 3, one) == (0, 1)
    assert start(core, 4, one) is None


def test_a_gpu_is_given_whole_or_in_parts() -> None:
    core = cluster([(SHARD, 4), (SHARD, 4)])
    whole, part = core.request(gpus_per_node=1), share(core, 2)
    assert start(core, 1, whole) == (0, 1)
    assert start(core, 2, part) == (0, 2)
    assert start(core, 3, whole) is None
    assert start(core, 4, part) == (0, 2)
    assert start(core, 5, part) is None
    core.release(1)
    assert start(core, 5, part) == (0, 1)
    core.release(2)
    assert start(core, 6, whole) is None
    core.release(4)
    assert start(core, 6, whole) == (0, 2)


def test_a_share_lies_on_one_gpu() -> None:
    core = cluster([(SHARD, 4), (SHARD, 4)])
    assert start(core, 1, share(core, 3)) is not None
    assert start(core, 2, share(core, 3)) is not None
    # One part is left of each.
    assert start(core, 3, share(core, 2)) is None
    refusal = core.can_ever(share(core, 5))
    assert refusal is not None
    assert refusal.never
    assert [(r.what, r.nodes) for r in refusal.reasons] == [("gpus", 1)]


def test_each_gpu_divides_in_its_own_way() -> None:
    core = cluster([(SHARD, 2), (SHARD, 8), (0, 0)], [(MPS, 100)])
    assert start(core, 1, share(core, 5)) == (0, 2)
    assert start(core, 2, share(core, 50, MPS)) == (1, 1)
    assert start(core, 3, share(core, 3, MPS)) == (1, 1)
    assert start(core, 4, share(core, 50, MPS)) is None
    # The GPU that does not divide is given whole alone.
    assert start(core, 5, share(core, 2)) == (0, 1)
    assert start(core, 6, share(core, 3)) == (0, 2)
    assert start(core, 7, share(core, 1)) is None
    assert start(core, 8, core.request(gpus_per_node=1)) == (0, 4)


def test_only_one_gpu_of_a_node_is_in_parts_where_that_is_said() -> None:
    core = cluster([(MPS, 100), (MPS, 100)])
    req = share(core, 60, MPS, one=True)
    assert start(core, 1, req) == (0, 1)
    assert start(core, 2, req) is None
    assert start(core, 3, share(core, 40, MPS, one=True)) == (0, 1)
    core.release(1)
    core.release(3)
    assert start(core, 4, core.request(gpus_per_node=1)) == (0, 1)
    assert start(core, 5, req) == (0, 2)


def test_what_was_recorded_is_kept_when_there_are_fewer_parts() -> None:
    core = cluster([(SHARD, 2)])
    core.allocate(1, [(0, 1, 0, 1)], gpu_milli=2)
    with pytest.raises(ValueError, match="1 parts of GPUs 0x1 of node 0: only 0 are free"):
        core.allocate(2, [(0, 1, 0, 1)], gpu_milli=1)
    core.allocate(2, [(0, 1, 0, 1)], gpu_milli=1, adopt=True)
    core.check()
    one = share(core, 1)
    core.release(1)
    assert start(core, 3, one) == (0, 1)
    assert start(core, 4, one) is None


def test_a_pass_fills_gpus_with_parts() -> None:
    core = cluster([(SHARD, 4)] * 4)
    two = share(core, 2)
    for key in range(1, 11):
        core.queue_add(key, two, 1, key, 100)
    plan = core.schedule(0)
    assert [s.key for s in plan.starts] == list(range(1, 9))
    assert {s.placement.gpu_milli for s in plan.starts} == {2}
    held = [core.allocation(key)[0][4] for key in range(1, 9)]
    assert sorted(held) == [1, 1, 2, 2, 4, 4, 8, 8]
    core.check()


def test_a_share_waits_for_no_reservation_that_leaves_room_for_it() -> None:
    core = cluster([(SHARD, 4)])
    core.allocate(1, [(0, 1, 0, 1)], 100, gpu_milli=3)
    # It starts when those three are free; beside it two are left for ever.
    core.queue_add(2, share(core, 2), 9, 0, 1000)
    core.queue_add(3, share(core, 1), 8, 0, 0)
    plan = core.schedule(0)
    assert [start.key for start in plan.starts] == [3]
    assert [(kept.key, kept.at) for kept in plan.reservations] == [(2, 100)]
    core.set_end(1, 50)
    core.release(1)
    assert [start.key for start in core.schedule(50).starts] == [2]


def test_a_share_does_not_take_what_is_reserved() -> None:
    core = cluster([(SHARD, 4)])
    core.allocate(1, [(0, 1, 0, 1)], 100, gpu_milli=3)
    core.queue_add(2, share(core, 4), 9, 0, 1000)
    core.queue_add(3, share(core, 1), 8, 0, 0)
    core.queue_add(4, share(core, 1), 7, 0, 100)
    plan = core.schedule(0)
    # Four parts in 100 seconds: only who is gone by then may have the last one.
    assert [start.key for start in plan.starts] == [4]
    assert [(kept.key, kept.at) for kept in plan.reservations] == [(2, 100)]
