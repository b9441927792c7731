"""What came of a batch of commands: records to write, and what to do once they are durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gsched.wire.messages import Reply
from gsched.wire.nodes import AgentCall, Order, Reread, Reregister, StepMail, StepsKept, Welcome

if TYPE_CHECKING:
    from gsched.ledger.mail import Mail
    from gsched.model import Job

#: what a node is told besides orders
ToldNode = Welcome | Reregister | Reread | StepMail | AgentCall | StepsKept
#: (table, key); a value of None deletes
RecordKey = tuple[str, bytes]


@dataclass
class Outcome:
    """Grows over the commands of one batch; carried out after one commit.

    `puts` holds live objects, encoded at commit: a record touched twice is written once.
    """

    puts: dict[RecordKey, msgspec.Struct | bytes | None] = field(default_factory=dict)
    #: like puts, for the view (not a fact, not synced)
    view: dict[RecordKey, msgspec.Struct | None] = field(default_factory=dict)
    #: verdicts that say no more than a word: job id -> reason; those in `view` come after them
    words: dict[int, str] = field(default_factory=dict)
    #: priorities in force that are not those of the jobs' records; 0: what the record says
    ranks: dict[int, int] = field(default_factory=dict)
    #: (request id, reply)
    answers: list[tuple[bytes, Reply]] = field(default_factory=list)
    #: to nodes, before any order: (node, message)
    messages: list[tuple[str, ToldNode]] = field(default_factory=list)
    #: node -> numbered orders for its present session, in order
    orders: dict[str, list[Order]] = field(default_factory=dict)
    #: a scheduling pass is worth while
    schedule: bool = False
    #: earliest time at which a Tick or a pass is needed; None: nothing waits
    wake_at: float | None = None
    #: to users; sent beside the loop
    mails: list[Mail] = field(default_factory=list)
    #: images of jobs whose attempt waits for PrologSlurmctld, and of jobs whose allocation has been
    #: given back, for EpilogSlurmctld: whoever runs it says HookEnded
    prologs: list[Job] = field(default_factory=list)
    given_back: list[Job] = field(default_factory=list)
    #: (level, sentence)
    log: list[tuple[str, str]] = field(default_factory=list)

    def wake(self, at: float) -> None:
        """Asks to be woken at `at` (epoch seconds) or earlier."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at

    @property
    def empty(self) -> bool:
        """True when there is nothing to write, send or say."""
        return not (
            self.puts
            or self.view
            or self.words
            or self.answers
            or self.messages
            or self.orders
            or self.log
            or self.mails
            or self.prologs
            or self.given_back
        )
