"""Decayed usage: closed form against sums over small steps, and against all attempts' log."""

from __future__ import annotations

import random

import pytest

from gsched.model.policy import Assoc, Qos, Used
from gsched.policy import Book
from gsched.policy.usage import Meter, Rules, Stretch, add, at, minus, weight

DAY = 86400.0


def book(*more: Qos) -> Book:
    made = Book(Book().first)
    made.put(Assoc(10, "physics", parent="root"))
    made.put(Assoc(11, "physics", "nia"))
    made.put(Assoc(12, "lasers", parent="physics"))
    made.put(Assoc(13, "lasers", "olek"))
    for qos in more:
        made.put(qos)
    return made


def test_half_of_it_is_left_after_a_half_life() -> None:
    used = add(Used(at=100.0), Stretch(1, "", "", "", 0.0, {"billing": 2}), 100.0, 0.0)
    assert used.tres["billing"] == 200.0
    assert at(used, 100.0 + 7 * DAY, 7 * DAY).tres["billing"] == pytest.approx(100.0)
    assert at(used, 100.0 + 14 * DAY, 7 * DAY).tres["billing"] == pytest.approx(50.0)
    assert at(used, 100.0 + 14 * DAY, 0.0).tres["billing"] == 200.0


def test_a_stretch_counts_as_the_sum_of_its_seconds() -> None:
    half, begin, end, now = 3600.0, 1000.0, 9000.0, 12000.0
    steps = 80000
    width = (end - begin) / steps
    summed = sum(width * 2 ** (-(now - (begin + (i + 0.5) * width)) / half) for i in range(steps))
    assert weight(half, begin, end, now) == pytest.approx(summed, rel=1e-7)
    assert weight(0.0, begin, end, now) == 8000.0
    assert weight(half, end, begin, now) == 0.0
    # A second of a half-life of a hundred years loses nothing to rounding.
    assert weight(100 * 365 * DAY, 0.0, 1.0, 1.0) == pytest.approx(1.0, rel=1e-9)


def test_it_does_not_matter_how_often_one_looks() -> None:
    used = Used({"cpu": 1000.0}, 10.0, 0.0)
    once = at(used, 5000.0, 3600.0)
    often = used
    for now in range(0, 5001, 10):
        often = at(often, float(now), 3600.0)
    assert often.tres["cpu"] == pytest.approx(once.tres["cpu"])
    assert often.wall == pytest.approx(once.wall)


def test_what_ran_before_a_reset_does_not_count() -> None:
    used = add(Used(at=100.0, since=60.0), Stretch(1, "", "", "", 0.0, {"cpu": 1}), 100.0, 0.0)
    assert used.tres == {"cpu": 40.0}
    assert used.wall == 40.0


def test_accounts_have_what_is_below_them_and_parts_of_qos() -> None:
    meter = Meter(book(Qos(2, "double", usage_factor=2.0)), Rules(0.0))
    meter.begin(1, Stretch(11, "double", "nia", "physics", 0.0, {"billing": 4}))
    meter.begin(2, Stretch(13, "normal", "olek", "lasers", 50.0, {"billing": 1}))
    assert meter.billed(100.0) == {1: 850.0, 10: 850.0, 11: 800.0, 12: 50.0, 13: 50.0}
    assert meter.used(10, 100.0).tres == {"billing": 850.0}
    own = meter.used("double", 100.0)
    assert own.by_user == {"nia": {"billing": 800.0}}
    assert own.by_account == {"physics": {"billing": 800.0}}


def test_a_qos_without_decay() -> None:
    rules = Rules(3600.0)
    made = book(Qos(2, "kept", flags=("NoDecay",)))
    made.used["kept"] = made.used[11] = Used({"cpu": 64.0}, 0.0, 0.0)
    meter = Meter(made, rules)
    assert meter.ended("kept", 7200.0).tres == {"cpu": 64.0}
    assert meter.ended(11, 7200.0).tres == {"cpu": 16.0}


def test_minus_leaves_what_others_have_used() -> None:
    assert minus(Used({"cpu": 5.0}, 4.0), Used({"cpu": 2.0}, 1.0)).tres == {"cpu": 3.0}


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_all_attempts(seed: int) -> None:
    """Jobs start, stand still, go on and end; the book goes through a crash (only what was recorded
    and what runs is left). Every association has what the log of stretches says."""
    dice = random.Random(seed)
    half = dice.choice([0.0, 600.0, 7 * DAY])
    made = book(Qos(2, "half", usage_factor=0.5))
    meter = Meter(made, Rules(half))
    log: list[tuple[Stretch, float]] = []
    now, number = 0.0, 0
    for _ in range(60):
        now += dice.uniform(0, 300)
        if dice.random() < 0.5 or not meter.lasting:
            number += 1
            where = dice.choice([(11, "physics"), (13, "lasers")])
            rates = {"billing": dice.randint(1, 64), "cpu": dice.randint(1, 8)}
            qos = dice.choice(["normal", "half"])
            meter.begin(number, Stretch(where[0], qos, "nia", where[1], now, rates))
        else:
            job = dice.choice(sorted(meter.lasting))
            stretch = meter.end(job)
            assert stretch is not None
            log.append((stretch, now))
            for of, used in meter.recorded(stretch, now, now):
                made.used[of] = used
        if dice.random() < 0.1:
            # A crash: a new process finds the records, and the jobs that run.
            again = Meter(made, Rules(half))
            for job, stretch in meter.lasting.items():
                again.begin(job, stretch)
            meter = again
    now += 1000.0
    whole = [*log, *((stretch, now) for stretch in meter.lasting.values())]
    above = {11: (11, 10, 1), 13: (13, 12, 10, 1)}
    wanted: dict[int | str, float] = {}
    for stretch, end in whole:
        share = weight(half, stretch.begin, end, now) * (0.5 if stretch.qos == "half" else 1.0)
        for of in (*above[stretch.assoc_id], stretch.qos):
            wanted[of] = wanted.get(of, 0.0) + stretch.tres["billing"] * share
    billed = meter.billed(now)
    for of, value in wanted.items():
        assert meter.used(of, now).tres["billing"] == pytest.approx(value)
        if isinstance(of, int):
            assert billed[of] == pytest.approx(value)
