"""The yardsticks for policies, with the shared folder's evaluators: what they say of ours.

    python bench/yardsticks.py [--json bench/results/yardsticks.json] [--quick]

Fragmentation: share of the GPUs allocated when 130 % of them were asked for, task lists streamed
one task at a time (no look-ahead), for DENSE_FIT, FGD and first fit. Queue: mean wait of EASY and
conservative beside that of the evaluator's own EASY and conservative on the same trace; every
schedule must pass its checker. Deterministic: the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from sides import BIN, SHARED, Row, report

HERE = Path(__file__).resolve().parent
FGD, QUEUE = SHARED / "bench" / "fgd" / "fgd_eval.py", SHARED / "bench" / "queue" / "queue_eval.py"
OPENB = SHARED / "traces" / "openb"
PLACING = ("dense-fit", "fgd", "first-fit")
#: trace, GPUs: sizes at which queues form and drain
TRACES = (
    ("philly-vc/philly_7f04ca", 208), ("philly-vc/philly_2869ce", 80),
    ("philly-vc/philly_103959", 32), ("philly-vc/philly_6c71a0", 160), ("muri/trace1", 232),
    ("muri/trace3", 80), ("batsim/medium_late_easy", 32),
)  # fmt: skip
#: too deep for the evaluator's own conservative
DEEP = ("philly_6c71a0",)


@cache
def python() -> str:
    """An interpreter that has what the evaluators need. RuntimeError where there is none."""
    for name in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if (
            name
            and not subprocess.run([name, "-c", "import numpy"], capture_output=True).returncode
        ):
            return name
    raise RuntimeError("the evaluators need a Python with numpy")


def lines(argv: list[str]) -> list[dict[str, object]]:
    """The JSON lines that an evaluator prints. RuntimeError with its complaint."""
    done = subprocess.run(argv, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {(done.stderr or done.stdout)[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def allocation(workload: str, policy: str, seeds: str) -> float:
    """Mean per cent over the seeds."""
    program = f"{BIN}/gsched yardstick fgd {{dir}} --policy {policy}"
    argv = [python(), str(FGD), "stream", "--data", str(OPENB), "--workload", workload]
    runs = lines([*argv, "--seeds", seeds, "--cmd", program])
    assert runs and all(run["valid"] for run in runs), runs
    return sum(float(run["alloc"]["130"]) for run in runs) / len(runs)  # type: ignore[index]


def waits(trace: str, gpus: int, policy: str) -> tuple[float, float]:
    """(ours, the evaluator's own), seconds; the second is 0 where it is not made."""
    path = str(SHARED / "traces" / f"{trace}.csv.gz")
    about = ["--trace", path, "--gpus", str(gpus), "--policy", policy]
    program = f"{BIN}/gsched yardstick queue {{dir}} --policy {policy}"
    ours = lines([python(), str(QUEUE), "adapter", *about, "--cmd", program])[0]
    assert ours["valid"], ours
    if policy == "conservative" and trace.rpartition("/")[2] in DEEP:
        return float(str(ours["mean_wait"])), 0.0
    theirs = lines([python(), str(QUEUE), "run", *about])[0]
    return float(str(ours["mean_wait"])), float(str(theirs["mean_wait"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "yardsticks.json")
    parser.add_argument("--quick", action="store_true", help="one seed, the default list, 3 traces")
    options = parser.parse_args()
    if not FGD.exists() or not QUEUE.exists():
        print(f"no yardsticks here: {FGD} does not exist", flush=True)
        return 0
    lists = [p.name.split("pod_list_")[1].split(".")[0] for p in sorted(OPENB.glob("*pod_list_*"))]
    placing: dict[str, dict[str, float]] = {}
    for workload in ["default"] if options.quick else lists:
        seeds = "42-51" if workload == "default" and not options.quick else "42-44"
        found = {p: allocation(workload, p, "42" if options.quick else seeds) for p in PLACING}
        placing[workload] = {name: round(value, 2) for name, value in found.items()}
        print(f"{workload}: {placing[workload]}", flush=True)
    queue: dict[str, dict[str, list[float]]] = {}
    for trace, gpus in TRACES[:3] if options.quick else TRACES:
        queue[trace] = {}
        for policy in ("easy", "conservative"):
            ours, theirs = waits(trace, gpus, policy)
            queue[trace][policy] = [round(ours, 1), round(theirs, 1)]
        print(f"{trace}: mean waits, ours and the reference's: {queue[trace]}", flush=True)
    if not options.quick:
        about = {"date": time.strftime("%Y-%m-%d"), "allocation_at_130": placing, "waits_s": queue}
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    best, fgd, first = (placing["default"][name] for name in PLACING)
    worse = [name for name, found in placing.items() if found["dense-fit"] < found["fgd"]]
    longer = [
        f"{trace} {policy}"
        for trace, found in queue.items()
        for policy, (ours, theirs) in found.items()
        if theirs and ours > theirs * 1.000001
    ]
    report(
        [
            Row("GPUs allocated at 130 % demand, FGD policy, %", f"{fgd}", "", "", ">= 95.3"),
            Row("the same, DENSE_FIT (the default for shares)", f"{best}", "", "", ">= 95.5"),
            Row("the same, first fit", f"{first}", "", "", ""),
            Row(
                f"task lists of {len(placing)} on which DENSE_FIT is below FGD",
                f"{len(worse)}", "", "", "0",
            ),
            Row(
                f"traces and policies of {2 * len(queue)} with a mean wait above the reference's",
                f"{len(longer)}", "", "", "0",
            ),
        ]
    )  # fmt: skip
    if worse or longer:
        print(f"worse: {', '.join(worse + longer)}", file=sys.stderr)
    return 1 if worse or longer else 0


if __name__ == "__main__":
    sys.exit(main())
