"""The grammar of sacctmgr: keywords, `where` and `set`, and what the words of each mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gsched.policy.settings import names
from gsched.wire.policy import PolicyOp
from gsched_cli.stop import Stop

#: keyword -> fewest letters
COMMANDS: dict[str, int] = {
    "add": 3,
    "archive": 3,
    "associations": 3,
    "clear": 3,
    "create": 3,
    "delete": 3,
    "dump": 3,
    "exit": 4,
    "help": 2,
    "list": 3,
    "load": 2,
    "modify": 1,
    "oneliner": 1,
    "parsable": 9,
    "parsable2": 9,
    "ping": 4,
    "quiet": 4,
    "quit": 4,
    "readonly": 4,
    "reconfigure": 4,
    "remove": 3,
    "show": 3,
    "shutdown": 4,
    "verbose": 4,
    "version": 4,
}
SAME = {"create": "add", "remove": "delete", "show": "list", "quit": "exit"}

#: entity -> fewest letters
ENTITIES: dict[str, int] = {
    "account": 3,
    "association": 3,
    "cluster": 2,
    "configuration": 3,
    "coordinator": 4,
    "event": 1,
    "federation": 1,
    "job": 1,
    "problem": 1,
    "qos": 1,
    "resource": 4,
    "reservation": 4,
    "runawayjobs": 2,
    "stats": 1,
    "transaction": 1,
    "tres": 4,
    "user": 1,
    "wckey": 1,
}
_OTHER_ENTITIES = {"acct": "account", "accounts": "account", "txn": "transaction"}
_TAKES = {
    "add": ("account", "cluster", "coordinator", "federation", "qos", "resource", "user"),
    "delete": ("account", "cluster", "coordinator", "federation", "qos", "resource", "user"),
    "modify": ("account", "cluster", "federation", "job", "qos", "resource", "user"),
    "list": tuple(one for one in ENTITIES if one not in ("coordinator", "job")),
}
_SENTENCES = {
    "add": 'Input line must include "Account", "Cluster", "Coordinator", "Federation", "QOS", '
    '"Resource", or "User"',
    "delete": 'Input line must include "Account", "Cluster", "Coordinator", "Federation", "QOS", '
    '"Resource", or "User"',
    "modify": 'Input line must include "Account", "Cluster", "Federation", "Job", "QOS", '
    '"Resource" or "User"',
    "list": 'Input line must include "Account", "Association", "Cluster", "Configuration",\n'
    '"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",\n'
    '"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"',
}

#: what conditions may be called -> (fewest letters, key)
_NAME = {"name": (1, "name"), "names": (1, "name")}
_ASSOC_KEYS: dict[str, tuple[int, str]] = {
    "accounts": (3, "account"),
    "acct": (4, "account"),
    "associations": (3, "id"),
    "clusters": (1, "cluster"),
    "defaultqos": (8, "defaultqos"),
    "flags": (2, "flags"),
    "format": (2, "format"),
    "ids": (1, "id"),
    "onlydefaults": (4, "onlydefaults"),
    "parents": (4, "parent"),
    "partitions": (4, "partition"),
    "qoslevel": (1, "qos"),
    "tree": (4, "tree"),
    "users": (1, "user"),
    "withdeleted": (5, "withdeleted"),
    "withlimits": (5, "withlimits"),
    "withrawqos": (5, "withrawqos"),
    "withsubaccounts": (5, "withsubaccounts"),
    "wolimits": (3, "wolimits"),
    "wopinfo": (4, "wopinfo"),
    "woplimits": (4, "woplimits"),
}
_TIMES = {
    "start": (1, "start"),
    "end": (1, "end"),
    "format": (2, "format"),
    "clusters": (1, "cluster"),
}
KEYS: dict[str, dict[str, tuple[int, str]]] = {
    "account": {
        **_NAME,
        "accounts": (3, "name"),
        "acct": (4, "name"),
        "descriptions": (1, "description"),
        "organizations": (1, "organization"),
        "withassoc": (5, "withassoc"),
        "withcoordinators": (5, "withcoord"),
        **{key: one for key, one in _ASSOC_KEYS.items() if key not in ("accounts", "acct")},
    },
    "association": _ASSOC_KEYS,
    "user": {
        **_NAME,
        "adminlevel": (2, "adminlevel"),
        "defaultaccount": (8, "defaultaccount"),
        "defaultwckey": (8, "defaultwckey"),
        "users": (1, "name"),
        "wckeys": (1, "wckey"),
        "withassoc": (5, "withassoc"),
        "withcoordinators": (5, "withcoord"),
        **{key: one for key, one in _ASSOC_KEYS.items() if key != "users"},
    },
    "qos": {
        **_NAME,
        "qos": (3, "name"),
        "descriptions": (1, "description"),
        "format": (1, "format"),
        "ids": (1, "id"),
        "preemptmode": (8, "preemptmode"),
        "withdeleted": (5, "withdeleted"),
    },
    "coordinator": {
        **_NAME,
        "accounts": (1, "account"),
        "users": (1, "name"),
    },
    "cluster": {
        **_NAME,
        "clusters": (2, "name"),
        "classification": (2, "classification"),
        "federation": (3, "federation"),
        "flags": (2, "flags"),
        "format": (2, "format"),
        "rpc": (1, "rpc"),
        "withdeleted": (5, "withdeleted"),
        "withfed": (5, "withfed"),
        "wolimits": (3, "wolimits"),
    },
    "tres": {
        **_NAME,
        "format": (1, "format"),
        "ids": (1, "id"),
        "type": (1, "type"),
        "withdeleted": (5, "withdeleted"),
    },
    "wckey": {
        **_NAME,
        "wckeys": (1, "name"),
        "clusters": (1, "cluster"),
        "start": (1, "start"),
        "end": (1, "end"),
        "format": (1, "format"),
        "ids": (1, "id"),
        "users": (1, "user"),
        "withdeleted": (5, "withdeleted"),
    },
    "transaction": {
        **_TIMES,
        "accounts": (3, "account"),
        "action": (4, "action"),
        "actor": (4, "actor"),
        "ids": (1, "id"),
        "users": (1, "user"),
        "withassocinfo": (5, "withassoc"),
    },
    "event": {
        **_TIMES,
        "all_clusters": (5, "allclusters"),
        "all_time": (5, "alltime"),
        "condflags": (5, "condflags"),
        "events": (2, "event"),
        "maxcpus": (2, "maxcpus"),
        "mincpus": (2, "mincpus"),
        "nodes": (1, "node"),
        "reason": (1, "reason"),
        "states": (4, "state"),
        "users": (1, "user"),
    },
    "reservation": {
        **_TIMES,
        **_NAME,
        "ids": (1, "id"),
        "nodes": (2, "node"),
    },
    "problem": {**_ASSOC_KEYS},
    "runawayjobs": {"clusters": (1, "cluster"), "format": (1, "format")},
    "federation": {
        **_NAME,
        "format": (1, "format"),
        "tree": (1, "tree"),
        "withdeleted": (5, "withdeleted"),
    },
    "resource": {
        **_NAME,
        "clusters": (1, "cluster"),
        "format": (1, "format"),
        "servers": (1, "server"),
        "withclusters": (5, "withclusters"),
        "withdeleted": (5, "withdeleted"),
    },
}
#: conditions that are switches
FLAGS = frozenset(
    {
        *("onlydefaults", "tree", "withassoc", "withcoord", "withdeleted", "withlimits"),
        *("withrawqos", "withsubaccounts", "wolimits", "wopinfo", "woplimits", "withfed"),
        *("allclusters", "alltime", "withclusters"),
    }
)
#: keys of `add` and `modify ... where` that say which ones; all others are settings
_WHERE: dict[str, tuple[str, ...]] = {
    "account": ("name", "cluster"),
    "user": ("name", "account", "cluster", "partition", "wckey"),
    "qos": ("name",),
    "coordinator": ("name", "account"),
    "cluster": ("name",),
    "federation": ("name",),
    "resource": ("name", "server", "cluster"),
}
#: settings besides limits, as they may be cut short
_OWN_SETTINGS: dict[str, dict[str, int]] = {
    "account": {"parent": 1, "rawusage": 4},
    "user": {
        "adminlevel": 2,
        "defaultaccount": 8,
        "defaultwckey": 8,
        "newname": 2,
        "rawusage": 4,
    },
    "qos": {"rawusage": 4},
    "cluster": {"classification": 2, "rpc": 1, "federation": 3, "features": 2, "fedstate": 4},
    "federation": {"clusters": 1},
    "resource": {
        "allowed": 2,
        "count": 3,
        "description": 1,
        "flags": 2,
        "lastconsumed": 2,
        "percentallowed": 1,
        "servertype": 7,
        "type": 1,
    },
}
_OP = re.compile(r"[+\-]?=")


class Said(NamedTuple):
    """What a `list` says: conditions, and its format."""

    where: dict[str, list[str]]
    #: as given, None where it was not
    format: str | None

    def on(self, flag: str) -> bool:
        return flag in self.where


def command(word: str) -> str:
    """The keyword that a word means. Stop."""
    low = word.lower()
    for name, least in COMMANDS.items():
        if low == name or (len(low) >= least and name.startswith(low)):
            return SAME.get(name, name)
    raise Stop(1, f"invalid keyword: {word}\n")


def entity(verb: str, words: Sequence[str]) -> str:
    """The entity that the first word after a keyword names. Stop."""
    low = words[0].lower() if words else ""
    found = _OTHER_ENTITIES.get(low, "")
    for name, least in ENTITIES.items():
        if found or not low:
            break
        plural = name + "s"
        if len(low) >= least and (name.startswith(low) or low == plural):
            found = name
    if not found or found not in _TAKES[verb]:
        raise Stop(1, f"No valid entity in {verb} command\n{_SENTENCES[verb]}\n")
    return found


def split(word: str) -> tuple[str, str, str]:
    """`key`, its operator and its value; the operator "" for a word alone."""
    match = _OP.search(word)
    if match is None:
        return word, "", _bare(word)
    return word[: match.start()], match[0], _bare(word[match.end() :])


def _bare(text: str) -> str:
    """Without the quotes around it."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _key(name: str, keys: dict[str, tuple[int, str]]) -> str:
    low = name.lower()
    for full, (least, key) in keys.items():
        if low == full or (len(low) >= least and full.startswith(low)):
            return key
    return ""


