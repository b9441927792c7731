"""Licences that are served from outside of the cluster, and the part of them that it may use."""

from __future__ import annotations

import re

import msgspec

from gsched.ledger.manage import limits, tree
from gsched.ledger.manage.work import ACCESS, UNCHANGED, No, Work
from gsched.model.policy import Resource
from gsched.wire.messages import PolicyOp

#: server of licences that name none
DATABASE = "slurmdb"
MOST = 2**31 - 1
_FLAGS = {"absolute": "Absolute"}
_NUMBERS = {"count": "Count", "allowed": "Allowed", "lastconsumed": "LastConsumed"}
_TEXTS = {"description": "description", "servertype": "server_type"}


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or int(text) > MOST:
        raise No(f"sacctmgr: error: Invalid value for {_NUMBERS[key]} ({text})\n")
    return int(text)


def _flags(text: str) -> tuple[str, ...]:
    found = []
    for one in filter(None, text.split(",")):
        if one.lower() not in _FLAGS:
            raise No(
                f" Unknown Server Resource flag used in:\n  '{text}'\n"
                f" Valid Server Resource flags are\n '{','.join(_FLAGS.values())}'\n"
            )
        found.append(_FLAGS[one.lower()])
    return tuple(dict.fromkeys(found))


def _values(settings: limits.Settings) -> dict[str, object]:
    """The fields that are set; "allowed" too. No."""
    found: dict[str, object] = {}
    for name, _, text in settings:
        key = "allowed" if name == "percentallowed" else name
        if key in _NUMBERS:
            found[{"lastconsumed": "last_consumed"}.get(key, key)] = _number(key, text)
        elif key == "flags":
            found["flags"] = _flags(text)
        elif key == "type":
            if text.lower() not in ("license", "notset"):
                raise No(f" Unknown resource type: '{text}'  Valid resources is License.\n")
            found["kind"] = "License"
        elif key in _TEXTS:
            found[_TEXTS[key]] = text[: tree.MAX_NAME]
    return found


def _clusters(work: Work, op: PolicyOp) -> bool:
    """Whether this cluster is named. No for one that there is not."""
    own = work.led.config.cluster_name.lower()
    for name in op.where.get("cluster", []):
        if name.lower() != own:
            raise No(
                f" This cluster '{name}' doesn't exist.\n"
                "        Contact your admin to add it to accounting.\n"
                " Need a valid cluster name to add a cluster resource.\n"
            )
    return bool(op.where.get("cluster"))


def _fits(one: Resource) -> bool:
    most = one.count if "Absolute" in one.flags else 100
    return one.allowed is None or one.allowed <= most


def add(work: Work, op: PolicyOp) -> None:
    names = [tree.good_name(one, "resource") for one in op.where.get("name", [])]
    servers = [tree.good_name(one, "server") for one in op.where.get("server", [])]
    if not names:
        raise No(" Need name of resource to add.\n")
    if any(letter in name for name in (*names, *servers) for letter in ":@"):
        raise No(" Error with request: names of resources and servers have no : or @\n")
    given = _clusters(work, op)
    values = _values(op.settings)
    allowed = values.pop("allowed", None)
    server = servers[0] if servers else DATABASE
    for name in names:
        record = work.book.resources.get(f"{name}@{server}")
        new = record is None
        if record is None:
            if "kind" not in values:
                raise No(f" Need to designate a resource type to initially add '{name}'.\n")
            if "count" not in values:
                raise No(f" Need to designate a resource count to initially add '{name}'.\n")
            record = Resource(name, server, description=name, created=work.now)
            record = msgspec.structs.replace(record, **values)
        elif record.allowed is not None:
            continue
        if given:
            record = _given(record, allowed)
        elif not new:
            continue
        if not work.admin:
            raise No(" Problem adding system resource: Access/permission denied\n", ACCESS)
        work.put(msgspec.structs.replace(record, modified=work.now))
        work.say("resources added", record.full, _share(record) if given else "", str(int(new)))
        info = f"count={record.count}, description='{record.description}'"
        if new:
            work.tell("Add Resources", record.full, info)
        if given:
            where = f"{record.full}@{work.led.config.cluster_name}"
            work.tell("Add Resources", where, f"percent_allowed={record.allowed}")


