"""Associations, QOS, limits, fair share and usage."""
