"""CPU time of the controller for each job that it starts, beside slurmctld's.

    python bench/controller_cpu.py [--runs 3] [--slurm-runs 1] [--nodes 1000] [--pending 10000]
                                   [--fill 60] [--only gsched|slurm]
                                   [--json bench/results/controller_cpu.json]

1,000 nodes of 8 GPUs, and a queue of mixed jobs of 1 to 512 GPUs (11.5 on average) that all wait
before the partition is opened: enough to fill the cluster and leave `--pending`. Counted is what
the controller uses from there until no job has started for `--still` seconds, divided by the jobs
that started. Ours has 1,000 production agents at their links in a process of their own, which
prepare, start and report every job. slurmctld has nodes in State=CLOUD that nobody answers for, as
the shared folder's load scripts make them, so it is spared all talk with nodes: a second series of
ours has agents that report but do nothing with their orders. The frontends' share is told apart:
it is zero unless somebody asks. A calibration loop tells how fast the machine was meanwhile. The
data file is written where both sides were measured, with all their runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agents import cluster
from sides import SHARED, Row, load, machine, report, show

from gsched.client import Client
from gsched.model import JobSpec, JobState, Shape
from gsched.wire.messages import Done, JobQuery, SubmitJob, UpdatePartition

#: GPUs of a job and how often it comes; from 8 on whole nodes
SIZES = (
    (1, 0.4), (2, 0.15), (4, 0.15), (8, 0.15), (16, 0.06), (32, 0.04), (64, 0.03), (128, 0.01),
    (256, 0.006), (512, 0.004),
)  # fmt: skip
#: of a job, to tell how many are wanted beside those that wait
MEAN_GPUS = 11.5
GOAL = 0.01
HERE = Path(__file__).resolve().parent
#: CPU seconds in a quarter of a second that are more than reports of nodes
BUSY_S = 0.015
#: submissions under way
WINDOW = 64


def mixed(count: int, seed: int = 1) -> Iterator[SubmitJob]:
    """The queue: a fixed function of the seed, the same as the shared load scripts submit."""
    rng = random.Random(seed)
    for _ in range(count):
        gpus = rng.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])[0]
        nodes, each = (1, gpus) if gpus <= 8 else (gpus // 8, 8)
        minutes = int(5 * (2016 ** rng.random()))
        spec = JobSpec(
            name=f"mix{gpus}",
            shape=Shape(
                min_nodes=nodes,
                max_nodes=nodes,
                ntasks_per_node=1,
                cpus_per_task=2 * each,
                mem_per_node=7000 * each,
                gpus_per_node=each,
            ),
            time_limit=60 * minutes,
            work_dir="/tmp",
            std_out="/dev/null",
        )
        yield SubmitJob(spec, b"#!/bin/sh\nsleep 600\n", b"PATH=/usr/bin:/bin\0")


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, those that have ended among them, to the nanosecond:
    its clock, as clock_getcpuclockid(3) names it."""
    return time.clock_gettime(~pid << 3 | 2)


def calibration() -> float:
    """CPU milliseconds of 2,000,000 turns of a Python loop, the best of three."""
    best = float("inf")
    for _ in range(3):
        began, total = time.process_time(), 0
        for turn in range(2_000_000):
            total += turn & 7
        best = min(best, time.process_time() - began)
    return 1000 * best


def started(client: Client) -> int:
    jobs = client.jobs(JobQuery(active_only=True)).jobs
    return sum(job.state == JobState.RUNNING for job in jobs)


def partition(client: Client, state: str) -> None:
    reply = client.call(UpdatePartition("main", "update", {"state": state}))
    assert isinstance(reply, Done), reply


def one_run(options: argparse.Namespace, deaf: bool) -> tuple[float, float]:
    """CPU milliseconds of controller and frontend for each started job."""
    with cluster(options.nodes, deaf=deaf) as (client, (controller, frontend)):
        partition(client, "DOWN")
        jobs = list(mixed(options.pending + int(8 * options.nodes / MEAN_GPUS)))
        for at in range(0, len(jobs), WINDOW):
            bad = [r for r in client.call_many(jobs[at : at + WINDOW]) if not isinstance(r, Done)]
            assert not bad, bad[0]
        time.sleep(1)
        before, front = cpu_s(controller), cpu_s(frontend)
        partition(client, "UP")
        # Nobody asks while it works. The agents' reports go on after the last start, and are
        # another figure: what counts ends with the last quarter of a second of real work.
        used = last = cpu_s(controller)
        still = began = time.monotonic()
        fill = 0.0
        # Orders that are not confirmed are sent again after three seconds.
        while time.monotonic() - still < (1 if deaf else options.still):
            time.sleep(0.25)
            now = cpu_s(controller)
            if now - last > BUSY_S:
                still = time.monotonic()
            if time.monotonic() - still < 0.5:
                used, fill = now, time.monotonic() - began
            last = now
        front = cpu_s(frontend) - front
        count = started(client)
        ms = 1000 * (used - before) / count
        front = 1000 * front / count
        print(
            f"{'deaf agents: ' if deaf else ''}{count} of {len(jobs)} jobs started in "
            f"{fill:.1f} s: {ms:.3f} ms of the controller's CPU for each, {front:.3f} ms of the "
            f"frontends'; {load()}",
            flush=True,
        )
        return ms, front