def _given(record: Resource, allowed: object) -> Resource:
    """A resource of which the cluster may use a part. No."""
    if not isinstance(allowed, int):
        raise No(f" Need to designate what is allowed (Allowed=) of '{record.full}'.\n")
    found = msgspec.structs.replace(record, allowed=allowed)
    if not _fits(found):
        raise No(
            f" Adding this 1 clusters to resource {record.full} at {_share(found)} each , with 0% "
            "already used,  would go over 100%.  Please redo your math and resubmit.\n"
        )
    return found


def _share(record: Resource) -> str:
    return f"{record.allowed}" if "Absolute" in record.flags else f"{record.allowed}%"


def _matching(work: Work, where: dict[str, list[str]]) -> list[Resource]:
    """Those that the conditions name, in the order in which they were made."""
    names = {one.lower() for one in where.get("name", [])}
    servers = {one.lower() for one in where.get("server", [])}
    return [
        one
        for one in work.book.resources.values()
        if (not names or one.name in names)
        and (not servers or one.server in servers)
        and ("cluster" not in where or one.allowed is not None)
    ]


def modify(work: Work, op: PolicyOp) -> None:
    given = _clusters(work, op)
    values = _values(op.settings)
    values.pop("kind", None)
    if not values:
        raise No(" You didn't give me anything to set\n")
    if "allowed" in values and not given:
        raise No('Can\'t change "percentallowed" without specifying a cluster.\n')
    others = [name for name in values if name != "allowed"]
    if given and others:
        raise No(
            f'Can\'t change "{others[0].replace("_", "")}" on a cluster-based resource. '
            "Remove cluster selection.\n"
        )
    if not work.admin:
        raise limits.denied("Only admins can modify resources")
    for record in _matching(work, op.where):
        changed = msgspec.structs.replace(record, **values)
        if not _fits(changed):
            raise No(_too_many(work, changed))
        changed = msgspec.structs.replace(changed, deficit=_deficit(work, changed))
        if changed == record:
            continue
        work.put(msgspec.structs.replace(changed, modified=work.now))
        if not given:
            work.say("resources modified", record.full)
        if record.allowed is not None and (given or "count" in values):
            work.say("resources modified", record.full, work.led.config.cluster_name)
        info = ", ".join(f"{name}={value}" for name, value in values.items())
        work.tell("Modify Resources", f"name='{record.full}'", info)
    if not work.changed:
        raise No(" Nothing modified\n", UNCHANGED)


def _too_many(work: Work, one: Resource) -> str:
    share = _share(one)
    return (
        "sacctmgr: error: You can not allocate more than 100% of a resource\n"
        " If change was accepted it would look like this...\n"
        f"  {one.full}\n   Cluster - {work.led.config.cluster_name}\t {share}\n"
        f"   total\t\t{share}\n"
    )


def _deficit(work: Work, one: Resource) -> int:
    """How many of the cluster's part others have taken: what was taken in all, less what is not the
    cluster's and what its own jobs hold."""
    used = sum(count for _, count in work.led.cluster.license_holders(one.full))
    beyond = max(0, one.count - one.granted)
    return max(0, min(one.granted, one.last_consumed - beyond - used))


def delete(work: Work, op: PolicyOp) -> None:
    if not op.where:
        raise No(" No conditions given to remove, not executing.\n")
    given = _clusters(work, op)
    if not work.admin:
        raise limits.denied("Only admins can delete resources")
    cluster = work.led.config.cluster_name
    for record in _matching(work, op.where):
        if given:
            work.put(msgspec.structs.replace(record, allowed=None, deficit=0))
            work.tell("Remove Resources", f"name='{record.full}' cluster='{cluster}'")
        else:
            work.drop(record)
            work.say("resources deleted", record.full)
            work.tell("Remove Resources", f"name='{record.full}'")
        if record.allowed is not None:
            work.say("resources deleted", record.full, cluster)
    if not work.changed:
        raise No(" Nothing deleted\n", UNCHANGED)


__all__ = ["add", "delete", "modify"]
