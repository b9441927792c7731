"""Which task of a step runs on which of its nodes: -m block, cyclic, plane, arbitrary.

Pure. Tasks are numbered through the whole step. What a node takes is bounded by its CPUs until
those of all nodes are used up; what is left over then (overcommit) goes on in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Distribution(msgspec.Struct, frozen=True):
    """What -m says, taken apart."""

    #: block, cyclic, plane or arbitrary: over the nodes
    nodes: str = "block"
    #: block, cyclic, fcyclic or "" (not said): over the sockets of a node, and over its cores
    sockets: str = ""
    cores: str = ""
    #: tasks of a plane
    plane: int = 0
    #: True Pack, False NoPack, None not said
    pack: bool | None = None

    @property
    def text(self) -> str:
        """How Slurm spells it in SLURM_DISTRIBUTION: "block", "cyclic:block", "block,pack"."""
        if self.nodes == "plane":
            return "plane"
        text = ":".join(filter(None, (self.nodes, self.sockets, self.cores)))
        if self.pack is None:
            return text
        return f"{text},{'pack' if self.pack else 'nopack'}"


def parse_distribution(text: str) -> Distribution:
    """Takes a value of --distribution apart. ValueError for what is none."""
    pack: bool | None = None
    levels = ""
    for item in text.lower().split(","):
        if item in ("pack", "nopack"):
            pack = item == "pack"
        elif item and not levels:
            levels = item
        elif item:
            raise ValueError(text)
    first, _, rest = levels.partition(":")
    plane = 0
    if first.startswith("plane"):
        number = first.partition("=")[2]
        if first != "plane" and not (number.isdecimal() and int(number)):
            raise ValueError(text)
        plane, first = int(number or 0), "plane"
    if first in ("", "*"):
        first = "block"
    sockets, _, cores = rest.partition(":")
    if first not in ("block", "cyclic", "plane", "arbitrary"):
        raise ValueError(text)
    for level in (sockets, cores):
        if level not in ("", "*", "block", "cyclic", "fcyclic"):
            raise ValueError(text)
    return Distribution(first, sockets.strip("*"), cores.strip("*"), plane, pack)


def distribute(
    ntasks: int, room: Sequence[int], how: Distribution, *, overcommit: bool = False
) -> list[list[int]]:
    """The global ids of each node's tasks in ascending order, for nodes with `room` for so many
    tasks each. Not for arbitrary. Cost: tasks and nodes."""
    if how.nodes == "cyclic":
        return _cyclic(ntasks, room, overcommit)
    if how.nodes == "plane":
        return _plane(ntasks, room, max(1, how.plane))
    if how.pack and ntasks != len(room):
        counts = _packed(ntasks, room)
    else:
        counts = _even(ntasks, room)
    tasks, first = [], 0
    for count in counts:
        tasks.append(list(range(first, first + count)))
        first += count
    return tasks


def arbitrary(hosts: Sequence[str], nodes: Sequence[str]) -> list[list[int]]:
    """Task i on hosts[i]; ids by place in `nodes`, which names every host."""
    tasks: list[list[int]] = [[] for _ in nodes]
    place = {name: index for index, name in enumerate(nodes)}
    for task, host in enumerate(hosts):
        tasks[place[host]].append(task)
    return tasks


def _even(ntasks: int, room: Sequence[int]) -> list[int]:
    """How many each takes, one after the other in turn."""
    counts = [0] * len(room)
    left = ntasks
    while left:
        open_nodes = [node for node in range(len(room)) if counts[node] < room[node]]
        # Once all are full, everybody takes more.
        for node in open_nodes or range(len(room)):
            if left:
                counts[node] += 1
                left -= 1
    return counts


def _packed(ntasks: int, room: Sequence[int]) -> list[int]:
    """How many each takes, the first ones as many as they have room for."""
    counts, left = [], ntasks
    for most in room:
        counts.append(min(most, left))
        left -= counts[-1]
    node = 0
    while left:
        counts[node % len(room)] += 1
        node, left = node + 1, left - 1
    return counts


def _cyclic(ntasks: int, room: Sequence[int], overcommit: bool) -> list[list[int]]:
    tasks: list[list[int]] = [[] for _ in room]
    task = 0
    while task < ntasks:
        full = overcommit or all(len(mine) >= most for mine, most in zip(tasks, room, strict=True))
        for mine, most in zip(tasks, room, strict=True):
            if task < ntasks and (full or len(mine) < most):
                mine.append(task)
                task += 1
    return tasks


def _plane(ntasks: int, room: Sequence[int], plane: int) -> list[list[int]]:
    tasks: list[list[int]] = [[] for _ in room]
    task = 0
    while task < ntasks:
        full = all(len(mine) >= most for mine, most in zip(tasks, room, strict=True))
        for mine, most in zip(tasks, room, strict=True):
            count = min(plane, ntasks - task, plane if full else most - len(mine))
            if count > 0:
                mine.extend(range(task, task + count))
                task += count
    return tasks
