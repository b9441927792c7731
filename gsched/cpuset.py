"""Which CPUs of a node a job gets: whole cores, in turn over the sockets, near its GPUs."""

from __future__ import annotations

from collections.abc import Sequence


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


def pick_cpus(
    free: int, count: int, total: int, sockets: int, threads: int, near: Sequence[str] = ()
) -> int:
    """A bitmap of `count` CPUs out of the bitmap `free`, of a node with `total` CPUs.

    Cores (of `threads` CPUs with consecutive numbers) are taken whole, one socket after the other
    in turn as Slurm's block:cyclic does; those that `near` (core lists of the job's GPUs) names
    go first. Fewer than `count` free CPUs is the caller's mistake: all of them are returned then.
    """
    per_socket = max(1, -(-total // max(1, sockets)))
    wanted = {number for text in near for number in parse_cpu_list(text)}
    queues: list[list[int]] = [[] for _ in range(max(1, sockets))]
    first: list[list[int]] = [[] for _ in range(max(1, sockets))]
    whole = (1 << threads) - 1
    for core in range(-(-total // threads)):
        base = core * threads
        if not free >> base & whole:
            continue
        socket = min(base // per_socket, len(queues) - 1)
        (first if core in wanted else queues)[socket].append(core)
    chosen = left = 0
    for group in (first, queues):
        while left < count and any(group):
            for cores in group:
                if not cores or left >= count:
                    continue
                base = cores.pop(0) * threads
                for bit in range(base, base + threads):
                    if free >> bit & 1 and left < count:
                        chosen |= 1 << bit
                        left += 1
    return chosen
