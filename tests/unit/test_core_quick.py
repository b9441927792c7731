"""Quick passes beside a plan that was made on a copy: nobody planned is put back, gaps are filled,
and what no longer fits is planned anew."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from gsched import _core
from gsched._core import STAND, Core
from tests.unit.test_core_plan import cluster, estimates

CORE = Path(__file__).resolve().parents[2] / "gsched" / "core"


def planned(core: Core) -> dict[int, int]:
    return {r.key: r.at for r in core.reservations()}


def plan(core: Core, now: int, **options: int) -> Core:
    copy = core.copy()
    copy.run_plan(now, plan_jobs=1000, resolution=1, **options)
    return copy


def quick(core: Core, now: int) -> list[int]:
    return [start.key for start in core.schedule(now, keep=STAND, resolution=1).starts]


def waiting() -> Core:
    """6 of 8 GPUs are in use until 100. A job for 8 waits, then one for 4."""
    core = cluster(1)
    core.allocate(1, [(0, 6, 0, 0b111111)], 100)
    core.queue_add(2, core.request(gpus_per_node=8), 0, 2, 50)
    core.queue_add(3, core.request(gpus_per_node=4), 0, 3, 50)
    core.adopt_plan(plan(core, 0))
    assert planned(core) == {2: 100, 3: 150}
    return core


def test_a_quick_start_fills_a_gap_and_never_delays_a_planned_job() -> None:
    core = waiting()
    two = core.request(gpus_per_node=2)
    core.queue_add(4, two, 9, 4, 101)
    assert quick(core, 0) == []
    assert core.verdict(4) in (_core.RESOURCES, _core.PRIORITY)
    core.queue_add(5, two, 0, 5, 100)
    assert quick(core, 0) == [5]
    assert {2: 100, 3: 150}.items() <= planned(core).items()


def test_a_planned_job_starts_as_soon_as_it_can() -> None:
    """The running job ends at 10, long before its limit: who waits for it starts then."""
    core = waiting()
    core.release(1)
    assert quick(core, 10) == [2]
    assert planned(core) == {3: 150}
    core.release(2)
    assert quick(core, 20) == [3]


def test_a_planned_job_may_start_early_only_beside_those_before_it() -> None:
    """2 GPUs more come free: enough for job 3, but not if it is to be gone when job 2 starts."""
    core = cluster(1)
    core.allocate(1, [(0, 4, 0, 0b1111)], 100)
    core.allocate(9, [(0, 2, 0, 0b110000)], 100)
    core.queue_add(2, core.request(gpus_per_node=8), 0, 2, 50)
    core.queue_add(3, core.request(gpus_per_node=4), 0, 3, 95)
    core.adopt_plan(plan(core, 0))
    assert planned(core) == {2: 100, 3: 150}
    core.release(9)
    assert quick(core, 10) == []
    assert quick(core, 20) == []
    assert planned(core) == {2: 100, 3: 150}


def test_who_came_first_is_not_passed_while_a_job_outlasts_its_limit() -> None:
    """The job before is not gone at 100: the planned one keeps its place, second by second."""
    core = waiting()
    core.queue_add(4, core.request(gpus_per_node=2), 0, 4, 10_000)
    for now in (100, 101, 105):
        assert quick(core, now) == []
        assert planned(core) == {2: now + 1, 3: now + 51}
    core.release(1)
    assert quick(core, 106) == [2]
    assert planned(core) == {3: 156}


def test_a_plan_is_taken_over_only_as_far_as_it_still_fits() -> None:
    """While the plan was made, job 2 was cancelled, job 3 changed its time, node 2 went away and
    job 5 came."""
    core = cluster(3)
    for node in range(3):
        core.allocate(90 + node, [(node, 8, 0, 0xFF)], 100 + 10 * node)
    eight = core.request(gpus_per_node=8)
    for key in (2, 3, 4, 6):
        core.queue_add(key, eight, 0, key, 50)
    made = plan(core, 0)
    assert {r.key: r.at for r in made.reservations()} == {2: 100, 3: 110, 4: 120, 6: 150}
    core.queue_remove(2)
    core.queue_update(3, limit_s=500)
    core.set_usable(2, usable=False)
    core.queue_add(5, eight, 0, 5, 50)
    assert core.adopt_plan(made) == 2
    assert estimates(core) == {3: 0, 4: 120, 5: 0, 6: 150}
    assert quick(core, 1) == []
    # 4 was to go to node 2: node 0 at 100 is the first time for it, and 6 keeps it from 150 on. 3
    # as the first one of its partition is planned too: on node 1, when that is free.
    assert planned(core) == {3: 110, 4: 100, 6: 150}


def test_what_a_plan_would_start_is_kept_until_the_next_pass() -> None:
    core = cluster(1)
    core.queue_add(2, core.request(gpus_per_node=8), 0, 2, 50)
    core.adopt_plan(plan(core, 7))
    assert planned(core) == {2: 7}
    assert core.reservation(2) is not None and core.reservation(3) is None
    core.queue_add(3, core.request(gpus_per_node=1), 9, 3, 50)
    assert quick(core, 9) == [2]


def test_the_first_blocked_one_gets_a_reservation_without_a_plan() -> None:
    core = waiting()
    core.queue_add(4, core.request(gpus_per_node=8), 9, 4, 10)
    assert quick(core, 1) == []
    # Behind what is planned: the next plan puts it first.
    assert planned(core) == {4: 200, 2: 100, 3: 150}
    core.adopt_plan(plan(core, 2))
    assert planned(core) == {4: 100, 2: 110, 3: 160}


def test_a_pass_that_ends_early_forgets_no_reservation() -> None:
    core = waiting()
    core.queue_add(4, core.request(gpus_per_node=1), 9, 4, 10)
    core.queue_add(5, core.request(gpus_per_node=1), 9, 5, 10)
    done = core.schedule(0, 1, keep=STAND, resolution=1)
    assert ([start.key for start in done.starts], done.more) == ([4], True)
    assert planned(core) == {2: 100, 3: 150}
    assert core.schedule(0, 0, 1, keep=STAND, resolution=1).tested == 1
    assert planned(core) == {2: 100, 3: 150}


def test_when_too_much_is_to_be_planned_anew_nothing_starts_out_of_turn() -> None:
    core = cluster(200)
    core.set_node(199, cpus=64, mem_mb=1000, partitions=1)
    for node in range(199):
        core.allocate(1000 + node, [(node, 8, 0, 0xFF)], 100)
    for key in range(1, 151):
        core.queue_add(key, core.request(gpus_per_node=8), 0, key, 50)
    core.queue_add(500, core.request(), 0, 500, 10)
    core.adopt_plan(plan(core, 0))
    for node in range(199):
        core.set_end(1000 + node, 200)
    assert quick(core, 0) == []
    assert core.replanned() == (128, True)
    core.adopt_plan(plan(core, 1))
    assert quick(core, 2) == [500]
    assert core.replanned() == (0, False)


def test_the_head_of_each_of_a_hundred_partitions_has_a_reservation() -> None:
    core = Core(100)
    for node in range(100):
        core.set_node(node, cpus=8, mem_mb=10, partitions=1 << node)
        core.allocate(1000 + node, [(node, 8, 0, 0)], 50 + node)
        core.queue_add(node, core.request(partition=node, min_cpus_node=8), 0, node, 10)
    core.schedule(0)
    assert planned(core) == {node: 50 + node for node in range(100)}


def test_bounds_of_pairs_arrays_units_groups_and_age() -> None:
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 0xFF)], 100)
    eight = core.request(gpus_per_node=8, partition=0)
    core.set_group(0, 1)
    core.set_group(1, 2)
    for key in (2, 3, 4):
        core.queue_add(key, eight, 0, key, 10, user=7, array=40, since=50 * key, unit=0)
    core.queue_add(5, eight, 0, 5, 10, user=8, group=1)

    def reserved(**options: int) -> list[int]:
        return sorted(r.key for r in plan(core, 200, **options).reservations())

    assert reserved() == [2, 3, 4, 5]
    assert reserved(max_user_partition=2) == [2, 3, 5]
    assert reserved(max_array=1) == [2, 5]
    assert reserved(max_array=0) == [5]
    assert reserved(one_per_unit=1) == [2, 5]
    assert reserved(min_age=60) == [2, 5]
    core.queue_add(6, eight, 0, 6, 10, group=1)
    core.queue_add(7, eight, 0, 7, 10, group=1)
    assert reserved() == [2, 3, 4, 5, 6]
    core.queue_add(8, eight, (1 << 40) + 3, 8, 10)
    core.queue_add(9, eight, (1 << 40) + 2, 9, 10)
    assert reserved(min_priority=3, tier_bits=40) == [8]


def test_reservations_go_to_nodes_in_use_where_asked() -> None:
    """Node 0 is idle but too small until then; both could hold it later."""
    core = cluster(2)
    core.allocate(1, [(1, 1, 0, 0xF)], 100)
    core.queue_add(2, core.request(gpus_per_node=8, min_nodes=2, max_nodes=2), 5, 2, 50)
    core.queue_add(3, core.request(gpus_per_node=8), 0, 3, 200)
    made = plan(core, 0)
    assert made.reservations()[1].placement.nodes[0][0] == 0
    made = plan(core, 0, busy_first=1)
    assert made.reservations()[1].placement.nodes[0][0] == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_planned_start_is_never_put_back_by_quick_passes(seed: int) -> None:
    """Jobs come and go at random, plans come late. What is planned never moves back while all
    running jobs keep to their limits."""
    rng = random.Random(seed)
    core = cluster(3)
    running: dict[int, int] = {}
    promise: dict[int, int] = {}
    limit: dict[int, int] = {}
    key = 0
    made: tuple[int, Core] | None = None
    for now in range(0, 12_000, 10):
        for done in [k for k, end in running.items() if end <= now]:
            core.release(done)
            del running[done]
        if now < 2500 and rng.random() < 0.5:
            key += 1
            nodes = rng.choice([1, 1, 2])
            req = core.request(
                gpus_per_node=rng.choice([1, 2, 4, 8]),
                min_nodes=nodes,
                max_nodes=nodes,
                cpus_per_task=rng.choice([1, 30]),
            )
            limit[key] = rng.randrange(1, 20)
            core.queue_add(key, req, rng.choice([0, 0, 5]), key, 10 * limit[key])
        if made is not None and now >= made[0]:
            core.adopt_plan(made[1])
            made = None
            # A plan goes by priority: it may put back who was promised something before.
            promise = {}
        elif made is None and rng.random() < 0.3:
            made = now + rng.choice([0, 10, 50]), plan(core, now)
        done = core.schedule(now, keep=STAND, resolution=1)
        for start in done.starts:
            assert now <= promise.get(start.key, now)
            running[start.key] = now + 10 * rng.randint(1, limit[start.key])
        for kept in core.reservations():
            assert kept.at <= promise.get(kept.key, kept.at)
            promise[kept.key] = kept.at
        core.check()
    assert len(core) == 0


def test_a_copy_answers_as_the_core_it_is_of() -> None:
    core = waiting()
    core.request(gpus_per_node=1, gpu_milli=300)
    half = core.request(gpus_per_node=1, gpu_milli=500, features_any=(1,), exclude=(0,))
    copy = core.copy()
    copy.check()
    assert len(copy) == len(core)
    assert copy.request(gpus_per_node=1, gpu_milli=500, features_any=(1,), exclude=(0,)) == half
    assert copy.verdicts() == core.verdicts()
    assert planned(copy) == planned(core)
    # What happens to one is nothing to the other.
    copy.release(1)
    copy.queue_remove(2)
    assert core.node(0).free_gpus == 0b11000000 and len(core) == 2
    assert copy.schedule(0).starts != []
    del copy
    core.check()
    assert quick(core, 0) == []


def test_a_plan_of_another_core_is_refused() -> None:
    core = cluster(1)
    with pytest.raises(ValueError, match="copy"):
        core.adopt_plan(core)
    with pytest.raises(ValueError, match="copy"):
        core.adopt_plan(cluster(2))


def test_every_array_of_the_core_is_copied() -> None:
    """A pointer that copy.pxi forgets would be shared by two cores, and freed twice."""
    text = "".join(
        (CORE / name).read_text()
        for name in ("types.pxi", "links.pxi", "work.pxi", "rare_types.pxi", "topology_types.pxi")
    )
    copied = (CORE / "copy.pxi").read_text()
    missing = []
    names = ("State", "Filter", "Req", "Cluster", "Links", "Work", "Rare", "Variant", "Topo")
    for name in (*names, "Bin", "Chain"):
        body = text.split(f"cdef struct {name}:")[1].split("\ncdef ")[0]
        fields = re.findall(r"^    \w+(?: \w+)?\*+ (\w+)", body, re.M)
        assert fields, name
        missing += [f"{name}.{field}" for field in fields if not re.search(rf"\.{field}\b", copied)]
    assert missing == []
