"""Jobs stand still for others (PreemptMode=SUSPEND,GANG): their CPUs and GPUs are lent.

Their records say what is their own as if nothing had happened; the cluster counts a CPU or a GPU
for the one that works with it. What comes free goes back to whom it was taken from last, before
anybody else can have it, and who has all of his own again goes on. Nothing but that a job stands
still (`Job.paused`) and its place in the row (`Job.turn`) is recorded: who has what follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched.ledger import expected, slices, suspend
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.model.preempt import Claim

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: jobs that one has made way for which are remembered
MOST_ABOVE = 64
#: CPUs of a node that are promised whole
ALL = 1 << 30


def promised(led: Ledger, claim: Claim) -> None:
    """Of nodes that have been promised whole nobody who stands still keeps anything but memory.
    Cost: while somebody does, the jobs on these nodes."""
    for share in claim.nodes if led.paused else ():
        parts = led.parts.get(share.node, {}) if share.cpus < 0 else {}
        for job_id in parts.keys() & led.paused:
            job = led.jobs[job_id]
            led.cluster.lend(job, job.alloc[parts[job_id]])
            led.touch_use(share.node)


def begin(led: Ledger, claim: Claim, by: Job, now: float, out: Outcome) -> None:
    """Those that are to stand still for a promise do so now. Cost: their nodes."""
    found: list[Job] = []
    for job_id, attempt in claim.lenders:
        job = led.jobs.get(job_id)
        if job is None or job.attempt != attempt or job.finished:
            continue
        works = job.state == JobState.RUNNING and not job.configuring
        if job.paused or job.sliced or works:
            found.append(job)
    for job in found:
        for part in job.unreleased:
            led.cluster.lend(job, part)
        if not job.paused:
            _stop(led, job, by, now, out)
    # What the promise leaves is theirs as before.
    names = {part.node for job in found for part in job.alloc}
    settle(led, names, now, out)
    slices.settle(led, names, now, out)
    expected.refresh(led, names)


def _stop(led: Ledger, job: Job, by: Job, now: float, out: Outcome) -> None:
    job.paused = int(now)
    if by.id not in job.above:
        job.above = [by.id, *job.above][:MOST_ABOVE]
    led.paused.add(job.id)
    if job.sliced:
        # It stands still already.
        slices.forget(led, job)
        led.put_job(job, out)
    else:
        suspend.stop(led, job, now, out)
    out.log.append(("info", f"job {job.id} stands still for job {by.id}"))


def started(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """A job has started, maybe on what others have lent: what it left is theirs again. Cost: while
    somebody stands still, the jobs on its nodes."""
    job.turn = 0
    if led.paused:
        job.turn = max((other.turn + 1 for other in beneath(led, job)), default=0)
        settle(led, {part.node for part in job.alloc}, now, out)


def beneath(led: Ledger, job: Job) -> list[Job]:
    """Those that stand still and have some of the CPUs or GPUs of a job. Cost: jobs on
    its nodes."""
    if not led.paused:
        return []
    mine = {part.node: part for part in job.alloc}
    found: dict[int, Job] = {}
    for name, part in mine.items():
        for other_id in led.parts.get(name, ()):
            other = led.jobs[other_id]
            if other_id not in led.paused or other is job or other.finished:
                continue
            if other.turn < job.turn or not job.paused:
                its = other.alloc[led.parts[name][other_id]]
                if its.cpu_ids & part.cpu_ids or its.gpus & part.gpus:
                    found[other_id] = other
    return list(found.values())


def above(led: Ledger, job: Job) -> tuple[list[Job], int]:
    """(those that one stands still for, when they are expected to be over; 0 not known). Cost: jobs
    on its nodes."""
    found: dict[int, Job] = {}
    for part in job.unreleased if job.paused else ():
        for other_id, index in led.parts[part.node].items():
            other = led.jobs[other_id]
            its = other.alloc[index]
            if other is job or (other.paused and other.turn <= job.turn):
                continue
            if its.cpu_ids & part.cpu_ids or its.gpus & part.gpus:
                found[other_id] = other
    ends = [expected.end_of(led, other) for other in found.values()]
    return list(found.values()), max(ends) if ends and all(ends) else 0


def settle(led: Ledger, names: Iterable[str], now: float, out: Outcome | None) -> None:
    """Something may have come free on nodes: it goes back to those that stand still, and those that
    have all of their own go on. Cost: nothing while nobody stands still; else jobs on the nodes."""
    if not led.paused:
        return
    kept = _promised(led)
    touched: set[int] = set()
    for name in names:
        parts = led.parts.get(name, {})
        there = [led.jobs[one] for one in parts if one in led.paused]
        for job in sorted(there, key=lambda one: (-one.turn, one.id)):
            part = job.alloc[parts[job.id]]
            # One that comes to its end meanwhile holds what it has until that.
            cpus, gpus = kept.get(name, (0, 0))
            led.cluster.take_back(job, part, cpus, gpus)
            if not job.finished:
                touched.add(job.id)
        led.touch_use(name)
    for job_id in sorted(touched) if out is not None else ():
        job = led.jobs[job_id]
        if led.cluster.goes_on(job_id):
            _go_on(led, job, now, out)


def _promised(led: Ledger) -> dict[str, tuple[int, int]]:
    """CPUs and GPUs of nodes that are kept for jobs which wait; of CPUs those alone that are to be
    free already."""
    found: dict[str, tuple[int, int]] = {}
    for job_id in led.claimants:
        claim = led.jobs[job_id].claim
        if claim is None:
            continue
        to_come = _to_come(led, claim)
        for share in claim.nodes:
            cpus, gpus = found.get(share.node, (0, 0))
            if share.cpus < 0:
                found[share.node] = ALL, -1
            else:
                more = max(0, share.cpus - to_come.get(share.node, 0))
                found[share.node] = cpus + more, gpus | share.gpus
    return found


def _to_come(led: Ledger, claim: Claim) -> dict[str, int]:
    """CPUs of nodes that those hold who have not yet made way."""
    found: dict[str, int] = {}
    for job_id, attempt in (*claim.victims, *claim.lenders):
        job = led.jobs.get(job_id)
        if job is not None and job.attempt == attempt and not job.paused:
            for part in job.unreleased:
                found[part.node] = found.get(part.node, 0) + part.cpus
    return found


def _go_on(led: Ledger, job: Job, now: float, out: Outcome | None) -> None:
    assert out is not None
    job.paused = 0
    led.paused.discard(job.id)
    if slices.again(led, job, now, out):
        suspend.go(led, job, now, out)
    out.schedule = True
    out.log.append(("info", f"job {job.id} goes on"))


def gone(led: Ledger, job: Job) -> None:
    """The attempt of a job is over, and nothing of it is left on its nodes."""
    job.paused = job.turn = 0
    led.paused.discard(job.id)
    slices.forget(led, job)


def load(led: Ledger) -> None:
    """What jobs hold has been restored: those that stand still have what nobody works with. Nobody
    goes on by that: who could has done so with the command that freed it."""
    led.paused = {job.id for job in led.jobs.values() if job.paused and job.unreleased}
    names = {part.node for job_id in led.paused for part in led.jobs[job_id].alloc}
    settle(led, names, led.meta.last_now, None)
    expected.refresh(led, names)


__all__ = ["begin", "beneath", "gone", "load", "promised", "settle", "started"]
