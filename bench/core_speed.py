"""The core's speed: test_core_speed.py as rows of the table, and as data.

    python bench/core_speed.py [--json bench/results/core_speed.json] [--quick]

CPU time of the thread, medians; `least` is the fastest round. The figures hold for one core of the
machine named; the calibration loop tells how fast that is.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sides import Row, load, machine, report

HERE = Path(__file__).resolve().parent


def measure(quick: bool) -> list[dict[str, object]]:
    """Runs the benchmarks; a row each."""
    with tempfile.TemporaryDirectory(prefix="bench-core-") as folder:
        out = Path(folder) / "out.json"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        argv += [str(HERE / "test_core_speed.py"), "--benchmark-enable", "--benchmark-quiet"]
        argv += ["--benchmark-timer=time.thread_time", f"--benchmark-json={out}"]
        if quick:
            argv += ["-k", "not 100000"]
        subprocess.run(argv, check=True, cwd=HERE)
        found = json.loads(out.read_text())["benchmarks"]
    rows = []
    for one in found:
        about, stats = one["extra_info"], one["stats"]
        each = 1e6 / about["unit"]
        rows.append(
            {
                "what": about["what"],
                "state": about["state"],
                "median_us": round(stats["median"] * each, 4),
                "least_us": round(stats["min"] * each, 4),
                "goal_us": about["goal_us"],
            }
        )
    return rows


def text(us: float) -> str:
    """A time with a fitting unit."""
    if us < 1:
        return f"{1000 * us:.0f} ns"
    return f"{us:.1f} us" if us < 1000 else f"{us / 1000:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "core_speed.json")
    parser.add_argument("--quick", action="store_true", help="leave out 100,000 nodes")
    options = parser.parse_args()
    before = load()
    rows = measure(options.quick)
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "load": f"{before} before, {load()} after",
        "unit": "microseconds of CPU time of one core; median and least of the rounds",
        "rows": rows,
    }
    if not options.quick:
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    late = []
    for row in rows:
        goal, took = float(str(row["goal_us"])), float(str(row["median_us"]))
        nodes = re.match(r"([\d,]+) nodes?\b", str(row["state"]))
        where = f"core, {nodes[0]}: " if nodes else "core, "
        report(
            [Row(where + str(row["what"]), text(took), "", "", f"<= {text(goal)}" if goal else "")]
        )
        if goal and took > goal:
            late.append(str(row["what"]))
    if late:
        print(f"over the goal: {'; '.join(late)}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
