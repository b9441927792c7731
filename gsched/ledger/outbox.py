"""Facts for accounting: written with the end itself, dropped once accounting has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched.ledger.outcome import Outcome
from gsched.model import Fact, Job, Step
from gsched.policy.enforce import enforced
from gsched.wire.messages import AckOutbox, Call, Done, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: facts dropped per request: a database that was away for long must not hold up the loop
DROP_AT_ONCE = 2000


def enabled(led: Ledger) -> bool:
    """Whether anybody will ever fetch facts."""
    return led.config.accounting_storage_type not in ("", "accounting_storage/none")


def write(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """An attempt is over: its image as of now. Not with AccountingStorageEnforce=nojobs."""
    if not enabled(led) or "nojobs" in enforced(led.config.accounting_storage_enforce):
        return
    image = msgspec.structs.replace(job, alloc=[msgspec.structs.replace(p) for p in job.alloc])
    put(led, Fact(0, int(now), image), out)


def write_steps(led: Ledger, job: Job, steps: list[Step], now: float, out: Outcome) -> None:
    """Steps of a job's present attempt are over. Not with AccountingStorageEnforce=nosteps, which
    nojobs brings along."""
    if enabled(led) and "nosteps" not in enforced(led.config.accounting_storage_enforce):
        put(led, Fact(0, int(now), None, steps, job.restarts), out)


def put(led: Ledger, fact: Fact, out: Outcome) -> None:
    """Numbers the fact and lays it down."""
    fact.seq = led.meta.outbox_next
    led.meta.outbox_next += 1
    led.put_meta(out)
    out.puts["outbox", fact.seq.to_bytes(8, "big")] = fact


def acknowledge(led: Ledger, call: Call, ack: AckOutbox, out: Outcome) -> Done | Refused:
    """Drops what accounting has, at most DROP_AT_ONCE at a time; `value` is the oldest left."""
    if not led.is_admin(call.uid):
        return Refused(call.request_id, "Access/permission denied", "ESLURM_ACCESS_DENIED")
    meta = led.meta
    end = min(ack.through + 1, meta.outbox_next, meta.outbox_first + DROP_AT_ONCE)
    for seq in range(meta.outbox_first, end):
        out.puts["outbox", seq.to_bytes(8, "big")] = None
    if end > meta.outbox_first:
        meta.outbox_first = end
        led.put_meta(out)
    return Done(call.request_id, 0, value=meta.outbox_first)
