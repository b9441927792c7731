"""Wall time of the commands, as a user's shell sees them, beside Slurm's.

    python bench/commands.py [--runs 25] [--jobs 10,10000] [--only gsched|slurm] [--ahead]
                             [--json bench/results/commands.json]

squeue, sinfo, `scontrol show job`, sbatch and scancel, with few and with many jobs waiting. Each
run starts the program anew. The commands take turns, so that what else the machine does falls on
all alike, and so that a few jobs are others whenever squeue is called. "In a new format" is a
report that nobody has asked for before. Jobs wait because the nodes are drained. --ahead: both
sides and their commands have real-time priority, so that other work on the machine hardly counts
(as root).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

from sides import Row, Side, load, machine, open_sides, report, show

GOAL = 0.5
HERE = Path(__file__).resolve().parent
#: as squeue shows it without options
FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
NEW = "squeue in a new format"
#: runs of each side that are worth keeping
ENOUGH = 15


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
            NEW: ["squeue"],
            "sinfo": ["sinfo"],
            "scontrol show job": ["scontrol", "show", "job", one],
            "sbatch": ["sbatch", "-n1", "--mem=100", "-t", "10", script],
            "scancel": ["scancel"],
        }
        for run in range(runs + 1):
            for name, argv in commands.items():
                if name == "scancel":
                    argv = ["scancel", str(side.submit("-n1", "--mem=100", script))]
                if name == NEW:
                    argv = ["squeue", "-o", f"{FORMAT} {size}.{run}"]
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
    parser.add_argument("--ahead", action="store_true", help="real-time priority for both sides")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "commands.json")
    options = parser.parse_args()
    if options.ahead:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    before = load()
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
        rows.append(Row(f"{_shown(name)}, {size:,} jobs, ms", *cells, ratio, f"<= {GOAL}"))
    report(rows)
    if ours and theirs and options.runs >= ENOUGH:
        about = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "load": f"{before} before, {load()} after",
            "real-time priority": options.ahead,
            "unit": "milliseconds from the start of a command to its end",
            "runs": options.runs,
        }
        about |= {name: _values(side) for name, side in (("gsched", ours), ("slurm", theirs))}
        options.json.write_text(json.dumps(about, indent=1) + "\n")


def _shown(name: str) -> str:
    return "`squeue` in a new format" if name == NEW else f"`{name}`"


def _values(side: dict[tuple[str, int], list[float]]) -> dict[str, list[float]]:
    return {
        f"{name}, {size} jobs": [round(value, 2) for value in sorted(values)]
        for (name, size), values in side.items()
    }


if __name__ == "__main__":
    main()
