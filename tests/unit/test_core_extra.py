"""Resources of nodes that are only counted: by arithmetic, and against the slow twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched import _core
from gsched._core import Core
from tests.unit.test_core_plan import estimates
from tests.unit.test_core_reference import SLOW, nodes, passes, placements, requests

NIC, DONGLE = 0, 5


def cluster(*counts: dict[int, int]) -> Core:
    core = Core(len(counts))
    for node, extra in enumerate(counts):
        core.set_node(node, cpus=16, mem_mb=1000, partitions=1, extra=extra.items())
    return core


def placed(core: Core, **wanted: Any) -> list[int]:
    found = core.place(core.request(**wanted))
    return [share[0] for share in found.nodes] if isinstance(found, _core.Placement) else []


def test_they_are_taken_and_given_back() -> None:
    core = cluster({}, {NIC: 2}, {NIC: 4, DONGLE: 1})
    assert placed(core, extra=[(NIC, 2)]) == [1]
    assert placed(core, extra=[(NIC, 3)]) == [2]
    assert placed(core, extra=[(NIC, 1), (DONGLE, 1)]) == [2]
    assert placed(core, extra=[(NIC, 1)], min_nodes=2, max_nodes=2) == [1, 2]
    assert placed(core, extra=[(NIC, 1)], min_nodes=3, max_nodes=3) == []
    core.allocate(1, [(1, 1, 0, 0), (2, 1, 0, 0)], extra=[(NIC, 2)])
    core.check()
    assert core.allocation_extra(1) == ((NIC, 2),)
    assert placed(core, extra=[(NIC, 1)]) == [2]
    assert placed(core, extra=[(NIC, 3)]) == []
    core.release_node(1, 2)
    assert placed(core, extra=[(NIC, 3)]) == [2]
    core.release(1)
    assert placed(core, extra=[(NIC, 2)]) == [1]
    core.check()


def test_why_a_node_is_none() -> None:
    core = cluster({NIC: 1}, {NIC: 4})
    core.allocate(1, [(1, 1, 0, 0)], extra=[(NIC, 3)])
    refusal = core.place(core.request(extra=[(NIC, 2)]))
    assert isinstance(refusal, _core.Refusal)
    found = {(why.what, why.never): why.nodes for why in refusal.reasons}
    assert found == {("gres", True): 1, ("gres", False): 1}
    assert core.can_ever(core.request(extra=[(NIC, 4)])) is None
    assert core.can_ever(core.request(extra=[(NIC, 5)])) is not None


def test_what_is_not_there_cannot_be_taken() -> None:
    core = cluster({NIC: 1})
    with pytest.raises(ValueError, match="too little"):
        core.allocate(1, [(0, 1, 0, 0)], extra=[(NIC, 2)])
    core.allocate(1, [(0, 1, 0, 0)], extra=[(NIC, 2)], adopt=True)
    core.check()
    with pytest.raises(ValueError, match="kind"):
        core.request(extra=[(12, 1)])
    with pytest.raises(ValueError, match="count"):
        core.request(extra=[(0, -1)])


@pytest.mark.parametrize("plan_jobs", [0, 100])
def test_a_larger_one_is_not_overtaken(plan_jobs: int) -> None:
    """Four of four are in use until 50 and 80. Who wants all of them waits until 80, and who would
    have some of them beyond that waits for him."""
    core = cluster({NIC: 4})
    core.allocate(1, [(0, 1, 0, 0)], 50, extra=[(NIC, 2)])
    core.allocate(2, [(0, 1, 0, 0)], 80, extra=[(NIC, 2)])
    two = core.request(extra=[(NIC, 2)])
    core.queue_add(3, core.request(extra=[(NIC, 4)]), 5, 1, 100)
    core.queue_add(4, two, 4, 2, 31)
    core.queue_add(5, two, 3, 3, 30)
    core.queue_add(6, core.request(), 2, 4, 1000)
    plan = core.schedule(0, plan_jobs=plan_jobs, resolution=1)
    assert [start.key for start in plan.starts] == [6]
    assert {one.key: one.at for one in plan.reservations}[3] == 80
    if plan_jobs:
        assert estimates(core) == {3: 80, 4: 180, 5: 50}
    core.release(1)
    plan = core.schedule(50, plan_jobs=plan_jobs, resolution=1)
    assert [start.key for start in plan.starts] == [5]


@st.composite
def counts(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    some = draw(st.dictionaries(st.sampled_from([0, 1, 7]), st.integers(1, 4), max_size=2))
    return tuple(sorted(some.items()))


@st.composite
def wanting(draw: st.DrawFn, n_nodes: int, *, joint: bool = True) -> dict[str, Any]:
    out = draw(requests(n_nodes, joint=joint))
    return out | {"extra": tuple((kind, min(n, 3)) for kind, n in draw(counts()))}


def with_extras(cluster: list[dict[str, Any]], data: st.DataObject) -> list[dict[str, Any]]:
    return [node | {"extra": data.draw(counts())} for node in cluster]


@SLOW
@given(st.data())
def test_placements_are_those_of_the_twin(data: st.DataObject) -> None:
    there = with_extras(data.draw(st.lists(nodes(), min_size=1, max_size=5)), data)
    placements(data, there, wanting, "extra")


@st.composite
def equipped(draw: st.DrawFn) -> dict[str, Any]:
    return draw(nodes()) | {"extra": draw(counts())}


@SLOW
@given(st.data())
def test_passes_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=False, requests=wanting, nodes=equipped)


@settings(SLOW, max_examples=80)
@given(st.data())
def test_plans_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=True, requests=wanting, nodes=equipped)
