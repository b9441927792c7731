"""Finished facts on their way to accounting."""

from __future__ import annotations

import msgspec

from gsched.model.job import Job
from gsched.model.news import News
from gsched.model.step import Step


class Fact(msgspec.Struct, array_like=True, gc=False):
    """The image of a job when an attempt of it is over: for good, or before it is queued again;
    or, before that, steps of the attempt that have ended; or something else that is told. One
    record of the table "outbox", until accounting has said that it has it."""

    #: 1, 2, 3 ... without gaps: accounting stores the last one it has in its own transaction
    seq: int
    #: epoch seconds
    time: int
    #: None: `steps` or `news`
    job: Job | None
    #: ended steps, all of one job, and how often that had been requeued before
    steps: list[Step] = []
    restarts: int = 0
    #: changes of policy, nodes out of service, reservations ...
    news: News | None = None
