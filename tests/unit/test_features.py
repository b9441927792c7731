"""Constraint expressions: what they mean, as sbatch's manual page says it."""

from __future__ import annotations

import pytest

from gsched.features import FeatureError, constraint, parse


def said(text: str) -> list[tuple[list[str], list[tuple[int, list[str]]]]]:
    """Each variant as sorted "a&b" texts."""

    def words(options: tuple[frozenset[str], ...]) -> list[str]:
        return ["&".join(sorted(option)) for option in options]

    return [
        (words(variant.alternatives), [(count, words(group)) for count, group in variant.groups])
        for variant in constraint(text)
    ]


@pytest.mark.parametrize(
    ("text", "variants"),
    [
        ("", []),
        ("a", [(["a"], [])]),
        ("a&b", [(["a&b"], [])]),
        ("a,b", [(["a&b"], [])]),
        ("a|b", [(["a", "b"], [])]),
        ("a|b&c", [(["a", "b&c"], [])]),
        ("(a|b)&c", [(["a&c", "b&c"], [])]),
        # All nodes alike.
        ("[a|b]", [(["a"], []), (["b"], [])]),
        ("[a|b]&c", [(["a&c"], []), (["b&c"], [])]),
        ("[(a|b)|c]", [(["a", "b"], []), (["c"], [])]),
        ("[a]", [(["a"], [])]),
        # Numbers of nodes.
        ("a*4", [([""], [(4, ["a"])])]),
        ("[a*2&b*4]", [([""], [(2, ["a"]), (4, ["b"])])]),
        ("a*2&b*2", [([""], [(2, ["a"]), (2, ["b"])])]),
        ("[(a&b&c)*4&d*1]", [([""], [(4, ["a&b&c"]), (1, ["d"])])]),
        ("a&b*2", [(["a"], [(2, ["b"])])]),
        ("[a*2|b*2]", [([""], [(2, ["a"])]), ([""], [(2, ["b"])])]),
    ],
)
def test_what_an_expression_means(
    text: str, variants: list[tuple[list[str], list[tuple[int, list[str]]]]]
) -> None:
    assert said(text) == variants


@pytest.mark.parametrize(
    "text",
    ["a&", "|a", "(a", "[a", "a)", "(a]", "a*x", "a*", "a*0", "*2", "a b", "[a*2]*3", "a**2", "()"],
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(FeatureError):
        constraint(text)


def test_what_may_be_in_some_answer() -> None:
    assert parse("[a|b]&c") == [frozenset("ac"), frozenset("bc")]
    assert parse("[a*2&b*2]") == []
    assert parse("a&b*2") == [frozenset("a")]
