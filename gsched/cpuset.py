"""Which CPUs of a node a job gets: whole cores, in turn over the sockets, near its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gsched.config import NodeConfig


def parse_cpu_list(text: str) -> list[int]:
    """Numbers of a list like "0-3,8". ValueError names what is malformed."""
    numbers: list[int] = []
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ValueError(f"invalid CPU list {text!r} at {item!r}")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def format_cpu_list(mask: int) -> str:
    """A bitmap of CPUs as a list like "0-3,8"; "" for none."""
    pieces = []
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            end = bit
            while mask >> (end + 1) & 1:
                end += 1
            pieces.append(str(bit) if end == bit else f"{bit}-{end}")
            bit = end + 1
        else:
            bit += 1
    return ",".join(pieces)


@lru_cache(maxsize=1024)
def _socket_masks(total: int, sockets: int, threads: int) -> tuple[int, ...]:
    """The CPUs of each socket: a core belongs to that of its first CPU."""
    per_socket = max(1, -(-total // max(1, sockets)))
    masks = [0] * max(1, sockets)
    for base in range(0, total, threads):
        masks[min(base // per_socket, len(masks) - 1)] |= ((1 << threads) - 1) << base
    return tuple(masks)


@lru_cache(maxsize=4096)
def _near_mask(near: tuple[str, ...], threads: int) -> int:
    """The CPUs of the cores that lists name."""
    mask = 0
    for core in {number for text in near for number in parse_cpu_list(text)}:
        mask |= ((1 << threads) - 1) << core * threads
    return mask


def specialized(conf: NodeConfig) -> int:
    """CPU ids of a node that its CpuSpecList or CoreSpecCount keeps for the system: for a count the
    highest core of the last socket, then of the one before it, and so on in turn."""
    threads = conf.threads_per_core
    if not conf.cpu_spec_list and not conf.core_spec_count:
        return 0
    if conf.cpu_spec_list:
        found = 0
        for cpu in parse_cpu_list(conf.cpu_spec_list):
            found |= ((1 << threads) - 1) << cpu // threads * threads
        return found & (1 << conf.cpus) - 1
    total = conf.cpus // threads
    per_socket = max(1, total // max(1, conf.sockets))
    found, left = 0, min(conf.core_spec_count, max(0, total - 1))
    for row in range(per_socket):
        for socket in reversed(range(conf.sockets)):
            if left:
                core = (socket + 1) * per_socket - 1 - row
                found |= ((1 << threads) - 1) << core * threads
                left -= 1
    return found


def pick_cpus(
    free: int, count: int, total: int, sockets: int, threads: int, near: Sequence[str] = ()
) -> int:
    """A bitmap of `count` CPUs out of the bitmap `free`, of a node with `total` CPUs.

    Cores (of `threads` CPUs with consecutive numbers) are taken whole, one socket after the other
    in turn as Slurm's block:cyclic does; those that `near` (core lists of the job's GPUs) names
    go first. Fewer than `count` free CPUs is the caller's mistake: all of them are returned then.
    Cost: the cores taken.
    """
    masks = _socket_masks(total, sockets, threads)
    preferred = _near_mask(tuple(near), threads)
    chosen, left = 0, count
    for group in (free & preferred, free & ~preferred):
        queues = [group & mask for mask in masks if group & mask]
        while queues and left > 0:
            rest = []
            for cpus in queues:
                if left <= 0:
                    break
                low = cpus & -cpus
                core = low
                if threads > 1:
                    base = (low.bit_length() - 1) // threads * threads
                    core = cpus & ((1 << threads) - 1) << base
                    while core.bit_count() > left:
                        core &= ~(1 << core.bit_length() - 1)
                chosen |= core
                left -= core.bit_count()
                if cpus & ~core:
                    rest.append(cpus & ~core)
            queues = rest
    return chosen
