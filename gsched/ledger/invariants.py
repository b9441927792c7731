"""What must hold after every command. On in all tests; O(jobs + nodes)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.bits import bits
from gsched.ledger import quotas, slices
from gsched.model import Job, JobState, Phase, Step
from gsched.policy.usage import stretch_of
from gsched.taskset import TaskSet

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


class Broken(AssertionError):
    """The ledger contradicts itself; the text says where."""


def check(led: Ledger) -> None:
    """Raises Broken at the first contradiction between jobs, nodes, indexes and the cluster."""
    parts: dict[str, dict[int, int]] = {name: {} for name in led.nodes}
    cpus = dict.fromkeys(led.nodes, 0)
    gpus = dict.fromkeys(led.nodes, 0)
    in_parts = dict.fromkeys(led.nodes, 0)
    blobs: dict[str, int] = {}
    going_on = {job.id: one for job in led.jobs.values() if (one := stretch_of(job))}
    _ensure(going_on == led.meter.lasting, "usage does not count what runs")
    standing: dict[str, list[Job]] = {}
    #: (node, whose cores are shared) -> CPU -> jobs on it
    lots: dict[tuple[str, tuple[int, int]], dict[int, int]] = {}
    for job_id, job in led.jobs.items():
        _ensure(job.id == job_id, f"job {job_id} is stored as {job.id}")
        _ensure(job_id < led.meta.next_job_id, f"job {job_id} is newer than the next id")
        for digest in (job.script, job.environment):
            if digest:
                blobs[digest] = blobs.get(digest, 0) + 1
        held = job.unreleased
        if job.state == JobState.PENDING:
            _ensure(not job.alloc, f"job {job_id} is pending and holds nodes")
            _ensure(not job.completing, f"job {job_id} is pending and completing")
            _ensure(led.cluster.queued(job_id), f"job {job_id} is pending and not in the queue")
        else:
            _ensure(not led.cluster.queued(job_id), f"job {job_id} is in the queue and not pending")
        if job.state == JobState.RUNNING:
            _ensure(len(held) == len(job.alloc) > 0, f"job {job_id} runs and holds too little")
        if job.finished:
            _ensure(job.completing == bool(held), f"job {job_id}: completing is {job.completing}")
        if job.configuring:
            known = job_id in led.preparing or (len(job.alloc) == 1 and not job.het_job_id)
            _ensure(known, f"job {job_id}: no deadline")
        if job.het_job_id:
            _unit(led, job)
        for index, part in enumerate(job.alloc):
            if part.phase == Phase.RELEASED:
                continue
            name = part.node
            parts[name][job_id] = index
            if job.paused:
                standing.setdefault(name, []).append(job)
                continue
            mates = led.cluster.mates(job_id)
            own = lots.setdefault((name, mates), {}) if mates is not None else dict[int, int]()
            others = cpus[name] & ~sum(1 << cpu for cpu in own)
            _ensure(not others & part.cpu_ids, f"{name}: a CPU is given twice (job {job_id})")
            for cpu in bits(part.cpu_ids) if mates is not None else ():
                own[cpu] = own.get(cpu, 0) + 1
                _ensure(
                    mates is not None and own[cpu] <= mates[1],
                    f"{name}: {own[cpu]} jobs on CPU {cpu}",
                )
            _ensure(
                not gpus[name] & part.gpus & ~(in_parts[name] if part.shares else 0),
                f"{name}: a GPU is given twice (job {job_id})",
            )
            if part.shares:
                alone = part.gpus.bit_count() == 1
                _ensure(alone, f"job {job_id} has parts of GPUs {part.gpus:#x} on {name}")
                in_parts[name] |= part.gpus
            held_parts = led.cluster.parts_held(job_id)
            _ensure(part.shares == held_parts, f"job {job_id} has {held_parts} parts on {name}")
            _ensure(part.cpu_ids.bit_count() == part.cpus, f"job {job_id}: CPU ids on {name}")
            cpus[name] |= part.cpu_ids
            gpus[name] |= part.gpus
    paused = {job.id for name in standing for job in standing[name]}
    stands = led.quotas()
    if stands is not None:
        again = quotas.recount(led)
        _ensure(stands.standing == again.standing, "accounts stand otherwise than is counted")
        _ensure(stands.guaranteed() == again.guaranteed(), "other jobs are guaranteed than counted")
    _ensure(paused == led.paused, f"{led.paused} stand still, not {paused}")
    for name, there in standing.items():
        _standing(led, name, there, cpus, gpus, lots)
    _turns(led)
    members: dict[int, set[int]] = {}
    running: dict[int, int] = {}
    extra = 0
    for job in led.jobs.values():
        if job.array_job_id:
            members.setdefault(job.array_job_id, set()).add(job.id)
            if job.unreleased:
                running[job.array_job_id] = running.get(job.array_job_id, 0) + 1
        if job.array_pending:
            extra += len(TaskSet.parse(job.array_pending)) - 1
            _ensure(not job.alloc, f"array {job.id} is together and holds nodes")
        for dep in job.deps if job.state == JobState.PENDING else ():
            waiting = (
                led.singletons.get((job.uid, job.spec.name), set())
                if dep.kind == "singleton"
                else led.waiters.get(dep.job_id, set())
            )
            _ensure(job.id in waiting, f"job {job.id} is not listed among those that wait")
    _ensure(members == led.array_members, "the index of arrays is wrong")
    _ensure(running == led.array_running, "the count of running array tasks is wrong")
    _ensure(extra == led.extra_tasks, "the count of array tasks is wrong")
    _ensure(parts == led.parts, "the index of shares by node is wrong")
    _ensure(blobs == led.blob_refs, "the count of users of scripts and environments is wrong")
    for job_id, steps in led.steps.items():
        _steps(led, job_id, steps)
    for name, resv in led.reservations.items():
        _ensure(resv.name == name, f"reservation {name} is stored as {resv.name}")
        _ensure(resv.start < resv.end, f"reservation {name} ends before it begins")
        kept = [share.node for share in resv.nodes]
        _ensure(len(kept) == len(set(kept)), f"reservation {name} keeps a node twice")
        _ensure(bool(kept) != resv.any_nodes, f"reservation {name} keeps no nodes, or too many")
    for name in led.nodes:
        used = led.cluster.used(name)
        _ensure(used[0] == cpus[name].bit_count(), f"{name}: CPUs in use")
        _ensure(used[2] == gpus[name], f"{name}: GPUs in use")
        live = led.live[name]
        numbers = [order.n for order, _ in live.unacked]
        _ensure(numbers == sorted(set(numbers)), f"{name}: orders are out of order")
        _ensure(all(live.seen < n <= live.last_order for n in numbers), f"{name}: order numbers")
    wrong = led.limits.wrong() or led.accrual.wrong()
    _ensure(not wrong, wrong)
    led.cluster.check()


def _standing(
    led: Ledger,
    name: str,
    there: list[Job],
    cpus: dict[str, int],
    gpus: dict[str, int],
    lots: dict[tuple[str, tuple[int, int]], dict[int, int]],
) -> None:
    """What those that stand still on a node have of their own is nobody else's."""
    for job in there:
        _ensure(job.finished or job.state == JobState.SUSPENDED, f"job {job.id} stands still")
        mine, its = led.cluster.kept(job.id, name)
        part = next(each for each in job.alloc if each.node == name)
        _ensure(not mine & ~part.cpu_ids and not its & ~part.gpus, f"job {job.id} has too much")
        mates = led.cluster.mates(job.id)
        own = lots.setdefault((name, mates), {}) if mates is not None else dict[int, int]()
        others = cpus[name] & ~sum(1 << cpu for cpu in own)
        _ensure(not mine & others, f"{name}: a CPU is given twice (job {job.id})")
        for cpu in bits(mine) if mates is not None else ():
            own[cpu] = own.get(cpu, 0) + 1
            _ensure(mates is not None and own[cpu] <= mates[1], f"{name}: CPU {cpu} is too full")
        _ensure(not its & gpus[name], f"{name}: a GPU is given twice (job {job.id})")
        cpus[name] |= mine
        gpus[name] |= its


