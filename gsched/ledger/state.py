"""The ledger's memory: what is persisted, and what a process learns anew after each start."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from gsched.wire.messages import Reply
from gsched.wire.nodes import Notify, Order, Signal

FORMAT = 1


class Meta(msgspec.Struct, array_like=True):
    """The one record about the cluster itself (table "meta", key "meta")."""

    #: uuid of this cluster's state; nodes refuse to be killed by another one
    cluster: str
    epoch: int = 0
    next_job_id: int = 1
    #: last value of `now`: time never goes back across restarts
    last_now: float = 0.0
    format: int = FORMAT
    #: numbers of the oldest fact still in the outbox, and of the next one to be written
    outbox_first: int = 1
    outbox_next: int = 1
    #: attempts (job, attempt) that nodes hold and this state never started: it is older than they
    foreign: list[tuple[int, int]] = []
    #: number in the next name that is made for an advance reservation
    next_reservation: int = 1
    #: numbers that the next association, QOS and WCKey get at least: none is used twice
    next_assoc: int = 0
    next_qos: int = 0
    next_wckey: int = 0


class StoredAnswer(msgspec.Struct, array_like=True):
    """Reply to a request id, so that a repeated request is answered and not carried out again."""

    expires: int
    reply: Reply


@dataclass
class NodeLive:
    """What is known of a node only as long as this controller process lives."""

    #: nonce of the accepted registration; "" not registered with this process
    session: str = ""
    #: the session that ended by the node's silence: it is never taken up again
    lost: str = ""
    #: a report has come under this session
    confirmed: bool = False
    #: number of the last order of this session, and of the last one the node has carried out
    last_order: int = 0
    seen: int = 0
    #: orders not yet seen by the node, oldest first, with the time they were sent
    unacked: deque[tuple[Order, float]] = field(default_factory=deque)
    #: signals and lines for its jobs from before its registration, which no report would bring back
    early: list[Signal | Notify] = field(default_factory=list)
    #: attempts whose kill this session has received or will receive
    kill_sent: set[tuple[int, int]] = field(default_factory=set)
    #: attempts whose fault of the node was heard
    faults: set[tuple[int, int]] = field(default_factory=set)
    last_heard: float = 0.0
    #: last report that has been taken in; 0: none since this process has the state
    reported: float = 0.0
    cpu_load: int = -1
    free_mem_mb: int = -1
    #: load and free memory that readers were told last, and when
    shown: tuple[int, int] = (-1, -1)
    shown_at: float = 0.0
    #: jobs on it when its use was last told, and when that number last changed (0: never)
    jobs: int = 0
    last_busy: int = 0


def hook_key(job_id: int, attempt: int) -> bytes:
    """Key of an attempt whose EpilogSlurmctld is due."""
    return job_id.to_bytes(8, "big") + attempt.to_bytes(4, "big")


def job_key(job_id: int) -> bytes:
    """Key of a job in the store: big-endian, so that a scan is in order of ids."""
    return job_id.to_bytes(8, "big")
