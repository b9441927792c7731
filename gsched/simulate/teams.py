"""How teams share a cluster over time: guaranteed, borrowed and reclaimed, account by account."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

from gsched.ledger.ledger import Ledger
from gsched.model import Job
from gsched.simulate.chart import LEFT, PANEL, RIGHT, WIDTH, axes, nice, page

#: what is counted in the picture
GPU = "gres/gpu"
#: colours of guaranteed and of borrowed work, of the guarantee and of what was taken back
OWN, BORROWED, PROMISE, RECLAIMED = "#0072b2", "#e69f00", "#1a1a1a", "#d55e00"
#: how the guarantee is drawn
DASHES = 'stroke-dasharray="5 3" fill="none"'

_Scale = Callable[[float], float]


class Stand(NamedTuple):
    """An account from this moment until the next."""

    time: float
    #: held in all, and of that guaranteed work
    used: int
    own: int
    guarantee: int


class Taken(NamedTuple):
    """Work that made way."""

    time: float
    account: str
    gpus: int
    job: str
    #: seconds of its work that are lost
    lost: float = 0.0


@dataclass
class Teams:
    """Takes note of the accounts with a guarantee, and of those that hold anything. Cost: running
    jobs, for each moment."""

    stands: dict[str, list[Stand]] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    #: the replay's end
    last: float = 0.0
    _told: set[tuple[int, int]] = field(default_factory=set)

    def note(self, led: Ledger, now: float) -> None:
        """All that happened at this moment is done."""
        self.last = now
        quota = led.quotas()
        if quota is None:
            return
        for (account, name), one in quota.standing.items():
            if name != GPU or not (one.used or one.guarantee) or account == "root":
                continue
            line = self.stands.setdefault(account, [])
            new = Stand(now, one.used, one.own, one.guarantee)
            if not line or line[-1][1:] != new[1:]:
                line.append(new)

    def told(self, job: Job, name: str, now: float) -> None:
        """A job has changed: one that makes way for a guarantee is remembered, once for each
        attempt."""
        if job.way is None or job.way.kind != "quota" or (job.id, job.attempt) in self._told:
            return
        self._told.add((job.id, job.attempt))
        gpus = sum(part.whole_gpus for part in job.alloc)
        # Both are whole seconds of the ledger's clock.
        lost = max(0, job.way.at - max(job.start_time, job.checkpoint_time))
        self.taken.append(Taken(now, job.spec.account, gpus, name, lost))

    def hours(self, account: str) -> tuple[float, float]:
        """GPU hours of guaranteed and of borrowed work."""
        own = borrowed = 0.0
        line = self.stands[account]
        ends = [one.time for one in line[1:]] + [self.last]
        for one, end in zip(line, ends, strict=True):
            own += one.own * (end - one.time) / 3600
            borrowed += (one.used - one.own) * (end - one.time) / 3600
        return own, borrowed


def write(path: Path, teams: Teams) -> None:
    """A line for each change: seconds of the trace, GPUs."""
    rows = sorted(
        (one.time, account, one.used, one.own, one.used - one.own, one.guarantee)
        for account, line in teams.stands.items()
        for one in line
    )
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("time", "account", "gpus", "guaranteed", "borrowed", "guarantee"))
        table.writerows(rows)


def text(teams: Teams) -> str:
    """GPU hours and what was taken back, a line for each account."""
    lines = [
        f"{'account':<20} {'guarantee':>9} {'own GPUh':>10} {'borrowed GPUh':>14} "
        f"{'taken back':>10} {'lost GPUh':>10}"
    ]
    for account in sorted(teams.stands):
        own, borrowed = teams.hours(account)
        taken = [one for one in teams.taken if one.account == account]
        lost = sum(one.gpus * one.lost for one in taken) / 3600
        most = teams.stands[account][-1].guarantee
        lines.append(
            f"{account:<20} {most:>9} {own:>10.1f} {borrowed:>14.1f} {len(taken):>10} {lost:>10.1f}"
        )
    return "\n".join(lines)


def draw(teams: Teams, title: str) -> str:
    """The picture, as SVG: a panel for each account, all of one scale. Cost: changes."""
    names = sorted(teams.stands)
    first = min((line[0].time for line in teams.stands.values()), default=0.0)
    last = max(teams.last, first + 1)
    most = max(
        (max(s.used, s.guarantee) for line in teams.stands.values() for s in line), default=1
    )
    panels = [
        partial(_panel, teams, account, scale=nice(most), first=first, last=last)
        for account in names
    ]
    return page(title, _legend(), panels)


def _legend() -> list[str]:
    parts, x = [], float(LEFT)
    signs = {
        "guaranteed": f'<rect x="{{x:.0f}}" y="34" width="18" height="6" fill="{OWN}"/>',
        "borrowed": f'<rect x="{{x:.0f}}" y="34" width="18" height="6" fill="{BORROWED}"/>',
        "guarantee": f'<path d="M{{x:.0f}} 37h18" stroke="{PROMISE}" {DASHES}/>',
        "taken back": f'<path d="M{{x:.0f}} 33h8l-4 8z" fill="{RECLAIMED}"/>',
    }
    for word, sign in signs.items():
        parts.append(sign.format(x=x))
        parts.append(f'<text x="{x + 24:.0f}" y="41" fill="#444444">{word}</text>')
        x += 52 + 7 * len(word)
    return parts


def _panel(
    teams: Teams, account: str, top: int, scale: float, first: float, last: float
) -> list[str]:
    line = teams.stands[account]
    right, bottom = WIDTH - RIGHT, top + PANEL

    def across(time: float) -> float:
        return LEFT + (right - LEFT) * (time - first) / (last - first)

    def up(value: float) -> float:
        return bottom - PANEL * value / scale

    parts = axes(f"{account}: GPUs", top, scale, first, last)
    ends = [one.time for one in line[1:]] + [last]
    for colour, low, high in ((OWN, 0, 2), (BORROWED, 2, 1)):
        path = _steps(line, ends, low, high, across, up)
        # Without soft edges, which would be seams where one stretch ends and the next begins.
        soft = 'fill-opacity="0.75" shape-rendering="crispEdges"'
        parts.append(f'<path d="{path}" fill="{colour}" {soft}/>')
    promise, level = "", -1
    for one, end in zip(line, ends, strict=True):
        # One stroke as long as it does not change: each begins with a dash.
        if one.guarantee != level:
            level = one.guarantee
            promise += f"M{across(one.time):.1f} {up(level):.1f}"
        promise += f"H{across(end):.1f}"
    parts.append(f'<path d="{promise}" stroke="{PROMISE}" {DASHES}/>')
    for taken in teams.taken:
        if taken.account == account:
            x = across(taken.time)
            parts.append(
                f'<path d="M{x - 4:.1f} {top}h8l-4 8z" fill="{RECLAIMED}">'
                f"<title>{escape(taken.job)}: {taken.gpus} GPUs taken back</title></path>"
            )
    return parts


def _steps(
    line: Sequence[Stand],
    ends: Sequence[float],
    low: int,
    high: int,
    across: _Scale,
    up: _Scale,
) -> str:
    """A filled area between two fields of the line (0: the axis)."""
    parts = []
    for one, end in zip(line, ends, strict=True):
        bottom = float(one[low]) if low else 0.0
        if one[high] > bottom:
            x, width = across(one.time), across(end) - across(one.time)
            y, height = up(one[high]), up(bottom) - up(one[high])
            parts.append(f"M{x:.1f} {y:.1f}h{width:.2f}v{height:.1f}h-{width:.2f}z")
    return "".join(parts)


__all__ = ["Stand", "Taken", "Teams", "draw", "text", "write"]
