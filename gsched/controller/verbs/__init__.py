"""One file per verb: what a write needs before the ledger decides, beyond its own state."""
