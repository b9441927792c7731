"""Cores that several jobs of a partition hold (OverSubscribe), caps on CPUs, and what nodes keep
for their idle GPUs: by arithmetic, and against the slow twin."""

from __future__ import annotations

from typing import Any

import pytest
from core_support import SLOW, Both, build, nodes, requests
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched import _core
from gsched._core import Core
from tests.unit.test_core_plan import estimates
from tests.unit.test_core_reference import passes

#: a counted resource that is a cap
CAP = 9


def cluster(*cpus: int, jobs: int = 2, **more: Any) -> Core:
    """Nodes with so many CPUs in partitions 0 and 1; in 0 so many jobs share a core."""
    core = Core(len(cpus))
    for number, count in enumerate(cpus):
        core.set_node(number, cpus=count, mem_mb=1000, partitions=3, **more)
    core.set_sharing(0, jobs)
    return core


def started(core: Core, key: int, **wanted: Any) -> list[int]:
    """The nodes of a job that starts now; [] if it does not."""
    wanted = {"partition": 0, "shares_cpus": True, **wanted}
    req = core.request(**wanted)
    found = core.place(req)
    if not isinstance(found, _core.Placement):
        return []
    rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in found.nodes]
    core.allocate(key, rows, lot=0 if wanted["shares_cpus"] else -1)
    core.check()
    return [row[0] for row in rows]


def test_so_many_jobs_are_on_each_core_and_not_one_more() -> None:
    """FORCE:2 on 16 CPUs: four jobs of 8 run, the fifth waits."""
    core = cluster(16)
    for key in range(4):
        assert started(core, key, ntasks=8, max_nodes=1) == [0]
    assert started(core, 4, ntasks=1, max_nodes=1) == []
    assert core.node_free(0)[0] == 0
    core.release(1)
    assert started(core, 5, ntasks=8, max_nodes=1) == [0]
    assert core.allocation_lot(0)[1][0].bit_count() == 8


def test_free_cores_come_before_those_of_others() -> None:
    core = cluster(4, 4, jobs=3)
    assert started(core, 1, ntasks=4, max_nodes=1) == [0]
    # Another node has idle ones.
    assert started(core, 2, ntasks=4, max_nodes=1) == [1]
    assert started(core, 3, ntasks=3, max_nodes=1) == [0]
    assert core.allocation_lot(3)[1][0] == 0b111
    # Those with the fewest jobs first: 3 of the node with 2 of 3 jobs would be the next.
    assert started(core, 4, ntasks=4, max_nodes=1) == [1]
    assert started(core, 5, ntasks=1, max_nodes=1) == [0]
    assert core.allocation_lot(5)[1][0] == 0b1000


def test_cores_are_shared_within_a_partition_only() -> None:
    core = cluster(8)
    assert started(core, 1, ntasks=6, max_nodes=1) == [0]
    assert started(core, 2, partition=1, shares_cpus=False, ntasks=3, max_nodes=1) == []
    assert started(core, 2, partition=1, shares_cpus=False, ntasks=2, max_nodes=1) == [0]
    # The six cores of the lot have room for one more job each, the other two do not.
    assert started(core, 3, ntasks=7, max_nodes=1) == []
    assert started(core, 3, ntasks=6, max_nodes=1) == [0]
    core.release(1)
    # They are held by the third job still.
    assert core.node_free(0)[0] == 0
    core.release(3)
    assert core.node_free(0)[0] == 6


def test_who_does_not_share_gets_cores_for_himself() -> None:
    """OverSubscribe=YES: only those that ask for it share."""
    core = cluster(8)
    assert started(core, 1, ntasks=4, max_nodes=1, shares_cpus=False) == [0]
    assert started(core, 2, ntasks=4, max_nodes=1) == [0]
    assert started(core, 3, ntasks=5, max_nodes=1) == []
    assert started(core, 3, ntasks=4, max_nodes=1) == [0]
    assert started(core, 4, ntasks=1, max_nodes=1) == []


