"""The worked examples of Slurm's documentation on priorities, fair share, limits and QOS, with its
figures: slurm.schedmd.com/{priority_multifactor,priority_multifactor3,classic_fair_share,fair_tree,
resource_limits,qos}.html, versions 25.11 and 26.05. Most of them are played through a whole ledger:
jobs are submitted, time passes, and priorities, reasons and usage are those of the document."""

from __future__ import annotations

import math
from typing import Any

import pytest
from unit.ledger_support import CONF, Bench
from unit.test_limits import UIDS, assoc, bench, qos, run, submit

from gsched.ledger import accounts, policy_changed, ranking
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobSpec, JobState, Shape
from gsched.model.policy import Account, Assoc, PolicyRecord, Qos, Used, User
from gsched.policy import Book
from gsched.policy.fairshare import classic, fair_tree
from gsched.wire.messages import CancelJobs, Done, Refused, SubmitJob, UpdateJob

#: no factor counts but those that are added
NO_FACTORS = (
    "PriorityWeightFairshare=0\nPriorityWeightAge=0\nPriorityWeightQOS=0\n"
    "PriorityWeightPartition=0\nPriorityWeightJobSize=0\n"
)


def multifactor(*lines: str) -> str:
    """A configuration whose later lines win."""
    kept = {line.partition("=")[0]: line for line in (*NO_FACTORS.split(), *lines)}
    conf = CONF.replace("PriorityType=priority/basic\n", "PriorityType=priority/multifactor\n")
    conf = conf.replace("SlurmdTimeout=60", "SlurmdTimeout=60000000")
    return conf + "\n".join(kept.values()) + "\n"


def job(made: Bench, user: str = "ana", **spec: Any) -> Job:
    whole = SubmitJob(JobSpec(**{"shape": Shape(), **spec}), b"#!/bin/sh\n", b"", user, "users")
    reply = made.write(whole, UIDS.get(user, 2000))
    assert isinstance(reply, Done), reply
    return made.led.jobs[reply.value]


def ranked(made: Bench, name: str, priority: int) -> None:
    """What `sacctmgr modify qos NAME set Priority=` does."""
    qos(made, name, priority=priority)
    policy_changed.changed(made.led, made.now, Outcome())


# ---- the classic algorithm -----------------------------------------------------------------------

#: account or user of the example -> number, account, user, parent, shares, usage (parts of all)
EXAMPLE: list[tuple[int, str, str, str, int, float]] = [
    (10, "a", "", "root", 40, 0.45),
    (11, "d", "", "root", 60, 0.25),
    (12, "b", "", "a", 30, 0.2),
    (13, "c", "", "a", 10, 0.25),
    (14, "e", "", "d", 25, 0.25),
    (15, "f", "", "d", 35, 0.0),
    (21, "b", "user1", "", 1, 0.2),
    (22, "c", "user2", "", 1, 0.25),
    (23, "c", "user3", "", 1, 0.0),
    (24, "e", "user4", "", 1, 0.25),
    (25, "f", "user5", "", 1, 0.0),
]
#: normalised shares, effective usage, fair share
FIGURES = {
    21: (0.3, 0.3875, 0.408479),
    22: (0.05, 0.275, 0.022097),
    23: (0.05, 0.15, 0.125000),
    24: (0.25, 0.25, 0.500000),
    25: (0.35, 0.1458, 0.749154),
}
#: what is missing to the whole has been used by those that are gone
WHOLE = 1_000_000.0


def example_records() -> list[PolicyRecord]:
    found: list[PolicyRecord] = [
        Assoc(1, "root", qos=("normal",)),
        Assoc(2, "root", "root", shares=0),
    ]
    for number, account, user, parent, shares, _ in EXAMPLE:
        found.append(Assoc(number, account, user, parent=parent, shares=shares))
        found.append(User(user, account) if user else Account(account))
    return found


