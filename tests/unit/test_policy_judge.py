"""What tools/compare_policies.py calls a known difference: no more than is known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def tool() -> Any:
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module("policy_judge")
    finally:
        sys.path.remove(str(TOOLS))


def outcome(tool: Any, text: str) -> Any:
    if text.startswith("exit"):
        return tool.Outcome(refusal=text)
    state, _, reason = text.partition(" ")
    return tool.Outcome("", state, reason)


def verdicts(tool: Any, *jobs: tuple[str, str, str, str, str], spent: bool = False) -> list[str]:
    """Of jobs: options; outcome and places with Slurm; outcome and places here."""
    asked = [tool.Submission("ana", tuple(job[0].split())) for job in jobs]
    sides = []
    for at in (1, 3):
        found = [outcome(tool, job[at]) for job in jobs]
        places = [job[at + 1] for job in jobs]
        ids = [str(number) for number in range(len(jobs))]
        sides.append(tool.Seen([], ids, found, places, spent=spent and at == 3))
    judged = tool.judge(asked, *sides, tool.load_expected())
    return [verdict for verdict, _ in judged]


RUN, ROOM = "RUNNING ", "PENDING Resources"
REFUSED = (
    "exit 1: sbatch: error: Batch job submission failed: "
    "Requested node configuration is not available"
)


def test_a_job_that_waits_on_one_side_alone_is_a_difference(tool: Any) -> None:
    """Where all others are on the same nodes, and nobody waits ahead, there is no reason for it."""
    same = ("-n4", RUN, "node1 4 8000 0", RUN, "node1 4 8000 0")
    late = ("-n8", RUN, "node1 8 16000 0", ROOM, "")
    assert verdicts(tool, same, late) == ["equal", "different"]


def test_with_other_nodes_there_is_room_for_others(tool: Any) -> None:
    other = ("-n4", RUN, "node1 4 8000 0", RUN, "node2 4 8000 0")
    late = ("-n8", RUN, "node1 8 16000 0", ROOM, "")
    assert verdicts(tool, other, late) == ["equal", "known"]


def test_behind_a_job_that_waits_more_starts_here(tool: Any) -> None:
    """And never less: Slurm's backfill keeps whole nodes for those ahead."""
    head = ("-n16", ROOM, "", ROOM, "")
    more = ("-n1", ROOM, "", RUN, "node4 1 2000 0")
    less = ("-n1", RUN, "node4 1 2000 0", ROOM, "")
    assert verdicts(tool, head, more) == ["equal", "known"]
    assert verdicts(tool, head, less) == ["equal", "different"]


def test_minutes_that_are_used_up(tool: Any) -> None:
    job = ("-n1", "PENDING AssocGrpJobsLimit", "", "PENDING AssocGrpCPUMinutesLimit", "")
    assert verdicts(tool, job) == ["different"]
    assert verdicts(tool, job, spent=True) == ["known"]


def test_only_too_few_gpus_for_the_nodes_are_refused_here_alone(tool: Any) -> None:
    assert verdicts(tool, ("-n20 --gpus=1", RUN, "", REFUSED, "")) == ["known"]
    assert verdicts(tool, ("-n20 --gpus=16", RUN, "", REFUSED, "")) == ["different"]
    assert verdicts(tool, ("-n20", ROOM, "", REFUSED, "")) == ["different"]
