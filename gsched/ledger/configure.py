"""The configuration in force: the files, what was changed at run time, and what running jobs still
need of an older one. Changing it rebuilds the cluster from the jobs, as a restart does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gsched import reserve
from gsched.cluster import Cluster
from gsched.config import Config, GresCount, NodeConfig
from gsched.config.overrides import with_partitions
from gsched.ledger import offered, pause, ranking, slices, tell, use
from gsched.ledger.outcome import Outcome
from gsched.ledger.state import NodeLive
from gsched.model import Job, JobState, Node, NodeAlloc, NodeFlag, PartitionChange, Phase
from gsched.wire.nodes import Reread, Reregister

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: reasons of nodes whose jobs run on while the configuration no longer has room for them
REMOVED = "removed from the configuration while jobs run"
SHRUNK = "configured with fewer CPUs than its jobs use"


def new_node(conf: NodeConfig) -> Node:
    """The record of a node that nothing is known of but its line."""
    node = Node(name=conf.name)
    state = conf.state.upper()
    if state in ("FUTURE", "CLOUD"):
        node.flags |= NodeFlag.FUTURE
    elif state in ("DOWN", "DRAIN", "FAIL"):
        node.flags |= {"DOWN": NodeFlag.DOWN, "DRAIN": NodeFlag.DRAIN, "FAIL": NodeFlag.FAIL}[state]
        node.reason = conf.reason
    return node


def shares(jobs: Iterable[Job]) -> dict[str, list[NodeAlloc]]:
    """What jobs still hold, by node. Cost: all jobs."""
    held: dict[str, list[NodeAlloc]] = {}
    for job in jobs:
        for part in job.alloc:
            if part.phase < Phase.RELEASED:
                held.setdefault(part.node, []).append(part)
    return held


def effective(
    files: Config,
    changes: Iterable[PartitionChange],
    nodes: Mapping[str, Node],
    held: Mapping[str, list[NodeAlloc]],
) -> tuple[Config, dict[str, str]]:
    """(the configuration in force, node -> reason for those that are only kept for their jobs).

    A node that is gone from the files, or has become too small, stays as long as jobs hold it.
    """
    confs: dict[str, NodeConfig] = {}
    carried: dict[str, str] = {}
    for name, conf in files.nodes.items():
        node = nodes.get(name)
        if node is not None:
            conf = _with_node(conf, node)
        need = _cpus(held.get(name, ()))
        if need > conf.cpus:
            conf = msgspec.structs.replace(conf, cpus=need)
            carried[name] = SHRUNK
        confs[name] = conf
    for name, parts in held.items():
        if name not in confs:
            confs[name] = _left_over(nodes.get(name) or Node(name), parts)
            carried[name] = REMOVED
    config = msgspec.structs.replace(files, nodes=confs)
    return with_partitions(config, list(changes)), carried


def _cpus(parts: Iterable[NodeAlloc]) -> int:
    return max((part.cpu_ids.bit_length() for part in parts), default=0)


def _with_node(conf: NodeConfig, node: Node) -> NodeConfig:
    """What an administrator said of a node goes before its line."""
    changes: dict[str, object] = {}
    if node.weight >= 0:
        changes["weight"] = node.weight
    if node.features or node.active_features:
        text = node.active_features or node.features
        changes["features"] = tuple(text.split(","))
    if node.no_gpus:
        changes["gres"] = tuple(
            GresCount(name=item.name, count=0) if item.name == "gpu" else item for item in conf.gres
        )
    return msgspec.structs.replace(conf, **changes) if changes else conf


def _left_over(node: Node, parts: list[NodeAlloc]) -> NodeConfig:
    types: dict[str, int] = {}
    for gpu in node.gpus:
        types[gpu.type] = types.get(gpu.type, 0) + 1
    cpus = max(node.cpus, _cpus(parts), 1)
    return NodeConfig(
        name=node.name,
        hostname=node.name,
        addr=node.name,
        cpus=cpus,
        sockets=cpus,
        real_memory=max(node.mem_mb, sum(part.mem_mb for part in parts), 1),
        gres=tuple(GresCount(name="gpu", type=kind, count=n) for kind, n in types.items()),
        state="DRAIN",
        reason=REMOVED,
    )


# ---- changing it --------------------------------------------------------------------------------


def apply(led: Ledger, now: float, out: Outcome) -> None:
    """Puts into force what the files, the run-time changes and the jobs make together.

    Cost: the cluster is built anew: some us per node and per job that waits or runs.
    """
    held = shares(led.jobs.values())
    config, carried = effective(led.files, led.partition_changes.values(), led.nodes, held)
    for name, conf in config.nodes.items():
        if name not in led.nodes:
            led.nodes[name] = new_node(conf)
            led.live[name] = NodeLive(last_heard=now)
            led.parts[name] = {}
            led.put_node(led.nodes[name], out)
            # Its daemon may be waiting for a better answer than the last one.
            out.messages.append((name, Reregister(led.meta.epoch)))
    for name in [name for name in led.nodes if name not in config.nodes]:
        del led.nodes[name], led.live[name], led.parts[name]
        out.puts["node", name.encode()] = None
        out.view["use", name.encode()] = None
        out.orders.pop(name, None)
        led.forget_use(name)
        out.log.append(("info", f"node {name} is no longer part of the cluster"))
    for name, reason in carried.items():
        node = led.nodes[name]
        if node.reason != reason:
            node.flags |= NodeFlag.DRAIN
            node.reason, node.reason_uid, node.reason_time = reason, 0, int(now)
            led.put_node(node, out)
            out.log.append(("warning", f"node {name} drained: {reason}"))
    for name in led.carried:
        node_left = led.nodes.get(name)
        if node_left is not None and name not in carried and node_left.reason in (SHRUNK, REMOVED):
            node_left.flags &= ~NodeFlag.DRAIN
            node_left.reason, node_left.reason_time = "", 0
            led.put_node(node_left, out)
    led.carried = set(carried)
    rebuild(led, config)
    slices.configured(led, now, out)
    tell.size(led, now, out)
    out.schedule = True


def open_or_close(led: Ledger, name: str, state: str, out: Outcome) -> None:
    """A partition's State alone changes: nothing is built anew. Cost: ~0.1 us for each job that
    waits there, some us for those that are more than one row of the queue."""
    partitions = dict(led.config.partitions)
    partitions[name] = msgspec.structs.replace(partitions[name], state=state)
    led.config = msgspec.structs.replace(led.config, partitions=partitions)
    ids = led.cluster.open_or_close(led.config, name)
    led.cluster.judge(led.jobs[job_id] for job_id in ids)
    out.schedule = True


def rebuild(led: Ledger, config: Config) -> None:
    """A new cluster for a configuration: what jobs hold is restored, what waits is queued."""
    led.config = config
    cluster = led.cluster = Cluster(config)
    offered.changed(led)
    cluster.trace_accounts(led.book.lineage)
    cluster.trace_pools(led.units.ways)
    led.ranking.forget()
    cluster.rank_by(led.ranking.rank)
    led.limits.forget()
    led.accrual.stale = True
    cluster.limit(led.limits)
    for name, node in led.nodes.items():
        cluster.node_changed(node)
        cluster.set_usable(name, led.node_up(name))
        led.touch_use(name)
    for resv in led.reservations.values():
        cluster.reserve(reserve.at(resv, led.meta.last_now))
    for job in led.jobs.values():
        if job.array_job_id and job.array_throttle:
            running = led.array_running.get(job.array_job_id, 0)
            cluster.set_throttle(job.array_job_id, job.array_throttle - running)
    for job in led.jobs.values():
        if job.claim is not None:
            cluster.claims.promise(job, job.claim, int(led.meta.last_now))
        if job.state == JobState.PENDING:
            cluster.queue_job(job)
        elif job.unreleased:
            cluster.restore(job)
    pause.load(led)
    slices.load(led)


def reconfigure(led: Ledger, files: Config, now: float, out: Outcome) -> None:
    """The files were read anew: run-time changes of partitions and nodes are dropped (the state of
    partitions with ReconfigFlags=KeepPartState, all of it with KeepPartInfo), jobs go on, nodes
    are told to read theirs."""
    led.files = files
    flags = files.raw.get("reconfigflags", "").lower()
    for name, change in list(led.partition_changes.items()):
        if "keeppartinfo" in flags:
            continue
        kept = {}
        if "keeppartstate" in flags and "state" in change.fields and name in files.partitions:
            kept = {"state": change.fields["state"]}
        if kept:
            led.partition_changes[name] = PartitionChange(name, kept)
            out.puts["partition", name.encode()] = led.partition_changes[name]
        else:
            del led.partition_changes[name]
            out.puts["partition", name.encode()] = None
    for node in led.nodes.values():
        if node.features or node.active_features or node.weight >= 0 or node.no_gpus:
            node.features = node.active_features = ""
            node.weight, node.no_gpus = -1, False
            led.put_node(node, out)
    apply(led, now, out)
    use.configured(led, now, out)
    ranking.recalculate(led, now, out)
    for name, live in led.live.items():
        if live.session:
            out.messages.append((name, Reread(led.meta.epoch)))
    out.log.append(("info", f"configuration read anew: {len(led.nodes)} nodes"))


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Nodes that were kept for their jobs alone go, or take their new size, with the last one."""
    if any(not led.parts[name] for name in led.carried):
        apply(led, now, out)
