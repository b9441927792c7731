"""cluster_tools asks `sacctmgr list -n user withassoc format=maxsubmitjobsperuser`: the name of a
column of QOS. Slurm has one table of names for its listings; what a record does not have is empty
(answers of 22.05)."""

from __future__ import annotations

import pytest
from unit.policy_support import peer


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("list -n -P qos capped format=maxsubmitjobsperuser", "3\n"),
        ("list -P user alice withassoc format=maxsubmitjobsperuser", "MaxSubmitPU\n\n"),
        ("list -P user alice withassoc format=user,MaxJobsPerUser", "User|MaxJobsPU\nalice|\n"),
        ("list -P assoc user=alice format=user,MaxTRESPU,Org", "User|MaxTRESPU|Org\nalice||\n"),
        ("list -P assoc user=alice format=Acct,Admin", "Account|Admin\nresearch|\n"),
        ("list -P account prod format=Acct,DefaultAccount", "Account|Def Acct\nprod|\n"),
        ("list -P qos low format=name,MaxCPUsPerJob,Coord", "Name|MaxCPUs|Coord Accounts\nlow||\n"),
        ("list -P qos low format=GrpCPUMins,GrpMem,MinCPUs", "GrpCPUMins|GrpMem|MinCPUs\n||\n"),
        ("list -P assoc user=alice format=MaxCPUMinsPerJob", "MaxCPUMins\n\n"),
        ("list -P assoc user=alice format=user,MaxNodesPerJob", "User|MaxNodes\nalice|\n"),
    ],
)
def test_a_column_that_another_listing_has(line: str, said: str) -> None:
    assert peer().do(line) == said


def test_a_column_that_none_has() -> None:
    assert peer().ask("list assoc format=nosuch") == ("", "Unknown field 'nosuch'\n", 1)
