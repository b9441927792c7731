"""Nodes: registration, reports and what follows from them, silence, and what admins say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger import fields, jobs, launch, preempt, sane, steps, suspend
from gsched.ledger.drift import judge as judge_drift
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, Node, NodeFlag, Phase
from gsched.wire.codec import PROTOCOL
from gsched.wire.nodes import (
    AttemptReport,
    Forget,
    Go,
    Kill,
    Notify,
    Register,
    Report,
    Reregister,
    Signal,
    Welcome,
)

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: fault of a GPU that its node does not find any more
NOT_FOUND = "not found"
#: orders that a node has not confirmed after this many seconds are sent again
RESEND_S = 3.0
#: load and free memory of a node on which nothing else changes are told to readers this often
LOAD_S = 60.0


def message(led: Ledger, name: str, msg: Register | Report, now: float, out: Outcome) -> None:
    """Takes in a registration or a report."""
    if name not in led.nodes:
        refusal = Welcome(led.meta.epoch, "", led.meta.cluster, refused=f"{name} is not configured")
        out.messages.append((name, refusal))
        return
    sane.clip(msg)
    why = sane.problem(msg)
    if why:
        out.log.append(("error", f"message of {name} not taken: {why}"))
        if isinstance(msg, Register):
            refusal = Welcome(led.meta.epoch, "", led.meta.cluster, refused=why)
            out.messages.append((name, refusal))
        return
    if isinstance(msg, Register):
        _register(led, name, msg, now, out)
    else:
        _report(led, name, msg, now, out)


# ---- registration -------------------------------------------------------------------------


def _register(led: Ledger, name: str, msg: Register, now: float, out: Outcome) -> None:
    node, live = led.nodes[name], led.live[name]
    why = _refusal(led, name, msg)
    if why:
        out.messages.append((name, Welcome(led.meta.epoch, "", led.meta.cluster, refused=why)))
        out.log.append(("error", f"registration of {name} refused: {why}"))
        if msg.attempts:
            _alarm(led, node, why, now, out)
        return
    if live.session == msg.session:
        # Doubled on the way: the numbering of a session's orders must never start again.
        out.messages.append((name, _welcome(led, msg)))
        return
    if live.lost == msg.session:
        # On its way since before the silence: the orders of that session are counted already.
        out.messages.append((name, Reregister(led.meta.epoch)))
        return
    live.session = msg.session
    live.last_order = live.seen = 0
    live.unacked.clear()
    live.kill_sent.clear()
    out.orders.pop(name, None)
    live.last_heard = now
    node.session = msg.session
    node.boot_id = msg.boot_id
    node.cpus, node.mem_mb = msg.cpus, msg.mem_mb
    node.boot_time = int(now) - msg.uptime_s
    node.start_time = int(now)
    node.version, node.arch, node.os = msg.version, msg.arch, msg.os
    lost = {gpu.uuid for gpu in node.gpus if gpu.fault == NOT_FOUND}
    promised = led.config.nodes[name].gpus
    node.gpus = bind_gpus(node.gpus, msg.gpus, led.cluster.used(name)[2], promised)
    for gpu in node.gpus:
        if gpu.fault == NOT_FOUND and gpu.uuid not in lost:
            out.log.append(("error", f"{name}: GPU {gpu.uuid} is gone; the others go on"))
    was_silent = bool(node.flags & NodeFlag.NOT_RESPONDING)
    node.flags &= ~(NodeFlag.UNKNOWN | NodeFlag.NOT_RESPONDING)
    if node.flags & NodeFlag.DOWN and _returns(led, node, was_silent):
        node.flags &= ~NodeFlag.DOWN
        node.reason, node.reason_time = "", 0
    _judge(led, node, now)
    judge_drift(led, node, msg, now, out)
    led.put_node(node, out)
    led.cluster.node_changed(node)
    # Nothing is concluded from the registration itself, which may have been long on its way: the
    # first report under the new session was certainly made after it was granted.
    live.confirmed = False
    led.cluster.set_usable(name, False)
    out.messages.append((name, _welcome(led, msg)))
    for job_id in led.parts[name]:
        job = led.jobs[job_id]
        if not job.finished and (not job.configuring or job.suspend_time):
            # Orders about limit, stop and go may have been lost with the last session.
            suspend.tell(led, job, now, out, name)
            preempt.tell(led, job, name, now, out)
            steps.tell(led, job, name, now, out)
    early, live.early = live.early, []
    for order in early:
        if _is_due(led, name, order):
            led.order(name, order, now, out)


def _is_due(led: Ledger, name: str, order: Signal | Notify) -> bool:
    """Whether what waited for a node's registration still has somebody to go to."""
    job = led.jobs.get(order.job_id)
    if job is None or job.id not in led.parts[name] or job.finished:
        return False
    if isinstance(order, Signal) and order.step is not None:
        step = led.steps.get(job.id, {}).get(order.step)
        if step is None or step.ends:
            # It has ended, or is told to end in any case.
            return False
    return job.attempt == order.attempt


