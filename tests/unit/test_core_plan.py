"""The conservative plan: starts known from arithmetic, and that nobody is ever put back."""

from __future__ import annotations

import random

import pytest

from gsched import _core
from gsched._core import Core
from gsched._reference import Core as Twin


def cluster(nodes: int, gpus: int = 8, kind: type[Core] = Core) -> Core:
    core = kind(nodes)
    links = [[0 if i == j else 18 for j in range(gpus)] for i in range(gpus)]
    cls = core.define_class(links, [0] * gpus)
    for node in range(nodes):
        masks = [(0, (1 << gpus) - 1)]
        core.set_node(node, cls=cls, cpus=64, mem_mb=1000, gpu_type_masks=masks, partitions=1)
    return core


def estimates(core: Core) -> dict[int, int]:
    keys, times = (memoryview(part).cast("q") for part in core.estimates())
    return dict(zip(keys, times, strict=True))


def test_two_of_eight_gpus_do_not_lose_the_other_six() -> None:
    """6 GPUs are in use until 100. Waiting: 4 GPUs for 50 s (2 more come free at 100: there), 4 for
    50 s (beside it), 2 for 100 s (now), 8 for 10 s (behind both)."""
    core = cluster(1)
    core.allocate(1, [(0, 6, 0, 0b111111)], 100)
    four = core.request(gpus_per_node=4)
    core.queue_add(2, four, 0, 1, 50)
    core.queue_add(3, four, 0, 2, 50)
    core.queue_add(4, core.request(gpus_per_node=2), 0, 3, 100)
    core.queue_add(5, core.request(gpus_per_node=8), 0, 4, 10)
    plan = core.schedule(0, plan_jobs=100, resolution=1)
    assert [start.key for start in plan.starts] == [4]
    assert {r.key: r.at for r in plan.reservations} == {2: 100, 3: 100, 5: 150}
    assert estimates(core) == {2: 100, 3: 100, 5: 150}


def test_memory_is_planned_jointly_with_gpus() -> None:
    """GPUs are free all the time; the memory is not before 70."""
    core = cluster(1)
    core.allocate(1, [(0, 1, 900, 0)], 70)
    core.queue_add(2, core.request(gpus_per_node=1, mem_per_node_mb=500), 0, 1, 10)
    assert core.schedule(0, plan_jobs=1, resolution=1).reservations[0].at == 70


def test_a_gang_waits_until_its_nodes_are_free_together() -> None:
    """Node 0 is free from 10 to 50 only: two nodes are free together from 60 on."""
    core = cluster(2)
    core.allocate(1, [(0, 1, 0, 0xFF)], 10)
    core.allocate(2, [(1, 1, 0, 0xFF)], 40)
    core.queue_add(3, core.request(gpus_per_node=8), 9, 1, 50)
    core.queue_add(4, core.request(gpus_per_node=8, min_nodes=2, max_nodes=2), 8, 2, 30)
    plan = core.schedule(0, plan_jobs=10, resolution=1)
    assert {r.key: r.at for r in plan.reservations} == {3: 10, 4: 60}


def test_jobs_beyond_the_exact_ones_get_a_lower_bound() -> None:
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 0xFF)], 600)
    eight = core.request(gpus_per_node=8)
    for key in (2, 3, 4):
        core.queue_add(key, eight, 0, key, 1200)
    plan = core.schedule(0, plan_jobs=1, resolution=60, window=60_000)
    assert [r.key for r in plan.reservations] == [2]
    assert estimates(core) == {2: 600, 3: 1800, 4: 3000}


def test_nothing_is_planned_beyond_the_window_or_the_bounds() -> None:
    core = cluster(1)
    core.allocate(1, [(0, 1, 0, 0xFF)], 600)
    eight = core.request(gpus_per_node=8)
    for key in (2, 3, 4):
        core.queue_add(key, eight, 0, key, 1200, user=0)
    # The first of the partition gets its time however far: it would wait for ever else.
    assert estimates_of(core, window=500) == {2: 600, 3: 0, 4: 0}
    plan = core.schedule(0, plan_jobs=9, max_user=1)
    assert [r.key for r in plan.reservations] == [2]
    plan = core.schedule(0, plan_jobs=9, max_partition=2)
    assert [r.key for r in plan.reservations] == [2, 3]
    assert core.schedule(0, plan_jobs=9, min_priority=1).reservations == []


