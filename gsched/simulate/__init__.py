"""Ledger, scheduling and agents under a virtual clock."""
