"""The whole verdict on a job: what keeps it waiting, what is ahead, when it is expected to start.

Pure: what the ledger and the cluster know now is all that is asked; nothing is changed. Cost: a few
us per waiting job and node, and some hundred placements for the suggestions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from gsched import access, dependency, licenses
from gsched.hostlist import compress, expand
from gsched.model import Dep, Hold, Job, JobState, Node, NodeFlag
from gsched.model.why import Ahead, Away, Cause, JobRef, Lack, Place, Rank, Start, Why
from gsched.scheduling import license_claims, limited, why_preempt
from gsched.scheduling.passes import max_test
from gsched.scheduling.suggest import suggest

if TYPE_CHECKING:
    from gsched.cluster.what_if import Way
    from gsched.ledger.ledger import Ledger

#: other jobs that are named for one matter
MOST_JOBS = 8

#: causes that say that the partition does not take the job, by Slurm's word for them
_BARS = {
    "PartitionDown": "partition_state",
    "PartitionInactive": "partition_state",
    "PartitionTimeLimit": "time_limit",
    "PartitionConfig": "size",
    access.ACCOUNT: "account",
    access.QOS: "qos",
}
_WORDS = {
    "begin": "BeginTime",
    "requeue": "BeginTime",
    "licenses": "Licenses",
    "array_limit": "JobArrayTaskLimit",
    "resources": "Resources",
    "reservation": "ReqNodeNotAvail, May be reserved for other job",
    "maintenance": "ReqNodeNotAvail, Reserved for maintenance",
    "reservation_begin": "Reservation",
    "together": "Resources",
    "priority": "Priority",
    "never": "BadConstraints",
    "nodes": "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
    "partitions",
    "new": "None",
    "settling": "Resources",
}
#: of several partitions the most hopeful one comes first
_HOPE = (
    *("priority", "resources", "reservation", "maintenance", "reservation_begin", "nodes"),
    "never",
)

#: the flags of a node, the most telling first
_AWAY = (
    (NodeFlag.DRAIN, "DRAINED"),
    (NodeFlag.FAIL, "FAIL"),
    (NodeFlag.DOWN, "DOWN"),
    (NodeFlag.NOT_RESPONDING, "NOT_RESPONDING"),
    (NodeFlag.FUTURE, "FUTURE"),
    (NodeFlag.UNKNOWN, "UNKNOWN"),
)


class Asked(msgspec.Struct):
    """A question, and who asks it."""

    now: int
    #: the time it is about; `now` or later
    at: int
    #: groups of the job's owner, as far as they are known
    groups: Collection[str] = ()
    #: whether the asker may know a job
    may_know: Callable[[Job], bool] = lambda job: True


def explain(led: Ledger, job: Job, asked: Asked, *, alone: bool = False) -> Why:
    """Why a job, or a heterogeneous job by its leader (unless `alone`), waits."""
    if alone or not job.het_job_id or job.het_offset:
        return _one(led, job, asked)
    members = [
        led.jobs[number] for number in range(job.id, job.id + job.het_size) if number in led.jobs
    ]
    parts = [_one(led, member, asked) for member in members]
    whole = msgspec.structs.replace(parts[0], job=str(job.id), components=parts)
    if any(part.state != "PENDING" for part in parts):
        return whole
    whole.starts = all(part.starts for part in parts)
    whole.never = any(part.never for part in parts)
    times = [part.start for part in parts]
    whole.start = Start()
    if all(one.time for one in times):
        last = max(times, key=lambda one: one.time)
        whole.start = Start(last.time, "not_before" if len(parts) > 1 else last.basis)
    whole.causes = [cause for part in parts for cause in part.causes if cause.kind != "component"]
    whole.places, whole.suggestions = [], []
    return whole


def _one(led: Ledger, job: Job, asked: Asked) -> Why:
    why = Why(
        job=shown_id(job),
        state=job.state.name,
        now=asked.now,
        at=asked.at,
        name=job.spec.name,
        user=job.user,
        partitions=list(job.spec.partitions or (job.partition,)),
    )
    if job.state != JobState.PENDING or not led.cluster.queued(job.id):
        why.reason = job.reason or "None"
        why.began, why.ended = job.start_time, job.end_time
        why.nodes = job.last_nodes or compress([share.node for share in job.alloc])
        if job.completing and job.requeue_after:
            why.state = "COMPLETING"
        if job.state == JobState.SUSPENDED:
            why_preempt.still(led, job, why, lambda one: _ref(one, asked))
        return why
    outside = [cause for cause in _outside(led, job, asked) if not _passed(cause, asked)]
    bars = list(_bars(led, job))
    open_ = [name for name in why.partitions if name not in {bar.partition for bar in bars}]
    if job.claim is not None and not outside:
        why.causes = [why_preempt.promised(led, job, lambda one: _ref(one, asked))]
        why.reason = "Resources"
        return why
    places = []
    causes = []
    for way in _ways(led, job, open_):
        place, more = _placement(led, job, way, asked)
        for cause in more:
            cause.reservation = way[1]
        places.append(place)
        causes += more
    why.places = places
    if any(place.starts for place in places):
        causes = []
    causes.sort(key=lambda cause: _HOPE.index(cause.kind))
    others = list(_components(led, job, asked)) if not outside and not causes else []
    parked = [cause for cause in outside if cause.kind in ("hold", "dependency")]
    rest = [cause for cause in outside if cause not in parked]
    if open_:
        why.causes = parked + rest + causes + others + bars
    else:
        why.causes = parked + bars + rest + others
    licensed = {cause.kind for cause in outside} == {"licenses"}
    if license_claims.partitions(led, job) if licensed else causes and not outside:
        why.causes += why_preempt.possible(led, job, open_, asked.now, lambda one: _ref(one, asked))
    why.starts = not outside and not others and any(place.starts for place in places)
    why.never = _never(why, open_)
    jobs, first = led.cluster.what_if.ahead(job.id)
    if not why.causes:
        most = max_test(led)
        late = Cause("not_tested", limit=most, have=jobs)
        why.causes.append(late if 0 < most <= jobs else Cause("new"))
    why.reason = _word(led, job, why.causes[0])
    why.start = _start(led, job, why, outside, open_, asked)
    why.ahead = Ahead(jobs, _job_ref(led, first, asked) if first else None)
    why.rank = _rank(led, job)
    why.commands = list(_commands(job, outside))
    # Another request would wait for these as well.
    bound = any(cause.kind in ("hold", "dependency", "array_limit") for cause in outside)
    if not bound and not why.starts and not job.het_job_id:
        why.suggestions = suggest(led, job, asked.now, asked.at, asked.groups)
    return why


def _rank(led: Ledger, job: Job) -> Rank | None:
    """Its priority, and how its account stands. Cost: depth of the tree."""
    if not led.ranking.on or job.held:
        return None
    rank = Rank(led.cluster.priority(job.id), led.ranking.fair.get(job.assoc_id, 0.0))
    assoc = led.book.assocs.get(job.assoc_id)
    standing = led.ranking.standing
    if assoc is not None:
        rank.account, rank.promised = assoc.account, 1.0
        own = led.book.account(assoc.account)
        for above in led.book.chain(own)[:-1] if own is not None else ():
            siblings = sum(max(0, one.shares) for one in led.book.below(above.parent))
            rank.promised *= max(0, above.shares) / siblings if siblings else 0.0
        if own is not None and own.id in standing:
            rank.used = standing[own.id].norm_usage
    return rank


def _passed(cause: Cause, asked: Asked) -> bool:
    return 0 < cause.until <= asked.at


def _never(why: Why, open_: list[str]) -> bool:
    if any(cause.never for cause in why.causes if not cause.partition):
        return True
    by_partition: dict[str, bool] = {}
    for place in why.places:
        name = place.partition
        by_partition[name] = place.never and by_partition.get(name, True)
    for cause in why.causes:
        if cause.partition and cause.partition not in open_:
            by_partition[cause.partition] = cause.never
    return bool(by_partition) and all(by_partition.values())


def _word(led: Ledger, job: Job, cause: Cause) -> str:
    """Slurm's reason word for a cause."""
    if cause.kind == "hold":
        return job.reason or ("JobHeldUser" if job.held == Hold.USER else "JobHeldAdmin")
    if cause.kind == "dependency":
        return "DependencyNeverSatisfied" if cause.never else "Dependency"
    if cause.kind == "nodes" and cause.detail:
        return f"ReqNodeNotAvail, UnavailableNodes:{cause.detail}"
    if cause.kind in ("bar", "component", "limit"):
        return cause.detail or "None"
    if cause.partition and cause.kind in _BARS.values():
        return led.cluster.what_if.barred(_free(job), cause.partition)
    return _WORDS.get(cause.kind, "None")


