"""What keeps an attempt or a step from being started on this node."""

from __future__ import annotations


class LaunchError(Exception):
    """It cannot be started here; the text says why."""
