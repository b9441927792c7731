"""What stands at both ends of an attempt: the orders that launch it, and the programs of the site
that the controller runs before them (PrologSlurmctld) and after its nodes are free
(EpilogSlurmctld)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from gsched.bits import bits
from gsched.ledger import hetero, reserved
from gsched.ledger.outcome import Outcome
from gsched.ledger.state import hook_key
from gsched.model import Job
from gsched.wire.nodes import LaunchSpec, Prepare

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def expect(led: Ledger, job: Job, now: float) -> None:
    """Until when all nodes of an attempt that starts (or was loaded) must be prepared. The
    site's program may take as long as it likes: only then the nodes are asked."""
    late = math.inf if job.prolog_due else now + led.config.batch_start_timeout
    led.preparing[job.id] = late


def begin(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The start of an attempt is decided: its nodes are ordered to prepare it, or PrologSlurmctld
    is run first (ledger/hooks.py hears of its end)."""
    job.prolog_due = bool(led.config.prolog_slurmctld)
    if not job.prolog_due:
        send(led, job, now, out)
        return
    expect(led, job, now)
    led.put_job(job, out)
    out.prologs.append(image_of(job))


def send(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """Orders all nodes of the attempt to prepare it. As with Slurm, what PrologSlurmctld took is
    gone from the limit."""
    image, limit = image_of(job), seconds_left(led, job)
    if limit:
        limit = max(1, limit - max(0, int(now) - job.start_time))
    # One and the same for the record and the orders: it is packed once.
    led.put_image(image, out)
    for index in range(len(job.alloc)):
        send_prepare(led, job, index, now, out, image, limit)


def given_back(led: Ledger, job: Job, out: Outcome) -> None:
    """The nodes of an attempt are free: EpilogSlurmctld is due, durably, until it has ended."""
    if not job.alloc or not led.config.epilog_slurmctld:
        return
    image = image_of(job)
    led.epilogs[job.id, job.attempt] = image
    out.puts["hook", hook_key(job.id, job.attempt)] = image
    out.given_back.append(image)


def image_of(job: Job) -> Job:
    """The job as it is now: an order may be repeated when it has long moved on to another attempt.
    Nobody changes an image; all nodes of a job share one."""
    return msgspec.structs.replace(job, alloc=[msgspec.structs.replace(p) for p in job.alloc])


def send_prepare(
    led: Ledger,
    job: Job,
    index: int,
    now: float,
    out: Outcome,
    image: Job | None = None,
    limit: int = -1,
) -> None:
    """Orders the node to prepare its share (and, alone, to start it). Script and environment are
    filled in by whoever sends it."""
    part = job.alloc[index]
    gpus = led.nodes[part.node].gpus
    if part.gpus == (1 << len(gpus)) - 1:
        uuids = [gpu.uuid for gpu in gpus]
    else:
        uuids = [gpus[bit].uuid for bit in bits(part.gpus) if bit < len(gpus)]
    launch = LaunchSpec(
        job=image or image_of(job),
        node_index=index,
        gpu_uuids=uuids,
        limit_s=limit if limit >= 0 else seconds_left(led, job),
        cluster_name=led.config.cluster_name,
    )
    if job.het_job_id:
        # For the script; and for the others to know that they are of one job, whose steps they run.
        launch.components = [image_of(member) for member in hetero.unit(led, job)]
    led.order(part.node, Prepare(0, launch, go=hetero.one_node(job)), now, out)


def seconds_left(led: Ledger, job: Job) -> int:
    """After which a node ends its share of an attempt that starts; 0 never."""
    limit = hetero.limit(led, job)
    return reserved.cut(led, job, limit + over_time(led, job) if limit else 0)


def over_time(led: Ledger, job: Job) -> int:
    """Seconds by which a job may outrun its limit (OverTimeLimit, the partition's first)."""
    partition = led.config.partitions.get(job.partition)
    minutes = partition.over_time_limit if partition is not None else None
    return 60 * (led.config.over_time_limit if minutes is None else minutes)
