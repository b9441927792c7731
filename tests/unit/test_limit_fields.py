"""Every limit that sacctmgr takes, by each of its names, does what `man sacctmgr` and Slurm's page
on resource limits say: it is set by a command line, jobs are submitted, and the word is Slurm's
(those of job_reason_codes.html). Set to -1 it is gone."""

from __future__ import annotations

from typing import Any

import pytest
from unit.ledger_support import CONF
from unit.policy_support import LedgerReader
from unit.test_limits import run

from gsched.ledger import policy_changed
from gsched.ledger.outcome import Outcome
from gsched.model import JobSpec, Shape
from gsched.policy.settings import ASSOC, QOS
from gsched.wire.messages import Done, Refused, Reply, SubmitJob

LIMITS = (
    "AccountingStorageEnforce=associations,limits,qos,safe\n"
    "AccountingStorageTRES=gres/gpu,gres/gpu:h100\n"
)
FIRST = (
    "add account lab",
    "add account sub parent=lab",
    "add user ana account=lab",
    "add user ben account=sub",
    "add qos gold",
    "modify account lab set qos+=gold",
)
#: what a job asks for
ONE: dict[str, Any] = {}
TWO = {"ntasks": 2}
HOUR = {"time_limit": 3600}
MEM = {"mem_per_node": 800}
NODE = {"exclusive": 1}
GPU = {"gpus_total": 1}
#: names of a setting; its value; what each job asks for; what is said of the first and the second
Row = tuple[str, str, dict[str, Any], str, str]

