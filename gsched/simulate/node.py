"""A node of a simulated cluster: the production agent, with disk, supervisors and jobs played."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gsched.model import Gpu
from gsched.wire.codec import PROTOCOL, decode
from gsched.wire.nodes import Register, Reread, ToNode
from slurmd_compat.agent import words
from slurmd_compat.agent.machine import Agent
from slurmd_compat.agent.step_words import StepAction as AboutSteps

if TYPE_CHECKING:
    from gsched.simulate.world import Run, World

#: actions about one attempt
StepAction = (
    words.WriteJob
    | words.JournalPut
    | words.JournalDel
    | words.RunHook
    | words.SpawnStep
    | words.AdoptStep
    | words.KillStep
    | words.SignalStep
    | words.NotifyStep
    | words.SetStepLimit
    | words.CleanUp
)

#: as Linux numbers them
SIGCONT, SIGSTOP, SIGTSTP = 18, 19, 20

_RECORD = msgspec.msgpack.Decoder(words.Record)
_IDENTITY = msgspec.msgpack.Decoder(words.Identity)


@dataclass
class Step:
    """A supervisor and its script: lives on when the daemon dies, not when the node does."""

    key: words.Key
    run: Run
    end: float
    wstatus: int
    cause: str = ""
    ended: bool = False
    released: bool = False
    #: it stands still: so many seconds of it are left
    left: float | None = None


class SimNode:
    """One machine. Its journal and job directories survive everything but are never lost."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        #: its hardware, whatever the configuration says of it later
        self.conf = world.config.nodes[name]
        self.boots = 0
        self.up = False
        self.daemons = 0
        self.agent: Agent | None = None
        self.journal: dict[words.Key, bytes] = {}
        self.identity = msgspec.msgpack.encode(words.Identity())
        self.scripts: dict[words.Key, bytes] = {}
        self.steps: dict[words.Key, Step] = {}
        self.disk_full_until = 0.0

    def boot(self) -> None:
        """Power on."""
        self.boots += 1
        self.up = True
        self.start_daemon()

    @property
    def known_epoch(self) -> int:
        """Highest epoch that it would not go below, also after a crash."""
        return max(_IDENTITY.decode(self.identity).epochs.values(), default=0)

    @property
    def _now_ms(self) -> int:
        return int(self.world.now * 1000)

    def start_daemon(self) -> None:
        """The daemon starts and restores itself from the journal."""
        if self.agent is not None or not self.up:
            return
        self.daemons += 1
        boot, nonce = f"boot-{self.boots}", f"{self.name}-{self.daemons}"
        agent = Agent(self.name, boot, nonce, self.world.config)
        self.agent = agent
        identity = _IDENTITY.decode(self.identity)
        records = [_RECORD.decode(data) for data in self.journal.values()]
        self._carry_out(agent.restore(identity, records, self._now_ms))
        self._arm()

    # ---- faults -------------------------------------------------------------------------------

    def _daemon_dies(self) -> None:
        self.world.note(f"{self.name}: daemon dies")
        self.agent = None
        self.world.at(self.world.now + self.world.random.uniform(0.1, 20), self.start_daemon)

    def reboot(self) -> None:
        """The machine goes down with all it runs, and comes back."""
        self.world.note(f"{self.name}: reboots")
        self.agent = None
        self.up = False
        for step in self.steps.values():
            if step.run.end is None:
                step.run.end = self.world.now
        self.steps.clear()
        self.world.at(self.world.now + self.world.random.uniform(5, 90), self.boot_again)

    def boot_again(self) -> None:
        if not self.up:
            self.boot()

    def kill_a_supervisor(self) -> None:
        """kill -9 of a stepd: the daemon finds it gone and kills what it had started."""
        for key, step in list(self.steps.items()):
            if not step.released:
                self.world.note(f"{self.name}: supervisor of job {key.job_id} is killed")
                step.run.end = step.run.end or self.world.now
                del self.steps[key]
                self._input(words.Lost(key))
                return

    # ---- input ----------------------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """A message off the wire."""
        if self.agent is None:
            return
        message = decode(ToNode, frame)
        if isinstance(message, Reread):
            # As the real one: it starts anew with what it then reads.
            self.agent = None
            self.start_daemon()
        else:
            self._input(message)

    def _input(self, item: words.Input) -> None:
        if self.agent is None:
            return
        actions = self.agent.apply(item, self._now_ms)
        self.agent.check_invariants()
        self._carry_out(actions)
        self._arm()

    def _arm(self) -> None:
        agent = self.agent
        if agent is None:
            return
        when = max(self.world.now + 0.001, agent.wake_at() / 1000)

        def tick() -> None:
            if self.agent is agent and agent.wake_at() <= self._now_ms:
                self._input(words.Tick())

        self.world.at(when, tick)

    # ---- actions ------------------------------------------------------------------------------

    def _carry_out(self, actions: list[words.Action | AboutSteps]) -> None:
        agent = self.agent
        assert agent is not None
        report = False
        broken: dict[words.Key, str] = {}
        for index, action in enumerate(actions):
            if self.world.chance(self.world.faults.daemon_dies):
                self._daemon_dies()
                return
            if isinstance(action, words.SendReport):
                report = True
            elif isinstance(action, words.SendRegister):
                self._send(agent.register_message(self._facts(), self._now_ms))
            elif isinstance(action, words.PutIdentity):
                self.identity = msgspec.msgpack.encode(action.identity)
            elif isinstance(action, words.Log):
                self.world.note(f"{self.name} {action.level}: {action.text}")
            elif isinstance(action, words.WriteNotice | words.DropNotice):
                continue  # nobody reads them here
            elif not isinstance(action, words.Action):
                continue  # nobody asks for steps here
            elif action.key not in broken:
                self._one(action, actions[index + 1 :], broken)
        if report and agent.session:
            self._send(agent.report_message(self._now_ms))
        for key, error in broken.items():
            self._input(words.JournalFailed(key, error))

    def _one(
        self,
        action: StepAction,
        rest: list[words.Action | AboutSteps],
        broken: dict[words.Key, str],
    ) -> None:
        full = self.disk_full_until > self.world.now
        if isinstance(action, words.WriteJob):
            if full:
                broken[action.key] = "No space left on device"
            else:
                self.scripts[action.key] = action.launch.script
        elif isinstance(action, words.JournalPut):
            starts = any(isinstance(a, words.SpawnStep) and a.key == action.key for a in rest)
            if full and (action.key not in self.journal or starts):
                broken[action.key] = "No space left on device"
            elif not full:
                self.journal[action.key] = msgspec.msgpack.encode(action.record)
        elif isinstance(action, words.JournalDel):
            self.journal.pop(action.key, None)
            self.scripts.pop(action.key, None)
        elif isinstance(action, words.SpawnStep):
            self._spawn(action.key, action.record)
        elif isinstance(action, words.AdoptStep):
            self._adopt(action.key)
        elif isinstance(action, words.KillStep):
            self._kill(action.key)
        elif isinstance(action, words.SignalStep):
            self._signal(action.key, action.signum)
        elif isinstance(action, words.CleanUp):
            self.steps.pop(action.key, None)

    def _facts(self) -> Register:
        conf = self.conf
        types = [kind for kind, count in conf.gpu_types.items() for _ in range(count)]
        gpus = [
            Gpu(
                f"GPU-{self.name}-{i}",
                kind,
                i,
                links=[0 if i == j else 18 for j in range(len(types))],
            )
            for i, kind in enumerate(types)
        ]
        return Register(
            protocol=PROTOCOL,
            node=self.name,
            cluster="",
            boot_id="",
            session="",
            epoch=0,
            version="sim",
            cpus=conf.cpus,
            mem_mb=conf.real_memory,
            gpus=gpus,
            attempts=[],
        )

    def _send(self, message: object) -> None:
        def deliver() -> None:
            controller = self.world.controller
            if controller is not None and controller.alive:
                controller.from_node(self.name, message)  # type: ignore[arg-type]

        self.world.send(self.name, deliver)

    # ---- steps ----------------------------------------------------------------------------------

    def _spawn(self, key: words.Key, record: words.Record) -> None:
        _, duration, exit_code, _ = self.scripts[key].decode().split()
        launch = record.launch
        part = launch.job.alloc[launch.node_index]
        gpus, partition = tuple(launch.gpu_uuids), launch.job.partition
        run = self.world.started(
            key.job_id, key.attempt, self.name, gpus, part.shares, part.cpu_ids, partition
        )
        limit = record.launch.limit_s
        length, wstatus, cause = float(duration), int(exit_code) << 8, ""
        if limit and length > limit:
            length, wstatus, cause = float(limit), 15, "timeout"
        step = Step(key, run, self.world.now + length, wstatus, cause)
        self.steps[key] = step
        self.world.at(step.end, lambda: self._script_ends(step))
        self._later(0.002, words.Started(key))

    def _later(self, delay: float, item: words.Input) -> None:
        agent = self.agent

        def deliver() -> None:
            if self.agent is agent:
                self._input(item)

        self.world.at(self.world.now + delay, deliver)

    def _script_ends(self, step: Step) -> None:
        if step.ended or self.steps.get(step.key) is not step or self.world.now < step.end:
            return
        step.ended = True
        step.run.end = self.world.now
        self._input(words.Ended(step.key, step.wstatus, step.cause))
        self.world.at(self.world.now + 0.003, lambda: self._step_released(step))

    def _step_released(self, step: Step) -> None:
        step.released = True
        if self.steps.get(step.key) is step:
            self._input(words.Released(step.key))

    def _signal(self, key: words.Key, signum: int) -> None:
        """Stopped, or going on."""
        step = self.steps.get(key)
        if step is None or step.ended:
            return
        if signum in (SIGTSTP, SIGSTOP) and step.left is None:
            step.left, step.end = max(0.0, step.end - self.world.now), math.inf
            step.run.stop(self.world.now)
        elif signum == SIGCONT and step.left is not None:
            self._go_on(step)

    def _go_on(self, step: Step) -> None:
        step.end, step.left = self.world.now + (step.left or 0), None
        step.run.go(self.world.now)
        self.world.alone(step.run)
        self.world.at(step.end, lambda: self._script_ends(step))

    def _kill(self, key: words.Key) -> None:
        step = self.steps.get(key)
        if step is None:
            self._later(0.001, words.Lost(key))
        elif not step.ended and step.cause != "killed":
            step.left, step.cause, step.wstatus = None, "killed", 15
            step.end = self.world.now + self.world.random.uniform(0.001, 3)
            self.world.at(step.end, lambda: self._script_ends(step))

    def _adopt(self, key: words.Key) -> None:
        step = self.steps.get(key)
        if step is None:
            ever = any(
                run.job_id == key.job_id and run.attempt == key.attempt for run in self.world.runs
            )
            self._later(0.001, words.Lost(key) if ever else words.Absent(key))
            return
        if step.ended:
            self._later(0.001, words.Ended(key, step.wstatus, step.cause))
        if step.released:
            self._later(0.002, words.Released(key))
