"""The controller's time: never goes back, not even across a restart."""

from __future__ import annotations

import time


class Clock:
    """Wall clock at start plus what has passed since (sleep of the machine included)."""

    def __init__(self, last_now: float) -> None:
        """`last_now` is the last persisted time: a wall clock behind it is not followed."""
        self._wall = max(time.time(), last_now)
        self._start = _elapsed()
        #: seconds by which the wall clock was behind the persisted time
        self.behind = max(0.0, last_now - time.time())

    def now(self) -> float:
        """Seconds since the epoch; never less than before."""
        return self._wall + (_elapsed() - self._start)


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
