"""Limits of associations and QOS: words, decisions and order as a real Slurm (22.05.8 with the
same sacctmgr commands) gave them, and the examples of Slurm's documentation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import accounts
from gsched.ledger.outcome import Outcome
from gsched.model import JobSpec, JobState, Phase, Shape, Verdict
from gsched.model.policy import Account, Assoc, PolicyRecord, Qos, Used, User
from gsched.wire.messages import Done, Refused, Reply, SubmitJob, UpdateJob

BASE = (
    "AccountingStorageEnforce=associations,limits,qos\n"
    "AccountingStorageTRES=gres/gpu,gres/gpu:h100\n"
)
REFUSED = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
UIDS = {"ana": 1001, "ben": 1002}


def bench(enforce: str = BASE, conf: str = CONF, **changes: PolicyRecord) -> Bench:
    made = Bench(enforce + conf)
    records: list[PolicyRecord] = [
        Account("lab"),
        Account("other"),
        Qos(2, "gold"),
        Assoc(1, "root", qos=("normal", "gold")),
        Assoc(10, "lab", parent="root"),
        Assoc(11, "other", parent="root"),
        User("ana", "lab"),
        User("ben", "other"),
        Assoc(20, "lab", "ana"),
        Assoc(21, "lab", "ben"),
        Assoc(22, "other", "ben"),
    ]
    for record in records:
        accounts.put(made.led, record, Outcome())
    return made


def put(made: Bench, record: PolicyRecord, **change: Any) -> None:
    """What sacctmgr modify does, as one command."""
    accounts.put(made.led, msgspec.structs.replace(record, **change), Outcome())
    made.tick()


def qos(made: Bench, name: str = "normal", **change: Any) -> None:
    put(made, made.led.book.qos[name], **change)


def assoc(made: Bench, number: int, **change: Any) -> None:
    put(made, made.led.book.assocs[number], **change)


def submit(made: Bench, user: str = "ana", array: str = "", **shape: Any) -> Reply:
    how = {
        name: shape.pop(name)
        for name in ("qos", "account", "time_limit", "licenses")
        if name in shape
    }
    spec = JobSpec(shape=Shape(**shape), array=array, **how)
    return made.write(SubmitJob(spec, b"#!/bin/sh\n", b"", user, "users"), UIDS[user])


def run(made: Bench, *answers: Reply) -> list[str]:
    """After a pass: "R" or the reason of each job."""
    made.schedule()
    found = []
    for answer in answers:
        assert isinstance(answer, Done), answer
        job = made.led.jobs[answer.value]
        verdict = made.view.get(("verdict", job.id.to_bytes(8, "big")))
        reason = verdict.reason if isinstance(verdict, Verdict) else ""
        found.append("R" if job.state == JobState.RUNNING else reason)
    return found


TWO = {"ntasks": 2}
GPUS = {"gpus_total": 2}
MEM = {"mem_per_node": 800}

#: what is set on the QOS, what each of two jobs asks for, what a real Slurm says of both
TOGETHER = [
    ({"grp_tres": {"cpu": 2}}, TWO, "QOSGrpCpuLimit"),
    ({"grp_tres": {"mem": 1000}}, MEM, "QOSGrpMemLimit"),
    ({"grp_tres": {"node": 1}}, {"exclusive": 1}, "QOSGrpNodeLimit"),
    ({"grp_tres": {"gres/gpu": 2}}, GPUS, "QOSGrpGRES"),
    ({"grp_tres": {"gres/gpu:h100": 2}}, GPUS | {"gpu_type": "h100"}, "QOSGrpGRES"),
    ({"grp_tres": {"billing": 2}}, TWO, "QOSGrpBilling"),
    ({"grp_jobs": 1}, {}, "QOSGrpJobsLimit"),
    ({"max_jobs_pu": 1}, {}, "QOSMaxJobsPerUserLimit"),
    ({"max_jobs_pa": 1}, {}, "MaxJobsPerAccount"),
    ({"max_tres_pu": {"cpu": 2}}, TWO, "QOSMaxCpuPerUserLimit"),
    ({"max_tres_pu": {"mem": 1000}}, MEM, "QOSMaxMemoryPerUser"),
    ({"max_tres_pu": {"node": 1}}, {"exclusive": 1}, "QOSMaxNodePerUserLimit"),
    ({"max_tres_pu": {"gres/gpu": 2}}, GPUS, "QOSMaxGRESPerUser"),
    ({"max_tres_pu": {"billing": 2}}, TWO, "QOSMaxBillingPerUser"),
    ({"max_tres_pa": {"cpu": 2}}, TWO, "MaxCpuPerAccount"),
    ({"max_tres_pa": {"mem": 1000}}, MEM, "MaxMemoryPerAccount"),
    ({"max_tres_pa": {"node": 1}}, {"exclusive": 1}, "MaxNodePerAccount"),
    ({"max_tres_pa": {"gres/gpu": 2}}, GPUS, "MaxGRESPerAccount"),
    ({"grp_tres_run_mins": {"cpu": 30}}, {"time_limit": 1200}, "QOSGrpCPURunMinutesLimit"),
    ({"grp_tres_run_mins": {"mem": 60000}}, {"time_limit": 1200}, "QOSGrpMemoryRunMinutes"),
]
#: the same where not even the first may start
ALONE = [
    ({"max_tres_per_job": {"cpu": 2}}, {"ntasks": 3}, "QOSMaxCpuPerJobLimit"),
    ({"max_tres_per_job": {"mem": 1000}}, {"mem_per_node": 1800}, "QOSMaxMemoryPerJob"),
    ({"max_tres_per_job": {"node": 1}}, {"min_nodes": 2}, "QOSMaxNodePerJobLimit"),
    ({"max_tres_per_job": {"gres/gpu": 2}}, {"gpus_total": 3}, "QOSMaxGRESPerJob"),
    ({"max_tres_per_node": {"cpu": 2}}, {"ntasks": 3}, "QOSMaxCpuPerNode"),
    ({"max_tres_per_node": {"mem": 1000}}, {"mem_per_node": 1800}, "QOSMaxMemoryPerNode"),
    ({"min_tres_per_job": {"cpu": 4}}, {"ntasks": 3}, "QOSMinCpuNotSatisfied"),
    ({"min_tres_per_job": {"mem": 4000}}, {"mem_per_node": 100}, "QOSMinMemory"),
    ({"min_tres_per_job": {"node": 2}}, {}, "QOSMinNode"),
    ({"min_tres_per_job": {"gres/gpu": 2}}, {"gpus_total": 1}, "QOSMinGRES"),
    ({"max_wall": 10}, {"time_limit": 1200}, "QOSMaxWallDurationPerJobLimit"),
    ({"grp_wall": 0}, {"time_limit": 1200}, "QOSGrpWallLimit"),
    ({"max_tres_mins_per_job": {"cpu": 10}}, {"time_limit": 1200}, "QOSMaxCpuMinutesPerJobLimit"),
    ({"max_tres_mins_per_job": {"mem": 10}}, {"time_limit": 1200}, "QOSMaxMemoryMinutesPerJob"),
    ({"grp_tres_mins": {"cpu": 0}}, {"time_limit": 1200}, "QOSGrpCPUMinutesLimit"),
    ({"max_tres_pu": {"cpu": 4}}, {"ntasks": 1, "exclusive": 1}, "QOSMaxCpuPerUserLimit"),
]
#: and of associations: (number: 10 the account's, 20 the user's)
ASSOCS = [
    (10, {"grp_tres": {"cpu": 2}}, TWO, "AssocGrpCpuLimit"),
    (10, {"grp_tres": {"mem": 1000}}, MEM, "AssocGrpMemLimit"),
    (10, {"grp_tres": {"node": 1}}, {"exclusive": 1}, "AssocGrpNodeLimit"),
    (10, {"grp_tres": {"gres/gpu": 2}}, GPUS, "AssocGrpGRES"),
    (10, {"grp_tres": {"billing": 2}}, TWO, "AssocGrpBilling"),
    (10, {"grp_jobs": 1}, {}, "AssocGrpJobsLimit"),
    (10, {"grp_tres_run_mins": {"cpu": 30}}, {"time_limit": 1200}, "AssocGrpCPURunMinutesLimit"),
    (10, {"grp_tres_run_mins": {"mem": 60000}}, {"time_limit": 1200}, "AssocGrpMemRunMinutes"),
    (10, {"max_jobs": 1}, {}, "AssocMaxJobsLimit"),
    (20, {"max_jobs": 1}, {}, "AssocMaxJobsLimit"),
]
ASSOCS_ALONE = [
    (10, {"grp_wall": 0}, {}, "AssocGrpWallLimit"),
    (10, {"grp_tres_mins": {"cpu": 0}}, {}, "AssocGrpCPUMinutesLimit"),
    (10, {"grp_tres_mins": {"mem": 0}}, {}, "AssocGrpMemMinutes"),
    (20, {"max_tres_per_job": {"cpu": 2}}, {"ntasks": 3}, "AssocMaxCpuPerJobLimit"),
    (20, {"max_tres_per_job": {"mem": 1000}}, {"mem_per_node": 1800}, "AssocMaxMemPerJob"),
    (20, {"max_tres_per_job": {"node": 1}}, {"min_nodes": 2}, "AssocMaxNodePerJobLimit"),
    (20, {"max_tres_per_job": {"gres/gpu": 1}}, {"gpus_total": 2}, "AssocMaxGRESPerJob"),
    (20, {"max_tres_per_node": {"cpu": 2}}, {"ntasks": 3}, "AssocMaxCpuPerNode"),
    (20, {"max_tres_per_node": {"mem": 1000}}, {"mem_per_node": 1800}, "AssocMaxMemPerNode"),
    (20, {"max_wall": 10}, {"time_limit": 1200}, "AssocMaxWallDurationPerJobLimit"),
    (
        *(20, {"max_tres_mins_per_job": {"cpu": 10}}),
        *({"time_limit": 1200}, "AssocMaxCpuMinutesPerJobLimit"),
    ),
]


@pytest.mark.parametrize(("change", "asked", "word"), TOGETHER)
def test_what_jobs_of_a_qos_may_hold_together(
    change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    qos(made, **change)
    assert run(made, submit(made, **asked), submit(made, **asked)) == ["R", word]


@pytest.mark.parametrize(("change", "asked", "word"), ALONE)
def test_what_a_job_of_a_qos_may_have(
    change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    qos(made, **change)
    assert run(made, submit(made, **asked)) == [word]


@pytest.mark.parametrize(("number", "change", "asked", "word"), ASSOCS)
def test_what_jobs_of_an_association_may_hold_together(
    number: int, change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    assoc(made, number, **change)
    assert run(made, submit(made, **asked), submit(made, **asked)) == ["R", word]


@pytest.mark.parametrize(("number", "change", "asked", "word"), ASSOCS_ALONE)
def test_what_a_job_of_an_association_may_have(
    number: int, change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    assoc(made, number, **change)
    assert run(made, submit(made, **asked)) == [word]


# ---- several at once -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "asked", "word"),
    [
        ({"grp_jobs": 0, "max_jobs_pu": 0, "grp_tres": {"cpu": 0}}, {}, "QOSGrpJobsLimit"),
        ({"max_jobs_pu": 0, "grp_tres": {"cpu": 0}}, {}, "QOSMaxJobsPerUserLimit"),
        (
            {"grp_tres": {"cpu": 0}, "max_tres_pu": {"cpu": 0}, "max_tres_per_job": {"cpu": 0}},
            *({}, "QOSGrpCpuLimit"),
        ),
        (
            {"max_tres_pu": {"cpu": 0}, "max_tres_pa": {"cpu": 0}, "max_tres_per_job": {"cpu": 0}},
            *({}, "QOSMaxCpuPerJobLimit"),
        ),
        ({"max_tres_pu": {"cpu": 0}, "max_tres_pa": {"cpu": 0}}, {}, "MaxCpuPerAccount"),
        (
            {"grp_tres": {"gres/gpu": 0, "mem": 0, "cpu": 0}, "grp_tres_mins": {"cpu": 0}},
            *({"gpus_total": 1}, "QOSGrpCPUMinutesLimit"),
        ),
        ({"grp_tres": {"gres/gpu": 0, "mem": 0, "cpu": 0}}, {"gpus_total": 1}, "QOSGrpCpuLimit"),
        ({"grp_tres": {"gres/gpu": 0, "mem": 0}}, {"gpus_total": 1}, "QOSGrpMemLimit"),
        ({"grp_wall": 0, "grp_jobs": 0, "grp_tres_mins": {"cpu": 0}}, {}, "QOSGrpJobsLimit"),
        ({"max_wall": 1, "grp_jobs": 0, "grp_tres": {"cpu": 0}}, {}, "QOSGrpJobsLimit"),
        ({"min_tres_per_job": {"cpu": 4}, "grp_tres": {"cpu": 0}}, {}, "QOSGrpCpuLimit"),
        ({"max_tres_mins_per_job": {"cpu": 0}, "grp_tres": {"cpu": 0}}, {}, "QOSGrpCpuLimit"),
        (
            {"max_tres_mins_per_job": {"cpu": 0}, "max_tres_per_job": {"cpu": 0}},
            *({}, "QOSMaxCpuMinutesPerJobLimit"),
        ),
    ],
)
def test_which_of_several_limits_is_told(
    change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    qos(made, **change)
    assert run(made, submit(made, **asked)) == [word]


def test_the_users_association_goes_before_the_accounts_above_it() -> None:
    made = bench()
    assoc(made, 1, grp_tres={"cpu": 0})
    assoc(made, 10, grp_tres={"mem": 0})
    assoc(made, 20, max_jobs=0, max_tres_per_job={"cpu": 0})
    job = submit(made)
    assert run(made, job) == ["AssocMaxJobsLimit"]
    assoc(made, 20, max_jobs=None)
    assert run(made, job) == ["AssocMaxCpuPerJobLimit"]
    assoc(made, 20, max_tres_per_job={})
    assert run(made, job) == ["AssocGrpMemLimit"]
    assoc(made, 10, grp_tres={})
    assert run(made, job) == ["AssocGrpCpuLimit"]
    assoc(made, 1, grp_tres={})
    assert run(made, job) == ["R"]


@pytest.mark.parametrize(
    ("first", "number", "second", "word"),
    [
        ({"grp_tres": {"cpu": 100}}, 10, {"grp_tres": {"cpu": 1}}, "R"),
        ({"max_jobs_pa": 100}, 20, {"max_jobs": 0}, "R"),
        ({"max_jobs_pu": 100}, 20, {"max_jobs": 0}, "R"),
        ({"grp_jobs": 100}, 20, {"max_jobs": 0}, "AssocMaxJobsLimit"),
        ({"grp_jobs": 100}, 10, {"grp_jobs": 0}, "R"),
        ({"grp_tres": {"cpu": 100}}, 10, {"grp_tres": {"mem": 1}}, "AssocGrpMemLimit"),
    ],
)
def test_what_a_qos_says_the_association_need_not(
    first: dict[str, Any], number: int, second: dict[str, Any], word: str
) -> None:
    made = bench()
    qos(made, **first)
    assoc(made, number, **second)
    assert run(made, submit(made, ntasks=2)) == [word]


def test_the_manuals_example_of_the_hierarchy() -> None:
    """MaxJobs=20 in the partition's QOS, nothing in the job's, MaxJobs=4 and MaxSubmitJobs=50 in
    the user's association: in effect are 20 and 50."""
    made = bench(conf=CONF.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "gold", max_jobs_pu=20)
    assoc(made, 20, max_jobs=4, max_submit_jobs=50)
    jobs = [submit(made) for _ in range(50)]
    assert run(made, *jobs) == ["R"] * 20 + ["QOSMaxJobsPerUserLimit"] * 30
    refused = submit(made)
    assert isinstance(refused, Refused)
    assert (refused.message, refused.notes) == (REFUSED, ["AssocMaxSubmitJobLimit"])


