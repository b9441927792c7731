"""Advance reservations in the core: starts known from arithmetic, the slow twin, and that nobody
outside is ever in a window."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.test_core_reference import SLOW, Both, build, disturb, nodes, plan_options, requests

from gsched import _core
from gsched._core import Core, Placement, Reason, Refusal


def cluster(n_nodes: int, gpus: int = 8, cpus: int = 64) -> Core:
    core = Core(n_nodes)
    links = [[0 if i == j else 18 for j in range(gpus)] for i in range(gpus)]
    cls = core.define_class(links, [0] * gpus)
    for node in range(n_nodes):
        masks = [(0, (1 << gpus) - 1)]
        core.set_node(node, cls=cls, cpus=cpus, mem_mb=1000, gpu_type_masks=masks, partitions=1)
    return core


def estimates(core: Core) -> dict[int, int]:
    keys, times = (memoryview(part).cast("q") for part in core.estimates())
    return dict(zip(keys, times, strict=True))


def both_plans() -> list[dict[str, int]]:
    return [{}, {"plan_jobs": 100, "resolution": 1}]


@pytest.mark.parametrize("plan", both_plans())
def test_who_would_run_into_a_window_waits_until_it_is_over(plan: dict[str, int]) -> None:
    """Maintenance of the only node from 100 to 200. At 40: a job of 60 s ends just in time, one of
    61 s does not, nor does one without a limit."""
    core = cluster(1)
    core.set_reservation(0, [(100, 200)], [(0, -1, 0)], firm=True)
    one = core.request(gpus_per_node=1)
    core.queue_add(1, one, 3, 1, 61)
    core.queue_add(2, one, 2, 2, 0)
    core.queue_add(3, one, 1, 3, 60)
    done = core.schedule(40, **plan)
    assert [start.key for start in done.starts] == [3]
    assert core.verdict(1) == core.verdict(2) == _core.WINDOW
    assert estimates(core)[1] == 200
    core.release(3)
    assert core.schedule(199, **plan).starts == []
    assert [start.key for start in core.schedule(200, **plan).starts] == [1, 2]


@pytest.mark.parametrize("plan", both_plans())
def test_a_window_that_was_there_from_the_beginning_ends(plan: dict[str, int]) -> None:
    core = cluster(1)
    core.set_reservation(0, [(0, 160)], [(0, -1, 0)], firm=True)
    core.queue_add(1, core.request(gpus_per_node=1), 3, 1, 60)
    assert core.schedule(100, **plan).starts == []
    assert estimates(core)[1] == 160


def test_a_window_is_told_to_those_whom_it_concerns() -> None:
    """Four GPUs run until 50, the first in the queue wants all eight then. Of its class, jobs of 60
    and 70 s would put that back; one of 200 s would run into the window besides."""
    core = cluster(1)
    core.allocate(9, [(0, 1, 0, 0b1111)], 50)
    core.set_reservation(0, [(100, 200)], [(0, 0, 0b11110000)])
    core.queue_add(1, core.request(gpus_per_node=8), 9, 1, 10)
    half = core.request(gpus_per_node=4)
    for key, limit in ((2, 60), (3, 200), (4, 70)):
        core.queue_add(key, half, 0, key, limit)
    done = core.schedule(0)
    assert [(r.key, r.at) for r in done.reservations] == [(1, 50)]
    assert [core.verdict(key) for key in (1, 2, 3, 4)] == [
        _core.RESOURCES,
        _core.PRIORITY,
        _core.WINDOW,
        _core.PRIORITY,
    ]


@pytest.mark.parametrize("plan", both_plans())
def test_jobs_of_a_reservation_run_in_it_alone(plan: dict[str, int]) -> None:
    """They wait for it, start with it on its node, and end with it."""
    core = cluster(2)
    core.set_reservation(7, [(100, 200)], [(1, -1, 0)])
    core.queue_add(1, core.request(gpus_per_node=1, reservation=7), 0, 1, 500)
    core.queue_add(2, core.request(gpus_per_node=1, min_nodes=2, reservation=7), 0, 2, 500)
    plan_ = core.schedule(40, **plan)
    assert plan_.starts == [] and core.verdict(1) == core.verdict(2) == _core.RESERVATION
    assert estimates(core)[1] == 100
    assert [(r.key, r.at, r.until) for r in plan_.reservations] == [(1, 100, 200)]
    started = core.schedule(120, **plan).starts
    assert [(s.key, s.placement.nodes[0][0]) for s in started] == [(1, 1)]
    # Two nodes are not in it: that can never be.
    assert core.verdict(2) == _core.NEVER


@pytest.mark.parametrize("plan", both_plans())
def test_a_part_of_a_node(plan: dict[str, int]) -> None:
    """16 CPUs and 4 GPUs of a node with 64 and 8 are kept."""
    core = cluster(1)
    core.set_reservation(0, [(0, 1000)], [(0, 16, 0b1111)])
    outside = core.request(gpus_per_node=1, cpus_per_task=12)
    inside = core.request(gpus_per_node=1, cpus_per_task=8, reservation=0)
    for key in range(1, 7):
        core.queue_add(key, outside, 0, key, 500)
    for key in range(11, 16):
        core.queue_add(key, inside, 0, key, 500)
    started = core.schedule(0, **plan).starts
    # 48 CPUs and 4 GPUs for four of the first, 16 CPUs for two of the others.
    assert [s.key for s in started] == [1, 2, 3, 4, 11, 12]
    gpus = {s.key: s.placement.nodes[0][4] for s in started}
    assert all(gpus[key] & 0b1111 == 0 for key in (1, 2, 3, 4))
    assert all(gpus[key] & ~0b1111 == 0 for key in (11, 12))
    assert estimates(core)[5] == estimates(core)[13] == 500
    assert core.verdict(13) == _core.RESOURCES
    core.check()


def test_estimates_of_reserved_jobs_are_the_windows_own() -> None:
    """Daily windows: the second job of the whole node gets the second day."""
    core = cluster(1)
    day = 86400
    core.set_reservation(0, [(100, 400), (100 + day, 400 + day)], [(0, -1, 0)])
    whole = core.request(gpus_per_node=8, reservation=0)
    for key in (1, 2):
        core.queue_add(key, whole, 0, key, 300)
    core.schedule(0, plan_jobs=10, resolution=1)
    assert estimates(core) == {1: 100, 2: 100 + day}
    # Beyond the exact ones: not before the window.
    core.schedule(0, plan_jobs=1, resolution=1)
    assert estimates(core) == {1: 100, 2: 100}


def test_a_flexible_reservation_keeps_others_out_and_lets_its_own_go_anywhere() -> None:
    core = cluster(2)
    core.set_reservation(0, [(100, 200)], [(0, -1, 0)], flex=True)
    own = core.request(gpus_per_node=8, reservation=0)
    other = core.request(gpus_per_node=8)
    for key, req in ((1, own), (2, other), (3, other)):
        core.queue_add(key, req, 0, key, 500)
    started = {s.key: s.placement.nodes[0][0] for s in core.schedule(0).starts}
    # The first takes its own node, well before its time and beyond it; the third waits.
    assert started == {1: 0, 2: 1}
    core.release(1)
    assert core.schedule(50).starts == []
    core.queue_add(4, own, 9, 4, 500)
    assert [s.key for s in core.schedule(50).starts] == [4]


def test_a_firm_window_keeps_other_reservations_out() -> None:
    for firm, starts in ((True, []), (False, [1])):
        core = cluster(1)
        core.set_reservation(0, [(0, 500)], [(0, -1, 0)])
        core.set_reservation(1, [(100, 200)], [(0, -1, 0)], firm=firm)
        core.queue_add(1, core.request(gpus_per_node=1, reservation=0), 0, 1, 200)
        assert [s.key for s in core.schedule(0).starts] == starts


@pytest.mark.parametrize("plan", both_plans())
@pytest.mark.parametrize("mine", [0, 1])
def test_what_others_keep_on_a_node_is_no_part_of_ones_own(plan: dict[str, int], mine: int) -> None:
    """Two promises of a CPU and two GPUs each, on the same node with 64 and 8: both fit, whichever
    has the lower number."""
    core = cluster(1)
    core.set_reservation(mine, [(0, 1000)], [(0, 1, 0b0011)], firm=True)
    core.set_reservation(1 - mine, [(0, 1000)], [(0, 1, 0b1100)], firm=True)
    core.queue_add(1, core.request(gpus_per_node=2, reservation=mine), 0, 1, 500)
    assert [s.key for s in core.schedule(0, **plan).starts] == [1]
    core.queue_add(2, core.request(gpus_per_node=2, reservation=1 - mine), 0, 2, 500)
    assert [s.key for s in core.schedule(0, **plan).starts] == [2]


def test_a_refusal_counts_nodes_that_are_kept() -> None:
    core = cluster(3)
    core.set_reservation(0, [(100, 200)], [(0, -1, 0), (1, 64, 0xFF)])
    req = core.request(gpus_per_node=1, min_nodes=3)
    answer = core.place(req, 50, 60)
    assert isinstance(answer, Refusal)
    assert answer.reasons == (Reason("reservation", False, 2),)
    assert not answer.never and answer.suited == 1
    assert isinstance(core.place(req, 50, 50), Placement)
    inside = core.place(core.request(gpus_per_node=1, reservation=0), 50, 60)
    assert isinstance(inside, Refusal)
    assert inside.reasons == (Reason("reservation", False, 3),)


def test_a_job_that_waits_for_its_reservation_does_not_stand_before_others() -> None:
    """The first job waits for its window; the second one is the partition's first, and keeps the
    third from taking what it will get at 50."""
    core = cluster(2)
    core.allocate(9, [(0, 1, 0, 0xFF)], 50)
    core.set_reservation(0, [(1000, 2000)], [(1, -1, 0)])
    core.queue_add(1, core.request(gpus_per_node=8, reservation=0), 9, 1, 100)
    core.queue_add(2, core.request(gpus_per_node=8, min_nodes=2, max_nodes=2), 8, 2, 100)
    core.queue_add(3, core.request(gpus_per_node=8), 7, 3, 100)
    plan = core.schedule(0)
    assert plan.starts == []
    assert {r.key: r.at for r in plan.reservations} == {1: 1000, 2: 50}
    assert core.verdict(2) == _core.RESOURCES and core.verdict(3) == _core.PRIORITY


@pytest.mark.parametrize(
    ("spans", "rows", "text"),
    [
        ([(5, 5)], [], "from 5 to 5"),
        ([(0, 5)], [(9, -1, 0)], "node 9"),
        ([(0, 5)], [(0, -2, 0)], "CPUs of a reservation -2"),
        ([(0, 5)], [(0, 1, -1)], "GPUs of a reservation -1"),
        ([(0, 5)], [(0, 1, 0), (0, 2, 0)], "node 0 comes twice"),
        ([(0, 5)], [(0, 1)], r"\(0, 1\)"),
    ],
)
def test_bad_windows_are_refused(spans: Any, rows: Any, text: str) -> None:
    core = cluster(1)
    with pytest.raises(ValueError, match=text):
        core.set_reservation(0, spans, rows)
    with pytest.raises(ValueError, match="reservation -2"):
        core.request(reservation=-2)


# --- the twin


@st.composite
def windows(draw: st.DrawFn, n_nodes: int, flex: bool) -> list[dict[str, Any]]:
    """Reservations: parts of nodes that two keep differ, as those of reservations do that were not
    allowed to overlap; whole nodes may be kept by several."""
    out = []
    for number in range(draw(st.integers(1, 3))):
        starts = draw(st.lists(st.integers(0, 500), min_size=1, max_size=2))
        spans = [(start, start + draw(st.sampled_from([10, 60, 300]))) for start in starts]
        parts = [(0b11 << 2 * number, draw(st.integers(0, 3))), (0, 2)]
        shares = {}
        for node in draw(st.sets(st.integers(0, n_nodes - 1), min_size=1, max_size=3)):
            gpus, cpus = draw(st.sampled_from(parts))
            shares[node] = (node, cpus, gpus)
        out.append({"spans": spans, "nodes": list(shares.values())})
        if draw(st.integers(0, 2)) == 0:
            out[-1]["nodes"] = [(node, -1, 0) for node in shares]
            out[-1]["firm"] = draw(st.booleans())
        if flex and draw(st.integers(0, 3)) == 0:
            out[-1]["flex"] = True
    # A node that one keeps whole is nobody else's.
    taken: set[int] = set()
    for one in out:
        whole = {row[0] for row in one["nodes"] if row[1] < 0}
        one["nodes"] = [row for row in one["nodes"] if row[0] not in taken]
        taken |= whole if not one.get("firm") else set()
    owned = {row[0] for one in out for row in one["nodes"] if row[1] < 0 and not one.get("firm")}
    for one in out:
        one["nodes"] = [r for r in one["nodes"] if r[1] < 0 or r[0] not in owned]
    return out


def lay(both: Both, number: int, window: dict[str, Any]) -> None:
    for core in both:
        core.set_reservation(number, **window)


@SLOW
@given(st.data())
def test_placements_in_windows_are_the_same(data: st.DataObject) -> None:
    cluster = data.draw(st.lists(nodes(), min_size=1, max_size=5))
    both, classes = build(cluster)
    core, twin = both
    found = data.draw(windows(len(cluster), True))
    for number, window in enumerate(found):
        lay(both, number, window)
    keys: list[int] = []
    for step in range(data.draw(st.integers(1, 10))):
        if data.draw(st.integers(0, 3)) == 0:
            disturb(data, both, classes, keys, len(cluster))
        content = data.draw(requests(len(cluster)))
        content["reservation"] = data.draw(st.integers(-1, len(found) - 1))
        req, number = core.request(**content), twin.request(**content)
        when = data.draw(st.integers(0, 500)), data.draw(st.sampled_from([-1, 0, 10, 60, 300]))
        answer = core.place(req, *when)
        if core.can_ever(req) is None or when[1] < 0:
            assert answer == twin.place(number, *when), content
        assert core.can_ever(req) == twin.can_ever(number), content
        assert core.possible(req) == twin.possible(number), content
        if isinstance(answer, Placement):
            rows = [(node, cpus, mem, gpus) for node, cpus, _, mem, gpus in answer.nodes]
            more = {"gpu_milli": answer.gpu_milli, "reservation": content["reservation"]}
            core.allocate(step, rows, end=50 * step, **more)
            twin.allocate(step, rows, end=50 * step, **more)
            keys.append(step)
        core.check()


@settings(SLOW, max_examples=120)
@given(st.data())
def test_passes_with_windows_are_the_same(data: st.DataObject) -> None:
    passes(data, conservative=False)


@settings(SLOW, max_examples=60)
@given(st.data())
def test_conservative_plans_with_windows_are_the_same(data: st.DataObject) -> None:
    passes(data, conservative=True)


def passes(data: st.DataObject, *, conservative: bool) -> None:
    cluster = data.draw(st.lists(nodes(), min_size=1, max_size=4))
    both, classes = build(cluster)
    core, twin = both
    found = data.draw(windows(len(cluster), conservative))
    for number, window in enumerate(found):
        lay(both, number, window)
    contents = data.draw(st.lists(requests(len(cluster), joint=False), min_size=2, max_size=6))
    for content in contents:
        content["reservation"] = data.draw(st.integers(-1, len(found) - 1))
    reqs = [(core.request(**content), twin.request(**content)) for content in contents]
    keys: list[int] = []
    key = 0
    now = 100
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(3, 10))):
            req, number = data.draw(st.sampled_from(reqs))
            key += 1
            row = {
                "priority": data.draw(st.integers(0, 2)),
                "order": data.draw(st.integers(0, 3)),
                "limit_s": data.draw(st.sampled_from([60, 10, 30, 200, 0])),
            }
            core.queue_add(key, req, **row)
            twin.queue_add(key, number, **row)
        options = data.draw(plan_options()) if conservative else {}
        plan = core.schedule(now, **options)
        other = twin.schedule(now, **options)
        assert plan.starts == other.starts
        assert plan.reservations == other.reservations
        assert plan.changed == other.changed
        keys_there, times = (memoryview(part).cast("q") for part in core.estimates())
        assert dict(zip(keys_there, times, strict=True)) == {
            k: job.start for k, job in twin.queue.items()
        }
        core.check()
        keys += [start.key for start in plan.starts]
        for _ in range(data.draw(st.integers(0, 3))):
            disturb(data, both, classes, keys, len(cluster))
        if data.draw(st.integers(0, 3)) == 0:
            number = data.draw(st.integers(0, len(found) - 1))
            lay(both, number, {"spans": [], "nodes": []})
        now += data.draw(st.sampled_from([1, 20, 60]))


# --- nobody outside is in a window


@pytest.mark.parametrize("plan", [{}, {"plan_jobs": 50, "resolution": 10, "keep": 1}])
@pytest.mark.parametrize("seed", range(6))
def test_nobody_outside_is_ever_in_a_window(seed: int, plan: dict[str, int]) -> None:
    """Random jobs inside and outside, which end when their limit says: whoever is not of a
    reservation has nothing of it while it is in force, and leaves its CPUs."""
    rng = random.Random(seed)
    core = cluster(4, cpus=32)
    whole, part, daily = 0, 1, 2
    kept = {
        whole: ([(500, 900)], {0: (-1, 0), 1: (-1, 0)}),
        part: ([(300, 1200)], {2: (8, 0b111)}),
        daily: ([(k, k + 100) for k in range(0, 4000, 400)], {3: (16, 0b11110000)}),
    }
    for number, (spans, shares) in kept.items():
        rows = [(node, cpus, gpus) for node, (cpus, gpus) in shares.items()]
        core.set_reservation(number, spans, rows, firm=number == whole)
    #: key -> (reservation, limit); key -> (reservation, end, nodes)
    asked: dict[int, tuple[int, int]] = {}
    running: dict[int, tuple[int, int, Any]] = {}
    began = [0, 0]
    for now in range(0, 2500, 10):
        for key in [key for key, (_, end, _) in running.items() if end <= now]:
            core.release(key)
            del running[key]
        if now < 1800:
            key = 1 + len(asked)
            resv = rng.choice([-1, -1, whole, part, daily])
            req = core.request(
                gpus_per_node=rng.choice([0, 1, 2, 8]),
                min_nodes=rng.choice([1, 1, 2]),
                cpus_per_task=rng.choice([1, 4, 8]),
                exclusive=rng.random() < 0.1,
                reservation=resv,
            )
            asked[key] = (resv, rng.choice([20, 100, 300]))
            core.queue_add(key, req, 0, key, asked[key][1])
        for start in core.schedule(now, **plan).starts:
            resv, limit = asked[start.key]
            end = now + limit
            if resv >= 0:
                (span,) = [s for s in kept[resv][0] if s[0] <= now < s[1]]
                end = min(end, span[1])
            began[resv >= 0] += 1
            running[start.key] = (resv, end, start.placement.nodes)
        for number, (spans, shares) in kept.items():
            if not any(start <= now < end for start, end in spans):
                assert all(resv != number for resv, _, _ in running.values())
                continue
            for node, (cpus, gpus) in shares.items():
                mine = used = 0
                for resv, _, rows in running.values():
                    for row in rows:
                        if row[0] == node and resv == number:
                            mine += row[1]
                            assert cpus < 0 or not row[4] & ~gpus
                        elif row[0] == node:
                            assert cpus >= 0 and not row[4] & gpus
                            used += row[1]
                if cpus >= 0:
                    assert mine <= cpus and used <= 32 - cpus
        core.check()
    assert min(began) > 20


@pytest.mark.parametrize("plan", both_plans())
def test_memory_that_a_window_keeps_of_part_of_a_node(plan: dict[str, int]) -> None:
    """600 of 1000 MB from 100 to 200: at 50, who needs 401 MB must end before; 400 are there, and
    for those of the reservation all is."""
    core = cluster(1)
    core.set_reservation(0, [(100, 200)], [(0, 1, 0b1, 600)])
    core.queue_add(1, core.request(mem_per_node_mb=401), 9, 1, 60)
    core.queue_add(2, core.request(mem_per_node_mb=400), 8, 2, 60)
    done = core.schedule(50, **plan)
    assert [start.key for start in done.starts] == [2]
    assert core.verdict(1) == _core.WINDOW
    assert estimates(core)[1] == 200
    core.release(2)
    core.queue_add(3, core.request(mem_per_node_mb=900, reservation=0), 10, 3, 60)
    assert [start.key for start in core.schedule(100, **plan).starts] == [3]
