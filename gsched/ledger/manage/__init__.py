"""The changes of `sacctmgr`: one command's are made all, or none is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import policy_changed
from gsched.ledger.manage import coordinators, federations, limits, quality, resources, tree, users
from gsched.ledger.manage.work import UNCHANGED, No, Work
from gsched.ledger.outcome import Outcome
from gsched.model.policy import ROOT, Tres
from gsched.policy import quota, units
from gsched.wire.messages import Call, Done, ManagePolicy, PolicyOp, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

MOST_OPS = 100_000
_EMPTY = {
    "add": " Nothing new added.\n",
    "modify": " Nothing modified\n",
    "delete": " Nothing deleted\n",
}


def manage(
    led: Ledger, call: Call, write: ManagePolicy, now: float, out: Outcome
) -> Done | Refused:
    """Carries out a command, or says in its words why not; with `dry` nothing is changed. Cost: the
    records that match and change, and a look at all accounts, users or associations for each
    condition."""
    work = Work(led, call, now, write.load)
    have = led.limits.capacity(led.config.nodes)
    before = _broken(led, have)
    try:
        if len(write.ops) > MOST_OPS:
            raise No(f" Error with request: more than {MOST_OPS} changes at once\n")
        for op in write.ops:
            _one(work, op)
        if not work.changed and not work.done and write.ops and not write.load:
            raise No(_EMPTY[write.ops[-1].verb], UNCHANGED)
        promise = _broken(led, have)
        # One that the cluster broke, by becoming smaller, is in nobody's way.
        if promise and promise != before:
            raise No(f" Error with request: {promise}\n")
    except No as no:
        work.undo()
        return Refused(call.request_id, str(no), no.code)
    data = msgspec.json.encode(work.done).decode()
    if write.dry:
        work.undo()
    else:
        work.commit(out)
        policy_changed.changed(led, now, out)
    return Done(call.request_id, 0, value=len(work.done), data=data)


def _broken(led: Ledger, have: Tres) -> str:
    """Why the guarantees cannot all be kept; "" they can."""
    return quota.broken_promise(led.book, have) or units.broken(led.book, led.units.of_nodes)


def _one(work: Work, op: PolicyOp) -> None:
    verb = _VERBS.get((op.verb, op.entity))
    if verb is None:
        raise No(f" Error with request: {op.verb} of {op.entity} is not supported here\n")
    cluster = op.where.get("cluster")
    own = work.led.config.cluster_name
    if op.entity == "resource":
        # The clusters that may use it: these are no condition.
        cluster = None
    if cluster is not None and own.lower() not in {one.lower() for one in cluster}:
        raise No(_EMPTY[op.verb], UNCHANGED)
    verb(work, op)


#: settings of the cluster's own record; what else is set on it is the root account's
_OF_CLUSTER = frozenset(("classification", "features", "federation", "fedstate"))


def _modify_cluster(work: Work, op: PolicyOp) -> None:
    """What is set on the cluster is set on the root account."""
    names = {one.lower() for one in op.where.get("name", [])}
    if names and work.led.config.cluster_name.lower() not in names:
        raise No(" Nothing modified\n", UNCHANGED)
    if not op.settings:
        raise No(" You didn't give me anything to set\n")
    if not work.admin:
        raise limits.denied("Only admins can modify clusters")
    mine = [one for one in op.settings if one[0] in _OF_CLUSTER]
    rest = [one for one in op.settings if one[0] not in _OF_CLUSTER]
    before = work.count()
    if federations.set_cluster(work, mine) and (work.count() > before or not work.load):
        work.say("clusters set", work.led.config.cluster_name)
    if not rest:
        return
    inner = PolicyOp("modify", "account", {"name": [ROOT]}, rest)
    done, work.done = work.done, []
    before = work.count()
    tree.modify(work, inner)
    found, work.done = work.done, done
    if work.count() > before or not work.load:
        for one in found:
            for item in one.items:
                work.say("clusters modified", *item)


def _add_cluster(work: Work, op: PolicyOp) -> None:
    if not work.admin:
        raise No(
            " Problem adding clusters: Access/permission denied (Only admins can add clusters)\n"
        )
    names = op.where.get("name", [])
    if not names:
        raise No(" Need name of cluster to add.\n")
    own = work.led.config.cluster_name
    if not work.load and all(one.lower() == own.lower() for one in names):
        raise No(f" This cluster {own} already exists.  Not adding.\n", UNCHANGED)
    if any(one.lower() != own.lower() for one in names):
        raise No(f" Error with request: This is the accounting of cluster {own} alone\n")
    if op.settings and work.load:
        _modify_cluster(work, op)


_VERBS: dict[tuple[str, str], Callable[[Work, PolicyOp], None]] = {
    ("add", "account"): tree.add,
    ("modify", "account"): tree.modify,
    ("delete", "account"): tree.delete,
    ("add", "user"): users.add,
    ("modify", "user"): users.modify,
    ("delete", "user"): users.delete,
    ("add", "qos"): quality.add,
    ("modify", "qos"): quality.modify,
    ("delete", "qos"): quality.delete,
    ("add", "coordinator"): coordinators.add,
    ("delete", "coordinator"): coordinators.delete,
    ("add", "federation"): federations.add,
    ("modify", "federation"): federations.modify,
    ("delete", "federation"): federations.delete,
    ("add", "resource"): resources.add,
    ("modify", "resource"): resources.modify,
    ("delete", "resource"): resources.delete,
    ("add", "cluster"): _add_cluster,
    ("modify", "cluster"): _modify_cluster,
}

__all__ = ["manage"]
