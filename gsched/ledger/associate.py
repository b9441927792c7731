"""To whom a job is charged: its account, its association and its QOS; at submission and when one of
them, or the partition, is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gsched.model import Job, JobSpec
from gsched.model.policy import NORMAL, Assoc
from gsched.policy.enforce import enforced

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.wire.messages import Call

INVALID_ACCOUNT = "ESLURM_INVALID_ACCOUNT"
INVALID_QOS = "ESLURM_INVALID_QOS"
INVALID_WCKEY = "ESLURM_INVALID_WCKEY"
#: an association for one partition counts for jobs in that partition alone
PARTITION_ASSOC = "ESLURM_PARTITION_ASSOC"

_OPERATORS = frozenset({"Operator", "Administrator"})


def is_operator(led: Ledger, call: Call) -> bool:
    """Whether the caller has the rights of an operator: an administrator of the cluster's own, or
    by his admin level."""
    return led.is_admin(call.uid) or led.book.level(call.user) in _OPERATORS


#: an account that was named as nobody's: without associations it is none
_NOBODY = "(null)"


def charge(
    led: Ledger, spec: JobSpec, user: str, names: Sequence[str], operator: bool
) -> tuple[JobSpec, int] | str:
    """The request with its account, QOS and WCKey, and the number of its association (0: none); or
    Slurm's code where that is refused. `names`: its partitions, the first one counts. An operator
    may use any QOS. Cost: depth of the account tree, after a change."""
    wanted = enforced(led.config.accounting_storage_enforce)
    account = _account(led, spec.account) or led.book.default_account(user)
    assoc, code = _find(led, account, user, names)
    if code and "associations" in wanted:
        return code
    if account == _NOBODY:
        account = ""
    qos, code = _qos(led, spec.qos, assoc, operator)
    if code and "qos" in wanted:
        return code
    wckey, code = spec.wckey, ""
    if led.config.track_wckey or "wckeys" in wanted:
        wckey, code = _wckey(led, spec.wckey, user)
    if code and "wckeys" in wanted:
        return code
    charged = msgspec.structs.replace(spec, account=account, qos=qos, wckey=wckey)
    return charged, assoc.id if assoc is not None else 0


def qos_of(led: Ledger, spec: JobSpec, user: str, names: Sequence[str]) -> str:
    """The QOS that a request would have, allowed or not. Cost: as charge."""
    account = _account(led, spec.account) or led.book.default_account(user)
    return _qos(led, spec.qos, _find(led, account, user, names)[0], True)[0]


def set_account(led: Ledger, job: Job, value: str) -> str:
    """Charges a waiting job to another account; its QOS stays, allowed there or not, as in Slurm.
    Returns Slurm's code, "" when it is done."""
    account = _account(led, value)
    assoc, code = _find(led, account, job.user, job.spec.partitions or (job.partition,))
    if code and "associations" in enforced(led.config.accounting_storage_enforce):
        return code
    job.spec.account = account
    job.assoc_id = assoc.id if assoc is not None else 0
    return ""


def set_partitions(led: Ledger, job: Job, names: Sequence[str]) -> str:
    """The association of a waiting job that goes to other partitions. Code or ""."""
    assoc, code = _find(led, job.spec.account, job.user, names)
    if code and "associations" in enforced(led.config.accounting_storage_enforce):
        return code
    job.assoc_id = assoc.id if assoc is not None else 0
    return ""


def set_qos(led: Ledger, job: Job, value: str, operator: bool) -> str:
    """Gives a waiting job another QOS; "" is the default one. Code or ""."""
    qos, code = _qos(led, value, led.book.assocs.get(job.assoc_id), operator)
    if code and "qos" in enforced(led.config.accounting_storage_enforce):
        return code
    job.spec.qos = qos
    return ""


def set_wckey(led: Ledger, job: Job, value: str) -> str:
    """Gives a waiting job another WCKey; "" is the default one. Code or ""."""
    wanted = "wckeys" in enforced(led.config.accounting_storage_enforce)
    wckey, code = value, ""
    if led.config.track_wckey or wanted:
        wckey, code = _wckey(led, value, job.user)
    if code and wanted:
        return code
    job.spec.wckey = wckey
    return ""


def default_qos(led: Ledger, assoc: Assoc | None) -> str:
    """The QOS of a job that names none: the only one that it may use, else the association's
    default, else normal."""
    if assoc is None:
        return NORMAL
    whole = led.book.effective(assoc)
    if whole.qos is not None and len(whole.qos) == 1:
        return whole.qos[0]
    return whole.default_qos or NORMAL


def _account(led: Ledger, name: str) -> str:
    """An account as its record spells it: names of accounts are in lower case."""
    low = name.lower()
    return low if low in led.book.accounts else name


def _find(led: Ledger, account: str, user: str, names: Sequence[str]) -> tuple[Assoc | None, str]:
    partition = names[0] if names else ""
    assoc = led.book.find(account, user, partition)
    if assoc is None:
        return None, INVALID_ACCOUNT
    if assoc.partition and len(names) > 1:
        return assoc, PARTITION_ASSOC
    return assoc, ""


def _qos(led: Ledger, name: str, assoc: Assoc | None, operator: bool) -> tuple[str, str]:
    chosen = name
    if not name:
        chosen = default_qos(led, assoc)
    elif name.lower() in led.book.qos:
        chosen = name.lower()
    if chosen not in led.book.qos:
        return chosen, INVALID_QOS
    if "Relative" in led.book.qos[chosen].flags and _of_a_partition(led, chosen):
        # Its limits are parts of that partition.
        return chosen, INVALID_QOS
    if not operator and assoc is not None and chosen not in led.book.allowed_qos(assoc):
        return chosen, INVALID_QOS
    return chosen, ""


def _of_a_partition(led: Ledger, qos: str) -> bool:
    """Whether it is the QOS of a partition."""
    return any(part.qos.lower() == qos for part in led.config.partitions.values())


def _wckey(led: Ledger, name: str, user: str) -> tuple[str, str]:
    if not name:
        known = led.book.users.get(user)
        # Slurm marks one that nobody named.
        default = known.default_wckey if known is not None else ""
        return (f"*{default}", "") if default else ("", INVALID_WCKEY)
    plain = name.removeprefix("*")
    for key in led.book.wckeys.values():
        if key.user == user and key.name == plain:
            return name, ""
    return name, INVALID_WCKEY


__all__ = [
    "charge",
    "default_qos",
    "is_operator",
    "qos_of",
    "set_account",
    "set_partitions",
    "set_qos",
    "set_wckey",
]
