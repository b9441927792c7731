"""Whose work makes way: every set of them is tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

from gsched._reference.survey import Surveys


class Preempt(Surveys):
    """See _core.pyi."""

    @contextmanager
    def _released(self, keys: Iterable[int]) -> Iterator[None]:
        """As if these allocations had been given back."""
        gone = [(key, self.held[key]) for key in keys]
        for key, _ in gone:
            self.release(key)
        try:
            yield
        finally:
            for key, held in gone:
                self.held[key] = held
                for row in held.rows:
                    if held.lot >= 0:
                        self.begin_lot(held, row[0], row[4])
                        continue
                    self.hold(row[0], held.cores[row[0]], 1, 1)

    def fits_without(self, req: int, keys: Iterable[int], avoid: Iterable[int] = ()) -> bool:
        """Whether a request has room once these are gone."""
        there = {i: self.nodes[i].usable for i in avoid}
        for i in there:
            self.nodes[i].usable = False
        try:
            with self._released(keys):
                return self.find(self.requests[req], self.live()) is not None
        finally:
            for i, usable in there.items():
                self.nodes[i].usable = usable

    def least_cost(
        self, req: int, keys: Sequence[int], costs: Sequence[int], avoid: Iterable[int] = ()
    ) -> tuple[int, int] | None:
        """(cost, number) of the cheapest set that is enough; None: all of them are not."""
        price = dict(zip(keys, costs, strict=True))
        found = [
            (sum(price[key] for key in chosen), count)
            for count in range(1, len(keys) + 1)
            for chosen in combinations(keys, count)
            if self.fits_without(req, chosen, avoid)
        ]
        return min(found, default=None)
