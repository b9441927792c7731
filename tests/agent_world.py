"""Nodes of one job with their agents, supervisors and clients, all played in memory.

What outlives a crash of a daemon (journals, directories, supervisors, clients) is kept beside the
agents. Mail between nodes goes through `post`, which a test may lose, double or hold back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gsched.config import Config, parse_config
from gsched.model import Job, JobSpec, JobState, NodeAlloc, Phase
from gsched.model.step import Callback, Step, StepSpec
from gsched.wire.codec import encode
from gsched.wire.nodes import (
    AttemptReport,
    Forget,
    Go,
    Kill,
    LaunchSpec,
    Order,
    Orders,
    Prepare,
    Register,
    StepsKept,
    Welcome,
)
from gsched.wire.steps import CreateStep, Interactive, NotTaken, Taken, TaskEnd
from slurmd_compat.agent import (
    Absent,
    AdoptStep,
    Agent,
    CleanUp,
    Ended,
    Identity,
    JournalDel,
    JournalPut,
    Key,
    KillStep,
    PutIdentity,
    Record,
    Released,
    SendRegister,
    SendReport,
    SpawnStep,
    Tick,
)
from slurmd_compat.agent import step_words as sw

CLUSTER = "c-1"
CONF = """\
ClusterName=c
SlurmctldHost=localhost
KillWait=5
GresTypes=gpu
NodeName=n[1-4] CPUs=8 RealMemory=64000 Gres=gpu:4
PartitionName=p Nodes=ALL Default=YES
{extra}
"""
FACTS = Register(1, "", "", "", "", 0, "v", 8, 1000, [], [])


def config(extra: str = "") -> Config:
    return parse_config({"slurm.conf": CONF.format(extra=extra), "gres.conf": ""})


@dataclass
class Supervisor:
    """A step's supervisor on one node."""

    tasks: list[int]
    started: list[int] = field(default_factory=list)
    ends: dict[int, TaskEnd] = field(default_factory=dict)
    released: bool = False
    killed: list[tuple[str, bool]] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)


@dataclass
class Client:
    """What one client has heard, over all its connections."""

    callback: Callback
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    #: calls of agents that have not been hung up: (node, number)
    calls: list[tuple[str, int]] = field(default_factory=list)
    gone: bool = False
    #: it hangs up long after it has heard the end
    slow: bool = False

    @property
    def codes(self) -> list[int]:
        return [data[0] for letter, data in self.heard if letter == "X"]

    @property
    def errors(self) -> list[str]:
        text = b"".join(data for letter, data in self.heard if letter == "e")
        return text.decode().splitlines()

    @property
    def letters(self) -> str:
        return "".join(letter for letter, _ in self.heard)


