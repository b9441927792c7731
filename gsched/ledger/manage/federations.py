"""Federations by name, and what is set on the cluster itself: which one it is in, and its features.
Jobs of this cluster run on this cluster alone."""

from __future__ import annotations

import msgspec

from gsched.ledger.manage import limits, tree
from gsched.ledger.manage.work import ACCESS, UNCHANGED, No, Work
from gsched.model.policy import Cluster, Federation
from gsched.wire.messages import PolicyOp

STATES = ("ACTIVE", "INACTIVE", "DRAIN", "DRAIN+REMOVE")
CLASSES = ("Capability", "Capacity", "Capapacity")


def own(work: Work) -> Cluster:
    """The cluster as it is set."""
    name = work.led.config.cluster_name
    return work.book.clusters.get(name, Cluster(name))


def _clusters(work: Work, text: str) -> list[str]:
    name = work.led.config.cluster_name.lower()
    found = [one.strip().lower() for one in text.split(",") if one.strip()]
    for one in found:
        if one.lstrip("+-") != name:
            raise No(f" The cluster {one.lstrip('+-')} doesn't exist. Please add first.\n")
    return found


def _join(work: Work, federation: str) -> None:
    """The cluster is in a federation from now on ("": in none)."""
    cluster = own(work)
    if federation:
        work.put(
            msgspec.structs.replace(cluster, federation=federation, fed_id=1, fed_state="ACTIVE")
        )
    else:
        work.put(msgspec.structs.replace(cluster, federation="", fed_id=0, fed_state=""))
    number = int(bool(federation))
    info = f"federation='{federation}', fed_id={number}, fed_state={number}"
    work.tell("Modify Clusters", f"name='{cluster.name}'", info)


def add(work: Work, op: PolicyOp) -> None:
    names = [tree.good_name(one, "federation") for one in op.where.get("name", [])]
    if not names:
        raise No(" Need name of federation to add.\n")
    joins = [_clusters(work, text) for name, _, text in op.settings if name == "clusters"]
    for name in names:
        if name in work.book.federations:
            raise No(f" This federation {name} already exists.  Not adding.\n", UNCHANGED)
        if not work.admin:
            raise No(" Problem adding federation(s): Access/permission denied\n", ACCESS)
        work.put(Federation(name, created=work.now))
        work.say("federations added", name)
        work.tell("Add Federations", f"name='{name}'")
    if any(joins):
        _join(work, names[-1])


def modify(work: Work, op: PolicyOp) -> None:
    names = [one.lower() for one in op.where.get("name", [])]
    if not op.settings:
        raise No(" You didn't give me anything to set\n")
    for name in names:
        if name not in work.book.federations:
            raise No(f" The federation {name} doesn't exist.\n")
    if not work.admin:
        raise limits.denied("Only admins can modify federations")
    cluster = own(work)
    for name in names or sorted(work.book.federations):
        for _, sign, text in op.settings:
            inside = cluster.federation == name
            listed = _clusters(work, text)
            if sign == "-=":
                if not inside:
                    where = f" The cluster {cluster.name} isn't assigned to federation {name}\n"
                    raise No(f"{where}Nothing to change\n")
                _join(work, "")
            elif listed and inside:
                where = f" The cluster {cluster.name} is already assigned to federation {name}\n"
                raise No(f"{where}Nothing to change\n")
            elif listed:
                _join(work, name)
            elif inside:
                _join(work, "")
            else:
                raise No("Nothing to change\n", UNCHANGED)
        work.say("federations modified", name)


def delete(work: Work, op: PolicyOp) -> None:
    if not op.where:
        raise No(" No conditions given to remove, not executing.\n")
    names = {one.lower() for one in op.where.get("name", [])}
    found = [one for name, one in work.book.federations.items() if not names or name in names]
    if not work.admin:
        raise limits.denied("Only admins can delete federations")
    if not found:
        raise No(" Nothing deleted\n", UNCHANGED)
    for one in found:
        if own(work).federation == one.name:
            _join(work, "")
        work.drop(one)
        work.say("federations deleted", one.name)
        work.tell("Remove Federations", f"name='{one.name}'")


# ---- what is set on the cluster ------------------------------------------------------------------


def set_cluster(work: Work, settings: limits.Settings) -> bool:
    """Changes the cluster's own record. Whether anything was to be set. No."""
    changed = False
    for name, sign, text in settings:
        cluster = own(work)
        if name == "federation":
            low = text.strip().lower()
            if low and low not in work.book.federations:
                raise No(f" The federation {low} doesn't exist.\n")
            _join(work, low)
        elif name == "fedstate":
            state = text.strip().upper()
            if state not in STATES:
                raise No(f"Invalid FedState {text}.\n")
            if not cluster.federation:
                raise No(f" The cluster {cluster.name} isn't assigned to a federation\n")
            if state == "DRAIN+REMOVE":
                _join(work, "")
            else:
                work.put(msgspec.structs.replace(cluster, fed_state=state))
        elif name == "features":
            listed = [one.strip() for one in text.split(",") if one.strip()]
            kept = cluster.features if sign in ("+=", "-=") else ()
            if sign == "-=":
                kept = tuple(one for one in kept if one not in listed)
            else:
                kept = tuple(dict.fromkeys((*kept, *listed)))
            work.put(msgspec.structs.replace(cluster, features=kept))
        elif name == "classification":
            low = text.strip().lower()
            found = [one for one in CLASSES if low and one.lower().startswith(low)]
            if not found:
                raise No(" You didn't give me anything to set\n")
            work.put(msgspec.structs.replace(cluster, classification=found[0]))
        else:
            continue
        changed = True
        if name != "federation":
            work.tell("Modify Clusters", f"name='{cluster.name}'", f"{name}='{text}'")
    return changed


__all__ = ["add", "delete", "modify", "own", "set_cluster"]