def _turns(led: Ledger) -> None:
    """Of jobs that share CPUs no two work on the same ones at once, and none waits in vain."""
    waiting = {job.id for job in led.jobs.values() if job.sliced and not job.finished}
    _ensure(waiting == led.sliced, f"{led.sliced} wait for their turn, not {waiting}")
    rows: dict[str, slices.Row] = {}
    working = [
        job
        for job in led.jobs.values()
        if job.state == JobState.RUNNING and slices.takes_turns(led, job)
    ]
    ids = {job.id for job in working}
    for job in working if slices.seconds(led.config) else ():
        row = rows.setdefault(job.partition, slices.Row(led, job.partition, ids))
        _ensure(row.fits(job), f"job {job.id} works on CPUs on which it is another's turn")
        row.add(job)
    for job in (led.jobs[job_id] for job_id in waiting):
        _ensure(job.state == JobState.SUSPENDED, f"job {job.id} is {job.state.name}")
        _ensure(not job.paused, f"job {job.id} waits for its turn and for others")
        row = rows.setdefault(job.partition, slices.Row(led, job.partition, ids))
        _ensure(not row.fits(job), f"job {job.id} waits for a turn that is nobody's")


def _steps(led: Ledger, job_id: int, steps: dict[int, Step]) -> None:
    """Steps that run are of the present attempt of a job that leads and is not over."""
    leader = led.jobs.get(job_id)
    _ensure(leader is not None and not leader.het_offset, f"steps of job {job_id}, which is none")
    assert leader is not None
    unit = [led.jobs[i] for i in range(job_id, job_id + max(1, leader.het_size)) if i in led.jobs]
    over = all(job.finished and not job.completing for job in unit)
    _ensure(bool(steps) and not over, f"steps of job {job_id} outlive it")
    for number, step in steps.items():
        _ensure(step.running and step.id == number, f"step {job_id}.{number} does not run")
        _ensure(step.attempt == leader.attempt, f"step {job_id}.{number} is of another attempt")


def _unit(led: Ledger, job: Job) -> None:
    """A component of a heterogeneous job against the others."""
    _ensure(job.id == job.het_job_id + job.het_offset, f"component {job.id} has a wrong id")
    ids = range(job.het_job_id, job.het_job_id + job.het_size)
    for other in (led.jobs[job_id] for job_id in ids if job_id in led.jobs):
        _ensure(other.het_job_id == job.het_job_id, f"{other.id} is no component of {job.id}")
        same = (other.state == JobState.PENDING) == (job.state == JobState.PENDING)
        same = same and other.finished == job.finished
        _ensure(same, f"component {job.id} is {job.state.name}, {other.id} {other.state.name}")
        _ensure(other.attempt == job.attempt, f"components {job.id} and {other.id}: attempts")
        _ensure(other.configuring == job.configuring, f"components {job.id} and {other.id}: go")
        back = other.requeue_after == job.requeue_after
        _ensure(back, f"components {job.id} and {other.id} do not come back together")
    if job.state != JobState.PENDING:
        _ensure(job.het_job_id in led.jobs or job.finished, f"component {job.id} has no leader")


def _ensure(condition: bool, text: str) -> None:
    if not condition:
        raise Broken(text)
