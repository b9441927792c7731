"""Runs the benchmarks of the README one after the other and writes their table.

    python bench/run_all.py [--out bench/results.md] [SCRIPT ...]

Each script can be run alone; `python bench/NAME.py --help` says how it measures. As root and beside
the shared folder (GSCHED_SHARED, default ../shared) a real Slurm is measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = ("throughput", "latency", "submit_rate", "pending", "agents")
HEAD = "| figure | gsched | Slurm | ratio | goal |\n| --- | --- | --- | --- | --- |\n"


def machine() -> str:
    """One sentence about where this was measured."""
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} CPUs ({found[1] if found else platform.machine()}), {memory:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results.md")
    parser.add_argument("scripts", nargs="*", default=list(SCRIPTS), metavar="SCRIPT")
    options = parser.parse_args()
    rows = Path(tempfile.mkdtemp(prefix="bench-")) / "rows"
    rows.touch()
    loads, failed = [], []
    for name in options.scripts:
        print(f"=== {name}", flush=True)
        loads.append(os.getloadavg()[0])
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py")], env={**os.environ, "BENCH_ROWS": str(rows)}
        )
        if done.returncode:
            failed.append(name)
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
