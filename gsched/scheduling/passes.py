"""One pass over the queue: which jobs start now, and why the others wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gsched.model import Plan
from gsched.scheduling import owed, preemption, whole
from gsched.scheduling.options import options_of

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: starts per pass: the loop answers its sockets between passes
MAX_STARTS = 256


def run_pass(ledger: Ledger, now: float, max_starts: int = MAX_STARTS) -> Plan:
    """Decides by priority, first come first served within equal priority, and fills gaps with
    jobs that delay nobody's reservation: those of the last plan where one has been taken over, else
    of the first blocked job of each partition (EASY). What it starts is set aside in the cluster;
    the ledger makes it a fact with `Start(plan)`. Nothing starts while nodes are expected back; who
    waits is told so.

    Cost: some ns per waiting job, one placement per request class, ~1 us per start.
    """
    waits = ledger.awaits(now)
    if waits:
        return ledger.cluster.tell_settling(int(now), math.ceil(waits))
    options = options_of(ledger.config)
    pools = ledger.units.arrange(int(now), options.strict)
    cluster, rules, depth = ledger.cluster, options.rules(), options.plan_test
    if options.depth or options.partition_depth:
        if now - cluster.last_full >= options.full_interval:
            cluster.last_full = int(now)
        else:
            depth = min(filter(None, (options.depth, options.plan_test)), default=0)
            rules["partition_depth"] = options.partition_depth
    if options.max_starts:
        max_starts = min(max_starts, options.max_starts)
    back, count = owed.ahead(ledger, int(now))
    if back:
        # What is promised is kept from the next pass on: nobody borrows it before.
        return Plan(preemptions=back, pools=pools, complete=False)
    if count:
        max_starts = min(max_starts, count) if max_starts else count
    plan = cluster.schedule(int(now), max_starts, depth, rules)
    plan.pools = pools
    if depth != options.plan_test or rules.get("partition_depth"):
        # The rest of the queue has its turn later.
        due = cluster.last_full + options.full_interval
        plan.wake_at = min(plan.wake_at or due, due)
    if plan.complete:
        for decide in (whole.decide, preemption.decide):
            found, wake = decide(ledger, int(now), plan.starts)
            plan.preemptions += found
            if wake:
                plan.wake_at = min(plan.wake_at or wake, wake)
            if found:
                # What is promised is kept from the next pass on.
                break
    return plan


def max_test(ledger: Ledger) -> int:
    """bf_max_job_test: so many jobs are looked at, 0: all, which is the default here."""
    return options_of(ledger.config).plan_test
