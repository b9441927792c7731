"""`scontrol update nodename=`: states, reasons and what else an administrator says of a node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gsched.ledger import configure, nodes
from gsched.ledger.outcome import Outcome
from gsched.model import Node, NodeFlag
from gsched.wire.messages import Call, Done, Refused, UpdateNode

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

NEEDS_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied"
BAD_STATE = "Invalid node state specified"
NOT_SUBSET = "Active features not subset of available features"

#: states that need a reason
_BAD = ("drain", "down", "fail")
_STATES = frozenset({*_BAD, "resume", "undrain", "idle", "noresp", "future"})
_OFF = NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.DOWN | NodeFlag.FUTURE


class _Wrong(Exception):
    """Why a node cannot be changed so; the text is Slurm's sentence."""


def update(led: Ledger, call: Call, write: UpdateNode, now: float, out: Outcome) -> Done | Refused:
    """All named nodes, or none."""
    if not led.is_admin(call.uid):
        return Refused(call.request_id, "Invalid user id", "ESLURM_USER_ID_MISSING")
    if not write.names or any(name not in led.nodes for name in write.names):
        return Refused(call.request_id, "Invalid node name specified", "ESLURM_INVALID_NODE_NAME")
    chosen = [led.nodes[name] for name in dict.fromkeys(write.names)]
    fields = {key.lower(): value for key, value in write.fields.items()}
    try:
        for node in chosen:
            _check(led, node, write, fields)
    except _Wrong as wrong:
        return Refused(call.request_id, str(wrong))
    rebuild = bool(
        fields.keys() & {"availablefeatures", "features", "activefeatures", "weight", "gres"}
    )
    for node in chosen:
        _set_fields(node, fields)
        _set_state(node, write.state)
        if write.reason:
            node.reason, node.reason_uid, node.reason_time = write.reason, call.uid, int(now)
        led.put_node(node, out)
        led.cluster.set_usable(node.name, led.node_up(node.name))
        if write.state == "down":
            nodes.fail_node_jobs(led, node.name, now, out)
    if rebuild:
        configure.apply(led, now, out)
    out.schedule = True
    return Done(call.request_id, 0, value=len(chosen))


def _check(led: Ledger, node: Node, write: UpdateNode, fields: dict[str, str]) -> None:
    state = write.state
    if state.startswith("power_") or state in ("cancel_reboot", "reboot"):
        # No program is configured that could do it.
        raise _Wrong(BAD_STATE)
    if state and state not in _STATES:
        raise _Wrong(BAD_STATE)
    if state in _BAD and not write.reason and not node.reason:
        raise _Wrong(NEEDS_REASON)
    if state == "resume" and not node.flags & _OFF:
        raise _Wrong(BAD_STATE)
    if state == "idle" and node.flags & NodeFlag.FUTURE:
        raise _Wrong(BAD_STATE)
    if state == "future" and led.parts[node.name]:
        raise _Wrong(BAD_STATE)
    available = _words(fields.get("availablefeatures", fields.get("features")))
    active = _words(fields.get("activefeatures"))
    if available is not None or active is not None:
        conf = led.files.nodes.get(node.name)
        known = available
        if known is None:
            known = (
                node.features.split(",") if node.features else list(conf.features if conf else ())
            )
        now_active = active
        if now_active is None:
            now_active = node.active_features.split(",") if node.active_features else []
        if not set(now_active) <= set(known):
            raise _Wrong(NOT_SUBSET)
    if "weight" in fields and not re.fullmatch(r"[0-9]{1,9}", fields["weight"]):
        raise _Wrong(f"Invalid Weight value: {fields['weight']}")
    if "gres" in fields:
        _check_gres(led, node, fields["gres"])


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word for word in text.split(",") if word]


def _check_gres(led: Ledger, node: Node, text: str) -> None:
    """GPUs are counted by the node itself: only none at all, or all again, can be asked for."""
    conf = led.files.nodes.get(node.name)
    same = conf is not None and text in (conf.gres_text, f"gpu:{conf.gpus}")
    if not same and text not in ("gpu:0", ""):
        raise _Wrong("Invalid generic resource (gres) specification")


def _set_fields(node: Node, fields: dict[str, str]) -> None:
    available = _words(fields.get("availablefeatures", fields.get("features")))
    if available is not None:
        node.features = ",".join(available)
    active = _words(fields.get("activefeatures"))
    if active is not None:
        node.active_features = ",".join(active)
    if "weight" in fields:
        node.weight = int(fields["weight"])
    if "gres" in fields:
        node.no_gpus = fields["gres"] in ("gpu:0", "")
    if "comment" in fields:
        node.comment = fields["comment"][:65536]
    if "extra" in fields:
        node.extra = fields["extra"][:65536]


def _set_state(node: Node, state: str) -> None:
    if state == "drain":
        node.flags |= NodeFlag.DRAIN
    elif state == "fail":
        node.flags |= NodeFlag.FAIL
    elif state == "undrain":
        node.flags &= ~NodeFlag.DRAIN
        if not node.flags & (NodeFlag.DOWN | NodeFlag.FAIL):
            _clear_reason(node)
    elif state == "resume":
        node.flags &= ~_OFF
        _clear_reason(node)
    elif state == "idle":
        node.flags &= ~(NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.DOWN)
        _clear_reason(node)
    elif state == "down":
        node.flags |= NodeFlag.DOWN
    elif state == "future":
        node.flags |= NodeFlag.FUTURE
    elif state == "noresp":
        node.flags |= NodeFlag.NOT_RESPONDING


def _clear_reason(node: Node) -> None:
    node.reason, node.reason_uid, node.reason_time = "", 0, 0
