"""A plan that is made on a copy of the cluster while the live one goes on."""

from __future__ import annotations

from typing import Any

from gsched import _core
from gsched.model import StartEstimates


class Draft:
    """A copy of the core, and what is to be done with it. Made in the loop; `run` may be called in
    another thread, as nothing in here is shared."""

    def __init__(self, owner: object, core: _core.Core, now: int, rules: dict[str, Any]) -> None:
        #: the cluster that it is a copy of
        self.owner = owner
        self.core = core
        self.now = now
        self._rules = rules
        self.done = False
        #: for the view: jobs without a place of their own, and the time before which none starts
        self.estimates = StartEstimates()

    def run(self) -> None:
        """Makes the plan. Cost: see Core.schedule with plan_jobs; the GIL is not held."""
        self.core.run_plan(self.now, **self._rules)
        self.estimates = StartEstimates(*self.core.order_estimates())
        self.done = True