def test_classic_example() -> None:
    """classic_fair_share.html, "Example", with the effective usage of its accounts."""
    book = Book([*Book().first, *example_records()])
    usage = {number: WHOLE * part for number, *_, part in EXAMPLE} | {1: WHOLE}
    found = classic(book, usage)
    effective = {10: 0.45, 11: 0.25, 12: 0.3875, 13: 0.3, 14: 0.25, 15: 0.1458}
    for number, value in effective.items():
        assert found[number].effective == pytest.approx(value, abs=5e-5)
    for number, (shares, used, factor) in FIGURES.items():
        assert found[number].norm_shares == pytest.approx(shares)
        assert found[number].effective == pytest.approx(used, abs=5e-5)
        assert found[number].factor == pytest.approx(factor, abs=5e-7)


def test_classic_example_as_priorities() -> None:
    """The same with jobs: "if all 5 users were to submit a job ..., user 5's job would be granted
    the highest scheduling priority"."""
    conf = multifactor(
        *("PriorityFlags=NO_FAIR_TREE", "PriorityWeightFairshare=1000000"),
        *("PriorityDecayHalfLife=0", "PriorityUsageResetPeriod=YEARLY", "PriorityCalcPeriod=1"),
    )
    made = Bench("AccountingStorageEnforce=associations\n" + conf.replace("State=UP", "State=DOWN"))
    for record in example_records():
        accounts.put(made.led, record, Outcome())
    for number, *_, part in [*EXAMPLE, (1, 1.0)]:
        used = Used(tres={"billing": WHOLE * part}, at=made.now)
        accounts.put_used(made.led, number, used, Outcome())
    made.now += 60
    made.tick()
    jobs = {number: job(made, user) for number, _, user, *_ in EXAMPLE if user}
    for number, one in jobs.items():
        assert one.priority == pytest.approx(1e6 * FIGURES[number][2], abs=1)
    assert max(jobs.values(), key=lambda one: one.priority) is jobs[25]


def test_sole_users_of_an_account() -> None:
    """ "If there are 10 users given equal shares in Account A3, they will each be allocated 1% of
    the machine": A3 has 10% of it."""
    made = Book(Book().first)
    made.put(Assoc(2, "root", "root", shares=0))
    for number, (name, parent, shares) in enumerate(
        [("a", "root", 40), ("rest", "root", 60), ("a3", "a", 10), ("a1", "a", 30)], 10
    ):
        made.put(Assoc(number, name, parent=parent, shares=shares))
    for number in range(10):
        made.put(Assoc(30 + number, "a3", f"u{number}"))
    found = classic(made, {})
    assert {round(found[30 + n].norm_shares, 12) for n in range(10)} == {0.01}
    # "if user 2 had been allocated 4 shares instead of 1, ... .08 normalized shares"
    book = Book([*Book().first, *example_records()])
    book.put(Assoc(22, "c", "user2", shares=4))
    assert classic(book, {})[22].norm_shares == pytest.approx(0.08)


def test_half_a_machine_well_used() -> None:
    """F = 2**(-U/S/d): who has used exactly what he was allocated has 0.5; with d = 2 2**-0.5."""
    made = Book(Book().first)
    made.put(Assoc(2, "root", "root", shares=0))
    for number, name in ((10, "a"), (11, "b")):
        made.put(Assoc(number, name, parent="root"))
        made.put(Assoc(number + 10, name, f"u{number}"))
    usage = {1: 100.0, 10: 50.0, 20: 50.0, 11: 50.0, 21: 50.0}
    assert classic(made, usage)[20].factor == 0.5
    assert classic(made, usage, 2.0)[20].factor == pytest.approx(2**-0.5)


def test_everybody_with_parent_has_the_accounts_factor() -> None:
    """ "If all users in an account are configured with FairShare=parent ... all the jobs drawing
    from that account will get the same fairshare priority, based on the accounts total usage"."""
    book = Book([*Book().first, *example_records()])
    for number, user in ((22, "user2"), (23, "user3")):
        book.put(Assoc(number, "c", user, shares=-1))
    usage = {number: WHOLE * part for number, *_, part in EXAMPLE} | {1: WHOLE}
    found = classic(book, usage)
    # Of account C itself: effective usage 0.3, shares 0.1.
    assert found[22].factor == found[23].factor == pytest.approx(2 ** (-0.3 / 0.1))


