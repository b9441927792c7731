"""Bitmaps of GPUs and matrices of the links between them."""

from __future__ import annotations


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def symmetric(links: list[list[int]]) -> list[list[int]]:
    """Link counts as both sides agree on them: a fault may show on one side only."""
    n = len(links)
    return [
        [
            0 if i == j else min(links[i][j], links[j][i]) if j < len(links[i]) else 0
            for j in range(n)
        ]
        for i in range(n)
    ]
