"""CPU ids that several jobs of a partition hold at once (OverSubscribe): which core of a node
stands behind each number of a lot (see core/lots.pxi)."""

from __future__ import annotations

from collections.abc import Callable

from gsched.bits import bits
from gsched.config import PartitionConfig
from gsched.model import Shape

#: more cores of a node than this are in no lot
MOST_CORES = 1024


def jobs_on_a_core(part: PartitionConfig) -> int:
    """How many jobs of a partition may hold a core; 1: each has its own."""
    if part.oversubscribe not in ("FORCE", "YES"):
        return 1
    return max(1, part.oversubscribe_count)


def shares(shape: Shape, part: PartitionConfig) -> bool:
    """Whether a job there shares its cores: all do where that is forced, else those that say so."""
    if jobs_on_a_core(part) < 2:
        return False
    return part.oversubscribe == "FORCE" or (shape.oversubscribe and shape.exclusive == 0)


class Lots:
    """The cores in use of each lot of each node."""

    def __init__(self) -> None:
        #: (node, lot) -> number in the lot -> CPU ids, and jobs that hold them
        self._cores: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}

    def join(
        self, node: int, lot: int, numbers: int, threads: int, pick: Callable[[int], list[int]]
    ) -> tuple[int, int]:
        """A job starts on these cores of a lot: (its CPU ids, those that nobody held). `pick` gives
        so many free cores as CPU ids. Cost: cores."""
        there = self._cores.setdefault((node, lot), {})
        fresh = [number for number in bits(numbers) if number not in there]
        new = pick(len(fresh)) if fresh else []
        ids = 0
        for number, cpus in zip(fresh, new, strict=False):
            there[number] = (cpus, 0)
        for number in bits(numbers):
            cpus, jobs = there.get(number, (0, 0))
            there[number] = (cpus, jobs + 1)
            ids |= cpus
        return ids, sum(new)

    def restore(self, node: int, lot: int, cpu_ids: int, threads: int) -> int:
        """A job is found there with these CPU ids: the numbers of its cores, as a bitmap."""
        there = self._cores.setdefault((node, lot), {})
        number_of = {cpus: number for number, (cpus, _) in there.items()}
        whole, numbers = (1 << threads) - 1, 0
        while cpu_ids:
            low = (cpu_ids & -cpu_ids).bit_length() - 1
            core = whole << low // threads * threads
            number = number_of.get(core)
            if number is None:
                number = next(n for n in range(MOST_CORES) if n not in there)
            jobs = there[number][1] if number in there else 0
            there[number] = (core, jobs + 1)
            numbers |= 1 << number
            cpu_ids &= ~core
        return numbers

    def open(self, node: int, lot: int, most: int) -> int:
        """CPU ids of a lot that one job more may hold."""
        there = self._cores.get((node, lot), {})
        return sum(cpus for cpus, jobs in there.values() if jobs < most)

    def numbers(self, node: int, lot: int, cpu_ids: int) -> int:
        """The numbers of the cores of a lot that these CPU ids are, as a bitmap."""
        there = self._cores.get((node, lot), {})
        return sum(1 << number for number, (cpus, _) in there.items() if cpus & cpu_ids)

    def leave(self, node: int, lot: int, cpu_ids: int) -> int:
        """A job is gone from these CPU ids: those that nobody holds any more."""
        there = self._cores.get((node, lot), {})
        free = 0
        for number, (cpus, jobs) in list(there.items()):
            if not cpus & cpu_ids:
                continue
            if jobs > 1:
                there[number] = (cpus, jobs - 1)
            else:
                del there[number]
                free |= cpus
        return free
