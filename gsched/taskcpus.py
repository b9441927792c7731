"""Each task's own CPUs on a node: what --cpu-bind, --hint, --threads-per-core and the second and
third level of -m mean.

Pure. CPUs are Slurm's abstract numbers: socket by socket, core by core, thread by thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gsched.bits import bits
from gsched.config import Config
from gsched.cpuset import format_cpu_list
from gsched.distribution import Distribution
from gsched.model import NodeAlloc
from gsched.model.step import StepSpec
from gsched.taskbind import repeated

_UNITS = {
    "s": "sockets",
    "socket": "sockets",
    "sockets": "sockets",
    "c": "cores",
    "core": "cores",
    "cores": "cores",
    "t": "threads",
    "thread": "threads",
    "threads": "threads",
    "l": "ldoms",
    "ldom": "ldoms",
    "ldoms": "ldoms",
    "n": "none",
    "no": "none",
    "none": "none",
    "rank": "rank",
    "rank_ldom": "rank_ldom",
}
_LISTS = ("map_cpu", "mask_cpu", "map_ldom", "mask_ldom")


class OutsideError(Exception):
    """CPUs were named that the step has not there; the text is Slurm's sentence."""

    def __init__(self, cpus: Sequence[int]) -> None:
        mask = sum(1 << cpu for cpu in cpus)
        super().__init__(
            f"CPU binding outside of job step allocation, allocated CPUs are: 0x{mask:X}."
        )


class CpuBind(msgspec.Struct, frozen=True):
    """A --cpu-bind, taken apart."""

    #: "", none, sockets, cores, threads, ldoms, rank, rank_ldom, map_cpu, mask_cpu,
    #: map_ldom, mask_ldom
    kind: str = ""
    values: tuple[int, ...] = ()
    #: the text of the values as given
    text: str = ""
    #: None: not said
    verbose: bool | None = None


def parse_cpu_bind(text: str) -> CpuBind:
    """Takes a value of --cpu-bind apart. ValueError for what is none."""
    kind, values, given = "", tuple[int, ...](), ""
    verbose: bool | None = None
    items = text.split(",") if text else []
    for place, item in enumerate(items):
        word, _, rest = item.replace("=", ":", 1).partition(":")
        word = word.lower()
        if word in ("v", "verbose", "q", "quiet"):
            verbose = word.startswith("v")
        elif word in _LISTS:
            kind = word
            # The list takes all that follows.
            given = ",".join([rest, *items[place + 1 :]])
            values = repeated(given, 16 if word.startswith("mask") else 0)
            break
        elif word in _UNITS and not rest:
            kind = _UNITS[word]
        else:
            raise ValueError(text)
    return CpuBind(kind, values, given, verbose)