@pytest.mark.parametrize(("flags", "cpus"), [((), 12), (("OverPartQOS",), 10)])
def test_the_qos_of_a_partition_and_the_jobs(flags: tuple[str, ...], cpus: int) -> None:
    """As SchedMD's talk on them has it: GrpTRES=cpu=12 in the partition's and cpu=10 in the job's
    QOS; the partition's counts, but for jobs with OverPartQOS."""
    made = bench(conf=CONF.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "gold", grp_tres={"cpu": 12})
    qos(made, grp_tres={"cpu": 10}, flags=flags)
    jobs = [submit(made) for _ in range(13)]
    assert run(made, *jobs) == ["R"] * cpus + ["QOSGrpCpuLimit"] * (13 - cpus)
    # What runs in the partition fills its QOS, whatever QOS it has itself.
    qos(made, max_jobs_pu=100)
    direct = submit(made, qos="gold", ntasks=3)
    assert run(made, direct) == ["QOSGrpCpuLimit"]


def test_a_partition_qos_counts_in_its_partition_alone() -> None:
    made = bench(conf=CONF.replace("PartitionName=debug", "PartitionName=debug QOS=gold"))
    qos(made, "gold", grp_jobs=0)
    assert run(made, submit(made)) == ["R"]


# ---- at submission ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"max_submit_jobs_pu": 1}, "QOSMaxSubmitJobPerUserLimit"),
        ({"max_submit_jobs_pa": 1}, "MaxSubmitJobsPerAccount"),
        ({"grp_submit_jobs": 1}, "QOSGrpSubmitJobsLimit"),
    ],
)
def test_how_many_may_be_submitted(change: dict[str, Any], word: str) -> None:
    made = bench()
    qos(made, **change)
    assert run(made, submit(made)) == ["R"]
    refused = submit(made)
    assert isinstance(refused, Refused)
    assert (refused.message, refused.code) == (REFUSED, "ESLURM_ACCOUNTING_POLICY")
    assert refused.notes == [word]


