"""How many workers run command lines: one is always free, and substitutes go again."""

from __future__ import annotations

import os

from gsched.frontend.substitutes import KEEP_S, MOST, Substitutes, tell


def words(*pairs: tuple[int, bool]) -> bytes:
    return b"".join(pid.to_bytes(4, "little") + bytes([held]) for pid, held in pairs)


def test_none_while_one_is_free() -> None:
    some = Substitutes()
    assert some.wanted(2, 0.0) == 2
    some.hear(words((11, True)))
    assert some.wanted(2, 1.0) == 2


def test_one_is_free_when_all_are_held() -> None:
    some = Substitutes()
    some.hear(words((11, True), (12, True)))
    assert some.wanted(2, 0.0) == 3
    some.hear(words((13, True)))
    assert some.wanted(2, 0.0) == 4


def test_there_is_a_limit() -> None:
    some = Substitutes()
    some.hear(words(*((pid, True) for pid in range(1, 100))))
    assert some.wanted(2, 0.0) == 2 + MOST


def test_they_stay_a_while_and_go_then() -> None:
    some = Substitutes()
    some.hear(words((11, True), (12, True)))
    assert some.wanted(2, 100.0) == 3
    some.hear(words((12, False)))
    assert some.wanted(2, 100.0 + KEEP_S - 1) == 3
    assert some.wanted(2, 100.0 + KEEP_S) == 2


def test_the_dead_are_not_held() -> None:
    some = Substitutes()
    some.hear(words((11, True), (12, True)))
    some.gone(11)
    some.gone(11)
    assert some.wanted(2, 0.0) == 2


def test_the_youngest_free_ones_go() -> None:
    some = Substitutes()
    some.hear(words((14, True)))
    assert some.surplus([11, 12, 13, 14], 4) == []
    assert some.surplus([11, 12, 13, 14], 3) == [13]
    assert some.surplus([11, 12, 13, 14], 2) == [12, 13]
    some.hear(words((11, True), (12, True), (13, True)))
    assert some.surplus([11, 12, 13, 14], 2) == []


def test_words_go_through_a_pipe_and_are_lost_where_it_is_full() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    tell(write, True)
    assert os.read(read, 4096) == words((os.getpid(), True))
    while True:
        try:
            os.write(write, bytes(4096))
        except BlockingIOError:
            break
    tell(write, False)
    os.close(read)
    os.close(write)
    tell(write, False)