def slurm_run(options: argparse.Namespace) -> float:
    """CPU milliseconds of slurmctld for each started job. RuntimeError where there is none."""
    script = SHARED / "bench" / "peer" / "run_sched.sh"
    if not script.exists() or os.geteuid() or shutil.which("slurmctld", path="/usr/sbin") is None:
        raise RuntimeError("no real Slurm to compare with")
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as out:
        env = {
            **os.environ,
            "OUT": out,
            "PEER_DIR": f"/tmp/peer-cpu-{os.getpid()}",
            "PEER_PORT": "24000",
            "FILL": str(options.fill),
            "STEADY": "1",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }
        argv = [str(script), str(options.nodes), "cpu", "--conf", "PriorityWeightJobSize=0"]
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(env["PEER_DIR"], ignore_errors=True)
        found = list(Path(out).glob("*.json"))
        if not found:
            raise RuntimeError(done.stderr.decode().strip() or done.stdout.decode()[-500:])
        result = json.loads(found[0].read_text())
    count, seconds = result["fill_jobs"], result["fill_cpu_s"]["TOTAL"]
    print(
        f"slurmctld started {count} of {result['submitted']} jobs in {options.fill} s: "
        f"{1000 * seconds / count:.2f} ms of CPU for each; {load()}",
        flush=True,
    )
    return 1000 * seconds / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slurm-runs", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--fill", type=int, default=60, help="seconds that slurmctld gets")
    parser.add_argument("--still", type=float, default=5)
    parser.add_argument("--only", default="", choices=("", "gsched", "slurm"))
    parser.add_argument("--json", type=Path, default=HERE / "results" / "controller_cpu.json")
    options = parser.parse_args()
    before, calibrated = load(), [calibration()]
    ours: dict[bool, list[float]] = {False: [], True: []}
    fronts, theirs = [], []
    for deaf in (False, True):
        for _ in range(options.runs if options.only != "slurm" else 0):
            ms, front = one_run(options, deaf)
            ours[deaf].append(ms)
            fronts.append(front)
    for _ in range(options.slurm_runs if options.only != "gsched" else 0):
        try:
            theirs.append(slurm_run(options))
        except RuntimeError as problem:
            print(f"--- slurm: {problem}", flush=True)
            break
    calibrated.append(calibration())
    what = f"{options.nodes} nodes, {options.pending} pending: controller, CPU ms a started job"
    for deaf, title in ((False, what), (True, "the same, nodes that never answer (as Slurm's)")):
        if not ours[deaf]:
            continue
        ratio = ""
        if theirs:
            ratio = f"{statistics.median(ours[deaf]) / statistics.median(theirs):.4f}"
        slurm = show(theirs, 2) if theirs else ""
        report([Row(title, show(ours[deaf], 3), slurm, ratio, f"<= {GOAL}")])
    report([Row("calibration: 2,000,000 turns of a Python loop, ms", show(calibrated), "", "", "")])
    if theirs and all(len(runs) >= 3 for runs in ours.values()):
        about = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "load": f"{before} before, {load()} after",
            "unit": "milliseconds of the controller's CPU time for each started job",
            "nodes": options.nodes,
            "pending": options.pending,
            "gsched": [round(ms, 4) for ms in ours[False]],
            "gsched_silent_nodes": [round(ms, 4) for ms in ours[True]],
            "slurmctld_silent_nodes": [round(ms, 3) for ms in theirs],
            "slurmctld_seconds": options.fill,
            "calibration_ms": [round(ms, 1) for ms in calibrated],
        }
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    if fronts:
        report([Row("the same: frontends", show(fronts, 3), "", "", "")])


if __name__ == "__main__":
    main()
