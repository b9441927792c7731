"""Durable submissions per second through the wire protocol, 8 client processes; Slurm's beside it.

    python bench/submit_rate.py [--jobs 4000] [--clients 8] [--script 4096] [--variables 60]
                                [--runs 3] [--slurm-jobs 500] [--only gsched|slurm]

Starts a controller and frontends in a directory of its own (no nodes: nothing starts), submits
4 KB scripts with environments of 60 variables, and prints submissions per second, the controller's
CPU per submission, its memory, how long it takes to start again with them, and the time of an
answer on the idle controller. Every submission is synced to disk before it is answered. Slurm's
rate is that of 8 concurrent loops of `sbatch --hold` with a script and an environment as large.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from sides import Row, Slurm, load, open_sides, report, show
from wire_support import Daemons, until

from gsched.client import Client
from gsched.model import JobSpec, Shape
from gsched.wire.messages import Done, JobQuery, Ping, SubmitJob


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def submissions(client: int, count: int, script: int, variables: int) -> list[SubmitJob]:
    """Scripts and environments as users have them: alike, but no two the same."""
    found = []
    for n in range(count):
        head = f"#!/bin/bash\n#SBATCH -J bench{client}_{n}\n# {os.urandom(32).hex()}\n".encode()
        body = b"python train.py --lr 0.001 --batch 64 --out /scratch/run/output\n"
        text = (head + body * (script // len(body) + 1))[:script]
        environment = b"".join(
            b"VARIABLE_%d=/opt/software/some/path/%d/%d/bin:%d\0" % (v, client, v % 7, v or n)
            for v in range(variables)
        )
        spec = JobSpec(
            name=f"bench{client}_{n}",
            shape=Shape(gpus_per_node=1),
            time_limit=3600,
            work_dir="/home/user/project",
            command="/home/user/project/train.sh",
            submit_line="sbatch train.sh",
        )
        found.append(SubmitJob(spec, text, environment, "user", "users"))
    return found


def client_main(
    path: str, index: int, options: argparse.Namespace, start: object, window: int
) -> None:
    todo = submissions(index, options.jobs // options.clients, options.script, options.variables)
    with Client(path) as client:
        client.status()
        start.wait()  # type: ignore[attr-defined]
        for at in range(0, len(todo), window):
            replies = client.call_many(todo[at : at + window])
            bad = [r for r in replies if not isinstance(r, Done)]
            assert not bad, bad[0]


def run(
    daemons: Daemons, controller: int, workers: list[int], options: argparse.Namespace, window: int
) -> float:
    barrier = multiprocessing.Barrier(options.clients + 1)
    processes = [
        multiprocessing.Process(
            target=client_main, args=(daemons.socket, n, options, barrier, window)
        )
        for n in range(options.clients)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    before, began = cpu_s(controller), time.perf_counter()
    front = sum(map(cpu_s, workers))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    front = sum(map(cpu_s, workers)) - front
    took, cpu = time.perf_counter() - began, cpu_s(controller) - before
    count = options.jobs // options.clients * options.clients
    how = "one at a time" if window == 1 else f"up to {window} under way"
    print(
        f"{options.clients} clients, {how}: {count / took:8.0f} submissions/s, "
        f"CPU each: "
        f"controller {cpu / count * 1e6:.0f} us, frontends {front / count * 1e6:.0f} us; {load()}",
        flush=True,
    )
    return count / took


def slurm(side: Slurm, options: argparse.Namespace) -> list[float]:
    """Submissions per second of each run."""
    body = b"python train.py --lr 0.001 --batch 64 --out /scratch/run/output\n"
    script = side.script((body * (options.script // len(body) + 1))[: options.script].decode())
    for v in range(options.variables):
        side.env[f"VARIABLE_{v}"] = f"/opt/software/some/path/{v % 7}/bin:{v}"
    rates = []
    for _ in range(options.runs):
        began = time.perf_counter()
        side.submit_many(options.slurm_jobs, "--hold", "-n1", "-t", "10", "-o", "/dev/null", script)
        rates.append(options.slurm_jobs / (time.perf_counter() - began))
        print(f"slurm, 8 loops of sbatch: {rates[-1]:.0f} submissions/s; {load()}", flush=True)
    side.run("scancel", "-u", side.env["USER"])
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--script", type=int, default=4096)
    parser.add_argument("--variables", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slurm-jobs", type=int, default=500)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    ours: dict[int, list[float]] = {1: [], 64: []}
    if options.only in ("", "gsched"):
        measure(options, ours)
    theirs: list[float] = []
    if options.only in ("", "slurm"):
        found = open_sides("slurm", lambda side: slurm(side, options))  # type: ignore[arg-type]
        theirs = found.get("slurm", [])  # type: ignore[assignment]
    rows = []
    for window, how, goal in ((1, "one at a time", ">= 4"), (64, "64 under way each", "")):
        values = ours[window]
        ratio = (
            f"{statistics.median(values) / statistics.median(theirs):.1f}"
            if values and theirs
            else ""
        )
        what = f"durable submissions/s, {options.clients} clients, {how} (Slurm: `sbatch`)"
        cells = [show(side, 0) if side else "" for side in (values, theirs)]
        rows.append(Row(what, cells[0], cells[1], ratio, goal))
    report(rows)


def measure(options: argparse.Namespace, rates: dict[int, list[float]]) -> None:
    """The side of gsched."""
    daemons = Daemons()
    try:
        controller = daemons.controller()
        workers = daemons.workers(daemons.frontend().pid)
        with daemons.client() as client:
            times = []
            for _ in range(300):
                began = time.perf_counter()
                client.call(Ping())
                times.append(time.perf_counter() - began)
            print(f"answer of the idle controller: median {statistics.median(times) * 1e6:.0f} us")
        for window in (1, 64):
            for _ in range(options.runs):
                rates[window].append(run(daemons, controller.pid, workers, options, window))
        with daemons.client() as client:
            status = client.status()
            jobs = status.next_job_id - 1
            print(f"controller with {jobs} pending jobs: {rss_mb(controller.pid):.0f} MB")
            for query, name in (
                (JobQuery(uids=[os.getuid()], active_only=True), "own active"),
                (JobQuery(), "all"),
                (JobQuery(ids=[jobs]), "one"),
            ):
                began = time.perf_counter()
                found = client.jobs(query).jobs
                took = (time.perf_counter() - began) * 1e3
                print(f"query, {name} ({len(found)} jobs, decoded): {took:.1f} ms")
            times = []
            for _ in range(100):
                began = time.perf_counter()
                client.call(Ping())
                times.append(time.perf_counter() - began)
                time.sleep(0.01)
            print(
                f"answer with them pending: median {statistics.median(times) * 1e3:.1f} ms, "
                f"worst of 100 {max(times) * 1e3:.1f} ms"
            )
            controller.kill()
            controller.wait()
            until("noticed", lambda: not client.status().controller_up)
            began = time.perf_counter()
            again = daemons.controller()
            until("up again", lambda: client.status().controller_up)
            assert isinstance(client.call(Ping()), Done)
            took = time.perf_counter() - began
            print(f"start with {jobs} pending jobs, to the first answer: {took:.2f} s")
            print(f"controller after it: {rss_mb(again.pid):.0f} MB")
    finally:
        daemons.close()


if __name__ == "__main__":
    main()
