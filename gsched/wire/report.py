"""What is asked of accounting beside single jobs (sreport, sacctmgr): a part of
`gsched.wire.messages`."""

from __future__ import annotations

import msgspec

from gsched.model.policy import Tres


class _Row(msgspec.Struct, array_like=True, tag=True, gc=False):
    pass


class ReportQuery(msgspec.Struct, array_like=True, tag=True, gc=False):
    """One question; times in epoch seconds, [start, end)."""

    #: "usage": UsageRow; "cluster": ClusterRow; "sizes": SizeRow; "reservations": ResvRow;
    #: "events": EventRow; "transactions": TransactionRow; "runaway": RunawayRow; "bill": BillRow;
    #: "deleted": TransactionRow of policy that is no more (action: its kind, info: it as JSON).
    #: "settings": TransactionRow of slurmdbd.conf (action: a key, info: its value).
    #: What is done to the database (gsched.accounting.acts): "mend" and "change", RunawayRow of
    #: what they changed; "archive" and "load", numbers of rows in `totals`
    kind: str
    start: int = 0
    end: int = 1 << 40
    #: only these; keys: accounts, users, wckeys, gids, ids, partitions, nodes, names, actions,
    #: actors, states; of what is done also fields and their values
    only: dict[str, list[str]] = {}
    min_version: int = 0


class UsageRow(_Row):
    """What one user has used in one account with one WCKey."""

    account: str
    user: str
    wckey: str
    assoc_id: int
    #: TRES-seconds
    tres: Tres


class ClusterRow(_Row):
    """How one TRES of the cluster was spent, in TRES-seconds."""

    tres: str
    #: how many there are (at the end of the time)
    count: int
    allocated: int
    down: int
    planned_down: int
    idle: int
    #: jobs could have run and had no place, as far as there was idle time; and beyond that
    planned: int
    overcommitted: int
    reported: int


class SizeRow(_Row):
    """Jobs of one owner that had the same."""

    account: str
    user: str
    wckey: str
    alloc_tres: str
    jobs: int
    #: of wall time, in all
    seconds: int


class ResvRow(_Row):
    """A reservation, for one time in which it was the same."""

    name: str
    id: int
    begin: int
    end: int
    flags: str
    nodes: str
    #: accounts, and users as user:NAME
    assocs: str
    tres: Tres
    #: TRES-seconds by jobs
    used: Tres


class EventRow(_Row):
    """A node that was out of service, or (node "") a size of the cluster. `end` 0: it is so."""

    node: str
    begin: int
    end: int
    state: str
    reason: str
    uid: int
    cluster_nodes: str
    tres: str


class TransactionRow(_Row):
    time: int
    actor: str
    action: str
    where: str
    info: str


class RunawayRow(_Row):
    """An attempt that accounting holds as not over, and that the controller does not know."""

    job_id: int
    restarts: int
    name: str
    partition: str
    account: str
    user: str
    state: str
    submit: int
    start: int
    end: int


class BillRow(_Row):
    """Attempts of one owner that are charged alike, in one span of time."""

    account: str
    user: str
    #: begin of the month
    month: int
    alloc_tres: str
    #: state of the attempts: what ended with its node is refunded
    state: str
    jobs: int
    seconds: int


Rows = UsageRow | ClusterRow | SizeRow | ResvRow | EventRow | TransactionRow | RunawayRow | BillRow


class ReportRows(msgspec.Struct, array_like=True, tag=True, gc=False):
    """The answer."""

    rows: list[Rows]
    #: "usage": TRES-seconds that the cluster had in that time
    totals: Tres = {}
    #: why what only SQL knows is missing; "" nothing is
    warning: str = ""