def test_gpus_and_memory_are_not_shared() -> None:
    core = Core(1)
    cls = core.define_class([[0, 0], [0, 0]], [0, 0])
    core.set_node(0, cls=cls, cpus=4, mem_mb=1000, gpu_type_masks=[(0, 3)], partitions=1)
    core.set_sharing(0, 4)
    assert started(core, 1, ntasks=4, gpus_per_node=1, mem_per_node_mb=400) == [0]
    assert started(core, 2, ntasks=4, gpus_per_node=1, mem_per_node_mb=400) == [0]
    assert started(core, 3, ntasks=1, gpus_per_node=1) == []
    assert started(core, 3, ntasks=1, mem_per_node_mb=400) == []
    assert started(core, 3, ntasks=1, mem_per_node_mb=200) == [0]


def test_cores_that_are_known_are_taken_over() -> None:
    core = cluster(4)
    core.allocate(1, [(0, 2, 0, 0)], lot=0, slots=[0b0110])
    core.allocate(2, [(0, 2, 0, 0)], lot=0, slots=[0b1100])
    core.check()
    assert core.node_free(0)[0] == 1
    assert core.allocation_lot(2) == (0, (0b1100,))
    assert started(core, 3, ntasks=3, max_nodes=1) == [0]
    # The free one, then those with one job.
    assert core.allocation_lot(3)[1][0] == 0b1011
    other = core.copy()
    other.release(1)
    other.check()
    core.check()
    assert (other.node_free(0)[0], core.node_free(0)[0]) == (0, 0)
    with pytest.raises(ValueError, match="shared in partition 1"):
        core.allocate(9, [(0, 1, 0, 0)], lot=1)


@pytest.mark.parametrize("plan_jobs", [0, 100])
def test_a_job_that_shares_is_not_overtaken(plan_jobs: int) -> None:
    """Eight CPUs with two jobs on each until 50: who wants six of them shared waits until then, and
    nobody takes three for longer meanwhile, when two come free before."""
    core = cluster(8)
    core.allocate(1, [(0, 8, 0, 0)], 50, lot=0)
    core.allocate(2, [(0, 6, 0, 0)], 80, lot=0)
    wide = core.request(partition=0, shares_cpus=True, min_cpus_node=6)
    slim = core.request(partition=0, shares_cpus=True, min_cpus_node=2)
    core.queue_add(3, wide, 5, 1, 100)
    core.queue_add(4, slim, 4, 2, 50)
    plan = core.schedule(0, plan_jobs=plan_jobs, resolution=1)
    # Six of eight have one job from 50 on, two have none: with both there are eight to join.
    assert {one.key: one.at for one in plan.reservations} == {3: 50}
    assert [start.key for start in plan.starts] == [4]
    core.check()


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("start", [50, 90])
def test_a_plan_for_later_takes_no_cores_before(partition: int, start: int) -> None:
    """Two jobs share each core in either partition, and one is planned that wants the node for
    itself at 50 or 90: cores that are joined until 50 are none of its."""
    core = cluster(8)
    core.set_sharing(1, 2)
    core.allocate(1, [(0, 8, 0, 0)], start, lot=partition)
    whole = core.request(partition=0, exclusive=True, min_nodes=1)
    joins = core.request(partition=partition, shares_cpus=True, ntasks=4, max_nodes=1)
    core.queue_add(2, whole, 5, 1, 100)
    core.queue_add(3, joins, 4, 2, 50)
    plan = core.schedule(0, plan_jobs=100, resolution=1)
    assert {one.key: one.at for one in plan.reservations} == {2: start}
    assert [one.key for one in plan.starts] == [3]
    core.check()


@pytest.mark.parametrize("keep", [0, _core.STAND])
def test_room_of_a_lot_on_full_cores_is_none(keep: int) -> None:
    """Three jobs share a core. Two are on cores 0 and 1, one on 6 and 7: of those that want all
    eight one starts when everybody else has left, and 0 and 1 are full then. There is room for
    ten jobs more on the six others, but not for one that wants eight."""
    core = cluster(8, jobs=3)
    core.allocate(1, [(0, 2, 0, 0)], 600, lot=0, slots=[0b11], adopt=True)
    core.allocate(2, [(0, 4, 0, 0)], 600, lot=0, slots=[0b11000011], adopt=True)
    core.allocate(3, [(0, 8, 0, 0)], 600, lot=0, slots=[0b11111111], adopt=True)
    whole = core.request(partition=0, shares_cpus=True, ntasks=8, max_nodes=1)
    core.queue_add(4, whole, 5, 1, 300)
    core.queue_add(5, whole, 5, 2, 300)
    assert core.schedule(0, plan_jobs=100, resolution=1).starts == []
    core.release(3)
    plan = core.schedule(10, plan_jobs=0 if keep else 100, resolution=1, keep=keep)
    assert [start.key for start in plan.starts] == [4]
    core.check()


