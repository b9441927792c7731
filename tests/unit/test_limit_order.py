"""Which of several limits a submission with DenyOnLimit is refused for."""

from __future__ import annotations

from gsched.model.policy import Assoc, Qos
from gsched.policy.book import Book
from gsched.policy.limits import Under, at_submission, of

ONE = {"cpu": 1}


def words(qos: Qos, assoc: Assoc) -> list[str]:
    book = Book(
        [Assoc(id=1, account="root"), Assoc(id=2, account="lab", parent="root"), assoc, qos]
    )
    under = Under(assoc=assoc, qos=qos, part_qos=None, user="alice", account="lab")
    return [limit.word for limit in at_submission(of(book, under))]


def test_of_a_qos() -> None:
    # Of every two of these Slurm 22.05 told the one that stands first here (`-n2 -t20`, all of them
    # exceeded; all pairs on a real one).
    qos = Qos(
        id=5,
        name="deny",
        flags=("DenyOnLimit",),
        grp_tres=ONE,
        max_tres_pu=ONE,
        max_tres_pa=ONE,
        grp_submit_jobs=0,
        max_tres_mins_per_job=ONE,
        grp_tres_mins=ONE,
        grp_tres_run_mins=ONE,
        max_wall=10,
        grp_wall=15,
        max_tres_per_job=ONE,
        max_tres_per_node=ONE,
        max_submit_jobs_pa=0,
        max_submit_jobs_pu=0,
        min_tres_per_job={"cpu": 9},
    )
    assert words(qos, Assoc(id=3, account="lab", user="alice")) == [
        "MaxCpuPerAccount",
        "QOSMaxCpuPerUserLimit",
        "QOSGrpCpuLimit",
        "QOSGrpSubmitJobsLimit",
        "QOSMaxCpuMinutesPerJobLimit",
        "QOSGrpCPUMinutesLimit",
        "QOSGrpCPURunMinutesLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSGrpWallLimit",
        "QOSMaxCpuPerJobLimit",
        "QOSMaxCpuPerNode",
        "MaxSubmitJobsPerAccount",
        "QOSMaxSubmitJobPerUserLimit",
        "QOSMinCpuNotSatisfied",
    ]


def test_of_an_association() -> None:
    # The same, with the limits on the user's association.
    assoc = Assoc(
        id=3,
        account="lab",
        user="alice",
        grp_tres=ONE,
        grp_submit_jobs=0,
        grp_tres_mins=ONE,
        grp_tres_run_mins=ONE,
        grp_wall=15,
        max_tres_per_job=ONE,
        max_tres_per_node=ONE,
        max_submit_jobs=0,
        max_tres_mins_per_job=ONE,
        max_wall=10,
    )
    assert words(Qos(id=5, name="deny", flags=("DenyOnLimit",)), assoc) == [
        "AssocGrpCpuLimit",
        "AssocGrpSubmitJobsLimit",
        "AssocGrpCPUMinutesLimit",
        "AssocGrpCPURunMinutesLimit",
        "AssocGrpWallLimit",
        "AssocMaxCpuPerJobLimit",
        "AssocMaxCpuPerNode",
        "AssocMaxSubmitJobLimit",
        "AssocMaxCpuMinutesPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
    ]
