"""Time in which the controller itself was not there to listen: stopped, swapped out, the machine
asleep. What it did not hear then is nobody's silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def excuse(led: Ledger, seconds: float) -> None:
    """Moves what runs out by silence on by `seconds`: nodes not heard of, attempts not prepared.

    Nothing of it is persisted: every start begins to wait anew. Cost: the number of nodes.
    """
    for live in led.live.values():
        live.last_heard += seconds
    for job_id in led.preparing:
        led.preparing[job_id] += seconds
