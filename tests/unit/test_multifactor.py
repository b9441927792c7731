"""Priorities: factors and sums as a real Slurm 22.05 showed them with sprio, and their life in the
ledger."""

from __future__ import annotations

from array import array

import pytest
from unit.ledger_support import CONF, Bench

from gsched import _core
from gsched.config import parse_config
from gsched.ledger import Ledger, TakeOver, ranking
from gsched.model import Job, JobSpec, Shape
from gsched.model.policy import NORMAL, Assoc, Qos
from gsched.policy import Book, multifactor
from gsched.policy.multifactor import Columns, Multifactor
from gsched.wire.messages import CancelJobs, UpdateJob

BASIC = "PriorityType=priority/basic\n"
#: the cluster of the recordings: weights, and partition debug with a job factor of 10
WEIGHTS = """PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightAssoc=500
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=2000
PriorityWeightTRES=cpu=1000,mem=2000,gres/gpu=3000
PriorityMaxAge=7-0
"""
PEER = CONF.replace(BASIC, WEIGHTS).replace("MaxTime=30", "PriorityJobFactor=10 MaxTime=30")


def peer(*flags: str, small: bool = False) -> Multifactor:
    text = PEER + (f"PriorityFlags={','.join(flags)}\n" if flags else "")
    config = parse_config({"slurm.conf": text + ("PriorityFavorSmall=YES\n" if small else "")})
    book = Book(Book().first)
    for name, number, priority in (("normal", 1, 10), ("low", 2, 0), ("high", 3, 100)):
        book.put(Qos(number, name, priority=priority))
    for one in (
        Assoc(3, "research", parent="root"),
        Assoc(4, "prod", parent="root", priority=7),
        Assoc(6, "research", "nia"),
        Assoc(7, "research", "olek", priority=10),
        Assoc(9, "prod", "olek"),
    ):
        book.put(one)
    return Multifactor(config, book, multifactor.lineup(config))


def job(assoc: int = 6, qos: str = "normal", limit: int = 3600, **shape: object) -> Job:
    shape.setdefault("mem_per_cpu", None if "mem_per_node" in shape else 2000)
    spec = JobSpec(shape=Shape(**shape), qos=qos)  # type: ignore[arg-type]
    return Job(
        1,
        1,
        1,
        "nia",
        "nia",
        spec,
        assoc_id=assoc,
        time_limit=limit,
        eligible_time=1,
        submit_time=1,
    )


#: job, partition, fair share -> what sprio showed: priority, association, fair share, size,
#: partition, QOS, TRES (22.05, sprio -l)
RECORDED = [
    (job(min_nodes=2, ntasks=32), "gpu", 1 / 7, (3228, 0, 1429, 500, 100, 200, "cpu=500,mem=500")),
    (job(ntasks=2), "gpu", 1 / 7, (1931, 0, 1429, 141, 100, 200, "cpu=31,mem=31")),
    (job(), "gpu", 1 / 7, (1892, 0, 1429, 133, 100, 200, "cpu=16,mem=16")),
    (
        job(min_nodes=4, nodes_set=True, exclusive=1),
        *("gpu", 1 / 7, (2853, 0, 1429, 1000, 100, 200, "cpu=62,mem=62")),
    ),
    (
        job(ntasks=3, mem_per_node=20000, gpus_total=3),
        *("gpu", 1 / 7, (2361, 0, 1429, 148, 100, 200, "cpu=47,mem=156,gres/gpu=281")),
    ),
    (job(ntasks=3, mem_per_node=0), "gpu", 1 / 7, (2423, 0, 1429, 148, 100, 200, "cpu=47,mem=500")),
    (
        job(9, ntasks=8, mem_per_cpu=1000, gpus_per_node=2, gpu_type="h100"),
        *("gpu", 5 / 7, (8355, 350, 7143, 188, 100, 200, "cpu=125,mem=62,gres/gpu=188")),
    ),
    (job(7, ntasks=16), "debug", 4 / 7, (9664, 500, 5714, 250, 1000, 200, "cpu=1000,mem=1000")),
    (job(9, ntasks=2), "gpu", 5 / 7, (7995, 350, 7143, 141, 100, 200, "cpu=31,mem=31")),
    (job(9, ntasks=2), "debug", 5 / 7, (9083, 350, 7143, 141, 1000, 200, "cpu=125,mem=125")),
]


@pytest.mark.parametrize(("one", "partition", "fair", "shown"), RECORDED)
def test_as_recorded(one: Job, partition: str, fair: float, shown: tuple[object, ...]) -> None:
    rules = peer()
    weights = rules.weights
    found = rules.factors(one, partition, 1.0, {one.assoc_id: fair})
    # The recorded cluster's largest QOS priority was 100.
    tres = ",".join(f"{name}={weights.tres[name] * v:.0f}" for name, v in found.tres.items())
    figures = [
        weights.assoc * found.assoc,
        weights.fair_share * found.fair_share,
        weights.job_size * found.job_size,
        weights.part * found.part,
        weights.qos * found.qos,
    ]
    whole = multifactor.whole(multifactor.total(found, weights))
    assert (whole, *(float(f"{one:.0f}") for one in figures), tres) == shown


