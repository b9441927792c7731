"""The GPUs of a step, and each task's own GPUs: what --gpus..., --gres and --gpu-bind mean.

Pure. A GPU is its bit in the node's list. CPUs are gsched.taskcpus's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from gsched.bits import bits
from gsched.config import Config
from gsched.cpuset import parse_cpu_list
from gsched.model import NodeAlloc
from gsched.model.step import StepSpec

#: repetitions in a map are cut here: no node has more tasks
_MAX_REPEAT = 4096


def lowest(bitmap: int, count: int) -> int:
    """The `count` lowest set bits, or as many as there are."""
    return sum(1 << bit for bit in bits(bitmap)[:count])


def tres_per_task(text: str) -> dict[str, int]:
    """The counts of a --tres-per-task value: "cpu=2,gres/gpu:h100=1" is {"cpu": 2,
    "gres/gpu:h100": 1}. What has no count is 1; unreadable items are left out."""
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, count = item, "1"
        if "=" in item:
            name, _, count = item.partition("=")
        elif re.search(r":[0-9]+\Z", item):
            name, _, count = item.rpartition(":")
        if count.isdecimal():
            found[name] = found.get(name, 0) + int(count)
    return found


class StepGpus(msgspec.Struct):
    """What a step asks for in GPUs, in one normal form."""

    #: nothing at all
    none: bool = False
    per_node: int = 0
    per_task: int = 0
    per_socket: int = 0
    total: int = 0
    kind: str = ""
    #: an option of its own said so; else it is what the job asked for, and gives way
    said: bool = False

    @classmethod
    def of(cls, spec: StepSpec) -> StepGpus:
        """The request of a step."""
        if spec.no_gpus:
            return cls(none=True)
        per_task, kind = spec.gpus_per_task, spec.gpu_type
        for name, count in tres_per_task(spec.tres_per_task).items():
            if name == "gres/gpu" or name.startswith("gres/gpu:"):
                per_task = max(per_task, count)
                kind = kind or name.removeprefix("gres/gpu").removeprefix(":")
        total, said = spec.gpus_total, spec.gpus_set
        if spec.ntasks_per_gpu and spec.ntasks and not (total or spec.gpus_per_node):
            total, said = -(-spec.ntasks // spec.ntasks_per_gpu), True
        return cls(
            per_node=spec.gpus_per_node,
            per_task=per_task,
            per_socket=spec.gpus_per_socket,
            total=total,
            kind=kind,
            said=said,
        )

    @property
    def named(self) -> bool:
        """Whether some number of GPUs is asked for; without one a step gets all of its nodes'."""
        return bool(self.per_node or self.per_task or self.per_socket or self.total)

    def usable(self, part: NodeAlloc, bitmap: int, config: Config) -> int:
        """Those of the bits whose type is the one asked for; where no type is known, all."""
        if not self.kind:
            return bitmap
        types = gpu_types(config, part.node)
        if not any(types):
            return bitmap
        return sum(1 << bit for bit in bits(bitmap) if bit < len(types) and types[bit] == self.kind)

    def on_node(self, ntasks: int, sockets: int) -> int:
        """How many a node with so many of the tasks needs for itself, the total apart."""
        return max(self.per_node, self.per_task * ntasks, self.per_socket * max(1, sockets))

    @staticmethod
    def spread(total: int, room: Sequence[int]) -> list[int] | None:
        """A total over nodes that have so many each: one for each node, the rest on the first
        ones. None if they have not so many."""
        if total > sum(room):
            return None
        counts, left = [], total
        for index, most in enumerate(room):
            # The others get one each where there are enough.
            others = sum(1 for more in room[index + 1 :] if more)
            counts.append(min(most, max(left - others, min(left, 1))))
            left -= counts[-1]
        # What the reserve for the others has left over.
        for index, most in enumerate(room):
            more = min(left, most - counts[index])
            counts[index] += more
            left -= more
        return counts


def gpu_types(config: Config, node: str) -> list[str]:
    """The type of each GPU of a node by its bit, as the configuration tells; "" without one."""
    conf = config.nodes.get(node)
    if conf is None:
        return []
    return [item.type for item in conf.gres if item.name == "gpu" for _ in range(item.count)]


# ---- each task's own ---------------------------------------------------------------------------


class GpuBind(msgspec.Struct, frozen=True):
    """A --gpu-bind, taken apart."""

    #: "", none, closest, single, per_task, map_gpu, mask_gpu
    kind: str = ""
    count: int = 1
    #: numbers of map_gpu, bitmaps of mask_gpu
    values: tuple[int, ...] = ()
    verbose: bool = False