def test_a_cap_on_cpus_of_a_partition() -> None:
    """MaxCPUsPerNode=6: counted over all its jobs on a node, whoever else is there."""
    core = Core(2)
    for number in range(2):
        core.set_node(number, cpus=16, mem_mb=1000, partitions=3, extra=[(CAP, 6)])
    capped = {"partition": 0, "cpu_caps": [CAP], "max_nodes": 1}
    four, seven = core.request(ntasks=4, **capped), core.request(ntasks=7, **capped)
    assert core.can_ever(seven) is not None
    found = core.place(four)
    assert isinstance(found, _core.Placement)
    core.allocate(1, [(0, 4, 0, 0)], caps=[CAP])
    core.check()
    assert core.allocation_caps(1) == (CAP,)
    assert core.allocation_extra(1) == ()
    found = core.place(four)
    assert isinstance(found, _core.Placement)
    assert found.nodes[0][0] == 1
    core.allocate(2, [(1, 4, 0, 0)], caps=[CAP])
    refusal = core.place(four)
    assert isinstance(refusal, _core.Refusal)
    assert {(why.what, why.never): why.nodes for why in refusal.reasons} == {("cap", False): 2}
    # Two are left on each.
    spread = core.place(core.request(partition=0, cpu_caps=[CAP], ntasks=4))
    assert isinstance(spread, _core.Placement)
    assert [row[1] for row in spread.nodes] == [2, 2]
    assert isinstance(core.place(core.request(partition=1, ntasks=12, max_nodes=1)), tuple)


def kept(cpus: int = 16, gpus: int = 4, keep: int = 2) -> Core:
    core = Core(1)
    cls = core.define_class([[0] * gpus for _ in range(gpus)], [0] * gpus)
    core.set_node(
        0,
        cls=cls,
        cpus=cpus,
        mem_mb=1000,
        gpu_type_masks=[(0, (1 << gpus) - 1)],
        partitions=1,
        keep_cpus=keep,
        keep_mem_mb=100,
    )
    return core


def test_cpus_and_memory_are_kept_for_idle_gpus() -> None:
    """16 CPUs, four idle GPUs that keep two each: eight are left to others."""
    core = kept()
    eight = core.request(partition=0, ntasks=8, max_nodes=1, leaves_gpus=True)
    assert isinstance(core.place(eight), _core.Placement)
    core.allocate(1, [(0, 8, 0, 0)])
    one = core.request(partition=0, ntasks=1, max_nodes=1, leaves_gpus=True)
    refusal = core.place(one)
    assert isinstance(refusal, _core.Refusal)
    assert [(why.what, why.never) for why in refusal.reasons] == [("kept", False)]
    # Those that want GPUs get the CPUs that are kept for them.
    gpu = core.request(partition=0, ntasks=1, gpus_per_node=1, max_nodes=1, leaves_gpus=True)
    assert isinstance(core.place(gpu), _core.Placement)
    # A GPU in use keeps none: of 7 free CPUs 6 are kept.
    core.allocate(2, [(0, 1, 0, 1)])
    assert isinstance(core.place(one), _core.Placement)
    core.check()
    # Of 1000 MB 300 are kept now.
    much = core.request(partition=0, mem_per_node_mb=700, max_nodes=1, leaves_gpus=True)
    more = core.request(partition=0, mem_per_node_mb=701, max_nodes=1, leaves_gpus=True)
    core.release(1)
    assert isinstance(core.place(much), _core.Placement)
    assert isinstance(core.place(more), _core.Placement), "the empty cluster keeps 400 of 1000"