# ---- what has nothing to do with nodes ---------------------------------------------------------


def _outside(led: Ledger, job: Job, asked: Asked) -> Iterator[Cause]:
    now = asked.now
    settles = led.awaits(now)
    if settles:
        # Whatever else there is is known when it is over.
        missing = compress(led.missing())
        yield Cause("settling", detail=missing, until=math.ceil(settles))
    if job.held:
        yield Cause("hold", True, detail=job.reason or ("user" if job.held == 1 else "admin"))
    if job.deps:
        yield _dependency(led, job, asked)
    if job.spec.begin > now:
        kind = "requeue" if job.restarts else "begin"
        yield Cause(kind, until=job.spec.begin)
    if job.spec.licenses:
        yield from _licenses(led, job, asked)
    yield from _limits(led, job, asked)
    if job.array_job_id and job.array_throttle:
        running = led.array_running.get(job.array_job_id, 0)
        if running >= job.array_throttle:
            yield _array_limit(led, job, running, asked)


def _dependency(led: Ledger, job: Job, asked: Asked) -> Cause:
    cause = Cause("dependency", dependency.failed(job.deps), detail=dependency.shown(job.deps))
    ends: list[int] = []
    for dep in job.deps:
        if dep.state == dependency.FULFILLED:
            continue
        waited_for = list(_waited_for(led, job, dep))
        ends.append(_over_at(dep, waited_for))
        for other in waited_for[: MOST_JOBS - len(cause.jobs)]:
            ref = _ref(other, asked)
            ref.detail = dependency.shown([dep])
            cause.jobs.append(ref)
        if not waited_for and len(cause.jobs) < MOST_JOBS:
            number = str(dep.job_id) if dep.job_id else ""
            cause.jobs.append(JobRef(number, "", detail=dependency.shown([dep])))
    if ends and not cause.never:
        # Alternatives are done with the first, a list with the last.
        any_ = job.deps[0].alternative
        known = [end for end in ends if end]
        if any_ and known:
            cause.until = min(known)
        elif not any_ and len(known) == len(ends):
            cause.until = max(known)
    return cause


