"""What the controller counts of its own work: sdiag's figures. All times are microseconds unless
said otherwise."""

from __future__ import annotations

import msgspec


class JobCounts(msgspec.Struct):
    """Jobs that came, began and ended: each task of an array for itself, once it is one."""

    submitted: int = 0
    started: int = 0
    completed: int = 0
    canceled: int = 0
    failed: int = 0


class Cycles(msgspec.Struct):
    """Rounds of one kind: passes over the queue, or plans of the whole of it."""

    count: int = 0
    last: int = 0
    longest: int = 0
    total: int = 0
    #: jobs that were decided on: in the last one, in all
    last_depth: int = 0
    depth: int = 0
    #: jobs that waited: at the last one, in all
    last_length: int = 0
    length: int = 0
    #: when the last one ended, epoch seconds
    last_at: int = 0

    def add(self, spent: int, depth: int, length: int, now: float) -> None:
        self.count += 1
        self.last, self.last_depth, self.last_length = spent, depth, length
        self.longest = max(self.longest, spent)
        self.total += spent
        self.depth += depth
        self.length += length
        self.last_at = int(now)


class Served(msgspec.Struct):
    """Messages of one kind or one user."""

    count: int = 0
    spent: int = 0


class Statistics(msgspec.Struct):
    """Everything since `since`."""

    #: epoch seconds
    now: int = 0
    since: int = 0
    jobs: JobCounts = msgspec.field(default_factory=JobCounts)
    pending: int = 0
    running: int = 0
    #: nodes whose agents have a session, orders to them that wait for an answer
    agents: int = 0
    #: facts that accounting has not stored yet
    facts: int = 0
    passes: Cycles = msgspec.field(default_factory=Cycles)
    #: passes that went through the whole queue, and that stopped at a limit
    complete: int = 0
    stopped: int = 0
    #: jobs that began while something was kept for others; of them components of heterogeneous ones
    backfilled: int = 0
    backfilled_ever: int = 0
    backfilled_het: int = 0
    plans: Cycles = msgspec.field(default_factory=Cycles)
    #: messages by their class, requests by uid
    messages: dict[str, Served] = {}
    users: dict[int, Served] = {}
    names: dict[int, str] = {}
