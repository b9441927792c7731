"""The core's speed as a table: pytest-benchmark, medians in CPU time.

    python bench/core_speed.py        writes the table and results/core_speed.json
    pytest bench/test_core_speed.py --benchmark-enable --benchmark-timer=time.thread_time

10,000 nodes of 8 GPUs (and 100,000 for the first rows), three quarters of the GPUs in use, as in
core_decisions.py. Each row says in which state the cluster is, and what it may take at most.
`calibration` is a Python loop: compare figures of different machines by it.
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


THREE_QUARTERS = (
    "{} nodes of 8 GPUs: a third full, an eighth idle, the rest in part; three quarters of "
    "the GPUs in use"
)
FULL = "10,000 nodes of 8 GPUs, all in use, each until a time of its own; {}"
#: nodes of one leaf switch, leaves of one spine
LEAF, SPINE = 32, 16


@cache
def kept(nodes: int) -> Core:
    return cluster(nodes)


@cache
def switched(nodes: int) -> Core:
    """The same below leaf switches of 32 nodes, 16 of them below a spine, and one above all."""
    core = cluster(nodes)
    leaves = -(-nodes // LEAF)
    spines = -(-leaves // SPINE)
    parents = [leaves + leaf // SPINE for leaf in range(leaves)]
    core.set_topology(
        [node // LEAF for node in range(nodes)], [*parents, *[leaves + spines] * spines, -1]
    )
    return core


@pytest.fixture
def timed(benchmark: Any) -> Any:
    benchmark.group = "core"
    return benchmark


def says(timed: Any, what: str, goal_us: float, state: str, unit: int = 1) -> Any:
    """Names the row; the time of `unit` decisions is measured, the goal is for one."""
    timed.extra_info.update(what=what, goal_us=goal_us, state=state, unit=unit)
    return timed


def many(timed: Any, action: Any, *args: Any) -> Any:
    """A decision of a microsecond: a thousand in a row, so that the clock is not what is seen."""
    timed.pedantic(action, args, iterations=1000, rounds=30, warmup_rounds=1)
    return action(*args)


def test_calibration(timed: Any) -> None:
    """2,000,000 turns of a Python loop."""
    says(timed, "calibration: 2,000,000 turns of a Python loop", 0, "no cluster")

    def loop() -> None:
        total = 0
        for i in range(2_000_000):
            total += i & 7

    timed.pedantic(loop, rounds=5)


def twice(nodes: int, goal: float) -> float:
    """With ten times the nodes a decision may take twice as long."""
    return goal if nodes <= 10_000 else 2 * goal


@pytest.mark.parametrize("nodes", SIZES)
def test_one_gpu_best_fit(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    what = "1 GPU, best fit, with CPUs, memory and partition, through the Python API"
    says(timed, what, twice(nodes, 3), THREE_QUARTERS.format(f"{nodes:,}"))
    assert isinstance(many(timed, core.place, req), Placement)


@pytest.mark.parametrize("nodes", SIZES)
def test_one_gpu_best_fit_core_alone(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    what = "the same, the core alone"
    says(timed, what, twice(nodes, 0.1), THREE_QUARTERS.format(f"{nodes:,}"), 1000)
    timed.pedantic(core.repeat_place, (req, 1000), rounds=300)
    assert core.repeat_place(req, 10) == 10


@pytest.mark.parametrize("nodes", SIZES)
def test_eight_gpus_on_one_island(timed: Any, nodes: int) -> None:
    core = kept(nodes)
    req = core.request(partition=0, gpus_per_node=8, cpus_per_task=32, one_island=True)
    what = "8 GPUs on one node, one island"
    says(timed, what, twice(nodes, 3), THREE_QUARTERS.format(f"{nodes:,}"))
    assert isinstance(many(timed, core.place, req), Placement)


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("network", ["switches", "none"])
def test_gang_of_64_nodes(timed: Any, nodes: int, network: str) -> None:
    core = switched(nodes) if network == "switches" else kept(nodes)
    req = core.request(partition=0, min_nodes=64, max_nodes=64, gpus_per_node=8, cpus_per_task=8)
    state = THREE_QUARTERS.format(f"{nodes:,}")
    what = "gang of 64 nodes x 8 GPUs, "
    if network == "switches":
        what += "as few switches as possible"
        state += "; leaf switches of 32 nodes, 16 leaves below each spine"
    else:
        what += "no topology"
    says(timed, what, twice(nodes, 50), state)
    timed.pedantic(core.place, (req,), iterations=100, rounds=30, warmup_rounds=1)
    assert isinstance(core.place(req), Placement)


def test_infeasible_with_reasons(timed: Any) -> None:
    core = kept(10_000)
    req = core.request(partition=0, gpus_per_node=8, cpus_per_task=65)
    what = "infeasible request, with all counted reasons"
    says(timed, what, 200, THREE_QUARTERS.format("10,000"))
    timed.pedantic(core.place, (req,), iterations=20, rounds=30, warmup_rounds=1)
    assert isinstance(core.place(req), Refusal)


def test_release_and_place_again(timed: Any) -> None:
    core = kept(10_000)
    req = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    says(timed, "release and place again", 3, THREE_QUARTERS.format("10,000"))

    def again() -> None:
        answer = core.place(req)
        assert isinstance(answer, Placement)
        core.allocate(1, [(n, c, m, g) for n, c, _, m, g in answer.nodes], 100)
        core.release(1)

    many(timed, again)


@pytest.mark.parametrize("policy", ["FGD", "DENSE_FIT"])
def test_share_on_1213_nodes(timed: Any, policy: str) -> None:
    """Shares and whole GPUs of 60 kinds placed one after the other, each allocated, until the
    cluster is three quarters full; then one kind after the other is asked for, with an allocation
    between, so that scores are made anew as they are in use."""
    what = f"{policy}: the node and GPU for a share or whole GPUs"
    state = (
        "1,213 nodes of 2 or 8 GPUs without links, filled to three quarters by 60 kinds of tasks"
    )
    says(timed, what, 50, state)
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
    state = FULL.format("10,000 pending of 50 classes, gangs of 2 and 8 nodes among them")
    says(timed, "EASY pass, 10,000 pending", 10_000, state)
    core = cluster(10_000, full=True)
    queue(core, 10_000, 8)
    clock = iter(range(100_000))
    timed.pedantic(lambda: core.schedule(next(clock)), rounds=9, warmup_rounds=1)


@pytest.mark.parametrize("largest", [1, 8])
def test_conservative_plan_10000_pending(timed: Any, largest: int) -> None:
    """The first 1,000 exactly, the rest on the skyline; gangs of 2 and `largest` nodes among
    them."""
    kinds = "gangs of 2 and 8 nodes among them" if largest > 1 else "some of 2 nodes"
    what = f"conservative plan, 10,000 pending: 1,000 exact, the rest on the skyline; {kinds}"
    says(timed, what, 150_000, FULL.format(f"10,000 pending of 50 classes, {kinds}"))
    core = cluster(10_000, full=True)
    queue(core, 10_000, largest)
    clock = iter(range(100_000))
    timed.pedantic(lambda: core.schedule(next(clock), plan_jobs=1000), rounds=5, warmup_rounds=1)


def test_order_of_100000_pending(timed: Any) -> None:
    """New priorities of all, the order and the limits of groups; no job is looked at further."""
    state = "1 node; 100,000 pending in one group that may start none, every priority new"
    says(timed, "order and limits of 100,000 pending", 50_000, state)
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
