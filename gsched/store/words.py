"""Why jobs wait, where a word says all: of thousands a byte each, in pages of neighbouring jobs.

The table `words` has the pages, by job id // PAGE, and under LIST the words themselves. A byte of
a page is 0 where nothing is told of the job, OWN where the table `verdict` has a record of its own,
else FIRST + the word's place in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gsched.model import Verdict
from gsched.store.versioned import Key, number_key

if TYPE_CHECKING:
    from gsched.store.versioned import Snapshot

#: jobs whose bytes lie together
PAGE = 512
OWN, FIRST = 1, 2
#: words that have a byte; those that come later get records
MOST = 256 - FIRST
LIST = b"list"

_encode = msgspec.msgpack.Encoder().encode
_list = msgspec.msgpack.Decoder(list[str])
_EMPTY = bytes(PAGE)
#: the head of a record in four fields, then a number of four bytes: what comes before a job's id
_HEAD = b"\x94\xce"


class Words:
    """The writer's side. What it knows is what the view holds: both begin empty."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._code: dict[str, int] = {}

    def fold(
        self, changes: dict[Key, bytes | None], words: Mapping[int, str]
    ) -> dict[Key, bytes | None]:
        """What is to be written so that each of `words` (job id -> reason) is told, and after them
        the verdicts among `changes`, which is added to and given back. Cost: ~0.1 us a word."""
        pages, codes = self._pages, self._code
        own = [key for key in changes if key[0] == "verdict"]
        dirty: set[int] = set()
        known = len(codes)
        at, page = -1, bytearray()
        for job_id, word in words.items():
            code = codes.get(word)
            if code is None:
                if len(codes) == MOST:
                    key = "verdict", number_key(job_id)
                    if key not in changes:
                        changes[key] = _encode(Verdict(job_id, word))
                        own.append(key)
                    continue
                code = codes[word] = FIRST + len(codes)
            if job_id // PAGE != at:
                at = job_id // PAGE
                page = self._page(at)
                dirty.add(at)
            if page[job_id % PAGE] == OWN:
                changes.setdefault(("verdict", number_key(job_id)), None)
            page[job_id % PAGE] = code
        for key in own:
            job_id = int.from_bytes(key[1], "big")
            code = OWN if changes[key] is not None else 0
            if not code and job_id // PAGE not in pages:
                del changes[key]
                continue
            page = self._page(job_id // PAGE)
            before, page[job_id % PAGE] = page[job_id % PAGE], code
            if before != code:
                dirty.add(job_id // PAGE)
            if not code and before != OWN and job_id not in words:
                # There is no record to delete.
                del changes[key]
        for number in dirty:
            page = pages[number]
            changes["words", number_key(number)] = bytes(page) if page != _EMPTY else None
            if page == _EMPTY:
                del pages[number]
        if len(codes) > known:
            changes["words", LIST] = _encode(list(codes))
        return changes

    def _page(self, number: int) -> bytearray:
        found = self._pages.get(number)
        if found is None:
            found = self._pages[number] = bytearray(PAGE)
        return found


def verdicts(view: Snapshot, ids: Iterable[int] | None) -> dict[int, bytes]:
    """The packed verdicts of jobs, of all with None. Cost: some 0.2 us each."""
    packed = view.get("words", LIST)
    words = _list.decode(packed) if packed is not None else []
    tails = [_encode(Verdict(0, word))[2:] for word in words]
    found: dict[int, bytes] = {}
    if ids is None:
        for key, value in view.scan("verdict"):
            found[int.from_bytes(key, "big")] = bytes(value)
        for key, value in view.scan("words"):
            if key == LIST:
                continue
            first = PAGE * int.from_bytes(key, "big")
            for job_id, code in enumerate(bytes(value), first):
                if code >= FIRST:
                    found[job_id] = _HEAD + job_id.to_bytes(4, "big") + tails[code - FIRST]
        return found
    pages: dict[int, bytes] = {}
    for job_id in ids:
        number = job_id // PAGE
        page = pages.get(number)
        if page is None:
            page = pages[number] = bytes(view.get("words", number_key(number)) or _EMPTY)
        code = page[job_id % PAGE]
        if code >= FIRST:
            found[job_id] = _HEAD + job_id.to_bytes(4, "big") + tails[code - FIRST]
        elif code == OWN:
            record = view.get("verdict", number_key(job_id))
            if record is not None:
                found[job_id] = bytes(record)
    return found
