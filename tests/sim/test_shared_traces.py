"""Traces of real clusters, where they are at hand: the mean waits that others have found.

A pool of GPUs that are all alike is one node of so many CPUs here: on it FIFO and EASY leave no
choice, so that their waits can be compared to the digit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gsched.local.command import group


@pytest.mark.shared
@pytest.mark.parametrize(
    ("trace", "size", "fifo", "easy"),
    [
        ("philly-vc/philly_2869ce.csv.gz", 80, "28.2", "19.2"),
        ("philly-vc/philly_103959.csv.gz", 32, "43.0", "31.0"),
        ("muri/trace3.csv.gz", 80, "70.8", "32.7"),
    ],
)
def test_mean_waits_in_hours(shared: Path, trace: str, size: int, fifo: str, easy: str) -> None:
    words = ["sim", str(shared / "traces" / trace), "--processors", "cpu", "-q", "--json"]
    words += ["--nodes", f"1:cpus={size}", "--scheduler", "fifo", "--compare", "easy"]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    found = [f"{one['wait_s']['mean'] / 3600:.1f}" for one in json.loads(result.stdout)]
    assert found == [fifo, easy]


@pytest.mark.shared
def test_a_third_partys_trace_runs_to_its_end(shared: Path) -> None:
    """Batsim's: 801 jobs on 32 machines; its own EASY schedule ends after 16,088.5 s as well."""
    words = ["sim", str(shared / "traces/batsim/medium_late_easy.csv.gz"), "-q", "--json"]
    result = CliRunner().invoke(group, [*words, "--processors", "cpu", "--nodes", "1:cpus=32"])
    found = json.loads(result.stdout)
    assert found["states"] == {"COMPLETED": 801}
    assert found["makespan_s"] == pytest.approx(16_088.5, abs=1)
