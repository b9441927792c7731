"""What GPU time costs, and the lines of a bill: exact decimal arithmetic.

A price is per unit and hour. Each line (account, month, resource) is the exact product of
seconds and price, rounded once, half away from zero, to the smallest coin (`digits`); sums are sums
of rounded lines, so that a bill adds up to the coin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from gsched import tres
from gsched.wire.report import BillRow

HOUR = 3600
GPU = "gres/gpu"
SHARES = ("gres/shard", "gres/mps")
#: what is refunded is of these attempts
LOST = "NODE_FAIL"


class PriceError(ValueError):
    """The file of prices makes no sense; the text is one sentence."""


@dataclass
class Prices:
    """One file of prices."""

    currency: str = ""
    #: digits after the point of its smallest coin
    digits: int = 2
    #: "cpu", "mem" (of a gigabyte), "gres/gpu" (of any type that has no price of its own),
    #: "gres/gpu:h100", "gres/NAME", "license/NAME"
    each: dict[str, Decimal] = field(default_factory=dict)
    #: how many shares a GPU has, by name ("gres/shard"), and percent less that a share costs than
    #: its part of a GPU
    per_gpu: dict[str, int] = field(default_factory=dict)
    share_discount: Decimal = Decimal(0)
    #: percent of the time of attempts that ended with their node that is given back
    refund: Decimal = Decimal(100)

    def of(self, name: str) -> Decimal:
        """Price of one for an hour; 0: it costs nothing."""
        if name in self.each:
            return self.each[name]
        if name.startswith(f"{GPU}:"):
            return self.each.get(GPU, Decimal(0))
        if name in self.per_gpu:
            part = self.each.get(GPU, Decimal(0)) / self.per_gpu[name]
            return part * (100 - self.share_discount) / 100
        return Decimal(0)


def read_prices(text: str) -> Prices:
    """Lines KEY=VALUE: Currency, Digits, ShareDiscount, NodeFailRefund (percent), SharesPerGPU,
    and prices ("gres/gpu:h100=2.50"). Raises PriceError with the line's number."""
    found = Prices()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        key, equals, value = (part.strip() for part in words.partition("="))
        if not equals or not value:
            raise PriceError(f"line {number}: {words!r} is not KEY=VALUE")
        low = key.lower()
        if low == "currency":
            found.currency = value
            continue
        amount = _number(value, number)
        if low == "digits":
            if amount != int(amount) or amount > 6:
                raise PriceError(f"line {number}: Digits={value} is no number from 0 to 6")
            found.digits = int(amount)
        elif low in ("sharediscount", "nodefailrefund"):
            if amount > 100:
                raise PriceError(f"line {number}: {key}={value} is more than 100 percent")
            if low == "sharediscount":
                found.share_discount = amount
            else:
                found.refund = amount
        elif low == "sharespergpu":
            if amount != int(amount) or not amount:
                raise PriceError(f"line {number}: SharesPerGPU={value} is no whole number")
            found.per_gpu = dict.fromkeys(SHARES, int(amount))
        elif low in ("cpu", "mem", "node", "billing") or low.startswith(("gres/", "license/")):
            found.each[tres.plain(key)] = amount
        else:
            raise PriceError(f"line {number}: {key} is not known")
    return found


def _number(text: str, line: int) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        raise PriceError(f"line {line}: {text!r} is no number") from None
    if not found.is_finite() or found < 0:
        raise PriceError(f"line {line}: {text} is not allowed: 0 or more is expected")
    return found


@dataclass
class Line:
    """One line of a bill."""

    account: str
    #: begin of the month, epoch seconds
    month: int
    #: "gres/gpu:h100", or "refund gres/gpu:h100"
    what: str
    #: units times seconds
    seconds: int
    price: Decimal
    amount: Decimal


def lines(rows: Iterable[BillRow], prices: Prices) -> list[Line]:
    """The lines, by account, month and resource; those that cost nothing are left out."""
    used: dict[tuple[str, int, str], int] = {}
    lost: dict[tuple[str, int, str], int] = {}
    for row in rows:
        for name, count in priced(row.alloc_tres).items():
            key = row.account, row.month, name
            used[key] = used.get(key, 0) + count * row.seconds
            if row.state == LOST:
                lost[key] = lost.get(key, 0) + count * row.seconds
    found = []
    for key in sorted(used):
        account, month, name = key
        price = prices.of(name)
        if not price:
            continue
        unit = price / 1024 if name == "mem" else price
        amount = _rounded(unit * used[key] / HOUR, prices.digits)
        found.append(Line(account, month, name, used[key], price, amount))
        if key in lost and prices.refund:
            back = _rounded(unit * lost[key] / HOUR * prices.refund / 100, prices.digits)
            found.append(Line(account, month, f"refund {name}", lost[key], price, -back))
    return found


def priced(text: str) -> dict[str, int]:
    """What may have a price: GPUs of a type count as such, and not as GPUs once more."""
    try:
        has = dict(tres.parse(text))
    except tres.TresError:
        return {}
    for name in [name for name in has if name.startswith("gres/") and ":" in name]:
        whole = name.partition(":")[0]
        if whole in has:
            has[whole] -= has[name]
    return {name: count for name, count in has.items() if count > 0}


def _rounded(amount: Decimal, digits: int) -> Decimal:
    return amount.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def total(some: Iterable[Line], digits: int) -> Decimal:
    """Sum of rounded lines."""
    return sum((line.amount for line in some), Decimal(0).quantize(Decimal(1).scaleb(-digits)))


def hours(line: Line) -> str:
    """Units times hours: of memory gigabytes times hours."""
    divisor = HOUR * 1024 if line.what.endswith("mem") else HOUR
    return f"{Decimal(line.seconds) / divisor:.4f}"
