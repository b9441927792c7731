"""Associations, QOS, limits, fair share, usage: pure."""

from gsched.policy.book import Book

__all__ = ["Book"]
