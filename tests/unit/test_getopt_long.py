"""getopt_long's grammar and messages, as the C library's manual and commands built on it show."""

from __future__ import annotations

import pytest

from gsched_cli.getopt_long import Arg, OptionError, parse
from gsched_cli.text import duration, elapsed, megabytes

LONG = {
    "all": (Arg.NO, "a"),
    "format": (Arg.YES, "o"),
    "jobs": (Arg.MAYBE, "j"),
    "node": (Arg.YES, "w"),
    "nodes": (Arg.YES, "w"),
    "noheader": (Arg.NO, "h"),
}


def read(*argv: str) -> tuple[list[tuple[str, str | None]], list[str]]:
    return parse(argv, "ahj::o:w:", LONG)


def test_options_and_operands_may_be_mixed() -> None:
    assert read("x", "-ah", "y", "--", "-a") == ([("a", None), ("h", None)], ["x", "y", "-a"])
    assert read("-") == ([], ["-"])


def test_values() -> None:
    assert read("-ofoo", "-o", "bar", "-o", "") == (
        [("o", "foo"), ("o", "bar"), ("o", "")],
        [],
    )
    assert read("-aofoo") == ([("a", None), ("o", "foo")], [])
    assert read("--format=a=b", "--form", "c") == ([("o", "a=b"), ("o", "c")], [])


def test_optional_values_are_never_the_next_word() -> None:
    assert read("-j", "5") == ([("j", None)], ["5"])
    assert read("-j5", "--jobs=6", "--jobs", "7") == (
        [("j", "5"), ("j", "6"), ("j", None)],
        ["7"],
    )


def test_two_names_of_one_option_are_not_ambiguous() -> None:
    assert read("--nod", "x") == ([("w", "x")], [])


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-x"], "invalid option -- 'x'"),
        (["-o"], "option requires an argument -- 'o'"),
        (["--format"], "option '--format' requires an argument"),
        (["--all=1"], "option '--all' doesn't allow an argument"),
        (["--nosuch=1"], "unrecognized option '--nosuch=1'"),
        (
            ["--no"],
            "option '--no' is ambiguous; possibilities: '--node' '--nodes' '--noheader'",
        ),
    ],
)
def test_messages(argv: list[str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(*argv)
    assert str(caught.value) == text


def test_times_and_sizes_as_in_the_transcripts() -> None:
    assert [elapsed(n) for n in (7, 300, 3600, 604800)] == ["0:07", "5:00", "1:00:00", "7-00:00:00"]
    assert [duration(n) for n in (0, 1200, 604800)] == ["00:00:00", "00:20:00", "7-00:00:00"]
    assert elapsed(-1) == "INVALID"
    sizes = {0: "0", 2000: "2000M", 8000: "8000M", 3072: "3G", 64000: "62.50G", 256000: "250G"}
    assert {mb: megabytes(mb) for mb in sizes} == sizes
    assert megabytes(3072, convert=False) == "3072M"
