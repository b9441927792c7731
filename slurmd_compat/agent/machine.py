"""The pure state machine of a node: inputs in, actions out; no clock, no sockets, no files.

An attempt is known from its journal record before anything of it is started, until `Forget`.
Its phase only grows. Whoever drives an agent (the daemon, the simulator) carries the actions
out in order, feeds back what came of them, and calls `apply(Tick(), now)` at `wake_at()`.
`now` is monotonic milliseconds of this boot: it goes on when the daemon is restarted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import msgspec

from gsched.config import Config
from gsched.environment import wants_login
from gsched.layout import plan_step
from gsched.model import Phase
from gsched.wire.nodes import (
    Forget,
    Go,
    Kill,
    Notify,
    Order,
    Orders,
    Pause,
    Preempt,
    Prepare,
    Reregister,
    SetLimit,
    Signal,
    StepsKept,
    Welcome,
)
from slurmd_compat.agent.attempt import OVER, SPAWNED, Attempt
from slurmd_compat.agent.conversation import Conversation
from slurmd_compat.agent.invariants import check
from slurmd_compat.agent.standing import SIGSTOP, Standing
from slurmd_compat.agent.step_words import (
    LeadRecord,
    ShareRecord,
    StepAction,
    StepInput,
    TaskStarted,
    WaitRecord,
)
from slurmd_compat.agent.steps import Planner, Steps
from slurmd_compat.agent.way import CAUSE, Ways
from slurmd_compat.agent.words import (
    Absent,
    Action,
    AdoptStep,
    CleanUp,
    Ended,
    Failed,
    HookDone,
    Identity,
    Input,
    JournalDel,
    JournalFailed,
    JournalPut,
    Key,
    KillStep,
    Linked,
    Lost,
    Marked,
    NotifyStep,
    PutIdentity,
    Record,
    Released,
    RunHook,
    SendReport,
    SetStepLimit,
    SignalStep,
    SpawnStep,
    Started,
    Tick,
    Unkillable,
    WriteJob,
)


class Agent(Conversation):
    """One node's attempts and its place in the conversation with the controller.

    `nonce` makes this process's sessions unlike any other's. `prolog`/`epilog` say whether the
    site has such hooks. Cost of `apply`: constant per order or event; a report O(attempts held).
    """

    def __init__(
        self,
        node: str,
        boot_id: str,
        nonce: str,
        config: Config,
        *,
        prolog: bool = False,
        epilog: bool = False,
        plan: Planner = plan_step,
    ) -> None:
        super().__init__(node, boot_id, nonce)
        self.prolog = prolog
        self.epilog = epilog
        #: the journal is being taken up
        self._restoring = False
        self.steps = Steps(
            node,
            boot_id,
            config,
            lambda action: self._out.append(action),
            self._interactive_over,
            self._steps_idle,
            self._report_by,
            plan,
            lambda text: self._log("error", text),
        )

        self.ways = Ways(
            config.kill_wait,
            lambda action: self._out.append(action),
            self._put,
            self._kill,
            self.steps.signal_job,
        )
        self.standing = Standing(
            lambda action: self._out.append(action),
            self._put,
            self.steps.signal_job,
            self.steps.retry,
        )

    # -- what others may ask

    def held(self) -> list[Record]:
        """All records, oldest first."""
        return [attempt.record for attempt in self._held.values()]

    def wake_at(self) -> int:
        """Monotonic ms at which a Tick is due."""
        mark = self._talk_at()
        marks = (mark, self.steps.wake_at(), self.ways.wake_at(), self.standing.wake_at())
        return min(one for one in marks if one >= 0)

    # -- inputs

    def restore(
        self,
        identity: Identity,
        records: Iterable[Record],
        now: int,
        leads: Iterable[LeadRecord] = (),
        shares: Iterable[ShareRecord] = (),
        waits: Iterable[WaitRecord] = (),
    ) -> list[Action | StepAction]:
        """The state after a restart of the daemon: what the journal holds, each living step to be
        adopted. Called once, before any input."""
        self._out = []
        self._restoring = True
        self.identity = identity
        self._facing = identity.cluster
        known = list(records)
        for record in known:
            self._held[record.key] = Attempt(record)
        self.steps.restore(leads, shares, known, now, waits)
        for record in known:
            attempt = self._held[record.key]
            if record.boot_id == self.boot_id:
                self.ways.restore(attempt)
                self.standing.restore(attempt, now)
            if record.phase == Phase.RELEASED:
                continue
            if record.boot_id != self.boot_id:
                # A new boot: nothing of it lives. An end that is known stays what it was.
                record.started_ms = -1
                attempt.step = OVER
                if record.phase < Phase.ENDED:
                    record.ending = record.ending or (-1, "node")
                self._settle(attempt, now)
            elif record.started_ms >= 0 and attempt.script:
                attempt.step = SPAWNED
                self._out.append(AdoptStep(record.key, record))
                if record.kill or record.ending is not None:
                    self.steps.stop_job(record.key, record.kill, now)
            elif record.phase == Phase.ENDED or record.kill or record.ending is not None:
                self.steps.stop_job(record.key, record.kill or record.cause, now)
                self._settle(attempt, now)
            elif record.phase == Phase.PREPARING and record.begun:
                self._begin(attempt, now)
        self._restoring = False
        self._unblock(now)
        self._register_at = now
        return self._out

    def apply(self, item: Input | StepInput, now: int) -> list[Action | StepAction]:
        """Takes one input at monotonic ms `now`; returns what to do, in order."""
        self._out = []
        if isinstance(item, Orders):
            self._orders(item, now)
        elif isinstance(item, Tick):
            self._tick(now)
        elif isinstance(item, Linked):
            if self.session:
                self._soon(now)
            else:
                self._unregister(now)
                self._tick(now)
        elif isinstance(item, Welcome):
            self._welcome(item, now)
        elif isinstance(item, Reregister):
            if item.epoch >= self.epoch:
                self._unregister(now)
                self._tick(now)
            elif now >= self._register_at:
                # Superseded, or another cluster at the same address: its welcome will tell.
                self._offer(now)
        elif isinstance(item, StepsKept):
            key = Key(item.job_id, item.attempt, self.identity.cluster)
            self.steps.kept(key, item.steps, now)
        elif isinstance(item, StepInput):
            self.steps.apply(item, now)
            if isinstance(item, TaskStarted):
                begun = self._held.get(item.key.job)
                if begun is not None:
                    self.standing.began(begun)
        else:
            attempt = self._held.get(item.key)
            if attempt is not None:
                self._event(attempt, item, now)
        return self._out

    def _tick(self, now: int) -> None:
        self.steps.tick(now)
        for key in self.ways.due(now):
            attempt = self._held.get(key)
            if attempt is not None and attempt.record.phase < Phase.ENDED:
                self._kill(attempt, CAUSE, now)
                self._soon(now)
        for key in self.standing.due(now):
            attempt = self._held.get(key)
            if attempt is not None:
                self.standing.signal(attempt, SIGSTOP)
        self._talk(now)

    # -- orders

    def _orders(self, item: Orders, now: int) -> None:
        if not self.session or item.session != self.session or item.epoch < self.epoch:
            return
        if item.epoch > self.epoch:
            epochs = {**self.identity.epochs, self.identity.cluster: item.epoch}
            self.identity = Identity(self.identity.cluster, epochs)
            self._out.append(PutIdentity(self.identity))
            # Another controller has taken a late registration for a new one: it counts its orders
            # from 1, and this session has gone on since.
            self._log("warning", "a new controller goes on with an old session: registering again")
            self._unregister(now)
            self._tick(now)
            return
        for order in item.orders:
            if order.n <= self.seen:
                continue  # doubled: a Prepare after its Forget must not start anything
            if order.n != self.seen + 1:
                # Something before it is still on its way: it will be repeated in order.
                if self._gap_since < 0:
                    self._gap_since = now
                break
            self.seen = order.n
            self._gap_since = -1
            self._order(order, now)
        # Also what was seen before is answered: the acknowledgement may have been lost.
        self._out.append(SendReport())

    def _order(self, order: Order, now: int) -> None:
        if isinstance(order, Prepare):
            self._prepare(order, now)
            return
        attempt = self._held.get(Key(order.job_id, order.attempt, self.identity.cluster))
        if attempt is None:
            return
        record = attempt.record
        if isinstance(order, Kill):
            if order.lost and not record.kill:
                self.steps.node_lost(record.key, order.lost)
            self._kill(attempt, order.cause, now)
        elif isinstance(order, Go):
            if not record.go and record.phase <= Phase.PREPARED and not record.kill:
                record.go = True
                if record.phase == Phase.PREPARED:
                    self._start(attempt, now)
                else:
                    self._put(attempt)
        elif isinstance(order, Preempt):
            self.ways.order(attempt, order, now)
        elif isinstance(order, Pause):
            self.standing.order(attempt, order, now)
        elif isinstance(order, Signal):
            self._signal(attempt, order, now)
        elif isinstance(order, Notify):
            if record.phase == Phase.RUNNING and attempt.step == SPAWNED:
                self._out.append(NotifyStep(record.key, order.text))
            elif record.phase == Phase.RUNNING:
                self.steps.notify(record.key, order.text)
        elif isinstance(order, SetLimit):
            if record.phase < Phase.ENDED and record.launch.limit_s != order.limit_s:
                record.launch.limit_s = order.limit_s
                self._put(attempt)
                if attempt.step == SPAWNED:
                    self._out.append(SetStepLimit(record.key, order.limit_s))
        elif isinstance(order, Forget):
            if record.phase == Phase.RELEASED:
                del self._held[record.key]
                self.steps.forget(record.key)
                self.ways.forget(record.key)
                self.standing.forget(record.key)
                self._out.append(JournalDel(record.key))
            else:
                self._log("warning", f"{record.title} is not released yet: not forgotten")

    def _prepare(self, order: Prepare, now: int) -> None:
        job = order.launch.job
        key = Key(job.id, job.attempt, self.identity.cluster)
        known = self._held.get(key)
        if known is not None:
            return
        if self._foreign():
            self._log("error", f"job {job.id} not taken: attempts of another cluster run here")
            return
        if any(k.job_id == job.id and k.attempt > job.attempt for k in self._held):
            self._log("warning", f"job {job.id} attempt {job.attempt} is older than what is held")
            return
        launch = order.launch
        if not job.spec.interactive:
            launch = msgspec.structs.replace(launch, script=b"", environment=b"")
        record = Record(job.id, job.attempt, key.cluster, self.boot_id, launch, go=order.go)
        attempt = Attempt(record)
        self._held[key] = attempt
        if launch.batch:
            self._out.append(WriteJob(key, order.launch))
        if self._in_the_way(attempt):
            self._put(attempt)
        else:
            self._begin(attempt, now)

    def _needs_prolog(self, attempt: Attempt) -> bool:
        launch = attempt.record.launch
        spec = launch.job.spec
        return self.prolog or (launch.batch and (spec.get_user_env or wants_login(spec.export)))

    def _in_the_way(self, attempt: Attempt) -> bool:
        """Another attempt still holds one of its GPUs, or is an earlier try of the same job."""
        mine = attempt.record
        for other in self._held.values():
            if other is attempt or other.blocked or other.record.phase == Phase.RELEASED:
                continue
            if other.record.job_id == mine.job_id:
                return True
            if not other.record.paused and attempt.collides(other):
                return True
        return False

    def _begin(self, attempt: Attempt, now: int) -> None:
        attempt.record.begun = True
        if self._needs_prolog(attempt):
            attempt.hook = "prolog"
            self._put(attempt)
            self._out.append(RunHook(attempt.record.key, "prolog", attempt.record))
        else:
            self._prepared(attempt, now)

    def _prepared(self, attempt: Attempt, now: int) -> None:
        self._advance(attempt, Phase.PREPARED)
        self.steps.ready(attempt.record)
        if attempt.record.go:
            self._start(attempt, now)
        else:
            self._put(attempt)
            self._soon(now)

    def _start(self, attempt: Attempt, now: int) -> None:
        record = attempt.record
        self._advance(attempt, Phase.RUNNING)
        record.started_ms = now
        self._put(attempt)
        if attempt.script:
            attempt.step = SPAWNED
            self._out.append(SpawnStep(record.key, record))
            # One that stands still from the beginning need not wait for the supervisor's word.
            self.standing.began(attempt)
        self._soon(now)
        self.steps.running(record, now)

    def _kill(self, attempt: Attempt, cause: str, now: int) -> None:
        record = attempt.record
        if record.phase == Phase.RELEASED:
            return
        if not record.kill:
            record.kill = cause or "cancelled"
            self._put(attempt)
            if record.phase < Phase.RUNNING:
                self.steps.never_ran(record, record.kill, now)
        # The steps first: the script may wait for them.
        self.steps.stop_job(record.key, record.kill, now)
        if attempt.step == SPAWNED:
            self._out.append(KillStep(record.key, record.kill))
        else:
            self._settle(attempt, now)

    def _signal(self, attempt: Attempt, order: Signal, now: int) -> None:
        key = attempt.record.key
        if attempt.record.phase != Phase.RUNNING:
            return
        if order.step is not None:
            self.steps.signal_step(key, order.step, order.signum, now)
            return
        if order.target != "batch":
            self.steps.signal_job(key, order.signum)
            if order.target == "all":
                self.steps.reached(key, order.signum, now)
        if attempt.step == SPAWNED:
            self._out.append(SignalStep(key, order.signum, order.target))

    # -- ends, which wait for the end of the steps

    def _script_over(self, attempt: Attempt, wstatus: int, cause: str, now: int) -> None:
        """The script has ended; what it left running of steps ends now."""
        record = attempt.record
        if record.ending is None and record.phase < Phase.ENDED:
            record.ending = (wstatus, cause)
            self.steps.stop_job(record.key, cause or "cancelled", now)
            if self.steps.busy(record.key):
                self._put(attempt)
        self._settle(attempt, now)

    def _settle(self, attempt: Attempt, now: int) -> None:
        """Goes on with an end as far as the steps, the script and a hook let it."""
        record = attempt.record
        if self.steps.busy(record.key):
            return
        if record.ending is not None and record.phase < Phase.ENDED:
            ending, record.ending = record.ending, None
            self._ended(attempt, *ending)
            self._soon(now)
        if attempt.step == SPAWNED or attempt.hook or record.phase == Phase.RELEASED:
            return
        if record.phase < Phase.ENDED:
            if not record.kill:
                return
            self._ended(attempt, -1, record.kill)
        self._let_go(attempt)
        self._soon(now)

    def _steps_idle(self, key: Key, now: int) -> None:
        """Nothing of an attempt's steps runs any more."""
        attempt = self._held.get(key)
        if attempt is not None:
            self._settle(attempt, now)

    def _interactive_over(self, key: Key, wstatus: int, cause: str, now: int) -> None:
        """The step of srun or the shell of salloc has ended, and with it the job."""
        attempt = self._held.get(key)
        if attempt is None:
            return
        record = attempt.record
        if record.ending is not None or record.phase >= Phase.ENDED:
            return
        record.elapsed_ms = max(0, now - record.started_ms)
        self._script_over(attempt, wstatus, record.kill or cause, now)

    # -- events of steps and hooks

    def _event(
        self,
        attempt: Attempt,
        item: Started
        | Ended
        | Released
        | Failed
        | Lost
        | Absent
        | HookDone
        | Unkillable
        | JournalFailed
        | Marked,
        now: int,
    ) -> None:
        record = attempt.record
        if isinstance(item, HookDone):
            self._hook_done(attempt, item, now)
            return
        if isinstance(item, Marked):
            if self.ways.marked(attempt, item, now):
                self._soon(now)
            return
        if isinstance(item, Unkillable):
            if record.phase < Phase.RELEASED and not record.fault:
                record.fault = f"Kill task failed: {item.evidence}"
                self._log("error", f"{record.title}: processes are left: {item.evidence}")
                self._out.append(RunHook(record.key, "unkillable", record, item.step))
                self._put(attempt)
                self._soon(now)
            return
        if isinstance(item, JournalFailed):
            if record.phase < Phase.ENDED:
                attempt.hook = ""
                attempt.step = OVER
                record.begun = False
                self._refuse(attempt, item.error, now, "disk")
            return
        if attempt.step != SPAWNED:
            return
        if isinstance(item, Started):
            self.standing.began(attempt)
            return
        if isinstance(item, Absent):
            if record.phase != Phase.RUNNING or record.kill:
                self._step_over(attempt, now)
            else:
                self._out.append(SpawnStep(record.key, record))
        elif isinstance(item, Ended):
            if record.phase < Phase.ENDED:
                record.elapsed_ms = item.elapsed_ms
                record.user_ms = item.user_ms
                record.system_ms = item.system_ms
                record.max_rss_kb = item.max_rss_kb
                cause = record.kill or "killed" if item.cause == "killed" else item.cause
                self._script_over(attempt, item.wstatus, cause, now)
        elif isinstance(item, Failed):
            if record.phase < Phase.ENDED:
                attempt.step = OVER
                self._refuse(attempt, item.error, now, "disk" if item.no_record else "failed")
        elif isinstance(item, Lost | Released):
            attempt.step = OVER
            self._script_over(attempt, -1, "node", now)
        self._soon(now)

    def _step_over(self, attempt: Attempt, now: int) -> None:
        attempt.step = OVER
        self._settle(attempt, now)

    def _hook_done(self, attempt: Attempt, item: HookDone, now: int) -> None:
        if attempt.hook != item.which:
            return
        attempt.hook = ""
        record = attempt.record
        if item.which == "epilog":
            if item.error:
                self._log("error", f"epilog of {record.title}: {item.error}")
                # It may have been what makes the node fit for the next job.
                record.fault = "Epilog error"
            self._released(attempt)
        elif record.kill:
            self._settle(attempt, now)
        elif item.error:
            self._refuse(attempt, item.error, now, "prolog")
        else:
            self._prepared(attempt, now)
        self._soon(now)

    def _refuse(self, attempt: Attempt, error: str, now: int, cause: str = "failed") -> None:
        """It could not be launched: nothing of the user's ran. A `cause` other than "failed" is
        this node's fault and no job's."""
        attempt.record.error = error or "could not be launched"
        if attempt.record.phase < Phase.RUNNING:
            self.steps.never_ran(attempt.record, "failed", now)
        self._log("error", f"{attempt.record.title}: {attempt.record.error}")
        attempt.record.ending = (-1, cause)
        self.steps.stop_job(attempt.record.key, cause, now)
        self._settle(attempt, now)
        self._soon(now)

    def _ended(self, attempt: Attempt, wstatus: int, cause: str) -> None:
        record = attempt.record
        record.wstatus = wstatus
        record.cause = cause
        self._advance(attempt, Phase.ENDED)
        self._put(attempt)

    def _let_go(self, attempt: Attempt) -> None:
        """No process is left: epilog, then released."""
        if self.epilog and attempt.record.begun:
            attempt.hook = "epilog"
            self._out.append(RunHook(attempt.record.key, "epilog", attempt.record))
        else:
            self._released(attempt)

    def _released(self, attempt: Attempt) -> None:
        record = attempt.record
        self._out.append(CleanUp(record.key, record))
        self._advance(attempt, Phase.RELEASED)
        self._put(attempt)
        if record.cluster != self._facing and not self._foreign():
            # The last of another cluster's: the one spoken to may take the node now.
            self._unregister(0)
        self._unblock(0)

    def _unblock(self, now: int) -> None:
        if self._restoring:
            # What waits may have ended with its boot, or have begun: its own turn says so.
            return
        for attempt in list(self._held.values()):
            if attempt.blocked and not self._in_the_way(attempt):
                self._begin(attempt, now)

    # -- small things

    def _advance(self, attempt: Attempt, phase: Phase) -> None:
        assert phase > attempt.record.phase, f"{attempt.record.title}: back to {phase.name}"
        attempt.record.phase = phase

    def _put(self, attempt: Attempt) -> None:
        self._out.append(JournalPut(attempt.record.key, copy.copy(attempt.record)))

    # -- what must always hold

    def check_invariants(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        check(self._held, self.steps.busy)
        self.steps.check_invariants()
        if self.session:
            assert self.identity.cluster and self.epoch > 0
