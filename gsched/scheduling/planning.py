"""The plan for the whole queue: prepared in the loop, made elsewhere, applied in the loop.

`Planner` says when a plan is due and takes a copy of the cluster; `Draft.run` makes the plan on the
copy, in a thread or at once; `Planner.apply` lets the live cluster take over what still fits. No
clock and no thread in here: the controller and the simulator bring their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.cluster.plans import Draft
from gsched.scheduling.options import options_of

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: a plan is due before its time when so many jobs came or went since the last one, or this part of
#: the queue; but not sooner than after this part of the interval
MUCH = 200
MUCH_OF_QUEUE = 0.05
SOONEST = 0.1

__all__ = ["Draft", "Planner"]


class Planner:
    """When plans are made, and what becomes of them."""

    def __init__(self) -> None:
        self._last = float("-inf")
        #: the plan that is being made, and since when
        self.draft: Draft | None = None
        self.since = 0.0

    def due_at(self, ledger: Ledger) -> float:
        """When the next plan should be begun; infinity: not before something changes."""
        options = options_of(ledger.config)
        cluster = ledger.cluster
        if self.draft is not None or not options.plans or not cluster.waiting() or ledger.awaited:
            return float("inf")
        changes = cluster.changes
        if not changes:
            return float("inf")
        much = changes >= max(MUCH, MUCH_OF_QUEUE * cluster.waiting())
        much = much or cluster.unplanned or cluster.returned
        return self._last + options.interval * (SOONEST if much else 1.0)

    def prepare(self, ledger: Ledger, now: float) -> Draft:
        """The copy that the next plan is made on. Cost: a memcpy of the cluster."""
        self._last = self.since = now
        self.draft = ledger.cluster.draft(int(now), options_of(ledger.config).planning())
        return self.draft

    def apply(self, ledger: Ledger) -> bool:
        """The plan that is ready becomes the live one; a pass must follow. False if the cluster
        that it was made for is no more. Cost: jobs (some ns each)."""
        draft, self.draft = self.draft, None
        return draft is not None and ledger.cluster.adopt(draft)

    def give_up(self) -> None:
        """The plan that is being made is not wanted any more."""
        self.draft = None
