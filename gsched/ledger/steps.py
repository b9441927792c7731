"""Steps as the leading nodes tell of them: kept while they run, handed to accounting at their end.

A node repeats what it has not heard to be kept, so a step may be told of many times, late, and in
any order. Of a step that has ended nothing stays but its number, in runs of numbers on the job's
record: a job may have a hundred thousand of them. Whatever still runs when its job is over ends
with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import hetero, outbox, suspend
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState, Step, StepState
from gsched.model.step import step_key
from gsched.wire.nodes import AttemptReport, Signal, StepsKept

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: runs of numbers on a job's record: agents count without gaps, so there is one as a rule
MOST_RUNS = 1000
#: what becomes of steps of which nobody has told an end, by the end of their job
_ENDS = {JobState.NODE_FAIL: StepState.NODE_FAIL}


def load(led: Ledger, records: Iterable[Step]) -> None:
    """Takes up the records of running steps."""
    for step in records:
        led.steps.setdefault(step.job_id, {})[step.id] = step


def take(led: Ledger, job: Job, rep: AttemptReport, node: str, now: float, out: Outcome) -> None:
    """Takes in what the node that leads `job` tells of its steps, and says that it is kept.
    Cost: those it tells of."""
    if not rep.steps:
        return
    if job.het_offset or node != job.batch_host:
        return
    running = led.steps.setdefault(job.id, {})
    ended: list[Step] = []
    kept: list[tuple[int, bool]] = []
    changed = False
    for told in rep.steps:
        known = running.get(told.id)
        fresh = known is None and not has(job.steps_known, told.id)
        if told.running:
            if fresh:
                running[told.id] = _begun(led, job, told, now)
                out.puts["step", step_key(job.id, told.id)] = running[told.id]
            kept.append((told.id, not fresh and known is None))
        else:
            if fresh or known is not None:
                ended.append(_ended(led, job, told, known, now))
                running.pop(told.id, None)
                out.puts["step", step_key(job.id, told.id)] = None
            kept.append((told.id, True))
        if fresh:
            job.steps_known = add(job.steps_known, told.id)
            changed = True
    if not running:
        led.steps.pop(job.id, None)
    if ended:
        _record(led, job, ended, now, out)
    if ended or changed:
        led.put_job(job, out)
    out.messages.append((node, StepsKept(rep.job_id, rep.attempt, kept)))


def tell(led: Ledger, job: Job, node: str, now: float, out: Outcome) -> None:
    """A node that leads a job has registered anew: it hears again which steps are to end."""
    if node == job.batch_host and not job.het_offset:
        for step in led.steps.get(job.id, {}).values():
            if step.ends:
                led.order(node, Signal(0, job.id, job.attempt, 0, "steps", step.id), now, out)


def refuse(rep: AttemptReport, node: str, out: Outcome) -> None:
    """Steps of an attempt that is over here are not waited for: the node need not repeat them."""
    if rep.steps:
        kept = [(step.id, not step.running) for step in rep.steps]
        out.messages.append((node, StepsKept(rep.job_id, rep.attempt, kept)))


def close(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The attempt is over on all nodes: steps without an end of their own end with it, and facts of
    them come before the job's own."""
    leader = hetero.unit(led, job)[0]
    running = led.steps.pop(leader.id, None)
    if not running:
        return
    state = _ENDS.get(leader.state, StepState.CANCELLED)
    ended = []
    for step in running.values():
        out.puts["step", step_key(leader.id, step.id)] = None
        over = msgspec.structs.replace(step, state=state, cancelled_by=leader.cancelled_by)
        ended.append(_closed(leader, over, step, leader.end_time or int(now)))
    _record(led, leader, ended, now, out)


def _begun(led: Ledger, job: Job, told: Step, now: float) -> Step:
    start = max(int(now - told.start_time / 1000), job.start_time)
    return msgspec.structs.replace(
        told,
        job_id=job.id,
        attempt=job.attempt,
        start_time=min(start, int(now)),
        end_time=0,
        suspended_s=suspend.suspended_s(job),
        gpu_types=led.cluster.gpu_types(s.alloc for s in told.nodes if s.node in led.nodes),
    )


def _ended(led: Ledger, job: Job, told: Step, known: Step | None, now: float) -> Step:
    begun = known if known is not None else _begun(led, job, told, now)
    over = msgspec.structs.replace(
        told,
        job_id=job.id,
        attempt=job.attempt,
        start_time=begun.start_time,
        gpu_types=begun.gpu_types,
    )
    if not over.nodes:
        over.nodes = begun.nodes
    if over.state == StepState.CANCELLED and over.cancelled_by < 0:
        # Whoever asked for it, here; the node was only told to.
        over.cancelled_by = begun.cancelled_by
    return _closed(job, over, begun, int(now - told.end_time / 1000))


def _closed(job: Job, over: Step, begun: Step, end: int) -> Step:
    over.end_time = max(end, over.start_time)
    over.suspended_s = max(0, suspend.suspended_s(job) - begun.suspended_s)
    return over


def _record(led: Ledger, job: Job, ended: list[Step], now: float, out: Outcome) -> None:
    """Facts of steps, one for each component that they ran in; the job's derived exit code."""
    members = {member.het_offset: member for member in hetero.unit(led, job)}
    facts: dict[int, list[Step]] = {}
    for step in ended:
        for share in step.by_component():
            member = members.get(share.job_id - job.id)
            if member is None:
                continue
            facts.setdefault(member.het_offset, []).append(share)
            if share.wstatus > member.derived_wstatus:
                member.derived_wstatus = share.wstatus
                led.put_job(member, out)
    for offset, steps in facts.items():
        outbox.write_steps(led, members[offset], steps, now, out)


# ---- runs of numbers ----------------------------------------------------------------------------


def has(runs: list[tuple[int, int]], number: int) -> bool:
    """Whether one of the runs holds the number. Cost: runs, from the last on."""
    return any(first <= number <= last for first, last in reversed(runs))


def add(runs: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """The runs, sorted, with one more number. Of too many the lowest two become one: numbers
    between them count as known."""
    if runs and runs[-1][1] == number - 1:
        return [*runs[:-1], (runs[-1][0], number)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*runs, (number, number)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if len(merged) > MOST_RUNS:
        merged[:2] = [(merged[0][0], merged[1][1])]
    return merged
