"""Which limits a job is under: of its QOS, its partition's QOS, its association and those above.

The order is Slurm's: partition QOS, job QOS (before it with OverPartQOS), the user's association,
the accounts above it up to root. Where one of them says how much of something there may be, those
behind it have no say; but group limits of associations hold on every level. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gsched.model.policy import Assoc, Qos, Tres
from gsched.policy import quota
from gsched.policy.book import Book
from gsched.tres import order

#: whose usage counts: ("assoc", id, ""), ("qos", name, ""), ("user", qos, user) and
#: ("account", qos, account)
Scope = tuple[str, int | str, str]
#: what is counted there: (scope, what, name of a TRES or ""). `what` is one of
#: "jobs" running, "maxjobs" the same for MaxJobs, "submit" and "maxsubmit" running or waiting,
#: "tres" held, "run" TRES-seconds that running jobs may still use, "mins" TRES-seconds used,
#: "wall" seconds of running time used; "threshold" whether a fair share is too low (scope ("share",
#: association, QOS)); "borrow" what an account holds, its guarantee included, and
#: "kept" what the cluster's jobs hold and what others' guarantees keep, both gsched's own
Pool = tuple[Scope, str, str]

#: kinds of limits for each job by itself: TRES of the job, of a node, TRES-minutes, wall time, at
#: least so many TRES
EACH = ("job", "node", "jobmins", "jobwall", "min")
#: flag of a QOS whose UsageThreshold holds
WAITS_FOR_SHARE = "EnforceUsageThreshold"
#: what a fair share of 1 is in the limit on it
SHARE = 1_000_000


@dataclass(frozen=True)
class Limit:
    """One limit that counts for a job: how much, who has set it, and Slurm's word for it."""

    pool: Pool
    #: as it was set: counts, minutes of "wall", "mins" and "run"
    value: int
    word: str
    #: what sets it: "QOS gold", "account lab", "user ana in lab"
    whose: str


@dataclass
class Limits:
    """All that limits the jobs of one association, QOS and partition."""

    #: what a job waits for, in the order in which Slurm looks at them
    rules: list[Limit] = field(default_factory=list)
    #: pools that limit others, and to which these jobs add, though something else limits them
    also: list[Pool] = field(default_factory=list)
    #: how many may be submitted
    submit: list[Limit] = field(default_factory=list)
    #: scopes whose usage a job adds to
    scopes: tuple[Scope, ...] = ()
    #: priority below which a job gets no reservation (MinPrioThreshold); None: any gets one, -1:
    #: none does (NoReserve)
    floor: int | None = None
    #: DenyOnLimit: what can never be is refused at submission
    deny: bool = False
    #: UsageFactor, if jobs must be able to end within the minutes as they are counted
    factor: float = 1.0


@dataclass(frozen=True)
class Under:
    """Where a job stands."""

    assoc: Assoc | None
    qos: Qos | None
    #: the partition's QOS
    part_qos: Qos | None
    user: str
    account: str


# ---- words -----------------------------------------------------------------------------------


def _kind(tres: str) -> str:
    head = tres.partition("/")[0]
    known = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "energy": "Energy", "billing": "Billing"}
    return {**known, "gres": "GRES", "license": "License", "bb": "BB"}.get(head, "Unknown")


def word(what: str, scope: str, tres: str = "") -> str:
    """Slurm's reason word for a limit. Its names are not of one mould."""
    if what in ("borrow", "kept"):
        return quota.BORROW if what == "borrow" else quota.KEPT
    qos = scope != "assoc"
    who = "QOS" if qos else "Assoc"
    kind = _kind(tres) if tres else ""
    memory = "Memory" if kind == "Mem" and qos else kind
    last = "Limit" if kind in ("Cpu", "Node") else ""
    if what == "tres":
        if scope == "user":
            return f"QOSMax{memory}PerUser{last}"
        if scope == "account":
            return f"Max{memory}PerAccount"
        return f"{who}Grp{kind}{'Limit' if kind in ('Cpu', 'Mem', 'Node') else ''}"
    if what in ("mins", "run"):
        minutes = "RunMinutes" if what == "run" else "Minutes"
        if kind == "Cpu":
            return f"{who}GrpCPU{minutes}Limit"
        return f"{who}Grp{memory}{minutes}"
    if what == "job":
        return f"{who}Max{memory}PerJob{last}"
    if what == "node":
        return f"{who}Max{memory}PerNode"
    if what == "jobmins":
        return f"{who}Max{memory}MinutesPerJob{'Limit' if kind == 'Cpu' else ''}"
    if what == "min":
        return "QOSMinCpuNotSatisfied" if kind == "Cpu" else f"QOSMin{memory}"
    return _PLAIN[what, scope]