def test_who_could_never_leave_them_alone_leaves_a_part() -> None:
    """16 CPUs, eight of them kept: nine would wait for ever on the idle node beside all of
    that, but not beside a half, where 12 are left; 13 leave less than a CPU for each GPU: none."""
    core = kept()
    nine = core.request(partition=0, ntasks=9, max_nodes=1, leaves_gpus=True)
    thirteen = core.request(partition=0, ntasks=13, max_nodes=1, leaves_gpus=True)
    assert isinstance(core.place(nine), _core.Placement)
    core.allocate(1, [(0, 4, 0, 0)])
    refusal = core.place(nine)
    assert isinstance(refusal, _core.Refusal), "12 are free, and four of them kept"
    assert [(why.what, why.never) for why in refusal.reasons] == [("kept", False)]
    core.release(1)
    assert isinstance(core.place(thirteen), _core.Placement)
    whole = core.request(partition=0, exclusive=True, leaves_gpus=True)
    assert isinstance(core.place(whole), _core.Placement)
    everything = core.request(partition=0, ntasks=16, max_nodes=1, leaves_gpus=True)
    assert isinstance(core.place(everything), _core.Placement)


def test_inside_a_reservation_nothing_is_left_alone() -> None:
    """What it keeps is for its jobs, whatever others do with the rest of the node."""
    core = kept()
    core.set_reservation(0, [(0, 1000)], [(0, 8, 0)])
    inside = core.request(partition=0, ntasks=8, max_nodes=1, leaves_gpus=True, reservation=0)
    core.allocate(1, [(0, 8, 0, 0)], 500)
    core.queue_add(2, inside, 5, 1, 100)
    plan = core.schedule(10)
    assert [start.key for start in plan.starts] == [2]


def test_a_planned_share_leaves_the_rest_of_its_gpu() -> None:
    """Two GPUs of four shards each, full until 100: two jobs of two shards are planned on one of
    them then, and a third beside a whole GPU."""
    core = Core(1)
    cls = core.define_class([[0, 0], [0, 0]], [0, 0])
    core.set_node(
        0,
        cls=cls,
        cpus=16,
        mem_mb=1000,
        gpu_type_masks=[(0, 3)],
        gpu_parts=[(1, 4), (1, 4)],
        partitions=1,
    )
    core.allocate(1, [(0, 1, 0, 3)], 100)
    two = core.request(partition=0, gpus_per_node=1, gpu_milli=2, gpu_kind=1)
    for key, req in ((2, two), (3, core.request(partition=0, gpus_per_node=1)), (4, two), (5, two)):
        core.queue_add(key, req, 10 - key, key, 60)
    core.schedule(0, plan_jobs=100, resolution=1)
    assert estimates(core) == {2: 100, 3: 100, 4: 100, 5: 160}


def test_a_large_share_is_not_overtaken_by_small_ones() -> None:
    """Three of four shards are wanted; two of them are in use until 50, and others come for one
    shard at a time, for longer."""
    core = Core(1)
    cls = core.define_class([[0]], [0])
    core.set_node(
        0, cls=cls, cpus=16, mem_mb=1000, gpu_type_masks=[(0, 1)], gpu_parts=[(1, 4)], partitions=1
    )
    core.request(partition=0, gpus_per_node=1, gpu_milli=1, gpu_kind=1)
    core.allocate(1, [(0, 1, 0, 1)], 50, gpu_milli=2)
    three = core.request(partition=0, gpus_per_node=1, gpu_milli=3, gpu_kind=1)
    one = core.request(partition=0, gpus_per_node=1, gpu_milli=1, gpu_kind=1)
    core.queue_add(2, three, 9, 2, 60)
    for key in (3, 4, 5):
        core.queue_add(key, one, 5, key, 100)
    plan = core.schedule(0, plan_jobs=100, resolution=1)
    # One of the two free shards may be had: one is left beside the three.
    assert [start.key for start in plan.starts] == [3]
    assert estimates(core) == {2: 50, 4: 100, 5: 110}
    core.release(1)
    plan = core.schedule(50, keep=_core.STAND, resolution=1)
    assert [start.key for start in plan.starts] == [2]
    core.check()