def test_tasks_of_an_array_are_submitted_each() -> None:
    made = bench()
    qos(made, max_submit_jobs_pu=3)
    refused = submit(made, array="1-5")
    assert isinstance(refused, Refused) and refused.notes == ["QOSMaxSubmitJobPerUserLimit"]
    assert isinstance(submit(made, array="1-3"), Done)
    assert isinstance(submit(made), Refused)
    # Others have theirs.
    assert isinstance(submit(made, "ben"), Done)


@pytest.mark.parametrize(
    ("number", "change", "asked", "word"),
    [
        (0, {"grp_tres": {"cpu": 2}}, {"ntasks": 3}, "QOSGrpCpuLimit"),
        (0, {"max_tres_per_job": {"gres/gpu": 2}}, {"gpus_total": 3}, "QOSMaxGRESPerJob"),
        (0, {"max_tres_per_node": {"cpu": 2}}, {"ntasks": 3}, "QOSMaxCpuPerNode"),
        (0, {"max_tres_pu": {"gres/gpu": 2}}, {"gpus_total": 3}, "QOSMaxGRESPerUser"),
        (0, {"max_tres_pa": {"gres/gpu": 2}}, {"gpus_total": 3}, "MaxGRESPerAccount"),
        (0, {"max_wall": 10}, {"time_limit": 1200}, "QOSMaxWallDurationPerJobLimit"),
        (0, {"min_tres_per_job": {"cpu": 4}}, {"ntasks": 3}, "QOSMinCpuNotSatisfied"),
        (0, {"grp_tres_run_mins": {"cpu": 10}}, {"time_limit": 1200}, "QOSGrpCPURunMinutesLimit"),
        (0, {"grp_tres_mins": {"cpu": 10}}, {"time_limit": 1200}, "QOSGrpCPUMinutesLimit"),
        (0, {"max_tres_mins_per_job": {"cpu": 9}}, {"time_limit": 1200},
         "QOSMaxCpuMinutesPerJobLimit"),
        (0, {"grp_wall": 0}, {"time_limit": 1200}, "QOSGrpWallLimit"),
        (10, {"grp_tres": {"cpu": 2}}, {"ntasks": 3}, "AssocGrpCpuLimit"),
        (20, {"max_tres_per_job": {"cpu": 2}}, {"ntasks": 3}, "AssocMaxCpuPerJobLimit"),
        (20, {"max_wall": 10}, {"time_limit": 1200}, "AssocMaxWallDurationPerJobLimit"),
        (10, {"grp_wall": 10}, {"time_limit": 1200}, "AssocGrpWallLimit"),
        (10, {"grp_wall": 10, "grp_tres_mins": {"cpu": 10}}, {"time_limit": 1200},
         "AssocGrpCPUMinutesLimit"),
    ],
)  # fmt: skip
def test_deny_on_limit(
    number: int, change: dict[str, Any], asked: dict[str, Any], word: str
) -> None:
    made = bench()
    if number:
        assoc(made, number, **change)
    else:
        qos(made, **change)
    assert isinstance(submit(made, **asked), Done)
    qos(made, flags=("DenyOnLimit",))
    refused = submit(made, **asked)
    assert isinstance(refused, Refused)
    assert (refused.message, refused.notes) == (REFUSED, [word])


