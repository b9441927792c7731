"""The columns of accounts, associations, users, QOS and what else sacctmgr lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gsched import tres, units
from gsched.model.policy import SHARES_PARENT, Account, Assoc, Qos, Tres, User, Wckey
from gsched.policy import Book
from gsched_cli.sacctmgr_table import Field


class AssocRow(NamedTuple):
    """An association with what it is shown beside."""

    assoc: Assoc
    #: with what it inherits, or not, as asked for
    limits: Assoc
    book: Book
    cluster: str
    known: tuple[str, ...]
    #: spaces before the name of the account (tree)
    depth: int = 0
    raw_qos: bool = False
    #: the account or user that it is listed with (withassoc)
    account: Account | None = None
    user: User | None = None


class QosRow(NamedTuple):
    qos: Qos
    known: tuple[str, ...]


def number(value: float | None) -> str:
    return "" if value is None else str(value)


def factor(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def wall(minutes: int | None) -> str:
    return "" if minutes is None else units.format_padded(minutes * 60)


def seconds(value: int | None) -> str:
    return "" if value is None else units.format_padded(value)


def shares(value: int) -> str:
    return "parent" if value == SHARES_PARENT else str(value)


def qos_list(row: AssocRow) -> str:
    """The QOS by name; raw: what is set, with + and -, before what comes from above."""
    own = row.limits.qos
    if row.raw_qos:
        own = row.assoc.qos
        signed = [name for name in own or () if name[0] in "+-"]
        if own is None or signed:
            above = row.book.parent(row.assoc)
            given = sorted(row.book.allowed_qos(above)) if above is not None else []
            taken = {name[1:] for name in signed}
            return ",".join([*sorted(signed), *(one for one in given if one not in taken)])
    return ",".join(sorted(own or ()))


def _lim(name: str) -> Callable[[AssocRow], str]:
    return lambda row: number(getattr(row.limits, name))


def _tres(name: str) -> Callable[[Any], str]:
    return lambda row: tres.text(getattr(row.limits, name), row.known)


def _of_tres(name: str, kind: str) -> Callable[[AssocRow], str]:
    def read(row: AssocRow) -> str:
        counts: Tres = getattr(row.limits, name)
        return number(counts.get(kind))

    return read


A = Field[AssocRow]

ASSOC: tuple[A, ...] = (
    A(("Account", "Acct"), "Account", 10, lambda r: " " * r.depth + r.assoc.account, 3),
    A(("Cluster",), "Cluster", 10, lambda r: r.cluster),
    A(("Comment",), "Comment", 20, lambda r: r.assoc.comment, 3),
    A(("DefaultQOS", "Def QOS", "DefQOS"), "Def QOS", 9, lambda r: r.limits.default_qos or "", 8),
    A(("Fairshare",), "Share", 9, lambda r: shares(r.assoc.shares)),
    A(("Share", "Shares"), "Share", 9, lambda r: shares(r.assoc.shares)),
    A(("Flags",), "Flags", 20, lambda r: ",".join(r.assoc.flags)),
    A(("GrpTRES",), "GrpTRES", 13, _tres("grp_tres"), 7),
    A(("GrpTRESMins",), "GrpTRESMins", 13, _tres("grp_tres_mins"), 8),
    A(("GrpTRESRunMins",), "GrpTRESRunMins", 13, _tres("grp_tres_run_mins"), 8),
    A(("GrpTRESGuarantee",), "GrpTRESGuarantee", 20, _tres("guarantee"), 8),
    A(("GrpTRESBorrow",), "GrpTRESBorrow", 20, _tres("borrow"), 8),
    A(("GrpTRESLend",), "GrpTRESLend", 20, _tres("lend"), 8),
    A(("GuaranteeUnit",), "GuaranteeUnit", 13, lambda r: r.assoc.guarantee_unit or "gpu", 2),
    A(("GrpCPUMins",), "GrpCPUMins", 11, _of_tres("grp_tres_mins", "cpu"), 8),
    A(("GrpCPURunMins",), "GrpCPURunMins", 13, _of_tres("grp_tres_run_mins", "cpu"), 7),
    A(("GrpCPUs",), "GrpCPUs", 8, _of_tres("grp_tres", "cpu"), 7),
    A(("GrpMem",), "GrpMem", 7, _of_tres("grp_tres", "mem"), 4),
    A(("GrpNodes",), "GrpNodes", 8, _of_tres("grp_tres", "node"), 4),
    A(("GrpJobs",), "GrpJobs", 7, _lim("grp_jobs"), 4),
    A(("GrpJobsAccrue",), "GrpJobsAccrue", 13, _lim("grp_jobs_accrue"), 8),
    A(("GrpSubmitJobs", "GrpSubmit"), "GrpSubmit", 9, _lim("grp_submit_jobs"), 4),
    A(("GrpWall",), "GrpWall", 11, lambda r: wall(r.limits.grp_wall), 4),
    A(("ID",), "ID", 6, lambda r: str(r.assoc.id)),
    A(("Lineage",), "Lineage", -20, lambda r: lineage(r)),
    A(("MaxTRESMinsPerJob", "MaxTRESMins"), "MaxTRESMins", 13, _tres("max_tres_mins_per_job"), 8),
    A(("MaxTRESRunMins",), "MaxTRESRunMins", 14, _tres("max_tres_run_mins"), 8),
    A(("MaxTRESPerNode",), "MaxTRESPerNode", 14, _tres("max_tres_per_node"), 11),
    A(("MaxTRESPerJob", "MaxTRES"), "MaxTRES", 13, _tres("max_tres_per_job"), 7),
    A(
        ("MaxCPUMins", "MaxCPUMinsPerJob"),
        "MaxCPUMins",
        11,
        _of_tres("max_tres_mins_per_job", "cpu"),
        7,
    ),
    A(("MaxCPUs", "MaxCPUsPerJob"), "MaxCPUs", 8, _of_tres("max_tres_per_job", "cpu"), 7),
    A(("MaxNodes", "MaxNodesPerJob"), "MaxNodes", 8, _of_tres("max_tres_per_job", "node"), 4),
    A(("MaxJobs",), "MaxJobs", 7, _lim("max_jobs"), 4),
    A(("MaxJobsAccrue",), "MaxJobsAccrue", 13, _lim("max_jobs_accrue"), 8),
    A(("MaxSubmitJobs", "MaxSubmit"), "MaxSubmit", 9, _lim("max_submit_jobs"), 4),
    A(("MaxWallDurationPerJob", "MaxWall"), "MaxWall", 11, lambda r: wall(r.limits.max_wall), 4),
    A(("MinPrioThresh", "MinPrioThreshold"), "MinPrioThres", 12, _lim("min_prio_thresh")),
    A(("QOS", "QosLevel"), "QOS", 20, qos_list, 3),
    A(("QosRaw", "QOS_RAW"), "QOS_RAW", 10, lambda r: qos_ids(r), 4),
    A(("ParentID",), "ParentID", 8, lambda r: parent_id(r), 7),
    A(("ParentName",), "ParentName", 10, lambda r: r.assoc.parent, 7),
    A(("Partition",), "Partition", 10, lambda r: r.assoc.partition, 4),
    A(("Priority",), "Priority", 10, _lim("priority"), 2),
    A(("User",), "User", 10, lambda r: r.assoc.user, 1),
)


#: with the tree shown, and without what hangs on its edges
ASSOC_TREE: tuple[A, ...] = (ASSOC[0]._replace(width=-20), *ASSOC[1:])
NO_PARENT: tuple[A, ...] = (
    A(("ParentID",), "ParentID", 8, lambda r: "0", 7),
    A(("ParentName",), "ParentName", 10, lambda r: "", 7),
)


def lineage(row: AssocRow) -> str:
    """As 26.05 has it: "/physics/optics/0-kim/"."""
    chain = [one for one in reversed(row.book.chain(row.assoc)) if one.is_account]
    text = "/" + "".join(f"{one.account}/" for one in chain if one.parent)
    if row.assoc.user:
        text += f"0-{row.assoc.user}/"
    return text + (f"{row.assoc.partition}/" if row.assoc.partition else "")


def qos_ids(row: AssocRow) -> str:
    ids = [row.book.qos[name].id for name in row.limits.qos or () if name in row.book.qos]
    return ",".join(str(one) for one in sorted(ids))


def parent_id(row: AssocRow) -> str:
    above = row.book.parent(row.assoc)
    return str(above.id) if above is not None else ""


def coordinated(book: Book, user: User) -> str:
    """All accounts that a user coordinates, those below them too."""
    found = {one.account for name in user.coordinator for one in book.subtree(name) if not one.user}
    return ",".join(sorted(found))


def coordinators(book: Book, account: str) -> str:
    found = [user.name for user in book.users.values() if book.is_coordinator(user.name, account)]
    return ",".join(sorted(found))


def _own(row: AssocRow) -> Account:
    assert row.account is not None
    return row.account


def _user(row: AssocRow) -> User:
    assert row.user is not None
    return row.user


ACCOUNT: tuple[A, ...] = (
    A(("Account", "Acct"), "Account", 10, lambda r: _own(r).name, 3),
    A(
        ("Coordinators",),
        "Coord Accounts",
        20,
        lambda r: coordinators(r.book, _own(r).name),
        3,
    ),
    A(("Description",), "Descr", 20, lambda r: _own(r).description, 3),
    A(("Flags",), "Flags", 20, lambda r: ",".join(_own(r).flags)),
    A(("Organization",), "Org", 20, lambda r: _own(r).organization, 1),
)
USER: tuple[A, ...] = (
    A(("AdminLevel",), "Admin", 9, lambda r: _user(r).admin_level, 2),
    A(("Coordinators",), "Coord Accounts", 20, lambda r: coordinated(r.book, _user(r)), 3),
    A(("DefaultAccount",), "Def Acct", 10, lambda r: _user(r).default_account, 8),
    A(("DefaultWCKey",), "Def WCKey", 10, lambda r: _user(r).default_wckey, 8),
    A(("User", "Name"), "User", 10, lambda r: _user(r).name, 1),
)


class _Q:
    """Readers of a QOS."""

    @staticmethod
    def num(name: str) -> Callable[[QosRow], str]:
        return lambda row: number(getattr(row.qos, name))

    @staticmethod
    def tres(name: str) -> Callable[[QosRow], str]:
        return lambda row: tres.text(getattr(row.qos, name), row.known)

    @staticmethod
    def of(name: str, kind: str) -> Callable[[QosRow], str]:
        return lambda row: number(getattr(row.qos, name).get(kind))


Q = Field[QosRow]

QOS: tuple[Q, ...] = (
    Q(("Description",), "Descr", 20, lambda r: r.qos.description),
    Q(("Flags",), "Flags", 40, lambda r: ",".join(r.qos.flags)),
    Q(("GraceTime",), "GraceTime", 10, lambda r: seconds(r.qos.grace_time), 3),
    Q(("GrpTRES",), "GrpTRES", 13, _Q.tres("grp_tres"), 7),
    Q(("GrpTRESMins",), "GrpTRESMins", 13, _Q.tres("grp_tres_mins"), 8),
    Q(("GrpTRESRunMins",), "GrpTRESRunMins", 13, _Q.tres("grp_tres_run_mins"), 8),
    Q(("GrpCPUMins",), "GrpCPUMins", 11, _Q.of("grp_tres_mins", "cpu"), 8),
    Q(("GrpCPURunMins",), "GrpCPURunMins", 13, _Q.of("grp_tres_run_mins", "cpu"), 7),
    Q(("GrpCPUs",), "GrpCPUs", 8, _Q.of("grp_tres", "cpu"), 7),
    Q(("GrpMem",), "GrpMem", 7, _Q.of("grp_tres", "mem"), 4),
    Q(("GrpNodes",), "GrpNodes", 8, _Q.of("grp_tres", "node"), 4),
    Q(("GrpJobs",), "GrpJobs", 7, _Q.num("grp_jobs"), 4),
    Q(("GrpJobsAccrue",), "GrpJobsAccrue", 13, _Q.num("grp_jobs_accrue"), 8),
    Q(("GrpSubmitJobs", "GrpSubmit"), "GrpSubmit", 9, _Q.num("grp_submit_jobs"), 4),
    Q(("GrpWall",), "GrpWall", 11, lambda r: wall(r.qos.grp_wall), 4),
    Q(("ID",), "ID", 6, lambda r: str(r.qos.id)),
    Q(("LimitFactor",), "LimitFactor", 11, lambda r: factor(r.qos.limit_factor)),
    Q(
        ("MaxJobsAccruePerAccount", "MaxJobsAccruePA"),
        "MaxJobsAccruePA",
        15,
        _Q.num("max_jobs_accrue_pa"),
        15,
    ),
    Q(
        ("MaxJobsAccruePerUser", "MaxJobsAccruePU"),
        "MaxJobsAccruePU",
        15,
        _Q.num("max_jobs_accrue_pu"),
        8,
    ),
    Q(("MaxTRESMins", "MaxTRESMinsPerJob"), "MaxTRESMins", 13, _Q.tres("max_tres_mins_per_job"), 8),
    Q(("MaxTRESPerAccount", "MaxTRESPA"), "MaxTRESPA", 13, _Q.tres("max_tres_pa"), 11),
    Q(("MaxTRESPerNode",), "MaxTRESPerNode", 14, _Q.tres("max_tres_per_node"), 11),
    Q(("MaxTRESPerUser", "MaxTRESPU"), "MaxTRESPU", 13, _Q.tres("max_tres_pu"), 11),
    Q(
        ("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA"),
        "MaxTRESRunMinsPA",
        15,
        _Q.tres("max_tres_run_mins_pa"),
        18,
    ),
    Q(
        ("MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU"),
        "MaxTRESRunMinsPU",
        15,
        _Q.tres("max_tres_run_mins_pu"),
        8,
    ),
    Q(("MaxTRES", "MaxTRESPerJob"), "MaxTRES", 13, _Q.tres("max_tres_per_job"), 7),
    Q(
        ("MaxCPUMins", "MaxCPUMinsPerJob"),
        "MaxCPUMins",
        11,
        _Q.of("max_tres_mins_per_job", "cpu"),
        7,
    ),
    Q(("MaxCPUs", "MaxCPUsPerJob"), "MaxCPUs", 8, _Q.of("max_tres_per_job", "cpu"), 7),
    Q(("MaxCPUsPerUser",), "MaxCPUsPU", 9, _Q.of("max_tres_pu", "cpu"), 11),
    Q(("MaxNodes", "MaxNodesPerJob"), "MaxNodes", 8, _Q.of("max_tres_per_job", "node"), 4),
    Q(("MaxNodesPerUser",), "MaxNodesPU", 10, _Q.of("max_tres_pu", "node"), 12),
    Q(("MaxJobsPerUser", "MaxJobsPU", "MaxJobs"), "MaxJobsPU", 9, _Q.num("max_jobs_pu"), 4),
    Q(("MaxJobsPerAccount", "MaxJobsPA"), "MaxJobsPA", 9, _Q.num("max_jobs_pa"), 9),
    Q(
        ("MaxSubmitJobsPerUser", "MaxSubmitJobsPU", "MaxSubmitPU", "MaxSubmit"),
        "MaxSubmitPU",
        11,
        _Q.num("max_submit_jobs_pu"),
        4,
    ),
    Q(
        ("MaxSubmitJobsPerAccount", "MaxSubmitJobsPA", "MaxSubmitPA"),
        "MaxSubmitPA",
        11,
        _Q.num("max_submit_jobs_pa"),
        11,
    ),
    Q(("MaxWall", "MaxWallDurationPerJob"), "MaxWall", 11, lambda r: wall(r.qos.max_wall), 4),
    Q(("MinPrioThresh", "MinPrioThreshold"), "MinPrioThres", 12, _Q.num("min_prio_thresh"), 4),
    Q(("MinCPUs", "MinCPUsPerJob"), "MinCPUs", 8, _Q.of("min_tres_per_job", "cpu"), 7),
    Q(("MinTRES", "MinTRESPerJob"), "MinTRES", 13, _Q.tres("min_tres_per_job"), 4),
    Q(("Name",), "Name", 10, lambda r: r.qos.name),
    Q(("Preempt",), "Preempt", 10, lambda r: ",".join(sorted(r.qos.preempt)), 7),
    Q(("PreemptMode",), "PreemptMode", 11, lambda r: r.qos.preempt_mode, 8),
    Q(
        ("PreemptExemptTime",),
        "PreemptExemptTime",
        19,
        lambda r: seconds(r.qos.preempt_exempt_time),
        8,
    ),
    Q(("Priority",), "Priority", 10, lambda r: str(r.qos.priority), 3),
    Q(("UsageFactor",), "UsageFactor", 11, lambda r: factor(r.qos.usage_factor), 6),
    Q(("UsageThreshold", "UsageThres"), "UsageThres", 10, lambda r: factor(r.qos.usage_thres), 6),
)

_ALL: list[Field[Any]] = [*ASSOC, *QOS, *USER, *ACCOUNT]
#: Every column of these listings, empty: Slurm has one table of names for all of them, and shows
#: nothing for what the records of a listing do not have. A letter or two name only an own column.
EMPTY: tuple[Field[Any], ...] = tuple(
    field._replace(read=lambda row: "", least=max(field.least, 3)) for field in _ALL
)

#: what a listing shows that names no format
ASSOC_DEFAULT = (
    "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,"
    "MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins"
)
ASSOC_SHORT = "Cluster,Account,User,Partition"
ACCOUNT_DEFAULT = "Account,Description,Organization"
ACCOUNT_ASSOC = (
    "Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,"
    "GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS"
)
USER_DEFAULT = "User,DefaultAccount,AdminLevel"
USER_ASSOC = (
    "Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,"
    "MaxCPUMins,QOS,DefaultQOS"
)
QOS_DEFAULT = (
    "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags,UsageThres,UsageFactor,"
    "GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,"
    "MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxTRESRunMinsPA,"
    "MaxTRESRunMinsPU,MaxJobsPA,MaxSubmitPA,MinTRES"
)


class WckeyRow(NamedTuple):
    wckey: Wckey
    cluster: str


WCKEY: tuple[Field[WckeyRow], ...] = (
    Field(("Cluster",), "Cluster", 10, lambda r: r.cluster, 1),
    Field(("ID",), "ID", 6, lambda r: str(r.wckey.id), 1),
    Field(("WCKey", "Name"), "WCKey", 10, lambda r: r.wckey.name, 1),
    Field(("User",), "User", 10, lambda r: r.wckey.user, 1),
)
WCKEY_DEFAULT = "WCKey,Cluster,User"
