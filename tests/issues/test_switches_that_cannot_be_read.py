"""What Slurm takes of --switches, --contiguous with --spread-job, and --segment where there are no
blocks. The answers are those of a real sbatch 22.05 with topology/tree; of --segment the manual
says that it is for blocks."""

from __future__ import annotations

import pytest
from sbatch_support import sbatch
from unit.ledger_support import CONF, Bench

from gsched.model import JobState, Shape

TREE = (
    "SwitchName=s1 Nodes=node[1-2]\nSwitchName=s2 Nodes=node[3-4]\nSwitchName=s0 Switches=s[1-2]\n"
)


def bench() -> Bench:
    return Bench(f"{CONF}TopologyPlugin=topology/tree\n", topology=TREE)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1", 300),
        ("1@", 300),
        ("1@abc", 300),
        ("1@-5", 300),
        ("1@-1", 300),
        ("1@INFINITE", 300),
        ("1@123456789012345678901234567890", 300),
        ("1@5:00", 300),
        ("1@0:30", 30),
        ("1@1:00", 60),
        ("+1", 300),
    ],
)
def test_how_long_it_waits(value: str, shown: int) -> None:
    """Not longer than max_switch_wait, five minutes, whatever is said."""
    made = sbatch("--switches=" + value, "--wrap=true")
    assert made.code == 0, made.err
    spec = made.sent.spec
    job = bench().job(shape=spec.shape, switches=spec.switches, switch_wait=spec.switch_wait)
    assert (job.spec.switches, job.spec.switch_wait) == (1, shown)


@pytest.mark.parametrize("value", ["", "0", "-1", "abc", "@5", "0@5", "1 "])
def test_numbers_that_are_none(value: str) -> None:
    made = sbatch("--switches=" + value, "--wrap=true")
    text = f'sbatch: error: Invalid numeric value "{value.partition("@")[0]}" for --switches.'
    assert (made.err.strip(), made.code) == (text, 1)


def test_side_by_side_and_spread() -> None:
    """Both at once are taken; the nodes lie side by side."""
    made = sbatch("-N2", "--contiguous", "--spread-job", "--wrap=true")
    assert made.code == 0
    b = bench()
    job = b.job(shape=made.sent.spec.shape)
    b.schedule()
    assert [part.node for part in job.alloc] == ["node1", "node2"]


def test_segments_are_for_blocks() -> None:
    """Below switches they mean nothing, also where they do not divide the number of nodes."""
    b = bench()
    job = b.job(shape=Shape(min_nodes=3, segment=2))
    b.schedule()
    assert job.state == JobState.RUNNING
    assert len(job.alloc) == 3
