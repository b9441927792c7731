"""`gsched yardstick queue`: the core's pass over the queue behind the queueing yardstick's formats.

DIR holds cluster.json and jobs.csv; schedule.csv is written. The yardstick's GPUs are all alike and
belong to no node, so the cluster is one node that has as many CPUs as there are GPUs. A job ends
after its run time; decisions go by its limit alone.
"""

from __future__ import annotations

import csv
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsched import _core
from gsched.simulate.yardstick_fgd import YardstickError

POLICIES = ("easy", "conservative")
#: who is first: by arrival, by limit, by limit x GPUs
ORDERS = ("arrival", "shortest", "smallest")

#: the core counts in millionths of a second; what is written are the times of the folder
TICKS = 1_000_000
#: a plan reaches as far as any list of jobs does
WINDOW = 1 << 55
#: above every limit x GPUs
MOST = 1 << 60
NEVER = float("inf")


@dataclass
class Job:
    name: str
    #: seconds
    submit: float
    run: float
    gpus: int
    #: ticks
    limit: int
    start: float = -1.0
    #: the first start it was promised; below 0: none
    promise: float = -1.0


def read(directory: Path) -> tuple[int, list[Job]]:
    """GPUs and jobs of a folder, in order of arrival. YardstickError for what is not as it is to
    be."""
    try:
        with open(directory / "cluster.json", encoding="utf-8") as file:
            gpus = int(json.load(file)["gpus"])
        with open(directory / "jobs.csv", newline="", encoding="utf-8") as file:
            jobs = [_job(row) for row in csv.DictReader(file)]
    except OSError as error:
        raise YardstickError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise YardstickError(f"{directory}: something is not as it should be: {error}") from None
    for job in jobs:
        if not 0 < job.gpus <= gpus:
            raise YardstickError(f"job {job.name} asks for {job.gpus} of {gpus} GPUs")
    return gpus, sorted(jobs, key=lambda job: job.submit)


def _job(row: dict[str, str]) -> Job:
    run = float(row["runtime_s"])
    limit = max(float(row.get("estimate_s") or run), run)
    return Job(
        row["job_id"],
        float(row["submit_s"]),
        run,
        int(row["gpus"]),
        max(1, round(limit * TICKS)),
    )


def simulate(gpus: int, jobs: list[Job], policy: str, order: str) -> None:
    """Give every job its start. Cost: one pass for each moment at which jobs come or end."""
    core = _core.Core(1)
    core.set_node(0, cpus=gpus, mem_mb=1)
    sizes = {n: core.request(cpus_per_task=n) for n in {job.gpus for job in jobs}}
    ends: list[tuple[float, int]] = []
    #: when the limits of running jobs end
    until: dict[int, int] = {}
    came = 0
    wake = NEVER
    options: dict[str, Any] = {"plan_jobs": len(jobs), "resolution": 1, "window": WINDOW}
    while came < len(jobs) or ends or len(core):
        now = min(
            jobs[came].submit if came < len(jobs) else NEVER,
            ends[0][0] if ends else NEVER,
            wake,
        )
        tick = round(now * TICKS)
        early = False
        while ends and ends[0][0] <= now:
            key = heapq.heappop(ends)[1]
            core.release(key)
            early |= tick < until.pop(key)
        while came < len(jobs) and jobs[came].submit <= now:
            job = jobs[came]
            core.queue_add(came, sizes[job.gpus], _priority(job, order), came, job.limit)
            came += 1
        starts = []
        if policy == "easy":
            starts = core.schedule(tick).starts
        else:
            # Who comes gets a reservation behind all that are; where a job has ended early all
            # are drawn forward in order.
            plan = core.schedule(tick, keep=_core.HOLD_STILL, **options)
            starts = plan.starts
            if early:
                plan = core.schedule(tick, keep=_core.DRAW_FORWARD, **options)
                starts = starts + plan.starts
            for kept in plan.reservations:
                if jobs[kept.key].promise < 0:
                    jobs[kept.key].promise = kept.at / TICKS
            wake = min((r.at / TICKS for r in plan.reservations if r.at > tick), default=NEVER)
        for start in starts:
            job = jobs[start.key]
            job.start = now
            heapq.heappush(ends, (now + job.run, start.key))
            until[start.key] = tick + job.limit


def _priority(job: Job, order: str) -> int:
    if order == "shortest":
        return MOST - job.limit
    if order == "smallest":
        return MOST - job.limit * job.gpus
    return 0


def run(directory: Path, policy: str, order: str) -> None:
    """Write DIR/schedule.csv. YardstickError for a folder that is not as it should be."""
    gpus, jobs = read(directory)
    simulate(gpus, jobs, policy, order)
    with open(directory / "schedule.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["job_id", "start_s", "end_s", "promised_s"])
        table.writerows(_rows(jobs))


def _rows(jobs: list[Job]) -> Iterator[tuple[str, float, float, float | str]]:
    for job in jobs:
        yield job.name, job.start, job.start + job.run, job.promise if job.promise >= 0 else ""
