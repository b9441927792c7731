"""Constraint expressions (-C): `a&b`, `a|b`, parentheses, counts (`a*2`), `[a|b]` (all alike).

An expression is a list of variants, of which the first that nodes can be found for is taken. All
nodes pass one of a variant's alternatives; of each of its groups so many nodes pass one of those.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(r"\s*([&|,()\[\]]|\*[0-9]{1,7}|[^&|,()\[\]*\s]+|.)")

#: alternatives an expression may multiply out to
MAX_ALTERNATIVES = 64
#: parentheses within parentheses: each costs a call
MAX_DEPTH = 16

Option = frozenset[str]


class FeatureError(ValueError):
    """An expression that is not understood; the text names what."""


class Variant(NamedTuple):
    """Features of the nodes of one answer."""

    #: each a set of features that a node must all have; every node has those of one
    alternatives: tuple[Option, ...]
    #: (nodes, alternatives): so many nodes that have one of these, no node counting twice
    groups: tuple[tuple[int, tuple[Option, ...]], ...] = ()

    @property
    def nodes(self) -> int:
        """Nodes that the groups want together."""
        return sum(count for count, _ in self.groups)


ANY = frozenset[str]()


def constraint(expression: str) -> list[Variant]:
    """The variants of an expression, in turn. [] for "". FeatureError where it is none."""
    tokens = [t for t in _TOKEN.findall(expression) if t]
    if not tokens:
        return []
    depth = 0
    for token in tokens:
        depth += (token in "([") - (token in ")]")
        if depth > MAX_DEPTH:
            raise FeatureError(f"parentheses of a feature expression nest deeper than {MAX_DEPTH}")
    found, at = _either(tokens, 0, expression, alike=False)
    if at != len(tokens):
        raise FeatureError(f"invalid feature expression {expression!r} at {tokens[at]!r}")
    return found


def parse(expression: str) -> list[Option]:
    """The alternatives of which a node has one, if it may be in any answer. [] for "", and where
    any node may."""
    found: list[Option] = []
    for variant in constraint(expression):
        found += [option for option in variant.alternatives if option not in found]
    return [] if ANY in found else found


def _limit(variants: list[Variant], text: str) -> list[Variant]:
    if sum(len(v.alternatives) + len(v.groups) for v in variants) > MAX_ALTERNATIVES:
        raise FeatureError(f"feature expression {text!r} has too many alternatives")
    return variants


def _either(tokens: list[str], at: int, text: str, *, alike: bool) -> tuple[list[Variant], int]:
    """What `|` joins; alike: all nodes pass the same side."""
    found, at = _all_of(tokens, at, text, alike=alike)
    while at < len(tokens) and tokens[at] == "|":
        more, at = _all_of(tokens, at + 1, text, alike=alike)
        plain = len(found) == len(more) == 1 and not found[0].groups and not more[0].groups
        if plain and not alike:
            both = dict.fromkeys(found[0].alternatives + more[0].alternatives)
            found = [Variant(tuple(both))]
        else:
            found = found + [variant for variant in more if variant not in found]
        _limit(found, text)
    return found, at


def _all_of(tokens: list[str], at: int, text: str, *, alike: bool) -> tuple[list[Variant], int]:
    found, at = _one(tokens, at, text)
    while at < len(tokens) and tokens[at] in "&,":
        more, at = _one(tokens, at + 1, text)
        found = [_both(a, b) for a in found for b in more]
        _limit(found, text)
    return found, at


def _both(a: Variant, b: Variant) -> Variant:
    options = dict.fromkeys(x | y for x in a.alternatives for y in b.alternatives)
    return Variant(tuple(options), a.groups + b.groups)


def _one(tokens: list[str], at: int, text: str) -> tuple[list[Variant], int]:
    if at >= len(tokens):
        raise FeatureError(f"feature expression {text!r} ends too early")
    token = tokens[at]
    if token in "([":
        found, at = _either(tokens, at + 1, text, alike=token == "[")
        close = ")" if token == "(" else "]"
        if at >= len(tokens) or tokens[at] != close:
            raise FeatureError(f"feature expression {text!r} lacks a {close}")
    elif token in "&|,)]" or token[0] == "*":
        raise FeatureError(f"invalid feature expression {text!r} at {token!r}")
    else:
        found = [Variant((frozenset({token}),))]
    at += 1
    if at < len(tokens) and tokens[at][0] == "*":
        count = int(tokens[at][1:] or 0)
        if count < 1 or len(found) != 1 or found[0].groups:
            raise FeatureError(f"invalid feature expression {text!r} at {tokens[at]!r}")
        found = [Variant((ANY,), ((count, found[0].alternatives),))]
        at += 1
    return found, at