_PLAIN = {
    ("jobs", "assoc"): "AssocGrpJobsLimit",
    ("maxjobs", "assoc"): "AssocMaxJobsLimit",
    ("jobs", "qos"): "QOSGrpJobsLimit",
    ("jobs", "user"): "QOSMaxJobsPerUserLimit",
    ("jobs", "account"): "MaxJobsPerAccount",
    ("submit", "assoc"): "AssocGrpSubmitJobsLimit",
    ("maxsubmit", "assoc"): "AssocMaxSubmitJobLimit",
    ("submit", "qos"): "QOSGrpSubmitJobsLimit",
    ("submit", "user"): "QOSMaxSubmitJobPerUserLimit",
    ("submit", "account"): "MaxSubmitJobsPerAccount",
    ("threshold", "share"): "QOSUsageThreshold",
    ("wall", "assoc"): "AssocGrpWallLimit",
    ("wall", "qos"): "QOSGrpWallLimit",
    ("jobwall", "assoc"): "AssocMaxWallDurationPerJobLimit",
    ("jobwall", "qos"): "QOSMaxWallDurationPerJobLimit",
}


def whose(book: Book, scope: Scope) -> str:
    """A scope as people call it."""
    kind, name, of = scope
    if kind == "assoc":
        assoc = book.assocs.get(int(name))
        if assoc is None:
            return "an association"
        if assoc.is_account:
            return f"account {assoc.account}"
        where = f" and partition {assoc.partition}" if assoc.partition else ""
        return f"user {assoc.user} in account {assoc.account}{where}"
    if kind in ("qos", "share"):
        return f"QOS {name if kind == 'qos' else of}"
    return f"{kind} {of} in QOS {name}"


# ---- from the records ------------------------------------------------------------------------