SIZES = [
    # nodes, tasks, minutes, exclusive: plain, favouring small ones, relative to time, both
    (1, 2, 60, 0, (0.140625, 0.859375, 1 / 240, 1 - 1 / 240)),
    (4, 4, 60, 1, (1.0, 0.0, 1 / 60, 1 - 1 / 60)),
    (2, 32, 100, 0, (0.5, 0.5, 0.005, 0.995)),
    (2, 2, 100, 1, (0.5, 0.5, 0.005, 0.995)),
    (1, 3, 60, 0, (0.1484375, 0.8515625, 1 / 240, 1 - 1 / 240)),
]


@pytest.mark.parametrize(("nodes", "tasks", "minutes", "exclusive", "shown"), SIZES)
def test_job_sizes_as_recorded(
    nodes: int, tasks: int, minutes: int, exclusive: int, shown: tuple[float, ...]
) -> None:
    one = job(limit=60 * minutes, min_nodes=nodes, ntasks=tasks, exclusive=exclusive)
    time = "SMALL_RELATIVE_TO_TIME"
    rules = (peer(), peer(small=True), peer(time), peer(time, small=True))
    assert [r.factors(one, "gpu", 1.0, {}).job_size for r in rules] == pytest.approx(shown)


def test_factors_that_are_not_normal() -> None:
    """NO_NORMAL_ALL: job 16 of the recording."""
    found = peer("NO_NORMAL_ALL").factors(job(ntasks=2), "gpu", 1.0, {})
    assert (found.part, found.qos, found.assoc) == (1, 10, 0)
    assert found.tres == {"cpu": 2, "mem": 4000}


def test_age() -> None:
    assert multifactor.age(1000.0, 1000.0 + 44, 604800.0) == pytest.approx(0.0000728, abs=5e-8)
    assert multifactor.age(0.0, 1e9, 604800.0) == 1.0
    assert multifactor.age(-1.0, 1e9, 604800.0) == 0.0
    rules = peer()
    held = job()
    held.eligible_time = 0
    assert rules.since(held) == -1.0
    assert peer("ACCRUE_ALWAYS").since(held) == 1.0


def test_the_sweep_gives_what_each_job_gets_by_itself() -> None:
    rules = peer()
    fair = {1: 0.25, 2: 1.0}
    all_of = [
        Columns(-1, 100.7 * n, float(n * 1000 - 5000), n % 3) if n % 5 else Columns(n, 0.0, -1.0, 0)
        for n in range(50)
    ]
    now = 20000.0
    last = array("q", [0] * 50)
    for place, one in enumerate(all_of):
        if one.fixed >= 0:
            last[place] = one.fixed
    last[7] = -1
    weights = rules.weights
    changed = _core.sweep(
        now,
        weights.max_age,
        weights.age,
        weights.fair_share,
        multifactor.MOST,
        False,
        array("q", [one.fixed for one in all_of]),
        array("d", [one.static for one in all_of]),
        array("d", [one.since for one in all_of]),
        array("q", [one.assoc_id for one in all_of]),
        array("d", [0.0, 0.25, 1.0]),
        last,
    )
    for place, one in enumerate(all_of):
        if place == 7:
            assert (last[place], changed[place]) == (-1, 0)
            continue
        assert last[place] == multifactor.priority(one, weights, now, fair)


# ---- in the ledger -------------------------------------------------------------------------------

AGE = (
    CONF.replace(
        BASIC,
        "PriorityType=priority/multifactor\nPriorityWeightAge=604800\nPriorityWeightPartition=1000\n"
        "PriorityMaxAge=7-0\nPriorityCalcPeriod=5\n",
    )
    .replace("MaxTime=30", "PriorityJobFactor=2 MaxTime=30")
    .replace("Timeout=60", "Timeout=6000")
)


def blocked(conf: str = AGE) -> Bench:
    """All nodes are taken."""
    b = Bench(conf)
    b.job(shape=Shape(min_nodes=4, nodes_set=True, exclusive=1))
    b.schedule()
    return b


def test_waiting_raises_a_priority_at_every_recalculation() -> None:
    """Half of the partitions' largest factor, and one for each second of age."""
    b = blocked()
    one = b.job()
    assert one.priority == 500
    b.now += 299
    b.tick()
    assert ranking.live(b.led, one) == 500
    b.now += 2
    out = b.tick()
    assert ranking.live(b.led, one) == 801
    # The record says what it said; readers are told.
    assert (one.priority, out.ranks[one.id]) == (500, 801)


