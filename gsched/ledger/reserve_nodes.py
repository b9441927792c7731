"""Which nodes, CPUs and GPUs an advance reservation gets."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched import features, reserve
from gsched.model import Reservation, ReservedNode

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

BUSY = "Requested nodes are busy"
OVERLAPS = "Requested reservation overlaps with another reservation"


class NotChosen(Exception):
    """There are no such nodes; the text is Slurm's sentence."""


@dataclass
class Rest:
    """What a node has left for a reservation, throughout its time."""

    cpus: int
    gpus: int
    #: no job and no other reservation is on it
    idle: bool
    #: another reservation is the cause of what it lacks
    reserved: bool = False


def choose(
    led: Ledger, resv: Reservation, named: Iterable[str], without: Collection[str] = ()
) -> tuple[ReservedNode, ...]:
    """What a reservation keeps: of the nodes `named`, or of those that are idle then and not among
    those to do without. Raises NotChosen. Cost: nodes, and the jobs on those in question."""
    names = list(named)
    per_core = {name: led.config.nodes[name].threads_per_core for name in names}
    if names:
        rests = {name: rest(led, resv, name) for name in names}
        if resv.gpu_count or resv.core_counts:
            return _parts_of(led, resv, names, rests, per_core)
        for one in rests.values():
            if not one.idle:
                raise NotChosen(OVERLAPS if one.reserved else BUSY)
        return tuple(ReservedNode(name) for name in names)
    found = [name for name in _candidates(led, resv) if name not in without]
    rests = {name: rest(led, resv, name) for name in found}
    per_core = {name: led.config.nodes[name].threads_per_core for name in rests}
    if not resv.gpu_count and not resv.core_counts:
        idle = [name for name, one in rests.items() if one.idle]
        wanted = resv.node_count or len(rests)
        if not wanted or len(idle) < wanted:
            raise NotChosen(BUSY)
        return tuple(ReservedNode(name) for name in idle[:wanted])
    return _parts(led, resv, rests, per_core)


def _candidates(led: Ledger, resv: Reservation) -> list[str]:
    """The nodes of its partition that take work and have its features; idle ones of least weight
    first."""
    part = led.config.partitions[resv.partition]
    wanted = features.parse(resv.features) if resv.features else []
    found = [
        name
        for name in part.nodes
        if led.node_up(name)
        and (not wanted or any(one <= set(led.config.nodes[name].features) for one in wanted))
    ]
    return sorted(found, key=lambda name: led.config.nodes[name].weight)


def rest(led: Ledger, resv: Reservation, name: str) -> Rest:
    """What a node has left beside jobs (unless they are ignored) and other reservations (unless it
    may overlap them)."""
    conf = led.config.nodes[name]
    left = Rest(conf.cpus, led.cluster.gpu_bits(name), idle=True)
    if "IGNORE_JOBS" not in resv.flags:
        for job_id, index in led.parts[name].items():
            job = led.jobs[job_id]
            part = job.alloc[index]
            own = job.reservation == resv.name
            if not own and (not job.end_time or job.end_time > resv.start or job.finished):
                left.cpus -= part.cpus
                left.gpus &= ~part.gpus
                left.idle = False
    if resv.maintenance or "OVERLAP" in resv.flags:
        return left
    now = led.meta.last_now
    mine = reserve.at(resv, now)
    for other in led.reservations.values():
        if other.name == resv.name or other.maintenance or "OVERLAP" in other.flags:
            continue
        for share in other.nodes:
            if share.node == name and reserve.overlap(mine, reserve.at(other, now)):
                left.cpus -= conf.cpus if share.cpus < 0 else share.cpus
                left.gpus = 0 if share.cpus < 0 else left.gpus & ~share.gpus
                left.idle, left.reserved = False, True
    return left


def _parts_of(
    led: Ledger,
    resv: Reservation,
    names: list[str],
    rests: dict[str, Rest],
    per_core: dict[str, int],
) -> tuple[ReservedNode, ...]:
    """Parts of nodes that are named: cores in all, or one number for each; GPUs in all."""
    counts = resv.core_counts
    cores = list(counts) if len(counts) == len(names) else _spread(sum(counts), len(names))
    gpus = _spread(resv.gpu_count, len(names))
    return tuple(
        _part(led, resv, name, rests[name], cores[k] * per_core[name], gpus[k])
        for k, name in enumerate(names)
    )


def _parts(
    led: Ledger, resv: Reservation, rests: dict[str, Rest], per_core: dict[str, int]
) -> tuple[ReservedNode, ...]:
    """Parts of as few nodes as hold them, or of so many as are asked for: those with the most left
    first."""

    def room(name: str) -> tuple[int, int]:
        mine = rests[name].gpus & led.cluster.gpu_bits(name, resv.gpu_type)
        return mine.bit_count(), rests[name].cpus // per_core[name]

    order = sorted(rests, key=lambda name: (-room(name)[0], -room(name)[1]))
    if not resv.gpu_count:
        order = sorted(rests, key=lambda name: -room(name)[1])
    cores, gpus = sum(resv.core_counts), resv.gpu_count
    if resv.node_count:
        chosen = order[: resv.node_count]
        if len(chosen) < resv.node_count:
            raise NotChosen(BUSY)
        try:
            return _parts_of(led, resv, chosen, rests, per_core)
        except NotChosen:
            raise NotChosen(BUSY) from None
    found = []
    for name in order:
        some, all_ = min(gpus, room(name)[0]), min(cores, room(name)[1])
        if not some and not all_:
            continue
        if resv.core_counts and resv.gpu_count:
            # CPUs go where the GPUs are.
            all_ = min(all_, -(-sum(resv.core_counts) * some // resv.gpu_count)) if some else 0
        try:
            found.append(_part(led, resv, name, rests[name], all_ * per_core[name], some))
        except NotChosen:
            continue
        gpus, cores = gpus - some, cores - all_
        if gpus <= 0 and cores <= 0:
            return tuple(found)
    raise NotChosen(BUSY)


def _part(
    led: Ledger, resv: Reservation, name: str, left: Rest, cpus: int, gpus: int
) -> ReservedNode:
    """A part of one node. GPUs without cores get the CPUs that are theirs by number."""
    mine = led.cluster.gpu_bits(name, resv.gpu_type) & left.gpus
    mask = led.cluster.best_gpus(name, mine, gpus) if gpus else 0
    if gpus and not resv.core_counts:
        conf, all_ = led.config.nodes[name], led.cluster.gpu_bits(name).bit_count()
        cpus = conf.cpus * gpus // max(all_, 1) // conf.threads_per_core * conf.threads_per_core
    if cpus > left.cpus or (gpus and not mask):
        raise NotChosen(OVERLAPS if left.reserved else BUSY)
    return ReservedNode(name, cpus, mask)


def _spread(total: int, places: int) -> list[int]:
    """So many in as equal numbers as can be, the larger ones first."""
    return [total // places + (k < total % places) for k in range(places)]
