"""How many workers there should be, beside those whose client keeps them.

A worker that runs command lines has one client at a time. Most are done in milliseconds; one that
waits (for its client's standard input, for a database that is slow) must not keep others waiting.
"""

from __future__ import annotations

import os
import struct

#: seconds after which a worker says that it is held
HELD_S = 0.5
#: seconds for which one that is not needed any more stays: the next may be needed soon
KEEP_S = 60.0
#: substitutes at once: what is held beyond them waits, or runs in a process of its own
MOST = 8

_WORD = struct.Struct("<i?")


def tell(fd: int, held: bool) -> None:
    """A worker's word to its parent through a pipe that does not block; one that is full or closed
    takes none: then there is no substitute."""
    try:
        os.write(fd, _WORD.pack(os.getpid(), held))
    except OSError:
        return


class Substitutes:
    """Who is held, as the workers say."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        #: substitutes that there should be, and since when fewer would do
        self._count = 0
        self._since = 0.0

    def hear(self, data: bytes) -> None:
        """Words of workers, whole ones."""
        for pid, held in _WORD.iter_unpack(data[: len(data) // _WORD.size * _WORD.size]):
            if held:
                self._held.add(pid)
            else:
                self._held.discard(pid)

    def gone(self, pid: int) -> None:
        """The worker has ended, or is to end and not counted any more."""
        self._held.discard(pid)

    def wanted(self, count: int, now: float) -> int:
        """Workers that there should be so that one of them is free, at least `count`."""
        needed = min(MOST, max(0, len(self._held) - count + 1))
        if needed >= self._count or now - self._since >= KEEP_S:
            self._count, self._since = needed, now
        return count + self._count

    def surplus(self, workers: list[int], wanted: int) -> list[int]:
        """Which of the workers, oldest first, are to end: the youngest that nobody holds."""
        free = [pid for pid in workers if pid not in self._held]
        more = len(workers) - wanted
        return free[-more:] if more > 0 else []