#: the limits of a QOS
OF_QOS: list[Row] = [
    ("GrpJobs", "1", ONE, "R", "QOSGrpJobsLimit"),
    ("GrpSubmitJobs GrpSubmit", "1", ONE, "R", "-QOSGrpSubmitJobsLimit"),
    ("GrpTRES", "cpu=3", TWO, "R", "QOSGrpCpuLimit"),
    ("GrpTRES", "gres/gpu=1", GPU, "R", "QOSGrpGRES"),
    ("GrpTRES", "node=1", NODE, "R", "QOSGrpNodeLimit"),
    ("GrpCPUs", "3", TWO, "R", "QOSGrpCpuLimit"),
    ("GrpMemory", "1000", MEM, "R", "QOSGrpMemLimit"),
    ("GrpNodes", "1", NODE, "R", "QOSGrpNodeLimit"),
    ("GrpTRESMins", "cpu=100", HOUR, "R", "QOSGrpCPUMinutesLimit"),
    ("GrpTRESMins", "gres/gpu=100", HOUR | GPU, "R", "QOSGrpGRESMinutes"),
    ("GrpTRESRunMins", "cpu=100", HOUR, "R", "QOSGrpCPURunMinutesLimit"),
    ("GrpTRESRunMins", "mem=60000", HOUR | MEM, "R", "QOSGrpMemoryRunMinutes"),
    ("GrpWall", "0", HOUR, "QOSGrpWallLimit", "QOSGrpWallLimit"),
    ("MaxJobsPerUser MaxJobsPU MaxJobs", "1", ONE, "R", "QOSMaxJobsPerUserLimit"),
    ("MaxJobsPerAccount MaxJobsPA", "1", ONE, "R", "MaxJobsPerAccount"),
    (
        "MaxSubmitJobsPerUser MaxSubmitJobsPU MaxSubmitPU MaxSubmit",
        *("1", ONE, "R", "-QOSMaxSubmitJobPerUserLimit"),
    ),
    (
        "MaxSubmitJobsPerAccount MaxSubmitJobsPA MaxSubmitPA",
        *("1", ONE, "R", "-MaxSubmitJobsPerAccount"),
    ),
    ("MaxTRES MaxTRESPerJob", "cpu=1", TWO, "QOSMaxCpuPerJobLimit", "QOSMaxCpuPerJobLimit"),
    ("MaxCPUs MaxCPUsPerJob", "1", TWO, "QOSMaxCpuPerJobLimit", "QOSMaxCpuPerJobLimit"),
    (
        "MaxNodes MaxNodesPerJob",
        *("1", {"min_nodes": 2}, "QOSMaxNodePerJobLimit", "QOSMaxNodePerJobLimit"),
    ),
    ("MaxTRESPerNode", "cpu=1", TWO, "QOSMaxCpuPerNode", "QOSMaxCpuPerNode"),
    ("MaxTRESPerUser MaxTRESPU", "cpu=3", TWO, "R", "QOSMaxCpuPerUserLimit"),
    ("MaxCPUsPerUser MaxCPUsPU", "3", TWO, "R", "QOSMaxCpuPerUserLimit"),
    ("MaxNodesPerUser MaxNodesPU", "1", NODE, "R", "QOSMaxNodePerUserLimit"),
    ("MaxTRESPerAccount MaxTRESPA", "gres/gpu=1", GPU, "R", "MaxGRESPerAccount"),
    (
        "MaxTRESMins MaxTRESMinsPerJob",
        *("cpu=59", HOUR, "QOSMaxCpuMinutesPerJobLimit", "QOSMaxCpuMinutesPerJobLimit"),
    ),
    (
        "MaxWall MaxWallDurationPerJob",
        *("59", HOUR, "QOSMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    ),
    (
        "MinTRES MinTRESPerJob",
        *("cpu=3", TWO, "QOSMinCpuNotSatisfied", "QOSMinCpuNotSatisfied"),
    ),
    # Taken and without effect in Slurm, too (recorded).
    ("MaxTRESRunMinsPerUser MaxTRESRunMinsPU", "cpu=1", HOUR, "R", "R"),
    ("MaxTRESRunMinsPerAccount MaxTRESRunMinsPA", "cpu=1", HOUR, "R", "R"),
]
#: the limits of an association, set on the account of a user or on himself
OF_ASSOC: list[Row] = [
    ("GrpJobs", "1", ONE, "R", "AssocGrpJobsLimit"),
    ("GrpSubmitJobs GrpSubmit", "1", ONE, "R", "-AssocGrpSubmitJobsLimit"),
    ("GrpTRES", "cpu=3", TWO, "R", "AssocGrpCpuLimit"),
    ("GrpCPUs", "3", TWO, "R", "AssocGrpCpuLimit"),
    ("GrpMemory", "1000", MEM, "R", "AssocGrpMemLimit"),
    ("GrpNodes", "1", NODE, "R", "AssocGrpNodeLimit"),
    ("GrpTRESMins", "cpu=100", HOUR, "R", "AssocGrpCPUMinutesLimit"),
    ("GrpCPUMins", "100", HOUR, "R", "AssocGrpCPUMinutesLimit"),
    ("GrpTRESRunMins", "cpu=100", HOUR, "R", "AssocGrpCPURunMinutesLimit"),
    ("GrpCPURunMins", "100", HOUR, "R", "AssocGrpCPURunMinutesLimit"),
    ("GrpWall", "0", HOUR, "AssocGrpWallLimit", "AssocGrpWallLimit"),
    ("MaxJobs", "1", ONE, "R", "AssocMaxJobsLimit"),
    ("MaxSubmitJobs MaxSubmit", "1", ONE, "R", "-AssocMaxSubmitJobLimit"),
    ("MaxTRES MaxTRESPerJob", "cpu=1", TWO, "AssocMaxCpuPerJobLimit", "AssocMaxCpuPerJobLimit"),
    ("MaxCPUs MaxCPUsPerJob", "1", TWO, "AssocMaxCpuPerJobLimit", "AssocMaxCpuPerJobLimit"),
    (
        "MaxNodes MaxNodesPerJob",
        *("1", {"min_nodes": 2}, "AssocMaxNodePerJobLimit", "AssocMaxNodePerJobLimit"),
    ),
    ("MaxTRESPerNode", "gres/gpu=0", GPU, "AssocMaxGRESPerNode", "AssocMaxGRESPerNode"),
    (
        "MaxTRESMins MaxTRESMinsPerJob",
        *("cpu=59", HOUR, "AssocMaxCpuMinutesPerJobLimit", "AssocMaxCpuMinutesPerJobLimit"),
    ),
    (
        "MaxCPUMins MaxCPUMinsPerJob",
        *("59", HOUR, "AssocMaxCpuMinutesPerJobLimit", "AssocMaxCpuMinutesPerJobLimit"),
    ),
    (
        "MaxWall MaxWallDurationPerJob",
        *("59", HOUR, "AssocMaxWallDurationPerJobLimit", "AssocMaxWallDurationPerJobLimit"),
    ),
    ("MaxTRESRunMins", "cpu=1", HOUR, "R", "R"),
]
#: settings that are no limits of running jobs, and where their effect is tested
ELSEWHERE = {
    *("shares", "priority", "qos", "default_qos", "comment", "description"),
    # test_accrual.py, test_slurm_documents.py, test_limits.py
    *("grp_jobs_accrue", "max_jobs_accrue", "max_jobs_accrue_pa", "max_jobs_accrue_pu"),
    *("usage_factor", "usage_thres", "limit_factor", "min_prio_thresh", "flags"),
    # test_preempt.py, test_quota*.py
    *("preempt", "preempt_mode", "preempt_exempt_time", "grace_time"),
    *("guarantee", "borrow", "lend", "guarantee_unit"),
}


def named(rows: list[Row]) -> list[tuple[str, str, dict[str, Any], str, str]]:
    """A row for each name of a setting."""
    return [(name, *row[1:]) for row in rows for name in row[0].split()]


def site() -> LedgerReader:
    made = LedgerReader(LIMITS + CONF)
    for line in FIRST:
        made.do(f"-i {line}")
    return made


def change(made: LedgerReader, line: str) -> None:
    made.do(f"-i {line}")
    policy_changed.changed(made.bench.led, made.bench.now, Outcome())
    made.bench.tick()


def submit(made: LedgerReader, shape: dict[str, Any], qos: str, user: str = "ana") -> Reply:
    whole = dict(shape)
    limit = whole.pop("time_limit", 600)
    spec = JobSpec(shape=Shape(**whole), qos=qos, time_limit=limit)
    uid = {"ana": 1001, "ben": 1002}[user]
    return made.bench.write(SubmitJob(spec, b"#!/bin/sh\n", b"", user, "users"), uid)


def said(made: LedgerReader, *replies: Reply) -> list[str]:
    """ "R", the reason of a job that waits, or "-" and why it was refused."""
    taken = iter(run(made.bench, *(one for one in replies if isinstance(one, Done))))  # type: ignore[arg-type]
    return [f"-{one.notes[0]}" if isinstance(one, Refused) else next(taken) for one in replies]


def clear(value: str) -> str:
    name, sign, _ = value.rpartition("=")
    return f"{name}{sign}-1"


@pytest.mark.parametrize(("name", "value", "asks", "first", "second"), named(OF_QOS))
def test_limits_of_a_qos(
    name: str, value: str, asks: dict[str, Any], first: str, second: str
) -> None:
    made = site()
    change(made, f"modify qos gold set {name}={value}")
    jobs = [submit(made, asks, "gold"), submit(made, asks, "gold")]
    assert said(made, *jobs) == [first, second]
    # Jobs of another QOS are not under it.
    assert said(made, submit(made, asks, "normal")) == ["R"]
    change(made, f"modify qos gold set {name}={clear(value)}")
    assert said(made, submit(made, asks, "gold")) == ["R"]


@pytest.mark.parametrize("whose", ["user ana where account=lab", "account lab"])
@pytest.mark.parametrize(("name", "value", "asks", "first", "second"), named(OF_ASSOC))
def test_limits_of_an_association(
    name: str, value: str, asks: dict[str, Any], first: str, second: str, whose: str
) -> None:
    made = site()
    change(made, f"modify {whose} set {name}={value}")
    jobs = [submit(made, asks, ""), submit(made, asks, "")]
    assert said(made, *jobs) == [first, second]
    # A user of the account below: under its groups' limits, and what it inherits.
    other = said(made, submit(made, asks, "", "ben"))
    if whose.startswith("user") or (name.startswith("Max") and first == "R"):
        assert other == ["R"]
    else:
        assert other == [second]
    change(made, f"modify {whose} set {name}={clear(value)}")
    assert said(made, submit(made, asks, "")) == ["R"]


def test_no_setting_is_left_out() -> None:
    for rows, table in ((OF_QOS, QOS), (OF_ASSOC, ASSOC)):
        tested = {name.lower() for name, *_ in named(rows)}
        for setting in table:
            if setting.field not in ELSEWHERE:
                assert {name.lower() for name in setting.names} <= tested, setting.names