class _Found:
    """Collects limits, the first of a kind being the one that counts."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.limits = Limits()
        self.set: set[tuple[str, str]] = set()

    def add(
        self, to: list[Limit], kind: str, scope: Scope, what: str, value: int | None, tres: str = ""
    ) -> bool:
        """`kind` is what a QOS's and an association's limit are the same of."""
        if value is None or value < 0:
            return False
        if (kind, tres) in self.set:
            if what not in EACH:
                self.limits.also.append((scope, what, tres))
            return False
        who = whose(self.book, scope)
        to.append(Limit((scope, what, tres), value, word(what, scope[0], tres), who))
        return True

    def each(
        self, to: list[Limit], kind: str, scope: Scope, what: str, values: Mapping[str, int]
    ) -> Iterator[tuple[str, str]]:
        for tres in order(values):
            value = values[tres]
            if self.add(to, kind, scope, what, value, tres):
                yield kind, tres


def of(
    book: Book,
    under: Under,
    *,
    safe: bool = False,
    percent: Callable[[Qos, Tres], Tres] | None = None,
    capacity: Mapping[str, int] | None = None,
) -> Limits:
    """The limits of a job that stands there. `percent` makes counts of the percentages of a QOS
    with the flag Relative; `capacity` is what the cluster has of each TRES. Cost: a few us for each
    level of the tree."""
    found = _Found(book)
    limits = found.limits
    qoses = [qos for qos in (under.part_qos, under.qos) if qos is not None]
    if under.qos is not None and "OverPartQOS" in under.qos.flags:
        qoses.reverse()
    if len(qoses) == 2 and qoses[0].name == qoses[1].name:
        qoses.pop()
    for qos in qoses:
        _of_qos(found, qos, under, percent)
    factor = under.qos.limit_factor if under.qos is not None else None
    chain = book.chain(under.assoc) if under.assoc is not None else []
    for number, assoc in enumerate(chain):
        _of_assoc(found, assoc, number == 0, factor)
    _of_quotas(found, chain, capacity)
    scopes: list[Scope] = []
    for qos in qoses:
        scopes.append(("qos", qos.name, ""))
        scopes.append(("account", qos.name, under.account))
        scopes.append(("user", qos.name, under.user))
    scopes += [("assoc", assoc.id, "") for assoc in chain]
    limits.scopes = tuple(scopes)
    own = under.qos
    if own is not None:
        limits.deny = "DenyOnLimit" in own.flags
        if safe and "UsageFactorSafe" in own.flags:
            limits.factor = own.usage_factor
    limits.deny = limits.deny or any("DenyOnLimit" in qos.flags for qos in qoses)
    floors = [qos.min_prio_thresh for qos in qoses]
    if under.assoc is not None:
        floors.append(book.effective(under.assoc).min_prio_thresh)
    limits.floor = next((floor for floor in floors if floor is not None), None)
    if own is not None and "NoReserve" in own.flags:
        limits.floor = -1
    limits.rules.sort(key=lambda limit: limit.pool[1] in _BY_PLACE)
    return limits


#: limits that Slurm looks at only once it knows where a job would run; the others go before them
_BY_PLACE = frozenset({"tres", "run", "job", "node", "jobmins", "min", "borrow", "kept"})


def _of_qos(
    found: _Found, qos: Qos, under: Under, percent: Callable[[Qos, Tres], Tres] | None
) -> None:
    limits, new = found.limits, set[tuple[str, str]]()
    own: Scope = ("qos", qos.name, "")
    user: Scope = ("user", qos.name, under.user)
    account: Scope = ("account", qos.name, under.account)
    rules, submit = limits.rules, limits.submit

    def scaled(tres: Tres) -> Tres:
        return percent(qos, tres) if percent is not None and "Relative" in qos.flags else tres

    if under.assoc is not None and WAITS_FOR_SHARE in qos.flags:
        share: Scope = ("share", under.assoc.id, qos.name)
        least = None if qos.usage_thres is None else round(qos.usage_thres * SHARE)
        if found.add(rules, "threshold", share, "threshold", least):
            new.add(("threshold", ""))
    plain = (
        (rules, "jobs", own, "jobs", qos.grp_jobs),
        (rules, "maxjobs", account, "jobs", qos.max_jobs_pa),
        (rules, "maxjobs", user, "jobs", qos.max_jobs_pu),
        (rules, "wall", own, "wall", qos.grp_wall),
        (rules, "jobwall", own, "jobwall", qos.max_wall),
        (submit, "submit", own, "submit", qos.grp_submit_jobs),
        (submit, "maxsubmit", account, "submit", qos.max_submit_jobs_pa),
        (submit, "maxsubmit", user, "submit", qos.max_submit_jobs_pu),
    )
    for to, kind, scope, what, value in plain:
        # A user's and an account's are two limits of one QOS.
        if found.add(to, kind, scope, what, value):
            new.add((kind, ""))
    new.update(found.each(rules, "grpmins", own, "mins", qos.grp_tres_mins))
    tables = (
        (rules, "grptres", own, "tres", scaled(qos.grp_tres)),
        (rules, "grprun", own, "run", qos.grp_tres_run_mins),
        (rules, "jobmins", own, "jobmins", qos.max_tres_mins_per_job),
        (rules, "job", own, "job", scaled(qos.max_tres_per_job)),
        (rules, "node", own, "node", qos.max_tres_per_node),
        (rules, "pa", account, "tres", scaled(qos.max_tres_pa)),
        (rules, "pu", user, "tres", scaled(qos.max_tres_pu)),
        (rules, "min", own, "min", scaled(qos.min_tres_per_job)),
    )
    for to, kind, scope, what, values in tables:
        new.update(found.each(to, kind, scope, what, values))
    found.set |= new


def _of_assoc(found: _Found, assoc: Assoc, first: bool, factor: float | None) -> None:
    limits, own = found.limits, ("assoc", assoc.id, "")
    scope: Scope = own

    def scaled(tres: Tres) -> Tres:
        if factor is None or factor < 0:
            return tres
        return {name: int(count * factor) for name, count in tres.items()}

    add, rules = found.add, limits.rules
    add(rules, "jobs", scope, "jobs", assoc.grp_jobs)
    if first:
        add(rules, "maxjobs", scope, "maxjobs", found.book.effective(assoc).max_jobs)
    add(rules, "wall", scope, "wall", assoc.grp_wall)
    list(found.each(rules, "grpmins", scope, "mins", assoc.grp_tres_mins))
    add(limits.submit, "submit", scope, "submit", assoc.grp_submit_jobs)
    for kind, what, values in (
        ("grptres", "tres", scaled(assoc.grp_tres)),
        ("grprun", "run", assoc.grp_tres_run_mins),
    ):
        list(found.each(rules, kind, scope, what, values))
    if not first:
        return
    whole = found.book.effective(assoc)
    add(rules, "jobwall", scope, "jobwall", whole.max_wall)
    add(limits.submit, "maxsubmit", scope, "maxsubmit", whole.max_submit_jobs)
    for kind, what, values in (
        ("jobmins", "jobmins", whole.max_tres_mins_per_job),
        ("job", "job", scaled(whole.max_tres_per_job)),
        ("node", "node", whole.max_tres_per_node),
    ):
        list(found.each(rules, kind, scope, what, values))


def _of_quotas(found: _Found, chain: list[Assoc], capacity: Mapping[str, int] | None) -> None:
    """Bounds on borrowing, of every account on the way up; and what others do not lend."""
    book, limits = found.book, found.limits
    for assoc in chain:
        for name, most in sorted(assoc.borrow.items()) if assoc.is_account else ():
            value = quota.promised(book, assoc, name) + most
            scope: Scope = ("assoc", assoc.id, "")
            who = whose(book, scope)
            limits.rules.append(Limit((scope, "borrow", name), value, quota.BORROW, who))
    if not chain:
        return
    for name in quota.names(book):
        known = quota.lenders(book, name)
        mine = quota.lender(book, chain[0].account, name) if known else ""
        for one in ("", *known) if known else ():
            pool: Pool = (("lend", one, ""), "kept", name)
            if one == mine:
                value = (capacity or {}).get(name, 0)
                limits.rules.append(Limit(pool, value, quota.KEPT, "what others do not lend"))
            else:
                limits.also.append(pool)


# ---- a job by itself -------------------------------------------------------------------------


def breaks(limit: Limit, asked: Mapping[str, int], time_limit: int) -> bool:
    """Whether a request does not keep to a limit for each job by itself; `time_limit` in seconds
    (0: none)."""
    _, what, tres = limit.pool
    count = asked.get(tres, 0)
    if what == "jobwall":
        return not time_limit or time_limit > limit.value * 60
    if what == "node":
        # As many of each node as it wants on the average.
        return count // max(asked.get("node", 1), 1) > limit.value
    if what == "jobmins":
        return count > 0 and (not time_limit or count * time_limit > limit.value * 60)
    if what == "min":
        return count < limit.value
    return what == "job" and count > limit.value


def impossible(limits: Limits, asked: Mapping[str, int], time_limit: int) -> Limit | None:
    """With DenyOnLimit: the first limit that a request exceeds even if no other job ran."""
    for limit in at_submission(limits):
        if limit.pool[1] not in _SUBMIT and exceeds(limit, asked, time_limit):
            return limit
    return None


def exceeds(limit: Limit, asked: Mapping[str, int], time_limit: int) -> bool:
    """Whether a request exceeds a limit of its kind even if no other job ran."""
    _, what, tres = limit.pool
    count = asked.get(tres, 0)
    if what in EACH:
        return breaks(limit, asked, time_limit)
    if what == "tres":
        return count > limit.value
    if what == "wall":
        return time_limit > limit.value * 60
    return what in ("run", "mins") and count * time_limit > limit.value * 60


_SUBMIT = ("submit", "maxsubmit")


def at_submission(limits: Limits) -> list[Limit]:
    """What a new job is refused for, in the order in which Slurm looks at it: how many there may
    be, and with DenyOnLimit what it could never have. Each QOS and association is gone through as
    a whole. Cost: sorts its limits, with DenyOnLimit."""
    if not limits.deny:
        return limits.submit
    place: dict[tuple[bool, int | str], int] = {}
    for kind, name, _ in limits.scopes:
        place.setdefault((kind == "assoc", name), len(place))

    every = [*limits.submit, *limits.rules]
    ranks = {name: rank for rank, name in enumerate(order({one.pool[2]: 0 for one in every}))}

    def turn(limit: Limit) -> tuple[int, int, int, int]:
        (kind, name, _), what, tres = limit.pool
        where = place.get((kind == "assoc", name), len(place))
        # One TRES after the other: of an account, of a user, of all.
        held = (ranks[tres], _WHOSE.get(kind, 2)) if what == "tres" else (0, 0)
        return where, _TURNS.get((what, kind), _TURN), *held

    return sorted(every, key=turn)


_WHOSE = {"account": 0, "user": 1}
#: the turn of a limit among those of its QOS or association, as seen on Slurm 22.05 for every two
_TURNS = {
    ("tres", "qos"): 0,
    ("tres", "account"): 0,
    ("tres", "user"): 0,
    ("submit", "qos"): 1,
    ("jobmins", "qos"): 2,
    ("mins", "qos"): 3,
    ("run", "qos"): 4,
    ("jobwall", "qos"): 5,
    ("wall", "qos"): 6,
    ("job", "qos"): 7,
    ("node", "qos"): 8,
    ("submit", "account"): 9,
    ("submit", "user"): 10,
    ("min", "qos"): 11,
    ("tres", "assoc"): 0,
    ("submit", "assoc"): 1,
    ("mins", "assoc"): 3,
    ("run", "assoc"): 4,
    ("wall", "assoc"): 6,
    ("job", "assoc"): 7,
    ("node", "assoc"): 8,
    ("maxsubmit", "assoc"): 9,
    ("jobmins", "assoc"): 10,
    ("jobwall", "assoc"): 11,
}
#: of those that Slurm does not have, or does not look at then
_TURN = 12


__all__ = ["EACH", "Limit", "Limits", "Pool", "Scope", "Under", "at_submission", "breaks"]
__all__ += ["exceeds", "impossible", "of", "whose", "word"]