def parse_gpu_bind(text: str) -> GpuBind:
    """Takes a value of --gpu-bind apart. ValueError for what is none."""
    verbose = False
    while text.lower().startswith(("verbose,", "v,")) or text.lower() in ("verbose", "v"):
        verbose, text = True, text.partition(",")[2]
    text = text.removeprefix("gpu:")
    kind, colon, rest = text.partition(":")
    kind = kind.lower()
    if kind in ("", "none", "closest") and not colon:
        return GpuBind(kind, verbose=verbose)
    if kind in ("single", "per_task"):
        if not (rest.isdecimal() and int(rest)):
            raise ValueError(text)
        return GpuBind(kind, int(rest), verbose=verbose)
    if kind in ("map_gpu", "mask_gpu", "map", "mask"):
        kind = kind.removesuffix("_gpu") + "_gpu"
        return GpuBind(
            kind, values=repeated(rest, 16 if kind == "mask_gpu" else 0), verbose=verbose
        )
    raise ValueError(text)


def repeated(text: str, base: int) -> tuple[int, ...]:
    """The numbers of a list with repetitions, "0*4,1*4". `base` 0: decimal, or hexadecimal after
    0x. ValueError for what is none."""
    values: list[int] = []
    for item in text.split(","):
        value, star, count = item.partition("*")
        if star and not count.isdecimal():
            raise ValueError(text)
        if not value or value[0] in "+-":
            raise ValueError(text)
        values += [int(value, base)] * min(int(count) if star else 1, _MAX_REPEAT)
    return tuple(values)


def gpu_bind_of(spec: StepSpec) -> GpuBind:
    """The binding that a step asks for, also without --gpu-bind. ValueError as parse_gpu_bind."""
    found = parse_gpu_bind(spec.gpu_bind)
    if found.kind or "allow-task-sharing" in spec.gres_flags:
        return found
    per_task = StepGpus.of(spec).per_task
    if per_task:
        return GpuBind("per_task", per_task, verbose=found.verbose)
    if spec.ntasks_per_gpu:
        return GpuBind("single", spec.ntasks_per_gpu, verbose=found.verbose)
    return found


def task_gpus(
    bind: GpuBind, share: NodeAlloc, ntasks: int, cpus: Sequence[str], config: Config
) -> list[int]:
    """Each task's own GPUs on a node with `ntasks` of a step's tasks; [] all of the step's there.
    `cpus`: each task's own CPUs. A task without a GPU to its name gets the first one."""
    own = bits(share.gpus)
    if bind.kind in ("", "none") or not own or share.shares:
        return []
    near: list[int] = []
    if cpus and bind.kind in ("closest", "single"):
        near = [_near(share, text, config) for text in cpus]
    found: list[int] = []
    for task in range(ntasks):
        close = bits(near[task]) if near else own
        if bind.kind == "closest":
            mask = sum(1 << bit for bit in close)
        elif bind.kind == "single":
            # Tasks near the same GPUs share them out among themselves.
            before = sum(near[other] == near[task] for other in range(task)) if near else task
            mask = 1 << close[before // bind.count % len(close)]
        elif bind.kind == "per_task":
            first = task * bind.count
            mask = sum(1 << bit for bit in own[first : first + bind.count])
        elif bind.kind == "map_gpu":
            bit = bind.values[task % len(bind.values)] if bind.values else -1
            # A number may be any that somebody can write.
            mask = 1 << bit if bit in own else 0
        else:
            mask = bind.values[task % len(bind.values)] if bind.values else 0
        found.append(mask & share.gpus or 1 << own[0])
    return found


def _near(share: NodeAlloc, cpus: str, config: Config) -> int:
    """The GPUs of a share beside a task's CPUs, by the Cores= of gres.conf; all where it does not
    say."""
    conf = config.nodes.get(share.node)
    each: list[tuple[int, ...]] = []
    for line in config.gres_lines(share.node) if config.gres else ():
        each += [line.cores] * max(line.count, len(line.files))
    return _beside(share.gpus, tuple(each), cpus, conf.threads_per_core if conf else 1)


@lru_cache(maxsize=1024)
def _beside(gpus: int, each: tuple[tuple[int, ...], ...], cpus: str, threads: int) -> int:
    """Of the GPUs those whose cores (`each` by its bit, () any) are among the CPUs; else all."""
    cores = {cpu // threads for cpu in parse_cpu_list(cpus)}
    near = [
        bit for bit in bits(gpus) if bit < len(each) and (not each[bit] or cores & set(each[bit]))
    ]
    return sum(1 << bit for bit in near) or gpus
