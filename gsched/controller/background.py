"""The plan for the whole queue, made in a thread while the loop goes on.

The loop never waits for it: it looks whether one is due, and takes it over when the thread has
said that it is ready.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from gsched.controller.clock import Clock
from gsched.ledger.ledger import Ledger
from gsched.model import StartEstimates
from gsched.scheduling import Draft, Planner, options_of

#: a plan that takes longer, seconds, is told of, and again after each time as long
PATIENCE_S = 60.0


class Background:
    """At most one thread at a time."""

    def __init__(self, clock: Clock, log: Any) -> None:
        self._clock = clock
        self._log = log
        self._planner = Planner()
        self._ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._told = 0.0
        self.plans = 0
        #: microseconds that the last plan took
        self.spent = 0

    @property
    def fd(self) -> int:
        """Becomes readable when a plan is ready."""
        return self._ready

    def due_at(self, ledger: Ledger) -> float:
        """When `begin` should be called."""
        return self._planner.due_at(ledger)

    def begin(self, ledger: Ledger) -> None:
        """Starts a plan on a copy. Cost: the copy."""
        draft = self._planner.prepare(ledger, self._clock.now())
        self._told = self._planner.since
        threading.Thread(target=self._run, args=(draft,), name="plan", daemon=True).start()

    def _run(self, draft: Draft) -> None:
        began = time.perf_counter_ns()
        try:
            draft.run()
        except Exception as problem:
            self._log.error(f"a plan could not be made: {problem}")
        self.spent = (time.perf_counter_ns() - began) // 1000
        os.eventfd_write(self._ready, 1)

    def take(self, ledger: Ledger) -> StartEstimates | None:
        """The plan that is ready is taken over: what the view is to be told of it; None if there
        is none, or it was for a configuration that is no more."""
        try:
            os.eventfd_read(self._ready)
        except BlockingIOError:
            return None
        draft = self._planner.draft
        if draft is None or not self._planner.apply(ledger):
            return None
        self.plans += 1
        return draft.estimates

    def watch(self, ledger: Ledger) -> None:
        """Tells of a plan that does not end."""
        now = self._clock.now()
        patience = max(PATIENCE_S, options_of(ledger.config).interval)
        if self._planner.draft is not None and now - self._told >= patience:
            self._told = now
            self._log.warning(
                f"the plan that was begun {now - self._planner.since:.0f} s ago has not ended: "
                "passes go on beside the last one"
            )

    def close(self) -> None:
        """No plan is waited for."""
        self._planner.give_up()
