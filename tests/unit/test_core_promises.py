"""What the pass promises, over random clusters, queues and histories in which jobs end early.

The head of the queue is never delayed by those that start before it; request classes never make a
job start later than it would with a class of its own; nobody starts after the first time that the
conservative plan gave.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched import _core
from gsched._core import Core, Placement, Plan

MACHINES: list[list[list[int]]] = [
    [[0 if a == b else 18 for b in range(8)] for a in range(8)],
    [[12 if a != b and a // 2 == b // 2 else 0 for b in range(4)] for a in range(4)],
    [[0] * 4 for _ in range(4)],
    [],
]
#: passes come at every arrival and end, and these far apart at most
HORIZON = 100_000


@dataclass
class Job:
    key: int
    comes: int
    limit: int
    #: how long it really runs
    runs: int
    wants: dict[str, object]


@dataclass
class History:
    """A cluster, and jobs in order of arrival. The earlier job always goes first."""

    nodes: list[dict[str, object]]
    machines: list[int]
    jobs: list[Job]
    #: node -> bits of partitions
    partitions: int = 1


def history(rnd: random.Random, *, early: bool, partitions: int = 1) -> History:
    nodes: list[dict[str, object]] = []
    machines = []
    for _ in range(rnd.randint(1, 6)):
        machine = rnd.randrange(len(MACHINES))
        gpus = len(MACHINES[machine])
        every = (1 << gpus) - 1
        masks = [(0, every)] if gpus else []
        if gpus and rnd.random() < 0.3:
            masks = [(0, every >> gpus // 2), (1, every & ~(every >> gpus // 2))]
        machines.append(machine)
        nodes.append(
            {
                "cpus": rnd.choice([8, 16]),
                "mem_mb": 500,
                "gpu_type_masks": masks,
                "partitions": rnd.randint(1, (1 << partitions) - 1),
                "weight": rnd.choice([1, 1, 5]),
            }
        )
    jobs = []
    for key in range(rnd.randint(5, 40)):
        count = rnd.choice([1, 1, 1, 2, 3])
        wants: dict[str, object] = {
            "partition": rnd.randrange(partitions),
            "min_nodes": count,
            "max_nodes": count,
            "cpus_per_task": rnd.choice([1, 1, 2, 5, 8]),
        }
        gpus = rnd.choice([0, 1, 1, 2, 3, 4, 8])
        if gpus:
            wants["gpus_per_node"] = gpus
            if rnd.random() < 0.2:
                wants["one_island"] = True
            if rnd.random() < 0.2:
                wants["gpu_type"] = rnd.randrange(2)
        if rnd.random() < 0.3:
            wants["mem_per_node_mb"] = rnd.choice([100, 300, 0])
        if rnd.random() < 0.1:
            wants["exclusive"] = True
        limit = rnd.randint(1, 60)
        runs = rnd.randint(1, limit) if early else limit
        jobs.append(Job(key, rnd.randrange(rnd.choice([1, 200])), limit, runs, wants))
    jobs.sort(key=lambda job: (job.comes, job.key))
    for number, job in enumerate(jobs):
        job.key = number
    return History(nodes, machines, jobs)


def build(told: History, spare: int = 0) -> Core:
    """The cluster, and so many nodes that are out of use."""
    core = Core(len(told.nodes) + spare)
    for number, (node, machine) in enumerate(zip(told.nodes, told.machines, strict=True)):
        links = MACHINES[machine]
        core.set_node(number, cls=core.define_class(links, [0] * len(links)), **node)  # type: ignore[arg-type]
    return core


@dataclass
class Played:
    starts: dict[int, tuple[int, Placement]] = field(default_factory=dict)
    verdicts: dict[int, list[int]] = field(default_factory=dict)


def play(
    told: History,
    core: Core,
    request: Callable[[Job], int],
    schedule: Callable[[Core, int, bool], list[Plan]],
    look: Callable[[int, Plan, dict[int, int]], None] | None = None,
) -> Played:
    """Passes at every arrival and end, until nobody waits who ever could. `look` gets each plan
    with the ends of running jobs by their limits."""
    out = Played()
    ends: dict[int, int] = {}
    waiting = list(told.jobs)
    now = 0
    while now < HORIZON:
        early = False
        for key in sorted(k for k, end in ends.items() if end == now):
            core.release(key)
            early |= told.jobs[key].runs < told.jobs[key].limit
            del ends[key]
        while waiting and waiting[0].comes <= now:
            job = waiting.pop(0)
            core.queue_add(job.key, request(job), 0, job.key, limit_s=job.limit)
        for plan in schedule(core, now, early):
            core.check()
            for start in plan.starts:
                out.starts[start.key] = now, start.placement
                ends[start.key] = now + told.jobs[start.key].runs
            for key, verdict in plan.changed:
                out.verdicts.setdefault(key, []).append(verdict)
            if look is not None:
                look(now, plan, {k: out.starts[k][0] + told.jobs[k].limit for k in ends})
        moments = [*ends.values(), *(job.comes for job in waiting[:1])]
        moments += [r.at for r in core.reservations() if r.at > now]
        if not moments:
            break
        now = min(moments)
    return out


def alone(told: History, core: Core, job: Job, now: int, running: dict[int, int]) -> int:
    """When a job would start if nobody started beside or before it: the running jobs end at their
    limits one after the other."""
    fresh = build(told)
    for key in running:
        rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in core.allocation(key)]
        fresh.allocate(key, rows, running[key])
    req = fresh.request(**job.wants)  # type: ignore[arg-type]
    for end in sorted(set(running.values())):
        for key in [k for k, e in running.items() if e == end]:
            fresh.release(key)
        if isinstance(fresh.place(req), Placement):
            return end
    raise AssertionError(f"job {job.key} never fits")


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans())
def test_the_head_is_never_delayed_by_backfill(seed: int, early: bool) -> None:
    told = history(random.Random(seed), early=early)
    core = build(told)
    promised: dict[int, int] = {}

    def look(now: int, plan: Plan, running: dict[int, int]) -> None:
        for start in plan.starts:
            assert now <= promised.get(start.key, now), f"job {start.key} was promised better"
        for kept in plan.reservations:
            if kept.key not in promised:
                # It has just become the head: what a strict run would give it from here on.
                best = alone(told, core, told.jobs[kept.key], now, running)
                assert kept.at == best
            assert kept.at <= promised.get(kept.key, kept.at)
            promised[kept.key] = kept.at

    played = play(
        told,
        core,
        lambda job: core.request(**job.wants),  # type: ignore[arg-type]
        lambda core, now, _: [core.schedule(now)],
        look,
    )
    if not early:
        for key, at in promised.items():
            assert played.starts[key][0] == at
    fits = {job.key for job in told.jobs if core.can_ever(core.request(**job.wants)) is None}  # type: ignore[arg-type]
    assert set(played.starts) == fits


def conservative(core: Core, now: int, early: bool) -> list[Plan]:
    """As the queue yardstick does: who comes is planned behind all others; after an early end all
    may move forward."""
    plans = [core.schedule(now, plan_jobs=1000, resolution=1, keep=_core.HOLD_STILL)]
    if early:
        plans.append(core.schedule(now, plan_jobs=1000, resolution=1, keep=_core.DRAW_FORWARD))
    return plans


def forward(core: Core, now: int, early: bool) -> list[Plan]:
    return [core.schedule(now, plan_jobs=1000, resolution=1, keep=_core.DRAW_FORWARD)]


def anew(core: Core, now: int, early: bool) -> list[Plan]:
    return [core.schedule(now, plan_jobs=1000, resolution=1)]


def easy(core: Core, now: int, early: bool) -> list[Plan]:
    return [core.schedule(now)]


@pytest.mark.parametrize("schedule", [easy, anew, forward, conservative])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_classes_make_nobody_start_later(
    schedule: Callable[[Core, int, bool], list[Plan]], seed: int
) -> None:
    """Each job excludes a node of its own that is out of use: no two jobs share an answer. All
    start at the same times and places, and were told the same."""
    told = history(random.Random(seed), early=True, partitions=2)
    # Few kinds of jobs, so that classes have many.
    kinds = [job.wants for job in told.jobs[:4]]
    for job in told.jobs:
        job.wants = kinds[job.key % len(kinds)]
    shared, apart = (build(told, spare=len(told.jobs)) for _ in range(2))
    first = len(told.nodes)
    one = play(told, shared, lambda job: shared.request(**job.wants), schedule)  # type: ignore[arg-type]
    other = play(
        told,
        apart,
        lambda job: apart.request(exclude=[first + job.key], **job.wants),  # type: ignore[arg-type]
        schedule,
    )
    assert one == other


@pytest.mark.parametrize("schedule", [forward, conservative])
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32), early=st.booleans())
def test_nobody_starts_after_its_first_promise(
    schedule: Callable[[Core, int, bool], list[Plan]], seed: int, early: bool
) -> None:
    told = history(random.Random(seed), early=early, partitions=2)
    core = build(told)
    promised: dict[int, int] = {}

    def look(now: int, plan: Plan, running: dict[int, int]) -> None:
        for start in plan.starts:
            assert now <= promised.get(start.key, now)
        for kept in plan.reservations:
            assert kept.at <= promised.setdefault(kept.key, kept.at)

    played = play(told, core, lambda job: core.request(**job.wants), schedule, look)  # type: ignore[arg-type]
    assert promised.keys() <= played.starts.keys()
