"""PreemptParameters=reclaim_licenses, as slurm.conf(5) has it: jobs of lower rank make way for the
licences that they hold."""

from __future__ import annotations

import copy
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.ledger_support import Bench
from unit.test_preempt import QOS, bench, over, run

from gsched.ledger import Ledger
from gsched.model import Job, JobState, Shape
from gsched.model.preempt import REQUEUE, Victim
from gsched.scheduling.explain import Asked, explain
from gsched.scheduling.license_claims import cheapest
from gsched.scheduling.preemption import Candidate
from gsched.wire.messages import CancelJobs

CONF = QOS + "Licenses=matlab:4,ansys:2\nPreemptParameters=reclaim_licenses\n"
ONE = Shape(ntasks=1)


def job(b: Bench, licenses: str, qos: str = "low", **kw: object) -> Job:
    return b.job(licenses=licenses, qos=qos, **{"shape": ONE, **kw})


def test_who_waits_for_licences_gets_those_of_a_job_that_ranks_lower() -> None:
    b = bench(CONF)
    old = job(b, "matlab:2")
    run(b, old)
    b.now += 100
    young = job(b, "matlab:2")
    run(b, young)
    b.now += 50
    high = job(b, "matlab:2", "high")
    b.schedule()
    # The one that loses less is enough; both nodes have room.
    assert (old.way is None, young.way is not None) == (True, True)
    over(b, young)
    b.schedule()
    assert high.state == JobState.RUNNING
    assert high.licenses_alloc == "matlab:2"
    assert (old.state, young.state) == (JobState.RUNNING, JobState.PENDING)


@pytest.mark.parametrize("conf", [CONF.replace("reclaim_licenses", "youngest_first"), CONF])
def test_nobody_goes_for_licences_without_the_parameter_or_in_vain(conf: str) -> None:
    b = bench(conf)
    low, equal = job(b, "matlab:2"), job(b, "matlab:2", "high")
    run(b, low, equal)
    # With those of the low one there are two, and three are wanted.
    high = job(b, "matlab:3", "high")
    b.schedule()
    assert low.way is None
    if conf != CONF:
        assert b.verdict(job(b, "matlab:2", "high")) == "Licenses"
        assert low.way is None
    assert high.state == JobState.PENDING


def test_no_other_job_takes_them_meanwhile() -> None:
    """One that comes first, but may not preempt, waits for the same: what comes free is for the job
    for which others make way, also what does so before all of it is there."""
    b = bench(CONF)
    first, second = job(b, "matlab:2"), job(b, "matlab:2")
    run(b, first, second)
    other = job(b, "matlab:1", "normal")
    high = job(b, "matlab:4", "high")
    assert other.priority > high.priority
    b.schedule()
    assert first.way is not None
    assert second.way is not None
    over(b, first)
    b.schedule()
    assert (high.state, other.state) == (JobState.PENDING, JobState.PENDING)
    over(b, second)
    b.schedule()
    assert (high.state, other.state) == (JobState.RUNNING, JobState.PENDING)


def test_licences_and_room_are_had_from_different_jobs() -> None:
    """All nodes are full; the holder of the licences has too little room: another goes beside it,
    and the rest stays."""
    b = bench(CONF)
    holder = job(b, "ansys:2", shape=Shape(gpus_per_node=1))
    full = [job(b, "", shape=Shape(gpus_per_node=7))]
    full += [job(b, "", shape=Shape(gpus_per_node=8)) for _ in range(3)]
    run(b, holder, *full)
    high = job(b, "ansys:1", "high", shape=Shape(gpus_per_node=8))
    b.schedule()
    gone = [one for one in (holder, *full) if one.way is not None]
    assert holder in gone
    assert len(gone) == 2
    for one in gone:
        over(b, one)
    b.schedule()
    assert high.state == JobState.RUNNING


def test_the_first_choice_that_others_can_make_room_for() -> None:
    b = bench(CONF)
    kept = job(b, "ansys:2", "high")
    low = job(b, "matlab:4")
    run(b, kept, low)
    high = job(b, "ansys:1|matlab:1", "high")
    b.schedule()
    assert low.way is not None
    over(b, low)
    b.schedule()
    assert high.licenses_alloc == "matlab:1"


def test_it_goes_on_after_a_restart_and_is_undone_with_the_job() -> None:
    b = bench(CONF.replace("PreemptType", "PreemptExemptTime=0\nPreemptType"), grace_time=60)
    low = job(b, "matlab:4")
    run(b, low)
    high = job(b, "matlab:4", "high")
    b.schedule()
    assert low.way is not None
    loaded = Ledger.load(
        b.config,
        copy.deepcopy(b.led.meta),
        copy.deepcopy(list(b.led.jobs.values())),
        copy.deepcopy(list(b.led.nodes.values())),
    )
    assert loaded.jobs[high.id].claim == high.claim
    assert loaded.cluster.licenses_left(high.id, int(b.now)).get("matlab") == 0
    b.write(CancelJobs([str(high.id)]))
    assert low.way is None
    assert low.state == JobState.RUNNING


def test_why_names_them() -> None:
    b = bench(CONF, preempt_exempt_time=600)
    low = job(b, "matlab:4")
    run(b, low)
    high = job(b, "matlab:1", "high")
    b.schedule()
    assert low.way is None
    now = int(b.now)
    causes = {one.kind: one for one in explain(b.led, high, Asked(now, now, [])).causes}
    assert list(causes) == ["licenses", "exempt"]
    assert [one.id for one in causes["exempt"].jobs] == [str(low.id)]
    assert causes["exempt"].until == low.start_time + 600


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 3)), max_size=7),
    st.integers(1, 6),
    st.integers(0, 6),
)
def test_the_cheapest_set_is_found(
    jobs: list[tuple[int, int, int]], first: int, second: int
) -> None:
    lacks = {name: count for name, count in (("a", first), ("b", second)) if count}
    holders = [
        (
            Candidate(cost, 0, number, Victim(number, 1, REQUEUE)),
            {name: count for name, count in (("a", a), ("b", b)) if count},
        )
        for number, (cost, a, b) in enumerate(jobs)
    ]
    prices = [
        sum(jobs[n][0] for n in chosen)
        for size in range(len(jobs) + 1)
        for chosen in combinations(range(len(jobs)), size)
        if sum(jobs[n][1] for n in chosen) >= first and sum(jobs[n][2] for n in chosen) >= second
    ]
    found = cheapest(lacks, holders)
    assert (None if found is None else sum(one.cost for one in found)) == min(prices, default=None)
