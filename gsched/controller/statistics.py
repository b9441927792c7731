"""Counts the controller's own work for sdiag. In memory alone: a restart begins anew."""

from __future__ import annotations

import time

import msgspec

from gsched.ledger import Ledger
from gsched.model import JobState, Plan
from gsched.model.statistics import Served, Statistics
from gsched.wire.messages import Call, Diagnose, Done, Refused, Reply

#: users that are told apart
MOST_USERS = 1000


def stopwatch() -> int:
    """Microseconds of a clock that only goes on."""
    return time.perf_counter_ns() // 1000


class Counter:
    """What has been done since the last reset. Cost of a count: below a microsecond."""

    def __init__(self, now: float) -> None:
        self._kept = Statistics(since=int(now))
        self._names: dict[int, str] = {}

    def passed(self, ledger: Ledger, plan: Plan, spent: int, now: float) -> None:
        """A pass over the queue, with what it was decided to start."""
        kept = self._kept
        depth = len(plan.starts) + len(plan.verdicts) + sum(map(len, plan.words.values()))
        kept.passes.add(spent, depth, ledger.cluster.waiting(), now)
        kept.complete += plan.complete
        kept.stopped += not plan.complete
        if ledger.cluster.keeps:
            kept.backfilled += len(plan.starts)
            kept.backfilled_ever += len(plan.starts)
            kept.backfilled_het += sum(
                1
                for start in plan.starts
                if start.job_id in ledger.jobs and ledger.jobs[start.job_id].het_job_id
            )

    def planned(self, ledger: Ledger, spent: int, now: float) -> None:
        """A plan of the whole queue that was taken over."""
        waiting = ledger.cluster.waiting()
        self._kept.plans.add(spent, waiting, waiting, now)

    def message(self, kind: type, began: int) -> None:
        """One of a node's."""
        self._add(kind.__name__, stopwatch() - began)

    def request(self, call: Call, began: int) -> None:
        """One of a user's."""
        spent = stopwatch() - began
        self._add(type(call.write).__name__, spent)
        users = self._kept.users
        if call.uid in users or len(users) < MOST_USERS:
            served = users.setdefault(call.uid, Served())
            served.count += 1
            served.spent += spent
            self._names[call.uid] = call.user or str(call.uid)

    def _add(self, name: str, spent: int) -> None:
        served = self._kept.messages.setdefault(name, Served())
        served.count += 1
        served.spent += spent

    def answer(self, call: Call, write: Diagnose, ledger: Ledger, now: float) -> Reply:
        """`Done.data` is the Statistics in JSON. Cost: all jobs known."""
        if write.reset:
            if not ledger.is_admin(call.uid):
                return Refused(call.request_id, "Access/permission denied", "ESLURM_ACCESS_DENIED")
            ledger.counts = type(ledger.counts)()
            self._kept = Statistics(since=int(now), backfilled_ever=self._kept.backfilled_ever)
            return Done(call.request_id, 0)
        kept = self._kept
        kept.now, kept.jobs, kept.names = int(now), ledger.counts, self._names
        states = [job.state for job in ledger.jobs.values()]
        kept.pending = states.count(JobState.PENDING)
        kept.running = states.count(JobState.RUNNING) + states.count(JobState.SUSPENDED)
        kept.agents = sum(1 for live in ledger.live.values() if live.session)
        kept.facts = ledger.meta.outbox_next - ledger.meta.outbox_first
        return Done(call.request_id, 0, data=msgspec.json.encode(kept).decode())
