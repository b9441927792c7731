"""One user does not keep all workers that run command lines from others."""

from __future__ import annotations

import os

import pytest

from gsched.frontend.occupied import SLOW_S, Occupied, Share


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


def shares(clock: list[float], count: int, some: int, most: int = 8) -> list[Share]:
    """Those of `count` workers, each with a mapping of its own, as processes have."""
    made = Occupied.make(8)
    return [
        Share(Occupied(os.dup(made.fd), lambda: clock[0]), place, some, most)
        for place in range(count)
    ]


def queue() -> bool:
    return True


def nobody() -> bool:
    return False


def test_whoever_has_his_share_for_long_gets_no_more(clock: list[float]) -> None:
    first, second, third, fourth = shares(clock, 4, 2)
    assert first.enter(1001, queue) and second.enter(1001, queue)
    # Just now: most clients are done in milliseconds.
    assert third.enter(1001, queue)
    third.leave()
    clock[0] += SLOW_S
    assert not third.enter(1001, queue)
    # Others are taken, root too.
    assert third.enter(1002, queue) and fourth.enter(0, queue)
    fourth.leave()
    second.leave()
    assert fourth.enter(1001, queue)


def test_who_is_not_taken_occupies_nothing(clock: list[float]) -> None:
    first, second, third = shares(clock, 3, 1)
    assert first.enter(0, queue)
    clock[0] += 1
    assert not second.enter(0, queue)
    assert second.enter(1, queue)
    assert third.enter(2, queue)


def test_the_place_of_a_dead_worker_is_nobody_s(clock: list[float]) -> None:
    table = Occupied.make(2)
    gone = Share(Occupied(os.dup(table.fd), lambda: clock[0]), 0, 1, 2)
    other = Share(Occupied(os.dup(table.fd), lambda: clock[0]), 1, 1, 2)
    assert gone.enter(1001, queue)
    clock[0] += 1
    assert not other.enter(1001, queue)
    table.put(0, -1)
    assert other.enter(1001, queue)


def test_a_worker_without_a_place_serves_all(clock: list[float]) -> None:
    (known,) = shares(clock, 1, 1)
    extra = Share(Occupied.make(1), -1, 1, 2)
    assert extra.enter(1001, queue)
    extra.leave()
    assert known.enter(1001, queue)


def test_what_the_parent_says() -> None:
    assert Share.of([]) is None
    table = Occupied.make(3)
    share = Share.of([str(os.dup(table.fd)), "2", "2", "6"])
    assert share is not None
    assert share.enter(5, queue)


def test_where_nobody_waits_he_gets_some_more(clock: list[float]) -> None:
    first, second, third = shares(clock, 3, 1, 2)
    assert first.enter(1001, nobody)
    clock[0] += 1
    assert not second.enter(1001, queue)
    assert second.enter(1001, nobody)
    clock[0] += 1
    assert not third.enter(1001, nobody)
    assert third.enter(1002, queue)
