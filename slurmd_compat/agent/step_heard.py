"""Whoever is to see the steps of a job as they are now: the controller is told of them at once, and
he hears when it has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched.wire.steps import FromAgent, Taken
from slurmd_compat.agent.step_words import Ask
from slurmd_compat.agent.words import Key

if TYPE_CHECKING:
    from slurmd_compat.agent.steps import Steps

#: most who wait on a node; further ones see what the controller has
MOST_WAITING = 256


@dataclass
class _Hearer:
    item: Ask
    key: Key
    #: steps that the controller has not said to have
    missing: set[int]


class Hearers:
    """Those of one node."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._held: list[_Hearer] = []

    def ask(self, item: Ask, key: Key, now: int) -> FromAgent | None:
        """The answer to TellSteps; None: it follows."""
        jobs = self._steps.jobs.get(key)
        if jobs is None or not jobs.dirty or len(self._held) >= MOST_WAITING:
            return Taken(b"")
        missing = set(jobs.dirty)
        jobs.tell_now |= missing
        self._held.append(_Hearer(item, key, missing))
        self._steps.report_now(now)
        return None

    def kept(self, key: Key, numbers: Iterable[int]) -> None:
        """The controller has these."""
        if self._held:
            known = set(numbers)
            for hearer in self._held:
                if hearer.key == key:
                    hearer.missing -= known
            self._answer([one for one in self._held if not one.missing])

    def forget(self, key: Key) -> None:
        self._answer([one for one in self._held if one.key == key])

    def _answer(self, done: list[_Hearer]) -> None:
        for hearer in done:
            self._held.remove(hearer)
            self._steps.reply(hearer.item.source, Taken(b""))
