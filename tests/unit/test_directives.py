"""`#SBATCH` lines: each expectation was read off `sbatch -vv` of a real Slurm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.request import Refusal
from gsched_cli import directives
from gsched_cli.getopt import UsageError


def said(*lines: str) -> list[tuple[str, str | None]]:
    script = "\n".join(("#!/bin/bash", *lines, "true", "")).encode()
    (said,) = directives.sbatch_lines(script, "e.sh")
    return [(option.name, text) for option, text in said]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('#SBATCH -J "two words" # trailing', [("job-name", "two words")]),
        ("#SBATCH --comment='it''s'", [("comment", "its")]),
        (
            '#SBATCH -J a\'b c\'d"e f" --comment="x # y" --mail-user=u#v',
            [("job-name", "ab cde f"), ("comment", "x # y"), ("mail-user", "u")],
        ),
        ("#SBATCH\t-J tab", [("job-name", "tab")]),
        ("#SBATCH-J glued", [("job-name", "glued")]),
        ('#SBATCH --comment="a\\"b"', [("comment", 'a"b')]),
        ("#SBATCH --comment='a\"b' -J \"x'y\"", [("comment", 'a"b'), ("job-name", "x'y")]),
        ("#SBATCH -J a #c' d", [("job-name", "a")]),
        ("#SBATCH -n 2 \\", [("ntasks", "2")]),
        ("#SBATCH -J a\\\\b", [("job-name", "a\\b")]),
        ("#SBATCH --comment=a\\nb", [("comment", "anb")]),
        ("#SBATCH --comm=abbrev", [("comment", "abbrev")]),
        ("#SBATCH --job-name x1 --time 5", [("job-name", "x1"), ("time", "5")]),
        ("#SBATCH #comment -J x", []),
        ("#SBATCH", []),
        ("#SBATCH --comment='multi # hash' # don't", [("comment", "multi # hash")]),
        ("#SBATCH --array=1-3 # foo (don't)", [("array", "1-3")]),
        ('#SBATCH --comment="" -n 2', [("comment", ""), ("ntasks", "2")]),
        ("##SBATCH -J commented", []),
        ("# SBATCH -J spaced", []),
        (" #SBATCH -J indented", []),
        ("#SBATCH --help", []),
        ("#SBATCH --wrap=foo", []),
        ("#SBATCH -t 30 -t 40", [("time", "30"), ("time", "40")]),
    ],
)
def test_one_line(line: str, expected: list[tuple[str, str | None]]) -> None:
    assert said(line) == expected


@pytest.mark.parametrize("line", ["  # said by hand", "\t#SBATCH -J other", " ##SBATCH -J other"])
def test_a_comment_after_blanks_is_no_command_and_no_directive(line: str) -> None:
    # Seen on Slurm 22.05: what follows still counts, what stands in it does not.
    assert said(line, "#SBATCH -J name", "true") == [("job-name", "name")]


def test_lines_count_up_to_the_first_command() -> None:
    lines = ("   ", "# a remark", "#SBATCH -n 2", "", "echo", "#SBATCH -n 3")
    assert said(*lines) == [("ntasks", "2")]


@pytest.mark.parametrize(
    ("line", "sentence", "code", "kind"),
    [
        (
            '#SBATCH -J "unterminated',
            'e.sh: line 2: Unmatched `"` in [ "unterminated]',
            1,
            "fatal",
        ),
        # Slurm 22.05 names what is left from the end of the last whole word on.
        *(
            (f"#SBATCH{line}", f"e.sh: line 2: Unmatched `{quote}` in [{rest}]", 1, "fatal")
            for line, quote, rest in (
                (' -J a -n 2 --comment="open x', '"', ' --comment="open x'),
                ("  -J    'x", "'", "    'x"),
                (' -J "a b" c"d', '"', ' c"d'),
                (" -J don't", "'", " don't"),
                ("   --comment='open", "'", "--comment='open"),
            )
        ),
        ("#SBATCH foo -n 4", "Invalid directive found in batch script: foo", 255, "error"),
        ("#SBATCH -n 4 foo", "Invalid directive found in batch script: foo", 255, "error"),
        ("#SBATCHx -J x", "Invalid directive found in batch script: x", 255, "error"),
        ("#SBATCH -J 'a' b -n 3", "Invalid directive found in batch script: b", 255, "error"),
        ("#SBATCH --wckey=a\\ b", "Invalid directive found in batch script: b", 255, "error"),
        ("#SBATCH -- -n 4", "Invalid directive found in batch script: -n", 255, "error"),
    ],
)
def test_lines_that_are_refused(line: str, sentence: str, code: int, kind: str) -> None:
    with pytest.raises(Refusal) as caught:
        said(line)
    assert (caught.value.lines, caught.value.code, caught.value.kind) == ((sentence,), code, kind)


def test_unknown_options_are_the_walks_to_complain_about() -> None:
    with pytest.raises(UsageError, match="unrecognized option '--nosuch'"):
        said("#SBATCH --nosuch")


def foreign(*lines: str) -> list[tuple[str, str | None]]:
    script = "\n".join(("#!/bin/bash", *lines, "true", "")).encode()
    return [(option.name, text) for option, text in directives.foreign_lines(script, "e.sh")]


def test_pbs() -> None:
    assert foreign("#PBS -N pbsname", "#PBS -l walltime=00:10:00", "#PBS -l nodes=2:ppn=4") == [
        ("job-name", "pbsname"),
        ("time", "00:10:00"),
        ("nodes", "2"),
        ("ntasks-per-node", "4"),
    ]
    assert foreign("true", "#PBS -N late") == [("job-name", "late")]
    assert foreign("#PBS -zz", "#PBS -j oe", "#PBS -o h:/o") == [("output", "/o")]


@pytest.mark.parametrize(
    ("line", "remark", "sentence"),
    [
        ("#PBS -Z", "invalid option -- 'Z'", ""),
        ("#PBS -hZ", "invalid option -- 'Z'", ""),
        ("#PBS -N", "option requires an argument -- 'N'", ""),
        ("#PBS -d /tmp", "invalid option -- 'd'", ""),
        ("#PBS -P proj", "invalid option -- 'P'", ""),
        ("#PBS --long", "unrecognized option '--long'", ""),
        ("#PBS -N a foo", "", "Invalid argument: foo"),
        ('#BSUB -R "span[hosts=1]"', "invalid option -- 'R'", ""),
        ("#BSUB -u a@b", "invalid option -- 'u'", ""),
        ("#BSUB -J", "option requires an argument -- 'J'", ""),
        ("#BSUB foo", "", "Invalid argument: foo"),
    ],
)
def test_what_slurm_does_not_know_of_pbs_and_lsf(line: str, remark: str, sentence: str) -> None:
    """As Slurm 22.05 answered: it exits with 1."""
    with pytest.raises(Refusal) as found:
        foreign(line)
    assert found.value.remark == (f"sbatch: {remark}" if remark else "")
    assert found.value.lines == (sentence or "Unrecognized command line parameter ?",)
    assert found.value.code == 1


def test_letters_of_pbs_and_lsf_without_a_meaning_here() -> None:
    for line in ("-k oe", "-c n", "-C x", "-I", "-W depend=afterok:1", "-u root", "-S /bin/sh"):
        assert foreign(f"#PBS {line}") == []
    assert foreign("#PBS -p 5") == [("nice", "5")]
    assert foreign("#PBS -l nodes=node1+node2") == [("nodelist", "node1,node2")]
    assert foreign("#PBS -l mem=1b") == [("mem", "1M")]
    assert foreign("#BSUB -n 2,4") == [("ntasks", "4")]
    assert foreign("#BSUB -cwd /tmp", "#BSUB -m node1") == [
        ("chdir", "/tmp"),
        ("nodelist", "node1"),
    ]


def test_bsub_comes_last() -> None:
    assert foreign("#BSUB -J bsub -W 1:30 -x", "#PBS -N pbs") == [
        ("job-name", "pbs"),
        ("job-name", "bsub"),
        ("time", "1:30:00"),
        ("exclusive", None),
    ]


@pytest.mark.parametrize(
    ("script", "first"),
    [
        (b"", "Batch script is empty!"),
        (b"   \n\n", "Batch script contains only whitespace!"),
        (b"echo hi\n", "This does not look like a batch script.  The first"),
        (b"\n#!/bin/sh\n", "This does not look like a batch script.  The first"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "This does not look like a batch script.  The first"),
        (b"#!/bin/sh\r\ntrue\r\n", "Batch script contains DOS line breaks (\\r\\n)"),
        (b"#!/bin/sh\n\0\n", "The Slurm controller does not allow scripts that"),
        (b"\0#!/bin/sh\n", "Batch script contains only whitespace!"),
    ],
)
def test_scripts_that_are_none(script: bytes, first: str) -> None:
    with pytest.raises(Refusal) as caught:
        directives.check_script(script)
    assert caught.value.lines[0] == first
    assert caught.value.code == 1


@pytest.mark.parametrize("script", [b"#!/bin/bash", b"#!", b"#!/usr/bin/env python3\n#x\n"])
def test_scripts_that_are(script: bytes) -> None:
    directives.check_script(script)


@given(st.text(alphabet=st.sampled_from("ab'\"\\# =-\tn"), max_size=30))
def test_any_line_is_split_or_refused(text: str) -> None:
    try:
        words = directives.split(text, "f", 1)
    except Refusal as problem:
        assert "Unmatched" in problem.lines[0]
    else:
        assert sum(map(len, words)) <= len(text)


@given(st.binary(max_size=200))
def test_any_script_is_read_or_refused(body: bytes) -> None:
    script = b"#!/bin/sh\n#SBATCH " + body
    for read in (directives.sbatch_lines, directives.foreign_lines):
        try:
            read(script, "f")
        except (Refusal, UsageError) as problem:
            assert str(problem)


def test_hetjob_parts_the_components_of_a_heterogeneous_job() -> None:
    script = b"#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2 -J b\n#SBATCH packjob\ntrue\n"
    components = directives.sbatch_lines(script, "e.sh")
    assert [[(option.name, text) for option, text in one] for one in components] == [
        [("ntasks", "1")],
        [("ntasks", "2"), ("job-name", "b")],
        [],
    ]