# ---- without depth -------------------------------------------------------------------------------


def test_depth_oblivious() -> None:
    """priority_multifactor3.html: first-level accounts have R = U/S; a child that has used two
    thirds of its share where all have used twice theirs has the local ratio 1/3, and
    R = Rparent * rl^k with k = 1/(1+(5 ln Rparent)^2) where they differ in direction."""
    made = Book(Book().first)
    made.put(Assoc(2, "root", "root", shares=0))
    for number, name, parent in (
        (10, "a", "root"),
        (11, "b", "root"),
        (12, "a1", "a"),
        (13, "a2", "a"),
    ):
        made.put(Assoc(number, name, parent=parent))
    # a has half of the shares and has used all; of that a1 a sixth: 2/3 of its quarter.
    usage = {1: 120.0, 10: 120.0, 12: 20.0, 13: 100.0}
    found = classic(made, usage, oblivious=True)
    assert found[10].factor == pytest.approx(2**-2)
    ratio = (20 / 120 / 0.25) / (1.0 / 0.5)
    assert ratio == pytest.approx(1 / 3)
    k = 1 / (1 + (5 * math.log(2)) ** 2)
    assert found[12].factor == pytest.approx(2 ** -(2 * ratio**k))
    # The other one is above its share as its account is: k stays 1, R = U/S.
    assert found[13].factor == pytest.approx(2 ** -(100 / 120 / 0.25))


# ---- Fair Tree -----------------------------------------------------------------------------------


def grown(usage: dict[int, float], *records: Assoc) -> dict[int, Any]:
    """Fair Tree over these associations; `usage` of users, accounts have the sum."""
    made = Book(Book().first)
    made.drop(made.assocs[2])
    for record in records:
        made.put(record)
    whole: dict[int, float] = {}
    for number, value in usage.items():
        for one in made.chain(made.assocs[number]):
            whole[one.id] = whole.get(one.id, 0.0) + value
    return fair_tree(made, whole)


def test_two_users_below_one_account() -> None:
    """fair_tree.html, "Overview for End Users": root => Acct1 => Acct12 => UserA and root => Acct1
    => Acct16 => UserB: if UserB's FairShare is higher, Acct16's Level FS is."""
    found = grown(
        {20: 300.0, 21: 100.0},
        *(Assoc(10, "acct1", parent="root"), Assoc(12, "acct12", parent="acct1")),
        *(Assoc(16, "acct16", parent="acct1"), Assoc(20, "acct12", "usera")),
        Assoc(21, "acct16", "userb"),
    )
    # LF = S / U with S = 1/2 each, U = 3/4 and 1/4.
    assert (found[12].level, found[16].level) == (pytest.approx(2 / 3), 2.0)
    assert (found[20].factor, found[21].factor) == (0.5, 1.0)


def test_a_better_account_outranks_whatever_its_users_did() -> None:
    """ "All users from a higher priority account receive a higher fair share factor than all users
    from a lower priority account." The ranking is (rank-- / user_assoc_count) in preorder."""
    found = grown(
        {20: 90.0, 21: 0.0, 22: 5.0, 23: 100.0},
        *(Assoc(10, "a", parent="root", shares=3), Assoc(11, "b", parent="root", shares=1)),
        *(Assoc(20, "a", "u1"), Assoc(21, "a", "u2"), Assoc(22, "b", "u3"), Assoc(23, "b", "u4")),
    )
    # a: 3/4 over 90/195, b: 1/4 over 105/195.
    assert found[10].level == pytest.approx(0.75 / (90 / 195))
    assert found[11].level == pytest.approx(0.25 / (105 / 195))
    assert [found[number].factor for number in (21, 20, 22, 23)] == [1.0, 0.75, 0.5, 0.25]


