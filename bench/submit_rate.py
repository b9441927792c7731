"""Durable submissions per second through the wire protocol: 8 client processes, one controller.

    python bench/submit_rate.py [--jobs 4000] [--clients 8] [--script 4096] [--variables 60]

Starts a controller and frontends in a directory of its own (no nodes: nothing starts), submits
4 KB scripts with environments of 60 variables, and prints submissions per second, the controller's
CPU per submission, its memory, how long it takes to start again with them, and the time of an
answer on the idle controller. Every submission is synced to disk before it is answered.
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
) -> None:
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
        f"controller {cpu / count * 1e6:.0f} us, frontends {front / count * 1e6:.0f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--script", type=int, default=4096)
    parser.add_argument("--variables", type=int, default=60)
    options = parser.parse_args()
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
        run(daemons, controller.pid, workers, options, 1)
        run(daemons, controller.pid, workers, options, 64)
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