def test_deny_on_limit_lets_wait_who_would_fit_alone() -> None:
    made = bench()
    qos(made, flags=("DenyOnLimit",), grp_tres={"cpu": 2})
    assert run(made, submit(made, ntasks=2), submit(made, ntasks=2)) == ["R", "QOSGrpCpuLimit"]


def test_a_qos_that_wants_a_reservation() -> None:
    made = bench()
    qos(made, flags=("RequiresReservation",))
    refused = submit(made)
    assert isinstance(refused, Refused) and refused.message == "Invalid qos specification"


# ---- factors, percentages, what is not enforced ----------------------------------------------


def test_limit_factor() -> None:
    """A real Slurm: GrpTRES=cpu=2 of the account, LimitFactor=2 of the QOS: 3 and 1 CPUs run,
    another CPU does not, nor under a QOS without the factor."""
    made = bench()
    qos(made, limit_factor=2.0)
    assoc(made, 10, grp_tres={"cpu": 2})
    jobs = submit(made, ntasks=3), submit(made), submit(made), submit(made, qos="gold")
    assert run(made, *jobs) == ["R", "R", "AssocGrpCpuLimit", "AssocGrpCpuLimit"]


def test_jobs_of_which_another_limit_counts_fill_this_one_too() -> None:
    made = bench()
    qos(made, "gold", grp_tres={"cpu": 50})
    assoc(made, 10, grp_tres={"cpu": 4})
    jobs = submit(made, qos="gold", ntasks=3), submit(made, ntasks=2), submit(made)
    assert run(made, *jobs) == ["R", "AssocGrpCpuLimit", "R"]


