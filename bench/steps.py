"""Steps inside a job, beside Slurm's.

    python bench/steps.py [--runs 25] [--mb 2048] [--only gsched|slurm]

One job holds an idle allocation of 4 nodes, and its script, which runs on the first node, times
what users do there: one `srun true` after another, 100 of them in a row, 64 tasks on 4 nodes (until
the last task has started), and how fast a step's output comes through `srun ... > /dev/null`.
Besides, how much memory the supervisor of a step keeps resident.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from sides import Row, Side, load, open_sides, report, rss_mb, show

#: what the job runs: writes one JSON list of numbers
BODY = """
import json, os, subprocess, sys, time
runs, megabytes, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
found = {}

def timed(argv, **more):
    begun = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, **more)
    return time.perf_counter() - begun

one = ["srun", "-N1", "-n1", "-c1", "--overlap", "true"]
timed(one)
found["one"] = [1000 * timed(one) for _ in range(runs)]
begun = time.perf_counter()
for _ in range(100):
    timed(one)
found["hundred"] = [100 / (time.perf_counter() - begun)]
many = ["srun", "-N4", "-n64", "--overlap", "sh", "-c", "date +%s.%N"]
found["many"] = []
for run in range(max(3, runs // 5) + 1):
    begun = time.time()
    done = subprocess.run(many, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    stamps = [float(line) for line in done.stdout.split()]
    assert len(stamps) == 64, len(stamps)
    if run:
        found["many"].append(1000 * (max(stamps) - begun))
pour = [*one[:-1], "dd", "if=/dev/zero", "bs=1M", f"count={megabytes}", "status=none"]
with open(os.devnull, "wb") as null:
    found["pour"] = [megabytes / timed(pour, stdout=null) for _ in range(3)]
sleeper = subprocess.Popen([*one[:-1], "sleep", "3"], stdin=subprocess.DEVNULL)
time.sleep(1.5)
open(out + ".look", "w").close()
sleeper.wait()
with open(out + ".new", "w") as file:
    json.dump(found, file)
os.rename(out + ".new", out)
"""
NAMES = {"gsched": "stepd", "slurm": "slurmstepd"}


def supervisors(name: str) -> dict[int, float]:
    """Resident MB of every living process of that name."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                found[int(entry.name)] = rss_mb(int(entry.name))
        except OSError:
            continue
    return found


def measure(side: Side, runs: int, megabytes: int) -> dict[str, list[float]]:
    out = side.work / "found.json"
    program = side.work / "measure.py"
    program.write_text(BODY)
    script = side.script(f"exec python3 {program} {runs} {megabytes} {out}")
    log = side.work / "log"
    before = supervisors(NAMES[side.name])
    side.submit("-N4", "-n64", "--ntasks-per-node=16", "-t", "30", "-o", str(log), script)
    until = time.monotonic() + 600
    memory: list[float] = []
    look = Path(f"{out}.look")
    while not out.exists():
        if time.monotonic() > until or (log.exists() and "Traceback" in log.read_text()):
            raise RuntimeError(f"{side.name}: {log.read_text() if log.exists() else 'no job'}")
        if look.exists() and not memory:
            now = supervisors(NAMES[side.name])
            memory = [size for pid, size in now.items() if pid not in before]
        time.sleep(0.05)
    found: dict[str, list[float]] = json.loads(out.read_text())
    found["memory"] = [max(memory)] if memory else []
    for name, values in found.items():
        print(f"{side.name}: {name}: {show(values) if values else '-'}; {load()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--mb", type=int, default=2048, help="poured through one step")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    found = open_sides(options.only, lambda side: measure(side, options.runs, options.mb))
    rows = []
    for name, what, goal in (
        ("one", "`srun true` in an idle allocation, ms", "<= 1"),
        ("hundred", "steps one after another in a job, per second", ">= 3"),
        ("many", "64 tasks on 4 nodes, `srun` called to the last one's start, ms", "<= 1"),
        ("pour", "output of one step through `srun > /dev/null`, MB/s", ">= 500 MB/s or 2"),
        ("memory", "resident memory of the largest supervisor of a step, MB", "<= 5 MB"),
    ):
        values = {side: result[name] for side, result in found.items() if result.get(name)}
        ratio = ""
        if len(values) == 2:
            middle = {side: statistics.median(values[side]) for side in values}
            ratio = f"{middle['gsched'] / middle['slurm']:.2f}"
        cells = [show(values[side]) if side in values else "" for side in ("gsched", "slurm")]
        rows.append(Row(what, *cells, ratio, goal))
    report(rows)


if __name__ == "__main__":
    main()
