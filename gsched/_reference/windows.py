"""Advance reservations, as they are said in _core.pyi: who may use what of a node, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gsched._reference.parts import Free, Request

EVERY = (1 << 64) - 1
OUTSIDE = -1
ANYWHERE = -2

#: a stretch of time, [at, until)
Span = tuple[int, int]


@dataclass
class Kept:
    """A reservation: when it is in force, and what it keeps on each node (CPUs -1: all of it)."""

    spans: list[Span] = field(default_factory=list)
    shares: dict[int, tuple[int, int]] = field(default_factory=dict)
    firm: bool = False
    flex: bool = False

    def until(self, at: int) -> int | None:
        """How long it is in force if it is so at that time."""
        return max((end for start, end in self.spans if start <= at < end), default=None)

    def meets(self, span: Span) -> bool:
        return any(start < span[1] and span[0] < end for start, end in self.spans)


class Windows:
    def __init__(self) -> None:
        self.reservations: dict[int, Kept] = {}
        super().__init__()

    def set_reservation(
        self,
        reservation: int,
        spans: Iterable[Span],
        nodes: Iterable[tuple[int, int, int]],
        *,
        firm: bool = False,
        flex: bool = False,
    ) -> None:
        shares = {node: (cpus, gpus) for node, cpus, gpus in nodes}
        self.reservations[reservation] = Kept(list(spans), shares, firm, flex)

    def set_reservations(
        self, rows: Iterable[tuple[int, Iterable[Span], Iterable[tuple[int, int, int]]]]
    ) -> None:
        for reservation, spans, nodes in rows:
            self.set_reservation(reservation, spans, nodes)

    def kept_by(self, reservation: int) -> Kept:
        return self.reservations.get(reservation, Kept())

    def confined(self, reservation: int) -> bool:
        return reservation >= 0 and not self.kept_by(reservation).flex

    def domain(self, reservation: int) -> int:
        if reservation < 0:
            return OUTSIDE
        return ANYWHERE if self.kept_by(reservation).flex else reservation

    def same_domain(self, one: int, other: int) -> bool:
        a, b = self.domain(one), self.domain(other)
        return a == b or ANYWHERE in (a, b)

    def ends_by(self, reservation: int, at: int, until: int) -> int:
        """When a job that starts at `at` ends: with its reservation at the latest."""
        last = self.kept_by(reservation).until(at) if self.confined(reservation) else None
        return until if last is None else min(until, last)

    def waits(self, reservation: int, now: int) -> bool:
        """Whether its jobs have to wait for it."""
        return self.confined(reservation) and self.kept_by(reservation).until(now) is None

    def opens(self, reservation: int, now: int) -> int:
        """When its jobs may start at the earliest; 0: never."""
        starts = [max(start, now) for start, end in self.kept_by(reservation).spans if now < end]
        return min(starts, default=0)

    def in_parts(self, node: int) -> bool:
        """Whether a reservation keeps a part of a node."""
        return any(
            kept.spans and kept.shares.get(node, (-1, 0))[0] >= 0
            for kept in self.reservations.values()
        )

    def boundaries(self, node: int = -1) -> set[int]:
        """Times at which a reservation (of that node) begins or ends."""
        return {
            time
            for kept in self.reservations.values()
            if node < 0 or node in kept.shares
            for span in kept.spans
            for time in span
        }

    def view(
        self, want: Request, node: int, free: Free, span: Span | None
    ) -> tuple[int, int] | None:
        """CPUs, and the GPUs to choose from, that are left of what is free on a node to a job that
        would be there in `span` (None: at whatever time); None: nothing."""
        cpus, gpus, own = free.cpus, EVERY, free.cpus
        confined = self.confined(want.reservation)
        mine = False
        for number, kept in self.reservations.items():
            if node not in kept.shares or not kept.spans:
                continue
            size, mask = kept.shares[node]
            left = size - free.resv.get(number, 0)
            if number == want.reservation:
                mine = True
                if not confined:
                    continue
                if span is not None and kept.until(span[0]) is None:
                    return None
                if size >= 0:
                    if want.exclusive:
                        return None
                    own, gpus = left, gpus & mask
            elif span is not None and (kept.firm or not confined) and kept.meets(span):
                if size < 0 or want.exclusive:
                    return None
                cpus, gpus = cpus - max(left, 0), gpus & ~mask
        # What others keep is no part of its own: that bounds what they leave.
        return (min(cpus, own), gpus) if mine or not confined else None
