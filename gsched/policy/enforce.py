"""What AccountingStorageEnforce asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

#: word -> what it brings with it
_BRINGS = {
    "associations": (),
    "limits": ("associations",),
    "qos": ("associations",),
    "safe": ("limits", "associations"),
    "wckeys": ("associations",),
    "nojobs": ("nosteps",),
    "nosteps": (),
    "all": ("associations", "limits", "qos", "safe", "wckeys"),
}


def enforced(words: Iterable[str]) -> frozenset[str]:
    """All that holds of associations, limits, qos, safe, wckeys, nojobs and nosteps. Words may be
    in any case; what is not among them (none, 0) asks for nothing."""
    return _enforced(tuple(words))


@lru_cache(maxsize=64)
def _enforced(words: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for word in words:
        name = word.strip().lower()
        if name in _BRINGS:
            found |= {name, *_BRINGS[name]}
    return frozenset(found - {"all"})
