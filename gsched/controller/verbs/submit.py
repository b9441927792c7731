"""submit: may the disk and the limits on size take it? All else is the ledger's to say."""

from __future__ import annotations

from gsched.config import Config
from gsched.store import Store
from gsched.wire.messages import Call, Refused, SubmitJob

#: max_script_size of SchedulerParameters where it is not given, bytes (Slurm's).
MAX_SCRIPT = 4 << 20
#: An environment may not be larger than what one exec takes anyway, bytes.
MAX_ENVIRONMENT = 6 << 20


def max_script(config: Config) -> int:
    """max_script_size of SchedulerParameters, bytes."""
    text = config.scheduler_options.get("max_script_size", "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_SCRIPT


def check(call: Call, write: SubmitJob, store: Store, limit: int) -> Refused | None:
    """A refusal, or None. One system call."""
    if len(write.script) > limit:
        return Refused(call.request_id, "Pathname of a file, directory or other parameter too long")
    if len(write.environment) > MAX_ENVIRONMENT:
        return Refused(
            call.request_id,
            f"The environment has {len(write.environment)} bytes, more than {MAX_ENVIRONMENT}",
        )
    if not store.has_room():
        return Refused(
            call.request_id,
            f"No space left in the controller's state directory {store.state_dir}: "
            "no new jobs are taken",
            "ENOSPC",
            temporary=True,
        )
    return None
