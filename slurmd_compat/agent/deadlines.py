"""Attempts by when the time that they were given is over."""

from __future__ import annotations

from slurmd_compat.agent.words import Key


class Deadlines:
    """Monotonic ms by attempt."""

    def __init__(self) -> None:
        self._until: dict[Key, int] = {}

    def wake_at(self) -> int:
        """Monotonic ms at which something is due; -1: nothing is."""
        return min(self._until.values(), default=-1)

    def due(self, now: int) -> list[Key]:
        """Those whose time is over. Each is told once."""
        over = [key for key, until in self._until.items() if until <= now]
        for key in over:
            del self._until[key]
        return over

    def forget(self, key: Key) -> None:
        self._until.pop(key, None)
