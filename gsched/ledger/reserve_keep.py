"""Reservations keep their size: nodes that are lost, or taken by jobs, give way to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import reserve_nodes
from gsched.ledger.reserve_nodes import NotChosen
from gsched.model import Reservation

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds between two looks
LOOK = 5.0


def replaced(led: Ledger, resv: Reservation, now: float) -> Reservation | None:
    """The reservation with other nodes in the place of those that are out of service, or (REPLACE)
    in use by jobs; None: it stays as it is. Nodes that were named by somebody, or with STATIC, are
    never replaced; nor are parts of nodes. Where there are fewer idle ones than it lacks, it gets
    those. Cost: its nodes; where some are lost, those of its partition."""
    if {"SPEC_NODES", "STATIC", "MAINT"} & set(resv.flags) or not resv.nodes or not resv.whole:
        return None
    gone = [share.node for share in resv.nodes if _lost(led, resv, share.node, now)]
    while gone:
        try:
            wanted = msgspec.structs.replace(resv, node_count=len(gone))
            new = reserve_nodes.choose(led, wanted, (), {share.node for share in resv.nodes})
        except NotChosen:
            gone.pop()
            continue
        kept = [share for share in resv.nodes if share.node not in gone]
        return msgspec.structs.replace(resv, nodes=(*kept, *new))
    return None


def _lost(led: Ledger, resv: Reservation, name: str, now: float) -> bool:
    if name not in led.nodes or not led.node_up(name):
        return True
    return "REPLACE" in resv.flags and resv.active(now) and bool(led.parts[name])