def listed(kind: str, words: Sequence[str]) -> Said:
    """The words of `list`. Stop for a condition that there is not."""
    where: dict[str, list[str]] = {}
    form: str | None = None
    first = "id" if kind in ("association", "problem") else "name"
    if kind == "transaction":
        first = "id"
    for word in words:
        if word.lower() in ("where", "set"):
            continue
        name, sign, value = split(word)
        key = _key(name, KEYS[kind])
        if not sign and key not in FLAGS:
            if kind == "association" and not value.isdigit():
                raise Stop(1, f"sacctmgr: error: Invalid value for AssocId ({value})\n")
            where.setdefault(first, []).extend(names(value))
        elif not key:
            more = (
                "" if kind in ("association", "event") else " Use keyword 'set' to modify value\n"
            )
            raise Stop(1, f" Unknown condition: {word}\n{more}")
        elif key == "format":
            form = value if form is None else f"{form},{value}"
        elif key in ("start", "end", "reason", "description"):
            where[key] = [value]
        else:
            where.setdefault(key, []).extend(_values(kind, key, value) if sign else [])
    return Said(where, form)


#: conditions that are none where they are empty
_OPEN = frozenset({"qos", "defaultqos", "flags"})
#: listings of what the ledger holds
_HELD = frozenset({"account", "association", "cluster", "qos", "tres", "user", "wckey"})


