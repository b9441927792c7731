"""What Python's collector of cycles may cost: next to nothing.

The controller holds millions of small objects that live for days and are freed by their counts;
going over all of them again and again took more than the scheduling, and held up answers. Only what
is new is looked at; what has outlived that is taken out of the collector's sight at every pause.
What is cyclic, old and dropped (a cluster that a new configuration has replaced) is found by
`sweep`.
"""

from __future__ import annotations

import gc

#: new objects after which they are looked at: some 2 ms
YOUNG = 20_000
NEVER = 1 << 30


def begin() -> None:
    """All that is there now stays. Collecting may have been switched off meanwhile."""
    gc.freeze()
    gc.set_threshold(YOUNG, NEVER, NEVER)
    gc.enable()


def settle() -> None:
    """What has outlived a look stays. Cost: constant."""
    gc.freeze()


def sweep() -> None:
    """Looks at everything. Cost: some 0.1 us per object."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
