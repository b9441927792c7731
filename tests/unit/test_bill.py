"""Bills: prices, shares, refunds, rounding; sums are the sums of their lines."""

from __future__ import annotations

import csv
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.wire.report import BillRow
from gsched_cli.bill import as_csv, as_json, as_table
from gsched_cli.bill_prices import PriceError, lines, priced, read_prices, total

PRICES = """\
# per unit and hour
Currency=EUR
gres/gpu=1.00
gres/gpu:h100=2.50   # the new ones
cpu=0.01
mem=0.005
SharesPerGPU=4
ShareDiscount=20
"""


def row(text: str, seconds: int, account: str = "physics", state: str = "COMPLETED") -> BillRow:
    return BillRow(account, "ada", 1793487600, text, state, 1, seconds)


def found(*rows: BillRow, prices: str = PRICES) -> dict[tuple[str, str], Decimal]:
    return {(line.account, line.what): line.amount for line in lines(rows, read_prices(prices))}


def test_each_type_has_its_price() -> None:
    assert found(row("cpu=8,gres/gpu=3,gres/gpu:h100=2,mem=2048M,node=1", 7200)) == {
        ("physics", "cpu"): Decimal("0.16"),
        ("physics", "gres/gpu"): Decimal("2.00"),
        ("physics", "gres/gpu:h100"): Decimal("10.00"),
        ("physics", "mem"): Decimal("0.02"),
    }


def test_a_share_costs_its_part_less_the_discount() -> None:
    # 1.00 / 4 less 20 %: 0.20 an hour.
    assert found(row("gres/shard=3", 3600)) == {("physics", "gres/shard"): Decimal("0.60")}
    assert found(row("gres/shard=3", 3600), prices=PRICES + "gres/shard=0.1\n") == {
        ("physics", "gres/shard"): Decimal("0.30")
    }


def test_what_a_failed_node_took_is_given_back() -> None:
    good, bad = row("gres/gpu:h100=1", 3600), row("gres/gpu:h100=1", 1800, state="NODE_FAIL")
    assert found(good, bad) == {
        ("physics", "gres/gpu:h100"): Decimal("3.75"),
        ("physics", "refund gres/gpu:h100"): Decimal("-1.25"),
    }
    half = PRICES + "NodeFailRefund=50\n"
    assert found(bad, prices=half)["physics", "refund gres/gpu:h100"] == Decimal("-0.63")
    none = PRICES + "NodeFailRefund=0\n"
    assert found(bad, prices=none) == {("physics", "gres/gpu:h100"): Decimal("1.25")}


def test_lines_are_rounded_once_half_up() -> None:
    # 18 s of 2.50 are 0.0125; 0.005 would be half a cent.
    assert found(row("gres/gpu:h100=1", 18))["physics", "gres/gpu:h100"] == Decimal("0.01")
    assert found(row("gres/gpu=1", 18))["physics", "gres/gpu"] == Decimal("0.01")
    assert found(row("gres/gpu=1", 17))["physics", "gres/gpu"] == Decimal("0.00")
    # Not each attempt by itself: a hundred times 17 s are 0.47.
    many = [row("gres/gpu=1", 17)] * 100
    assert found(*many)["physics", "gres/gpu"] == Decimal("0.47")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(["cpu=1", "gres/gpu=2,gres/gpu:h100=1", "gres/shard=1,mem=100M"]),
            st.integers(0, 10**6),
            st.sampled_from(["COMPLETED", "NODE_FAIL"]),
        ),
        max_size=20,
    )
)
def test_sums_equal_lines(some: list[tuple[str, str, int, str]]) -> None:
    prices = read_prices(PRICES)
    made = lines([row(text, n, account, state) for account, text, n, state in some], prices)
    document = json.loads(as_json(made, prices, 0, 1))
    amounts = [Decimal(one["amount"]) for part in document["accounts"] for one in part["lines"]]
    assert Decimal(document["total"]) == sum(amounts, Decimal(0)) == total(made, 2)
    for part in document["accounts"]:
        assert Decimal(part["total"]) == sum(
            (Decimal(one["amount"]) for one in part["lines"]), Decimal(0)
        )
        # Nobody gets more back than was charged.
        assert Decimal(part["total"]) >= 0
    rows = list(csv.DictReader(as_csv(made, prices, 0, 1).splitlines()))
    assert sum((Decimal(one["amount"]) for one in rows), Decimal(0)) == total(made, 2)


def test_the_table() -> None:
    prices = read_prices(PRICES)
    text = as_table(lines([row("gres/gpu:h100=2", 5400)], prices), prices, 0, 3600)
    assert "in EUR" in text
    assert "physics  2026-11  gres/gpu:h100  3.0000   2.50    7.50" in text.splitlines()[2]
    assert text.splitlines()[-1].split() == ["total", "7.50"]


@pytest.mark.parametrize(
    "line",
    ["nonsense", "cpu=", "cpu=x", "cpu=-1", "cpu=nan", "gpu=2", "ShareDiscount=101", "Digits=9"],
)
def test_prices_that_make_no_sense(line: str) -> None:
    with pytest.raises(PriceError, match="line 2"):
        read_prices(f"Currency=EUR\n{line}\n")


def test_what_cannot_be_read_costs_nothing() -> None:
    assert priced("what=is this") == {}
