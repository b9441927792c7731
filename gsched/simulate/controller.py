"""The controller process of a simulated cluster: batches, commit, then what the outcome asks."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import (
    HookEnded,
    Ledger,
    Meta,
    NodeMessage,
    Outcome,
    Start,
    StoredAnswer,
    TakeOver,
    Tick,
)
from gsched.ledger.commands import Command, FromNode
from gsched.ledger.invariants import check
from gsched.ledger.outcome import ToldNode
from gsched.model import Job, Node, PartitionChange, PolicyRecord, Reservation, Step, Used
from gsched.scheduling import Planner, run_pass
from gsched.wire.codec import decode, encode
from gsched.wire.nodes import Order, Orders, Prepare, ToController

if TYPE_CHECKING:
    from gsched.simulate.world import World

_JOB = msgspec.msgpack.Decoder(Job)
_NODE = msgspec.msgpack.Decoder(Node)
_META = msgspec.msgpack.Decoder(Meta)
_PARTITION = msgspec.msgpack.Decoder(PartitionChange)
_RESERVATION = msgspec.msgpack.Decoder(Reservation)
_STEP = msgspec.msgpack.Decoder(Step)
_POLICY: msgspec.msgpack.Decoder[PolicyRecord] = msgspec.msgpack.Decoder(PolicyRecord)
_USED = msgspec.msgpack.Decoder(Used)
_ANSWER = msgspec.msgpack.Decoder(StoredAnswer)

CLUSTER = "11111111-1111-1111-1111-111111111111"


@dataclass
class Disk:
    """The state directory: what was committed."""

    records: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    full_until: float = 0.0

    def copy(self) -> Disk:
        return Disk(dict(self.records))

    def load(self, world: World) -> Ledger:
        """What a process that starts now knows."""
        found = self.records.get(("meta", b"meta"))
        meta = _META.decode(found) if found else Meta(CLUSTER)
        return Ledger.load(
            world.config,
            meta,
            [_JOB.decode(v) for (t, _), v in sorted(self.records.items()) if t == "job"],
            [_NODE.decode(v) for (t, _), v in sorted(self.records.items()) if t == "node"],
            [(k, _ANSWER.decode(v)) for (t, k), v in self.records.items() if t == "answer"],
            partition_records=[
                _PARTITION.decode(v) for (t, _), v in self.records.items() if t == "partition"
            ],
            reservation_records=[
                _RESERVATION.decode(v) for (t, _), v in self.records.items() if t == "reservation"
            ],
            step_records=[
                _STEP.decode(v) for (t, _), v in sorted(self.records.items()) if t == "step"
            ],
            policy_records=[
                _POLICY.decode(v) for (t, _), v in sorted(self.records.items()) if t == "policy"
            ],
            used_records=[
                (k, _USED.decode(v)) for (t, k), v in sorted(self.records.items()) if t == "used"
            ],
            hook_records=[
                _JOB.decode(v) for (t, _), v in sorted(self.records.items()) if t == "hook"
            ],
        )


class Died(Exception):
    """The process ends here."""


class Controller:
    """One process: dies as a whole, and then nothing of its memory counts."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.disk = disk
        self.ledger = disk.load(world)
        check(self.ledger)
        self.alive = True
        #: stopped in the middle: nothing happens until it goes on
        self.frozen = False
        # As the real one: the wall clock at the start, never before what was persisted, then
        # monotonic time. Only the start sees what the wall clock did meanwhile.
        self._base = max(self.ledger.meta.last_now, world.now + world.wall_offset) - world.now
        self._inbox: list[Command] = []
        self._woken = False
        self._schedule = False
        self._wake_at: float | None = None
        self._planner = Planner()
        #: a plan is ready and waits for the next turn
        self._planned = False

    def begin(self) -> None:
        self.receive(TakeOver())

    # ---- input ------------------------------------------------------------------------------

    def receive(self, command: Command) -> None:
        """Queues a command; what arrives together is committed together."""
        self._inbox.append(command)
        if not self._woken:
            self._woken = True
            self.world.at(self.world.now + self.world.random.uniform(0, 0.005), self._turn)

    def from_node(self, node: str, message: FromNode) -> None:
        """A message as it comes off the wire."""
        decoded: FromNode = decode(ToController, encode(message))
        self.receive(NodeMessage(node, decoded))

    # ---- one turn of the loop ---------------------------------------------------------------

    def _turn(self) -> None:
        self._woken = False
        if not self.alive or self.frozen:
            return
        world = self.world
        now = world.now + self._base
        commands, self._inbox = self._inbox, []
        if self._wake_at is not None and world.now >= self._wake_at:
            self._wake_at = None
            commands.append(Tick())
        try:
            outcome = Outcome()
            for command in commands:
                self.ledger.apply(command, now, outcome)
            self._finish(outcome)
            if self._planned:
                self._planned = False
                if self._planner.apply(self.ledger):
                    self._schedule = True
                    world.plans += 1
            while self._schedule:
                self._schedule = False
                plan = run_pass(self.ledger, self.ledger.meta.last_now)
                self._finish(self.ledger.apply(Start(plan), now))
            self._plan()
        except Died:
            self.alive = False
            world.controller_died(self)

    def _plan(self) -> None:
        """Begins a plan if one is due: it is made of what is known now, and takes its time."""
        now = self.ledger.meta.last_now
        if self._planner.due_at(self.ledger) > now:
            return
        self._planner.prepare(self.ledger, now).run()
        self.world.at(self.world.now + self.world.random.uniform(0.01, 3.0), self._plan_ready)

    def _plan_ready(self) -> None:
        if self.alive:
            self._planned = True
            if not self._woken:
                self._turn()

    def _finish(self, outcome: Outcome) -> None:
        world = self.world
        check(self.ledger)
        if world.chance(world.faults.die_before_commit):
            raise Died
        if outcome.puts:
            if self.disk.full_until > world.now:
                raise Died  # a failed commit ends the process
            self._commit(outcome)
        if world.chance(world.faults.die_after_commit):
            raise Died
        self._send(outcome)
        self._schedule = self._schedule or outcome.schedule
        if outcome.wake_at is not None:
            # Virtual times are of the world's clock; the ledger's may be off.
            wait = max(0.01, outcome.wake_at - self.ledger.meta.last_now)
            when = world.now + min(wait, 1.0)
            if self._wake_at is None or when < self._wake_at or self._wake_at <= world.now:
                self._wake_at = when
                world.at(when, self._tick)

    def _tick(self) -> None:
        if self.alive and not self._woken:
            self._turn()

    def _commit(self, outcome: Outcome) -> None:
        for key, value in outcome.puts.items():
            if value is None:
                self.disk.records.pop(key, None)
            else:
                data = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
                self.disk.records[key] = data
        outcome.puts["meta", b"meta"] = self.ledger.meta
        self.disk.records["meta", b"meta"] = msgspec.msgpack.encode(self.ledger.meta)

    def _hook(self, image: Job, epilog: bool) -> None:
        """A program of the site takes its time, and sometimes fails. Its end is heard by the
        process that started it alone."""
        error = "it failed" if self.world.chance(0.1) else ""
        ended = HookEnded(image.id, image.attempt, epilog, error)
        wait = self.world.random.uniform(0.1, 8.0)
        self.world.at(self.world.now + wait, lambda: self.receive(ended) if self.alive else None)

    def _send(self, outcome: Outcome) -> None:
        world = self.world
        for request_id, reply in outcome.answers:
            world.client.answered(request_id, copy.deepcopy(reply))
        for level, text in outcome.log:
            world.note(f"controller {level}: {text}")
        for name, message in outcome.messages:
            self._to_node(name, message)
        for image in outcome.prologs:
            self._hook(image, False)
        for image in outcome.given_back:
            self._hook(image, True)
        for name, orders in outcome.orders.items():
            filled = [self._fill(order) for order in orders]
            live = self.ledger.live[name]
            self._to_node(name, Orders(self.ledger.meta.epoch, live.session, filled))

    def _fill(self, order: Order) -> Order:
        if isinstance(order, Prepare) and order.launch.batch:
            script = self.disk.records["blob", order.launch.job.script.encode()]
            launch = msgspec.structs.replace(order.launch, script=script)
            return msgspec.structs.replace(order, launch=launch)
        return order

    def _to_node(self, name: str, message: ToldNode | Orders) -> None:
        node = self.world.nodes.get(name)
        if node is not None:
            frame = encode(message)
            self.world.send(name, lambda: node.receive(frame))

    # ---- checks -------------------------------------------------------------------------------

    def check_reload(self) -> None:
        """What was committed describes the same ledger as the one in memory."""
        loaded = self.disk.load(self.world)
        for mine, theirs in ((self.ledger.jobs, loaded.jobs), (self.ledger.nodes, loaded.nodes)):
            assert mine == theirs, "what was committed is not what is in memory"
        assert loaded.parts == self.ledger.parts
        assert loaded.reservations == self.ledger.reservations
        assert loaded.steps == self.ledger.steps
        assert loaded.epilogs == self.ledger.epilogs
        for name in self.ledger.nodes:
            assert loaded.cluster.used(name) == self.ledger.cluster.used(name), name
