"""Replays for tests: small clusters, jobs by hand, and a judge who knows nothing of the code."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from gsched.simulate.replay import Replay
from gsched.simulate.replay_cluster import Wish, build, parse_nodes
from gsched.simulate.replay_spec import Requests, specs
from gsched.simulate.traces import Trace, TraceJob

#: only the first of the queue has its place kept
EASY = ("SchedulerParameters=bf_interval=-1",)


def replayed(
    jobs: Sequence[TraceJob],
    nodes: str = "1x4",
    lines: Sequence[str] = EASY,
    gangs: str = "packed",
    kill: bool = True,
    own_priority: bool = False,
) -> Replay:
    """The jobs, replayed on a cluster as `--nodes` names it."""
    trace = Trace("test", "gang", sorted(jobs, key=lambda job: job.submit))
    config = build(Wish(None, parse_nodes(nodes), tuple(lines)), trace).config
    requests = Requests(config, gangs, kill=kill)
    replay = Replay(config, trace.jobs, specs(requests, trace.jobs), own_priority=own_priority)
    replay.run()
    return replay


def starts(replay: Replay) -> dict[str, float]:
    return {row.job.name: row.start for row in replay.record.rows}


def random_gangs(seed: int, count: int, sizes: Sequence[int]) -> list[TraceJob]:
    """Whole seconds: the ledger decides in seconds."""
    rnd = random.Random(seed)
    jobs, now = [], 0
    for number in range(count):
        now += rnd.choice([0, rnd.randint(0, 40), rnd.randint(0, 200)])
        run = rnd.randint(1, 400)
        limit = run + rnd.choice([0, rnd.randint(0, 50), rnd.randint(0, 1000)])
        size = rnd.choice(sizes)
        jobs.append(
            TraceJob(str(number), now, run, limit, gpus=size, user=f"user{rnd.randint(1, 3)}")
        )
    return jobs


def fifo(total: int, jobs: Sequence[TraceJob]) -> dict[str, float]:
    """On a pool of `total` things that are all alike: in order of arrival, each at the first moment
    that is neither before its arrival nor before the start of the one ahead, and at which it fits.
    """
    begun: dict[str, float] = {}
    running: list[tuple[float, int]] = []
    before = 0.0
    for job in sorted(jobs, key=lambda job: job.submit):
        moments = sorted({max(before, job.submit), *(end for end, _ in running)})
        before = next(
            now
            for now in moments
            if now >= max(before, job.submit)
            and sum(size for end, size in running if end > now) + job.gpus <= total
        )
        begun[job.name] = before
        running.append((before + job.run, job.gpus))
    return begun


def easy(total: int, jobs: Sequence[TraceJob]) -> dict[str, float]:
    """EASY on a pool of `total` things that are all alike, as the papers describe it: the first of
    the queue starts if it fits, else it is promised the earliest moment that the limits of those
    that run allow; a later one starts if it fits now and is over by then, or takes no more than
    the first will leave over. Slow and on its own."""
    come = sorted(jobs, key=lambda job: job.submit)
    queue: list[TraceJob] = []
    running: list[tuple[float, float, int]] = []
    begun: dict[str, float] = {}
    while come or queue:
        now = min([job.submit for job in come[:1]] + [end for end, _, _ in running])
        running = [one for one in running if one[0] > now]
        while come and come[0].submit <= now:
            queue.append(come.pop(0))
        for job in _easy_pass(total, now, queue, running):
            queue.remove(job)
            begun[job.name] = now
    return begun


def _easy_pass(
    total: int, now: float, queue: list[TraceJob], running: list[tuple[float, float, int]]
) -> list[TraceJob]:
    free = total - sum(size for _, _, size in running)
    waiting = list(queue)
    started = []
    while waiting and waiting[0].gpus <= free:
        job = waiting.pop(0)
        started.append(job)
        running.append((now + job.run, now + (job.limit or 0), job.gpus))
        free -= job.gpus
    if not waiting:
        return started
    head = waiting.pop(0)
    shadow = next(
        until
        for until in sorted(until for _, until, _ in running)
        if free + sum(size for _, other, size in running if other <= until) >= head.gpus
    )
    spare = free + sum(size for _, until, size in running if until <= shadow) - head.gpus
    for job in waiting:
        over = now + (job.limit or 0) <= shadow
        if job.gpus <= free and (over or job.gpus <= spare):
            started.append(job)
            running.append((now + job.run, now + (job.limit or 0), job.gpus))
            free -= job.gpus
            spare -= 0 if over else job.gpus
    return started


def judge(path: Path, jobs: Sequence[TraceJob], gpus: dict[str, int]) -> None:
    """AssertionError where schedule.csv is no schedule of these jobs on nodes with so many GPUs:
    every job once, not before it came, as long as it runs, and no GPU for two at a time."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["job_id"] for row in rows) == sorted(job.name for job in jobs)
    wanted = {job.name: job for job in jobs}
    busy: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    for row in rows:
        job = wanted[row["job_id"]]
        start, end = float(row["start"]), float(row["end"])
        assert start >= job.submit, f"{job.name} before it came"
        assert abs(end - start - job.run) < 1e-5, f"{job.name} ran {end - start}"
        assert abs(float(row["wait"]) - (start - job.submit)) < 1e-5
        held = []
        for place in filter(None, row["gpus"].split("|")):
            node, _, text = place.partition(":")
            for item in text.split(","):
                first, _, last = item.partition("-")
                held += [(node, number) for number in range(int(first), int(last or first) + 1)]
        assert len(held) == len(set(held)) == job.gpus, f"{job.name} has {held}"
        for node, number in held:
            assert number < gpus[node]
            busy.setdefault((node, number), []).append((start, end, job.name))
    for gpu, spans in busy.items():
        spans.sort()
        for one, other in itertools.pairwise(spans):
            assert one[1] <= other[0], f"{one[2]} and {other[2]} on {gpu} at once"
