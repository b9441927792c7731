"""The verb `submit`: a decoded request becomes a job, or one sentence says why not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gsched import access, admission, tres
from gsched.config import Config, PartitionConfig
from gsched.environment import sluid
from gsched.errors import message
from gsched.hostlist import compress
from gsched.ledger import (
    associate,
    deadline,
    depend,
    expected,
    interactive,
    jobs,
    offered,
    over_limits,
    ranking,
    reserved,
)
from gsched.ledger.outcome import Outcome
from gsched.model import Alternative, Hold, Job, JobSpec, Shape
from gsched.taskset import TaskSet, TaskSetError
from gsched.topology import switch_wait
from gsched.wire.messages import Call, Done, Forecast, Refused, SubmitJob

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: priority of the first job where no priority is given; later jobs get less, so that equal
#: jobs run in the order of submission (priority/basic)
BASIC_PRIORITY = 4294901760


def submit(led: Ledger, call: Call, write: SubmitJob, now: float, out: Outcome) -> Done | Refused:
    """Makes the job, or all components of a heterogeneous job, or refuses with Slurm's message.
    Nothing is changed by a refusal."""
    spec = write.spec
    tasks, throttle = TaskSet([]), 0
    if spec.array:
        try:
            tasks, throttle = TaskSet.asked(spec.array)
        except TaskSetError:
            tasks = TaskSet([])
        alone = write.components or spec.interactive
        if not tasks.runs or tasks.last >= led.config.max_array_size or alone:
            return Refused(
                call.request_id, "Invalid job array specification", "ESLURM_INVALID_ARRAY"
            )
    wanted = max(1, len(tasks)) + len(write.components)
    if led.task_count + wanted > led.config.max_job_count:
        return Refused(
            call.request_id,
            "Resource temporarily unavailable",
            "EAGAIN",
            temporary=True,
        )
    if not write.script and not (spec.interactive and write.test_only):
        return Refused(call.request_id, "Batch script is empty!", "ESLURM_NO_SCRIPT")
    made: list[Job] = []
    for number, each in enumerate([spec, *write.components]):
        each.interactive = spec.interactive
        one = _component(led, call, write, each, number, now)
        if isinstance(one, Refused):
            return one
        made.append(one)
    job = made[0]
    # Limits are looked at before nodes, as in Slurm.
    refused = over_limits.refusal(led, call, made, max(1, len(tasks)))
    if refused is not None:
        return refused
    # Whether any node could hold it, a job is asked when it is no longer held, as in Slurm.
    asked = [one for one in made if write.test_only or one.held is Hold.NONE]
    for one in asked:
        lines = led.cluster.never(one.spec.shape, _partitions_of(led, one))
        if lines is None:
            lines = reserved.no_room(led, one, _partitions_of(led, one), now)
        if lines is not None:
            return _no_such_nodes(call, lines)
    if len(made) > 1:
        if len(asked) == len(made) and led.cluster.never_together(
            [(j.spec.shape, _partitions_of(led, j)) for j in made]
        ):
            return _no_such_nodes(call, [])
        for number, component in enumerate(made):
            component.het_job_id, component.het_offset = job.id, number
            component.het_size = len(made)
    if write.test_only:
        return _forecast(led, call, made, now)
    if tasks.runs:
        job.array_job_id = job.id
        job.array_pending = tasks.text()
        job.array_throttle = throttle
        led.extra_tasks += len(tasks) - 1
        led.array_members[job.id] = {job.id}
        if throttle:
            led.cluster.set_throttle(job.id, throttle)
    led.meta.next_job_id = job.id + len(made)
    led.put_meta(out)
    for digest, data in ((job.script, write.script), (job.environment, write.environment)):
        if digest:
            if digest not in led.blob_refs:
                out.puts["blob", digest.encode()] = data
            led.ref_blob(digest)
    for component in made:
        led.jobs[component.id] = component
    for component in made:
        _enter(led, component, now, out)
    led.counts.submitted += max(1, len(tasks)) + len(made) - 1
    return Done(call.request_id, 0, value=job.id)


def _forecast(led: Ledger, call: Call, made: list[Job], now: float) -> Done | Refused:
    """When and where these components could start together."""
    ways = led.cluster.what_if.ways
    wanted = [
        (
            job.spec.shape,
            [(name, within) for name in _partitions_of(led, job) for within in ways(job)],
            job.time_limit,
        )
        for job in made
    ]
    held = [job for job in led.jobs.values() if job.alloc]
    ends = {job.id: (expected.free_at(led, job), job.reservation) for job in held}
    first = max(int(now), *(job.spec.begin for job in made))
    found = led.cluster.forecast(wanted, first, ends)
    if found is None:
        return _no_such_nodes(call, [])
    start, places = found
    names = [part.node for _, alloc in places for part in alloc]
    answer = Forecast(
        start=start,
        cpus=sum(part.cpus for _, alloc in places for part in alloc),
        nodes=compress(list(dict.fromkeys(names))),
        partition=places[0][0],
    )
    data = msgspec.json.encode(answer).decode()
    return Done(call.request_id, 0, value=made[0].id, data=data)


def _component(
    led: Ledger, call: Call, write: SubmitJob, spec: JobSpec, number: int, now: float
) -> Job | Refused:
    """The record of a job, or of one component; nothing is changed yet."""
    admin = led.is_admin(call.uid)
    spec = _alternate(led.config, spec)
    config = offered.extended(led, led.config)
    if config.enforce_part_limits != "NO":
        asked = spec.partitions or ((config.default_partition,) if config.default_partition else ())
        user = write.user or str(call.uid)
        config = led.limits.config_for(associate.qos_of(led, spec, user, asked))
    spec, problem = _possible(config, spec, write)
    if problem is not None:
        return Refused(call.request_id, problem.message, problem.code, notes=list(problem.notes))
    default = led.config.default_partition
    names = spec.partitions or ((default,) if default else ())
    if 0 < spec.deadline < now:
        code = "ESLURM_INVALID_TIME_LIMIT"
        return Refused(call.request_id, message(code), code)
    if spec.nice < 0 and not admin:
        return Refused(call.request_id, "Invalid --nice value", "ESLURM_INVALID_NICE")
    if not names:
        return Refused(
            call.request_id,
            "No partition specified or system default partition",
            "ESLURM_NO_DEFAULT_PARTITION",
        )
    partitions = [led.config.partitions[name] for name in names]
    closed = [p for p in partitions if p.state in ("DRAIN", "INACTIVE")]
    if closed and len(closed) == len(partitions):
        return Refused(
            call.request_id,
            "Required partition not available (inactive or drain)",
            "ESLURM_PARTITION_NOT_AVAIL",
        )
    barred = [p.name for p in partitions if p.root_only and not admin]
    if barred or not _may_run(led.config, call.uid, write.user):
        return Refused(call.request_id, "Access/permission denied", "ESLURM_ACCESS_DENIED")
    user = write.user or str(call.uid)
    charged = associate.charge(led, spec, user, names, associate.is_operator(led, call))
    if isinstance(charged, str):
        return Refused(call.request_id, message(charged), charged)
    spec, assoc_id = charged
    code = not_permitted(led, names, spec, call, write.group)
    code = code or over_limits.without_reservation(led, spec)
    if code:
        return Refused(call.request_id, message(code), code)
    groups = [*call.groups, write.group]
    text, code = reserved.wrong(led, spec.reservation, call.uid, write.user, groups, spec, names)
    if code:
        return Refused(call.request_id, text, code)
    spec = _with_defaults(spec, partitions[0], led, call.uid, admin)
    kept = [one for one in spec.alternatives if led.cluster.never(one.shape, names) is None]
    spec = _of(spec, kept) if kept else spec
    job_id = led.meta.next_job_id + number
    try:
        deps = depend.resolve(led, spec.dependency, job_id)
    except depend.DependencyProblem:
        return Refused(call.request_id, "Job dependency problem", "ESLURM_DEPENDENCY")
    job = _make(led, call, write, spec, names, job_id, now)
    if number:
        # The script is the first component's.
        job.script = job.environment = ""
    job.deps = deps
    job.assoc_id = assoc_id
    if job.spec.hold:
        job.held = Hold.USER
        job.priority = 0
        if not job.spec.begin:
            # Eligible from its release on.
            job.eligible_time = 0
    ranking.set_priority(led, job)
    return job


def _alternate(config: Config, spec: JobSpec) -> JobSpec:
    """A job for a partition that is DRAIN or INACTIVE goes to that partition's Alternate, if it has
    one that is open, or whose own Alternate is."""
    names = spec.partitions or ((config.default_partition,) if config.default_partition else ())
    found: list[str] = []
    for name in names:
        seen = [name]
        part = config.partitions.get(name)
        while part is not None and part.state in ("DRAIN", "INACTIVE"):
            part = config.partitions.get(part.alternate)
            if part is None or part.name in seen:
                part = None
                break
            seen.append(part.name)
        found.append(name if part is None else part.name)
    if tuple(found) == tuple(names):
        return spec
    return msgspec.structs.replace(spec, partitions=tuple(dict.fromkeys(found)))


def _possible(
    config: Config, spec: JobSpec, write: SubmitJob
) -> tuple[JobSpec, admission.Problem | None]:
    """The request without those of its alternatives that may never become a job, and what is wrong
    with the first where none may."""
    if not spec.alternatives:
        problem = admission.validate(spec, config, write.script, write.environment, held=spec.hold)
        return spec, problem
    kept, first = admission.possible(spec, config, write.script, write.environment, held=spec.hold)
    return (_of(spec, kept), None) if kept else (spec, first)


def _of(spec: JobSpec, kept: list[Alternative]) -> JobSpec:
    """The request with these alternatives alone: a single one is none."""
    return msgspec.structs.replace(
        spec,
        shape=kept[0].shape,
        tres=kept[0].tres,
        alternatives=tuple(kept) if len(kept) > 1 else (),
    )


def not_permitted(
    led: Ledger, names: Sequence[str], spec: JobSpec, call: Call, group: str = ""
) -> str:
    """Slurm's code where the partitions do not take the caller's groups, or, with
    EnforcePartLimits, the account or QOS (else such a job waits and says why); "" they do."""
    partitions = [led.config.partitions[name] for name in names]
    groups = [*call.groups, group]
    if not led.is_admin(call.uid) and not all(access.group_may(p, groups) for p in partitions):
        return "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP"
    mine = led.book.lineage(spec.account)
    why = [access.barred(part, spec, mine) for part in partitions]
    enforced = {"ALL": any, "ANY": all}.get(led.config.enforce_part_limits)
    if enforced is None or not enforced(why):
        return ""
    return access.CODES[next(filter(None, why))]


def _no_such_nodes(call: Call, notes: list[str]) -> Refused:
    return Refused(
        call.request_id,
        "Requested node configuration is not available",
        "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
        notes=notes,
    )


def _partitions_of(led: Ledger, job: Job) -> tuple[str, ...]:
    return job.spec.partitions or (job.partition,)


def _enter(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """A new record takes its place in the queue and among those that wait for others."""
    led.put_job(job, out)
    led.cluster.queue_job(job)
    if job.deps:
        job.eligible_time = 0
        depend.attach(led, job)
        for doomed in depend.settle(led, job, now, out):
            jobs.cancel_doomed(led, doomed, now, out)
    out.schedule = True
    if job.spec.begin > now:
        out.wake(job.spec.begin)
    deadline.watch(led, job)
    interactive.watch(led, job, out)


def _may_run(config: Config, uid: int, user: str) -> bool:
    """Whether the nodes start jobs of that user. Daemons that are not root's run all as the user
    they have themselves: they take nobody else's (and say so too)."""
    return uid == 0 or config.slurmd_user in ("root", "0", user, str(uid))


