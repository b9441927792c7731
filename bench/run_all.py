"""Runs the benchmarks of the README one after the other and writes their table.

    python bench/run_all.py [--quick] [--out bench/results.md] [SCRIPT ...]

All takes some 25 minutes beside a real Slurm, --quick (fewer runs, data files untouched) some 8.
A script that fails or does not end is named at the end; the others are run all the same.

Each script can be run alone; `python bench/NAME.py --help` says how it measures. As root and beside
the shared folder (GSCHED_SHARED, default ../shared) a real Slurm is measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sides import machine

HERE = Path(__file__).resolve().parent
#: script -> its options with --quick
SCRIPTS = {
    "core_speed": ["--quick"],
    "yardsticks": ["--quick"],
    "throughput": ["--runs", "1", "--jobs", "400"],
    "latency": ["--runs", "5"],
    "submit_rate": ["--runs", "1", "--slurm-jobs", "200"],
    "commands": ["--runs", "8", "--jobs", "10,1000"],
    "steps": ["--runs", "8", "--mb", "512"],
    "pending": ["--jobs", "20000", "--seconds", "10", "--restarts", "1"],
    "agents": ["--seconds", "20"],
    "controller_cpu": ["--runs", "1", "--fill", "30"],
}
#: seconds after which a script is given up
PATIENCE_S = 900
HEAD = "| figure | gsched | Slurm | ratio | goal |\n| --- | --- | --- | --- | --- |\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results.md")
    parser.add_argument("--quick", action="store_true", help="fewer runs of everything")
    parser.add_argument("scripts", nargs="*", default=list(SCRIPTS), metavar="SCRIPT")
    options = parser.parse_args()
    rows = Path(tempfile.mkdtemp(prefix="bench-")) / "rows"
    rows.touch()
    loads, failed = [], []
    for name in options.scripts:
        print(f"=== {name}", flush=True)
        loads.append(os.getloadavg()[0])
        argv = [sys.executable, str(HERE / f"{name}.py")]
        argv += SCRIPTS.get(name, []) if options.quick else []
        with subprocess.Popen(argv, env={**os.environ, "BENCH_ROWS": str(rows)}) as process:
            try:
                if process.wait(PATIENCE_S):
                    failed.append(name)
            except subprocess.TimeoutExpired:
                # As at a terminal: the script takes down what it has started.
                process.send_signal(signal.SIGINT)
                failed.append(f"{name} (did not end)")
    loads.append(os.getloadavg()[0])
    text = (
        f"{HEAD}{rows.read_text()}\n{machine()}; {time.strftime('%Y-%m-%d')}; load average between "
        f"the scripts {min(loads):.1f} to {max(loads):.1f}. Median (least..most).\n"
    )
    options.out.write_text(text)
    print(f"\n{text}\n(written to {options.out})")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
