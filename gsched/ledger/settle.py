"""The first seconds of a controller: nodes come back one by one.

Who looks only at those that are back gives them to jobs that fit on few nodes, also where they are
kept for a larger one that comes first. So nothing starts until all nodes that were in use have
answered, or have had time to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger.outcome import Outcome
from gsched.model import NodeFlag

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: a node that hears of a new controller registers at its next heartbeat, which is within 10 seconds
SETTLE_S = 15


def begin(led: Ledger, now: float) -> None:
    """A controller has taken the state over: the nodes that took work before are waited for."""
    led.awaited = [name for name, node in led.nodes.items() if node.flags == NodeFlag.NONE]
    led.settled_at = now + SETTLE_S


def awaits(led: Ledger, now: float) -> float:
    """Until when nothing starts because of it; 0: it is over. Cost: each node once in all."""
    left = led.awaited
    if left and now >= led.settled_at:
        left.clear()
    while left and not _missing(led, left[-1]):
        left.pop()
    return led.settled_at if left else 0.0


def missing(led: Ledger) -> list[str]:
    """The nodes that are still waited for."""
    return [name for name in led.awaited if _missing(led, name)]


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """When it is over a pass is due."""
    if led.awaited and not awaits(led, now):
        out.schedule = True


def _missing(led: Ledger, name: str) -> bool:
    node = led.nodes.get(name)
    return node is not None and node.flags == NodeFlag.NONE and not led.node_up(name)
