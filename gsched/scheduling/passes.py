"""One pass over the queue: which jobs start now, and why the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.model import Plan

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: starts per pass: the loop answers its sockets between passes
MAX_STARTS = 256


def run_pass(ledger: Ledger, now: float, max_starts: int = MAX_STARTS) -> Plan:
    """Decides by priority, first come first served within equal priority, and fills gaps with
    jobs that delay nobody's reservation (EASY). What it starts is set aside in the cluster; the
    ledger makes it a fact with `Start(plan)`.

    Cost: some ns per waiting job, one placement per request class, ~1 us per start.
    """
    return ledger.cluster.schedule(int(now), max_starts, max_test(ledger))


def max_test(ledger: Ledger) -> int:
    """SchedulerParameters' bf_max_job_test; 0: all jobs, which is the default here."""
    value = ledger.config.scheduler_options.get("bf_max_job_test", "")
    return int(value) if value.isdecimal() else 0