def test_ties() -> None:
    """fair_tree.html, "Ties": sibling users share a rank; a user that ties with an account has the
    rank of its best user; the children of tied accounts are one list."""
    users = Assoc(20, "root", "u1"), Assoc(21, "root", "u2")
    found = grown({20: 10.0, 21: 10.0}, *users)
    assert (found[20].factor, found[21].factor) == (1.0, 1.0)
    found = grown(
        {20: 40.0, 22: 30.0, 23: 10.0},
        *(Assoc(20, "root", "u1"), Assoc(10, "a", parent="root")),
        *(Assoc(22, "a", "u2"), Assoc(23, "a", "u3")),
    )
    assert found[20].level == found[10].level
    assert (found[20].factor, found[23].factor, found[22].factor) == (1.0, 1.0, 1 / 3)
    found = grown(
        {20: 30.0, 21: 10.0, 22: 35.0, 23: 5.0},
        *(Assoc(10, "a", parent="root"), Assoc(11, "b", parent="root")),
        *(Assoc(20, "a", "u1"), Assoc(21, "a", "u2"), Assoc(22, "b", "u3"), Assoc(23, "b", "u4")),
    )
    assert [found[number].factor for number in (23, 21, 20, 22)] == [1.0, 0.75, 0.5, 0.25]


# ---- the sum of the factors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "figures"), [((), (5000, 2500)), (("NO_NORMAL_PART",), (100_000, 50_000))]
)
def test_partitions_of_20_and_10(flags: tuple[str, ...], figures: tuple[int, int]) -> None:
    """priority_multifactor.html, "Job Priority Factors In General"."""
    conf = multifactor("PriorityWeightPartition=5000", *(f"PriorityFlags={one}" for one in flags))
    conf = conf.replace("PartitionName=gpu", "PartitionName=gpu PriorityJobFactor=20")
    conf = conf.replace("PartitionName=debug", "PartitionName=debug PriorityJobFactor=10")
    made = Bench(conf.replace("State=UP", "State=DOWN"))
    jobs = [job(made, partitions=(name,), time_limit=60) for name in ("gpu", "debug")]
    assert tuple(one.priority for one in jobs) == figures
    same = Bench(
        multifactor(
            "PriorityWeightPartition=5000", *(f"PriorityFlags={one[:10]}ALL" for one in flags)
        )
        .replace("PartitionName=gpu", "PartitionName=gpu PriorityJobFactor=20")
        .replace("PartitionName=debug", "PartitionName=debug PriorityJobFactor=10")
        .replace("State=UP", "State=DOWN")
    )
    jobs = [job(same, partitions=(name,), time_limit=60) for name in ("gpu", "debug")]
    assert tuple(one.priority for one in jobs) == figures


def test_the_largest_priority_is_the_sum_of_the_weights() -> None:
    """Fair share 5000, job size and age 1000: "the maximum possible priority would be 7000"."""
    conf = multifactor(
        *("PriorityWeightFairshare=5000", "PriorityWeightJobSize=1000", "PriorityWeightAge=1000"),
        *("PriorityMaxAge=7-0", "PriorityCalcPeriod=5"),
    )
    made = bench("AccountingStorageEnforce=associations\n", conf.replace("State=UP", "State=DOWN"))
    made.now += 300
    made.tick()
    # All nodes, and nobody has used anything.
    one = job(made, shape=Shape(min_nodes=4, nodes_set=True, exclusive=1))
    assert one.priority == 6000
    made.now += 14 * 86400
    made.tick()
    assert ranking.live(made.led, one) == 7000


@pytest.mark.parametrize(
    ("small", "shape", "limit", "size"),
    [
        # "a full-system job with a time limit of one will receive a job size factor of 1.0"
        (False, Shape(min_nodes=4, nodes_set=True, exclusive=1), 60, 1000),
        (False, Shape(min_nodes=4, nodes_set=True, exclusive=1), 600, 100),
        # "while a tiny job with a large time limit will receive ... close to 0.0"
        (False, Shape(), 7 * 86400, 0),
        (True, Shape(min_nodes=4, nodes_set=True, exclusive=1), 60, 0),
    ],
)
def test_small_relative_to_time(small: bool, shape: Shape, limit: int, size: int) -> None:
    lines = ["PriorityWeightJobSize=1000", "PriorityFlags=SMALL_RELATIVE_TO_TIME"]
    lines += ["PriorityFavorSmall=YES"] if small else []
    made = Bench(multifactor(*lines).replace("State=UP", "State=DOWN"))
    # Of a job that is not held it is at least 1.
    assert job(made, shape=shape, time_limit=limit).priority == max(size, 1)


