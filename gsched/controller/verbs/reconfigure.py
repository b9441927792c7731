"""reconfigure: `scontrol reconfigure`, for administrators."""

from __future__ import annotations

from gsched.wire.messages import Call, Refused, Reply

#: The sentence for the log and for the caller.
NOT_YET = "a new configuration is taken at the next start: restart slurmctld"


def reconfigure(call: Call, admins: frozenset[int]) -> Reply:
    """Refused: this release reads its configuration at start."""
    if call.uid not in admins:
        return Refused(call.request_id, "Access/permission denied", "ESLURM_ACCESS_DENIED")
    return Refused(call.request_id, f"Requested operation not supported on this system ({NOT_YET})")
