"""What one scheduling pass decided."""

from __future__ import annotations

import msgspec

from gsched.model.job import NodeAlloc
from gsched.model.node import Verdict
from gsched.model.preempt import Preemption


class Placement(msgspec.Struct, gc=False):
    """A start: the job takes these shares now. The cluster has already set them aside."""

    job_id: int
    partition: str
    alloc: list[NodeAlloc]
    #: the cluster's handle of what it has set aside (bind it or give it back)
    key: int = 0
    #: the advance reservation it starts in; "" none
    reservation: str = ""
    #: which of its alternatives it starts with
    choice: int = 0
    #: the account in whose units it is guaranteed; "" none
    pool: str = ""


class Plan(msgspec.Struct):
    """Starts in the order decided, and the verdicts that changed since the last pass."""

    starts: list[Placement] = []
    verdicts: list[Verdict] = []
    #: the same where a word says all: reason -> job ids
    words: dict[str, list[int]] = {}
    #: earliest time at which time alone can change the answer (begin times, limits); 0: none
    wake_at: int = 0
    #: False: the pass stopped at its limit and wants to go on
    complete: bool = True
    #: who makes way for whom, in the order decided
    preemptions: list[Preemption] = []
    #: running jobs that are guaranteed in the units of another account from now on; "" in none
    pools: dict[int, str] = {}

    #: host list of the nodes of which the plan keeps something for waiting jobs; None: as before
    planned: str | None = None

    def reasons(self) -> dict[int, str]:
        """Job id -> reason, of all verdicts. Cost: verdicts."""
        found = {verdict.job_id: verdict.reason for verdict in self.verdicts}
        for word, ids in self.words.items():
            found.update(dict.fromkeys(ids, word))
        return found