#: CPUs, GiB -> what is billed for the sum, for the largest (whole numbers, as Slurm shows it)
BILLED = [((1, 60), 16, None), ((16, 1), 16, None), ((16, 60), 31, None)]
BILLED += [((1, 60), None, 15), ((15, 1), None, 15), ((16, 64), None, 16)]


@pytest.mark.parametrize(("asked", "whole", "largest"), BILLED)
def test_billing(asked: tuple[int, int], whole: int | None, largest: int | None) -> None:
    """TRESBillingWeights=CPU=1.0,Mem=0.25G on nodes of 16 CPUs and 64 GiB."""
    conf = multifactor(*(["PriorityFlags=MAX_TRES"] if largest is not None else []))
    conf = conf.replace("RealMemory=64000", "RealMemory=65536").replace(
        "PartitionName=gpu", "PartitionName=gpu TRESBillingWeights=CPU=1.0,Mem=0.25G"
    )
    made = Bench(conf, register=False)
    cpus, memory = asked
    one = job(made, shape=Shape(ntasks=cpus, mem_per_node=memory * 1024))
    assert one.billing_asked == (whole if largest is None else largest)


@pytest.mark.parametrize("flags", [(), ("ACCRUE_ALWAYS",)])
def test_jobs_that_may_not_start_age_with_accrue_always_alone(flags: tuple[str, ...]) -> None:
    """The "age factor for a dependent job will not change while it waits"; ACCRUE_ALWAYS: the
    "priority age factor will be increased despite job dependencies or holds"."""
    lines = [f"PriorityFlags={one}" for one in flags]
    conf = multifactor("PriorityWeightAge=604800", "PriorityCalcPeriod=1", *lines)
    made = bench("AccountingStorageEnforce=associations\n", conf.replace("State=UP", "State=DOWN"))
    first = job(made)
    waits = job(made, dependency=f"afterany:{first.id}")
    later = job(made, begin=int(made.now) + 10_000)
    held = job(made, hold=True)
    made.now += 100
    made.tick()
    ages = [ranking.live(made.led, one) for one in (first, waits, later)]
    assert ages == ([100] * 3 if flags else [100, 1, 1])
    made.write(UpdateJob([str(held.id)], "release"), 0)
    assert ranking.live(made.led, held) == (100 if flags else 1)


@pytest.mark.parametrize("flags", [(), ("CALCULATE_RUNNING",)])
@pytest.mark.parametrize("stands", [False, True])
def test_running_and_suspended_jobs(flags: tuple[str, ...], stands: bool) -> None:
    """CALCULATE_RUNNING: "priorities will be recalculated not only for pending jobs, but also
    running and suspended jobs": the QOS gets another priority while the job runs."""
    lines = [f"PriorityFlags={one}" for one in flags]
    conf = multifactor("PriorityWeightQOS=1000", "PriorityCalcPeriod=1", *lines)
    made = bench("AccountingStorageEnforce=associations\n", conf)
    ranked(made, "normal", priority=50)
    ranked(made, "gold", priority=100)
    one = job(made)
    made.schedule()
    one.configuring = False
    assert (one.state, one.priority) == (JobState.RUNNING, 500)
    if stands:
        made.write(UpdateJob([str(one.id)], "suspend"), 0)
        assert one.state == JobState.SUSPENDED
    ranked(made, "normal", priority=100)
    made.now += 60
    out = made.tick()
    assert out.ranks.get(one.id, 500) == (1000 if flags else 500)