def _values(kind: str, key: str, text: str) -> list[str]:
    """What a condition names. An empty one is met by what is empty: by no name, and by associations
    for all partitions."""
    found = names(text)
    return found if found or key in _OPEN or kind not in _HELD else [""]


def change(verb: str, kind: str, words: Sequence[str]) -> PolicyOp:
    """The words of `add`, `modify` and `delete` as one change. Stop."""
    op = PolicyOp(verb, kind)
    place = "where" if verb == "modify" else verb
    for word in words:
        low = word.lower()
        if low in ("where", "set") and verb != "add":
            place = low
            continue
        if low in ("where", "set"):
            continue
        name, sign, value = split(word)
        if place == "set":
            _setting(op, kind, word, name, sign, value, modify=True)
        elif place == "add":
            key = _key(name, KEYS[kind]) if sign else "name"
            if key in _WHERE[kind]:
                op.where.setdefault(key, []).extend(names(value))
            else:
                _setting(op, kind, word, name, sign, value, modify=False)
        else:
            key = _key(name, KEYS[kind]) if sign else "name"
            if not key or key in FLAGS or key == "format":
                raise Stop(1, f" Unknown condition: {word}\n Use keyword 'set' to modify value\n")
            values = [value] if key == "description" else names(value)
            op.where.setdefault(key, []).extend(values)
    return op


def _setting(
    op: PolicyOp, kind: str, word: str, name: str, sign: str, value: str, *, modify: bool
) -> None:
    from gsched.policy import settings

    low = name.lower()
    if not sign or (modify and _key(name, _NAME) == "name" and low not in ("newname",)):
        if kind == "account":
            raise Stop(1, " Can't modify the name of an account\n")
        if kind in ("qos", "resource"):
            return
        raise Stop(1, f" Unknown option: {word}\n Use keyword 'where' to modify condition\n")
    for full, least in _OWN_SETTINGS.get(kind, {}).items():
        if full.startswith(low) and len(low) >= least:
            op.settings.append((full, sign, value))
            return
    table = settings.QOS if kind == "qos" else settings.ASSOC
    if kind in ("federation", "resource"):
        table = ()
    tables = (settings.ACCOUNT, table) if kind == "account" else (table,)
    for one in tables:
        found = settings.find(name, one)
        if found is not None:
            op.settings.append((name, sign, value))
            return
    raise Stop(1, f" Unknown option: {word}\n Use keyword 'where' to modify condition\n")
