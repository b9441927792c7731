"""QOS: adding, changing and deleting them."""

from __future__ import annotations

from typing import Any

import msgspec

from gsched.ledger.manage import limits, tree
from gsched.ledger.manage.work import ACCESS, UNCHANGED, No, Work, replaced
from gsched.model.policy import NORMAL, Qos
from gsched.wire.messages import PolicyOp


def add(work: Work, op: PolicyOp) -> None:
    names = [tree.good_name(one, "qos") for one in op.where.get("name", [])]
    if not names:
        raise No(" Need name of qos to add.\n")
    if not work.admin:
        raise No(
            " Problem adding QOS: Access/permission denied (Only admins can add QOS)\n", ACCESS
        )
    for name in names:
        known = work.book.qos.get(name)
        if known is not None:
            if work.load and op.settings:
                _set(work, known, op.settings)
            continue
        record = Qos(work.qos_id(), name, name, created=work.now)
        record = msgspec.structs.replace(record, **limits.values(work, record, op.settings))
        work.put(record)
        _refuse_loops(work)
        work.say("qos added", name)
        work.tell("Add QOS", name, f"description='{record.description}'")


def _set(work: Work, record: Qos, settings: limits.Settings) -> None:
    fields = limits.values(work, record, settings)
    work.put(msgspec.structs.replace(record, **fields))
    _refuse_loops(work)
    work.tell("Modify QOS", f"(name='{record.name}')", limits.shown(fields))


def _refuse_loops(work: Work) -> None:
    """No QOS may, by whatever way, come to preempt itself."""
    done: set[str] = set()
    for first in work.book.qos:
        way: list[tuple[str, int]] = [(first, 0)]
        on_way = {first}
        while way:
            name, place = way.pop()
            below = work.book.qos[name].preempt if name in work.book.qos else ()
            if place == len(below):
                on_way.discard(name)
                done.add(name)
                continue
            way.append((name, place + 1))
            step = below[place]
            if step in on_way:
                text = "QOS Preemption loop detected"
                raise No(f"sacctmgr: error: {text}\n Error with request: {text}\n")
            if step not in done:
                on_way.add(step)
                way.append((step, 0))


def matching(work: Work, where: dict[str, list[str]]) -> list[Qos]:
    """Those that the conditions name, in the order of their numbers."""
    found = []
    for qos in sorted(work.book.qos.values(), key=lambda qos: qos.id):
        have = {
            "name": qos.name,
            "id": str(qos.id),
            "description": qos.description.lower(),
            "preemptmode": qos.preempt_mode,
        }
        for key, wanted in where.items():
            if key not in have:
                raise No(f" Unknown condition: {key}={','.join(wanted)}\n")
        if all(have[key] in {one.lower() for one in where[key]} for key in where):
            found.append(qos)
    return found


def modify(work: Work, op: PolicyOp) -> None:
    settings = [one for one in op.settings if one[0].lower() != "rawusage"]
    reset = [text for name, _, text in op.settings if name.lower() == "rawusage"]
    if not op.settings:
        raise No(" You didn't give me anything to set\n")
    if not work.admin:
        raise limits.denied("Only admins can modify QOS")
    found = matching(work, op.where)
    if not found:
        raise No(" Nothing modified\n", UNCHANGED)
    if reset and reset[0].strip() not in ("0", "0.0"):
        raise No("sacctmgr: error: RawUsage can be set to 0 alone\n")
    for qos in found:
        if settings:
            before = work.count()
            _set(work, qos, settings)
            if work.count() > before or not work.load:
                work.say("qos modified", qos.name)
        if reset:
            work.resets.append(qos.name)
            work.tell("Modify QOS", f"(name='{qos.name}')", "usage=0")


def delete(work: Work, op: PolicyOp) -> None:
    if not op.where:
        raise No(" No conditions given to remove, not executing.\n")
    if not work.admin:
        raise limits.denied("Only admins can delete QOS")
    found = matching(work, op.where)
    if not found:
        raise No(" Nothing deleted\n", UNCHANGED)
    names = {qos.name for qos in found}
    _refuse_defaults(work, names)
    _refuse_used(work, names)
    for qos in sorted(found, key=lambda qos: qos.name):
        work.drop(qos)
        work.say("qos deleted", qos.name)
        work.tell("Remove QOS", f"name='{qos.name}'")
    for other in list(work.book.qos.values()):
        if not names.isdisjoint(other.preempt):
            left = tuple(one for one in other.preempt if one not in names)
            work.put(msgspec.structs.replace(other, preempt=left))
    for assoc in list(work.book.assocs.values()):
        if assoc.qos is not None and any(one.lstrip("+-") in names for one in assoc.qos):
            kept = tuple(one for one in assoc.qos if one.lstrip("+-") not in names)
            work.put(replaced(assoc, qos=kept or None))


def _refuse_defaults(work: Work, names: set[str]) -> None:
    of = [one for one in work.book.assocs.values() if one.default_qos in names]
    cluster = work.led.config.cluster_name
    if of:
        lines = []
        for one in tree.lineage(work, of):
            user = f" U = {one.user:<9}" if one.user else ""
            lines.append(
                f"  DefQOS = {one.default_qos or '':<10} C = {cluster:<10} "
                f"A = {one.account:<20}{user}\n"
            )
        raise No(
            " Associations listed below have these as their Default QOS.\n"
            + "".join(lines)
            + " Please either remove the qos' listed above from list and resubmit,\n"
            " or change the default qos to remove the qos.\n Changes Discarded\n"
        )
    if NORMAL in names:
        raise No(" Error with request: QOS normal is that of all jobs that name none\n")


def _refuse_used(work: Work, names: set[str]) -> None:
    parts = [name for name, part in work.led.config.partitions.items() if part.qos.lower() in names]
    if parts:
        raise No(f" Error with request: QOS is that of a partition: {', '.join(parts)}\n")
    active: list[Any] = [
        job.id
        for job in work.led.jobs.values()
        if job.spec.qos in names and job.alloc and not (job.finished and not job.completing)
    ]
    if active:
        ids = ", ".join(str(one) for one in sorted(active))
        raise No(
            f" Error with request: Job(s) active, cancel job(s) before remove\n  JobID = {ids}\n"
        )


__all__ = ["add", "delete", "modify"]
