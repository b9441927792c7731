"""Who may use how much: accounts, users, associations, QOS, and what was used.

The records that `sacctmgr` changes. They lie in the store's table "policy" (usage in "usage"), and
all of them in memory (`gsched.policy.Book`). msgspec arrays: new fields only at the end.

TRES are written as dicts of count by name: "cpu", "mem" (MB), "node", "billing", "gres/gpu",
"gres/gpu:h100", "license/matlab". A name that is absent has no limit. Times are minutes where
Slurm's are (wall limits, TRES-minutes). None is "not set": for an association's Max* limits and QOS
then the parent's counts, for everything else there is no limit.
"""

from __future__ import annotations

import msgspec

#: account at the top of the tree: it always exists, and its association is number 1
ROOT = "root"
ROOT_ID = 1
#: QOS that always exists, and what a job has that names none
NORMAL = "normal"
#: `Assoc.shares` of fairshare=parent: usage and level are the parent's
SHARES_PARENT = -1

Tres = dict[str, int]


class _Record(msgspec.Struct, array_like=True, tag=True, gc=False):
    pass


class Account(_Record):
    """A team. Its place in the tree, and its limits, are its association's (user "")."""

    name: str
    description: str = ""
    organization: str = ""
    flags: tuple[str, ...] = ()


class User(_Record):
    """A person, by login name."""

    name: str
    default_account: str = ""
    default_wckey: str = ""
    #: "None", "Operator" or "Administrator"
    admin_level: str = "None"
    #: accounts whose coordinator he is (the accounts below them come along)
    coordinator: tuple[str, ...] = ()
    #: number that the name stood for when he first submitted; -1 not known
    uid: int = -1


class Assoc(_Record):
    """An account's (user ""), or a user's in an account, for one partition or for all ("")."""

    id: int
    account: str
    user: str = ""
    partition: str = ""
    #: the account above; "" for root
    parent: str = ""
    #: Fairshare=; SHARES_PARENT: parent
    shares: int = 1
    default_qos: str | None = None
    #: QOS that may be used; None: the parent's. Kept resolved: +/- are applied when they are set
    qos: tuple[str, ...] | None = None
    priority: int | None = None
    grp_jobs: int | None = None
    grp_jobs_accrue: int | None = None
    grp_submit_jobs: int | None = None
    grp_wall: int | None = None
    grp_tres: Tres = {}
    grp_tres_mins: Tres = {}
    grp_tres_run_mins: Tres = {}
    max_jobs: int | None = None
    max_jobs_accrue: int | None = None
    max_submit_jobs: int | None = None
    max_wall: int | None = None
    max_tres_per_job: Tres = {}
    max_tres_per_node: Tres = {}
    max_tres_mins_per_job: Tres = {}
    max_tres_run_mins: Tres = {}
    min_prio_thresh: int | None = None
    comment: str = ""
    flags: tuple[str, ...] = ()
    #: gsched's own: what the account is guaranteed, the most it may use beyond that (absent: no
    #: bound), and the most of its guarantee that others may use while it is idle (absent: all)
    guarantee: Tres = {}
    borrow: Tres = {}
    lend: Tres = {}
    #: "": the guarantee is in single GPUs; "island" or "node": in whole ones
    guarantee_unit: str = ""
    created: int = 0

    @property
    def is_account(self) -> bool:
        return not self.user


