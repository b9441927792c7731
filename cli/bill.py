"""`gsched bill`: what each account owes for each month."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gsched.client import ControllerDown, RequestRefused
from gsched.units import format_time_point, parse_time_point
from gsched.wire.report import BillRow, ReportQuery
from gsched_cli.bill_prices import Line, PriceError, Prices, hours, lines, read_prices, total
from gsched_cli.common import LazyReader

#: beside slurm.conf
FILE = "prices.conf"
SCHEMA = "gsched.bill/1"


@click.command()
@click.option("--start", metavar="TIME", help="First moment; the begin of this month unless given.")
@click.option("--end", metavar="TIME", help="First moment after it; now unless given.")
@click.option("--account", "accounts", multiple=True, metavar="NAME", help="Only this account.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
)
@click.option(
    "--prices",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The file of prices ({FILE} beside slurm.conf unless given).",
)
def bill(
    start: str | None, end: str | None, accounts: tuple[str, ...], form: str, path: Path | None
) -> None:
    """Say what accounts owe for GPUs and what else has a price, by month.

    The time of attempts that ended because their node failed is given back.
    """
    reader = LazyReader(os.environ)
    now = int(reader.now())
    month = format_time_point(now)[:8] + "01"
    try:
        first = parse_time_point(start or month, now, past=True)
        last = parse_time_point(end, now, past=True) if end else now
    except ValueError as problem:
        raise click.ClickException(str(problem)) from None
    if last <= first:
        raise click.ClickException("--end must be later than --start")
    try:
        where = path or Path(reader.settings().path).parent / FILE
        prices = read_prices(where.read_text(encoding="utf-8"))
        only = {"accounts": list(accounts)} if accounts else {}
        found = reader.report(ReportQuery("bill", first, last, only))
    except PriceError as problem:
        raise click.ClickException(f"{where}: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "no text"
        raise click.ClickException(f"cannot read {where}: {reason}") from None
    except (ControllerDown, RequestRefused) as problem:
        raise click.ClickException(str(problem)) from None
    some = lines([row for row in found.rows if isinstance(row, BillRow)], prices)
    write = {"table": as_table, "csv": as_csv, "json": as_json}[form]
    sys.stdout.write(write(some, prices, first, last))


def as_table(some: Sequence[Line], prices: Prices, first: int, last: int) -> str:
    """A table for people, with a sum for each account and month."""
    head = ("Account", "Month", "Resource", "Hours", "Price", "Amount")
    rows: list[tuple[str, ...]] = []
    for (account, month), group in _groups(some):
        for line in group:
            rows.append(
                (
                    account,
                    _month(month),
                    line.what,
                    hours(line),
                    f"{line.price:f}",
                    f"{line.amount}",
                )
            )
        rows.append((account, _month(month), "total", "", "", str(total(group, prices.digits))))
    rows.append(("total", "", "", "", "", str(total(some, prices.digits))))
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    unit = f" in {prices.currency}" if prices.currency else ""
    text = f"{format_time_point(first)} - {format_time_point(last - 1)}{unit}\n"
    for row in [head, *rows]:
        cells = [
            cell.ljust(width) if n < 3 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def as_csv(some: Sequence[Line], prices: Prices, first: int, last: int) -> str:
    """One line each, without sums."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["account", "month", "resource", "hours", "price", "amount", "currency"])
    for line in some:
        table.writerow(
            [
                line.account,
                _month(line.month),
                line.what,
                hours(line),
                f"{line.price:f}",
                line.amount,
                prices.currency,
            ]
        )
    return out.getvalue()


def as_json(some: Sequence[Line], prices: Prices, first: int, last: int) -> str:
    """For programs; amounts are texts, as binary fractions would not hold them."""
    document = {
        "schema": SCHEMA,
        "start": first,
        "end": last,
        "currency": prices.currency,
        "accounts": [
            {
                "account": account,
                "month": _month(month),
                "lines": [
                    {
                        "resource": line.what,
                        "unit_seconds": line.seconds,
                        "price_per_hour": f"{line.price:f}",
                        "amount": str(line.amount),
                    }
                    for line in group
                ],
                "total": str(total(group, prices.digits)),
            }
            for (account, month), group in _groups(some)
        ],
        "total": str(total(some, prices.digits)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _groups(some: Sequence[Line]) -> list[tuple[tuple[str, int], list[Line]]]:
    ordered = sorted(some, key=lambda line: (line.account, line.month))
    groups = itertools.groupby(ordered, key=lambda line: (line.account, line.month))
    return [(key, list(group)) for key, group in groups]


def _month(at: int) -> str:
    # A zone of the client's in which that moment is the day before must not make it last month.
    return format_time_point(at + 86400)[:7]