def test_relative() -> None:
    """25 % of a partition of 4 nodes with 8 GPUs each are 8."""
    made = bench(conf=CONF.replace("PartitionName=gpu", "PartitionName=gpu QOS=gold"))
    qos(made, "gold", flags=("Relative",), grp_tres={"gres/gpu": 25})
    jobs = [submit(made, gpus_total=4) for _ in range(3)]
    assert run(made, *jobs) == ["R", "R", "QOSGrpGRES"]


@pytest.mark.parametrize("enforce", ["", "AccountingStorageEnforce=associations,qos\n"])
def test_without_limits_enforced_none_is_judged(enforce: str) -> None:
    made = bench(enforce)
    qos(made, grp_jobs=0, max_submit_jobs_pu=0, max_wall=1, flags=("DenyOnLimit",))
    assoc(made, 10, grp_tres={"cpu": 0})
    assert run(made, submit(made, time_limit=600)) == ["R"]


def test_untyped_gpus_are_under_no_limit_of_a_type() -> None:
    """As a real Slurm, whose manual says so."""
    made = bench()
    qos(made, grp_tres={"gres/gpu:h100": 2})
    assert run(made, submit(made, gpus_total=2), submit(made, gpus_total=2)) == ["R", "R"]


def test_nodes_shared_by_jobs_count_once() -> None:
    """A real Slurm: two jobs of one CPU run on the one node of GrpTRES=node=1."""
    made = bench()
    qos(made, grp_tres={"node": 1})
    assert run(made, submit(made), submit(made)) == ["R", "R"]


def test_suspended_jobs_count() -> None:
    made = bench()
    qos(made, grp_tres={"cpu": 2})
    first = submit(made, ntasks=2)
    assert run(made, first) == ["R"]
    assert isinstance(first, Done)
    job = made.led.jobs[first.value]
    made.report(job.alloc[0].node, at(job, Phase.RUNNING))
    made.write(UpdateJob([str(first.value)], "suspend"), 0)
    assert job.state == JobState.SUSPENDED
    second = submit(made, ntasks=2)
    assert run(made, second) == ["QOSGrpCpuLimit"]


@pytest.mark.parametrize(
    ("flag", "conf", "asked", "word"),
    [
        ("PartitionTimeLimit", "", {"time_limit": 8 * 86400}, "PartitionTimeLimit"),
        ("PartitionMaxNodes", " MaxNodes=1", {"min_nodes": 2}, "PartitionConfig"),
    ],
)
def test_partition_limits_that_a_qos_lifts(
    flag: str, conf: str, asked: dict[str, Any], word: str
) -> None:
    made = bench(conf=CONF.replace("PartitionName=gpu", f"PartitionName=gpu{conf}"))
    waits = submit(made, **asked)
    assert run(made, waits) == [word]
    qos(made, "gold", flags=(flag,))
    assert run(made, submit(made, qos="gold", **asked), waits) == ["R", word]
    # The flag acts on who waits, too.
    qos(made, flags=(flag,))
    assert run(made, waits) == ["R"]


# ---- in time ----------------------------------------------------------------------------------


def test_changed_limits_act_on_waiting_jobs_at_once() -> None:
    made = bench()
    assoc(made, 10, grp_tres={"gres/gpu": 2})
    first, second = submit(made, gpus_total=2), submit(made, gpus_total=2)
    assert run(made, first, second) == ["R", "AssocGrpGRES"]
    out = Outcome()
    accounts.put(
        made.led, msgspec.structs.replace(made.led.book.assocs[10], grp_tres={"gres/gpu": 4}), out
    )
    assert made.tick().schedule
    assert run(made, second) == ["R"]
    # Lowered, it ends nothing, and lets nothing start.
    assoc(made, 10, grp_tres={"gres/gpu": 1})
    assert run(made, first, second, submit(made, gpus_total=1)) == ["R", "R", "AssocGrpGRES"]


def test_run_minutes_come_free_as_time_passes() -> None:
    """GrpTRESRunMins=cpu=30, two jobs of one CPU and 20 minutes: after 10 minutes the first has 10
    to come, and the second may start."""
    made = bench()
    qos(made, grp_tres_run_mins={"cpu": 30})
    first, second = submit(made, time_limit=1200), submit(made, time_limit=1200)
    assert run(made, first, second) == ["R", "QOSGrpCPURunMinutesLimit"]
    made.now += 599
    assert run(made, second) == ["QOSGrpCPURunMinutesLimit"]
    made.now += 1
    assert run(made, second) == ["R"]


