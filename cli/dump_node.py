"""The tables of nodes, partitions, `sinfo`'s rows, reservations and licences for `--json` and
`--yaml`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from gsched import reserve
from gsched.config import Config, PartitionConfig
from gsched.cpuset import specialized
from gsched.hostlist import compress
from gsched.model.policy import Resource
from gsched.model.reservation import Reservation
from gsched_cli.dump import INFINITE, Num, Read, Shape, number
from gsched_cli.fields_node import Row, node_counts
from gsched_cli.nodeview import NodeView, user_name
from gsched_cli.scontrol_node import job_defaults, partition_tres


def node_shape(config: Config) -> Shape:
    """The table of a NodeView."""
    return {
        "architecture": Read(lambda n: n.node.arch),
        "burstbuffer_network_address": "",
        "boards": Read(lambda n: n.conf.boards),
        "boot_time": Num(lambda n: n.node.boot_time),
        "cert_flags": [],
        "cluster_name": "",
        "cores": Read(lambda n: n.conf.cores_per_socket),
        "specialized_cores": Read(lambda n: n.conf.core_spec_count),
        "cpu_binding": 0,
        "cpu_load": Read(lambda n: max(n.use.cpu_load, 0)),
        "free_mem": Num(lambda n: None if n.use.free_mem_mb < 0 else n.use.free_mem_mb),
        "cpus": Read(lambda n: n.cpus),
        "effective_cpus": Read(lambda n: n.cpus - specialized(n.conf).bit_count()),
        "specialized_cpus": Read(lambda n: n.conf.cpu_spec_list),
        "energy": {
            "average_watts": 0,
            "base_consumed_energy": 0,
            "consumed_energy": 0,
            "current_watts": number(0),
            "previous_consumed_energy": 0,
            "last_collected": 0,
        },
        "external_sensors": {},
        "extra": Read(lambda n: n.node.extra),
        "power": {},
        "features": Read(lambda n: n.conf.features),
        "active_features": Read(lambda n: tuple(_text(n.active_features).split(","))),
        "gpu_spec": "",
        "gres": Read(lambda n: _text(n.gres)),
        "gres_drained": "N/A",
        "gres_used": Read(lambda n: n.gres_used),
        "instance_id": "",
        "instance_type": "",
        "last_busy": Num(lambda n: n.use.last_busy or n.node.start_time),
        "mcs_label": "",
        "specialized_memory": Read(lambda n: n.conf.mem_spec_limit),
        "name": Read(lambda n: n.name),
        "next_state_after_reboot": ["INVALID"],
        "address": Read(lambda n: n.conf.addr),
        "hostname": Read(lambda n: n.conf.hostname),
        "state": Read(lambda n: (n.base, *n.flags)),
        "operating_system": Read(lambda n: n.node.os),
        "owner": "",
        "partitions": Read(lambda n: tuple(config.partitions_of(n.name))),
        "port": Read(lambda n: config.port_of(n.name)),
        "real_memory": Read(lambda n: n.conf.real_memory),
        "res_cores_per_gpu": 0,
        "comment": Read(lambda n: n.node.comment),
        "reason": Read(lambda n: n.reason),
        "reason_changed_at": Num(lambda n: n.node.reason_time),
        "reason_set_by_user": Read(_by),
        "resume_after": number(0),
        "reservation": Read(_reservation),
        "alloc_memory": Read(lambda n: n.use.mem_alloc_mb),
        "alloc_cpus": Read(lambda n: n.use.cpus_alloc),
        "alloc_idle_cpus": Read(lambda n: max(n.cpus - n.use.cpus_alloc, 0)),
        "tres_used": Read(lambda n: n.allocated_tres),
        "tres_weighted": 0.0,
        "slurmd_start_time": Num(lambda n: n.node.start_time),
        "sockets": Read(lambda n: n.conf.sockets),
        "threads": Read(lambda n: n.conf.threads_per_core),
        "temporary_disk": Read(lambda n: n.conf.tmp_disk),
        "tls_cert_last_renewal": number(0),
        "topology": "",
        "weight": Read(lambda n: n.conf.weight),
        "tres": Read(lambda n: n.configured_tres),
        "version": Read(lambda n: n.node.version),
    }


def _text(text: str) -> str:
    return "" if text == "(null)" else text


def _by(node: NodeView) -> str:
    return user_name(node.node.reason_uid) if node.node.reason_time else ""


def _reservation(node: NodeView) -> str:
    return node.reservation.name if node.reservation is not None else ""


# ---- partitions ------------------------------------------------------------------------------


def partition_shape(config: Config, of: Callable[[Any], PartitionConfig] = lambda p: p) -> Shape:
    """The table of a partition; `of` finds it in a record."""

    def read(get: Callable[[PartitionConfig], Hashable]) -> Read:
        return Read(lambda record: get(of(record)))

    def num(get: Callable[[PartitionConfig], float | None]) -> Num:
        return Num(lambda record: get(of(record)))

    def cpus(part: PartitionConfig) -> int:
        return sum(config.nodes[name].cpus for name in part.nodes)

    unset = number(None)
    return {
        "nodes": {
            "allowed_allocation": read(lambda p: ",".join(p.allow_alloc_nodes)),
            "configured": read(lambda p: compress(p.nodes)),
            "total": read(lambda p: len(p.nodes)),
        },
        "accounts": {
            "allowed": read(lambda p: ",".join(p.allow_accounts)),
            "deny": read(lambda p: ",".join(p.deny_accounts)),
        },
        "groups": {"allowed": read(lambda p: ",".join(p.allow_groups))},
        "qos": {
            "allowed": read(lambda p: ",".join(p.allow_qos)),
            "deny": read(lambda p: ",".join(p.deny_qos)),
            "assigned": read(lambda p: p.qos),
        },
        "alternate": read(lambda p: p.alternate),
        "tres": {
            "billing_weights": read(lambda p: p.tres_billing_weights),
            "configured": read(lambda p: partition_tres(p, config)),
        },
        "cluster": "",
        "select_type": read(lambda p: tuple((p.select_type_parameters or "NONE").split(","))),
        "cpus": {"task_binding": [], "total": read(cpus)},
        "defaults": {
            "memory_per_cpu": read(lambda p: p.def_mem_per_cpu or p.def_mem_per_node or 0),
            "partition_memory_per_cpu": num(lambda p: p.def_mem_per_cpu),
            "partition_memory_per_node": num(
                lambda p: _per_node(p.def_mem_per_cpu, p.def_mem_per_node)
            ),
            "time": num(lambda p: None if p.default_time is None else _limit(p.default_time)),
            "job": read(job_defaults),
        },
        "flags": read(_flags),
        "partition": {
            "exclusive": read(lambda p: "USER" if p.exclusive_user else "NO"),
            "oversubscribe": read(lambda p: p.oversubscribe),
            "state": read(lambda p: (p.state,)),
        },
        "grace_time": read(lambda p: p.grace_time),
        "maximums": {
            "cpus_per_node": num(lambda p: _or_infinite(p.max_cpus_per_node)),
            "cpus_per_socket": num(lambda p: _or_infinite(p.max_cpus_per_socket)),
            "memory_per_cpu": read(lambda p: p.max_mem_per_cpu or p.max_mem_per_node or 0),
            "partition_memory_per_cpu": num(lambda p: p.max_mem_per_cpu),
            "partition_memory_per_node": num(
                lambda p: _per_node(p.max_mem_per_cpu, p.max_mem_per_node)
            ),
            "nodes": num(lambda p: _or_infinite(p.max_nodes)),
            "shares": read(_shares),
            "oversubscribe": {
                "jobs": read(_shares),
                "flags": read(lambda p: ("force",) if p.oversubscribe == "FORCE" else ()),
            },
            "time": num(lambda p: _limit(p.max_time)),
            "over_time_limit": num(lambda p: p.over_time_limit),
        },
        "minimums": {"nodes": read(lambda p: p.min_nodes)},
        "name": read(lambda p: p.name),
        "node_sets": "",
        "preempt_mode": read(lambda p: (p.preempt_mode or "CLUSTER_GLOBAL",)),
        "priority": {
            "job_factor": read(lambda p: p.priority_job_factor),
            "tier": read(lambda p: p.priority_tier),
        },
        "timeouts": {"resume": unset, "suspend": unset},
        "topology": "",
        "suspend_time": unset,
    }


def _limit(seconds: int) -> float:
    return seconds // 60 if seconds else INFINITE


def _or_infinite(value: int | None) -> float:
    return INFINITE if value is None else value


def _per_node(per_cpu: int | None, per_node: int | None) -> int | None:
    return None if per_cpu is not None else per_node or 0


def _shares(part: PartitionConfig) -> int:
    return part.oversubscribe_count if part.oversubscribe in ("YES", "FORCE") else 0


def _flags(part: PartitionConfig) -> tuple[str, ...]:
    words = {
        "DEFAULT": part.default,
        "HIDDEN": part.hidden,
        "NO_ROOT": part.disable_root_jobs,
        "ROOT_ONLY": part.root_only,
        "REQ_RESV": part.req_resv,
        "LLN": part.lln,
        "EXCLUSIVE_USER": part.exclusive_user,
    }
    return tuple(word for word, on in words.items() if on)


# ---- sinfo -----------------------------------------------------------------------------------


def row_key(row: Row) -> object:
    """What nodes of one row have in common with its first."""
    node = row.nodes[0]
    conf, use = node.conf, node.use
    return (
        *(node.base, node.flags, node.gres, node.gres_used, use.cpus_alloc, use.mem_alloc_mb),
        *(conf.features, node.active_features, node.reason, node.node.comment, node.node.extra),
        _reservation(node),
    )


def row_shape(config: Config) -> Shape:
    """The table of a Row of `sinfo`: nodes alike, with their partition."""

    def first(get: Callable[[NodeView], Hashable], none: Hashable = "") -> Read:
        return Read(lambda row: get(row.nodes[0]) if row.nodes else none)

    def span(get: Callable[[NodeView], int]) -> dict[str, Read]:
        return {
            "minimum": Read(lambda row: min(map(get, row.nodes), default=0)),
            "maximum": Read(lambda row: max(map(get, row.nodes), default=0)),
        }

    def nodes(at: int) -> Read:
        return Read(lambda row: node_counts(row.nodes)[at])

    def cpus(at: int) -> Read:
        return Read(lambda row: sum(node.cpu_counts[at] for node in row.nodes))

    return {
        "port": first(lambda n: config.port_of(n.name), 0),
        "node": {"state": first(lambda n: (n.base, *n.flags), ())},
        "nodes": {
            "allocated": nodes(0),
            "idle": nodes(1),
            "other": nodes(2),
            "total": Read(lambda row: len(row.nodes)),
            "hostnames": [],
            "addresses": [],
            "nodes": Read(lambda row: tuple(node.name for node in row.nodes)),
        },
        "cpus": {
            "allocated": cpus(0),
            "idle": cpus(1),
            "other": cpus(2),
            "total": Read(lambda row: sum(node.cpus for node in row.nodes)),
            **span(lambda n: n.cpus),
            "load": span(lambda n: max(n.use.cpu_load, 0)),
            "per_node": {"max": Num(lambda row: _or_infinite(row.part.max_cpus_per_node))},
        },
        "sockets": span(lambda n: n.conf.sockets),
        "cores": span(lambda n: n.conf.cores_per_socket),
        "threads": span(lambda n: n.conf.threads_per_core),
        "disk": span(lambda n: n.conf.tmp_disk),
        "memory": {
            **span(lambda n: n.conf.real_memory),
            "free": {"minimum": Num(_free(min)), "maximum": Num(_free(max))},
            "allocated": first(lambda n: n.use.mem_alloc_mb, 0),
        },
        "weight": span(lambda n: n.conf.weight),
        "features": {
            "total": first(lambda n: _text(n.features)),
            "active": first(lambda n: _text(n.active_features)),
        },
        "gres": {"total": first(lambda n: _text(n.gres)), "used": first(lambda n: n.gres_used)},
        "cluster": "",
        "comment": first(lambda n: n.node.comment),
        "extra": first(lambda n: n.node.extra),
        "reason": {
            "description": first(lambda n: n.reason),
            "time": first(lambda n: n.node.reason_time, 0),
        },
        "reservation": first(_reservation),
        "reason_set_by_user": first(_by),
        "resource_spec": {
            "cpus": first(lambda n: n.conf.cpu_spec_list),
            "memory": first(lambda n: n.conf.mem_spec_limit, 0),
        },
        "partition": partition_shape(config, lambda row: row.part),
    }


def _free(choose: Callable[[list[int]], int]) -> Callable[[Row], int | None]:
    def read(row: Row) -> int | None:
        known = [node.use.free_mem_mb for node in row.nodes if node.use.free_mem_mb >= 0]
        return choose(known) if known else None

    return read


# ---- reservations, licences, the controller --------------------------------------------------


def reservation_shape(config: Config, now: float) -> Shape:
    """The table of a Reservation as it stands now."""
    from gsched_cli.scontrol_reservation import cores_and_tres

    def purge(resv: Reservation) -> int | None:
        return resv.purge_comp if "PURGE_COMP" in resv.flags else None

    def joined(names: Sequence[str]) -> str:
        return ",".join(names)

    return {
        "accounts": Read(lambda r: joined(r.accounts)),
        "allowed_partitions": Read(lambda r: joined(r.partitions)),
        "burst_buffer": "",
        "core_count": Read(lambda r: cores_and_tres(r, config)[0]),
        "core_specializations": [],
        "end_time": Num(lambda r: reserve.at(r, now).end),
        "features": Read(lambda r: r.features),
        "flags": Read(lambda r: r.flags),
        "groups": Read(lambda r: joined(r.groups)),
        "licenses": Read(lambda r: r.licenses),
        "max_start_delay": Read(lambda r: r.max_start_delay),
        "name": Read(lambda r: r.name),
        "node_count": Read(lambda r: len(r.nodes)),
        "node_list": Read(lambda r: compress([share.node for share in r.nodes])),
        "partition": Read(lambda r: r.partition),
        "purge_completed": {"time": Num(purge)},
        "qos": Read(lambda r: joined(r.qos)),
        "start_time": Num(lambda r: reserve.at(r, now).start),
        "watts": number(None),
        "tres": Read(lambda r: cores_and_tres(r, config)[1]),
        "users": Read(lambda r: joined(r.users)),
    }


def license_record(
    name: str, total: int, used: int, kept: int, remote: Resource | None = None
) -> Mapping[str, object]:
    """One licence; `remote`: it is served from outside of the cluster."""
    deficit = remote.deficit if remote is not None else 0
    return {
        "LicenseName": name,
        "Total": total,
        "Used": used,
        "Free": max(0, total - used - deficit),
        "Remote": remote is not None,
        "Reserved": kept,
        "LastConsumed": remote.last_consumed if remote is not None else 0,
        "LastDeficit": deficit,
        "LastUpdate": remote.modified if remote is not None else 0,
        "Nodes": "",
    }


def ping_record(host: str, up: bool, microseconds: int) -> Mapping[str, object]:
    """The controller's answer."""
    return {
        "hostname": host,
        "pinged": "UP" if up else "DOWN",
        "responding": up,
        "latency": microseconds,
        "mode": "primary",
        "primary": True,
    }
