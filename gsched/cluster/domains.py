"""Where the cores of a node lie: domains of one socket's cores that are near the same GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gsched.config import NodeConfig
from gsched.cpuset import parse_cpu_list, specialized

#: domains that the core tells apart in a node
MOST = 16


class Domains(NamedTuple):
    """Of one kind of node. A node with a single one needs none of this."""

    #: (socket, cores) of each, as the core wants them
    sizes: tuple[tuple[int, int], ...] = ()
    #: bitmap of the domains near each GPU; 0: not known
    near: tuple[int, ...] = ()
    #: the core numbers of each
    cores: tuple[tuple[int, ...], ...] = ()
    #: the CPU ids of each, as a bitmap
    masks: tuple[int, ...] = ()

    def used(self, free_cpus: int, threads: int) -> tuple[int, ...]:
        """Cores of each that are in use, by the bitmap of free CPU ids."""
        whole = (1 << threads) - 1
        return tuple(
            sum(not free_cpus >> core * threads & whole for core in cores) for cores in self.cores
        )

    def pick(self, free_cpus: int, counts: Sequence[int], threads: int) -> int:
        """A bitmap of CPUs: so many free cores of each, the lowest first."""
        whole = (1 << threads) - 1
        chosen = 0
        for mask, count in zip(self.masks, counts, strict=True):
            there, left = free_cpus & mask, count
            if threads == 1 and there.bit_count() == left:
                # All that there are.
                chosen |= there
                continue
            if there and left:
                # Mostly the lowest free cores are neighbours: all at once.
                low = ((there & -there).bit_length() - 1) // threads * threads
                row = (1 << left * threads) - 1 << low
                if there & row == row:
                    chosen |= row
                    continue
            while there and left:
                core = ((there & -there).bit_length() - 1) // threads
                mine = whole << core * threads
                chosen |= free_cpus & mine
                there &= ~mine
                left -= 1
        return chosen


def domains_of(conf: NodeConfig, gpu_cores: Sequence[str]) -> Domains:
    """The domains of a node whose GPUs are near these cores ("" not known). Without those GPUs'
    word, or where there would be too many, its sockets."""
    taken = specialized(conf)
    threads = conf.threads_per_core
    total = -(-conf.cpus // threads)
    per_socket = max(1, -(-total // max(1, conf.sockets)))
    near: list[frozenset[int]] = []
    for text in gpu_cores:
        try:
            near.append(frozenset(parse_cpu_list(text)))
        except ValueError:
            near.append(frozenset())
    for known in (near, []):
        places: dict[tuple[int, tuple[bool, ...]], list[int]] = {}
        for core in range(total):
            if taken >> core * threads & 1:
                continue
            socket = min(core // per_socket, conf.sockets - 1)
            places.setdefault((socket, tuple(core in cores for cores in known)), []).append(core)
        if len(places) <= MOST and conf.sockets <= MOST:
            break
    else:
        return Domains()
    if len(places) < 2:
        return Domains()
    cores = tuple(tuple(there) for there in places.values())
    masks = tuple(
        sum(1 << d for d, there in enumerate(cores) if known and not one.isdisjoint(there))
        for one in near
    )
    sizes = tuple((socket, len(there)) for (socket, _), there in places.items())
    cpus = ((1 << threads) - 1) & (1 << conf.cpus) - 1
    ids = tuple(sum(cpus << core * threads for core in there) for there in cores)
    return Domains(sizes, masks, cores, ids)
