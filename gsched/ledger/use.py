"""What associations and QOS have used: stretches of work are recorded as they end.

In the same commit as the end (or suspension) that ended them, so that nothing is lost or counted
twice whenever the controller dies. An attempt that a lost node ended counts until that node's last
report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched.ledger import accounts
from gsched.ledger.outcome import Outcome
from gsched.model import Job
from gsched.model.policy import Used
from gsched.policy import usage

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def begin(led: Ledger, job: Job) -> None:
    """A job has started, goes on, or was changed while it ran. Cost: constant."""
    stretch = usage.stretch_of(job)
    if stretch is not None:
        led.meter.begin(job.id, stretch)


def end(led: Ledger, job: Job, until: float, now: float, out: Outcome) -> None:
    """It stands still, or its attempt is over since `until`. Cost: depth of the tree."""
    stretch = led.meter.end(job.id)
    if stretch is None:
        return
    for of, used in led.meter.recorded(stretch, min(until, now), now):
        accounts.put_used(led, of, used, out)


def reset(led: Ledger, of: Iterable[int | str], now: float, out: Outcome) -> None:
    """RawUsage=0 of associations (an account's with all below it) and QOS: what ran before does not
    count any more, for those above them either."""
    book, meter = led.book, led.meter
    for one in of:
        if isinstance(one, int) and one in book.assocs:
            gone = meter.used(one, now)
            assoc = book.assocs[one]
            for above in book.chain(assoc)[1:] if gone.tres or gone.wall else ():
                half = meter.rules.half_life_of(book, above.id)
                before = usage.at(book.used.get(above.id, Used()), now, half)
                accounts.put_used(led, above.id, usage.minus(before, gone), out)
            below = book.subtree(assoc.account) if assoc.is_account else (assoc,)
            for each in below:
                accounts.put_used(led, each.id, Used(at=now, since=now), out)
        else:
            accounts.put_used(led, one, Used(at=now, since=now), out)


def configured(led: Ledger, now: float, out: Outcome) -> None:
    """A controller takes the state, or the configuration was read: how usage decays, and
    PriorityUsageResetPeriod=NOW."""
    rules = usage.rules_of(led.config)
    if rules != led.meter.rules:
        # What has been used until now has decayed as it did.
        for of, used in list(led.book.used.items()):
            half = led.meter.rules.half_life_of(led.book, of)
            if half != rules.half_life_of(led.book, of):
                accounts.put_used(led, of, usage.at(used, now, half), out)
        led.meter.rules = rules
    if rules.reset_period == "NOW":
        names: list[int | str] = [*led.book.assocs, *led.book.qos]
        for of in names:
            accounts.put_used(led, of, Used(at=now, since=now), out)
