"""Every demand that the core can name has words of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsched.model.why import Lack, Place
from gsched_cli.why_words import lack_text

ROOT = Path(__file__).resolve().parents[2]


def words() -> list[tuple[str, bool]]:
    """The core's own tables of words: (what, never)."""
    text = (ROOT / "gsched" / "_core.pyx").read_text()
    each = re.search(r"_WHY = \((.*?)\n\)", text, re.DOTALL)
    together = re.search(r"_TOGETHER = \{(.*?)\}", text)
    assert each and together, "the core's tables of words are elsewhere"
    found = [(what, never == "True") for what, never in re.findall(r'"(\w+)", (\w+)', each[1])]
    return found + [(what, False) for what in re.findall(r'"(\w+)"', together[1])]


@pytest.mark.parametrize(("what", "never"), words())
def test_every_demand_has_a_sentence(what: str, never: bool) -> None:
    place = Place("gpu", 4, gpus=2, gpu_type="h100", features="rackA", mem_mb=1000)
    assert "cannot meet the demand" not in lack_text(place, Lack(what, never, 2))
