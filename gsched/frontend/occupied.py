"""Whose clients the workers are busy with: one user must not keep all of them from others.

A table in memory that the parent and all workers share, with a place for each worker. Nobody locks
it: each writes its own place alone, and a count that is a moment old is good enough.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence

#: seconds after which a client counts as slow: nearly all are done before
SLOW_S = 0.1
#: one worker: uid + 1 (0 nobody), since when (seconds of the monotonic clock)
_PLACE = struct.Struct("<qd")


class Occupied:
    """The table; `fd` is that of its memory, which workers inherit."""

    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self._clock = clock
        self.places = len(self._memory) // _PLACE.size

    @classmethod
    def make(cls, places: int) -> Occupied:
        fd = os.memfd_create("workers", os.MFD_CLOEXEC)
        os.ftruncate(fd, places * _PLACE.size)
        return cls(fd)

    def slow(self, uid: int) -> int:
        """How many workers have had a client of that user for long. Cost: the places."""
        now = self._clock()
        return sum(
            who == uid + 1 and now - since >= SLOW_S
            for who, since in _PLACE.iter_unpack(self._memory[:])
        )

    def put(self, place: int, uid: int) -> None:
        """The worker at `place` has a client of `uid` from now on; of -1: none."""
        # A worker that came when there was no place is not counted.
        if 0 <= place < self.places:
            _PLACE.pack_into(self._memory, place * _PLACE.size, uid + 1, self._clock())


class Share:
    """One worker's part in it. A user may have `some` workers for long, and up to `most` where
    nobody else waits meanwhile."""

    def __init__(self, table: Occupied, place: int, some: int, most: int) -> None:
        self._table = table
        self._place = place
        self._some = some
        self._most = most

    @classmethod
    def of(cls, words: Sequence[str]) -> Share | None:
        """TABLE_FD PLACE SOME MOST, as the parent says them; None where it says nothing."""
        if len(words) != 4:
            return None
        table, *numbers = map(int, words)
        return cls(Occupied(table), *numbers)

    def enter(self, uid: int, waiting: Callable[[], bool]) -> bool:
        """A client has come; False: it is not taken, its user has enough. `waiting`: whether more
        of them, whosesoever, are to be taken."""
        slow = self._table.slow(uid)
        if slow >= self._most or (slow >= self._some and waiting()):
            return False
        self._table.put(self._place, uid)
        return True

    def leave(self) -> None:
        self._table.put(self._place, -1)