def _waited_for(led: Ledger, job: Job, dep: Dep) -> Iterator[Job]:
    """The records that a dependency waits for, unfinished ones first."""
    if dep.kind == "singleton":
        for other in led.jobs.values():
            mine, its = (j.array_job_id or j.het_job_id or j.id for j in (job, other))
            if (other.uid, other.spec.name) == (job.uid, job.spec.name) and its < mine:
                if not other.finished or other.completing:
                    yield other
        return
    members = led.array_members.get(dep.job_id)
    ids = sorted(members) if members is not None else [dep.job_id]
    found = [led.jobs[number] for number in ids if number in led.jobs]
    if dep.task >= 0 and members is not None:
        found = [one for one in found if one.array_task_id in (dep.task, -1)]
    yield from sorted(found, key=lambda one: one.finished)


def _over_at(dep: Dep, waited_for: list[Job]) -> int:
    """When it is fulfilled at the latest, if what it waits for goes well; 0 not known."""
    if not waited_for:
        return 0
    if dep.kind == "after":
        if all(one.start_time for one in waited_for):
            return max(one.start_time for one in waited_for) + 60 * dep.minutes
        return 0
    if any(one.state != JobState.RUNNING or not one.end_time for one in waited_for):
        return 0
    return max(one.end_time for one in waited_for)


