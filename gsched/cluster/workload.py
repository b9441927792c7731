"""What jobs usually ask for: FGD and DENSE_FIT choose nodes by what is left for such jobs."""

from __future__ import annotations

from typing import Any

#: shapes that are remembered
MOST_SHAPES = 200
#: after so many jobs all counts are halved: what was asked for long ago fades
HALF_LIFE = 2000
#: the core is told anew when so many jobs came, and this part of all that count, since the last
#: time: its scores are made anew then
AT_LEAST = 16
PART = 0.1
#: a job counts so much
UNIT = 1 << 12

#: CPUs, GPUs, thousandths of a GPU or 0, GPU types: of one node
Row = tuple[int, int, int, tuple[int, ...]]


class Workload:
    """A fading count of the shapes of submitted jobs. Each job counts once, by its id: what is
    known after a restart are the jobs that still wait or run."""

    def __init__(self) -> None:
        self._counts: dict[Row, int] = {}
        self._last_id = 0
        self._came = 0
        self._fresh = 0

    def came(self, job_id: int, words: dict[str, Any]) -> None:
        """A job has been submitted, with its request in the core's words. Cost: constant."""
        if job_id <= self._last_id:
            return
        self._last_id = job_id
        self._came += 1
        self._fresh += 1
        if self._came % HALF_LIFE == 0:
            self._counts = {row: n // 2 for row, n in self._counts.items() if n > 1}
        row = _row(words)
        self._counts[row] = self._counts.get(row, 0) + UNIT
        if len(self._counts) > MOST_SHAPES:
            # The rarest goes, of those alike the oldest.
            del self._counts[min(self._counts, key=self._counts.__getitem__)]

    def news(self) -> list[tuple[int, int, int, tuple[int, ...], int]]:
        """What the core is to be told, if it has changed enough since the last time; else
        nothing."""
        if self._fresh < max(AT_LEAST, PART * sum(self._counts.values()) / UNIT):
            return []
        self._fresh = 0
        most = max(self._counts.values())
        scale = max(1, most >> 16)
        return [(*row, max(1, n // scale)) for row, n in sorted(self._counts.items())]


def _row(words: dict[str, Any]) -> Row:
    """The share of one node."""
    nodes = max(1, words["min_nodes"])
    tasks = words["ntasks_per_node"] or -(-words["ntasks"] // nodes) or 1
    gpus = words["gpus_per_node"] or words["gpus_per_task"] * tasks
    gpus = min(gpus or -(-words["gpus_total"] // nodes), 64)
    cpus = max(tasks * words["cpus_per_task"], gpus * words["cpus_per_gpu"], words["min_cpus_node"])
    milli = words.get("gpu_milli", 0) if gpus == 1 and not words.get("gpu_kind") else 0
    kind = words.get("gpu_type", -1)
    return min(cpus, 1_000_000), gpus, milli, (kind,) if kind >= 0 and gpus else ()
