"""When supervisors of one kind are looked at again: those that have begun and do not answer yet,
and those that were to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurmd_compat.links import ADOPT_MS, Link, Links, is_alive
from slurmd_compat.stepd import Status


class Vigil:
    """`adopt(key, tries)` tries once more to reach a supervisor, `stuck(link)` is called of one
    whose processes are left `grace_s` seconds after it had to end."""

    def __init__(
        self,
        links: Links,
        grace_s: int,
        clock: Callable[[], int],
        adopt: Callable[[Any, int], None],
        stuck: Callable[[Link], None],
    ) -> None:
        self._links = links
        self._grace_ms = 1000 * grace_s
        self._clock = clock
        self._adopt = adopt
        self._stuck = stuck
        #: key -> (when to look again, looks left)
        self._waiting: dict[Any, tuple[int, int]] = {}
        #: key -> when a kill that has not worked is worth a word
        self._kill_at: dict[Any, int] = {}

    def must_end(self, key: Any) -> None:
        """From now on it has to end."""
        self._kill_at.setdefault(key, self._clock() + self._grace_ms)

    def awaits(self, key: Any, left: Status, tries: int) -> bool:
        """Whether one that left this record lives on and may still answer: it is tried again."""
        if left.released or tries <= 0 or not is_alive(left.stepd_pid):
            return False
        self._waiting[key] = (self._clock() + ADOPT_MS, tries)
        return True

    def forget(self, key: Any) -> None:
        self._waiting.pop(key, None)
        self._kill_at.pop(key, None)

    def deadline(self) -> int | None:
        """Monotonic ms at which `on_time` has something to do."""
        marks = [*(when for when, _ in self._waiting.values()), *self._kill_at.values()]
        return min(marks, default=None)

    def on_time(self, now: int) -> None:
        if self._links.zombies:
            self._links.reap()
        for key, (when, left) in list(self._waiting.items()):
            if now >= when:
                del self._waiting[key]
                self._adopt(key, left - 1)
        for key, when in list(self._kill_at.items()):
            if now >= when:
                del self._kill_at[key]
                link = self._links.held.get(key)
                if link is not None and not link.status.released:
                    self._stuck(link)
