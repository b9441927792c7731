"""The walk over a command line: what getopt_long does and says, as sbatch showed it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched_cli.getopt import UsageError, walk
from gsched_cli.options import BY_NAME, BY_SHORT, OPTIONS


def words(*argv: str) -> tuple[list[tuple[str, str | None]], list[str]]:
    said, rest = walk(argv)
    return [(option.name, text) for option, text in said], rest


@pytest.mark.parametrize(
    "argv", [("-N2",), ("-N", "2"), ("--nodes=2",), ("--nodes", "2"), ("--nodes", "2", "--")]
)
def test_one_value_in_every_spelling(argv: tuple[str, ...]) -> None:
    assert words(*argv) == ([("nodes", "2")], [])


def test_bundled_flags_and_a_value_at_the_end() -> None:
    assert words("-HsN2") == ([("hold", None), ("oversubscribe", None), ("nodes", "2")], [])


def test_optional_values_are_glued_or_absent() -> None:
    assert words("--exclusive", "user") == ([("exclusive", None)], ["user"])
    assert words("--exclusive=user") == ([("exclusive", "user")], [])
    assert words("-koff") == ([("no-kill", "off")], [])
    assert words("-k", "off") == ([("no-kill", None)], ["off"])


def test_options_end_at_the_script() -> None:
    assert words("-H", "a.sh", "-n", "5") == ([("hold", None)], ["a.sh", "-n", "5"])
    assert words("-H", "--", "-x.sh", "-n") == ([("hold", None)], ["-x.sh", "-n"])
    assert words("-") == ([], ["-"])


def test_a_value_may_look_like_an_option() -> None:
    assert words("--comment", "-o", "x") == ([("comment", "-o")], ["x"])


def test_unique_prefixes() -> None:
    assert words("--comm=x") == ([("comment", "x")], [])
    # A whole name wins over longer ones that start with it.
    assert words("--time=5") == ([("time", "5")], [])


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["--nosuch=3"], "unrecognized option '--nosuch=3'"),
        (["-Z"], "invalid option -- 'Z'"),
        (["--time"], "option '--time' requires an argument"),
        (["--tim"], "option '--tim' is ambiguous; possibilities: '--time' '--time-min'"),
        (["-t"], "option requires an argument -- 't'"),
        (["--hold=3"], "option '--hold' doesn't allow an argument"),
        (["--wrap"], "option '--wrap' requires an argument"),
        (
            ["--mem-per"],
            "option '--mem-per' is ambiguous; possibilities: '--mem-per-cpu' '--mem-per-gpu'",
        ),
        (
            ["--no"],
            "option '--no' is ambiguous; possibilities: '--no-kill' '--no-requeue' "
            "'--nodefile' '--nodelist' '--nodes'",
        ),
        (
            ["--nt=3"],
            "option '--nt=3' is ambiguous; possibilities: '--ntasks' '--ntasks-per-core' "
            "'--ntasks-per-gpu' '--ntasks-per-node' '--ntasks-per-socket' '--ntasks-per-tres'",
        ),
    ],
)
def test_complaints(argv: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        walk(argv)
    assert str(caught.value) == complaint


def test_the_table_is_sound() -> None:
    names = [option.name for option in OPTIONS]
    assert names == sorted(set(names)), "prefix complaints list names in this order"
    shorts = [option.short for option in OPTIONS if option.short]
    assert len(shorts) == len(set(shorts))
    # Short options of sbatch 26.05, from its --help.
    assert set(shorts) == set("aAbBcCdDeFGhHiJkLmMnNoOpqQsStvVwWx")
    fields = [name for option in OPTIONS for name in option.env]
    assert len(fields) == len(set(fields))


@pytest.mark.shared
def test_every_option_of_the_real_one_is_known(shared) -> None:  # type: ignore[no-untyped-def]
    import re

    text = (shared / "golden" / "26.05" / "017-sbatch-help-usage.txt").read_text()
    start = text.index("$ sbatch --usage")
    end = text.index("--- exit", text.index("$ sbatch --help"))
    assert set(re.findall(r"--([a-z][a-z-]+)", text[start:end])) <= set(BY_NAME)


_word = st.one_of(
    st.text(max_size=12),
    st.sampled_from([f"--{name}" for name in BY_NAME]),
    st.sampled_from([f"--{name}=1" for name in BY_NAME]),
    st.sampled_from([f"-{letter}" for letter in BY_SHORT]),
    st.text("-=aNkHx", max_size=6),
)


@given(st.lists(_word, max_size=8))
def test_any_command_line_is_walked_or_refused(argv: list[str]) -> None:
    try:
        said, rest = walk(argv)
    except UsageError as problem:
        assert str(problem)
    else:
        assert len(said) + len(rest) <= sum(len(word) + 1 for word in argv)
