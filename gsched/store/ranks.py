"""Priorities in force of jobs whose records say another: four bytes each, in pages of neighbouring
jobs, so that all can be recalculated without writing a record for each.

The table `rank` has the pages, by job id // PAGE; 0 where that of the record is in force.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gsched.store.versioned import Key, number_key

if TYPE_CHECKING:
    from gsched.store.versioned import Snapshot

#: jobs whose priorities lie together
RANK_PAGE = 512
TABLE = "rank"
_EMPTY = bytes(4 * RANK_PAGE)


class Ranks:
    """The writer's side. What it knows is what the view holds: both begin empty."""

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def fold(self, ranks: Mapping[int, int]) -> dict[Key, bytes | None]:
        """What is to be written so that each of `ranks` (job id -> priority or 0) is told. Cost:
        ~0.1 us each."""
        dirty: set[int] = set()
        at, page = -1, array("I")
        for job_id, priority in ranks.items():
            if job_id // RANK_PAGE != at:
                at = job_id // RANK_PAGE
                found = self._pages.get(at)
                if found is None:
                    found = self._pages[at] = array("I", _EMPTY)
                page = found
                dirty.add(at)
            page[job_id % RANK_PAGE] = priority
        changes: dict[Key, bytes | None] = {}
        for number in dirty:
            packed = self._pages[number].tobytes()
            changes[TABLE, number_key(number)] = packed if packed != _EMPTY else None
            if packed == _EMPTY:
                del self._pages[number]
        return changes


def ranks(view: Snapshot, ids: Iterable[int] | None) -> dict[int, int]:
    """Priorities in force that are not those of the records, of these jobs or (None) of all. Cost:
    some 0.1 us each."""
    found: dict[int, int] = {}
    if ids is None:
        for key, value in view.scan(TABLE):
            if len(key) == 8:
                first = RANK_PAGE * int.from_bytes(key, "big")
                for job_id, priority in enumerate(_page(value), first):
                    if priority:
                        found[job_id] = priority
        return found
    pages: dict[int, array[int] | None] = {}
    for job_id in ids:
        number = job_id // RANK_PAGE
        if number not in pages:
            packed = view.get(TABLE, number_key(number))
            pages[number] = _page(packed) if packed is not None else None
        page = pages[number]
        if page is not None and page[job_id % RANK_PAGE]:
            found[job_id] = page[job_id % RANK_PAGE]
    return found


def _page(packed: bytes | memoryview) -> array[int]:
    return array("I", bytes(packed))


__all__ = ["RANK_PAGE", "Ranks", "ranks"]