def estimates_of(core: Core, *, window: int) -> dict[int, int]:
    core.schedule(0, plan_jobs=9, window=window)
    return estimates(core)


@pytest.mark.parametrize("kind", [Core, Twin])
def test_gpus_of_a_job_that_ends_where_a_reservation_begins_are_not_free_without_it(
    kind: type[Core],
) -> None:
    """All GPUs are promised from 170 on, and a job has them until then: it is taken to end at 175,
    the next multiple of 7, and they are not free at 170 where the promise is left out."""
    core = cluster(1, kind=kind)
    eight = core.request(gpus_per_node=8)
    core.allocate(1, [(0, 1, 0, 0xFF)], 170)
    core.queue_add(2, eight, 0, 1, 200)
    plan = core.schedule(100, plan_jobs=9, resolution=1)
    assert {r.key: r.at for r in plan.reservations} == {2: 170}
    core.release(1)
    core.queue_add(3, eight, 1, 1, 10)
    plan = core.schedule(160, plan_jobs=9, resolution=7, keep=_core.DRAW_FORWARD)
    assert [start.key for start in plan.starts] == [3]
    assert {r.key: r.at for r in plan.reservations} == {2: 170}
    for _ in range(2):
        assert core.earliest(eight, 160, 10, without=[2]) == 175
        assert core.earliest(eight, 160, 10) == 370


@pytest.mark.parametrize("kind", [Core, Twin])
def test_gpus_that_a_window_keeps_are_not_free_without_what_is_planned_in_it(
    kind: type[Core],
) -> None:
    """An advance reservation keeps four GPUs from 200 to 400, a job of it has them until 300. Who
    wants all eight gets them at 400, whether that job is left out or not."""
    core = cluster(1, kind=kind)
    eight = core.request(gpus_per_node=8)
    core.set_reservation(0, [(200, 400)], [(0, 4, 0b1111)])
    core.allocate(1, [(0, 1, 0, 0b10000000)], 210)
    core.queue_add(2, core.request(gpus_per_node=4, reservation=0), 0, 1, 100)
    plan = core.schedule(100, plan_jobs=9, resolution=1)
    assert {r.key: r.at for r in plan.reservations} == {2: 200}
    for _ in range(2):
        assert core.earliest(eight, 100, 50, without=[2]) == 400
        assert core.earliest(eight, 100, 50) == 400


@pytest.mark.parametrize("bad", [{"plan_jobs": -1}, {"resolution": 0}, {"window": 0}, {"keep": 4}])
def test_bad_options_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        cluster(1).schedule(0, **bad)


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_put_back(seed: int) -> None:
    """Jobs come and end early at random: a promise, once given, only moves forward, and every job
    has started by then."""
    rng = random.Random(seed)
    core = cluster(3)
    running: dict[int, int] = {}
    promise: dict[int, int] = {}
    limit: dict[int, int] = {}
    key = 0
    for now in range(0, 9000, 10):
        for done in [k for k, end in running.items() if end <= now]:
            core.release(done)
            del running[done]
        if now < 1500 and rng.random() < 0.5:
            key += 1
            nodes = rng.choice([1, 1, 2])
            req = core.request(
                gpus_per_node=rng.choice([1, 2, 4, 8]),
                min_nodes=nodes,
                max_nodes=nodes,
                cpus_per_task=rng.choice([1, 30]),
            )
            limit[key] = rng.randrange(1, 20)
            core.queue_add(key, req, 0, key, 10 * limit[key])
        plan = core.schedule(now, plan_jobs=1000, resolution=10, keep=_core.DRAW_FORWARD)
        for start in plan.starts:
            assert now <= promise.get(start.key, now)
            running[start.key] = now + 10 * rng.randint(1, limit[start.key])
        for kept in plan.reservations:
            assert kept.at <= promise.get(kept.key, kept.at)
            promise[kept.key] = kept.at
        core.check()
    assert len(core) == 0
