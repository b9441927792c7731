"""Constraint expressions (-C): `a&b`, `a|b`, parentheses -> alternatives of feature sets.

Counts (`a*2`) and the bracket form (`[a|b]`: all nodes alike) are Slurm's too, but are not
understood by this release: they raise, so that nothing runs where it was not meant to.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*([&|,()]|[^&|,()\[\]*\s]+|.)")

#: alternatives an expression may multiply out to
MAX_ALTERNATIVES = 64
#: parentheses within parentheses: each costs a call
MAX_DEPTH = 16


class FeatureError(ValueError):
    """An expression that is not understood; the text names what."""


def parse(expression: str) -> list[frozenset[str]]:
    """Alternatives, each a set of features that a node must all have. [] for ""."""
    tokens = [t for t in _TOKEN.findall(expression) if t]
    if not tokens:
        return []
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth > MAX_DEPTH:
            raise FeatureError(f"parentheses of a feature expression nest deeper than {MAX_DEPTH}")
    found, at = _alternatives(tokens, 0, expression)
    if at != len(tokens):
        raise FeatureError(f"invalid feature expression {expression!r} at {tokens[at]!r}")
    return found


def names(expression: str) -> set[str]:
    """Every feature that the expression names."""
    return {name for option in parse(expression) for name in option}


def _alternatives(tokens: list[str], at: int, text: str) -> tuple[list[frozenset[str]], int]:
    found, at = _all_of(tokens, at, text)
    while at < len(tokens) and tokens[at] == "|":
        more, at = _all_of(tokens, at + 1, text)
        found = found + [option for option in more if option not in found]
    return found, at


def _all_of(tokens: list[str], at: int, text: str) -> tuple[list[frozenset[str]], int]:
    found, at = _one(tokens, at, text)
    while at < len(tokens) and tokens[at] in "&,":
        more, at = _one(tokens, at + 1, text)
        found = [a | b for a in found for b in more]
        if len(found) > MAX_ALTERNATIVES:
            raise FeatureError(f"feature expression {text!r} has too many alternatives")
    return found, at


def _one(tokens: list[str], at: int, text: str) -> tuple[list[frozenset[str]], int]:
    if at >= len(tokens):
        raise FeatureError(f"feature expression {text!r} ends too early")
    token = tokens[at]
    if token == "(":
        found, at = _alternatives(tokens, at + 1, text)
        if at >= len(tokens) or tokens[at] != ")":
            raise FeatureError(f"feature expression {text!r} lacks a )")
        return found, at + 1
    if token in "&|,)[]*":
        raise FeatureError(f"invalid feature expression {text!r} at {token!r}")
    return [frozenset({token})], at + 1
