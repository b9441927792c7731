"""The comparison with golden transcripts: its list of differences, its page, its reading."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("compare_golden")
    finally:
        sys.path.remove(str(ROOT / "tools"))


TRANSCRIPT = """\
# a theme
# file a.sh
#!/bin/sh
# end of file

$ sbatch a.sh
--- stdout
Submitted batch job 7
--- stderr
--- exit 0

$ squeue -j 7
--- stdout
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                 7       gpu     a.sh     root  R       0:03      1 node1
--- stderr
sample: error: a word on stderr
--- exit 1

$ sacct -n -j 7 -o jobid,start,account
--- stdout
7            2026-11-29T13:46:56   research
7.batch      2026-11-29T13:46:56   research
--- stderr
--- exit timeout 60s

"""


def test_page_and_list_are_one(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert tool.with_section(page, tool.load_expected()) == page, (
        "run tools/compare_golden.py --write-docs"
    )


def test_reading(tool: ModuleType) -> None:
    records = tool.text.parse("theme", TRANSCRIPT)
    assert [(record.command, record.exit) for record in records] == [
        ("sbatch a.sh", "0"),
        ("squeue -j 7", "1"),
        ("sacct -n -j 7 -o jobid,start,account", "timeout 60s"),
    ]
    assert records[1].stderr == "sample: error: a word on stderr\n"
    assert records[0].stdout == "Submitted batch job 7\n"


def outcomes(tool: ModuleType, other: str, entries: list[object]) -> list[str]:
    marks = (tool.text.Marks("vm"), tool.text.Marks("vm"))
    found = []
    pairs = zip(tool.text.parse("theme", TRANSCRIPT), tool.text.parse("theme", other), strict=True)
    for number, (left, right) in enumerate(pairs):
        for side, record in zip(marks, (left, right), strict=True):
            side.learn(str(number), tool.text.submitted(record))
        found.append(tool.compare(left, right, marks, entries).verdict)
    return found


def test_ids_and_times_do_not_count_but_widths_do(tool: ModuleType) -> None:
    other = (
        TRANSCRIPT.replace("job 7", "job 1234")
        .replace("-j 7", "-j 1234")
        .replace("                 7 ", "              1234 ")
        .replace("7       ", "1234    ")
        .replace("7.batch   ", "1234.batch")
        .replace("0:03", "0:41")
        .replace("T13:46:56", "T09:11:02")
    )
    # "7.batch" and "1234.batch" fill the same twelve columns.
    other = other.replace("1234.batch      2026", "1234.batch   2026")
    assert outcomes(tool, other, []) == ["equal", "equal", "equal"]
    assert outcomes(tool, TRANSCRIPT.replace("  R  ", "  R   "), []) == [
        *("equal", "different", "equal")
    ]
    assert outcomes(tool, TRANSCRIPT.replace("exit 1\n", "exit 0\n"), []) == [
        *("equal", "different", "equal")
    ]


def test_another_job_counts(tool: ModuleType) -> None:
    other = TRANSCRIPT.replace("                 7 ", "                 8 ")
    assert outcomes(tool, other, []) == ["equal", "different", "equal"]


def test_a_known_difference_hides_no_other(tool: ModuleType) -> None:
    entry = tool.Entry(
        "change",
        tool.re.compile("theme"),
        tool.re.compile("^sacct"),
        "why",
        "section",
        tool.re.compile("research"),
        "(null)",
    )
    changed = TRANSCRIPT.replace("research", "(null)")
    assert outcomes(tool, changed, [entry]) == ["equal", "equal", "known"]
    assert outcomes(tool, changed, []) == ["equal", "equal", "different"]
    worse = changed.replace("timeout 60s", "0")
    assert outcomes(tool, worse, [entry]) == ["equal", "equal", "different"]