def test_priorities_only_rise_with_incr_only() -> None:
    """INCR_ONLY: "Job priority will never decrease in value"."""
    conf = multifactor("PriorityWeightQOS=1000", "PriorityCalcPeriod=1", "PriorityFlags=INCR_ONLY")
    made = bench("AccountingStorageEnforce=associations\n", conf.replace("State=UP", "State=DOWN"))
    ranked(made, "gold", priority=100)
    ranked(made, "normal", priority=50)
    one = job(made)
    assert one.priority == 500
    for other, wanted in ((20, 500), (80, 800), (10, 800)):
        ranked(made, "normal", priority=other)
        made.now += 60
        made.tick()
        assert ranking.live(made.led, one) == wanted


# ---- resource limits -----------------------------------------------------------------------------


def test_an_account_is_stricter_than_its_user() -> None:
    """resource_limits.html: "A more restrictive limit at the Account level will be enforced before
    a less restrictive limit at the User level", for Grp limits alone."""
    made = bench()
    assoc(made, 20, grp_jobs=10)
    assoc(made, 10, grp_jobs=3)
    jobs = [submit(made) for _ in range(5)]
    assert run(made, *jobs) == ["R"] * 3 + ["AssocGrpJobsLimit"] * 2
    made = bench()
    assoc(made, 20, max_jobs=4)
    assoc(made, 10, max_jobs=3)
    jobs = [submit(made) for _ in range(5)]
    assert run(made, *jobs) == ["R"] * 4 + ["AssocMaxJobsLimit"]


def test_one_qos_of_two_partitions() -> None:
    """ "if a QOS has a GrpTRES=cpu=20 limit defined and the QOS is assigned to two unique
    partitions, users will be limited to 20 CPUs for the QOS rather than ... for each partition"."""
    conf = CONF.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold")
    conf += "PartitionName=other QOS=gold Nodes=ALL State=UP\n"
    made = bench(conf=conf)
    qos(made, "gold", grp_tres={"cpu": 20})
    first, second = (
        SubmitJob(
            JobSpec(shape=Shape(ntasks=12), partitions=(name,)), b"#!/bin/sh\n", b"", "ana", "users"
        )
        for name in ("gpu", "other")
    )
    replies = made.write(first, 1001), made.write(second, 1001)
    assert run(made, *replies) == ["R", "QOSGrpCpuLimit"]


def test_limit_factor_of_two() -> None:
    """ "if the LimitFactor is 2, then an association with a GrpTRES of 30 CPUs would be allowed to
    allocate 60 CPUs when running under this QOS", and its own limits are not factored."""
    made = bench()
    assoc(made, 10, grp_tres={"cpu": 30})
    qos(made, "gold", limit_factor=2.0)
    jobs = [submit(made, qos="gold", ntasks=15) for _ in range(5)]
    # Four nodes of 16 CPUs: the fourth is the last of sixty.
    assert run(made, *jobs) == ["R"] * 4 + ["AssocGrpCpuLimit"]
    made = bench()
    qos(made, "gold", limit_factor=2.0, grp_tres={"cpu": 30})
    jobs = [submit(made, qos="gold", ntasks=15) for _ in range(3)]
    assert run(made, *jobs) == ["R", "R", "QOSGrpCpuLimit"]


def test_limits_of_a_type_of_gpu() -> None:
    """Whoever asks for --gres=gpu:2 "having a limit set of MaxTRESPerUser=gres/gpu:tesla=1, the
    limit won't be enforced" (here for another type)."""
    made = bench()
    qos(made, "normal", max_tres_pu={"gres/gpu:h100": 1})
    typed = submit(made, gpus_per_node=2, gpu_type="h100")
    assert run(made, typed, submit(made, gpus_per_node=2)) == ["QOSMaxGRESPerUser", "R"]


