"""All accounts, users, associations and QOS in memory, with what is looked up in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gsched.model.policy import (
    NORMAL,
    ROOT,
    ROOT_ID,
    Account,
    Assoc,
    Cluster,
    Federation,
    PolicyRecord,
    Qos,
    Resource,
    Used,
    User,
    Wckey,
)

#: Max* limits and others that an association has from its parent where it says nothing itself
_INHERITED = (
    "default_qos",
    "qos",
    "priority",
    "max_jobs",
    "max_jobs_accrue",
    "max_submit_jobs",
    "max_wall",
    "min_prio_thresh",
)
#: the same for limits by TRES: each TRES for itself
_INHERITED_TRES = (
    "max_tres_per_job",
    "max_tres_per_node",
    "max_tres_mins_per_job",
    "max_tres_run_mins",
)

#: all of these
INHERITED = frozenset((*_INHERITED, *_INHERITED_TRES))

#: kind of a record -> (where a book keeps it, what of it is the key)
_PLACES: dict[type[PolicyRecord], tuple[str, str]] = {
    Account: ("accounts", "name"),
    User: ("users", "name"),
    Assoc: ("assocs", "id"),
    Qos: ("qos", "name"),
    Wckey: ("wckeys", "id"),
    Resource: ("resources", "full"),
    Federation: ("federations", "name"),
    Cluster: ("clusters", "name"),
}


class Book:
    """The records, and indexes that follow them. Changed through `put` and `drop` alone; `version`
    grows with each change."""

    def __init__(self, records: Iterable[PolicyRecord] = ()) -> None:
        self.accounts: dict[str, Account] = {}
        self.users: dict[str, User] = {}
        self.assocs: dict[int, Assoc] = {}
        self.qos: dict[str, Qos] = {}
        self.wckeys: dict[int, Wckey] = {}
        #: by the name of the licence, name@server
        self.resources: dict[str, Resource] = {}
        self.federations: dict[str, Federation] = {}
        self.clusters: dict[str, Cluster] = {}
        #: usage by association id, and by name of QOS; what is absent has used nothing
        self.used: dict[int | str, Used] = {}
        self.version = 0
        #: (account, user, partition) -> id
        self._ids: dict[tuple[str, str, str], int] = {}
        #: account -> ids of what hangs below it: accounts (by `parent`) and users (by `account`)
        self._below: dict[str, dict[int, None]] = {}
        #: user -> ids of his associations
        self._of_user: dict[str, dict[int, None]] = {}
        #: id -> with what it inherits; made when it is asked for
        self._effective: dict[int, Assoc] = {}
        for record in records:
            self.put(record)

    @cached_property
    def first(self) -> tuple[PolicyRecord, ...]:
        """What a new cluster has: the root account, user root in it, QOS normal."""
        return (
            Account(ROOT, "default root account", "root"),
            User(ROOT, default_account=ROOT, admin_level="Administrator", uid=0),
            Qos(1, NORMAL, "Normal QOS default"),
            Assoc(ROOT_ID, ROOT, qos=(NORMAL,)),
            Assoc(ROOT_ID + 1, ROOT, ROOT),
        )

    def put(self, record: PolicyRecord) -> None:
        """A record is new, or takes the place of the one with its key. Cost: constant (but for what
        is inherited: that is found anew when it is asked for)."""
        self.version += 1
        if isinstance(record, Assoc):
            self._file(record)
        else:
            records, key = self._place(record)
            records[key] = record
        self._effective.clear()

    def drop(self, record: PolicyRecord) -> None:
        """A record is gone. Cost: constant."""
        self.version += 1
        if isinstance(record, Assoc):
            self._unfile(record.id)
        else:
            records, key = self._place(record)
            del records[key]
        self._effective.clear()

    def same(self, record: PolicyRecord) -> PolicyRecord | None:
        """The record here that has its key. Cost: constant."""
        records, key = self._place(record)
        return records.get(key)

    def _place(self, record: PolicyRecord) -> tuple[dict[Any, Any], str | int]:
        """Where records of its kind are kept, and under which key."""
        name, key = _PLACES[type(record)]
        return getattr(self, name), getattr(record, key)

    def _file(self, record: Assoc) -> None:
        self._unfile(record.id)
        self.assocs[record.id] = record
        self._ids[record.account, record.user, record.partition] = record.id
        if record.user:
            self._of_user.setdefault(record.user, {})[record.id] = None
        above = record.parent if record.is_account else record.account
        if above:
            self._below.setdefault(above, {})[record.id] = None

    def _unfile(self, assoc_id: int) -> None:
        old = self.assocs.pop(assoc_id, None)
        if old is None:
            return
        self._ids.pop((old.account, old.user, old.partition), None)
        self._of_user.get(old.user, {}).pop(assoc_id, None)
        self._below.get(old.parent if old.is_account else old.account, {}).pop(assoc_id, None)

    def records(self) -> Iterator[PolicyRecord]:
        """All of them."""
        yield from self.accounts.values()
        yield from self.users.values()
        yield from self.qos.values()
        yield from self.assocs.values()
        yield from self.wckeys.values()
        yield from self.resources.values()
        yield from self.federations.values()
        yield from self.clusters.values()

    def licenses(self, local: Mapping[str, int]) -> dict[str, int]:
        """Licences by name: those of the cluster itself, and what it may use of others. Cost: so
        many."""
        remote = {
            name: one.granted for name, one in self.resources.items() if one.allowed is not None
        }
        return {**local, **remote}

    def account(self, name: str) -> Assoc | None:
        """An account's own association."""
        return self.assocs.get(self._ids.get((name, "", ""), 0))

    def exact(self, account: str, user: str, partition: str = "") -> Assoc | None:
        """The association of exactly that."""
        return self.assocs.get(self._ids.get((account, user, partition), 0))

    def find(self, account: str, user: str, partition: str = "") -> Assoc | None:
        """The association that a user's job in an account and a partition is of: the partition's
        own one before that for all. None: there is none. Cost: constant."""
        found = self._ids.get((account, user, partition), 0)
        return self.assocs.get(found or self._ids.get((account, user, ""), 0))

    def parent(self, assoc: Assoc) -> Assoc | None:
        """The association above it; None for root's."""
        above = assoc.parent if assoc.is_account else assoc.account
        return self.account(above) if above else None

    def chain(self, assoc: Assoc) -> list[Assoc]:
        """It and all above it, root last. Cost: depth of the tree."""
        found = [assoc]
        above = self.parent(assoc)
        while above is not None:
            found.append(above)
            above = self.parent(above)
        return found

    def lineage(self, account: str) -> tuple[str, ...]:
        """An account and those above it, root last; one that is not known stands alone. Cost: depth
        of the tree."""
        own = self.account(account)
        return tuple(one.account for one in self.chain(own)) if own is not None else (account,)

    def below(self, account: str) -> list[Assoc]:
        """What hangs directly below an account: accounts and users, in the order they were made."""
        return [self.assocs[one] for one in sorted(self._below.get(account, ()))]

    def of_user(self, user: str) -> list[Assoc]:
        """A user's associations, in the order they were made. Cost: so many."""
        return [self.assocs[one] for one in sorted(self._of_user.get(user, ()))]

    def subtree(self, account: str) -> Iterator[Assoc]:
        """An account's association and all below it, parents first. A loop: accounts may lie below
        each other however deep. Cost: so many."""
        own = self.account(account)
        todo = [own] if own is not None else []
        while todo:
            one = todo.pop()
            yield one
            if one.is_account:
                todo += reversed(self.below(one.account))

    def effective(self, assoc: Assoc) -> Assoc:
        """It with the limits and QOS that it inherits where it says nothing itself. Grp* limits are
        never inherited: those of the accounts above count for all below them together. Cost:
        constant once asked; depth of the tree the first time after a change."""
        known = self._effective.get(assoc.id)
        if known is not None:
            return known
        above = self.parent(assoc)
        whole = msgspec.structs.replace(assoc)
        base = self.effective(above) if above is not None else assoc
        if above is not None:
            change: dict[str, object] = {
                name: getattr(base, name) for name in _INHERITED if getattr(assoc, name) is None
            }
            for name in _INHERITED_TRES:
                inherited = getattr(base, name)
                if inherited:
                    change[name] = inherited | getattr(assoc, name)
            whole = msgspec.structs.replace(assoc, **change)
        if whole.qos is not None and any(name[0] in "+-" for name in whole.qos):
            given = base.qos if above is not None else ()
            whole.qos = _with_signs(given or (), whole.qos)
        self._effective[assoc.id] = whole
        return whole

    def resolved(self, assoc: Assoc) -> tuple[str, ...] | None:
        """Its own list of QOS with its + and - carried out; None where it has none of its own."""
        return None if assoc.qos is None else self.effective(assoc).qos

    def default_account(self, user: str) -> str:
        """The account of a user's jobs that name none; "" he has none."""
        known = self.users.get(user)
        return known.default_account if known is not None else ""

    def allowed_qos(self, assoc: Assoc) -> tuple[str, ...]:
        """The QOS that jobs of an association may use."""
        return self.effective(assoc).qos or ()

    def is_coordinator(self, user: str, account: str) -> bool:
        """Whether he coordinates the account, or one above it."""
        known = self.users.get(user)
        if known is None or not known.coordinator:
            return False
        own = self.account(account)
        return own is not None and any(
            one.account in known.coordinator for one in self.chain(own) if one.is_account
        )

    def level(self, user: str) -> str:
        """His admin level: "None", "Operator" or "Administrator"."""
        known = self.users.get(user)
        return known.admin_level if known is not None else "None"


def _with_signs(given: tuple[str, ...], signed: tuple[str, ...]) -> tuple[str, ...]:
    """A parent's list of QOS with what "+name" adds and "-name" takes away."""
    found = dict.fromkeys(given)
    for name in signed:
        if name[0] == "-":
            found.pop(name[1:], None)
        else:
            found[name.removeprefix("+")] = None
    return tuple(found)


__all__ = ["Book"]
