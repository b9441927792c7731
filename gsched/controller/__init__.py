"""The controller daemon: one loop that feeds the ledger."""
