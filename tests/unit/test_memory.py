"""The collector of cycles in the controller: the new is looked at, the old only when asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gsched.controller import memory


class Ring:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


def test_old_cycles_wait_for_a_sweep() -> None:
    gc.disable()
    memory.begin()
    assert gc.isenabled()
    old, new = Ring(), Ring()
    seen = weakref.ref(old), weakref.ref(new)
    memory.settle()
    young = Ring()
    third = weakref.ref(young)
    del old, new, young
    gc.collect()
    assert (seen[0]() is None, seen[1]() is None, third() is None) == (False, False, True)
    memory.sweep()
    assert seen[0]() is None and seen[1]() is None


def test_all_that_lives_long_is_out_of_sight() -> None:
    memory.begin()
    kept = [[n] for n in range(3 * memory.YOUNG)]
    memory.settle()
    assert gc.get_freeze_count() > 3 * memory.YOUNG
    assert all(count < memory.YOUNG for count in gc.get_count())
    assert kept[5] == [5]
