"""What associations have used until now, and how they stand: for sshare and scontrol."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gsched.model.states import JobState
from gsched.policy import Book, fairshare
from gsched.policy.fairshare import Standing
from gsched.policy.usage import Meter, rules_of, stretch_of
from gsched.wire.messages import StepQuery
from gsched.wire.policy import PolicyQuery
from gsched_cli.stop import asking

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job
    from gsched_cli.common import Reader


class Measured(NamedTuple):
    book: Book
    #: with what runs
    meter: Meter
    running: list[Job]
    now: float
    #: by number of the association
    standing: dict[int, Standing]


def measured(reader: Reader, config: Config, prefix: str) -> Measured:
    """All of them, at this moment; `prefix`: of errors. Cost: associations, and running jobs times
    the depth of the tree."""
    rows = asking(lambda: reader.policy(PolicyQuery(used=True)), prefix)
    jobs = asking(lambda: reader.steps(StepQuery()), prefix).jobs
    book, now = Book(rows.records), reader.now()
    for key, used in rows.used.items():
        kind, _, rest = bytes.fromhex(key).partition(b"/")
        book.used[rest.decode() if kind == b"qos" else int.from_bytes(rest, "big")] = used
    meter = Meter(book, rules_of(config))
    running = [job for job in jobs if job.state is JobState.RUNNING]
    for job in running:
        stretch = stretch_of(job)
        if stretch is not None:
            meter.begin(job.id, stretch)
    standing = fairshare.standings(config, book, meter.billed(now))
    return Measured(book, meter, running, now, standing)
