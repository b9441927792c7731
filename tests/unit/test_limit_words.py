"""Every limit that sacctmgr takes has the reason that Slurm documents for it: all words of
slurm.schedmd.com/job_reason_codes.html (26.05) that tell of a limit of an association or a QOS."""

from __future__ import annotations

import pytest

from gsched.policy import quota
from gsched.policy.limits import word

#: TRES -> how it is called in the words of associations, of QOS (memory), and with what ending
KINDS = {
    "cpu": "Cpu",
    "mem": "Mem",
    "node": "Node",
    "energy": "Energy",
    "billing": "Billing",
    "gres/gpu": "GRES",
    "gres/gpu:h100": "GRES",
    "license/lic": "License",
    "bb/datawarp": "BB",
    "fs/disk": "Unknown",
}
#: the documented words that are not made from a TRES
PLAIN = {
    ("jobs", "assoc"): "AssocGrpJobsLimit",
    ("maxjobs", "assoc"): "AssocMaxJobsLimit",
    ("submit", "assoc"): "AssocGrpSubmitJobsLimit",
    ("maxsubmit", "assoc"): "AssocMaxSubmitJobLimit",
    ("wall", "assoc"): "AssocGrpWallLimit",
    ("jobwall", "assoc"): "AssocMaxWallDurationPerJobLimit",
    ("jobs", "qos"): "QOSGrpJobsLimit",
    ("jobs", "user"): "QOSMaxJobsPerUserLimit",
    ("jobs", "account"): "MaxJobsPerAccount",
    ("submit", "qos"): "QOSGrpSubmitJobsLimit",
    ("submit", "user"): "QOSMaxSubmitJobPerUserLimit",
    ("submit", "account"): "MaxSubmitJobsPerAccount",
    ("wall", "qos"): "QOSGrpWallLimit",
    ("jobwall", "qos"): "QOSMaxWallDurationPerJobLimit",
    ("threshold", "share"): "QOSUsageThreshold",
}
#: the documented words of each TRES, in the order of KINDS' values; "-" there is none
DOCUMENTED = {
    ("tres", "assoc"): (
        "AssocGrpCpuLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpEnergy AssocGrpBilling "
        "AssocGrpGRES AssocGrpGRES AssocGrpLicense AssocGrpBB AssocGrpUnknown"
    ),
    ("mins", "assoc"): (
        "AssocGrpCPUMinutesLimit AssocGrpMemMinutes AssocGrpNodeMinutes AssocGrpEnergyMinutes "
        "AssocGrpBillingMinutes AssocGrpGRESMinutes AssocGrpGRESMinutes AssocGrpLicenseMinutes "
        "AssocGrpBBMinutes AssocGrpUnknownMinutes"
    ),
    ("run", "assoc"): (
        "AssocGrpCPURunMinutesLimit AssocGrpMemRunMinutes AssocGrpNodeRunMinutes "
        "AssocGrpEnergyRunMinutes AssocGrpBillingRunMinutes AssocGrpGRESRunMinutes "
        "AssocGrpGRESRunMinutes AssocGrpLicenseRunMinutes AssocGrpBBRunMinutes "
        "AssocGrpUnknownRunMinutes"
    ),
    ("job", "assoc"): (
        "AssocMaxCpuPerJobLimit AssocMaxMemPerJob AssocMaxNodePerJobLimit AssocMaxEnergyPerJob "
        "AssocMaxBillingPerJob AssocMaxGRESPerJob AssocMaxGRESPerJob AssocMaxLicensePerJob "
        "AssocMaxBBPerJob AssocMaxUnknownPerJob"
    ),
    ("jobmins", "assoc"): (
        "AssocMaxCpuMinutesPerJobLimit AssocMaxMemMinutesPerJob AssocMaxNodeMinutesPerJob "
        "AssocMaxEnergyMinutesPerJob AssocMaxBillingMinutesPerJob AssocMaxGRESMinutesPerJob "
        "AssocMaxGRESMinutesPerJob AssocMaxLicenseMinutesPerJob AssocMaxBBMinutesPerJob "
        "AssocMaxUnknownMinutesPerJob"
    ),
    ("node", "assoc"): (
        "AssocMaxCpuPerNode AssocMaxMemPerNode - AssocMaxEnergyPerNode AssocMaxBillingPerNode "
        "AssocMaxGRESPerNode AssocMaxGRESPerNode - AssocMaxBBPerNode AssocMaxUnknownPerNode"
    ),
    ("tres", "qos"): (
        "QOSGrpCpuLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpEnergy QOSGrpBilling QOSGrpGRES "
        "QOSGrpGRES QOSGrpLicense QOSGrpBB QOSGrpUnknown"
    ),
    ("mins", "qos"): (
        "QOSGrpCPUMinutesLimit QOSGrpMemoryMinutes QOSGrpNodeMinutes QOSGrpEnergyMinutes "
        "QOSGrpBillingMinutes QOSGrpGRESMinutes QOSGrpGRESMinutes QOSGrpLicenseMinutes "
        "QOSGrpBBMinutes QOSGrpUnknownMinutes"
    ),
    ("run", "qos"): (
        "QOSGrpCPURunMinutesLimit QOSGrpMemoryRunMinutes QOSGrpNodeRunMinutes "
        "QOSGrpEnergyRunMinutes QOSGrpBillingRunMinutes QOSGrpGRESRunMinutes QOSGrpGRESRunMinutes "
        "QOSGrpLicenseRunMinutes QOSGrpBBRunMinutes QOSGrpUnknownRunMinutes"
    ),
    ("job", "qos"): (
        "QOSMaxCpuPerJobLimit QOSMaxMemoryPerJob QOSMaxNodePerJobLimit QOSMaxEnergyPerJob "
        "QOSMaxBillingPerJob QOSMaxGRESPerJob QOSMaxGRESPerJob QOSMaxLicensePerJob QOSMaxBBPerJob "
        "QOSMaxUnknownPerJob"
    ),
    ("jobmins", "qos"): (
        "QOSMaxCpuMinutesPerJobLimit QOSMaxMemoryMinutesPerJob QOSMaxNodeMinutesPerJob "
        "QOSMaxEnergyMinutesPerJob QOSMaxBillingMinutesPerJob QOSMaxGRESMinutesPerJob "
        "QOSMaxGRESMinutesPerJob QOSMaxLicenseMinutesPerJob QOSMaxBBMinutesPerJob "
        "QOSMaxUnknownMinutesPerJob"
    ),
    ("node", "qos"): (
        "QOSMaxCpuPerNode QOSMaxMemoryPerNode - QOSMaxEnergyPerNode QOSMaxBillingPerNode "
        "QOSMaxGRESPerNode QOSMaxGRESPerNode - QOSMaxBBPerNode QOSMaxUnknownPerNode"
    ),
    ("tres", "user"): (
        "QOSMaxCpuPerUserLimit QOSMaxMemoryPerUser QOSMaxNodePerUserLimit QOSMaxEnergyPerUser "
        "QOSMaxBillingPerUser QOSMaxGRESPerUser QOSMaxGRESPerUser QOSMaxLicensePerUser "
        "QOSMaxBBPerUser QOSMaxUnknownPerUser"
    ),
    ("tres", "account"): (
        "MaxCpuPerAccount MaxMemoryPerAccount MaxNodePerAccount MaxEnergyPerAccount "
        "MaxBillingPerAccount MaxGRESPerAccount MaxGRESPerAccount MaxLicensePerAccount "
        "MaxBBPerAccount MaxUnknownPerAccount"
    ),
    ("min", "qos"): (
        "QOSMinCpuNotSatisfied QOSMinMemory QOSMinNode QOSMinEnergy QOSMinBilling QOSMinGRES "
        "QOSMinGRES QOSMinLicense QOSMinBB QOSMinUnknown"
    ),
}


@pytest.mark.parametrize(("what", "scope"), list(DOCUMENTED))
def test_words_of_tres(what: str, scope: str) -> None:
    wanted = DOCUMENTED[what, scope].split()
    for tres, documented in zip(KINDS, wanted, strict=True):
        if documented != "-":
            assert word(what, scope, tres) == documented


@pytest.mark.parametrize(("what", "scope"), list(PLAIN))
def test_other_words(what: str, scope: str) -> None:
    assert word(what, scope) == PLAIN[what, scope]


def test_words_of_our_own_are_none_of_slurms() -> None:
    theirs = {*PLAIN.values(), *(one for text in DOCUMENTED.values() for one in text.split())}
    assert not {quota.BORROW, quota.KEPT} & theirs