def _array_limit(led: Ledger, job: Job, running: int, asked: Asked) -> Cause:
    members = sorted(led.array_members.get(job.array_job_id, ()))
    busy = [led.jobs[number] for number in members if led.jobs[number].alloc]
    busy = [one for one in busy if not one.finished]
    ends = sorted(one.end_time for one in busy if one.end_time)
    # So many have to end before the next one may start.
    too_many = running - job.array_throttle
    return Cause(
        "array_limit",
        limit=job.array_throttle,
        have=running,
        until=ends[too_many] if too_many < len(ends) else 0,
        jobs=[_ref(one, asked) for one in busy[:MOST_JOBS]],
    )


def _limits(led: Ledger, job: Job, asked: Asked) -> Iterator[Cause]:
    for cause, holders in limited.causes(led, job, asked.now):
        for one, held in holders[:MOST_JOBS]:
            ref = _ref(one, asked)
            ref.detail = held
            cause.jobs.append(ref)
        yield cause


def _licenses(led: Ledger, job: Job, asked: Asked) -> Iterator[Cause]:
    try:
        choices = licenses.parse(job.spec.licenses)
    except licenses.LicenseError:
        return
    left = led.cluster.licenses_left(job.id, asked.now)
    if any(all(left.get(n, 0) >= count for n, count in one.items()) for one in choices):
        return
    for name, count in choices[0].items():
        if left.get(name, 0) >= count:
            continue
        total = led.book.licenses(led.config.licenses).get(name, 0)
        holders = [(led.jobs[n], held) for n, held in led.cluster.license_holders(name)]
        cause = Cause("licenses", total < count, detail=name, want=count, limit=total)
        cause.have = max(0, left.get(name, 0))
        free = left.get(name, 0)
        for one, held in sorted(holders, key=lambda item: item[0].end_time or 1 << 60):
            free += held
            if free >= count:
                cause.until = one.end_time
                break
        for one, held in holders[:MOST_JOBS]:
            ref = _ref(one, asked)
            ref.detail = str(held)
            cause.jobs.append(ref)
        yield cause


def _free(job: Job) -> Job:
    """The job as if nothing but its request counted."""
    return msgspec.structs.replace(job, held=Hold.NONE, deps=[])


def _bars(led: Ledger, job: Job) -> Iterator[Cause]:
    """Partitions that do not take the job, whatever is free."""
    for name in job.spec.partitions or (job.partition,):
        part = led.config.partitions.get(name)
        if part is None:
            yield Cause("partition_gone", True, name)
            continue
        word = led.cluster.what_if.barred(_free(job), name)
        if not word:
            continue
        kind = _BARS.get(word, "bar")
        cause = Cause(kind, kind not in ("partition_state", "bar"), name, detail=word)
        if kind == "partition_state":
            cause.detail = part.state
        elif kind == "time_limit":
            cause.want, cause.limit = job.time_limit, part.max_time
        elif kind == "size":
            most = min(len(part.nodes), part.max_nodes or len(part.nodes))
            cause.want, cause.limit, cause.detail = job.spec.shape.min_nodes, most, "nodes"
            if cause.want <= cause.limit:
                shape = job.spec.shape
                tasks = max(shape.ntasks, shape.min_nodes * max(1, shape.ntasks_per_node))
                cause.want, cause.detail = tasks * shape.cpus_per_task, "cpus"
                cause.limit = sum(led.config.nodes[node].cpus for node in part.nodes)
        elif kind == "account":
            cause.detail = job.spec.account
        elif kind == "qos":
            cause.detail = job.spec.qos or "normal"
        yield cause


# ---- nodes -------------------------------------------------------------------------------------


