"""What is asked and changed of accounts, users, associations and QOS: a part of
`gsched.wire.messages`."""

from __future__ import annotations

import msgspec

from gsched.model.node import FairShares
from gsched.model.policy import PolicyRecord, Used


class PolicyQuery(msgspec.Struct, array_like=True, tag=True, gc=False):
    """All accounts, users, associations, QOS and WCKeys, and what was used."""

    min_version: int = 0
    #: usage too (sshare): it changes with every job that ends
    used: bool = False


class PolicyRows(msgspec.Struct, array_like=True, tag=True, gc=False):
    version: int
    records: list[PolicyRecord]
    #: key of the table "used" in hexadecimal digits -> usage (see gsched.policy.book.number_of)
    used: dict[str, Used] = {}
    #: with what priorities were last recalculated; None: they are not, or nobody asked for usage
    fair: FairShares | None = None


class PolicyOp(msgspec.Struct, array_like=True, gc=False):
    """One change that `sacctmgr` asks for."""

    #: "add", "modify", "delete"
    verb: str
    #: "account", "user", "qos", "coordinator", "cluster", "wckey"
    entity: str
    #: which ones: key (lower case, whole: "name", "account", "user", "partition", "parent", ...)
    #: -> values, one of which it must be
    where: dict[str, list[str]] = {}
    #: (name of a setting in any spelling, "=" "+=" or "-=", value)
    settings: list[tuple[str, str, str]] = []


class ManagePolicy(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Changes of one command: all of them are made, or none. `Done.data` is a JSON list of
    `PolicyDone`."""

    ops: list[PolicyOp]
    #: only say what would be done, or why not
    dry: bool = False
    #: say nothing of what is there already, and change it where it differs (sacctmgr load)
    load: bool = False


class PolicyDone(msgspec.Struct, array_like=True):
    """What was changed."""

    #: "accounts added", "associations modified", "users deleted", ... (gsched.ledger.manage)
    what: str
    #: names, or (account, parent, user, partition) of associations, ...
    items: list[list[str]]