class Qos(_Record):
    """A quality of service."""

    id: int
    name: str
    description: str = ""
    priority: int = 0
    #: seconds
    grace_time: int = 0
    #: QOS whose jobs this one may preempt
    preempt: tuple[str, ...] = ()
    #: "cluster", "off", "cancel", "requeue", "suspend", "gang", "within"
    preempt_mode: str = "cluster"
    #: seconds; None: the cluster's PreemptExemptTime
    preempt_exempt_time: int | None = None
    #: DenyOnLimit, OverPartQOS, ...
    flags: tuple[str, ...] = ()
    usage_factor: float = 1.0
    usage_thres: float | None = None
    limit_factor: float | None = None
    grp_jobs: int | None = None
    grp_jobs_accrue: int | None = None
    grp_submit_jobs: int | None = None
    grp_wall: int | None = None
    grp_tres: Tres = {}
    grp_tres_mins: Tres = {}
    grp_tres_run_mins: Tres = {}
    #: for each account, each user (MaxJobsPerAccount, MaxJobsPerUser, ...)
    max_jobs_pa: int | None = None
    max_jobs_pu: int | None = None
    max_jobs_accrue_pa: int | None = None
    max_jobs_accrue_pu: int | None = None
    max_submit_jobs_pa: int | None = None
    max_submit_jobs_pu: int | None = None
    max_wall: int | None = None
    max_tres_per_job: Tres = {}
    max_tres_per_node: Tres = {}
    max_tres_pa: Tres = {}
    max_tres_pu: Tres = {}
    max_tres_mins_per_job: Tres = {}
    max_tres_run_mins_pa: Tres = {}
    max_tres_run_mins_pu: Tres = {}
    min_prio_thresh: int | None = None
    min_tres_per_job: Tres = {}
    created: int = 0


class Wckey(_Record):
    """A workload characterisation key of one user."""

    id: int
    name: str
    user: str
    default: bool = False


class Resource(_Record):
    """Licences that a server outside of the cluster has, and the part of them that it may use."""

    name: str
    server: str
    count: int = 0
    kind: str = "License"
    server_type: str = ""
    description: str = ""
    #: "Absolute": `allowed` is a count
    flags: tuple[str, ...] = ()
    #: what this cluster may use, in per cent of the count; None: it may not use any
    allowed: int | None = None
    #: how many were taken in all when somebody last looked, and how many of this cluster's were
    #: then taken by others
    last_consumed: int = 0
    deficit: int = 0
    created: int = 0
    modified: int = 0

    @property
    def full(self) -> str:
        """The name of the licence: name@server."""
        return f"{self.name}@{self.server}"

    @property
    def granted(self) -> int:
        """How many the cluster may use."""
        if self.allowed is None:
            return 0
        return self.allowed if "Absolute" in self.flags else self.count * self.allowed // 100


class Federation(_Record):
    """A group of clusters, by name."""

    name: str
    created: int = 0


class Cluster(_Record):
    """What is set on a cluster itself; limits are the root account's."""

    name: str
    classification: str = ""
    federation: str = ""
    #: its number there, from 1 on; 0: it is in none
    fed_id: int = 0
    fed_state: str = ""
    features: tuple[str, ...] = ()


class Used(msgspec.Struct, array_like=True, gc=False):
    """What an association or a QOS has used, decayed to `at`. Ended attempts only: what running
    ones use is added where it is asked for (`gsched.policy.usage`), so that a crash neither loses
    nor doubles anything."""

    #: TRES-seconds by name, weighed by the QOS's usage factor
    tres: dict[str, float] = {}
    #: seconds of wall time
    wall: float = 0.0
    #: epoch seconds of the values
    at: float = 0.0
    #: when it was last set to zero: what ran before does not count
    since: float = 0.0
    #: of a QOS: the same for each user and each account in it, TRES-seconds
    by_user: dict[str, dict[str, float]] = {}
    by_account: dict[str, dict[str, float]] = {}


PolicyRecord = Account | User | Assoc | Qos | Wckey | Resource | Federation | Cluster


def key_of(record: PolicyRecord) -> bytes:
    """Key of a record in the table "policy"."""
    if isinstance(record, Assoc):
        return b"assoc/" + record.id.to_bytes(8, "big")
    if isinstance(record, Wckey):
        return b"wckey/" + record.id.to_bytes(8, "big")
    name = record.full if isinstance(record, Resource) else record.name
    return f"{type(record).__name__.lower()}/{name}".encode()