def _ways(led: Ledger, job: Job, partitions: Iterable[str]) -> list[Way]:
    """Partitions, and reservations in them, in which a job may start."""
    return [(name, within) for name in partitions for within in led.cluster.what_if.ways(job)]


def _placement(led: Ledger, job: Job, way: Way, asked: Asked) -> tuple[Place, list[Cause]]:
    shape = job.spec.shape
    name, within = way
    place, planned = led.cluster.what_if.place(job, shape, way, job.time_limit, asked.now, asked.at)
    for lack in place.lacks:
        if lack.what == "state":
            lack.away = _away(led, name)
        elif lack.what == "gpus" and not lack.never:
            lack.away = _faulty(led, lack)
    for one in planned[:MOST_JOBS]:
        ref = _job_ref(led, one.job_id, asked)
        if ref is not None:
            ref.start, ref.end, ref.nodes = one.at, one.until, compress(one.nodes)
            place.delays.append(ref)
    if place.starts:
        return place, []
    never = [Cause("never", True, name)] if place.never else []
    opens = led.cluster.what_if.windows.opens(within, asked.at) if within else asked.at
    if opens != asked.at:
        # What is to be had in it is asked for only when it has begun.
        begin = Cause("reservation_begin", not opens, name, detail=within, until=opens)
        return place, [begin, *never]
    if never:
        return place, never
    if place.windowed:
        return place, [_kept(led, job, place, asked)]
    if place.room:
        return place, [Cause("priority", False, name, jobs=place.delays)]
    away = [node for node in shape.nodelist if not _up(led, node)]
    if away or not led.cluster.what_if.possible(shape, name, within):
        return place, [Cause("nodes", False, name, detail=compress(away) if away else "")]
    return place, [Cause("resources", False, name)]


def _kept(led: Ledger, job: Job, place: Place, asked: Asked) -> Cause:
    """Reservations of others are in the way."""
    maintenance = led.cluster.what_if.windows.maintenance_ahead(
        asked.at, job.time_limit, place.partition, job.spec.shape.nodelist
    )
    kept = [one for one in place.kept if one.maintenance == maintenance] or place.kept
    return Cause(
        "maintenance" if maintenance else "reservation",
        False,
        place.partition,
        detail=",".join(one.name for one in kept),
        have=sum(one.count for one in kept),
        until=max((one.end for one in kept), default=0),
    )


def _up(led: Ledger, name: str) -> bool:
    return name in led.nodes and led.node_up(name)


def _faulty(led: Ledger, lack: Lack) -> list[Away]:
    """Of nodes that are told as short of GPUs those that have some out of service."""
    found = []
    for name in expand(lack.names):
        node = led.nodes.get(name)
        faults = [gpu.fault for gpu in node.gpus if gpu.fault] if node is not None else []
        if faults:
            found.append(Away(name, 1, f"{len(faults)} GPU_FAULT", faults[0]))
    return found


def _away(led: Ledger, partition: str) -> list[Away]:
    """The nodes of a partition that are out of use, by what is said of them."""
    groups: dict[tuple[str, str, int], list[Node]] = {}
    for name in led.config.partitions[partition].nodes:
        node = led.nodes.get(name)
        if node is None or led.node_up(name):
            continue
        state = next((word for flag, word in _AWAY if node.flags & flag), "NOT_RESPONDING")
        groups.setdefault((state, node.reason, node.reason_uid), []).append(node)
    return [
        Away(
            compress([node.name for node in nodes]),
            len(nodes),
            state,
            reason,
            by if reason else -1,
            max(node.reason_time for node in nodes),
        )
        for (state, reason, by), nodes in groups.items()
    ]


