"""A job being changed by `scontrol update`: its draft, and who changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched.errors import message
from gsched.ledger import associate
from gsched.model import Job, JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.wire.messages import Call

DENIED = "Access/permission denied"
HELD = "Job is in held state, pending scheduler release"
ALREADY_FINISHED = "Job has already finished"
NOT_SUPPORTED = "Requested operation not supported on this system"
UNSUPPORTED_FIELD = "Update of this parameter is not supported"
NODE_CONFIG = "Requested node configuration is not available"


class BadValue(Exception):
    """A field that cannot be set so; the text is Slurm's message."""


class Edit:
    """A job being changed: a draft of its record, and what the setters need to know."""

    def __init__(self, led: Ledger, job: Job, call: Call, now: float) -> None:
        self.led = led
        self.job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec))
        self.uid = call.uid
        #: all groups of whoever asks
        self.groups = call.groups
        self.admin = led.is_admin(call.uid)
        self.operator = associate.is_operator(led, call)
        self.now = int(now)
        #: something changed that decides where the job can run
        self.shaped = False
        self.limit_changed = False

    @property
    def pending(self) -> bool:
        return self.job.state == JobState.PENDING

    def pending_only(self) -> None:
        """Refuses once the job has started."""
        if not self.pending:
            raise BadValue(message("ESLURM_JOB_NOT_PENDING"))

    def admin_only(self) -> None:
        if not self.admin:
            raise BadValue(DENIED)

    def shape(self, **changes: object) -> None:
        """Another shape: judged as a whole when all fields are set."""
        self.pending_only()
        self.job.spec.shape = msgspec.structs.replace(self.job.spec.shape, **changes)
        # What is asked for is one thing from here on.
        self.job.spec.alternatives = ()
        self.shaped = True
