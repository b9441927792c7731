"""What a worker that runs commands keeps from one command to the next: answers that can be brought
up to date for less than it costs to make them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

#: bytes, estimated, of all that one worker keeps
BUDGET = 64 << 20


class Kept(Generic[T]):
    """A bounded store; what was not asked for longest goes first. Keys must name all that an answer
    depends on, and whoever may not see what another sees."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._held: OrderedDict[object, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def take(self, key: object) -> T | None:
        """What is kept, to be put back: while it is worked on, or where that fails, nothing is."""
        found = self._held.pop(key, None)
        if found is None:
            return None
        self.bytes -= found[1]
        return found[0]

    def put(self, key: object, value: T, size: int) -> None:
        """Keeps a value of about so many bytes, unless it is larger than all together may be."""
        self.take(key)
        if size > self._budget:
            return
        self._held[key] = value, size
        self.bytes += size
        while self.bytes > self._budget:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes -= freed

    def __len__(self) -> int:
        return len(self._held)
