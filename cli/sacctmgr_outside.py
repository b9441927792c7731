"""sacctmgr's federations and resources: what concerns more than one cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gsched.model.policy import Cluster, Resource
from gsched.wire.policy import PolicyOp
from gsched_cli.sacctmgr_list import State
from gsched_cli.sacctmgr_table import Field, chosen, written
from gsched_cli.sacctmgr_words import Said
from gsched_cli.stop import Stop

By = dict[str, list[list[str]]]
FED_STATES = ("NA", "ACTIVE", "INACTIVE", "DRAIN")


# ---- lists --------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """A line about a federation: its cluster, or none."""

    federation: str
    cluster: Cluster | None


def _of_cluster(read: Callable[[Cluster], str]) -> Callable[[_Member], str]:
    return lambda row: read(row.cluster) if row.cluster is not None else ""


M = Field[_Member]
_FEDERATION: tuple[M, ...] = (
    M(("Cluster",), "Cluster", 10, _of_cluster(lambda c: c.name), 1),
    M(("Features",), "Features", 20, _of_cluster(lambda c: ",".join(c.features)), 3),
    M(("Federation",), "Federation", 10, lambda r: r.federation, 3),
    M(("FedState",), "FedState", 12, _of_cluster(lambda c: c.fed_state), 4),
    M(("FedStateRaw",), "FedStateRaw", 11, _of_cluster(lambda c: state_number(c)), 9),
    M(("ID", "Index"), "ID", 2, _of_cluster(lambda c: str(c.fed_id)), 1),
)


def state_number(cluster: Cluster) -> str:
    return str(FED_STATES.index(cluster.fed_state)) if cluster.fed_state in FED_STATES else "0"


def list_federations(state: State, said: Said) -> str:
    names = {one.lower() for one in said.where.get("name", [])}
    inside = {
        one.federation: one for one in state.book.clusters.values() if one.name == state.cluster
    }
    rows: list[_Member] = []
    for name in sorted(state.book.federations):
        member = inside.get(name)
        if names and name not in names:
            continue
        if said.on("tree"):
            rows.append(_Member(name, None))
            if member is not None:
                rows.append(_Member("", member))
        else:
            rows.append(_Member(name, member))
    form = said.format or "Federation,Cluster,ID,Features,FedState"
    return written(chosen(form, _FEDERATION), rows, state.look)


def _allocated(one: Resource) -> str:
    return str(one.allowed or 0)


R = Field[Resource]


def _resource_fields(cluster: str) -> tuple[R, ...]:
    def given(read: Callable[[Resource], str]) -> Callable[[Resource], str]:
        return lambda one: read(one) if one.allowed is not None else ""

    return (
        R(("Allocated",), "Allocated", 9, _allocated, 4),
        R(("Allowed", "PercentAllowed"), "Allowed", 8, given(lambda r: str(r.allowed)), 4),
        R(("Cluster",), "Cluster", 10, given(lambda r: cluster), 2),
        R(("Count",), "Count", 6, lambda r: str(r.count), 2),
        R(("Description",), "Descr", 20, lambda r: r.description, 1),
        R(("Flags",), "Flags", 20, lambda r: ",".join(r.flags), 2),
        R(("LastConsumed",), "LastConsumed", 12, lambda r: str(r.last_consumed), 2),
        R(("Name",), "Name", 10, lambda r: r.name, 1),
        R(("Server",), "Server", 10, lambda r: r.server, 2),
        R(("ServerType",), "ServerType", 10, lambda r: r.server_type, 7),
        R(("Type",), "Type", 8, lambda r: r.kind, 1),
    )


def list_resources(state: State, said: Said) -> str:
    names = {one.lower() for one in said.where.get("name", [])}
    servers = {one.lower() for one in said.where.get("server", [])}
    clusters = {one.lower() for one in said.where.get("cluster", [])}
    rows = [
        one
        for _, one in sorted(state.book.resources.items())
        if (not names or one.name in names)
        and (not servers or one.server in servers)
        and (not clusters or state.cluster.lower() in clusters)
        and (one.allowed is not None or not (clusters or said.on("withclusters")))
    ]
    form = "Name,Server,Type,Count,LastConsumed,Allocated,ServerType"
    form += ",Cluster,Allowed,Flags" if said.on("withclusters") else ",Flags"
    shown = chosen(said.format or form, _resource_fields(state.cluster))
    return written(shown, rows, state.look)


# ---- what was done ------------------------------------------------------------------------------


def _set(op: PolicyOp, *names: str) -> str:
    return next((text for name, _, text in reversed(op.settings) if name in names), "")


def resources_added(state: State, op: PolicyOp, by: By) -> str:
    text = " Adding Resource(s)\n"
    last = ""
    for full, share, new in by.get("resources added", []):
        text += f"  {full}\n"
        if share:
            text += f"   Cluster - {state.cluster}\t{share}\n"
        if new == "1":
            last = full
    name, _, server = (last or "@" + (op.where.get("server") or ["slurmdb"])[0]).partition("@")
    lines = (
        ("Name", name),
        ("Server", server),
        ("Description", last and (_set(op, "description") or name)),
        ("ServerType", _set(op, "servertype")),
        ("Count", last and _set(op, "count")),
        ("Type", "License" if _set(op, "type") else ""),
        ("Flags", _set(op, "flags")),
    )
    text += " Settings\n"
    return text + "".join(f"  {label:<14} = {value}\n" for label, value in lines if value)


def federations_added(state: State, op: PolicyOp, by: By) -> str:
    text = " Adding Federation(s)\n"
    text += "".join(f"  {name}\n" for (name,) in by.get("federations added", []))
    clusters = _set(op, "clusters")
    return text + (f" Settings\n  Cluster       = {clusters}\n" if clusters else "")


def federation_settings(op: PolicyOp) -> str:
    """What `modify federation` says before it begins."""
    signs = {"=": "=", "+=": "+=", "-=": "-="}
    return " Setting\n" + "".join(
        f"  Cluster      {signs[sign]:>2} {text}\n" for _, sign, text in op.settings
    )


def cluster_settings(op: PolicyOp) -> str:
    """The same of `modify cluster`, of what is set on the cluster itself."""
    text = ""
    for name, sign, value in op.settings:
        if name == "classification":
            text += f"  Classification = {value.capitalize()}\n"
        elif name == "features":
            listed = [one for one in value.split(",") if one] or [""]
            mark = sign if len(sign) == 2 else f"  {sign}"
            text += "".join(f"  Feature     {mark} {one}".rstrip() + "\n" for one in listed)
        elif name == "federation":
            text += f"  Federation     = {value}".rstrip() + "\n"
        elif name == "fedstate":
            if value.upper() not in (*FED_STATES[1:], "DRAIN+REMOVE"):
                raise Stop(1, f"Invalid FedState {value}.\n")
            text += f"  FedState       = {value.upper()}\n"
    return text


def _by_resource(head: str) -> Callable[[State, list[list[str]]], str]:
    def text(state: State, items: list[list[str]]) -> str:
        lines = [
            f"  {item[0]}\n" if len(item) == 1 else f"  Cluster - {item[1]}\t- {item[0]}\n"
            for item in items
        ]
        return head + "".join(lines)

    return text


resources_modified = _by_resource(" Modified server resource ...\n")
resources_deleted = _by_resource(" Deleting resource(s)...\n")
