"""The life of an attempt: placed, prepared, running, ended, released; requeued or forgotten."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from gsched import tres
from gsched.hostlist import compress
from gsched.ledger import (
    arrays,
    depend,
    expected,
    hetero,
    launch,
    mail,
    outbox,
    pause,
    preempt,
    quotas,
    ranking,
    refusals,
    reserved,
    slices,
    steps,
    use,
)
from gsched.ledger.outcome import Outcome
from gsched.ledger.state import job_key
from gsched.model import (
    Hold,
    Job,
    JobState,
    NodeAlloc,
    Phase,
    Placement,
    Plan,
    PlannedNodes,
    Usage,
    transitions,
)
from gsched.policy.quota import Quota
from gsched.wire.nodes import AttemptReport, Forget, Go, Kill

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: wait status that is shown as exit code 0:125
OOM_WSTATUS = 125


def move(job: Job, new: JobState) -> None:
    """Changes the state by the table of legal moves."""
    transitions.check(job.id, job.state, new)
    job.state = new


def allocated(job: Job) -> bool:
    """True while some node has not given its share back."""
    return bool(job.unreleased)


# ---- start ----------------------------------------------------------------------------------


def start_plan(led: Ledger, plan: Plan, now: float, out: Outcome) -> None:
    """Records the starts of a plan and sends the nodes their orders."""
    for word, ids in plan.words.items():
        out.words.update(dict.fromkeys(ids, word))
        for job_id in ids if out.view else ():
            out.view.pop(("verdict", job_key(job_id)), None)
    touched: dict[int, Job] = {}
    for job_id, pool in plan.pools.items():
        led.units.move(job_id, pool, out)
    stands = led.quotas() if plan.starts else None
    units: dict[int, list[Placement]] = {}
    for start in plan.starts:
        job = led.jobs.get(start.job_id)
        if job is not None and job.het_job_id:
            units.setdefault(job.het_job_id, []).append(start)
            continue
        if job is None or job.state != JobState.PENDING or job.held or job.deps:
            led.cluster.give_back(start.key)
            continue
        ranking.starts(led, job)
        if job.array_pending:
            touched[job.id] = job
            job = arrays.split(led, job, arrays.tasks_of(job).first, now, out)
        else:
            led.cluster.unqueue(job.id)
        led.cluster.bind(job.id, start.key)
        _start(led, job, start, now, out)
        job.pool = start.pool
        quotas.started(stands, job)
        launch.begin(led, job, now, out)
        slices.started(led, job, now, out)
        expected.refresh(led, [part.node for part in job.alloc])
        _tell_waiters(led, job, now, out)
    for leader, starts in units.items():
        _start_unit(led, leader, starts, stands, now, out)
    for job in touched.values():
        if job.state == JobState.PENDING:
            led.cluster.queue_job(job)
            out.schedule = True
        else:
            led.cluster.unqueue(job.id)
    for one in plan.preemptions:
        preempt.begin(led, one, now, out)
    if plan.planned is not None:
        out.view["plan", b"nodes"] = PlannedNodes(plan.planned)
    for verdict in plan.verdicts:
        out.view["verdict", job_key(verdict.job_id)] = verdict
    if plan.wake_at:
        out.wake(plan.wake_at)
    if not plan.complete:
        out.schedule = True


def _start_unit(
    led: Ledger,
    leader: int,
    starts: list[Placement],
    stands: Quota | None,
    now: float,
    out: Outcome,
) -> None:
    """All components of a heterogeneous job, or none of them."""
    members = hetero.unit(led, led.jobs[leader]) if leader in led.jobs else []
    ready = all(j.state == JobState.PENDING and not j.held and not j.deps for j in members)
    if not ready or [start.job_id for start in starts] != [job.id for job in members]:
        for start in starts:
            led.cluster.give_back(start.key)
        return
    for job, start in zip(members, starts, strict=True):
        ranking.starts(led, job)
        led.cluster.unqueue(job.id)
        led.cluster.bind(job.id, start.key)
        _start(led, job, start, now, out)
        quotas.started(stands, job)
    # Only now is it known where all of them are.
    for job in members:
        launch.begin(led, job, now, out)
        _tell_waiters(led, job, now, out)


def _start(led: Ledger, job: Job, start: Placement, now: float, out: Outcome) -> None:
    if job.spec.alternatives:
        chosen = job.spec.alternatives[start.choice]
        job.spec = msgspec.structs.replace(job.spec, shape=chosen.shape, tres=chosen.tres)
    if job.claim is not None and not start.reservation and not start.pool:
        end = int(now) + job.time_limit if job.time_limit else 0
        led.cluster.share(job, start.partition, end)
    preempt.started(led, job)
    led.cluster.assign_cpus(job, start.alloc)
    job.alloc = start.alloc
    pause.started(led, job, now, out)
    move(job, JobState.RUNNING)
    job.reason = ""
    job.partition = start.partition
    job.reservation = start.reservation
    job.attempt += 1
    while (job.id, job.attempt) in led.meta.foreign:
        job.attempt += 1
    led.counts.started += 1
    job.start_time = int(now)
    job.end_time = job.start_time + job.time_limit if job.time_limit else 0
    _end_with_reservation(led, job)
    job.last_sched_eval = int(now)
    job.configuring = True
    job.wstatus = job.derived_wstatus = 0
    job.usage = Usage()
    job.steps_known = []
    job.suspend_time = job.pre_suspend_s = job.sliced = 0
    job.preempt_time = job.checkpoint_time = 0
    job.preempt_eligible = max(job.start_time, led.rules().exempt_until(job))
    job.gpu_types = led.cluster.gpu_types(job.alloc)
    job.licenses_alloc = led.cluster.take_licenses(job)
    job.billing = tres.with_billing(led.config, job.partition, tres.allocated(job))["billing"]
    launch.expect(led, job, now)
    use.begin(led, job)
    led.put_job(job, out)
    out.view["verdict", job_key(job.id)] = None
    mail.begun(led, job, now, out)
    arrays.count_change(led, job, +1)
    for index, part in enumerate(job.alloc):
        led.parts[part.node][job.id] = index
        led.touch_use(part.node)


def _tell_waiters(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The job started or ended: others may wait for that. Jobs that are cancelled for it have
    waiters of their own: one after the other, since chains of thousands are not unusual."""
    if not led.waiters and not led.singletons:
        return
    led.to_tell.append(job)
    if len(led.to_tell) > 1:
        # The call that goes through them will come to it.
        return
    while led.to_tell:
        for doomed in depend.notify(led, led.to_tell[0], now, out):
            cancel_doomed(led, doomed, now, out)
        led.to_tell.popleft()