def _welcome(led: Ledger, msg: Register) -> Welcome:
    timeout = led.config.slurmd_timeout
    heartbeat = max(1, min(10, timeout // 3)) if timeout else 10
    return Welcome(led.meta.epoch, msg.session, led.meta.cluster, heartbeat_s=heartbeat)


def _refusal(led: Ledger, name: str, msg: Register) -> str:
    if msg.protocol != PROTOCOL:
        return f"protocol {msg.protocol} is not spoken here (this controller speaks {PROTOCOL})"
    if msg.cluster and msg.cluster != led.meta.cluster:
        if msg.attempts:
            return f"{name} holds {len(msg.attempts)} attempts of cluster {msg.cluster}"
        return ""
    if msg.cluster and msg.epoch > led.meta.epoch:
        return (
            f"{name} has served epoch {msg.epoch}, this controller is at {led.meta.epoch}: "
            "another controller has taken over, or an old state was restored"
        )
    return ""


def _alarm(led: Ledger, node: Node, why: str, now: float, out: Outcome) -> None:
    """What must not be killed keeps its node out of use until somebody has looked."""
    if not node.flags & NodeFlag.DRAIN or node.reason != why:
        node.flags |= NodeFlag.DRAIN
        node.reason, node.reason_uid, node.reason_time = why, 0, int(now)
        led.put_node(node, out)
        led.cluster.set_usable(node.name, False)
        out.log.append(("error", f"node {node.name} drained: {why}"))


def _returns(led: Ledger, node: Node, was_silent: bool) -> bool:
    """ReturnToService: 2 any down node, 1 only one that was down for its silence, 0 none."""
    return led.config.return_to_service == 2 or (
        led.config.return_to_service == 1 and was_silent and node.reason == SILENT
    )


def _judge(led: Ledger, node: Node, now: float) -> None:
    """Drains a node that never had what slurm.conf promises, as Slurm words it. One that has lost
    a GPU goes on with the others."""
    conf = led.config.nodes[node.name]
    want = conf.gpus
    have = len(node.gpus)
    if have < want:
        why = f"gres/gpu count reported lower than configured ({have} < {want})"
        if not node.flags & NodeFlag.DRAIN:
            node.flags |= NodeFlag.DRAIN
            node.reason, node.reason_uid, node.reason_time = why, 0, int(now)
    elif node.reason.startswith("gres/gpu count reported lower"):
        node.flags &= ~NodeFlag.DRAIN
        node.reason, node.reason_time = "", 0


def bind_gpus(known: list[Gpu], found: list[Gpu], in_use: int, promised: int = 0) -> list[Gpu]:
    """The node's GPUs by bit: a UUID keeps its bit as long as it is there; a bit in use is never
    given to another UUID. A vanished GPU keeps its place with a fault until it is replaced, or the
    configuration no longer promises so many."""
    by_uuid = {gpu.uuid: gpu for gpu in found}
    #: where each found GPU stands in the node's own order: links are given in that order
    place = {gpu.uuid: i for i, gpu in enumerate(found)}
    result: list[Gpu] = []
    for gpu in known:
        new = by_uuid.pop(gpu.uuid, None)
        if new is not None:
            result.append(new)
        else:
            gpu.fault = gpu.fault or NOT_FOUND
            result.append(gpu)
    for gpu in by_uuid.values():
        for bit, old in enumerate(result):
            if old.uuid not in place and not in_use >> bit & 1:
                result[bit] = gpu
                break
        else:
            # Beyond that a GPU is not used until one in use that is gone makes room.
            if len(result) < sane.MAX_GPUS:
                result.append(gpu)
    while len(result) > promised and result[-1].uuid not in place:
        if in_use >> (len(result) - 1) & 1:
            break
        result.pop()
    return [_links_by_bit(gpu, result, place) for gpu in result]


def _links_by_bit(gpu: Gpu, order: list[Gpu], place: dict[str, int]) -> Gpu:
    """A copy of `gpu` whose links are numbered by bit instead of by the node's own order."""
    copy = Gpu(**{field: getattr(gpu, field) for field in gpu.__struct_fields__})
    if gpu.uuid in place:
        copy.links = [
            gpu.links[place[other.uuid]]
            if other.uuid in place and place[other.uuid] < len(gpu.links)
            else 0
            for other in order
        ]
    else:
        copy.links = [0] * len(order)
    return copy


# ---- reports ----------------------------------------------------------------------------------


def _report(led: Ledger, name: str, msg: Report, now: float, out: Outcome) -> None:
    live = led.live[name]
    if not live.session or msg.session != live.session:
        # A report of another session says nothing about what this one was told.
        out.messages.append((name, Reregister(led.meta.epoch)))
        return
    if msg.epoch == led.meta.epoch and msg.seen > live.last_order:
        # It counts the orders of another controller, for whom this session was opened: here the
        # registration came a second time, and late.
        live.lost, live.session = live.session, ""
        led.cluster.set_usable(name, False)
        out.messages.append((name, Reregister(led.meta.epoch)))
        return
    live.last_heard = now
    live.cpu_load, live.free_mem_mb = msg.cpu_load, msg.free_mem_mb
    machine = (live.cpu_load, live.free_mem_mb)
    if machine != live.shown and (live.shown == (-1, -1) or now - live.shown_at >= LOAD_S):
        led.touch_use(name)
    node = led.nodes[name]
    if node.flags != NodeFlag.NONE and node.flags & NodeFlag.NOT_RESPONDING:
        node.flags &= ~NodeFlag.NOT_RESPONDING
        if node.flags & NodeFlag.DOWN and _returns(led, node, True):
            node.flags &= ~NodeFlag.DOWN
            node.reason, node.reason_time = "", 0
        led.put_node(node, out)
        led.cluster.set_usable(name, led.node_up(name))
        out.schedule = True
    if not live.confirmed:
        live.confirmed = True
        led.cluster.set_usable(name, led.node_up(name))
        out.schedule = True
    if msg.gpu_faults:
        _faults(led, node, msg.gpu_faults, now, out)
    if msg.epoch == led.meta.epoch:
        live.seen = max(live.seen, min(msg.seen, live.last_order))
        while live.unacked and live.unacked[0][0].n <= live.seen:
            live.unacked.popleft()
    # A report that was made before the last order, however late it comes, says nothing about
    # what that order brought.
    settled = msg.epoch == led.meta.epoch and msg.seen == live.last_order
    reconcile(led, name, msg.attempts, settled, now, out)
    # Of what this report shows as lost, the one before is the last word.
    live.reported = now


def _faults(led: Ledger, node: Node, faults: dict[str, str], now: float, out: Outcome) -> None:
    changed = False
    for gpu in node.gpus:
        fault = faults.get(gpu.uuid)
        if fault is not None and fault != gpu.fault:
            gpu.fault = fault
            changed = True
            out.log.append(
                ("error" if fault else "info", f"{node.name}: GPU {gpu.uuid}: {fault or 'healthy'}")
            )
    if changed:
        led.put_node(node, out)
        led.cluster.node_changed(node)
        out.schedule = True


def reconcile(
    led: Ledger,
    name: str,
    attempts: list[AttemptReport],
    settled: bool,
    now: float,
    out: Outcome,
) -> None:
    """Takes in what a node holds. Where the report has seen the last order (`settled`), it is
    compared with what the node should hold, and the difference becomes orders."""
    parts = led.parts[name]
    held: set[tuple[int, int]] = set()
    for rep in attempts:
        held.add((rep.job_id, rep.attempt))
        job = led.jobs.get(rep.job_id)
        index = parts.get(rep.job_id)
        if job is None or index is None or rep.attempt != job.attempt:
            steps.refuse(rep, name, out)
            if settled:
                _stray(led, name, job, rep, now, out)
            continue
        part = job.alloc[index]
        # Ends of steps come before the end of the job.
        steps.take(led, job, rep, name, now, out)
        jobs.report(led, job, part, rep, now, out)
        if settled and part.phase < Phase.ENDED:
            if job.finished:
                jobs.send_kill(led, job, part, "end", now, out)
            elif part.phase == Phase.RUNNING and rep.phase == Phase.PREPARED:
                led.order(name, Go(0, job.id, job.attempt), now, out)
    if not settled:
        return
    for job_id in [j for j in parts if (j, led.jobs[j].attempt) not in held]:
        _missing(led, led.jobs[job_id], parts[job_id], now, out)


def _missing(led: Ledger, job: Job, index: int, now: float, out: Outcome) -> None:
    """A share that the node should hold and does not."""
    part = job.alloc[index]
    if part.phase == Phase.PLACED and not job.finished:
        # The order never arrived: it is sent again, and started once.
        if job.prolog_due:
            # It was not sent yet.
            return
        launch.send_prepare(led, job, index, now, out)
        if job.state == JobState.SUSPENDED:
            suspend.tell(led, job, now, out, part.node)
        return
    if not job.finished:
        jobs.node_failed(led, job, part.node, now, out)
    if part.phase < Phase.RELEASED:
        jobs.share_released(led, job, part, now, out)


def _stray(
    led: Ledger, name: str, job: Job | None, rep: AttemptReport, now: float, out: Outcome
) -> None:
    """An attempt that the node holds and should not."""
    mark = (rep.job_id, rep.attempt)
    newer = rep.job_id >= led.meta.next_job_id or (job is not None and rep.attempt > job.attempt)
    if newer and mark not in led.meta.foreign:
        _disown(led, job, mark, now, out)
    if mark in led.meta.foreign:
        why = f"attempt {rep.attempt} of job {rep.job_id} is newer than the controller's state"
        _alarm(led, led.nodes[name], why, now, out)
        if rep.phase != Phase.RELEASED:
            return
    if rep.phase == Phase.RELEASED:
        led.order(name, Forget(0, rep.job_id, rep.attempt), now, out)
        return
    live = led.live[name]
    if (rep.job_id, rep.attempt) not in live.kill_sent:
        live.kill_sent.add((rep.job_id, rep.attempt))
        led.order(name, Kill(0, rep.job_id, rep.attempt, "node"), now, out)
        out.log.append(
            ("warning", f"{name} still holds attempt {rep.attempt} of job {rep.job_id}: killed")
        )


def _disown(led: Ledger, job: Job | None, mark: tuple[int, int], now: float, out: Outcome) -> None:
    """Takes note of an attempt that this state, an old or empty one, knows nothing of. It may run
    on; neither its job id nor its number are ever given out, else another would pass for it."""
    job_id, attempt = mark
    led.meta.foreign.append(mark)
    led.meta.next_job_id = max(led.meta.next_job_id, job_id + 1)
    led.put_meta(out)
    if job is not None:
        if job.state == JobState.PENDING:
            # It would run twice.
            fields.hold(job, True, now)
            led.cluster.queue_job(job)
        led.put_job(job, out)
    out.log.append(("error", f"attempt {attempt} of job {job_id} is not of this state: left alone"))


# ---- silence -------------------------------------------------------------------------------


#: reason of a node that was set down for its silence, as Slurm words it
SILENT = "Not responding"


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Sends unconfirmed orders again; ends the attempts of nodes silent for SlurmdTimeout."""
    for name, live in led.live.items():
        if live.unacked and now - live.unacked[0][1] >= RESEND_S and live.session:
            orders = [order for order, _ in live.unacked]
            fresh = {order.n for order in out.orders.get(name, ())}
            again = [order for order in orders if order.n not in fresh]
            live.unacked.clear()
            live.unacked.extend((order, now) for order in orders)
            out.orders[name] = again + out.orders.get(name, [])
        timeout = led.config.slurmd_timeout
        node = led.nodes[name]
        if not timeout or now - live.last_heard < timeout:
            continue
        if node.flags & (NodeFlag.NOT_RESPONDING | NodeFlag.FUTURE):
            continue
        if node.flags & NodeFlag.UNKNOWN and not led.parts[name]:
            continue
        node.flags |= NodeFlag.NOT_RESPONDING
        if not node.flags & NodeFlag.DOWN:
            node.flags |= NodeFlag.DOWN
            node.reason, node.reason_uid, node.reason_time = SILENT, 0, int(now)
        live.lost, live.session = live.session or live.lost, ""
        live.unacked.clear()
        led.put_node(node, out)
        led.cluster.set_usable(name, False)
        out.log.append(("error", f"node {name} has been silent for {timeout} s: set DOWN"))
        out.schedule = True
        if led.config.requeue_fence != "proof":
            fail_node_jobs(led, name, now, out)


def fail_node_jobs(led: Ledger, name: str, now: float, out: Outcome) -> None:
    """Ends every attempt with a share on a node that is lost; that share is written off."""
    for job_id in list(led.parts[name]):
        job = led.jobs[job_id]
        index = led.parts[name].get(job_id)
        if index is None:
            continue
        part = job.alloc[index]
        if not job.finished:
            jobs.node_failed(led, job, name, now, out)
        if part.phase < Phase.RELEASED:
            jobs.share_released(led, job, part, now, out)
