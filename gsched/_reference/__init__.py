"""The matching core's slow, obvious twin: the oracle of its tests, never imported in production."""

from gsched._reference.core import Core
from gsched._reference.parts import LinkClass

__all__ = ["Core", "LinkClass"]