def test_minutes_in_a_safe_way() -> None:
    """GrpTRESMins=cpu=30: without "safe" any number of jobs starts until the minutes are used;
    with it only as many as can end in them."""
    for words, third in (("limits", "R"), ("safe", "AssocGrpCPUMinutesLimit")):
        made = bench(f"AccountingStorageEnforce=associations,{words}\n")
        assoc(made, 10, grp_tres_mins={"cpu": 30})
        jobs = [submit(made, time_limit=600) for _ in range(4)]
        assert run(made, *jobs) == ["R", "R", "R", third]


@pytest.mark.parametrize(
    ("change", "seconds"), [({"grp_tres_mins": {"cpu": 8}}, 60), ({"grp_wall": 2}, 120)]
)
def test_a_group_that_has_used_its_minutes_loses_its_jobs(
    change: dict[str, Any], seconds: int
) -> None:
    """Eight CPUs use eight CPU minutes in one minute: a real Slurm ends the job as if its time
    limit had come. With "safe" it would not have started."""
    made = bench(conf=CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))
    assoc(made, 10, **change)
    answer, other = submit(made, ntasks=8, time_limit=3600), submit(made, "ben", ntasks=8)
    assert run(made, answer, other) == ["R", "R"]
    assert isinstance(answer, Done) and isinstance(other, Done)
    job = made.led.jobs[answer.value]
    made.now += seconds - 1
    made.tick()
    assert job.state == JobState.RUNNING
    made.now += 11
    made.tick()
    assert (job.state, job.reason) == (JobState.TIMEOUT, "TimeLimit")
    assert made.led.jobs[other.value].state == JobState.RUNNING


def test_who_is_under_a_limit_delays_nobody() -> None:
    """It is at the head of the queue, wants the whole cluster, and makes no reservation."""
    made = bench()
    qos(made, "gold", grp_jobs=0)
    head = submit(made, qos="gold", min_nodes=4, exclusive=1, time_limit=60)
    rest = [submit(made, "ben", ntasks=16) for _ in range(4)]
    assert run(made, head, *rest) == ["QOSGrpJobsLimit", "R", "R", "R", "R"]


def test_who_is_under_a_limit_keeps_no_licence_from_others() -> None:
    made = bench(conf=CONF.replace("KillWait=5", "KillWait=5\nLicenses=matlab:1"))
    qos(made, "gold", grp_jobs=0)
    head = submit(made, qos="gold", licenses="matlab")
    assert run(made, head) == ["QOSGrpJobsLimit"]
    assert run(made, submit(made, licenses="matlab"), head) == ["R", "QOSGrpJobsLimit"]
    # And gets none that is not there once the limit is gone.
    qos(made, "gold", grp_jobs=None)
    assert run(made, head) == ["Licenses"]


def test_components_are_under_limits_together() -> None:
    """A real Slurm: two components of two CPUs each do not start under GrpTRES=cpu=3."""
    made = bench()
    qos(made, grp_tres={"cpu": 3})
    specs = [JobSpec(shape=Shape(ntasks=2)) for _ in range(2)]
    write = SubmitJob(specs[0], b"#!/bin/sh\n", b"", "ana", "users", components=specs[1:])
    answer = made.write(write, UIDS["ana"])
    small = submit(made, "ben")
    assert run(made, answer, small) == ["QOSGrpCpuLimit", "R"]
    qos(made, grp_tres={"cpu": 5})
    assert run(made, answer) == ["R"]


def test_an_array_starts_as_far_as_its_limit_lets_it() -> None:
    made = bench()
    qos(made, grp_jobs=2)
    answer = submit(made, array="1-5")
    made.schedule()
    running = [job for job in made.led.jobs.values() if job.state == JobState.RUNNING]
    assert len(running) == 2
    assert run(made, answer) == ["QOSGrpJobsLimit"]


def test_what_is_loaded_counts() -> None:
    made = bench()
    qos(made, grp_tres={"cpu": 2})
    first, second = submit(made, ntasks=2), submit(made, ntasks=2)
    assert run(made, first, second) == ["R", "QOSGrpCpuLimit"]
    led = made.led
    again = type(led).load(
        *(led.config, led.meta, list(led.jobs.values()), list(led.nodes.values())),
        policy_records=list(led.book.records()),
    )
    assert again.limits.tally.sums == led.limits.tally.sums
    assert not again.limits.wrong()


def fair_quarter(more: str = "") -> Bench:
    """Of four users the only one who has used anything, ana, is the last: 1/4."""
    conf = CONF.replace("PriorityType=priority/basic", "PriorityType=priority/multifactor")
    conf = conf.replace("SlurmdTimeout=60", "SlurmdTimeout=600")
    made = bench(conf=f"{conf}PriorityCalcPeriod=1\nPriorityDecayHalfLife=0\n{more}")
    used(made, 1000.0)
    return made


def used(made: Bench, billing: float) -> Outcome:
    for number in (1, 10, 20):
        usage = Used(tres={"billing": billing}, at=made.now)
        accounts.put_used(made.led, number, usage, Outcome())
    made.now += 60
    return made.tick()


LOW_SHARE = ("EnforceUsageThreshold",)