def _components(led: Ledger, job: Job, asked: Asked) -> Iterator[Cause]:
    """The other components of a heterogeneous job that hold this one back."""
    if not job.het_job_id:
        return
    others = [
        led.jobs[number]
        for number in range(job.het_job_id, job.het_job_id + job.het_size)
        if number in led.jobs and number != job.id
    ]
    waiting = [one for one in others if one.state == JobState.PENDING]
    held_up: list[JobRef] = []
    word = ""
    for one in waiting:
        causes = [c for c in _outside(led, one, asked) if not _passed(c, asked)]
        names = list(one.spec.partitions or (one.partition,))
        barred = {bar.partition: bar for bar in _bars(led, one)}
        if not causes and len(barred) == len(names):
            causes = list(barred.values())
        if not causes:
            found = [
                _placement(led, one, way, asked)
                for way in _ways(led, one, [name for name in names if name not in barred])
            ]
            if any(place.starts for place, _ in found):
                continue
            causes = [cause for _, more in found for cause in more]
        if causes:
            word = word or _word(led, one, causes[0])
            ref = _ref(one, asked)
            ref.detail = causes[0].kind
            held_up.append(ref)
    if held_up:
        yield Cause("component", detail=word, jobs=held_up)
        return
    wanted = [
        (one.spec.shape, _ways(led, one, one.spec.partitions or (one.partition,)))
        for one in [job, *waiting]
    ]
    if not led.cluster.what_if.together(wanted, asked.now):
        yield Cause("together")


# ---- when, and what is ahead -------------------------------------------------------------------


def _start(
    led: Ledger, job: Job, why: Why, outside: list[Cause], open_: list[str], asked: Asked
) -> Start:
    if why.never or any(cause.never for cause in outside) or not open_:
        return Start()
    if outside:
        if not all(cause.until for cause in outside):
            return Start()
        last = max(outside, key=lambda cause: cause.until)
        fits = any(
            led.cluster.what_if.nodes_for(
                job.spec.shape,
                name,
                job.time_limit,
                asked.now,
                at=last.until,
                job_id=job.id,
                within=within,
            )
            for name, within in _ways(led, job, open_)
        )
        return Start(last.until, last.kind if fits else "not_before")
    if any(cause.kind in ("component", "together") for cause in why.causes):
        return Start()
    if why.starts:
        place = next(place for place in why.places if place.starts)
        return Start(asked.at, "now", place.on)
    start = led.cluster.what_if.start(job, open_, asked.now)
    begins = [cause.until for cause in why.causes if cause.kind == "reservation_begin"]
    if start.basis == "earliest" and start.time in begins:
        return Start(start.time, "reservation_begin")
    few, end = led.cluster.what_if.switches(job.id)
    if few and (not start.time or end < start.time):
        # From then on any number of switches will do.
        for name, within in _ways(led, job, open_):
            if led.cluster.what_if.nodes_for(
                job.spec.shape,
                name,
                job.time_limit,
                asked.now,
                at=end,
                job_id=job.id,
                switches=False,
                within=within,
            ):
                return Start(end, "switches")
    return start


def _commands(job: Job, outside: list[Cause]) -> Iterator[str]:
    for cause in outside:
        if cause.kind == "hold":
            yield f"scontrol release {job.id}"
        elif cause.kind in ("begin", "requeue"):
            yield f"scontrol update jobid={job.id} StartTime=now"
        elif cause.kind == "array_limit":
            yield (f"scontrol update jobid={job.array_job_id} ArrayTaskThrottle={cause.have + 1}")


# ---- names -------------------------------------------------------------------------------------


def shown_id(job: Job) -> str:
    """A job's id as users write it."""
    if job.het_job_id:
        return f"{job.het_job_id}+{job.het_offset}"
    if job.array_job_id and job.array_task_id >= 0:
        return f"{job.array_job_id}_{job.array_task_id}"
    if job.array_pending:
        return f"{job.array_job_id}_[{job.array_pending}]"
    return str(job.id)


def _ref(job: Job, asked: Asked) -> JobRef:
    if not asked.may_know(job):
        return JobRef("", job.state.name)
    nodes = compress([share.node for share in job.alloc])
    return JobRef(shown_id(job), job.state.name, job.start_time, job.end_time, nodes)


def _job_ref(led: Ledger, job_id: int, asked: Asked) -> JobRef | None:
    job = led.jobs.get(job_id)
    return _ref(job, asked) if job is not None else None
