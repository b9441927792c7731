"""Pure decisions: order, limits, placement, backfill plan, verdicts."""