@pytest.mark.parametrize(("factor", "counted"), [(2.0, 200), (0.5, 50), (0.0, 0), (1.0, 100)])
def test_usage_factor(factor: float, counted: int) -> None:
    """With a factor of 2 "for every TRESBillingUnit second a job ran it would count for 2 ... A
    setting of 0 would add no timed usage ... The usage factor only applies to the job's QOS and
    not the partition QOS": what the partition's QOS has used is multiplied by the job's, too
    (recorded: 22.05 counted 936 for 4 CPUs, 117 seconds and a factor of 2)."""
    conf = multifactor("PriorityDecayHalfLife=0", "PriorityUsageResetPeriod=YEARLY")
    made = bench(conf=conf.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "normal", usage_factor=factor)
    qos(made, "gold", usage_factor=7.0)
    one = job(made)
    made.schedule()
    one.configuring = False
    made.now += 100
    for _ in range(2):
        for of in (20, 10, 1, "normal", "gold"):
            used = made.led.meter.used(of, made.now)
            assert (used.tres.get("billing", 0.0), used.wall) == (counted, counted)
        # The same once it is recorded: it stands still from now on.
        made.write(UpdateJob([str(one.id)], "suspend"), 0)
        made.now += 50


def test_minutes_of_a_partitions_qos() -> None:
    """qos.html, "Partition QOS": "the partition will have all the same limits as the QOS". What
    jobs have used that are over counts, whatever QOS they had."""
    conf = multifactor("PriorityDecayHalfLife=0", "PriorityUsageResetPeriod=YEARLY")
    made = bench(conf=conf.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "gold", grp_tres_mins={"cpu": 100}, grp_wall=1000)
    first = job(made, shape=Shape(ntasks=4))
    made.schedule()
    made.now += 1500
    assert run(made, submit(made)) == ["QOSGrpCPUMinutesLimit"]
    made.write(CancelJobs([str(first.id)]), 0)
    assert made.led.book.used["gold"].tres["cpu"] == 6000.0
    assert run(made, submit(made)) == ["QOSGrpCPUMinutesLimit"]


@pytest.mark.parametrize(
    ("percent", "gpus", "runs"), [(50, 4, 4), (110, 4, 8), (100, 4, 8), (0, 1, 0)]
)
def test_relative_limits(percent: int, gpus: int, runs: int) -> None:
    """qos.html: percentages of the cluster; "Values higher than 100 are interpreted as 100%". Four
    nodes of eight GPUs."""
    made = bench()
    qos(made, "normal", flags=("Relative",), grp_tres={"gres/gpu": percent})
    jobs = [submit(made, gpus_per_node=gpus) for _ in range(9)]
    assert run(made, *jobs).count("R") == runs


def test_a_relative_qos_of_a_partition_is_no_jobs() -> None:
    """The "Limits will be calculated relative to the partition's resources ... Jobs will not be
    allowed to use it as a normal QOS". Partition debug has one node."""
    made = bench(conf=CONF.replace("PartitionName=debug", "PartitionName=debug QOS=gold"))
    qos(made, "gold", flags=("Relative",), grp_tres={"cpu": 50})
    refused = submit(made, qos="gold")
    assert isinstance(refused, Refused)
    assert refused.message == "Invalid qos specification"
    whole = SubmitJob(
        JobSpec(shape=Shape(ntasks=8), partitions=("debug",), time_limit=60),
        *(b"#!/bin/sh\n", b"", "ana", "users"),
    )
    replies = made.write(whole, 1001), made.write(whole, 1001)
    assert run(made, *replies) == ["R", "QOSGrpCpuLimit"]


def test_no_decay() -> None:
    """qos.html, NoDecay: "Account/user usage will still be decayed for associations using the
    QOS"."""
    made = bench(conf=multifactor("PriorityDecayHalfLife=1-0"))
    made.led.book.put(Qos(2, "gold", flags=("NoDecay",)))
    for of in (20, "gold"):
        accounts.put_used(made.led, of, Used(tres={"cpu": 800.0}, at=made.now), Outcome())
    day = made.now + 86400
    assert made.led.meter.used(20, day).tres["cpu"] == pytest.approx(400.0)
    assert made.led.meter.used("gold", day).tres["cpu"] == 800.0