def test_the_least_fair_share_of_a_qos() -> None:
    """sacctmgr(1): with EnforceUsageThreshold jobs of those whose fair share is below the
    UsageThreshold wait until it is not. The word, and that it goes before GrpJobs, as recorded."""
    made = fair_quarter()
    qos(made, "gold", flags=LOW_SHARE, usage_thres=0.3, grp_jobs=0)
    one = submit(made, qos="gold")
    assert run(made, one) == ["QOSUsageThreshold"]
    assert run(made, submit(made, "ben", qos="gold")) == ["QOSGrpJobsLimit"]
    assert isinstance(one, Done)
    (lack, *_) = made.led.limits.lacks(made.led.jobs[one.value], "gpu", int(made.now))
    assert (lack.want, lack.have, lack.never) == (300_000, 250_000, False)
    qos(made, "gold", grp_jobs=None)
    assert run(made, one) == ["QOSUsageThreshold"]
    # Nobody has used anything any more: all share the first place.
    assert used(made, 0.0).schedule
    assert run(made, one) == ["R"]


@pytest.mark.parametrize(("flags", "least"), [(LOW_SHARE, 0.25), ((), 2.0), (LOW_SHARE, None)])
def test_a_fair_share_that_will_do(flags: tuple[str, ...], least: float | None) -> None:
    made = fair_quarter()
    qos(made, "gold", flags=flags, usage_thres=least)
    assert run(made, submit(made, qos="gold")) == ["R"]


def test_the_nodes_that_a_job_needs_at_least_count() -> None:
    """Recorded, on nodes of 16 CPUs: 20 tasks need two nodes, so that one GPU a node is no more
    than one (`-n20 --gpus=2`), and 2 x 20 minutes are more than 30 (`-n20 -t20`)."""
    made = bench()
    assoc(made, 20, max_tres_per_node={"gres/gpu": 1})
    two, one = submit(made, ntasks=20, gpus_total=2), submit(made, ntasks=2, gpus_total=2)
    assert run(made, two, one) == ["R", "AssocMaxGRESPerNode"]
    made = bench()
    qos(made, "gold", grp_tres_run_mins={"node": 30}, max_tres_per_job={"cpu": 8})
    both = submit(made, qos="gold", ntasks=20, time_limit=1200)
    less = submit(made, qos="gold", ntasks=10, time_limit=1200)
    assert run(made, both, less) == ["QOSGrpNodeRunMinutes", "QOSMaxCpuPerJobLimit"]


@pytest.mark.parametrize("scope", ["account", "qos", "user"])
def test_a_job_goes_to_the_nodes_that_its_group_has(scope: str) -> None:
    """GrpTRES=node=1 counts a node once: the second job fits beside the first, though another node
    that is fuller would be liked better. Recorded: it runs."""
    made = bench()
    bound = {"node": 1}
    if scope == "account":
        assoc(made, 10, grp_tres=bound)
    else:
        qos(made, "gold", **{"grp_tres" if scope == "qos" else "max_tres_pu": bound})
    first = submit(made, qos="gold", ntasks=2)
    assert run(made, first) == ["R"]
    # Somebody else's jobs fill the other nodes but for a few CPUs.
    (node,) = (part.node for part in made.led.jobs[first.value].alloc)  # type: ignore[union-attr]
    rest = [name for name in made.config.nodes if name != node]
    others = [submit(made, "ben", ntasks=12, nodelist=(name,)) for name in rest]
    assert run(made, *others) == ["R"] * 3
    second = submit(made, qos="gold", ntasks=2)
    assert run(made, second) == ["R"]
    assert made.led.jobs[second.value].alloc[0].node == node  # type: ignore[union-attr]
    # What does not fit there waits.
    word = {
        "account": "AssocGrpNodeLimit",
        "qos": "QOSGrpNodeLimit",
        "user": "QOSMaxNodePerUserLimit",
    }
    assert run(made, submit(made, qos="gold", ntasks=14)) == [word[scope]]
    assert run(made, submit(made, qos="gold", ntasks=12)) == ["R"]


def test_a_job_takes_a_node_of_its_group_and_a_new_one() -> None:
    """Of GrpTRES=node=2 one is left: 20 tasks would go to two empty nodes, and fit into what is
    free of the group's own and one more. Recorded: it runs."""
    made = bench()
    assoc(made, 10, grp_tres={"node": 2})
    first = submit(made, ntasks=10)
    assert run(made, first) == ["R"]
    second, third = submit(made, ntasks=20), submit(made, ntasks=8)
    assert run(made, second) == ["R"]
    jobs = [made.led.jobs[one.value] for one in (first, second)]  # type: ignore[union-attr]
    nodes = [{part.node for part in job.alloc} for job in jobs]
    assert len(nodes[1]) == 2
    assert nodes[0] < nodes[1]
    assert run(made, third) == ["AssocGrpNodeLimit"]


def test_more_nodes_than_a_group_may_have_are_told_before_what_comes_later() -> None:
    """Recorded: `-N2` under MaxTRESPerUser=node=1 of the QOS and MaxTRES=cpu=1 of the user."""
    made = bench()
    qos(made, "gold", max_tres_pu={"node": 1})
    assoc(made, 20, max_tres_per_job={"cpu": 1})
    asked = submit(made, qos="gold", min_nodes=2, ntasks=2), submit(made, qos="gold", ntasks=2)
    assert run(made, *asked) == ["QOSMaxNodePerUserLimit", "AssocMaxCpuPerJobLimit"]
    (lack, *_) = made.led.limits.lacks(made.led.jobs[asked[0].value], "gpu", int(made.now))  # type: ignore[union-attr]
    assert (lack.limit.word, lack.want, lack.have, lack.never) == (
        *("QOSMaxNodePerUserLimit", 2, 0, True),
    )


