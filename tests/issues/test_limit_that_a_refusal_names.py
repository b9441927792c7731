"""With DenyOnLimit a refusal named the number of submitted jobs first, whatever else the job was
too big for. The order is that of a real Slurm (22.05.8), asked with each pair of limits broken:
QOS before association; in each, group TRES, then TRES of the user and account, the group's
submitted jobs, the job's own limits and minutes, the user's and account's submitted jobs,
MinTRES; of an association MaxTRESMins and MaxWall come last."""

from __future__ import annotations

from typing import Any

import pytest
from unit.test_limits import assoc, bench, qos, submit

from gsched.wire.messages import Refused

ONE = {"cpu": 1}
QOS: dict[str, tuple[dict[str, Any], str]] = {
    "GrpTRES": ({"grp_tres": ONE}, "QOSGrpCpuLimit"),
    "MaxTRESPU": ({"max_tres_pu": ONE}, "QOSMaxCpuPerUserLimit"),
    "MaxTRESPA": ({"max_tres_pa": ONE}, "MaxCpuPerAccount"),
    "GrpSubmit": ({"grp_submit_jobs": 0}, "QOSGrpSubmitJobsLimit"),
    "MaxTRES": ({"max_tres_per_job": ONE}, "QOSMaxCpuPerJobLimit"),
    "MaxTRESPN": ({"max_tres_per_node": ONE}, "QOSMaxCpuPerNode"),
    "MaxMins": ({"max_tres_mins_per_job": ONE}, "QOSMaxCpuMinutesPerJobLimit"),
    "MaxWall": ({"max_wall": 1}, "QOSMaxWallDurationPerJobLimit"),
    "RunMins": ({"grp_tres_run_mins": ONE}, "QOSGrpCPURunMinutesLimit"),
    "Mins": ({"grp_tres_mins": ONE}, "QOSGrpCPUMinutesLimit"),
    "MaxSubmitPU": ({"max_submit_jobs_pu": 0}, "QOSMaxSubmitJobPerUserLimit"),
    "MaxSubmitPA": ({"max_submit_jobs_pa": 0}, "MaxSubmitJobsPerAccount"),
    "MinTRES": ({"min_tres_per_job": {"cpu": 50}}, "QOSMinCpuNotSatisfied"),
}
ASSOC: dict[str, tuple[dict[str, Any], str]] = {
    "GrpTRES": ({"grp_tres": ONE}, "AssocGrpCpuLimit"),
    "GrpSubmit": ({"grp_submit_jobs": 0}, "AssocGrpSubmitJobsLimit"),
    "RunMins": ({"grp_tres_run_mins": ONE}, "AssocGrpCPURunMinutesLimit"),
    "Mins": ({"grp_tres_mins": ONE}, "AssocGrpCPUMinutesLimit"),
    "MaxTRES": ({"max_tres_per_job": ONE}, "AssocMaxCpuPerJobLimit"),
    "MaxTRESPN": ({"max_tres_per_node": ONE}, "AssocMaxCpuPerNode"),
    "MaxMins": ({"max_tres_mins_per_job": ONE}, "AssocMaxCpuMinutesPerJobLimit"),
    "MaxWall": ({"max_wall": 1}, "AssocMaxWallDurationPerJobLimit"),
    "MaxSubmit": ({"max_submit_jobs": 0}, "AssocMaxSubmitJobLimit"),
}


def said(of_qos: dict[str, Any], of_user: dict[str, Any]) -> str:
    """The word of the refusal of a job of 20 CPUs and 30 minutes."""
    made = bench()
    qos(made, flags=("DenyOnLimit",), **of_qos)
    if of_user:
        assoc(made, 20, **of_user)
    answer = submit(made, ntasks=20, time_limit=1800)
    assert isinstance(answer, Refused)
    return answer.notes[0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *((one, "GrpSubmit") for one in ("GrpTRES", "MaxTRESPU", "MaxTRESPA")),
        *(
            ("GrpSubmit", one)
            for one in ("MaxTRES", "MaxTRESPN", "MaxMins", "MaxWall", "RunMins", "Mins", "MinTRES")
        ),
        *((one, "MaxSubmitPU") for one in ("MaxTRES", "MaxTRESPN", "MaxMins", "MaxWall", "Mins")),
        *((one, "MaxSubmitPA") for one in ("GrpTRES", "MaxTRESPU", "MaxTRESPA", "RunMins")),
        *((one, "MinTRES") for one in ("MaxSubmitPU", "MaxSubmitPA")),
    ],
)
def test_limits_of_a_qos(first: str, second: str) -> None:
    assert said({**QOS[first][0], **QOS[second][0]}, {}) == QOS[first][1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("GrpTRES", one) for one in ("GrpSubmit", "MaxSubmit")),
        *(
            ("GrpSubmit", one)
            for one in ("RunMins", "Mins", "MaxTRES", "MaxTRESPN", "MaxMins", "MaxWall")
        ),
        *((one, "MaxSubmit") for one in ("RunMins", "Mins", "MaxTRES", "MaxTRESPN")),
        *(("MaxSubmit", one) for one in ("MaxMins", "MaxWall")),
    ],
)
def test_limits_of_an_association(first: str, second: str) -> None:
    assert said({}, {**ASSOC[first][0], **ASSOC[second][0]}) == ASSOC[first][1]


@pytest.mark.parametrize("one", ["GrpSubmit", "MaxSubmitPU", "MinTRES", "MaxWall", "Mins"])
@pytest.mark.parametrize("other", sorted(ASSOC))
def test_the_qos_goes_before_the_association(one: str, other: str) -> None:
    assert said(QOS[one][0], ASSOC[other][0]) == QOS[one][1]


def test_limits_go_before_nodes() -> None:
    """A job that no node can serve was refused for that, though its account took no jobs."""
    made = bench()
    assoc(made, 10, grp_submit_jobs=0)
    answer = submit(made, ntasks=20, min_nodes=1, max_nodes=1)
    assert isinstance(answer, Refused)
    assert answer.notes == ["AssocGrpSubmitJobsLimit"]
    assoc(made, 10, grp_submit_jobs=None)
    answer = submit(made, ntasks=20, min_nodes=1, max_nodes=1)
    assert isinstance(answer, Refused)
    assert answer.message == "Requested node configuration is not available"
