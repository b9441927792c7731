"""The cluster over time as a picture: allocation, queue and fragmentation, as SVG.

One line for each replay, so that several can be compared. Nothing but text is needed to make it.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import click

from gsched.simulate.replay_record import Record, Sample

WIDTH, PANEL, GAP = 960, 190, 46
LEFT, RIGHT, TOP, BOTTOM = 66, 20, 76, 36
#: points of a line: one for each two of the picture's
COLUMNS = (WIDTH - LEFT - RIGHT) // 2

#: told apart by people who see colours otherwise, too (Okabe and Ito)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Line:
    """A replay in the picture."""

    name: str
    record: Record


@dataclass(frozen=True)
class _Panel:
    title: str
    #: a sample's value; None: the whole is nothing (no GPU is free)
    value: Callable[[Sample, Record], float | None]
    #: the axis ends there; None: where the largest value does
    top: float | None


def _allocation(sample: Sample, record: Record) -> float | None:
    if record.total_gpus:
        return 100 * sample.gpus / record.total_gpus
    return 100 * sample.cpus / record.total_cpus


def _fragmentation(sample: Sample, record: Record) -> float | None:
    free = record.total_gpus - sample.gpus
    return 100 * sample.fragmented / free if free > 0 else None


def _panels(lines: Sequence[Line]) -> list[_Panel]:
    gpus = any(line.record.total_gpus for line in lines)
    panels = [
        _Panel(f"{'GPUs' if gpus else 'CPUs'} in use, % of all", _allocation, 100.0),
        _Panel("jobs waiting", lambda sample, _: float(sample.waiting), None),
    ]
    if gpus:
        panels.append(_Panel("free GPUs of no use to the usual job, %", _fragmentation, None))
    return panels


def draw(lines: Sequence[Line], title: str) -> str:
    """The picture. Cost: samples."""
    panels = _panels(lines)
    first = min(line.record.samples[0].time for line in lines)
    last = max(line.record.samples[-1].time for line in lines)
    last = max(last, first + 1)
    drawn = [partial(_panel, panel, lines, first=first, last=last) for panel in panels]
    return page(title, _legend(lines), drawn)


def page(title: str, legend: Iterable[str], panels: Sequence[Callable[[int], list[str]]]) -> str:
    """A picture of panels below each other; each is drawn from its upper edge on."""
    height = TOP + max(1, len(panels)) * (PANEL + GAP) - GAP + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="Helvetica,Arial,sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#1a1a1a">{escape(title)}</text>',
        *legend,
    ]
    for number, panel in enumerate(panels):
        parts += panel(TOP + number * (PANEL + GAP))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, x = [], float(LEFT)
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="34" width="18" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 24:.0f}" y="41" fill="#444444">{escape(line.name)}</text>')
        x += 48 + 7 * len(line.name)
    return parts


def _panel(panel: _Panel, lines: Sequence[Line], top: int, first: float, last: float) -> list[str]:
    curves = [columns(line.record, panel.value, first, last) for line in lines]
    highest = max((value for curve in curves for value in curve if value is not None), default=0)
    scale = panel.top or nice(highest)
    right, bottom = WIDTH - RIGHT, top + PANEL
    parts = axes(panel.title, top, scale, first, last)
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        width = (right - LEFT) / len(curve)
        points = []
        pen = "M"
        for place, value in enumerate(curve):
            if value is None:
                pen = "M"
                continue
            y = bottom - PANEL * min(value, scale) / scale
            points.append(f"{pen}{LEFT + width * place:.1f} {y:.1f}h{width:.2f}")
            pen = "L"
        path = "".join(points)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
    return parts


def axes(title: str, top: int, scale: float, first: float, last: float) -> list[str]:
    """The frame of a panel whose axis ends at `scale`: title, grid, marks of time."""
    right, bottom = WIDTH - RIGHT, top + PANEL
    parts = [
        f'<text x="{LEFT}" y="{top - 8}" fill="#1a1a1a">{escape(title)}</text>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#999999"/>',
    ]
    for step in range(5):
        y = bottom - PANEL * step / 4
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e2e2e2"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#666666">'
            f"{_label(scale * step / 4)}</text>"
        )
    for time, words in ticks(last - first):
        x = LEFT + (right - LEFT) * time / (last - first)
        parts.append(
            f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}" stroke="#999999"/>'
            f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle" fill="#666666">'
            f"{words}</text>"
        )
    return parts


def columns(
    record: Record,
    value: Callable[[Sample, Record], float | None],
    first: float,
    last: float,
    count: int = COLUMNS,
) -> list[float | None]:
    """Means over time in `count` equal stretches from `first` to `last`; None where nothing is
    told."""
    width = (last - first) / count
    sums = [0.0] * count
    spans = [0.0] * count
    for now, after in zip(record.samples, record.samples[1:], strict=False):
        found = value(now, record)
        if found is None:
            continue
        time = now.time
        place = min(int((time - first) / width), count - 1)
        while time < after.time:
            until = (
                after.time if place >= count - 1 else min(after.time, first + width * (place + 1))
            )
            span = until - time
            sums[place] += found * span
            spans[place] += span
            time = until
            place = min(place + 1, count - 1)
    return [total / span if span > 0 else None for total, span in zip(sums, spans, strict=True)]


def nice(value: float) -> float:
    """The next 1, 2, 4, 6 or 8 times a power of ten: a quarter of it is a short number too."""
    if value <= 4:
        return 4.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value))


def ticks(span: float) -> list[tuple[float, str]]:
    """(seconds, words) of at most ten marks along the time axis."""
    step = float(next((s for s in _STEPS if span / s <= 10), 0))
    if not step:
        days = span / 86400
        step = 86400 * next(
            base * 10**power
            for power in range(12)
            for base in (1, 2, 5)
            if days / (base * 10**power) <= 10
        )
    unit, name = next(
        (size, name)
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
        if step % size == 0
    )
    return [(n * step, f"{n * step / unit:g} {name}") for n in range(int(span / step) + 1)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def check(path: Path) -> None:
    """ClickException for a file that is called as a picture of another kind than SVG (a name
    without an end means that, too) and PNG, and where PNG needs CairoSVG that is not installed."""
    if path.suffix.lower() not in ("", ".svg", ".png"):
        raise click.ClickException(f"{path}: pictures are made as .svg or .png")
    if path.suffix.lower() == ".png" and importlib.util.find_spec("cairosvg") is None:
        raise click.ClickException(
            f"{path}: pictures as PNG need CairoSVG (pip install 'gsched[png]'); SVG does not"
        )


def write(path: Path, picture: str) -> None:
    """As SVG, or as PNG where the file is called so."""
    check(path)
    if path.suffix.lower() == ".png":
        importlib.import_module("cairosvg").svg2png(bytestring=picture.encode(), write_to=str(path))
    else:
        path.write_text(picture, encoding="utf-8")
