"""Jobs and advance reservations: who may ask for one, and how long a job in one may run."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gsched import reserve
from gsched.errors import message
from gsched.model import Job, JobSpec

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def wrong(
    led: Ledger,
    text: str,
    uid: int,
    user: str,
    groups: Collection[str],
    spec: JobSpec,
    partitions: Collection[str],
) -> tuple[str, str]:
    """Slurm's sentence and code where a user's job may not ask for these reservations; "" it
    may."""
    named = reserve.names(text)
    if text and not named:
        return message("ESLURM_RESERVATION_INVALID"), "ESLURM_RESERVATION_INVALID"
    for name in named:
        resv = led.reservations.get(name)
        if resv is None:
            return message("ESLURM_RESERVATION_INVALID"), "ESLURM_RESERVATION_INVALID"
        may = reserve.may_use(resv, user, groups, led.book.lineage(spec.account))
        if not led.is_admin(uid) and not (may and reserve.takes(resv, spec.qos, partitions)):
            return message("ESLURM_RESERVATION_ACCESS"), "ESLURM_RESERVATION_ACCESS"
    return "", ""


def no_room(led: Ledger, job: Job, partitions: Collection[str], now: float) -> list[str] | None:
    """Slurm's remarks where none of the reservations that a job asks for could ever hold it; None
    where one may: it has not begun, nodes of it are out of service, or jobs of it may go elsewhere.
    Cost: as `what_if.possible`."""
    notes: list[str] = []
    what_if, shape = led.cluster.what_if, job.spec.shape
    for name in reserve.names(job.spec.reservation):
        resv = led.reservations[name]
        own = {one.node for one in resv.nodes}
        if not resv.active(now) or not all(led.node_up(node) for node in own):
            return None
        if any(what_if.possible(shape, partition, name) for partition in partitions):
            return None
        if not own.issuperset(shape.nodelist):
            notes = ["Problem using reservation"]
    return notes if job.spec.reservation else None


def end_of(led: Ledger, job: Job) -> int:
    """When the job is ended for its reservation (ResvOverRun later than that ends); 0 never."""
    if not job.reservation:
        return 0
    resv = led.reservations.get(job.reservation)
    if resv is None or resv.flex:
        return 0
    over = led.config.raw.get("resvoverrun", "0")
    if not over.isdecimal():
        return 0
    return resv.end + 60 * int(over)


def cut(led: Ledger, job: Job, limit: int) -> int:
    """A job's limit in seconds (0 none), or less: what its reservation leaves to it."""
    last = end_of(led, job)
    if not last:
        return limit
    left = max(last - job.start_time, 1)
    return min(limit, left) if limit else left
