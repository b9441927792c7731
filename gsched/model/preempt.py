"""Preemption, as jobs remember it. Records are msgspec arrays: new fields only at the end."""

from __future__ import annotations

import msgspec

from gsched.model.reservation import ReservedNode

#: what becomes of a job that makes way
REQUEUE, CANCEL, SUSPEND = "requeue", "cancel", "suspend"
#: why: for what an account is guaranteed
QUOTA = "quota"


class MakingWay(msgspec.Struct, array_like=True, gc=False):
    """A running job has been told to make way."""

    #: the job that is to have its place
    by: int
    #: epoch seconds: when it was told, and when it is ended at the latest
    at: int
    until: int
    #: REQUEUE or CANCEL
    mode: str
    #: why it may be preempted: "qos", "partition", "quota"
    kind: str = "qos"


class Claim(msgspec.Struct, array_like=True, gc=False):
    """What a waiting job has been promised: kept for it until it starts."""

    #: epoch seconds
    at: int
    partition: str
    nodes: list[ReservedNode]
    #: those that make way: (job, attempt)
    victims: list[tuple[int, int]]
    #: when the last of them had gone; 0: not yet
    free_at: int = 0
    #: those that stand still for it, from when the others have gone: (job, attempt)
    lenders: list[tuple[int, int]] = []
    #: the advance reservation within which it is; "" none
    reservation: str = ""
    #: what it then has of the licences for which others make way; "" it has them anyway
    licenses: str = ""


class Victim(msgspec.Struct, array_like=True, gc=False):
    """One that is to make way, as a pass decided."""

    job_id: int
    attempt: int
    mode: str
    #: seconds between the warning and the end
    grace: int = 0
    kind: str = "qos"


class Preemption(msgspec.Struct, gc=False):
    """All of them or none: they go, and the job has their place."""

    job_id: int
    claim: Claim
    victims: list[Victim]
    #: the account in whose units the place is; "" none
    pool: str = ""
