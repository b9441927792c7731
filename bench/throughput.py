"""1,000 jobs of `true` on 4 nodes: jobs per second and CPU milliseconds per job, beside Slurm.

    python bench/throughput.py [--jobs 1000] [--runs 3] [--kinds cpu,gpu] [--only gsched|slurm]

The nodes are drained, the jobs are submitted (nothing can start), the nodes are resumed: the clock
and the meter run from there to the moment when the queue is empty. So submission costs are left
out on both sides, and all jobs wait before the first one starts. CPU time is that of all processes
of a side: daemons, supervisors, the jobs themselves, accounting; the parts are shown too. As Slurm
waits some seconds before it starts anything after a resume, its rate is counted from its first
start.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field

from sides import NAME, Look, Row, Side, load, open_sides, report, show

KINDS = {"cpu": ["-n1"], "gpu": ["-n1", "--gres=gpu:1"]}
TITLES = {"cpu": "1 CPU each", "gpu": "1 GPU each"}


@dataclass
class Found:
    """Figures of one side and kind, one per run."""

    rate: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def first_start(side: Side, since: float) -> float:
    """When the first job of this run started: the middle of that second."""
    stamps = side.run("squeue", "-h", "-r", "-t", "all", "-n", NAME, "-o", "%S").split()
    found = [time.mktime(time.strptime(s, "%Y-%m-%dT%H:%M:%S")) for s in stamps if s[0] == "2"]
    return min(t for t in found if t >= int(since)) + 0.5


def one_run(side: Side, jobs: int, kind: str, found: Found) -> None:
    script = side.script("true")
    side.drain()
    began = time.time()
    argv = [*KINDS[kind], "--mem=100", "-t", "10", "-o", "/dev/null", script]
    last = max(side.submit_many(jobs, *argv))
    took = time.time() - began
    time.sleep(0.5)
    before, start = Look.at(side.meter), time.time()
    side.resume()
    side.wait_empty(last)
    end, after = time.time(), Look.at(side.meter)
    cpu = before.until(after)
    note = ""
    if side.name == "slurm":
        first = max(first_start(side, start), start)
        note = f", {end - start:.2f} s with the {first - start:.1f} s before the first start"
        start = first
    found.rate.append(jobs / (end - start))
    found.cpu_ms.append(cpu.total / jobs)
    print(
        f"{side.name}, {TITLES[kind]}: {jobs} jobs in {end - start:.2f} s{note}: "
        f"{found.rate[-1]:.1f} jobs/s; {cpu.per(jobs)}; submitted in {took:.2f} s; {load()}",
        flush=True,
    )
    time.sleep(1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kinds", default="cpu,gpu")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    kinds = options.kinds.split(",")

    def measure(side: Side) -> dict[str, Found]:
        results = {kind: Found() for kind in kinds}
        for kind in kinds:
            for _ in range(options.runs):
                one_run(side, options.jobs, kind, results[kind])
        return results

    found = open_sides(options.only, measure)
    rows = []
    for kind in kinds:
        ours, theirs = (found.get(name, {}) for name in ("gsched", "slurm"))
        a = ours.get(kind, Found()) if isinstance(ours, dict) else Found()
        b = theirs.get(kind, Found()) if isinstance(theirs, dict) else Found()
        for what, x, y, goal in (
            (f"{options.jobs} jobs of `true`, {TITLES[kind]}: jobs/s", a.rate, b.rate, ">= 5"),
            ("the same: CPU of all processes, ms a job", a.cpu_ms, b.cpu_ms, "<= 0.2"),
        ):
            ratio = f"{statistics.median(x) / statistics.median(y):.2f}" if x and y else ""
            rows.append(Row(what, show(x) if x else "", show(y) if y else "", ratio, goal))
    report(rows)


if __name__ == "__main__":
    main()
