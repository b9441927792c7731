"""The core against its slow twin: random clusters, requests, drains, lost GPUs, passes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from core_support import DGX1, SLOW, Both, build, describe, nodes, requests
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gsched import _core, _reference

#: usual shapes: (cpus, gpus, gpu_milli, types, weight)
SHAPES = st.tuples(
    st.sampled_from([1, 2, 4, 9]),
    st.sampled_from([1, 1, 1, 0, 2, 4]),
    st.sampled_from([0, 100, 450, 500, 700]),
    st.sampled_from([(), (), (0,), (1,), (0, 1)]),
    st.integers(1, 9),
).map(lambda s: s if s[1] == 1 else (s[0], s[1], 0, *s[3:]))


def disturb(
    data: st.DataObject, both: Both, classes: list[int], keys: list[int], n_nodes: int
) -> None:
    """One random event that is not a decision."""
    core, twin = both
    number = data.draw(st.integers(0, n_nodes - 1))
    event = data.draw(
        st.sampled_from(["drain", "gpu", "release", "node", "end", "redefine", "workload"])
    )
    if event == "drain":
        usable = data.draw(st.booleans())
        core.set_usable(number, usable)
        twin.set_usable(number, usable)
    elif event == "gpu":
        mask = data.draw(st.integers(0, 255))
        core.set_gpu_ok(number, mask)
        twin.set_gpu_ok(number, mask)
    elif event == "redefine":
        describe(both, number, data.draw(nodes()), classes)
    elif event == "workload":
        shapes = data.draw(st.lists(SHAPES, max_size=4))
        core.set_workload(shapes)
        twin.set_workload(shapes)
    elif keys:
        key = data.draw(st.sampled_from(keys))
        held = core.allocation(key)
        if event == "release":
            core.release(key)
            twin.release(key)
            keys.remove(key)
        elif event == "node":
            core.release_node(key, held[0][0])
            twin.release_node(key, held[0][0])
            if len(held) == 1:
                keys.remove(key)
        else:
            end = data.draw(st.integers(0, 300))
            there = [(row[0], data.draw(st.integers(0, 500))) for row in held]
            late = [one for one in there if data.draw(st.booleans())]
            core.set_end(key, end, late)
            twin.set_end(key, end, late)


@SLOW
@given(st.data())
def test_placements_and_refusals_are_the_same(data: st.DataObject) -> None:
    cluster = data.draw(st.lists(nodes(), min_size=1, max_size=6))
    both, classes = build(cluster)
    core, twin = both
    keys: list[int] = []
    for step in range(data.draw(st.integers(1, 15))):
        if data.draw(st.integers(0, 3)) == 0:
            disturb(data, both, classes, keys, len(cluster))
        content = data.draw(requests(len(cluster)))
        req, number = core.request(**content), twin.request(**content)
        answer = core.place(req)
        assert answer == twin.place(number), content
        assert core.can_ever(req) == twin.can_ever(number), content
        assert core.possible(req) == twin.possible(number), content
        if isinstance(answer, _core.Placement):
            assert core.can_ever(req) is None
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            core.allocate(step, rows, end=50 * step, gpu_milli=answer.gpu_milli)
            twin.allocate(step, rows, end=50 * step, gpu_milli=answer.gpu_milli)
            assert core.allocation_milli(step) == content.get("gpu_milli", 0)
            keys.append(step)
        core.check()


def placements(data: st.DataObject, there: list[dict[str, Any]], wanted: Any, kept: str) -> None:
    """Requests that come and go; `kept`: what of a request its allocation is told."""
    both, _ = build(there)
    core, twin = both
    for step in range(data.draw(st.integers(1, 12))):
        content = data.draw(wanted(len(there)))
        req, number = core.request(**content), twin.request(**content)
        answer = core.place(req)
        assert answer == twin.place(number), content
        assert core.can_ever(req) == twin.can_ever(number), content
        assert core.possible(req) == twin.possible(number), content
        if isinstance(answer, _core.Placement):
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            for one in both:
                one.allocate(step, rows, gpu_milli=answer.gpu_milli, **{kept: content[kept]})
        if data.draw(st.booleans()):
            gone = data.draw(st.integers(0, step))
            if core.allocation(gone):
                core.release(gone)
                twin.release(gone)
        core.check()


@SLOW
@given(st.data())
def test_passes_are_the_same(data: st.DataObject) -> None:
    passes(data, conservative=False)


#: the twin tries every moment: fewer examples
@settings(SLOW, max_examples=60)
@given(st.data())
def test_conservative_plans_are_the_same(data: st.DataObject) -> None:
    passes(data, conservative=True)


@st.composite
def plan_options(draw: st.DrawFn) -> dict[str, Any]:
    out: dict[str, Any] = {
        "plan_jobs": draw(st.sampled_from([100, 100, 3, 1])),
        "resolution": draw(st.sampled_from([1, 7, 60])),
        "window": draw(st.sampled_from([1000, 1000, 100])),
    }
    out["keep"] = draw(st.integers(0, 3))
    if out["keep"] == _core.STAND:
        out["plan_jobs"] = 0
    odd = draw(st.integers(0, 14))
    if odd == 0:
        out["min_priority"] = 1
    elif odd == 1:
        out["max_user"] = 1
    elif odd == 2:
        out["max_partition"] = 1
    elif odd == 3:
        out["max_user_partition"] = 1
    elif odd == 4:
        out["max_array"] = draw(st.integers(0, 1))
    elif odd == 5:
        out["one_per_unit"] = True
    elif odd == 6:
        out["min_age"] = 50
    elif odd == 7:
        out["busy_first"] = True
    elif odd == 8:
        out["partition_depth"] = 2
    elif odd == 9:
        out |= {"tier_bits": 1, "min_priority": 1}
    return out


def passes(
    data: st.DataObject,
    *,
    conservative: bool,
    requests: Callable[..., st.SearchStrategy[dict[str, Any]]] = requests,
    nodes: Callable[[], st.SearchStrategy[dict[str, Any]]] = nodes,
    prepare: Callable[[st.DataObject, Both, int], None] | None = None,
) -> None:
    cluster = data.draw(st.lists(nodes(), min_size=1, max_size=5))
    both, classes = build(cluster)
    core, twin = both
    if prepare is not None:
        prepare(data, both, len(cluster))
    contents = data.draw(st.lists(requests(len(cluster), joint=False), min_size=2, max_size=6))
    reqs = [(core.request(**content), twin.request(**content)) for content in contents]
    for group in range(3):
        left = data.draw(st.integers(0, 4))
        core.set_group(group, left)
        twin.set_group(group, left)
    limited = data.draw(st.booleans())
    if limited:
        bound(data, both, len(cluster))
    keys: list[int] = []
    key = 0
    now = 100
    adopted = None
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(3, 12))):
            req, number = data.draw(st.sampled_from(reqs))
            key += 1
            row = {
                "priority": data.draw(st.integers(0, 2)),
                "order": data.draw(st.integers(0, 3)),
                "limit_s": data.draw(st.sampled_from([60, 10, 30, 200, 0])),
            }
            row["user"] = data.draw(st.integers(-1, 1))
            row["array"] = data.draw(st.integers(-1, 1))
            row["since"] = data.draw(st.sampled_from([0, 90, 130]))
            odd = data.draw(st.integers(0, 11))
            if odd == 11:
                row["ready_at"] = 150
            elif odd == 10:
                row["held"] = data.draw(st.integers(1, 2))
            elif odd >= 8:
                row["group"] = odd - 8
                row["unit"] = data.draw(st.integers(-1, 2))
            if limited:
                row["chain"] = data.draw(st.integers(-1, CHAINS - 1))
            core.queue_add(key, req, **row)
            twin.queue_add(key, number, **row)
        waiting = sorted(twin.queue)
        if waiting and data.draw(st.booleans()):
            moved, priority = data.draw(st.sampled_from(waiting)), data.draw(st.integers(0, 3))
            core.queue_priorities(array("q", [moved, -1]), array("q", [priority, 7]))
            twin.queue_update(moved, priority=priority)
        if waiting and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(waiting))
            core.queue_remove(gone)
            twin.queue_remove(gone)
        if limited and data.draw(st.booleans()):
            refill(data, both, len(cluster))
        if adopted is not None:
            assert core.adopt_plan(adopted[0]) == twin.adopt_plan(adopted[1])
            assert core.reservations() == twin.planned
            adopted = None
        bounds = data.draw(st.sampled_from([(0, 0), (0, 0), (2, 0), (0, 3)]))
        options = data.draw(plan_options()) if conservative else {}
        plan = core.schedule(now, *bounds, **options)
        other = twin.schedule(now, *bounds, **options)
        assert plan.starts == other.starts
        assert plan.reservations == other.reservations
        assert plan.changed == other.changed
        assert (plan.tested, plan.more) == (other.tested, other.more)
        keys_there, times = (memoryview(part).cast("q") for part in core.estimates())
        if not plan.more:
            estimates = {k: job.start for k, job in twin.queue.items()}
            assert dict(zip(keys_there, times, strict=True)) == estimates
            assert {k: core.start_estimate(k) for k in estimates} == estimates
        assert {k: core.verdict(k) for k in twin.queue} == {
            k: job.verdict for k, job in twin.queue.items()
        }
        for waits, job in twin.queue.items():
            if job.verdict == _core.LIMIT:
                assert core.limit_of(waits) == job.bin
        assert [core.bin_left(bin) for bin in range(len(twin.caps.bins))] == [
            bin.left for bin in twin.caps.bins
        ]
        core.check()
        surveys(data, both, reqs, now)
        keys += [start.key for start in plan.starts]
        if conservative and data.draw(st.booleans()):
            # A plan that is made while things go on.
            adopted = core.copy(), twin.copy()
            what = data.draw(plan_options()) | {"plan_jobs": 100, "keep": 0}
            adopted[0].run_plan(now, **what)
            adopted[1].schedule(now, **what)
        for _ in range(data.draw(st.integers(0, 3))):
            disturb(data, both, classes, keys, len(cluster))
        now += data.draw(st.sampled_from([1, 20, 60]))


#: limits in the tests of passes, and chains of jobs under them
BINS = 6
CHAINS = 4


def refill(data: st.DataObject, both: Both, n_nodes: int) -> None:
    """The limits are what they are."""
    for number in range(BINS):
        left = data.draw(st.sampled_from([-3, 0, 1, 4, 16, 500, 4000, 1 << 40]))
        how: dict[str, Any] = {"fixed": number == 1}
        if number == 2:
            left = data.draw(st.integers(0, 3))
            how["jobs"] = array("i", [data.draw(st.integers(0, 1)) for _ in range(n_nodes)])
        for one in both:
            one.set_bin(number, left, **how)


def bound(data: st.DataObject, both: Both, n_nodes: int) -> None:
    """Limits, and chains of them. The third counts nodes."""
    refill(data, both, n_nodes)
    for chain in range(CHAINS):
        numbers = data.draw(st.lists(st.integers(0, BINS - 1), max_size=3, unique=True))
        items = []
        for number in numbers:
            kinds = ["fixed", "cpus", "mem", "nodes", "gpus", "bill"]
            # Of a node on the average: nothing is taken of that.
            kinds += ["cpus_each", "mem_each", "gpus_each"] if number == 1 else []
            what = "hosts" if number == 2 else data.draw(st.sampled_from(kinds))
            timed = what != "hosts" and data.draw(st.booleans())
            factor = data.draw(st.sampled_from([1.0, 1.0, 0.5]))
            amount = data.draw(st.integers(0, 3))
            spare = data.draw(st.sampled_from([0, 0, 5, (1 << 62) - 1]))
            items.append((number, _core.COUNTED[what], amount, timed, factor, spare))
        floor = data.draw(st.sampled_from([None, None, 1]))
        bill = (data.draw(st.integers(0, 3)), 1.0, 0.25, 2.0, 4.0, 1.5, 1.0, 0.5)
        for one in both:
            one.set_chain(chain, items, floor=floor, bill=bill)


def surveys(data: st.DataObject, both: Both, reqs: list[tuple[int, int]], now: int) -> None:
    """What a request would get now and later, beside the plan of the pass just made."""
    core, twin = both
    req, number = data.draw(st.sampled_from(reqs))
    limit = data.draw(st.sampled_from([-1, 0, 10, 60, 200]))
    planned = [reservation.key for reservation in twin.planned]
    without = data.draw(st.sets(st.sampled_from([0, *planned])))
    at = now + data.draw(st.sampled_from([0, 1, 30, 60, 150]))
    before = core.what_if(req, now, 60)
    assert core.what_if(req, now, limit, at=at, without=without) == twin.what_if(
        number, now, limit, at=at, without=without
    )
    there = core.survey(req, now, limit, at=at, without=without)
    names = [
        {name for bit, name in enumerate(_core.LACKS) if word >> bit & 1}
        for word in memoryview(there.lacks).cast("I")
    ]
    assert names == twin.survey(number, now, limit, at=at, without=without)
    if limit >= 0:
        assert core.earliest(req, now, limit, without=without) == twin.earliest(
            number, now, limit, without=without
        )
    assert core.what_if(req, now, 60) == before
    if twin.queue:
        key = data.draw(st.sampled_from(sorted(twin.queue)))
        assert core.ahead(key) == twin.ahead(key)


@st.composite
def link_classes(draw: st.DrawFn, most: int) -> tuple[list[list[int]], list[int]]:
    n = draw(st.integers(1, most))
    links = [[0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            links[i][j] = links[j][i] = draw(st.sampled_from([0, 0, 1, 2]))
    return links, draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))


@SLOW
@given(link_classes(8), st.integers(0, 255), st.integers(0, 8), st.booleans())
def test_gpu_choice_is_the_best_of_all(
    machine: tuple[list[list[int]], list[int]], free: int, count: int, island: bool
) -> None:
    links, numa = machine
    free &= (1 << len(links)) - 1
    core, twin = _core.Core(1), _reference.LinkClass(links, numa)
    cls = core.define_class(links, numa)
    assert core.islands(cls) == tuple(twin.islands)
    assume(count <= free.bit_count())
    expected = twin.best_on_island(free, count) if island and count else twin.best(free, count)
    assert core.best_gpus(cls, free, count, one_island=island) == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gpu_choice_above_sixteen(data: st.DataObject) -> None:
    links, numa = data.draw(link_classes(20).filter(lambda m: len(m[0]) > 16))
    free = data.draw(st.integers(0, (1 << len(links)) - 1))
    count = data.draw(st.integers(0, free.bit_count()))
    core, twin = _core.Core(1), _reference.LinkClass(links, numa)
    cls = core.define_class(links, numa)
    assert core.best_gpus(cls, free, count) == twin.best(free, count)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8])
def test_dgx1_choices_for_every_free_set(count: int) -> None:
    core, twin = _core.Core(1), _reference.LinkClass(DGX1, [0] * 8)
    cls = core.define_class(DGX1, [0] * 8)
    for free in range(256):
        if free.bit_count() >= count:
            assert core.best_gpus(cls, free, count) == twin.best(free, count)
