"""CPU lists and the choice of CPUs; expectations from Slurm's CPU_IDs on 2 sockets of 8 cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.cpuset import format_cpu_list, parse_cpu_list, pick_cpus

FREE = (1 << 16) - 1


@pytest.mark.parametrize(
    ("count", "ids"), [(1, "0"), (3, "0-1,8"), (4, "0-1,8-9"), (6, "0-2,8-10"), (16, "0-15")]
)
def test_in_turn_over_sockets_as_slurm_does(count: int, ids: str) -> None:
    assert format_cpu_list(pick_cpus(FREE, count, 16, 2, 1)) == ids


def test_cores_near_the_gpus_go_first() -> None:
    assert format_cpu_list(pick_cpus(FREE, 3, 16, 2, 1, ["8-15"])) == "8-10"


def test_whole_cores() -> None:
    assert format_cpu_list(pick_cpus(FREE, 4, 16, 2, 2)) == "0-1,8-9"


@given(st.integers(0, FREE), st.integers(1, 4), st.integers(0, 16))
def test_never_more_than_free(free: int, sockets: int, count: int) -> None:
    chosen = pick_cpus(free, count, 16, sockets, 1)
    assert chosen & ~free == 0
    assert chosen.bit_count() == min(count, free.bit_count())


@given(st.sets(st.integers(0, 300)))
def test_lists_round_trip(numbers: set[int]) -> None:
    mask = sum(1 << n for n in numbers)
    assert set(parse_cpu_list(format_cpu_list(mask))) == numbers


def slowly(free: int, count: int, total: int, sockets: int, threads: int, near: list[str]) -> int:
    """The rule as it is said: a core of each socket in turn, first those that are near."""
    per_socket = -(-total // sockets)
    wanted = {core for text in near for core in parse_cpu_list(text)}
    cores = [c for c in range(-(-total // threads)) if free >> c * threads & ((1 << threads) - 1)]
    chosen = left = 0
    for first in (True, False):
        by_socket = [
            [
                c
                for c in cores
                if (c in wanted) == first and min(c * threads // per_socket, sockets - 1) == s
            ]
            for s in range(sockets)
        ]
        turns = max(map(len, by_socket), default=0)
        for core in [q[turn] for turn in range(turns) for q in by_socket if turn < len(q)]:
            for bit in range(core * threads, (core + 1) * threads):
                if free >> bit & 1 and left < count:
                    chosen |= 1 << bit
                    left += 1
    return chosen


@given(
    st.integers(0, FREE),
    st.integers(0, 17),
    st.integers(1, 4),
    st.sampled_from([1, 2, 4]),
    st.lists(st.sampled_from(["", "0-3", "8-15", "2,5", "7", "1-2"]), max_size=3),
)
def test_the_same_as_the_rule(
    free: int, count: int, sockets: int, threads: int, near: list[str]
) -> None:
    chosen = pick_cpus(free, count, 16, sockets, threads, near)
    assert chosen == slowly(free, count, 16, sockets, threads, near)