def digest(data: bytes) -> str:
    """Content address of a script or an environment ("" for nothing)."""
    return hashlib.sha256(data).hexdigest()[:40] if data else ""


def owner_of(config: Config, spec: JobSpec, partition: str, uid: int) -> int:
    """The uid whose jobs alone are to be on the job's nodes; -1: anybody's may. `partition`: the
    one that it is in unless it names others."""
    names = spec.partitions or (partition,)
    parts = [config.partitions[name] for name in names if name in config.partitions]
    wanted = spec.shape.exclusive == 2 or any(part.exclusive_user for part in parts)
    return uid if wanted else -1


def _with_defaults(
    spec: JobSpec, partition: PartitionConfig, led: Ledger, uid: int, admin: bool
) -> JobSpec:
    """The same request with what the cluster adds where the user said nothing."""
    if spec.alternatives:
        spec.alternatives = tuple(
            msgspec.structs.replace(
                one, shape=_shape_with_defaults(spec, one.shape, partition, led, uid)
            )
            for one in spec.alternatives
        )
    shape = _shape_with_defaults(spec, spec.shape, partition, led, uid)
    priority = spec.priority if admin else None
    wait = switch_wait(spec.switch_wait, led.config) if spec.switches else 0
    return msgspec.structs.replace(spec, shape=shape, priority=priority, switch_wait=wait)


