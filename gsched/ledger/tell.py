"""What accounting is told besides jobs: policy, nodes out of service, size of the cluster,
reservations. Facts lie in the same transaction as what they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched import tres
from gsched.hostlist import compress
from gsched.ledger import outbox
from gsched.ledger.outcome import Outcome
from gsched.model import (
    ClusterSize,
    Fact,
    Node,
    NodeFlag,
    NodeState,
    PolicyChange,
    Reservation,
    Reserved,
    Transaction,
)
from gsched.model.policy import PolicyRecord, Tres

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


class Told:
    """What was told last, so that only changes are told; and what the command under way changes."""

    def __init__(self) -> None:
        #: nodes out of service -> (state, reason)
        self.nodes: dict[str, tuple[str, str]] = {}
        #: reservations by name, without what is only about their being idle
        self.resvs: dict[str, Reservation] = {}
        self.size: tuple[str, Tres] | None = None
        self.put: list[PolicyRecord] = []
        self.gone: list[PolicyRecord] = []
        self.done: list[Transaction] = []


def policy(led: Ledger, record: PolicyRecord, gone: bool) -> None:
    """A record of policy has changed: told with the others at the end of the command."""
    if outbox.enabled(led):
        (led.told.gone if gone else led.told.put).append(record)


def transaction(led: Ledger, actor: str, action: str, where: str = "", info: str = "") -> None:
    """Who does what: told with what the command changes."""
    if outbox.enabled(led):
        led.told.done.append(Transaction(actor, action, where, info))


def flush(led: Ledger, now: float, out: Outcome) -> None:
    """The end of a command."""
    told = led.told
    if told.put or told.gone or told.done:
        put(led, PolicyChange(told.put, told.gone, told.done), now, out)
        told.put, told.gone, told.done = [], [], []


def loaded(led: Ledger) -> None:
    """What the stored state has been told as: facts lie in its transactions."""
    for name, node in led.nodes.items():
        state = _state(node, bool(led.parts[name]))
        if state:
            led.told.nodes[name] = (state, node.reason)
    for resv in led.reservations.values():
        led.told.resvs[resv.name] = _plain(resv)


def begin(led: Ledger, now: float, out: Outcome) -> None:
    """A controller takes the state: all is told, whatever accounting knows."""
    if not outbox.enabled(led):
        return
    nodes, has = _size(led)
    down = []
    for name in led.nodes:
        state = _told_now(led, name, now)
        if state is not None:
            down.append(state)
    led.told.size = (nodes, has)
    put(led, ClusterSize(nodes, has, down, True), now, out)
    for resv in led.reservations.values():
        put(led, Reserved(_plain(resv), False, _kept(led, resv)), now, out)


def size(led: Ledger, now: float, out: Outcome) -> None:
    """Nodes may have come, gone or grown."""
    if not outbox.enabled(led):
        return
    found = _size(led)
    if found != led.told.size:
        led.told.size = found
        for name in [name for name in led.told.nodes if name not in led.nodes]:
            del led.told.nodes[name]
            put(led, NodeState(name), now, out)
        put(led, ClusterSize(*found), now, out)


def node(led: Ledger, name: str, now: float, out: Outcome) -> None:
    """A node's state, or what runs on it, has changed. Cost: constant."""
    if not outbox.enabled(led):
        return
    each = led.nodes[name]
    state = _state(each, bool(led.parts[name]))
    before = led.told.nodes.get(name)
    if not state:
        if before is not None:
            del led.told.nodes[name]
            put(led, NodeState(name), now, out)
        return
    if before != (state, each.reason):
        found = _told_now(led, name, now)
        assert found is not None
        if before is not None:
            # What was heard last matters to the first word only: the old state lasted until now.
            found.since = 0
        put(led, found, now, out)


def reservation(led: Ledger, resv: Reservation, gone: bool, now: float, out: Outcome) -> None:
    """A reservation is made, changed, over or deleted."""
    if not outbox.enabled(led):
        return
    # A copy: it is changed in place later on.
    image = _plain(resv)
    if gone:
        led.told.resvs.pop(resv.name, None)
    elif led.told.resvs.get(resv.name) == image:
        return
    else:
        led.told.resvs[resv.name] = image
    put(led, Reserved(image, gone, _kept(led, resv)), now, out)


def put(
    led: Ledger,
    news: PolicyChange | NodeState | ClusterSize | Reserved,
    now: float,
    out: Outcome,
) -> None:
    """One more fact."""
    outbox.put(led, Fact(0, int(now), None, news=news), out)


def _plain(resv: Reservation) -> Reservation:
    return msgspec.structs.replace(resv, idle_since=0)


def _told_now(led: Ledger, name: str, now: float) -> NodeState | None:
    each = led.nodes[name]
    state = _state(each, bool(led.parts[name]))
    if not state:
        led.told.nodes.pop(name, None)
        return None
    led.told.nodes[name] = (state, each.reason)
    since = 0
    if each.flags & NodeFlag.NOT_RESPONDING:
        since = int(led.live[name].reported or led.before)
    return NodeState(name, state, each.reason, each.reason_uid, since, _tres(led, name))


def _state(each: Node, busy: bool) -> str:
    """As Slurm writes it; a node that drains counts as out of service once nothing runs there."""
    flags = each.flags
    if flags & NodeFlag.FUTURE:
        return ""
    if flags & NodeFlag.DOWN:
        found = "DRAINED" if flags & NodeFlag.DRAIN else "DOWN"
        return found + ("*" if flags & NodeFlag.NOT_RESPONDING else "")
    if busy:
        return ""
    if flags & NodeFlag.FAIL:
        return "FAIL"
    return "DRAINED" if flags & NodeFlag.DRAIN else ""


def _size(led: Ledger) -> tuple[str, Tres]:
    names = [name for name, each in led.nodes.items() if not each.flags & NodeFlag.FUTURE]
    total: Tres = {}
    for name in names:
        for kind, count in _tres(led, name).items():
            total[kind] = total.get(kind, 0) + count
    return compress(names), total


def _tres(led: Ledger, name: str) -> Tres:
    """What a node has, as the configuration promises it; billing is the largest of its
    partitions'."""
    conf = led.config.nodes.get(name)
    if conf is None:
        return {}
    found: Tres = {"cpu": conf.cpus, "mem": conf.real_memory, "node": 1}
    for item in conf.gres:
        for kind in (f"gres/{item.name}", f"gres/{item.name}:{item.type}" if item.type else ""):
            if kind:
                found[kind] = found.get(kind, 0) + item.count
    bills = [
        tres.with_billing(led.config, part, found)["billing"]
        for part, each in led.config.partitions.items()
        if each.tres_billing_weights and name in each.nodes
    ]
    return found | {"billing": max(bills, default=conf.cpus)}


def _kept(led: Ledger, resv: Reservation) -> Tres:
    found: Tres = {}
    for share in resv.nodes:
        whole = _tres(led, share.node)
        if share.cpus >= 0:
            whole = {"cpu": share.cpus}
            if share.gpus:
                whole["gres/gpu"] = share.gpus.bit_count()
        for kind, count in whole.items():
            found[kind] = found.get(kind, 0) + count
    return found
