"""shutdown: `scontrol shutdown`, for administrators."""

from __future__ import annotations

from collections.abc import Callable

from gsched.wire.messages import Call, Done, Refused, Reply


def shutdown(call: Call, admins: frozenset[int], stop: Callable[[], None]) -> Reply:
    """Asks the loop to end after this batch. Jobs go on; nothing is lost."""
    if call.uid not in admins:
        return Refused(call.request_id, "Invalid user id", "ESLURM_USER_ID_MISSING")
    stop()
    return Done(call.request_id, 0)