def _shape_with_defaults(
    spec: JobSpec, shape: Shape, partition: PartitionConfig, led: Ledger, uid: int
) -> Shape:
    gpus = shape.gpus_per_node or shape.gpus_per_task or shape.gpus_total or shape.gpus_per_socket
    change: dict[str, int] = {"owner": owner_of(led.config, spec, partition.name, uid)}
    if partition.oversubscribe == "FORCE":
        change["oversubscribe"] = True
    if shape.mem_per_node is None and shape.mem_per_cpu is None and shape.mem_per_gpu is None:
        change |= default_memory(partition.name, led.config, bool(gpus))
    cpus_per_gpu = led.config.def_cpu_gpu(partition.name)
    if gpus and cpus_per_gpu and not shape.cpus_per_task_set and not shape.cpus_per_gpu:
        change["cpus_per_gpu"] = cpus_per_gpu
    return msgspec.structs.replace(shape, **change)


def default_memory(partition: str, config: Config, gpus: bool) -> dict[str, int]:
    """DefMemPerGPU for GPU jobs, else DefMemPerCPU or DefMemPerNode: the partition's first. With
    none set, a job takes all memory of its nodes (0), as with DefMemPerNode=UNLIMITED."""
    per_gpu = config.def_mem_gpu(partition)
    if gpus and per_gpu:
        return {"mem_per_gpu": per_gpu}
    found = config.def_mem(partition)
    if found is None:
        return {"mem_per_node": 0}
    return {"mem_per_cpu" if found[0] == "cpu" else "mem_per_node": found[1]}


