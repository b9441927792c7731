"""Wall time of the commands, as a user's shell sees them, beside Slurm's.

    python bench/commands.py [--runs 25] [--jobs 10,10000] [--only gsched|slurm]

squeue, sinfo, `scontrol show job`, sbatch and scancel, with few and with many jobs waiting. Each
run starts the program anew. The commands take turns, so that what else the machine does falls on
all alike. Jobs wait because the nodes are drained.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time

from sides import Row, Side, load, open_sides, report, show

GOAL = 0.5


def wall_ms(side: Side, argv: list[str]) -> float:
    """One start of a command, from spawn to the end; its output is thrown away."""
    begun = time.perf_counter()
    done = subprocess.run(
        argv,
        env=side.env,
        cwd=side.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    spent = 1000 * (time.perf_counter() - begun)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.decode().strip()}")
    return spent


def measure(side: Side, runs: int, sizes: list[int]) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    side.drain()
    script = side.script("sleep 600")
    jobs: list[int] = []
    for size in sizes:
        jobs += side.submit_many(size - len(jobs), "-n1", "--mem=100", "-t", "10", script)
        one = str(jobs[len(jobs) // 2])
        commands = {
            "squeue": ["squeue"],
            "sinfo": ["sinfo"],
            "scontrol show job": ["scontrol", "show", "job", one],
            "sbatch": ["sbatch", "-n1", "--mem=100", "-t", "10", script],
            "scancel": ["scancel"],
        }
        for run in range(runs + 1):
            for name, argv in commands.items():
                if name == "scancel":
                    argv = ["scancel", str(side.submit("-n1", "--mem=100", script))]
                spent = wall_ms(side, argv)
                if run:
                    found.setdefault((name, size), []).append(spent)
        for name in commands:
            values = found[name, size]
            print(f"{side.name}: {name}, {size} jobs: {show(values)} ms; {load()}", flush=True)
    side.run("scancel", "-u", side.env.get("USER", str(os.getuid())), check=False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--jobs", default="10,10000")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    sizes = sorted(int(word) for word in options.jobs.split(","))
    found = open_sides(options.only, lambda side: measure(side, options.runs, sizes))
    rows = []
    ours, theirs = found.get("gsched", {}), found.get("slurm", {})
    for key in ours or theirs:
        name, size = key
        ratio = ""
        if key in ours and key in theirs:
            ratio = f"{statistics.median(ours[key]) / statistics.median(theirs[key]):.2f}"
        cells = [show(side[key]) if key in side else "" for side in (ours, theirs)]
        rows.append(Row(f"`{name}`, {size:,} jobs, ms", *cells, ratio, f"<= {GOAL}"))
    report(rows)


if __name__ == "__main__":
    main()