def test_a_new_job_gets_behind_those_that_have_waited() -> None:
    b = blocked()
    first = b.job()
    b.now += 301
    b.tick()
    later = b.job(partitions=("debug",))
    assert later.priority == 1000
    assert ranking.live(b.led, first) == 801


def test_held_jobs_have_none_and_do_not_age() -> None:
    b = blocked()
    one = b.job(hold=True)
    assert one.priority == 0
    b.now += 1000
    b.tick()
    b.write(UpdateJob([str(one.id)], "release"))
    assert (one.priority, ranking.live(b.led, one)) == (500, 500)


def test_what_a_job_has_waited_can_be_forgotten() -> None:
    b = blocked()
    one = b.job()
    b.now += 5000
    b.tick()
    grown = ranking.live(b.led, one)
    assert grown > 500
    b.write(UpdateJob([str(one.id)], "update", {"resetaccruetime": ""}))
    assert ranking.live(b.led, one) == 500
    b.now += 5000
    b.tick()
    assert ranking.live(b.led, one) == grown


def test_a_priority_that_was_set_stays() -> None:
    b = blocked()
    one = b.job()
    b.write(UpdateJob([str(one.id)], "update", {"priority": "77"}), 0)
    b.now += 1000
    b.tick()
    assert (one.priority, ranking.live(b.led, one)) == (77, 77)


def test_nice_and_site_factor() -> None:
    b = blocked()
    one = b.job()
    b.write(UpdateJob([str(one.id)], "update", {"nice": "100"}))
    assert one.priority == 400
    b.write(UpdateJob([str(one.id)], "update", {"sitefactor": "30"}), 0)
    assert one.priority == 430
    reply = b.write(UpdateJob([str(one.id)], "update", {"sitefactor": "3000"}))
    assert reply.errors == [(str(one.id), "Access/permission denied")]  # type: ignore[union-attr]
    b.write(UpdateJob([str(one.id)], "update", {"nice": "100000"}))
    assert one.priority == 1


def test_the_top_one_goes_before_its_equals() -> None:
    b = blocked()
    first, last = b.job(), b.job()
    assert first.priority == last.priority == 500
    b.write(UpdateJob([str(last.id)], "top"), 0)
    assert ranking.live(b.led, last) > ranking.live(b.led, first)


def test_a_job_keeps_the_priority_that_it_starts_with() -> None:
    b = Bench(AGE)
    one = b.job(begin=int(b.now) + 100)
    b.now += 401
    b.tick()
    assert ranking.live(b.led, one) == 801
    out = b.schedule()
    assert (one.start_time, one.priority) == (int(b.now), 801)
    assert out.ranks == {one.id: 0}


def test_incr_only() -> None:
    b = blocked(AGE + "PriorityFlags=INCR_ONLY\nPriorityWeightFairshare=1000\n")
    one = b.job()
    before = ranking.live(b.led, one)
    b.led.ranking.fair = {one.assoc_id: 0.0}
    b.now += 301
    b.tick()
    assert ranking.live(b.led, one) >= before


def test_a_restart_does_not_change_priorities() -> None:
    b = blocked()
    jobs = [b.job(), b.job(partitions=("debug",)), b.job(nice=5), b.job(hold=True)]
    b.now += 301
    b.tick()
    b.now += 20
    again = Ledger.load(
        b.config,
        b.led.meta,
        b.led.jobs.values(),
        b.led.nodes.values(),
        policy_records=b.led.book.records(),
    )
    again.apply(TakeOver(), b.now)
    ranking.recalculate(b.led, b.now, b.tick())
    for one in jobs:
        assert ranking.live(again, one) == ranking.live(b.led, one)


def test_usage_of_an_ended_job_is_recorded_with_its_end() -> None:
    """4 nodes of 16 CPUs for 100 seconds, of which 40 were spent suspended."""
    b = Bench(AGE + "PriorityDecayHalfLife=0\nPriorityUsageResetPeriod=YEARLY\n")
    book = b.led.book
    book.put(Assoc(50, "lab", parent="root"))
    book.put(Assoc(51, "lab", "user"))
    one = b.job(account="lab", shape=Shape(min_nodes=4, nodes_set=True, exclusive=1))
    assert one.assoc_id == 51
    b.schedule()
    one.configuring = False
    b.now += 30
    b.write(UpdateJob([str(one.id)], "suspend"), 0)
    assert book.used[51].tres["billing"] == 64 * 30
    b.now += 40
    assert b.led.meter.used(50, b.now).tres["billing"] == 64 * 30
    b.write(UpdateJob([str(one.id)], "resume"), 0)
    b.now += 30
    assert b.led.meter.used(50, b.now).tres["billing"] == 64 * 60
    out = b.apply_write(CancelJobs([str(one.id)]), 0)
    assert {key for table, key in out.puts if table == "used"}
    for number in (1, 50, 51):
        assert book.used[number].tres["billing"] == 64 * 60
    assert book.used[51].wall == 60
    assert book.used[NORMAL].by_user["user"]["cpu"] == 64 * 60
