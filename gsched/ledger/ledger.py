"""The ledger: command in, changes and instructions out.

A plain state machine in memory: no clock, no sockets, no files. The controller applies a batch
of commands, commits what they touched in one transaction, and only then carries out what the
outcome asks for. Whoever loads the committed records gets an equal ledger (`load`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from gsched import gpushare, reserve
from gsched.cluster import Cluster
from gsched.config import Config
from gsched.ledger import (
    accounts,
    accrual,
    arrays,
    cancel,
    configure,
    deadline,
    depend,
    hetero,
    hooks,
    interactive,
    jobs,
    launch,
    limits,
    mail,
    manage,
    node_update,
    nodes,
    offered,
    outbox,
    partitions,
    pause,
    preempt,
    quotas,
    ranking,
    relay,
    reservations,
    settle,
    slices,
    spent,
    steps,
    submit,
    tell,
    units,
    update,
    use,
)
from gsched.ledger.commands import (
    Command,
    Configure,
    FromNode,
    HookEnded,
    NodeMessage,
    Start,
    TakeOver,
    Tick,
    Write,
)
from gsched.ledger.outcome import Outcome
from gsched.ledger.state import Meta, NodeLive, StoredAnswer, job_key
from gsched.model import (
    Job,
    JobState,
    Node,
    NodeAlloc,
    NodeFlag,
    NodeUse,
    PartitionChange,
    Phase,
    PolicyRecord,
    Reservation,
    Step,
    Used,
)
from gsched.model.statistics import JobCounts
from gsched.policy import Book
from gsched.policy.preempt import Rules
from gsched.policy.quota import Quota
from gsched.policy.usage import Meter, rules_of
from gsched.taskset import TaskSet
from gsched.wire.messages import (
    AckOutbox,
    AskAgent,
    Call,
    CancelJobs,
    Done,
    ManagePolicy,
    Ping,
    Refused,
    Reply,
    SubmitJob,
    UpdateJob,
    UpdateNode,
    UpdatePartition,
    UpdateReservation,
)
from gsched.wire.nodes import (
    AgentAnswer,
    Forget,
    Notify,
    Order,
    Prepare,
    Register,
    Signal,
    StepMail,
)

#: seconds for which a request id is remembered after its answer
ANSWER_LIFE_S = 900
#: signals and lines that wait for the registration of a node, at most
MAX_EARLY = 1000


class Ledger:
    """All jobs and nodes of one cluster, and the only code that changes them.

    `admins` are the uids that may do everything (root, SlurmUser, the controller's own user).
    """

    def __init__(self, config: Config, meta: Meta, admins: Iterable[int] = (0,)) -> None:
        #: what the files say; what is in force; nodes that are kept for their jobs alone
        self.files = config
        self.config = config
        self.carried: set[str] = set()
        self.partition_changes: dict[str, PartitionChange] = {}
        #: advance reservations by name; those in force when the clock ticked last; and when those
        #: that end once they are idle are looked at next
        self.reservations: dict[str, Reservation] = {}
        #: accounts, users, associations, QOS, and what they have used
        self.book = Book()
        self.in_force: set[str] = set()
        self.idle_look = 0.0
        self.keep_look = 0.0
        self.meta = meta
        #: last time that the process before this one committed: reports to it came until then
        self.before = meta.last_now
        self.admins = frozenset(admins)
        self.jobs: dict[int, Job] = {}
        #: since the start, or since `sdiag --reset`
        self.counts = JobCounts()
        self.nodes: dict[str, Node] = {}
        self.live: dict[str, NodeLive] = {}
        self.cluster = Cluster(config)
        self.limits = limits.Keeper(self)
        self.standings = quotas.Standings()
        #: grows with every change of a job or a node
        self.pulse = 0
        self.accrual = accrual.Accrual(self)
        self.cluster.limit(self.limits)
        self.cluster.trace_accounts(self.book.lineage)
        self.units = units.Units(self)
        self.cluster.trace_pools(self.units.ways)
        #: what goes on being used, and how jobs are ranked
        self.meter = Meter(self.book, rules_of(config), self._part_qos)
        self.ranking = ranking.Ranking(self)
        self.cluster.rank_by(self.ranking.rank)
        self.answers: dict[bytes, StoredAnswer] = {}
        self._answer_queue: deque[tuple[int, bytes]] = deque()
        #: node -> {job id: index of the node's share in job.alloc}, shares not yet released
        self.parts: dict[str, dict[int, int]] = {}
        #: content hash -> number of jobs that use it
        self.blob_refs: dict[str, int] = {}
        #: jobs that wait for all nodes to be prepared -> time at which that takes too long
        self.preparing: dict[int, float] = {}
        #: (job, attempt) whose EpilogSlurmctld has not ended: the job as it was given back
        self.epilogs: dict[tuple[int, int], Job] = {}
        #: finished jobs by the time at which they are forgotten
        self.purge_queue: list[tuple[int, int]] = []
        #: array id -> ids of its records; tasks that hold resources
        self.array_members: dict[int, set[int]] = {}
        self.array_running: dict[int, int] = {}
        #: tasks beyond the first in records of arrays that are still together
        self.extra_tasks = 0
        #: job or array id -> jobs that wait for it; (uid, name) -> singletons that wait
        self.waiters: dict[int, set[int]] = {}
        self.singletons: dict[tuple[int, str], set[int]] = {}
        #: (time, job) at which a deadline is to be looked at
        self.deadlines: list[tuple[float, int]] = []
        #: jobs whose start or end is being told to those that wait; empty between commands
        self.to_tell: deque[Job] = deque()
        #: (time, job) at which a dependency is fulfilled by time alone
        self.timed: list[tuple[float, int]] = []
        #: (time, job, attempt, event) of mails about shares of time limits
        self.mail_times: list[tuple[float, int, int, int]] = []
        #: leading job -> its steps that are known to run, by number
        self.steps: dict[int, dict[int, Step]] = {}
        self._use_dirty: set[str] = set()
        #: what accounting has been told of nodes and the cluster
        self.told = tell.Told()
        #: questions to agents that are under way
        self.relay = relay.Relay()
        #: interactive jobs whose owners wait to hear how it looks
        self.looks = interactive.Looks()
        #: who may preempt whom; what is wrong with that; jobs that make way, and those for which
        self.preempt_rules: Rules | None = None
        self.preempt_problems: list[str] = []
        self.making_way: set[int] = set()
        self.claimants: set[int] = set()
        #: jobs that stand still for others
        self.paused: set[int] = set()
        #: jobs that wait for their turn on CPUs that they share; partition -> when a turn is over
        self.sliced: set[int] = set()
        self.slices: dict[str, float] = {}
        #: nodes that are expected back after the start, and until when (settle.py)
        self.awaited: list[str] = []
        self.settled_at = 0.0
        for conf in config.nodes.values():
            self._add_node(configure.new_node(conf))

    @classmethod
    def load(
        cls,
        config: Config,
        meta: Meta,
        job_records: Iterable[Job],
        node_records: Iterable[Node],
        answer_records: Iterable[tuple[bytes, StoredAnswer]] = (),
        admins: Iterable[int] = (0,),
        partition_records: Iterable[PartitionChange] = (),
        reservation_records: Iterable[Reservation] = (),
        step_records: Iterable[Step] = (),
        policy_records: Iterable[PolicyRecord] = (),
        used_records: Iterable[tuple[bytes, Used]] = (),
        hook_records: Iterable[Job] = (),
    ) -> Ledger:
        """The ledger that the stored records describe. Cost: a few us per job."""
        known = {node.name: node for node in node_records}
        loaded = list(job_records)
        changes = list(partition_records)
        in_force, carried = configure.effective(config, changes, known, configure.shares(loaded))
        self = cls(in_force, meta, admins)
        self.files = config
        self.carried = set(carried)
        self.partition_changes = {change.name: change for change in changes}
        for node in known.values():
            if node.name in in_force.nodes:
                self.nodes[node.name] = node
                self.cluster.node_changed(node)
        for name, reason in carried.items():
            node = self.nodes[name]
            node.flags |= NodeFlag.DRAIN
            node.reason = reason
        accounts.load(self, policy_records, used_records)
        offered.changed(self)
        for resv in sorted(reservation_records, key=lambda each: (each.created, each.name)):
            self.reservations[resv.name] = resv
            self.cluster.reserve(reserve.at(resv, self.meta.last_now))
        for job in loaded:
            self.jobs[job.id] = job
            self.ref_blob(job.script)
            self.ref_blob(job.environment)
            if job.array_pending:
                self.extra_tasks += len(TaskSet.parse(job.array_pending)) - 1
            if job.array_job_id:
                self.array_members.setdefault(job.array_job_id, set()).add(job.id)
        for job in self.jobs.values():
            self._index_loaded(job)
        pause.load(self)
        slices.load(self)
        self.limits.forget()
        self.limits.flush()
        steps.load(self, step_records)
        self.epilogs = {(job.id, job.attempt): job for job in hook_records}
        tell.loaded(self)
        for request_id, answer in answer_records:
            self.answers[request_id] = answer
        self._answer_queue.extend(sorted((a.expires, r) for r, a in self.answers.items()))
        return self

    def _add_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.live[node.name] = NodeLive()
        self.parts[node.name] = {}
        self.cluster.node_changed(node)

    def _index_loaded(self, job: Job) -> None:
        if job.array_job_id and job.array_throttle:
            running = self.array_running.get(job.array_job_id, 0)
            self.cluster.set_throttle(job.array_job_id, job.array_throttle - running)
        deadline.watch(self, job)
        interactive.watch(self, job)
        preempt.load(self, job)
        if job.state == JobState.PENDING:
            self.cluster.queue_job(job)
            depend.attach(self, job)
            # Times that a dependency waits for are found again at the first tick.
            if any(dep.minutes for dep in job.deps):
                heapq.heappush(self.timed, (0, job.id))
            return
        open_parts = [part for part in job.unreleased if part.node in self.parts]
        if open_parts:
            self.cluster.restore(job)
            arrays.count_change(self, job, +1)
            for index, part in enumerate(job.alloc):
                if part.phase < Phase.RELEASED and part.node in self.parts:
                    self.parts[part.node][job.id] = index
                    self._use_dirty.add(part.node)
        mail.rearm(self, job)
        use.begin(self, job)
        if job.configuring:
            launch.expect(self, job, self.meta.last_now)
        if job.finished and not job.completing and self.config.min_job_age:
            heapq.heappush(self.purge_queue, (job.end_time + self.config.min_job_age, job.id))

    # ---- the one way in -------------------------------------------------------------------

    def apply(self, command: Command, now: float, out: Outcome | None = None) -> Outcome:
        """Carries `command` out at time `now` (epoch seconds, never less than before).

        Refuses bad input by an answer; an exception here is a bug, and the caller must then stop
        without committing. `out` collects a batch. Cost: O(size of the command's own matter).
        """
        if out is None:
            out = Outcome()
        if now > self.meta.last_now:
            self.meta.last_now = now
        now = self.meta.last_now
        if isinstance(command, Write):
            self._write(command.call, now, out)
        elif isinstance(command, NodeMessage):
            self._node_message(command.node, command.message, now, out)
        elif isinstance(command, Start):
            jobs.start_plan(self, command.plan, now, out)
            interactive.looked(self, command.plan, now, out)
        elif isinstance(command, Tick):
            self._tick(now, out)
        elif isinstance(command, TakeOver):
            self._take_over(now, out)
        elif isinstance(command, HookEnded):
            hooks.ended(self, command, now, out)
        elif isinstance(command, Configure):
            configure.reconfigure(self, command.config, now, out)
        self.accrual.flush(now, out)
        if self.limits.flush():
            out.schedule = True
        self._flush_use(now, out)
        tell.flush(self, now, out)
        self.ranking.flush(out)
        return out

    def _take_over(self, now: float, out: Outcome) -> None:
        self.meta.epoch += 1
        accounts.begin(self, out)
        self.put_meta(out)
        for name, node in self.nodes.items():
            self.live[name].last_heard = now
            out.puts["node", name.encode()] = node
            self._use_dirty.add(name)
        for job_id in self.preparing:
            launch.expect(self, self.jobs[job_id], now)
        hooks.resume(self, out)
        settle.begin(self, now)
        tell.begin(self, now, out)
        use.configured(self, now, out)
        ranking.recalculate(self, now, out)
        out.schedule = True
        out.wake(now + 1)

    def _node_message(self, node: str, message: FromNode, now: float, out: Outcome) -> None:
        if isinstance(message, StepMail):
            relay.mail(self, node, message, out)
        elif isinstance(message, AgentAnswer):
            relay.answered(self, node, message, out)
        else:
            nodes.message(self, node, message, now, out)

    def _write(self, call: Call, now: float, out: Outcome) -> None:
        stored = self.answers.get(call.request_id)
        if stored is not None:
            if call.request_id in self.looks.requests:
                return
            out.answers.append((call.request_id, stored.reply))
            return
        write = call.write
        reply: Done | Refused
        if isinstance(write, SubmitJob):
            reply = submit.submit(self, call, write, now, out)
            if write.test_only:
                # Nothing was changed: no answer need be remembered.
                out.answers.append((call.request_id, reply))
                return
        elif isinstance(write, CancelJobs):
            reply = cancel.cancel(self, call, write, now, out)
        elif isinstance(write, UpdateNode):
            reply = node_update.update(self, call, write, now, out)
        elif isinstance(write, UpdateJob):
            reply = update.update_jobs(self, call, write, now, out)
        elif isinstance(write, UpdatePartition):
            reply = partitions.change(self, call, write, now, out)
        elif isinstance(write, UpdateReservation):
            reply = reservations.change(self, call, write, now, out)
        elif isinstance(write, ManagePolicy):
            reply = manage.manage(self, call, write, now, out)
            if write.dry:
                out.answers.append((call.request_id, reply))
                return
        elif isinstance(write, AckOutbox):
            # Repeating it changes nothing: no answer need be remembered.
            out.answers.append((call.request_id, outbox.acknowledge(self, call, write, out)))
            return
        elif isinstance(write, AskAgent):
            refusal = relay.ask(self, call, write, now, out)
            if refusal is not None:
                out.answers.append((call.request_id, refusal))
            return
        elif isinstance(write, Ping):
            reply = Done(call.request_id, 0)
            out.answers.append((call.request_id, reply))
            return
        else:
            reply = Refused(call.request_id, "Requested operation is not supported here")
        if isinstance(reply, Done):
            self.remember(call.request_id, reply, now, out)
            if isinstance(write, SubmitJob) and write.spec.interactive:
                interactive.hold(self, call.request_id, reply, now, out)
                return
        out.answers.append((call.request_id, reply))

    def remember(self, request_id: bytes, reply: Reply, now: float, out: Outcome) -> None:
        """What a repetition of the request is answered with."""
        answer = StoredAnswer(int(now) + ANSWER_LIFE_S, reply)
        self.answers[request_id] = answer
        self._answer_queue.append((answer.expires, request_id))
        out.puts["answer", request_id] = answer

    def _tick(self, now: float, out: Outcome) -> None:
        while self._answer_queue and self._answer_queue[0][0] <= now:
            _, request_id = self._answer_queue.popleft()
            if self.answers.pop(request_id, None) is not None:
                out.puts["answer", request_id] = None
        while self.purge_queue and self.purge_queue[0][0] <= now:
            _, job_id = heapq.heappop(self.purge_queue)
            jobs.purge(self, job_id, now, out)
        jobs.tick(self, now, out)
        mail.tick(self, now, out)
        nodes.tick(self, now, out)
        configure.tick(self, now, out)
        deadline.tick(self, now, out)
        preempt.tick(self, now, out)
        slices.tick(self, now, out)
        interactive.tick(self, now, out)
        reservations.tick(self, now, out)
        settle.tick(self, now, out)
        spent.tick(self, now, out)
        relay.tick(self, now, out)
        ranking.tick(self, now, out)
        out.wake(now + 1)

    # ---- helpers for the verbs --------------------------------------------------------------

    def is_admin(self, uid: int) -> bool:
        return uid in self.admins

    @property
    def task_count(self) -> int:
        """Jobs that MaxJobCount counts: each task of an array is one."""
        return len(self.jobs) + self.extra_tasks

    def _part_qos(self, name: str) -> str:
        part = self.config.partitions.get(name)
        return part.qos.lower() if part is not None else ""

    def put_job(self, job: Job, out: Outcome) -> None:
        """Names the job as changed."""
        self.limits.touched.add(job.id)
        self.standings.touched.add(job.id)
        self.units.touched.add(job.id)
        self.pulse += 1
        out.puts["job", job_key(job.id)] = job

    def put_image(self, image: Job, out: Outcome) -> None:
        """The same, as the job is now. What changes it afterwards must name it again."""
        out.puts["job", job_key(image.id)] = image

    def put_node(self, node: Node, out: Outcome) -> None:
        out.puts["node", node.name.encode()] = node
        self._use_dirty.add(node.name)
        self.units.touched.update(self.parts.get(node.name, ()))
        self.pulse += 1

    def put_meta(self, out: Outcome) -> None:
        out.puts["meta", b"meta"] = self.meta

    def touch_use(self, name: str) -> None:
        """Names the node's use as changed: the view gets it at the end of the command."""
        self._use_dirty.add(name)

    def forget_use(self, name: str) -> None:
        """The node is gone: its use is not told any more."""
        self._use_dirty.discard(name)

    def order(self, node: str, order: Order, now: float, out: Outcome) -> None:
        """Numbers an order for the node's present session. Where there is none a signal or a line
        waits for it; others are dropped (the next registration is a complete report, from which
        the order will follow again)."""
        live = self.live[node]
        if not live.session:
            if isinstance(order, Signal | Notify) and len(live.early) < MAX_EARLY:
                live.early.append(order)
            return
        live.last_order += 1
        order.n = live.last_order
        live.unacked.append((order, now))
        batch = out.orders.get(node)
        if batch is None:
            out.orders[node] = [order]
        else:
            batch.append(order)

    def withdraw(self, node: str, job_id: int, attempt: int, out: Outcome) -> None:
        """A share is written off: the order to prepare it, if the node has not confirmed it, is not
        repeated. Its number stays, with an order that does nothing where nothing is known."""
        unacked = self.live[node].unacked
        for place, (order, sent) in enumerate(unacked):
            if not isinstance(order, Prepare):
                continue
            job = order.launch.job
            if (job.id, job.attempt) == (job_id, attempt):
                instead = Forget(order.n, job_id, attempt)
                unacked[place] = (instead, sent)
                batch = out.orders.get(node, [])
                batch[:] = [instead if other is order else other for other in batch]

    def ref_blob(self, digest: str) -> None:
        if digest:
            self.blob_refs[digest] = self.blob_refs.get(digest, 0) + 1

    def unref_blob(self, digest: str, out: Outcome) -> None:
        if not digest:
            return
        left = self.blob_refs[digest] - 1
        if left:
            self.blob_refs[digest] = left
        else:
            del self.blob_refs[digest]
            out.puts["blob", digest.encode()] = None

    def node_up(self, name: str) -> bool:
        """True when new work may be placed on the node."""
        live = self.live[name]
        return self.nodes[name].flags == NodeFlag.NONE and bool(live.session) and live.confirmed

    def rules(self) -> Rules:
        """Who may preempt whom."""
        return preempt.rules(self)

    def beneath(self, job: Job) -> list[Job]:
        """Jobs that stand still and have some of the CPUs or GPUs of a job (see pause.py)."""
        return pause.beneath(self, job)

    def in_its_place(self, job: Job) -> tuple[list[Job], int]:
        """(who works with what a job waits for that takes turns, or stands still for others; when
        that is expected to be over, epoch seconds, 0 not known). Cost: jobs on its nodes."""
        if job.sliced:
            return slices.ahead(self, job), int(self.slices.get(job.partition, 0))
        return pause.above(self, job)

    def unit(self, job: Job) -> list[Job]:
        """The components of a heterogeneous job that are known, in order; any other job alone."""
        return hetero.unit(self, job)

    def quotas(self, starting: Iterable[int] = ()) -> Quota | None:
        """How accounts stand against what they are guaranteed (see quotas.Standings.of)."""
        return self.standings.of(self, starting)

    def may_requeue(self, job: Job) -> bool:
        """Whether its attempt may be followed by another."""
        return jobs.may_requeue(self, job)

    def awaits(self, now: float) -> float:
        """Until when nothing starts as nodes are expected back (settle.py); 0: they are."""
        return settle.awaits(self, now)

    def missing(self) -> list[str]:
        """The nodes that are expected back."""
        return settle.missing(self)

    def _flush_use(self, now: float, out: Outcome) -> None:
        for name in self._use_dirty:
            live = self.live.get(name)
            if live is None:
                continue
            tell.node(self, name, now, out)
            cpus, mem, gpus = self.cluster.used(name)
            parts = self.parts[name]
            completing = 0
            shared: list[NodeAlloc] = []
            counted: dict[str, int] = {}
            for job_id, index in parts.items():
                job = self.jobs[job_id]
                completing += job.finished
                for resource, _, count in job.spec.shape.counted:
                    counted[resource] = counted.get(resource, 0) + count
                if job.alloc[index].shares:
                    shared.append(job.alloc[index])
            if len(parts) != live.jobs:
                live.jobs, live.last_busy = len(parts), int(self.meta.last_now)
            live.shown, live.shown_at = (live.cpu_load, live.free_mem_mb), now
            out.view["use", name.encode()] = NodeUse(
                name=name,
                cpus_alloc=cpus,
                mem_alloc_mb=mem,
                gpus_alloc=gpus,
                jobs=len(parts),
                completing=completing,
                cpu_load=live.cpu_load,
                free_mem_mb=live.free_mem_mb,
                last_heard=int(live.last_heard),
                last_busy=live.last_busy,
                parts=gpushare.used(shared) if shared else {},
                counted=counted,
            )
        self._use_dirty.clear()


__all__ = ["Ledger", "Register"]
