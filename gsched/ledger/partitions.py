"""create, update and delete of partitions at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.config.overrides import OverrideError, changed_partition, new_partition
from gsched.ledger import configure
from gsched.ledger.outcome import Outcome
from gsched.model import PartitionChange
from gsched.wire.messages import Call, Done, Refused, UpdatePartition

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

INVALID_NAME = "Invalid partition name specified"


def change(
    led: Ledger, call: Call, write: UpdatePartition, now: float, out: Outcome
) -> Done | Refused:
    """For administrators. It holds until the configuration is read anew; waiting jobs are judged
    again. Cost: see configure.apply."""
    name, verb = write.name, write.verb

    def refuse(sentence: str) -> Refused:
        return Refused(call.request_id, sentence)

    if not led.is_admin(call.uid):
        return Refused(call.request_id, "Invalid user id", "ESLURM_USER_ID_MISSING")
    present = name in led.config.partitions
    if verb not in ("create", "update", "delete"):
        return refuse(f"Requested operation {verb} is not supported here")
    if present == (verb == "create"):
        return refuse(INVALID_NAME)
    if verb == "delete":
        if _in_use(led, name):
            return refuse("Partition is in use")
        if name in led.files.partitions:
            record = PartitionChange(name, deleted=True)
            led.partition_changes[name] = record
            out.puts["partition", name.encode()] = record
        else:
            led.partition_changes.pop(name, None)
            out.puts["partition", name.encode()] = None
        configure.apply(led, now, out)
        return Done(call.request_id, 0)
    fields = {key.lower(): value for key, value in write.fields.items()}
    try:
        base = led.config.partitions[name] if present else new_partition(name)
        made = changed_partition(base, fields, led.files.nodes)
    except OverrideError as error:
        return refuse(str(error))
    if "nodes" in fields:
        # +list and -list are changes to what is there: what came of them is kept.
        fields["nodes"] = made.nodes_text
    known = led.partition_changes.get(name)
    before = known.fields if known is not None and not known.deleted else {}
    if made.default and "default" in fields:
        for other in led.partition_changes.values():
            other.fields.pop("default", None)
            out.puts["partition", other.name.encode()] = other
    record = PartitionChange(name, before | fields)
    # The last to be changed comes last: of two default partitions it is the one.
    led.partition_changes.pop(name, None)
    led.partition_changes[name] = record
    out.puts["partition", name.encode()] = record
    if present and list(fields) == ["state"]:
        configure.open_or_close(led, name, made.state, out)
    else:
        configure.apply(led, now, out)
    return Done(call.request_id, 0)


def _in_use(led: Ledger, name: str) -> bool:
    for job in led.jobs.values():
        active = not job.finished or job.completing
        if active and (job.partition == name or name in job.spec.partitions):
            return True
    return False
