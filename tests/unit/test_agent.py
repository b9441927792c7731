"""The agent: single stories, and what must hold under any sequence of inputs and crashes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gsched.config import Config
from gsched.config.types import Host
from gsched.model import Job, JobSpec, NodeAlloc, Phase
from gsched.wire.nodes import (
    AttemptReport,
    Forget,
    Go,
    Kill,
    LaunchSpec,
    Order,
    Orders,
    Preempt,
    Prepare,
    Register,
    Report,
    Reregister,
    SetLimit,
    Signal,
    Welcome,
)
from slurmd_compat.agent import (
    Absent,
    Action,
    AdoptStep,
    Agent,
    CleanUp,
    DropNotice,
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
    Log,
    Lost,
    Marked,
    PutIdentity,
    Record,
    Released,
    RunHook,
    SendRegister,
    SetStepLimit,
    SignalStep,
    SpawnStep,
    Started,
    Tick,
    WriteJob,
    WriteNotice,
)

CLUSTER = "c-1"
CONFIG = Config(cluster_name="c", slurmctld_host=(Host(name="localhost", addr="127.0.0.1"),))
FACTS = Register(1, "", "", "", "", 0, "v", 8, 1000, [], [])


def launch(
    job_id: int, attempt: int = 1, gpus: list[str] | None = None, index: int = 0
) -> LaunchSpec:
    alloc = [NodeAlloc("n1", 1, 1, 100), NodeAlloc("n2", 1, 1, 100)]
    job = Job(job_id, 1000, 1000, "u", "g", JobSpec(), attempt=attempt, alloc=alloc)
    return LaunchSpec(job, index, gpus or [], 60, script=b"#!/bin/sh\n", environment=b"A=1")


class World:
    """Carries actions out in memory; what is in `journal`, `dirs` and `steps` outlives a crash."""

    def __init__(self, *, prolog: bool = False, epilog: bool = False) -> None:
        self.hooks = {"prolog": prolog, "epilog": epilog}
        self.journal: dict[Key, bytes] = {}
        self.identity = b""
        self.dirs: set[Key] = set()
        #: what each supervisor has said so far
        self.steps: dict[Key, list[str]] = {}
        self.spawned: Counter[Key] = Counter()
        self.killed: list[tuple[Key, str]] = []
        self.running_hooks: set[tuple[Key, str]] = set()
        self.logs: list[str] = []
        self.actions: list[Action] = []
        self.boot = "boot-1"
        self.lives = 0
        self.now = 1000
        self.disk_full = False
        self.forgotten_dirs: set[Key] = set()
        self.registered: Register | None = None
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.running_hooks.clear()
        self.agent = Agent(
            "n1",
            self.boot,
            f"life{self.lives}",
            CONFIG,
            prolog=self.hooks["prolog"],
            epilog=self.hooks["epilog"],
        )
        identity = (
            msgspec.msgpack.decode(self.identity, type=Identity) if self.identity else Identity()
        )
        records = [msgspec.msgpack.decode(raw, type=Record) for raw in self.journal.values()]
        self.perform(self.agent.restore(identity, records, self.now))

    def feed(self, item: Input, crash_after: int = -1) -> None:
        self.perform(self.agent.apply(item, self.now), crash_after)
        self.agent.check_invariants()

    def perform(self, actions: list[Action], crash_after: int = -1) -> None:
        dead: set[Key] = set()
        later: list[Input] = []
        for number, action in enumerate(actions):
            if number == crash_after:
                self.start()
                return
            if getattr(action, "key", None) in dead:
                continue
            self.actions.append(action)
            if isinstance(action, WriteJob):
                if self.disk_full:
                    dead.add(action.key)
                    later.append(JournalFailed(action.key, "No space left on device"))
                else:
                    self.dirs.add(action.key)
            elif isinstance(action, JournalPut):
                must = action.key not in self.journal or any(
                    isinstance(a, SpawnStep) and a.key == action.key for a in actions[number:]
                )
                if not self.disk_full:
                    self.journal[action.key] = msgspec.msgpack.encode(action.record)
                elif must and action.record.phase < Phase.ENDED:
                    dead.add(action.key)
                    later.append(JournalFailed(action.key, "No space left on device"))
            elif isinstance(action, JournalDel):
                self.journal.pop(action.key, None)
            elif isinstance(action, PutIdentity):
                self.identity = msgspec.msgpack.encode(action.identity)
            elif isinstance(action, SpawnStep):
                assert action.key in self.journal, "started without being journalled"
                if action.key in self.forgotten_dirs:
                    later.append(Failed(action.key, "could not prepare the job's start"))
                    continue
                assert action.key in self.dirs
                if action.key in self.steps:
                    later.extend(self.said(action.key))
                else:
                    self.steps[action.key] = ["started"]
                    self.spawned[action.key] += 1
            elif isinstance(action, AdoptStep):
                later.extend(self.said(action.key) if action.key in self.steps else [])
                if action.key not in self.steps:
                    later.append(Absent(action.key))
            elif isinstance(action, KillStep):
                self.killed.append((action.key, action.cause))
            elif isinstance(action, RunHook):
                self.running_hooks.add((action.key, action.which))
            elif isinstance(action, CleanUp):
                said = self.steps.get(action.key, ["released"])
                assert said[-1] in ("released", "lost"), "cleaned up under a living step"
                self.dirs.discard(action.key)
                if self.disk_full:
                    # The journal does not know: after a restart the launcher finds nothing.
                    self.forgotten_dirs.add(action.key)
            elif isinstance(action, SendRegister):
                self.registered = self.agent.register_message(FACTS, self.now)
            elif isinstance(action, Log):
                self.logs.append(action.text)
        for item in later:
            self.feed(item)

    def said(self, key: Key) -> list[Input]:
        words = {
            "started": Started(key),
            "ended": Ended(key, 0),
            "released": Released(key),
            "lost": Lost(key),
        }
        return [words[word] for word in self.steps[key]]

    # -- the other side

    def register(self, cluster: str = CLUSTER, epoch: int = 1) -> None:
        if self.agent.session:
            self.feed(Reregister(epoch))
        else:
            self.now = max(self.now, self.agent.wake_at())
            self.feed(Tick())
        assert self.registered is not None
        self.feed(Welcome(epoch, self.registered.session, cluster))
        self.n = 0
        self.epoch = epoch

    def order(self, *orders: Order) -> None:
        for order in orders:
            self.n += 1
            order.n = self.n
        self.feed(Orders(self.epoch, self.agent.session, list(orders)))

    def step(self, key: Key, word: str, item: Input) -> None:
        self.steps[key].append(word)
        self.feed(item)

    def report(self) -> Report:
        return self.agent.report_message(self.now)

    def one(self) -> AttemptReport:
        (only,) = self.report().attempts
        return only


def key_of(job_id: int, attempt: int = 1, cluster: str = CLUSTER) -> Key:
    return Key(job_id, attempt, cluster)


# ---- stories -----------------------------------------------------------------------------------


def test_a_job_on_one_node() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    assert world.one().phase == Phase.RUNNING
    assert world.spawned[key_of(5)] == 1
    world.now += 1500
    assert world.one().age_ms == 1500
    world.step(key_of(5), "ended", Ended(key_of(5), 42 << 8, "", 1500, 10, 20, 3000))
    report = world.one()
    assert (report.phase, report.wstatus, report.cause) == (Phase.ENDED, 42 << 8, "")
    assert (report.elapsed_ms, report.user_ms, report.system_ms) == (1500, 10, 20)
    world.step(key_of(5), "released", Released(key_of(5)))
    assert world.one().phase == Phase.RELEASED
    assert world.report().seen == 1
    world.order(Forget(0, 5, 1))
    assert world.report().attempts == []
    assert not world.journal and not world.dirs


def test_one_record_before_the_start_where_nothing_is_to_be_prepared() -> None:
    world = World()
    world.register()
    before = len(world.actions)
    world.order(Prepare(0, launch(5), go=True))
    kinds = [type(action).__name__ for action in world.actions[before:]]
    assert kinds[:3] == ["WriteJob", "JournalPut", "SpawnStep"]


def test_two_phase_start_waits_for_go() -> None:
    world = World(prolog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=False))
    assert world.one().phase == Phase.PREPARING
    world.feed(HookDone(key_of(5), "prolog"))
    assert world.one().phase == Phase.PREPARED
    assert not world.steps
    world.order(Go(0, 5, 1))
    assert world.one().phase == Phase.RUNNING
    assert world.spawned[key_of(5)] == 1


def test_go_may_come_before_the_prolog_is_done() -> None:
    world = World(prolog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=False), Go(0, 5, 1))
    assert world.one().phase == Phase.PREPARING
    world.feed(HookDone(key_of(5), "prolog"))
    assert world.one().phase == Phase.RUNNING


def test_another_node_of_the_job_runs_nothing_and_ends_by_order() -> None:
    world = World(epilog=True)
    world.register()
    world.order(Prepare(0, launch(5, index=1), go=False), Go(0, 5, 1))
    assert world.one().phase == Phase.RUNNING
    assert not world.steps and not world.dirs
    world.order(Kill(0, 5, 1, "end"))
    assert world.one().phase == Phase.ENDED
    world.feed(HookDone(key_of(5), "epilog"))
    assert world.one().phase == Phase.RELEASED


def test_a_failed_prolog_is_a_refusal() -> None:
    world = World(prolog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.feed(HookDone(key_of(5), "prolog", "prolog: exit code 1"))
    report = world.one()
    assert report.phase == Phase.RELEASED
    assert (report.wstatus, report.error) == (-1, "prolog: exit code 1")
    assert not world.steps


def test_a_step_that_cannot_be_launched_is_a_refusal() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.step(key_of(5), "released", Failed(key_of(5), "could not join cgroup"))
    report = world.one()
    assert (report.phase, report.wstatus) == (Phase.RELEASED, -1)
    assert report.error == "could not join cgroup"


def test_kill_reaches_the_step_with_its_cause() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True), Kill(0, 5, 1, "cancelled"))
    assert world.killed == [(key_of(5), "cancelled")]
    assert world.one().phase == Phase.RUNNING
    world.step(key_of(5), "ended", Ended(key_of(5), 15, "killed"))
    assert (world.one().wstatus, world.one().cause) == (15, "cancelled")


def test_a_kill_before_the_start_prevents_it() -> None:
    world = World(prolog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=True), Kill(0, 5, 1, "cancelled"))
    assert world.one().phase == Phase.PREPARING
    world.feed(HookDone(key_of(5), "prolog"))
    assert (world.one().phase, world.one().error) == (Phase.RELEASED, "")
    assert not world.steps


def test_a_kill_of_what_was_never_heard_of_does_nothing() -> None:
    world = World()
    world.register()
    world.order(Kill(0, 5, 1, "cancelled"))
    assert world.report().attempts == [] and world.report().seen == 1


def test_signal_and_limit_reach_the_step() -> None:
    world = World()
    world.register()
    world.order(
        Prepare(0, launch(5), go=True), Signal(0, 5, 1, 10, "batch"), SetLimit(0, 5, 1, 600)
    )
    assert SignalStep(key_of(5), 10, "batch") in world.actions
    assert SetStepLimit(key_of(5), 600) in world.actions
    record = msgspec.msgpack.decode(world.journal[key_of(5)], type=Record)
    assert record.launch.limit_s == 600
    assert record.launch.script == b"" and record.launch.environment == b""


def test_doubled_and_late_orders_change_nothing() -> None:
    world = World()
    world.register()
    old = Orders(1, world.agent.session, [Prepare(1, launch(5), True)])
    world.n = 1
    world.feed(old)
    world.feed(old)
    world.step(key_of(5), "ended", Ended(key_of(5), 0))
    world.step(key_of(5), "released", Released(key_of(5)))
    world.order(Forget(0, 5, 1))
    world.feed(old)
    assert world.report().attempts == []
    assert world.spawned[key_of(5)] == 1


def test_orders_after_a_gap_wait_and_the_gap_is_healed_by_registering() -> None:
    world = World()
    world.register()
    session = world.agent.session
    world.feed(Orders(1, session, [Prepare(2, launch(5), True)]))
    assert world.report().attempts == [] and world.report().seen == 0
    world.feed(Orders(1, session, [Prepare(1, launch(4), True), Prepare(2, launch(5), True)]))
    assert world.report().seen == 2
    world.feed(Orders(1, session, [Kill(4, 5, 1, "x")]))
    world.now = world.agent.wake_at()
    world.feed(Tick())
    assert world.registered is not None and world.registered.session != session
    assert len(world.registered.attempts) == 2


def test_orders_of_a_lower_epoch_or_another_session_are_refused() -> None:
    world = World()
    world.register(epoch=7)
    world.feed(Orders(6, world.agent.session, [Prepare(1, launch(5), True)]))
    world.feed(Orders(7, "other", [Prepare(1, launch(5), True)]))
    assert world.report().attempts == [] and world.report().seen == 0


def test_the_highest_epoch_outlives_the_daemon() -> None:
    world = World()
    world.register(epoch=7)
    world.start()
    world.feed(Tick())
    assert world.registered is not None
    assert (world.registered.cluster, world.registered.epoch) == (CLUSTER, 7)
    world.feed(Welcome(6, world.registered.session, CLUSTER))
    assert not world.agent.session


def test_registration_is_repeated_with_growing_waits() -> None:
    world = World()
    times = []
    while len(times) < 8:
        world.now = world.agent.wake_at()
        world.feed(Tick())
        times.append(world.now)
    assert [b - a for a, b in pairwise(times)] == [
        1000,
        2000,
        4000,
        8000,
        16000,
        30000,
        30000,
    ]


def test_heartbeats_come_as_often_as_the_welcome_says() -> None:
    world = World()
    world.now = world.agent.wake_at()
    world.feed(Tick())
    assert world.registered is not None
    world.feed(Welcome(1, world.registered.session, CLUSTER, heartbeat_s=3))
    world.report()
    assert world.agent.wake_at() == world.now + 3000


def test_a_running_step_is_adopted_after_a_restart() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.start()
    world.register()
    assert world.one().phase == Phase.RUNNING
    world.step(key_of(5), "ended", Ended(key_of(5), 3 << 8))
    assert world.one().wstatus == 3 << 8
    assert world.spawned[key_of(5)] == 1


def test_what_ended_while_the_daemon_was_down_is_reported() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.steps[key_of(5)] += ["ended", "released"]
    world.start()
    world.register()
    assert world.one().phase == Phase.RELEASED


def test_a_lost_supervisor_is_the_nodes_fault() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.step(key_of(5), "lost", Lost(key_of(5)))
    report = world.one()
    assert (report.phase, report.wstatus, report.cause, report.error) == (
        Phase.RELEASED,
        -1,
        "node",
        "",
    )


def test_after_a_new_boot_nothing_lives() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True), Prepare(0, launch(6), go=True))
    world.step(key_of(6), "ended", Ended(key_of(6), 7 << 8))
    world.boot = "boot-2"
    world.steps = {key: ["lost"] for key in world.steps}
    world.start()
    world.register()
    five, six = world.report().attempts
    assert (five.phase, five.wstatus, five.cause) == (Phase.RELEASED, -1, "node")
    # An end that was known stays what it was.
    assert (six.phase, six.wstatus, six.cause) == (Phase.RELEASED, 7 << 8, "")


def test_attempts_of_another_cluster_are_never_touched() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True), Prepare(0, launch(6), go=True))
    # An empty state directory: same address, another uuid, an epoch that starts anew.
    world.feed(Reregister(1))
    world.now = max(world.now, world.agent.wake_at())
    world.feed(Tick())
    assert world.registered is not None
    world.feed(Welcome(1, "", "c-2", refused="n1 holds 2 attempts of cluster c-1"))
    assert not world.agent.session
    world.now += 100_000
    world.feed(Tick())
    assert world.registered.cluster == CLUSTER and len(world.registered.attempts) == 2
    for job_id in (5, 6):
        world.step(key_of(job_id), "ended", Ended(key_of(job_id), 0))
        world.step(key_of(job_id), "released", Released(key_of(job_id)))
    assert world.killed == []
    # All over: the node may serve the other cluster, and keeps the results for the first one.
    world.now = max(world.now, world.agent.wake_at())
    world.feed(Tick())
    assert world.registered.attempts == []
    world.feed(Welcome(1, world.registered.session, "c-2"))
    assert world.report().attempts == []
    assert len(world.journal) == 2
    world.n, world.epoch = 0, 1
    world.order(Prepare(0, launch(5), go=True))
    assert world.one().phase == Phase.RUNNING
    assert world.spawned[key_of(5, cluster="c-2")] == 1


def test_an_attempt_waits_for_gpus_that_another_still_holds() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5, gpus=["A", "B"]), go=True), Kill(0, 5, 1, "node"))
    world.order(
        Prepare(0, launch(6, gpus=["B"]), go=True), Prepare(0, launch(7, gpus=["C"]), go=True)
    )
    assert world.spawned[key_of(6)] == 0 and world.spawned[key_of(7)] == 1
    world.step(key_of(5), "ended", Ended(key_of(5), 9, "killed"))
    assert world.spawned[key_of(6)] == 0
    world.step(key_of(5), "released", Released(key_of(5)))
    assert world.spawned[key_of(6)] == 1


def test_an_attempt_that_waited_for_gpus_ends_with_its_boot() -> None:
    """The end of the one that held them began it in the middle of the restart: its prolog ran, and
    the end of that ended the daemon."""
    world = World(prolog=True)
    world.register()
    world.order(
        Prepare(0, launch(5, gpus=["A"]), go=True), Prepare(0, launch(6, gpus=["A"]), go=True)
    )
    assert world.running_hooks == {(key_of(5), "prolog")}
    world.boot = "boot-2"
    world.steps.clear()
    world.start()
    world.agent.check_invariants()
    assert world.running_hooks == set()
    world.register()
    assert [(a.phase, a.cause) for a in world.report().attempts] == [(Phase.RELEASED, "node")] * 2


def test_an_attempt_that_waited_for_gpus_begins_once_after_a_restart() -> None:
    world = World(prolog=True)
    world.register()
    world.order(
        Prepare(0, launch(5, gpus=["A"]), go=True), Prepare(0, launch(6, gpus=["A"]), go=True)
    )
    # The end of the first is in the journal, what follows from it is not.
    record = msgspec.msgpack.decode(world.journal[key_of(5)], type=Record)
    record.kill = "cancelled"
    world.journal[key_of(5)] = msgspec.msgpack.encode(record)
    before = len(world.actions)
    world.start()
    begun = [a for a in world.actions[before:] if isinstance(a, RunHook)]
    assert [(hook.key, hook.which) for hook in begun] == [(key_of(6), "prolog")]


def test_a_full_disk_refuses_the_attempt_and_nothing_starts() -> None:
    world = World()
    world.register()
    world.disk_full = True
    world.order(Prepare(0, launch(5), go=True))
    report = world.one()
    assert (report.phase, report.wstatus) == (Phase.RELEASED, -1)
    assert report.error == "No space left on device"
    assert not world.steps
    world.disk_full = False
    world.order(Forget(0, 5, 1))
    assert not world.journal


# ---- any sequence --------------------------------------------------------------------------------

JOBS = st.integers(1, 3)
ATTEMPTS = st.integers(1, 2)
CRASH = st.one_of(st.just(-1), st.integers(0, 8))


class AnySequence(RuleBasedStateMachine):
    """Random orders, events, crashes, restarts and boots; the walls of `World.perform` and
    `check_invariants` hold throughout, and what must survive survives."""

    @initialize(prolog=st.booleans(), epilog=st.booleans())
    def begin(self, prolog: bool, epilog: bool) -> None:
        self.world = World(prolog=prolog, epilog=epilog)
        self.n = 0
        self.epoch = 1
        self.sent: list[Orders] = []
        self.phases: dict[Key, Phase] = {}
        self.forgotten: set[Key] = set()
        self.crashed = False

    def feed(self, item: Input, crash: int = -1) -> None:
        lives = self.world.lives
        if isinstance(item, Orders):
            for order in item.orders:
                if isinstance(order, Forget):
                    self.forgotten.add(
                        Key(order.job_id, order.attempt, self.world.agent.identity.cluster)
                    )
        self.world.feed(item, crash)
        self.crashed = self.world.lives != lives

    @rule(cluster=st.sampled_from([CLUSTER, CLUSTER, CLUSTER, "c-2"]), step=st.integers(0, 1))
    def register(self, cluster: str, step: int) -> None:
        world = self.world
        world.now = max(world.now, world.agent.wake_at())
        self.feed(Reregister(self.epoch))
        if world.registered is None:
            return
        self.epoch += step
        foreign = world.registered.cluster not in ("", cluster)
        if foreign and world.registered.attempts:
            self.feed(Welcome(self.epoch, "", cluster, refused="holds attempts of another"))
        else:
            self.feed(Welcome(self.epoch, world.registered.session, cluster))
            self.n = 0

    def give(self, order: Order, crash: int, gap: int = 0) -> None:
        self.n += 1 + gap
        order.n = self.n
        orders = Orders(self.epoch, self.world.agent.session, [order])
        self.sent.append(orders)
        self.feed(orders, crash)
        if gap:
            self.n = self.world.agent.seen

    @rule(
        job=JOBS,
        attempt=ATTEMPTS,
        go=st.booleans(),
        index=st.integers(0, 1),
        gpus=st.lists(st.sampled_from("AB"), unique=True, max_size=2),
        crash=CRASH,
    )
    def prepare(
        self, job: int, attempt: int, go: bool, index: int, gpus: list[str], crash: int
    ) -> None:
        cluster = self.world.agent.identity.cluster
        if Key(job, attempt, cluster) in self.forgotten | set(self.world.steps):
            return  # the controller never orders an attempt anew
        self.give(Prepare(0, launch(job, attempt, gpus, index), go), crash)

    @rule(
        job=JOBS,
        attempt=ATTEMPTS,
        what=st.sampled_from(["go", "kill", "kill", "signal", "limit", "forget"]),
        crash=CRASH,
        gap=st.sampled_from([0, 0, 0, 1]),
    )
    def order(self, job: int, attempt: int, what: str, crash: int, gap: int) -> None:
        orders: dict[str, Order] = {
            "go": Go(0, job, attempt),
            "kill": Kill(0, job, attempt, "cancelled"),
            "signal": Signal(0, job, attempt, 10, "all"),
            "limit": SetLimit(0, job, attempt, 90),
            "forget": Forget(0, job, attempt),
        }
        self.give(orders[what], crash, gap)

    @rule(data=st.data(), crash=CRASH)
    def late(self, data: st.DataObject, crash: int) -> None:
        if self.sent:
            self.feed(data.draw(st.sampled_from(self.sent)), crash)

    @rule(data=st.data(), crash=CRASH, lost=st.booleans(), status=st.integers(0, 5))
    def step_goes_on(self, data: st.DataObject, crash: int, lost: bool, status: int) -> None:
        world = self.world
        open_steps = [k for k, said in world.steps.items() if said[-1] not in ("released", "lost")]
        if not open_steps:
            return
        key = data.draw(st.sampled_from(sorted(open_steps)))
        if lost:
            world.steps[key].append("lost")
            self.feed(Lost(key), crash)
        elif world.steps[key][-1] == "started":
            world.steps[key].append("ended")
            self.feed(Ended(key, status << 8), crash)
        else:
            world.steps[key].append("released")
            self.feed(Released(key), crash)

    @rule(data=st.data(), crash=CRASH, bad=st.booleans())
    def hook_ends(self, data: st.DataObject, crash: int, bad: bool) -> None:
        hooks = sorted(self.world.running_hooks)
        if hooks:
            key, which = data.draw(st.sampled_from(hooks))
            self.world.running_hooks.discard((key, which))
            self.feed(HookDone(key, which, "exit code 1" if bad else ""), crash)

    @rule(ms=st.integers(0, 40_000))
    def time_passes(self, ms: int) -> None:
        self.world.now += ms
        self.feed(Tick())

    @rule()
    def restart(self) -> None:
        self.world.start()

    @rule()
    def reboot(self) -> None:
        self.world.boot += "x"
        for said in self.world.steps.values():
            if said[-1] != "released":
                said.append("lost")
        self.world.start()

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        self.world.disk_full = full

    @invariant()
    def phases_only_grow(self) -> None:
        for record in self.world.agent.held():
            # A record on a full disk may be older than what was reported before a crash.
            if record.key in self.phases and not self.world.disk_full and self.world.lives == 1:
                assert record.phase >= self.phases[record.key]
            self.phases[record.key] = record.phase

    @invariant()
    def nothing_is_started_twice(self) -> None:
        assert all(count == 1 for count in self.world.spawned.values())

    @invariant()
    def nothing_is_forgotten_before_its_time(self) -> None:
        held = {record.key for record in self.world.agent.held()}
        for key in self.world.steps:
            assert key in held or key in self.forgotten

    @invariant()
    def what_lives_is_held_as_living(self) -> None:
        phases = {record.key: record.phase for record in self.world.agent.held()}
        for key, said in self.world.steps.items():
            if said[-1] in ("started", "ended"):
                assert phases[key] in (Phase.RUNNING, Phase.ENDED)


AnySequence.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnySequence = AnySequence.TestCase


# ---- making way for others ---------------------------------------------------------------------


def running(job_id: int = 5) -> World:
    world = World()
    world.register()
    world.order(Prepare(0, launch(job_id), go=True))
    world.actions.clear()
    return world


def test_it_is_told_before_it_is_warned_and_ended_when_its_time_is_over() -> None:
    world = running()
    world.order(Preempt(0, 5, 1, 30, 10, True, "requeue", "qos"))
    kinds = [type(action) for action in world.actions]
    # On disk, told, and only then warned.
    at = [kinds.index(kind) for kind in (JournalPut, WriteNotice, SignalStep)]
    assert at == sorted(at)
    (notice,) = [action for action in world.actions if isinstance(action, WriteNotice)]
    assert (notice.seconds, notice.mode, notice.kind) == (30, "requeue", "qos")
    (warned,) = [action for action in world.actions if isinstance(action, SignalStep)]
    assert (warned.signum, warned.target) == (10, "batch")
    assert world.agent.wake_at() <= world.now + 30_000
    # No word of the controller any more: a restart of the daemon changes nothing either.
    world.now += 20_000
    world.start()
    world.now += 9_999
    world.feed(Tick())
    assert not world.killed
    world.now += 1
    world.feed(Tick())
    assert world.killed == [(key_of(5), "preempted")]


def test_a_second_order_does_not_warn_again_and_one_may_be_spared() -> None:
    world = running()
    world.order(Preempt(0, 5, 1, 30), Preempt(0, 5, 1, 30))
    assert sum(isinstance(action, WriteNotice) for action in world.actions) == 1
    world.order(Preempt(0, 5, 1, -1))
    assert any(isinstance(action, DropNotice) for action in world.actions)
    world.now += 60_000
    world.feed(Tick())
    assert not world.killed


def test_who_has_saved_his_work_need_not_wait() -> None:
    world = running()
    world.order(Preempt(0, 5, 1, 600))
    world.now += 2_000
    world.feed(Marked(key_of(5), "checkpoint"))
    assert not world.killed
    world.feed(Marked(key_of(5), "saved"))
    assert world.killed == [(key_of(5), "preempted")]
    assert world.one().checkpoint_ms == 0


def test_a_saved_state_outside_of_that_is_only_told() -> None:
    world = running()
    assert world.one().checkpoint_ms == -1
    world.feed(Marked(key_of(5), "saved"))
    world.now += 7_000
    assert world.one().checkpoint_ms == 7_000
    assert not world.killed
    # Written over and over it is not journalled each time.
    world.feed(Marked(key_of(5), "checkpoint"))
    puts = sum(isinstance(action, JournalPut) for action in world.actions)
    for _ in range(20):
        world.now += 10
        world.feed(Marked(key_of(5), "checkpoint"))
    assert sum(isinstance(action, JournalPut) for action in world.actions) == puts


def test_without_grace_it_is_told_and_ended_at_once() -> None:
    world = running()
    world.order(Preempt(0, 5, 1, 0, mode="cancel"))
    kinds = [type(action) for action in world.actions]
    assert kinds.index(WriteNotice) < kinds.index(KillStep)
    (notice,) = [action for action in world.actions if isinstance(action, WriteNotice)]
    assert notice.seconds == CONFIG.kill_wait
