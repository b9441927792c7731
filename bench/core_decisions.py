"""What the core's decisions cost, on clusters of 1,000 to 100,000 nodes of 8 GPUs.

    python bench/core_decisions.py [--json FILE] [--quick]

Medians of five, in CPU time (so that other work on the machine does not count).
A third of the nodes is full, a quarter idle, the rest random: three quarters of
the GPUs are in use. "core" is time inside C, "api" through Python. The calibration loop tells how
fast the machine is: compare figures of different machines by its ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable

from gsched._core import Core, Placement

LINKS = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
NUMA = [0] * 4 + [1] * 4


def cluster(nodes: int, *, full: bool = False) -> Core:
    """Nodes of 64 CPUs and 512 GB in partition 0 (eight in ten) or 1, with jobs on them."""
    rng = random.Random(7)
    core = Core(nodes)
    cls = core.define_class(LINKS, NUMA)
    for node in range(nodes):
        core.set_node(
            node,
            cls=cls,
            cpus=64,
            mem_mb=512_000,
            gpu_type_masks=[(0, 0xFF)],
            partitions=3 if full or rng.random() < 0.8 else 2,
            features=1 << rng.randrange(4),
        )
    key = 1 << 40
    for node in range(nodes):
        kind = rng.random()
        if full or kind < 0.35:
            used = 0xFF
        elif kind < 0.5:
            continue
        else:
            used = rng.randrange(1, 256) | rng.randrange(256)
        key += 1
        cpus = 4 * used.bit_count()
        core.allocate(
            key, [(node, cpus, 16_000 * used.bit_count(), used)], rng.randrange(60, 90_000)
        )
    return core


def median(action: Callable[[], object], runs: int = 5) -> float:
    """Seconds."""
    times = []
    for _ in range(runs):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return statistics.median(times)


def api(core: Core, req: int, repeat: int) -> float:
    """Microseconds per place() through Python."""

    def run() -> None:
        for _ in range(repeat):
            core.place(req)

    return median(run) / repeat * 1e6


def decisions(nodes: int, out: dict[str, float]) -> None:
    core = cluster(nodes)
    one = core.request(partition=0, gpus_per_node=1, cpus_per_task=4, mem_per_cpu_mb=4000)
    eight = core.request(partition=0, gpus_per_node=8, cpus_per_task=32, one_island=True)
    gang = core.request(partition=0, min_nodes=64, max_nodes=64, gpus_per_node=8, cpus_per_task=8)
    cpu = core.request(partition=0, cpus_per_task=4, mem_per_cpu_mb=2000)
    never = core.request(partition=0, gpus_per_node=8, cpus_per_task=65)
    for name, req, repeat in (
        ("1 GPU best fit", one, 20_000),
        ("8 GPUs on one island", eight, 20_000),
        ("gang of 64 nodes x 8 GPUs", gang, 500),
        ("4 CPUs", cpu, 200),
    ):
        assert isinstance(core.place(req), Placement), name
        inside = median(lambda req=req, repeat=repeat: core.repeat_place(req, repeat)) / repeat
        out[f"{nodes} nodes: {name}, core, us"] = inside * 1e6
        out[f"{nodes} nodes: {name}, api, us"] = api(core, req, max(repeat // 4, 50))
    core.place(never)
    out[f"{nodes} nodes: refusal with counted reasons, api, us"] = api(core, never, 20)

    def again(repeat: int = 2000) -> None:
        for _ in range(repeat):
            answer = core.place(one)
            assert isinstance(answer, Placement)
            core.allocate(1, [(n, c, m, g) for n, c, _, m, g in answer.nodes], 100)
            core.release(1)

    out[f"{nodes} nodes: place, allocate and release, api, us"] = median(again) / 2000 * 1e6


def passes(nodes: int, jobs: int, out: dict[str, float]) -> None:
    """A queue of mixed jobs (50 classes, every limit different) on a full cluster."""
    rng = random.Random(11)
    core = cluster(nodes, full=True)
    classes = [
        core.request(
            partition=0,
            gpus_per_node=rng.choice([1, 1, 2, 4, 8]),
            min_nodes=(n := rng.choice([1, 1, 1, 2, 8])),
            max_nodes=n,
            cpus_per_task=rng.choice([4, 8, 16]),
            mem_per_node_mb=1000 + number,
        )
        for number in range(50)
    ]
    began = time.thread_time()
    for key in range(jobs):
        core.queue_add(
            key, rng.choice(classes), rng.randrange(1000), key, rng.randrange(60, 90_000)
        )
    out[f"{jobs} pending: queue_add, us each"] = (time.thread_time() - began) / jobs * 1e6
    label = f"{nodes} full nodes, {jobs} pending: pass"
    began = time.thread_time()
    plan = core.schedule(0)
    out[f"{label}, first (sorts), ms"] = (time.thread_time() - began) * 1e3
    assert len(plan.reservations) == 1 and not plan.starts
    clock = iter(range(1, 100))
    out[f"{label}, ms"] = median(lambda: core.schedule(next(clock))) * 1e3
    # Some nodes come free, too few for the head: backfill goes on, ever more jobs are refused for
    # the reservation.
    core.release((1 << 40) + 1)
    plan = core.schedule(100)
    out[f"{label} with {len(plan.starts)} starts, {plan.placed} placements"] = float(plan.placed)


def calibration() -> float:
    def loop() -> None:
        total = 0
        for i in range(2_000_000):
            total += i & 7

    return median(loop) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures here too")
    parser.add_argument("--quick", action="store_true", help="leave out 100,000 nodes")
    options = parser.parse_args()
    out: dict[str, float] = {"calibration: 2,000,000 turns of a Python loop, ms": calibration()}
    for nodes in (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000):
        decisions(nodes, out)
    passes(1_000, 100_000, out)
    passes(10_000, 10_000, out)
    for name, value in out.items():
        print(f"{value:12.3f}  {name}")
    if options.json:
        about = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "figures": out}, file, indent=1)


if __name__ == "__main__":
    main()