class _Node:
    """The CPUs of a share, sorted by what they are part of."""

    def __init__(self, shape: tuple[int, int, int], cpu_ids: int) -> None:
        total, self.sockets, self.threads = shape
        self.cpus = bits(cpu_ids)
        self.per_socket = max(1, total // self.sockets)

    def core(self, cpu: int) -> int:
        return cpu // self.threads

    def socket(self, cpu: int) -> int:
        return min(cpu // self.per_socket, self.sockets - 1)

    def whole(self, cpus: Sequence[int], kind: str) -> list[int]:
        """The share's CPUs of the cores or sockets that some CPUs are of."""
        if kind == "threads":
            return list(cpus)
        place = self.core if kind == "cores" else self.socket
        places = {place(cpu) for cpu in cpus}
        return [cpu for cpu in self.cpus if place(cpu) in places]


def binds(config: Config) -> bool:
    """Whether the cluster binds tasks to CPUs at all."""
    return any(plugin.endswith("affinity") for plugin in config.task_plugin)


def task_cpus(
    spec: StepSpec,
    how: Distribution,
    share: NodeAlloc,
    ntasks: int,
    cpus_per_task: int,
    config: Config,
) -> list[str]:
    """The CPUs of each of the `ntasks` tasks on a node, as lists "0-3,8"; [] where they may run on
    all of the step's. ValueError for a --cpu-bind that cannot be read, OutsideError for CPUs that
    are not of the step."""
    conf = config.nodes.get(share.node)
    if not binds(config):
        # Only looked at.
        parse_cpu_bind(spec.cpu_bind)
        return []
    if conf is None or not share.cpu_words or not ntasks:
        return []
    wish = _Wish(
        spec.cpu_bind, spec.hint, spec.threads_per_core, how.sockets, _parameter(config).lower()
    )
    shape = (conf.cpus, max(1, conf.sockets), max(1, conf.threads_per_core))
    return list(_alike(wish, shape, share.cpu_ids, ntasks, cpus_per_task))


class _Wish(NamedTuple):
    """What options and configuration say of binding."""

    cpu_bind: str
    hint: str
    threads_per_core: int
    #: the second level of -m
    sockets: str
    #: TaskPluginParam
    parameter: str


@lru_cache(maxsize=256)
def _alike(
    wish: _Wish, shape: tuple[int, int, int], cpu_ids: int, ntasks: int, cpus_per_task: int
) -> tuple[str, ...]:
    """As task_cpus, for all nodes of a step that are alike. `shape`: CPUs, sockets, threads."""
    bind = parse_cpu_bind(wish.cpu_bind)
    node = _Node(shape, cpu_ids)
    kind = _kind(bind, wish, node, ntasks, cpus_per_task)
    if kind in ("", "none"):
        return ()
    if kind in ("map_cpu", "mask_cpu", "map_ldom", "mask_ldom", "rank", "rank_ldom"):
        found = [_listed(kind, bind.values, node, task) for task in range(ntasks)]
    else:
        found = _dealt(node, wish.sockets, kind, ntasks, cpus_per_task, _threads(wish, node))
    return tuple(format_cpu_list(sum(1 << cpu for cpu in set(cpus))) for cpus in found)


def _threads(wish: _Wish, node: _Node) -> int:
    """How many threads of a core tasks may use."""
    if wish.threads_per_core:
        return min(wish.threads_per_core, node.threads)
    return 1 if wish.hint in ("nomultithread", "compute_bound") else node.threads


def _kind(bind: CpuBind, wish: _Wish, node: _Node, ntasks: int, each: int) -> str:
    if bind.kind:
        return "sockets" if bind.kind == "ldoms" else bind.kind
    if wish.threads_per_core or wish.hint in ("multithread", "nomultithread"):
        return "threads"
    if wish.hint in ("compute_bound", "memory_bound"):
        return "cores"
    parameters = {item.strip() for item in wish.parameter.split(",")}
    for kind in ("none", "sockets", "cores", "threads"):
        if kind in parameters:
            return kind
    # Bound where the tasks fill the share exactly.
    wanted = ntasks * each
    if wanted == len(node.cpus):
        return "threads"
    if wanted == len({node.core(cpu) for cpu in node.cpus}):
        return "cores"
    if wanted == len({node.socket(cpu) for cpu in node.cpus}):
        return "sockets"
    for kind in ("threads", "cores", "sockets"):
        if f"autobind={kind}" in parameters:
            return kind
    return ""


def _parameter(config: Config) -> str:
    return config.raw.get("taskpluginparam", "")


def _listed(kind: str, values: tuple[int, ...], node: _Node, task: int) -> list[int]:
    """The CPUs of a task by its place in a list. OutsideError for what the step has not."""
    if kind == "rank":
        return [node.cpus[task % len(node.cpus)]]
    value = values[task % len(values)] if values else task
    if kind == "map_cpu":
        wanted = {value}
    elif kind == "mask_cpu":
        wanted = set(bits(value))
    else:
        sockets = {value % node.sockets} if kind != "mask_ldom" else set(bits(value))
        wanted = {cpu for cpu in node.cpus if node.socket(cpu) in sockets}
    if kind.endswith("cpu") and not wanted <= set(node.cpus):
        raise OutsideError(node.cpus)
    return [cpu for cpu in node.cpus if cpu in wanted] or node.cpus


def _dealt(
    node: _Node, over: str, kind: str, ntasks: int, each: int, threads: int
) -> list[list[int]]:
    """Tasks over sockets and cores: cyclic (the default) a socket after the other, task by task;
    fcyclic CPU by CPU; block one socket after it is full."""
    sockets: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for cpu in node.cpus:
        # Cores first: the second thread of one only where it may be used.
        number = seen.get(node.core(cpu), 0)
        seen[node.core(cpu)] = number + 1
        if number < threads:
            sockets.setdefault(node.socket(cpu), []).append(cpu)
    queues = list(sockets.values())
    if kind == "cores":
        # A task begins on a core of its own.
        queues = [[cpu for cpu in queue if _first(node, queue, cpu)] for queue in queues]
        each = max(1, -(-each // node.threads))
    left = [list(queue) for queue in queues]
    found: list[list[int]] = []
    turn = 0
    for _ in range(ntasks):
        mine: list[int] = []
        while len(mine) < each:
            if not any(left):
                # More tasks than CPUs: from the beginning.
                left = [list(queue) for queue in queues]
                if mine:
                    break
            while not left[turn % len(left)]:
                turn += 1
            mine.append(left[turn % len(left)].pop(0))
            if over == "fcyclic":
                turn += 1
        if over in ("", "cyclic"):
            turn += 1
        found.append(node.whole(mine, kind))
    return found


def _first(node: _Node, queue: Sequence[int], cpu: int) -> bool:
    """Whether no CPU of the queue before it is of the same core."""
    return next(other for other in queue if node.core(other) == node.core(cpu)) == cpu
