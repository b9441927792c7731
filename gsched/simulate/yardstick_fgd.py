"""`gsched yardstick fgd`: the core behind the formats of the fragmentation yardstick.

DIR holds nodes.csv, history.csv (what is known of the workload) and tasks.csv. With tasks in it
placements.csv is written; with none, each task comes as a line on standard input and is answered
before the next is read. One task after the other, nothing ends, nothing is moved; what fits
somewhere is placed.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from gsched import _core

WHOLE = 1000

#: name of a policy on the command line -> the core's
POLICIES = {
    "first-fit": _core.FIRST_FIT,
    "best-fit": _core.BEST_FIT,
    "bin-pack": _core.BIN_PACK,
    "least-loaded": _core.LEAST_LOADED,
    "fgd": _core.FGD,
    "dense-fit": _core.DENSE_FIT,
}
DEFAULT_POLICY = "dense-fit"

#: of the workload, FGD as published knows the most frequent shapes that make up so much of it
KNOWN_TO_FGD = 0.95

Shape = tuple[int, int, int, str]


class YardstickError(Exception):
    """A sentence for the user: the folder does not hold what it should."""


class Packer:
    """A cluster of shared GPUs that only fills. Cost: see the core's policies; ~10 us a task."""

    def __init__(self, directory: Path, policy: str = DEFAULT_POLICY) -> None:
        nodes = list(_rows(directory / "nodes.csv"))
        if not nodes:
            raise YardstickError(f"{directory / 'nodes.csv'} names no node")
        self._policy = POLICIES[policy]
        self._names = [row["node_id"] for row in nodes]
        self._models: dict[str, int] = {}
        self._requests: dict[tuple[str, ...], int] = {}
        self._core = _core.Core(len(nodes))
        for number, row in enumerate(nodes):
            self._add_node(number, row)
        if policy in ("fgd", "dense-fit"):
            known = KNOWN_TO_FGD if policy == "fgd" else 1.0
            self._core.set_workload(self._workload(directory / "history.csv", known))
        self._count = 0

    def _add_node(self, number: int, row: Mapping[str, str]) -> None:
        gpus = int(row["gpus"])
        model = self._models.setdefault(row["gpu_model"], len(self._models))
        self._core.set_node(
            number,
            cls=self._core.define_class([[0] * gpus for _ in range(gpus)], [0] * gpus),
            # The core counts whole CPUs: thousandths of them will do as well.
            cpus=int(row["cpu_milli"]),
            mem_mb=int(row["memory_mib"]),
            gpu_type_masks=[(model, (1 << gpus) - 1)] if gpus else [],
            features=1 << model,
        )

    def _workload(
        self, history: Path, known: float
    ) -> Iterator[tuple[int, int, int, list[int], int]]:
        """The most frequent shapes that make up so much of the history."""
        count: Counter[Shape] = Counter()
        for row in _rows(history):
            gpus = int(row["num_gpu"])
            spec = row["gpu_spec"] if gpus else ""
            count[int(row["cpu_milli"]), int(row["gpu_milli"]), gpus, spec] += 1
        seen, total = 0, sum(count.values())
        for shape in sorted(count, key=lambda s: (count[s], s), reverse=True):
            if seen >= known * total:
                break
            seen += count[shape]
            cpus, milli, gpus, spec = shape
            kinds = [self._models[m] for m in spec.split("|") if m in self._models]
            yield cpus, gpus, milli if milli < WHOLE else 0, kinds, count[shape]

    def _request(self, demand: tuple[str, ...]) -> int:
        known = self._requests.get(demand)
        if known is not None:
            return known
        cpus, memory, gpus, milli = (int(value) for value in demand[:4])
        spec = demand[4] if gpus else ""
        req = self._core.request(
            # A model that no node has is a feature that none has.
            features_any=[1 << self._models.get(m, 255) for m in spec.split("|") if m],
            max_nodes=1,
            cpus_per_task=max(1, cpus),
            mem_per_node_mb=memory or -1,
            gpus_per_node=gpus,
            gpu_milli=milli if gpus and milli < WHOLE else 0,
            policy=self._policy,
        )
        self._requests[demand] = req
        return req

    def place(self, demand: tuple[str, ...]) -> tuple[str, str]:
        """(node, devices with | between) for (cpu_milli, memory_mib, num_gpu, gpu_milli,
        gpu_spec), allocated; two empty strings if it fits nowhere."""
        answer = self._core.place(self._request(demand))
        if isinstance(answer, _core.Refusal):
            return "", ""
        node, cpus, _, memory, mask = answer.nodes[0]
        self._count += 1
        self._core.allocate(self._count, [(node, cpus, memory, mask)], gpu_milli=answer.gpu_milli)
        devices = [str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1]
        return self._names[node], "|".join(devices)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise YardstickError(f"{path} cannot be read: {error.strerror}") from None


_DEMAND = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")


def run(directory: Path, policy: str, source: Iterable[str], out: TextIO) -> None:
    """Place the tasks of the folder, or those that come on `source`. YardstickError for a folder
    that lacks something or a line that is no task."""
    try:
        packer = Packer(directory, policy)
        tasks = list(_rows(directory / "tasks.csv"))
        if tasks:
            with open(directory / "placements.csv", "w", newline="", encoding="utf-8") as file:
                table = csv.writer(file)
                table.writerow(["seq", "node_id", "gpus"])
                for row in tasks:
                    table.writerow((row["seq"], *packer.place(tuple(row[k] for k in _DEMAND))))
            return
        for line in source:
            seq, _, *demand = line.rstrip("\r\n").split(",")
            node, devices = packer.place(tuple(demand))
            out.write(f"{seq},{node},{devices}\n")
            out.flush()
    except (KeyError, ValueError, IndexError) as error:
        raise YardstickError(f"{directory}: a row is not as it should be: {error}") from None