def effective_limit(spec: JobSpec, partition: PartitionConfig) -> int:
    """Seconds the job may run in that partition; 0 unlimited."""
    if spec.time_limit is not None:
        return spec.time_limit
    return partition.max_time if partition.default_time is None else partition.default_time


def _make(
    led: Ledger,
    call: Call,
    write: SubmitJob,
    spec: JobSpec,
    names: tuple[str, ...],
    job_id: int,
    now: float,
) -> Job:
    priority = spec.priority
    if priority is None:
        priority = max(1, BASIC_PRIORITY - job_id - spec.nice)
    return Job(
        id=job_id,
        uid=call.uid,
        gid=call.gid,
        user=write.user or str(call.uid),
        group=write.group or str(call.gid),
        spec=spec,
        script=digest(write.script),
        environment=digest(write.environment),
        partition=names[0],
        time_limit=effective_limit(spec, led.config.partitions[names[0]]),
        priority=priority,
        submit_time=int(now),
        eligible_time=max(int(now), spec.begin),
        sluid=sluid(led.config.cluster_name, int(now * 1000), job_id),
        billing_asked=tres.with_billing(led.config, names[0], tres.requested(spec))["billing"],
    )


__all__ = ["default_memory", "digest", "effective_limit", "not_permitted", "submit"]
