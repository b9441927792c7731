"""Waiting jobs of each account, in the order of their ranks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

Rank = tuple[int, ...]


class Lines:
    """A line for each account. Cost: log n (and a memmove) for each that comes or goes."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}
        self._rank: dict[int, Rank] = {}
        self._line: dict[str, list[tuple[Rank, int]]] = {}
        #: those that have come since anybody asked for the line
        self._fresh: dict[str, set[int]] = {}
        #: account -> changes with its line
        self.version: dict[str, int] = {}
        self._clock = 0

    def add(self, job_id: int, account: str) -> None:
        """A job waits, or has changed."""
        self.drop(job_id)
        self._of[job_id] = account
        self._fresh.setdefault(account, set()).add(job_id)
        self._news(account)

    def drop(self, job_id: int) -> None:
        """It waits no more."""
        account = self._of.pop(job_id, None)
        if account is None:
            return
        self._news(account)
        rank = self._rank.pop(job_id, None)
        if rank is None:
            self._fresh[account].discard(job_id)
        else:
            line = self._line[account]
            del line[bisect_left(line, (rank, job_id))]
        if not self._line.get(account) and not self._fresh.get(account):
            self._line.pop(account, None)
            self._fresh.pop(account, None)
            del self.version[account]

    def shuffle(self) -> None:
        """Ranks have changed."""
        for account, line in self._line.items():
            self._fresh.setdefault(account, set()).update(job_id for _, job_id in line)
            line.clear()
            self._news(account)
        self._rank.clear()

    def _news(self, account: str) -> None:
        self._clock += 1
        self.version[account] = self._clock

    def of(self, account: str, rank: Callable[[int], Rank]) -> Sequence[tuple[Rank, int]]:
        """(rank, job), the first one first. Cost: n log n in those that have come."""
        line = self._line.setdefault(account, [])
        fresh = self._fresh.pop(account, ())
        for job_id in fresh:
            self._rank[job_id] = rank(job_id)
        if len(fresh) > 8:
            line += [(self._rank[one], one) for one in fresh]
            line.sort()
        else:
            for one in fresh:
                insort(line, (self._rank[one], one))
        return line


__all__ = ["Lines", "Rank"]
