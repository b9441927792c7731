"""A controller with 100,000 pending jobs: memory, restart, and answers while it schedules.

    python bench/pending.py [--jobs 100000] [--script 4096] [--variables 60] [--seconds 30]

Every job has a script of 4 KB and an environment of 60 variables of its own, no two alike. The
cluster (4 nodes of 16 CPUs and 8 GPUs) is full of short jobs, so that a few start each second and
every pass goes over the whole queue; most jobs ask for more than is ever free and stay blocked.
Answers are timed through a frontend, as commands get them: a submission (durable), a job by its
id, and a question to the controller itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import time
from pathlib import Path

from sides import NAME, Gsched, Row, load, process_s, report, rss_mb

from gsched.client import Client, ControllerDown
from gsched.model import JobSpec, Shape
from gsched.wire.messages import Done, JobQuery, Ping, SubmitJob

CLIENTS = 4
WINDOW = 64


def submission(number: int, script: int, variables: int, shape: Shape, seconds: int) -> SubmitJob:
    """A job like many of its kind, and like none of them byte by byte."""
    head = f"#!/bin/sh\nsleep {seconds}\nexit 0\n# {os.urandom(32).hex()}\n".encode()
    line = b"python train.py --lr 0.001 --batch 64 --out /scratch/run/output\n"
    text = (head + line * (script // len(line) + 1))[:script]
    environment = b"".join(
        b"VARIABLE_%d=/opt/software/some/path/%d/%d/bin:%d\0" % (v, number, v % 7, v)
        for v in range(variables)
    )
    spec = JobSpec(
        name=f"{NAME}{number}",
        shape=shape,
        time_limit=600,
        work_dir="/tmp",
        std_out="/dev/null",
        command="/home/user/project/train.sh",
        submit_line="sbatch train.sh",
    )
    return SubmitJob(spec, text, environment, "root", "root")


def shape_of(number: int) -> Shape:
    """One of ten fits into what comes free; the rest wait for whole nodes."""
    if number % 10 == 0:
        return Shape(gpus_per_node=1, mem_per_node=100)
    return Shape(min_nodes=1 + number % 4, gpus_per_node=8, mem_per_node=1000)


def submit_all(socket: str, first: int, count: int, options: argparse.Namespace) -> None:
    with Client(socket) as client:
        for at in range(first, first + count, WINDOW):
            batch = [
                submission(n, options.script, options.variables, shape_of(n), 3)
                for n in range(at, min(at + WINDOW, first + count))
            ]
            bad = [r for r in client.call_many(batch) if not isinstance(r, Done)]
            assert not bad, bad[0]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def answers(client: Client, last: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Times of three kinds of requests in turn, ms."""
    found: dict[str, list[float]] = {"submission": [], "job by id": [], "controller": []}
    until = time.monotonic() + options.seconds
    number = last
    while time.monotonic() < until:
        number += 1
        write = submission(number, options.script, options.variables, shape_of(1), 3)
        for kind, ask in (
            ("submission", lambda write=write: client.call(write)),
            ("job by id", lambda: client.jobs(JobQuery(ids=[last // 2]))),
            ("controller", lambda: client.call(Ping())),
        ):
            began = time.perf_counter()
            ask()
            found[kind].append(1000 * (time.perf_counter() - began))
            time.sleep(0.01)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--script", type=int, default=4096)
    parser.add_argument("--variables", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--restarts", type=int, default=3)
    options = parser.parse_args()
    with Gsched("--set", f"MaxJobCount={2 * options.jobs + 10_000}") as side:
        assert isinstance(side, Gsched)
        side.drain()
        socket = str(side.dir / "run" / "frontend.sock")
        began = time.monotonic()
        share = options.jobs // CLIENTS
        clients = [
            multiprocessing.Process(target=submit_all, args=(socket, n * share, share, options))
            for n in range(CLIENTS)
        ]
        for process in clients:
            process.start()
        for process in clients:
            process.join()
            assert process.exitcode == 0
        took = time.monotonic() - began
        jobs = share * CLIENTS
        disk = sum(p.stat().st_blocks * 512 for p in side.dir.glob("state/**/*") if p.is_file())
        print(f"{jobs} jobs in {took:.0f} s; {disk >> 20} MB on disk; {load()}", flush=True)
        own = [rss_mb(side.pid("slurmctld"), "RssAnon")]
        whole = [rss_mb(side.pid("slurmctld"))]
        client = side.client
        last = client.status().next_job_id - 1

        restarts = []
        for _ in range(options.restarts):
            os.kill(side.pid("slurmctld"), signal.SIGKILL)
            while client.status().controller_up:
                time.sleep(0.002)
            restarts.append(restart(side, client))
        own.append(rss_mb(side.pid("slurmctld"), "RssAnon"))
        whole.append(rss_mb(side.pid("slurmctld")))
        times = ", ".join(f"{s:.2f}" for s in restarts)
        print(
            f"memory {own[0]:.0f} MB (with mapped pages of the database {whole[0]:.0f}), "
            f"after a restart {own[1]:.0f} ({whole[1]:.0f}) MB; "
            f"start to answering: {times} s; {load()}",
            flush=True,
        )

        side.resume()
        time.sleep(3)
        pid = side.pid("slurmctld")
        cpu, began = process_s(pid), time.monotonic()
        found = answers(client, last, options)
        share_of_core = 100 * (process_s(pid) - cpu) / (time.monotonic() - began)
        started = sum(job.start_time > 0 for job in client.jobs(JobQuery(ids=ids(last))).jobs)
        for kind, values in found.items():
            print(
                f"answer, {kind}: median {statistics.median(values):.2f}, 99 of 100 within "
                f"{percentile(values, 0.99):.1f}, worst {max(values):.1f} ms "
                f"(number {values.index(max(values)) + 1} of {len(values)})"
            )
        own.append(rss_mb(pid, "RssAnon"))
        whole.append(rss_mb(pid))
        print(
            f"while it started some {started * last // len(ids(last))} jobs: controller at "
            f"{share_of_core:.0f} % of a core, {own[2]:.0f} ({whole[2]:.0f}) MB; {load()}",
            flush=True,
        )
        everything = [value for values in found.values() for value in values]
        many = f"{jobs // 1000},000 pending jobs"
        median, worst = statistics.median(everything), max(everything)
        report(
            [
                Row(
                    f"controller with {many}: memory, MB: its own, with mapped database pages",
                    f"{max(own):.0f}, {max(whole):.0f}",
                    "",
                    "",
                    "< 500",
                ),
                Row(
                    "the same: start until it answers, s",
                    f"{statistics.median(restarts):.2f}",
                    "",
                    "",
                    "< 5",
                ),
                Row(
                    "the same: answers while it schedules, ms: median, 99 of 100, worst",
                    f"{median:.1f}, {percentile(everything, 0.99):.1f}, {worst:.1f}",
                    "",
                    "",
                    "< 50",
                ),
            ]
        )


def ids(last: int) -> list[int]:
    """A sample of the queue."""
    return list(range(1, last + 1, max(1, last // 2000)))


def restart(side: Gsched, client: Client) -> float:
    """Seconds from the start of a new controller process to its first answer."""
    from gsched.local import daemons
    from gsched.local.cluster import Cluster

    cluster = Cluster.load(Path(side.dir))
    (side.dir / "run" / "ctl.sock").unlink(missing_ok=True)
    began = time.monotonic()
    process = daemons.start(
        cluster.layout.run, cluster.controller(), daemons.environment(daemons.bin_dir())
    )
    while True:
        try:
            if client.status().controller_up and isinstance(client.call(Ping()), Done):
                break
        except ControllerDown:
            pass
        time.sleep(0.002)
    took = time.monotonic() - began
    while side.pid("slurmctld") != process.pid:
        time.sleep(0.01)
    return took


if __name__ == "__main__":
    main()