def cancel_doomed(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """Ends a waiting job whose dependency can never be fulfilled (--kill-on-invalid-dep)."""
    if job.state == JobState.PENDING:
        end(led, job, JobState.CANCELLED, "DependencyNeverSatisfied", now, out)


def send_kill(
    led: Ledger,
    job: Job,
    part: NodeAlloc,
    cause: str,
    now: float,
    out: Outcome,
    lost: str = "",
) -> None:
    """Orders the node to end its share, once per session."""
    live = led.live[part.node]
    key = (job.id, job.attempt)
    if live.session and key not in live.kill_sent:
        live.kill_sent.add(key)
        led.order(part.node, Kill(0, job.id, job.attempt, cause, lost), now, out)


# ---- reports ----------------------------------------------------------------------------------


def report(
    led: Ledger, job: Job, part: NodeAlloc, rep: AttemptReport, now: float, out: Outcome
) -> None:
    """Takes in what a node says of a share it should hold. Phases only grow."""
    if rep.fault:
        _fault(led, job, part, rep.fault, now, out)
    if rep.checkpoint_ms >= 0:
        _saved(led, job, int(now) - rep.checkpoint_ms // 1000, out)
    if rep.phase <= part.phase:
        return
    was = part.phase
    part.phase = min(rep.phase, Phase.ENDED)
    led.put_job(job, out)
    if rep.phase >= Phase.ENDED:
        if was < Phase.ENDED:
            _share_ended(led, job, part, rep, now, out)
        if rep.phase == Phase.RELEASED:
            share_released(led, job, part, now, out)
    elif rep.phase == Phase.RUNNING:
        if hetero.one_node(job):
            job.configuring = False
            led.preparing.pop(job.id, None)
    elif rep.phase == Phase.PREPARED and job.configuring and not job.finished:
        if hetero.prepared(led, job):
            for member in hetero.unit(led, job):
                _go(led, member, now, out)


def _saved(led: Ledger, job: Job, at: int, out: Outcome) -> None:
    """The job has said that its work was saved then: less is lost by its end."""
    if at > job.checkpoint_time + 1 and not job.finished:
        job.checkpoint_time = min(at, int(led.meta.last_now))
        led.put_job(job, out)


def _go(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """All nodes are prepared: the start is a fact from this commit on."""
    led.put_job(job, out)
    job.configuring = False
    led.preparing.pop(job.id, None)
    for part in job.alloc:
        part.phase = Phase.RUNNING
        led.order(part.node, Go(0, job.id, job.attempt), now, out)


def _share_ended(
    led: Ledger, job: Job, part: NodeAlloc, rep: AttemptReport, now: float, out: Outcome
) -> None:
    if rep.error and refusals.taken(led, job, part.node, rep, now, out):
        return
    if part is job.alloc[0]:
        if rep.wstatus >= 0:
            for member in hetero.unit(led, job):
                # As Slurm has it: 0:125 whatever the script made of it.
                member.wstatus = OOM_WSTATUS if rep.cause == "oom" else rep.wstatus
                led.put_job(member, out)
            job.usage = Usage(rep.user_ms, rep.system_ms, rep.max_rss_kb)
        if not job.finished:
            if rep.cause == "preempted":
                preempt.finish(led, job, now, out)
                return
            state, reason = _verdict_of_end(rep)
            if state == JobState.CANCELLED:
                job.cancelled_by = job.uid
            if state == JobState.NODE_FAIL:
                node_failed(led, job, part.node, now, out)
            else:
                end(led, job, state, reason, now, out)
    elif rep.cause == "preempted":
        preempt.finish(led, job, now, out)
    elif not job.finished:
        # Another node's share came to an end that nobody asked for: it was lost there.
        node_failed(led, job, part.node, now, out)


def _fault(led: Ledger, job: Job, part: NodeAlloc, fault: str, now: float, out: Outcome) -> None:
    """The attempt has shown that something is wrong with the node: said once, so that whoever
    takes it back into service nevertheless is heard."""
    live = led.live[part.node]
    key = (job.id, job.attempt)
    if key not in live.faults:
        live.faults.add(key)
        refusals.drain(led, part.node, fault, now, out)


def _verdict_of_end(rep: AttemptReport) -> tuple[JobState, str]:
    if rep.cause == "timeout":
        return JobState.TIMEOUT, "TimeLimit"
    if rep.cause == "inactive":
        return JobState.TIMEOUT, "InactiveLimit"
    if rep.cause == "oom":
        return JobState.OUT_OF_MEMORY, "OutOfMemory"
    if rep.cause == "node" or rep.wstatus < 0:
        return JobState.NODE_FAIL, ""
    if rep.cause == "cancelled":
        # The client of an interactive job has gone.
        return JobState.CANCELLED, ""
    if rep.wstatus == 0:
        return JobState.COMPLETED, ""
    if rep.wstatus & 0x7F:
        return JobState.FAILED, f"RaisedSignal:{rep.wstatus & 0x7F}"
    return JobState.FAILED, "NonZeroExitCode"


# ---- end ------------------------------------------------------------------------------------


def end(
    led: Ledger,
    job: Job,
    state: JobState,
    reason: str,
    now: float,
    out: Outcome,
    cause: str = "end",
    lost: str = "",
) -> None:
    """The end becomes a fact, of an attempt or of a job that never ran, and with it that of the
    other components of a heterogeneous job. Shares still held are ordered to be killed."""
    members = hetero.unit(led, job)
    for other in members:
        if other is not job:
            other.requeue_after, other.hold_after = job.requeue_after, job.hold_after
            other.requeue_wait, other.hold_reason = job.requeue_wait, job.hold_reason
            other.cancelled_by, other.wstatus = job.cancelled_by, job.wstatus
    for member in members:
        if not member.finished:
            _end(led, member, state, reason, now, out, cause, lost)


def _count_end(led: Ledger, state: JobState) -> None:
    if state == JobState.COMPLETED:
        led.counts.completed += 1
    elif state == JobState.CANCELLED:
        led.counts.canceled += 1
    else:
        led.counts.failed += 1


def _end(
    led: Ledger,
    job: Job,
    state: JobState,
    reason: str,
    now: float,
    out: Outcome,
    cause: str,
    lost: str,
) -> None:
    if job.state == JobState.PENDING:
        preempt.dropped(led, job, now, out)
        led.cluster.unqueue(job.id)
        depend.detach(led, job)
        out.view["verdict", job_key(job.id)] = None
    if job.state == JobState.SUSPENDED:
        # Its last stretch ends where it began; until nothing of it is left it is in nobody's way.
        job.suspend_time = int(now)
        job.sliced = job.sliced or int(now)
    move(job, state)
    led.sliced.discard(job.id)
    _count_end(led, state)
    job.reason = reason
    job.end_time = int(now)
    if lost and job.start_time:
        heard = int(led.live[lost].reported or led.before)
        job.last_report = max(job.start_time, min(heard, int(now)))
    use.end(led, job, job.last_report or int(now), now, out)
    job.configuring = False
    led.preparing.pop(job.id, None)
    job.completing = allocated(job)
    led.put_job(job, out)
    if not job.requeue_after:
        mail.ended(led, job, now, out)
    if job.prolog_due:
        # No node has heard of it.
        for part in job.alloc:
            share_released(led, job, part, now, out)
        job.prolog_due = False
        return
    for part in job.alloc:
        if part.phase < Phase.ENDED:
            send_kill(led, job, part, cause, now, out, lost)
        led.touch_use(part.node)
    if not job.completing:
        _all_released(led, job, now, out)


def share_released(led: Ledger, job: Job, part: NodeAlloc, now: float, out: Outcome) -> None:
    """Nothing is left of the job on that node: its resources are free from now on."""
    if part.phase == Phase.PLACED:
        led.withdraw(part.node, job.id, job.attempt, out)
    part.phase = Phase.RELEASED
    led.parts[part.node].pop(job.id, None)
    led.cluster.release_node(job.id, part)
    led.live[part.node].kill_sent.discard((job.id, job.attempt))
    led.live[part.node].faults.discard((job.id, job.attempt))
    led.touch_use(part.node)
    led.put_job(job, out)
    pause.settle(led, (part.node,), now, out)
    slices.settle(led, (part.node,), now, out)
    expected.refresh(led, (part.node,))
    led.order(part.node, Forget(0, job.id, job.attempt), now, out)
    out.schedule = True
    if job.finished and job.completing and not allocated(job):
        job.completing = False
        _all_released(led, job, now, out)


def _all_released(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    job.last_nodes = compress([part.node for part in job.alloc])
    launch.given_back(led, job, out)
    led.cluster.release(job.id)
    preempt.gone(led, job, now, out)
    members = hetero.unit(led, job)
    over = all(other.finished and not other.completing for other in members)
    if over:
        steps.close(led, job, now, out)
    outbox.write(led, job, now, out)
    if job.alloc:
        arrays.count_change(led, job, -1)
    if not over:
        return
    # One comes back, or is forgotten, with the others.
    for member in members:
        if member.requeue_after:
            _requeue(led, member, now, out)
        else:
            if led.config.min_job_age:
                heapq.heappush(led.purge_queue, (int(now) + led.config.min_job_age, member.id))
            _tell_waiters(led, member, now, out)


def _requeue(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    mail.requeued(led, job, now, out)
    keeps_place = job.state == JobState.PREEMPTED
    job.restart_reason = "requeued" if job.state == JobState.CANCELLED else job.state.name.lower()
    move(job, JobState.PENDING)
    job.requeue_after = False
    job.completing = False
    job.alloc = []
    if job.spec.alternatives:
        first = job.spec.alternatives[0]
        job.spec = msgspec.structs.replace(job.spec, shape=first.shape, tres=first.tres)
    job.guaranteed, job.pool = False, ""
    job.restarts += 1
    job.start_time = 0
    job.end_time = 0
    job.wstatus = job.derived_wstatus = 0
    job.suspend_time = job.pre_suspend_s = job.sliced = 0
    job.cancelled_by = -1
    job.last_report = job.preempt_time = 0
    job.submit_time = int(now)
    job.accrue_time = -1
    if job.requeue_wait:
        job.spec = msgspec.structs.replace(job.spec, begin=int(now) + job.requeue_wait)
        job.requeue_wait = 0
        out.wake(job.spec.begin)
    if not keeps_place or not job.eligible_time:
        job.eligible_time = max(int(now), job.spec.begin)
    ranking.set_priority(led, job)
    if job.hold_after:
        job.hold_after = False
        job.held = Hold.ADMIN
        job.priority = 0
        if job.hold_reason:
            job.reason, job.hold_reason = job.hold_reason, ""
    if job.deps:
        # It was cancelled while it waited for others: the next tick looks at what became of them.
        job.eligible_time = 0
        depend.attach(led, job)
        heapq.heappush(led.timed, (0, job.id))
    led.put_job(job, out)
    led.cluster.queue_job(job)
    out.schedule = True


def may_requeue(led: Ledger, job: Job) -> bool:
    """What --requeue/--no-requeue and JobRequeue say. Nobody can run a command of srun or salloc
    again."""
    if job.spec.interactive:
        return False
    return job.spec.requeue if job.spec.requeue is not None else led.config.job_requeue


def node_failed(led: Ledger, job: Job, node: str, now: float, out: Outcome) -> None:
    """A node lost its share: the attempt is over; another follows where that is allowed."""
    job.requeue_after = may_requeue(led, job)
    out.log.append(("warning", f"job {job.id} lost node {node}"))
    end(led, job, JobState.NODE_FAIL, "", now, out, cause="node", lost=node)


def requeue_running(
    led: Ledger,
    job: Job,
    hold: bool,
    now: float,
    out: Outcome,
    wait_s: int = 0,
    hold_reason: str = "",
) -> None:
    """`scontrol requeue`: ends the attempt and queues the job again, not to start before `wait_s`
    seconds later."""
    members = hetero.unit(led, job)
    for member in members:
        member.requeue_after = True
        member.hold_after = hold
        member.requeue_wait, member.hold_reason = wait_s, hold_reason
        led.put_job(member, out)
    if job.state in (JobState.RUNNING, JobState.SUSPENDED):
        end(led, job, JobState.CANCELLED, "", now, out, cause="requeue")
    elif not any(member.completing for member in members):
        for member in members:
            member.reason = ""
            _requeue(led, member, now, out)


def set_end(led: Ledger, job: Job) -> None:
    """The expected end of a running job follows its limit and the time it was suspended."""
    if job.state == JobState.SUSPENDED or not job.time_limit:
        job.end_time = 0
    elif job.suspend_time:
        job.end_time = job.suspend_time + job.time_limit - job.pre_suspend_s
    else:
        job.end_time = job.start_time + job.time_limit
    _end_with_reservation(led, job)
    led.cluster.set_end(job)
    expected.refresh(led, [part.node for part in job.alloc])


def _end_with_reservation(led: Ledger, job: Job) -> None:
    last = reserved.end_of(led, job)
    if last and job.state != JobState.SUSPENDED:
        job.end_time = min(job.end_time or last, last)


# ---- time -----------------------------------------------------------------------------------


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Gangs that do not get ready in time are taken back whole; times that only time changes."""
    for job_id, deadline in list(led.preparing.items()):
        if now < deadline or job_id not in led.preparing:
            continue
        job = led.jobs[job_id]
        if hetero.one_node(job):
            # One node prepares and starts in one step: reports and timeouts of the node decide.
            del led.preparing[job_id]
            continue
        unit = hetero.unit(led, job)
        late = [p.node for member in unit for p in member.alloc if p.phase < Phase.PREPARED]
        out.log.append(
            ("warning", f"job {job_id}: {compress(late)} not prepared in time; all taken back")
        )
        job.requeue_after = not job.spec.interactive
        end(led, job, JobState.BOOT_FAIL, "", now, out, cause="launch")
    while led.timed and led.timed[0][0] <= now:
        waiting = led.jobs.get(heapq.heappop(led.timed)[1])
        if waiting is not None:
            for doomed in depend.settle(led, waiting, now, out):
                cancel_doomed(led, doomed, now, out)
    if led.timed:
        out.wake(led.timed[0][0])
    if led.cluster.due(int(now)):
        out.schedule = True


def purge(led: Ledger, job_id: int, now: float, out: Outcome) -> None:
    """Forgets a job that ended MinJobAge ago (unless it was queued again since)."""
    job = led.jobs.get(job_id)
    if job is None or not job.finished or job.completing:
        return
    if job.end_time + led.config.min_job_age > now or job.requeue_after:
        return
    del led.jobs[job_id]
    arrays.forget(led, job)
    led.unref_blob(job.script, out)
    led.unref_blob(job.environment, out)
    out.puts["job", job_key(job_id)] = None
