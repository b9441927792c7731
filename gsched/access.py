"""Which accounts, QOS and groups may use a partition. Pure."""

from __future__ import annotations

from collections.abc import Collection

from gsched.config import PartitionConfig
from gsched.model import JobSpec

#: why a job with an account or a QOS waits that its partition does not take
ACCOUNT = "AccountNotAllowed"
QOS = "QOSNotAllowed"

#: why a job waits whose association, or QOS, is gone
INVALID_ACCOUNT = "InvalidAccount"
INVALID_QOS = "InvalidQOS"
UNCHARGED = frozenset({INVALID_ACCOUNT, INVALID_QOS})

#: the first two -> Slurm's code where it is refused instead
CODES = {ACCOUNT: "ESLURM_INVALID_ACCOUNT", QOS: "ESLURM_INVALID_QOS"}


def group_may(part: PartitionConfig, groups: Collection[str]) -> bool:
    """Whether AllowGroups lets somebody of these groups in."""
    return not part.allow_groups or not set(part.allow_groups).isdisjoint(groups)


def barred(part: PartitionConfig, spec: JobSpec, accounts: Collection[str] = ()) -> str:
    """Slurm's reason why the partition does not take a job's account or QOS; "" it does. A list of
    those that may goes before one of those that may not. accounts: the job's and those above it
    (the lists mean accounts with all below them); () its own alone."""
    if not (part.allow_accounts or part.deny_accounts or part.allow_qos or part.deny_qos):
        return ""
    mine = {name.lower() for name in accounts or (spec.account,)}
    if not _takes(mine, part.allow_accounts, part.deny_accounts):
        return ACCOUNT
    if not _takes({spec.qos.lower() or "normal"}, part.allow_qos, part.deny_qos):
        return QOS
    return ""


def _takes(names: set[str], allowed: tuple[str, ...], denied: tuple[str, ...]) -> bool:
    if allowed:
        return not names.isdisjoint(item.lower() for item in allowed)
    return names.isdisjoint(item.lower() for item in denied)