class World:
    """`nodes` of one job; the first leads. The test plays controller and tasks."""

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 4,
        gpus: int = 2,
        limit_s: int = 0,
        interactive: Interactive | None = None,
        extra: str = "",
        **spec: Any,
    ) -> None:
        self.now = 1_000_000
        self.config = config(extra)
        self.names = [f"n{i + 1}" for i in range(nodes)]
        alloc = [
            NodeAlloc(name, cpus, cpus, 1000 * cpus, (1 << gpus) - 1, [(1 << cpus) - 1])
            for name in self.names
        ]
        kind = ""
        if interactive is not None:
            kind = "salloc" if interactive.step is None else "srun"
        self.job = Job(
            7, 1000, 1000, "u", "g", JobSpec(interactive=kind, work_dir="/w", **spec),
            state=JobState.RUNNING, partition="p", attempt=1, alloc=alloc, start_time=1000,
        )  # fmt: skip
        self.script = encode(interactive) if interactive else b"#!/bin/sh\n"
        self.limit_s = limit_s
        self.journals: dict[str, dict[Any, bytes]] = {name: {} for name in self.names}
        self.identities: dict[str, bytes] = {}
        self.boots = Counter(self.names)
        self.agents: dict[str, Agent | None] = dict.fromkeys(self.names)
        self.lives = itertools.count(1)
        self.supervisors: dict[tuple[str, sw.StepKey], Supervisor] = {}
        self.past: list[tuple[str, sw.StepKey, Supervisor]] = []
        self.batch: dict[str, list[str]] = {}
        self.batch_killed = False
        self.clients: dict[int, Client] = {}
        self.post: list[tuple[str, str, sw.MailIn]] = []
        self.answers: list[Any] = []
        #: (node, place, task, stdin) of clients that follow
        self.attached: list[tuple[str, int, int, bool]] = []
        self.reports: dict[str, AttemptReport] = {}
        self.kept: dict[int, Step] = {}
        self.keeping = True
        self.n = Counter[str]()
        self.registered: dict[str, Register] = {}
        self.dead: set[str] = set()
        for name in self.names:
            self.start(name)
            self.register(name)

    # -- daemons

    @property
    def leader(self) -> Agent:
        agent = self.agents[self.names[0]]
        assert agent is not None
        return agent

    def start(self, name: str) -> None:
        """The daemon of a node starts, and takes up what its journal holds."""
        agent = Agent(name, f"boot{self.boots[name]}", f"{name}-{next(self.lives)}", self.config)
        self.agents[name] = agent
        # Connections of the former one are gone: clients wait for a new call.
        for client in self.clients.values():
            client.calls = [call for call in client.calls if call[0] != name]
        raw = self.identities.get(name)
        identity = msgspec.msgpack.decode(raw, type=Identity) if raw else Identity()
        held = self.journals[name]

        def of(kind: type) -> list[Any]:
            return [msgspec.msgpack.decode(r, type=kind) for (k, _), r in held.items() if k is kind]

        actions = agent.restore(
            identity,
            of(Record),
            self.now,
            of(sw.LeadRecord),
            of(sw.ShareRecord),
            of(sw.WaitRecord),
        )
        self.perform(name, actions)
        agent.check_invariants()

    def crash(self, name: str) -> None:
        """kill -9 of a daemon, and its next start."""
        if name not in self.dead:
            self.start(name)
            self.register(name)

    def feed(self, name: str, item: Any, crash_after: int = -1) -> None:
        agent = self.agents[name]
        if agent is None or name in self.dead:
            return
        self.perform(name, agent.apply(item, self.now), crash_after)
        if self.agents[name] is agent:
            agent.check_invariants()

    def perform(self, name: str, actions: list[Any], crash_after: int = -1) -> None:
        later: list[Any] = []
        report = False
        for number, action in enumerate(actions):
            if number == crash_after:
                self.crash(name)
                return
            journal = self.journals[name]
            if isinstance(action, JournalPut):
                journal[Record, action.key] = msgspec.msgpack.encode(action.record)
            elif isinstance(action, JournalDel):
                journal.pop((Record, action.key), None)
            elif isinstance(action, PutIdentity):
                self.identities[name] = msgspec.msgpack.encode(action.identity)
            elif isinstance(action, sw.PutLead | sw.PutShare | sw.PutWait):
                journal[type(action.record), action.key] = msgspec.msgpack.encode(action.record)
            elif isinstance(action, sw.DropStep):
                journal.pop((sw.LeadRecord, action.key), None)
                journal.pop((sw.ShareRecord, action.key), None)
                journal.pop((sw.WaitRecord, action.key), None)
            elif isinstance(action, sw.SpawnShare):
                later += self._spawn(name, action)
            elif isinstance(action, sw.AdoptShare):
                found = self.supervisors.get((name, action.key))
                later += self._said(action.key, found) if found else [sw.ShareAbsent(action.key)]
            elif isinstance(action, sw.KillShare | sw.SignalShare):
                supervisor = self.supervisors.get((name, action.key))
                if supervisor is not None and isinstance(action, sw.KillShare):
                    supervisor.killed.append((action.cause, action.at_once))
                elif supervisor is not None and isinstance(action, sw.SignalShare):
                    supervisor.signals.append(action.signum)
            elif isinstance(action, sw.AttachClient):
                self.attached.append((name, action.index, action.task, action.stdin))
            elif isinstance(action, sw.CleanShare):
                gone = self.supervisors.pop((name, action.key), None)
                if gone is not None:
                    assert gone.released, "cleaned up under a living step"
                    self.past.append((name, action.key, gone))
            elif isinstance(action, SpawnStep):
                self.batch.setdefault(name, ["started"])
            elif isinstance(action, AdoptStep):
                words = self.batch.get(name)
                if words is None:
                    later.append(Absent(action.key))
                else:
                    later += [Ended(action.key, 0)] if "ended" in words else []
                    later += [Released(action.key)] if "released" in words else []
            elif isinstance(action, KillStep):
                self.batch_killed = True
            elif isinstance(action, CleanUp):
                left = [
                    s for (n, k), s in self.supervisors.items()
                    if n == name and k.job == action.key and not s.released
                ]  # fmt: skip
                assert not left, "released under a living step"
            elif isinstance(action, SendRegister):
                agent = self.agents[name]
                assert agent is not None
                self.registered[name] = agent.register_message(FACTS, self.now)
                self._take(name, self.registered[name].attempts)
            elif isinstance(action, SendReport):
                report = True
            elif isinstance(action, sw.SendMail):
                to = action.node or self.names[0]
                self.post.append(
                    (name, to, sw.MailIn(name, action.job_id, action.attempt, action.mail))
                )
            elif isinstance(action, sw.Answer):
                self.answers.append(action.message)
            elif isinstance(action, sw.CallClient):
                later += self._call(name, action)
            elif isinstance(action, sw.TellClient):
                client = self._client(name, action.client)
                if client is not None:
                    client.heard.append((action.letter, action.data))
            elif isinstance(action, sw.HangUp):
                client = self._client(name, action.client)
                if client is not None and not client.slow:
                    client.gone = True
                    client.calls.remove((name, action.client))
                    later.append(sw.ClientLost(action.client))
        if report:
            agent = self.agents[name]
            assert agent is not None
            if agent.session:
                self._take(name, agent.report_message(self.now).attempts)
        for item in later:
            self.feed(name, item)

    def _spawn(self, name: str, action: sw.SpawnShare) -> list[Any]:
        where = (name, action.key)
        known = self.supervisors.get(where)
        if known is not None:
            return self._said(action.key, known)
        led = {k for n in self.names for (kind, k) in self.journals[n] if kind is not Record}
        assert any(k.step == action.key.step for k in led), "launched without being journalled"
        tasks = action.launch.step.nodes[action.launch.index].tasks
        assert not any(n == name and k == action.key for n, k, _ in self.past), "launched twice"
        self.supervisors[where] = Supervisor(tasks, started=list(tasks))
        return self._said(action.key, self.supervisors[where])

    def _said(self, key: sw.StepKey, supervisor: Supervisor) -> list[Any]:
        words: list[Any] = [sw.TaskStarted(key, task) for task in supervisor.started]
        words += [sw.TaskEnded(key, end) for end in supervisor.ends.values()]
        if supervisor.released:
            words.append(sw.ShareReleased(key))
        return words

    def _call(self, name: str, action: sw.CallClient) -> list[Any]:
        client = self.clients.setdefault(action.callback.port, Client(action.callback))
        if client.gone:
            return [sw.ClientLost(action.client, met=False)]
        client.calls.append((name, action.client))
        return []

    def _client(self, name: str, number: int) -> Client | None:
        for client in self.clients.values():
            if (name, number) in client.calls:
                return client
        return None

    # -- the controller

    def register(self, name: str) -> None:
        agent = self.agents[name]
        assert agent is not None
        if not agent.session:
            self.now = max(self.now, agent._register_at)
            self.feed(name, Tick())
        self.feed(name, Welcome(1, self.registered[name].session, CLUSTER))
        self.n[name] = 0

    def order(self, name: str, *orders: Order) -> None:
        agent = self.agents[name]
        assert agent is not None
        for order in orders:
            self.n[name] += 1
            order.n = self.n[name]
        self.feed(name, Orders(1, agent.session, list(orders)))

    def _take(self, name: str, attempts: list[AttemptReport]) -> None:
        for report in attempts:
            self.reports[name] = report
            kept = [(step.id, not step.running) for step in report.steps]
            for step in report.steps:
                old = self.kept.get(step.id)
                assert old is None or old.running or not step.running, "an end was taken back"
                self.kept[step.id] = step
            if kept and self.keeping:
                agent = self.agents[name]
                assert agent is not None
                self.post.append((name, name, StepsKept(report.job_id, report.attempt, kept)))  # type: ignore[arg-type]

    def run(self) -> None:
        """The job is prepared on all its nodes and started."""
        for index, name in enumerate(self.names):
            uuids = [f"G{name}{i}" for i in range(self.job.alloc[index].gpus.bit_count())]
            launch = LaunchSpec(
                msgspec.msgpack.decode(msgspec.msgpack.encode(self.job), type=Job),
                index, uuids, self.limit_s, self.script, b"PATH=/bin",
            )  # fmt: skip
            self.order(name, Prepare(0, launch, go=False))
        for name in self.names:
            self.order(name, Go(0, 7, 1))

    def kill(self, cause: str = "cancelled") -> None:
        for name in self.names:
            self.order(name, Kill(0, 7, 1, cause))

    def forget(self) -> None:
        for name in self.names:
            self.order(name, Forget(0, 7, 1))

    def deliver(self) -> None:
        """All mail, until there is none."""
        for _ in range(1000):
            if not self.post:
                return
            _, to, item = self.post.pop(0)
            self.feed(to, item)
        raise AssertionError("mail without end")

    def advance(self, ms: int, *, mail: bool = True) -> None:
        """Time passes, with all that falls due in it."""
        end = self.now + ms
        for _ in range(100_000):
            if mail:
                self.deliver()
            live = [a for n, a in self.agents.items() if a is not None and n not in self.dead]
            due = min(agent.wake_at() for agent in live)
            if due > end:
                break
            self.now = max(self.now, due)
            for agent in live:
                if agent.wake_at() <= self.now:
                    self.feed(agent.node, Tick())
        else:
            raise AssertionError("ticks without end")
        self.now = end

    # -- clients and tasks

    def create(self, port: int, *, node: str = "", uid: int = 1000, **fields: Any) -> Client:
        """A client asks for a step; what it then hears."""
        fields.setdefault("argv", ["a.out"])
        spec = StepSpec(7, **fields)
        client = self.clients.setdefault(port, Client(Callback("h", port, bytes(32))))
        request = CreateStep(port.to_bytes(4, "big"), spec, client.callback, b"PATH=/bin")
        node = node or self.names[0]
        self.feed(node, sw.Ask(sw.Source("local", port), uid, uid, request))
        return client

    @property
    def answer(self) -> Any:
        return self.answers[-1]

    def say(self, client: Client, letter: str, data: bytes = b"") -> None:
        name, number = client.calls[-1]
        self.feed(name, sw.ClientSaid(number, letter, data))

    def leave(self, client: Client) -> None:
        """kill -9 of a client."""
        client.gone = True
        for name, number in list(client.calls):
            client.calls.remove((name, number))
            self.feed(name, sw.ClientLost(number))

    def task_ends(self, task: int, wstatus: int = 0, step: int = 0, cause: str = "") -> None:
        for (name, key), supervisor in list(self.supervisors.items()):
            if key.step == step and task in supervisor.tasks and task not in supervisor.ends:
                end = TaskEnd(task, wstatus, cause, 10, 5, 1000 + task, 100)
                supervisor.ends[task] = end
                self.feed(name, sw.TaskEnded(key, end))
                if len(supervisor.ends) == len(supervisor.tasks):
                    supervisor.released = True
                    self.feed(name, sw.ShareReleased(key))

    def all_end(self, wstatus: int = 0, step: int = 0) -> None:
        tasks = [
            task for (_, key), s in self.supervisors.items() if key.step == step for task in s.tasks
        ]
        for task in sorted(tasks):
            self.task_ends(task, wstatus, step)
        self.advance(25, mail=False)

    def obey(self) -> None:
        """Supervisors that were told to end their tasks do."""
        for (_, key), supervisor in list(self.supervisors.items()):
            if supervisor.killed and not supervisor.released:
                hard = any(at_once for _, at_once in supervisor.killed)
                for task in list(supervisor.tasks):
                    self.task_ends(task, 9 if hard else 15, key.step)
        self.advance(25, mail=False)

    def script_ends(self, wstatus: int = 0) -> None:
        name = self.names[0]
        self.batch[name].append("ended")
        key = Key(7, 1, CLUSTER)
        self.feed(name, Ended(key, wstatus))
        self.batch[name].append("released")
        self.feed(name, Released(key))

    def phase(self, name: str) -> Phase:
        agent = self.agents[name]
        assert agent is not None
        return agent.held()[0].phase


__all__ = ["CLUSTER", "Client", "Kill", "NotTaken", "Phase", "Taken", "World"]