def test_a_share_that_comes_after_the_pass() -> None:
    """A pass without shares has planned both GPUs at 100; then two of four shards are allocated on
    each: there is room beside them, and what is planned waits for the last."""
    core = Core(1)
    cls = core.define_class([[0, 0], [0, 0]], [0, 0])
    parts = [(1, 4), (1, 4)]
    core.set_node(
        0, cls=cls, cpus=16, mem_mb=1000, gpu_type_masks=[(0, 3)], gpu_parts=parts, partitions=1
    )
    core.allocate(1, [(0, 1, 0, 3)], 100)
    core.queue_add(2, core.request(partition=0, gpus_per_node=2), 5, 1, 100)
    plan = core.schedule(0, plan_jobs=100, resolution=1)
    assert {one.key: one.at for one in plan.reservations} == {2: 100}
    core.release(1)
    two = core.request(partition=0, gpus_per_node=1, gpu_milli=2, gpu_kind=1)
    core.allocate(3, [(0, 1, 0, 1)], 40, gpu_milli=2)
    core.allocate(4, [(0, 1, 0, 2)], 200, gpu_milli=2)
    assert core.what_if(two, 0) is not None
    core.check()
    core.schedule(0, plan_jobs=100, resolution=1)
    # Both GPUs are free of shares from 200 on.
    assert estimates(core) == {2: 200}
    found = core.what_if(two, 0, 100)
    assert isinstance(found, _core.Placement)
    core.check()


# ---- against the slow twin


@st.composite
def odd_nodes(draw: st.DrawFn) -> dict[str, Any]:
    out = draw(nodes())
    if draw(st.booleans()):
        out["extra"] = [(8, draw(st.integers(0, 6))), (CAP, draw(st.integers(1, 9)))]
    if draw(st.booleans()):
        out["keep_cpus"] = draw(st.integers(0, 5))
        out["keep_mem_mb"] = draw(st.sampled_from([0, 0, 30, 300]))
    return out


@st.composite
def odd_requests(draw: st.DrawFn, n_nodes: int, *, joint: bool = True) -> dict[str, Any]:
    out = draw(requests(n_nodes, joint=joint))
    what = draw(st.sampled_from(["lot", "lot", "cap", "keep", "keep", "lot+keep", "cap+lot", ""]))
    if "lot" in what:
        out["partition"] = draw(st.sampled_from([0, 0, 1]))
        out["shares_cpus"] = True
    if "cap" in what:
        out["cpu_caps"] = tuple(draw(st.sets(st.sampled_from([8, CAP]), min_size=1)))
    if "keep" in what:
        out["leaves_gpus"] = True
    return out


def sharing(data: st.DataObject, both: Both, n_nodes: int) -> None:
    for partition in range(2):
        jobs = data.draw(st.integers(2, 4))
        for one in both:
            one.set_sharing(partition, jobs)


@settings(SLOW, max_examples=200)
@given(st.data())
def test_placements_are_those_of_the_twin(data: st.DataObject) -> None:
    there = data.draw(st.lists(odd_nodes(), min_size=1, max_size=4))
    both, _ = build(there)
    core, twin = both
    sharing(data, both, len(there))
    for step in range(data.draw(st.integers(1, 12))):
        content = data.draw(odd_requests(len(there)))
        req, number = core.request(**content), twin.request(**content)
        answer = core.place(req)
        assert answer == twin.place(number), content
        assert core.can_ever(req) == twin.can_ever(number), content
        assert core.possible(req) == twin.possible(number), content
        if isinstance(answer, _core.Placement):
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            for one in both:
                one.allocate(
                    step,
                    rows,
                    gpu_milli=answer.gpu_milli,
                    caps=content.get("cpu_caps", ()),
                    lot=twin.requests[number].lot,
                )
        if data.draw(st.booleans()):
            gone = data.draw(st.integers(0, step))
            if core.allocation(gone):
                core.release(gone)
                twin.release(gone)
        core.check()


@SLOW
@given(st.data())
def test_passes_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=False, requests=odd_requests, nodes=odd_nodes, prepare=sharing)


@settings(SLOW, max_examples=100)
@given(st.data())
def test_plans_are_those_of_the_twin(data: st.DataObject) -> None:
    passes(data, conservative=True, requests=odd_requests, nodes=odd_nodes, prepare=sharing)
