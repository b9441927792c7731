"""From `sbatch` to the job's first instruction on an idle cluster, beside Slurm.

    python bench/latency.py [--runs 15] [--gap 4] [--only gsched|slurm]

The job writes bash's clock as its first command. Two times are taken: from the return of sbatch
(the figure of the table) and from its call. `--gap` seconds of rest lie before each submission:
Slurm delays the start of jobs that follow one another within 3 s. A job that started before sbatch
had returned counts as 0 ms.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from sides import Row, Side, load, open_sides, report, show


@dataclass
class Found:
    """Milliseconds."""

    after_return: list[float] = field(default_factory=list)
    after_call: list[float] = field(default_factory=list)


def measure(side: Side, runs: int, gap: float) -> Found:
    found = Found()
    stamp = Path(side.work) / "stamp"
    script = side.script(
        f"printf %s $EPOCHREALTIME > {stamp}.new; mv {stamp}.new {stamp}", "/bin/bash"
    )
    for run in range(runs + 1):
        time.sleep(gap)
        stamp.unlink(missing_ok=True)
        called = time.time()
        job = side.submit("-n1", "--mem=100", "-t", "10", "-o", "/dev/null", script)
        returned = time.time()
        while not stamp.exists():
            if time.time() - returned > 120:
                raise TimeoutError(f"job {job} did not start within 120 s")
            time.sleep(0.001)
        started = float(stamp.read_text())
        side.wait_empty(job, poll=0.05)
        if run:  # the first one warms files and caches up
            found.after_return.append(1000 * (started - returned))
            found.after_call.append(1000 * (started - called))
    for name, values in (("return", found.after_return), ("call", found.after_call)):
        print(f"{side.name}: {name} of sbatch to start: {show(values)} ms; {load()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--gap", type=float, default=4.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    found = open_sides(options.only, lambda side: measure(side, options.runs, options.gap))
    rows = []
    for what, name, goal in (
        ("`sbatch` returning to the job's first instruction, ms", "after_return", "<= 0.05"),
        ("`sbatch` called to the job's first instruction, ms", "after_call", ""),
    ):
        values = {side: getattr(f, name) for side, f in found.items()}
        ratio = ""
        if len(values) == 2:
            ours = max(0.0, statistics.median(values["gsched"]))
            ratio = f"{ours / statistics.median(values['slurm']):.3f}"
        cells = [show(values[side]) if side in values else "" for side in ("gsched", "slurm")]
        rows.append(Row(what, cells[0], cells[1], ratio, goal))
    report(rows)


if __name__ == "__main__":
    main()