ENFORCED = "EnforcePartLimits=ALL\nPartitionName=tiny Nodes=ALL MaxNodes=1 MaxTime=30 State=UP\n"
ENFORCED += "PartitionName=big Nodes=ALL MinNodes=2 MaxTime=30 State=UP\n"


@pytest.mark.parametrize(
    ("flag", "partition", "asked", "refused"),
    [
        (
            *("PartitionTimeLimit", "debug", {"time_limit": 3600}),
            "Requested time limit is invalid (missing or exceeds some limit)",
        ),
        (
            *("PartitionMaxNodes", "tiny", {"min_nodes": 2, "nodes_set": True, "max_nodes": 2}),
            "Node count specification invalid",
        ),
        (
            *("PartitionMinNodes", "big", {"nodes_set": True, "max_nodes": 1}),
            "Node count specification invalid",
        ),
    ],
)
def test_enforced_limits_of_partitions_that_a_qos_lifts(
    flag: str, partition: str, asked: dict[str, Any], refused: str
) -> None:
    """Recorded: with EnforcePartLimits=ALL jobs are refused, but for those of such a QOS."""
    made = bench(conf=CONF + ENFORCED)
    qos(made, "gold", flags=(flag,))
    shape = dict(asked)
    limit = shape.pop("time_limit", 300)

    def ask(name: str) -> Reply:
        spec = JobSpec(shape=Shape(**shape), partitions=(partition,), time_limit=limit, qos=name)
        return made.write(SubmitJob(spec, b"#!/bin/sh\n", b"", "ana", "users"), 1001)

    said = ask("")
    assert isinstance(said, Refused)
    assert said.message == refused
    assert run(made, ask("gold")) == ["R"]
    # The same by scontrol update.
    if "time_limit" in asked:
        spec = JobSpec(shape=Shape(), partitions=(partition,), time_limit=60, hold=True)
        for name, wanted in (("", [refused]), ("gold", [])):
            one = msgspec.structs.replace(spec, qos=name)
            job = made.write(SubmitJob(one, b"#!/bin/sh\n", b"", "ana", "users"), 1001)
            assert isinstance(job, Done)
            reply = made.write(UpdateJob([str(job.value)], "update", {"timelimit": "60"}), 1001)
            assert [text for _, text in reply.errors] == wanted  # type: ignore[union-attr]


def test_enforced_limits_refuse_a_fair_share_that_is_too_low() -> None:
    """slurm.conf(5): among the limits that EnforcePartLimits considers is the "QOS usage
    threshold"; the error as recorded."""
    made = fair_quarter("EnforcePartLimits=ANY\n")
    qos(made, "gold", flags=LOW_SHARE, usage_thres=0.3)
    said = submit(made, qos="gold")
    assert isinstance(said, Refused)
    assert said.message == "Requested partition configuration not available now"
    assert run(made, submit(made, "ben", qos="gold")) == ["R"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"grp_tres": {"cpu": 2}, "max_tres_pu": {"cpu": 3}}, "QOSMaxCpuPerUserLimit"),
        (
            {"grp_tres": {"cpu": 2}, "max_tres_pu": {"cpu": 3}, "max_tres_pa": {"cpu": 4}},
            "MaxCpuPerAccount",
        ),
        ({"grp_tres": {"cpu": 2}, "grp_submit_jobs": 0}, "QOSGrpCpuLimit"),
        ({"grp_tres": {"gres/gpu": 1}, "max_tres_pu": {"cpu": 4}}, "QOSMaxCpuPerUserLimit"),
        ({"grp_tres": {"gres/gpu": 1}, "max_tres_pu": {"gres/gpu": 1}}, "QOSMaxGRESPerUser"),
        (
            {"grp_tres": {"gres/gpu": 1, "cpu": 2}, "max_tres_pu": {"gres/gpu": 1}},
            "QOSGrpCpuLimit",
        ),
    ],
)
def test_which_limit_a_refusal_tells_of_those_of_one_qos(change: dict[str, Any], word: str) -> None:
    """Recorded with DenyOnLimit and `-n16 --gpus=2`: one TRES after the other, of each the
    account's, the user's and the group's limit."""
    made = bench()
    qos(made, "gold", flags=("DenyOnLimit",), **change)
    said = submit(made, qos="gold", ntasks=16, gpus_total=2)
    assert isinstance(said, Refused)
    assert said.notes == [word]


def test_who_has_nodes_for_himself_counts_with_all_of_them() -> None:
    """Recorded: `-N2 --exclusive` under MaxTRESPerUser=cpu=2, and under gres/gpu=1."""
    for limit, word in (
        ({"cpu": 2}, "QOSMaxCpuPerUserLimit"),
        ({"gres/gpu": 1}, "QOSMaxGRESPerUser"),
    ):
        made = bench()
        qos(made, "gold", max_tres_pu=limit)
        one = submit(made, qos="gold", min_nodes=2, nodes_set=True, exclusive=1)
        assert run(made, one) == [word]
        (lack,) = made.led.limits.lacks(made.led.jobs[one.value], "gpu", int(made.now))  # type: ignore[union-attr]
        assert (lack.want, lack.never) == (32 if "cpu" in limit else 16, True)
