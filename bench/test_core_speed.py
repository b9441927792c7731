"""The core's speed as a table: pytest-benchmark, medians.

    pytest bench/test_core_speed.py --benchmark-enable --benchmark-timer=time.thread_time

10,000 nodes of 8 GPUs (and 100,000 for the first rows), three quarters of the GPUs in use, as in
core_decisions.py. `calibration` is a Python loop: compare figures of different machines by it.
"""

from __future__ import annotations

import random
from array import array
from functools import cache
from typing import Any

import pytest
from core_decisions import cluster

from gsched import _core
from gsched._core import Core, Placement, Refusal

SIZES = [10_000, 100_000]


@cache
def kept(nodes: int) -> Core:
    return cluster(nodes)


@pytest.fixture
def timed(benchmark: Any) -> Any:
    benchmark.group = "core"
    return benchmark


def test_calibration(timed: Any) -> None:
    """2,000,000 turns of a Python loop."""

    def loop() -> None:
        total = 0
        for i in range(2_000_000):
            total += i & 7

    timed.pedantic(loop, rounds=5)


@pytest.mark.parametrize("nodes", SIZES)
def test_one_gpu_best_fit(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    assert isinstance(timed(core.place, req), Placement)


@pytest.mark.parametrize("nodes", SIZES)
def test_one_gpu_best_fit_core_alone_x1000(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    assert timed(core.repeat_place, req, 1000) == 1000


@pytest.mark.parametrize("nodes", SIZES)
def test_eight_gpus_on_one_island(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=8, cpus_per_task=32, one_island=True)
    assert isinstance(timed(core.place, req), Placement)


@pytest.mark.parametrize("nodes", SIZES)
def test_gang_of_64_nodes(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, min_nodes=64, max_nodes=64, gpus_per_node=8, cpus_per_task=8)
    assert isinstance(timed(core.place, req), Placement)


def test_infeasible_with_reasons(timed: Any) -> None:
    core = kept(10_000)
    req = core.request(partition=0, gpus_per_node=8, cpus_per_task=65)
    assert isinstance(timed(core.place, req), Refusal)


def test_release_and_place_again(timed: Any) -> None:
    core = kept(10_000)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)

    def again() -> None:
        answer = core.place(req)
        assert isinstance(answer, Placement)
        core.allocate(1, [(n, c, m, g) for n, c, _, m, g in answer.nodes], 100)
        core.release(1)

    timed(again)


@pytest.mark.parametrize("policy", ["FGD", "DENSE_FIT"])
def test_share_on_1213_nodes(timed: Any, policy: str) -> None:
    """Shares and whole GPUs of 60 kinds placed one after the other, each allocated, until the
    cluster is three quarters full; then one kind after the other is asked for, with an allocation
    between, so that scores are made anew as they are in use."""
    rng = random.Random(3)
    core = Core(1213)
    for node in range(1213):
        gpus = rng.choice([2, 2, 8, 8, 8])
        cls = core.define_class([[0] * gpus for _ in range(gpus)], [0] * gpus)
        masks = [(0, (1 << gpus) - 1)]
        core.set_node(node, cls=cls, cpus=96, mem_mb=400_000, gpu_type_masks=masks)
    kinds = [
        (rng.choice([3, 4, 6, 8, 11, 12, 16]), rng.choice([0, 0, 160, 230, 320, 470, 650, 810]))
        for _ in range(60)
    ]
    core.set_workload([(cpus, 1, milli, (), 1 + k % 7) for k, (cpus, milli) in enumerate(kinds)])
    number = getattr(_core, policy)
    reqs = [
        core.request(cpus_per_task=cpus, gpus_per_node=1, gpu_milli=milli, policy=number)
        for cpus, milli in kinds
    ]
    keys = iter(range(1, 1 << 40))

    def one() -> None:
        answer = core.place(rng.choice(reqs))
        if isinstance(answer, Placement):
            node, cpus, _, mem, gpus = answer.nodes[0]
            core.allocate(next(keys), [(node, cpus, mem, gpus)], gpu_milli=answer.gpu_milli)

    for _ in range(5200):
        one()
    timed.pedantic(one, rounds=800)


def queue(core: Core, jobs: int, largest: int) -> None:
    rng = random.Random(11)
    classes = [
        core.request(
            partition=0,
            gpus_per_node=rng.choice([1, 1, 2, 4, 8]),
            min_nodes=(n := rng.choice([1, 1, 1, 2, largest])),
            max_nodes=n,
            cpus_per_task=rng.choice([4, 8, 16]),
            mem_per_node_mb=1000 + number,
        )
        for number in range(50)
    ]
    for key in range(jobs):
        core.queue_add(
            key, rng.choice(classes), rng.randrange(1000), key, rng.randrange(60, 90_000)
        )


def test_easy_pass_10000_pending(timed: Any) -> None:
    core = cluster(10_000, full=True)
    queue(core, 10_000, 8)
    clock = iter(range(100_000))
    timed.pedantic(lambda: core.schedule(next(clock)), rounds=9, warmup_rounds=1)


@pytest.mark.parametrize("largest", [1, 8])
def test_conservative_plan_10000_pending(timed: Any, largest: int) -> None:
    """The first 1,000 exactly, the rest on the skyline; gangs of 2 and `largest` nodes among
    them."""
    core = cluster(10_000, full=True)
    queue(core, 10_000, largest)
    clock = iter(range(100_000))
    timed.pedantic(lambda: core.schedule(next(clock), plan_jobs=1000), rounds=5, warmup_rounds=1)


def test_order_of_100000_pending(timed: Any) -> None:
    """New priorities of all, the order and the limits of groups; no job is looked at further."""
    core = Core(1)
    core.set_node(0, cpus=1, mem_mb=1)
    req = core.request()
    core.set_group(0, 0)
    jobs = 100_000
    for key in range(jobs):
        core.queue_add(key, req, 0, key, 60, group=0)
    keys = array("q", range(jobs))
    rng = random.Random(5)
    mixed = [array("q", (rng.randrange(10**6) for _ in range(jobs))) for _ in range(2)]
    turn = iter(range(100))

    def order() -> None:
        number = next(turn)
        core.queue_priorities(keys, mixed[number % 2])
        core.schedule(number)

    timed.pedantic(order, rounds=6, warmup_rounds=1)
