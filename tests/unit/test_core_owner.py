"""Nodes that only one owner has jobs on (--exclusive=user): by rule, and against the slow twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched import _core
from gsched._core import Core
from tests.unit.test_core_plan import cluster, estimates
from tests.unit.test_core_reference import SLOW, nodes, passes, placements, requests

ANN, BEN = 7, 8


def placed(core: Core, **wanted: int) -> list[int]:
    found = core.place(core.request(**wanted))
    return [share[0] for share in found.nodes] if isinstance(found, _core.Placement) else []


def test_only_one_owner_s_jobs_share_a_node() -> None:
    core = cluster(2)
    core.allocate(1, [(0, 1, 0, 1)], owner=ANN)
    core.allocate(2, [(1, 1, 0, 1)])
    assert placed(core, owner=ANN) == [0]
    assert placed(core, owner=BEN) == []
    assert placed(core) == [1]
    # Together they take what there is, and no more.
    assert placed(core, owner=ANN, gpus_per_node=7) == [0]
    assert placed(core, owner=ANN, gpus_per_node=8) == []
    core.allocate(3, [(0, 1, 0, 2)], owner=ANN)
    core.release(1)
    assert placed(core, nodelist=[0]) == []
    core.release(3)
    assert placed(core, nodelist=[0]) == [0]
    core.check()


def test_why_a_node_is_none() -> None:
    core = cluster(2)
    core.allocate(1, [(0, 1, 0, 1)], owner=ANN)
    core.allocate(2, [(1, 1, 0, 1)])
    refusal = core.place(core.request(owner=BEN))
    assert isinstance(refusal, _core.Refusal)
    assert [(why.what, why.never, why.nodes) for why in refusal.reasons] == [("busy", False, 2)]


@pytest.mark.parametrize("plan_jobs", [0, 100])
def test_it_waits_for_nodes_without_jobs_of_others(plan_jobs: int) -> None:
    """The node is free of others' jobs at 60. Until then, and after that, nobody is put before."""
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 1)], 60)
    core.queue_add(2, core.request(owner=ANN), 5, 1, 100)
    other = core.request()
    core.queue_add(3, other, 4, 2, 60)
    core.queue_add(4, other, 3, 3, 61)
    core.queue_add(5, core.request(owner=BEN), 2, 4, 10)
    plan = core.schedule(0, plan_jobs=plan_jobs, resolution=1)
    assert [start.key for start in plan.starts] == [3]
    assert {one.key: one.at for one in plan.reservations}[2] == 60
    if plan_jobs:
        assert estimates(core) == {2: 60, 4: 160, 5: 221}
    core.release(1)
    core.release(3)
    # Both of the owner's jobs may be there at once, and nobody else beside them.
    core.queue_add(6, core.request(owner=ANN), 1, 5, 10)
    plan = core.schedule(60, plan_jobs=0, resolution=1)
    assert [start.key for start in plan.starts] == [2, 6]


def test_nobody_joins_between_two_owners() -> None:
    """Ann's job ends at 50; then the node is Ben's. Ann's next one does not fit in before that, and
    waits for Ben's to end."""
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 1)], 50, owner=ANN)
    core.queue_add(2, core.request(owner=BEN, partition=0), 5, 1, 100)
    core.queue_add(3, core.request(owner=ANN), 4, 2, 60)
    plan = core.schedule(0)
    assert plan.starts == []
    assert {one.key: one.at for one in plan.reservations} == {2: 50, 3: 150}
    core.queue_add(4, core.request(owner=ANN), 3, 3, 50)
    assert core.earliest(core.request(owner=ANN), 0, 50) == 150


@st.composite
def owned(draw: st.DrawFn, n_nodes: int, *, joint: bool = True) -> dict[str, Any]:
    out = draw(requests(n_nodes, joint=joint))
    return out | {"owner": draw(st.sampled_from([-1, -1, 0, 1]))}


@SLOW
@given(st.data())
def test_placements_are_those_of_the_twin(data: st.DataObject) -> None:
    there = data.draw(st.lists(nodes(), min_size=1, max_size=5))
    placements(data, there, owned, "owner")


@SLOW
@given(st.data())
def test_passes_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=False, requests=owned)


@settings(SLOW, max_examples=60)
@given(st.data())
def test_plans_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=True, requests=owned)
