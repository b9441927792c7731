"""The controller's loop: messages -> commands -> one commit -> answers and orders.

Nothing leaves before it is durable, orders not before readers see it. A failed commit and an
exception of the ledger end the process: memory may then be ahead of the disk, and only the disk
counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from gsched.config import Config
from gsched.controller import memory
from gsched.controller.background import Background
from gsched.controller.clock import Clock
from gsched.controller.configless import Files
from gsched.controller.hooks import Hooks
from gsched.controller.load import encode_records
from gsched.controller.mailer import Mailer
from gsched.controller.orders import Contents, pack
from gsched.controller.sharing import Sharing
from gsched.controller.statistics import Counter, stopwatch
from gsched.controller.verbs import reconfigure, shutdown, submit, why
from gsched.ledger import absence
from gsched.ledger.commands import (
    Configure,
    FromNode,
    NodeMessage,
    Start,
    TakeOver,
    Tick,
    Write,
)
from gsched.ledger.ledger import Ledger
from gsched.ledger.outcome import Outcome
from gsched.model import Job, Plan
from gsched.scheduling import options_of
from gsched.store import Store, ViewStore
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.messages import (
    Call,
    Diagnose,
    Done,
    ExplainJob,
    Reconfigure,
    Refused,
    Reply,
    Shutdown,
    Status,
    SubmitJob,
)
from gsched.wire.nodes import FetchConfig, Register, ToController
from gsched.wire.sockets import ControllerSockets, Received

#: Messages taken from each side before a commit.
BATCH = 512
#: Of the time that passes and commands take, passes get at most this share when both are busy.
PASS_SHARE = 0.5
#: Longest pause between two passes however long one takes, seconds.
MAX_PAUSE_S = 1.0
#: Nodes are listened to for this share of the time where they have much to say, so that their
#: messages gather and one turn, one commit and one signal do for many; and the longest pause.
NODE_SHARE = 0.2
MAX_GATHER_S = 0.01
#: Seconds between two looks at room on the disk, and between two complaints of one kind.
TEND_S = 10.0

#: A turn that takes longer, seconds, was no turn: the process was stopped or the machine asleep.
ABSENT_S = 5.0

Schedule = Callable[[Ledger, float], Plan]


@dataclass
class Counts:
    """What happened since the start."""

    commits: int = 0
    commands: int = 0
    malformed: int = 0
    passes: int = 0


class Controller:
    """One thread, one loop. `run` returns after `stop`."""

    def __init__(
        self,
        config: Config,
        store: Store,
        view: ViewStore,
        sockets: ControllerSockets,
        ledger: Ledger,
        schedule: Schedule,
        clock: Clock,
        log: Any,
        sharing: Sharing,
        reload: reconfigure.Reload | None = None,
        mailer: Mailer | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._view = view
        self._sockets = sockets
        self._ledger = ledger
        self._schedule = schedule
        self._clock = clock
        self._log = log
        self._sharing = sharing
        self._reload = reload
        self._mailer = mailer
        self._hooks = hooks
        self._max_script = submit.max_script(config)
        self._gap = self._rules_of(config)
        self._files = Files(config, log)
        self._background = Background(clock, log)
        #: everything that can be readable, and that without the nodes
        self._poller, self._others = zmq.Poller(), zmq.Poller()
        for poller in (self._poller, self._others):
            poller.register(self._background.fd, zmq.POLLIN)
            if hooks is not None:
                poller.register(hooks.fd, zmq.POLLIN)
        sockets.register(self._poller)
        sockets.register(self._others, nodes=False)
        #: see `watch`
        self._fd = -1
        #: when the nodes are listened to again
        self._nodes_at = 0.0
        self._stopping = False
        self.counts = Counts()
        self._counter = Counter(clock.now())
        #: request id -> who asked: (routing id, over the network)
        self._askers: dict[bytes, list[tuple[bytes, bool]]] = {}
        self._wants_pass = False
        self._next_pass = 0.0
        self._status = Status("", config.cluster_name, 0, 0, True)
        self._wake_at: float | None = None
        self._next_tend = 0.0
        #: peer -> when its malformed messages were last complained of
        self._complained: dict[str, float] = {}

    def _rules_of(self, config: Config) -> float:
        """Least time between two passes; what is wrong with SchedulerParameters is told."""
        options = options_of(config)
        for problem in options.problems:
            self._log.error(problem)
        return options.gap

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Calls `handler` in the loop when `fd` becomes readable (signals come this way)."""
        for poller in (self._poller, self._others):
            poller.register(fd, zmq.POLLIN)
        self._fd, self._fd_handler = fd, handler

    def stop(self) -> None:
        """Ends `run` after the present batch."""
        self._stopping = True

    # ---- the loop -----------------------------------------------------------------------------

    def take_over(self) -> None:
        """Raises the epoch; must come before the first message."""
        now = self._clock.now()
        out = self._ledger.apply(TakeOver(), now)
        meta = self._ledger.meta
        status = Status(
            meta.cluster, self._config.cluster_name, self._store.version, meta.epoch, True
        )
        status.pid, status.start, status.next_job_id = os.getpid(), int(now), meta.next_job_id
        self._status = status
        self._view.put({("status", b"controller"): encode(status)})
        self._carry_out(out)

    def run(self) -> None:
        """Serves until `stop`. Raises CommitFailed, and whatever a bug raises."""
        last = self._clock.now()
        while not self._stopping:
            self._wait()
            # Before the first message and the first look at who is silent.
            began = last = self._excuse(last)
            listens = began >= self._nodes_at
            heard = False
            out = Outcome()
            for received in self._sockets.receive(BATCH, nodes=listens):
                heard = heard or received.remote
                self._take(received, out)
            # It may have been stopped just now as well.
            now = last = self._excuse(last)
            if self._wake_at is not None and now >= self._wake_at:
                self._wake_at = None
                self._ledger.apply(Tick(), now, out)
            self._carry_out(out)
            if self._wants_pass and now >= self._next_pass:
                self._pass()
            if now >= self._background.due_at(self._ledger):
                self._background.begin(self._ledger)
            if now >= self._next_tend:
                self._next_tend = now + TEND_S
                self._store.tend()
                memory.settle()
                self._background.watch(self._ledger)
            if heard:
                now = self._clock.now()
                self._nodes_at = now + min((now - began) * (1 / NODE_SHARE - 1), MAX_GATHER_S)

    def _excuse(self, last: float) -> float:
        """The time now. Nobody is silent for the time since `last` if that was too long for this
        process to have run: nothing could be heard meanwhile."""
        now = self._clock.now()
        absent = now - last
        if absent > ABSENT_S:
            self._log.warning(f"no message was read for {absent:.0f} s")
            absence.excuse(self._ledger, absent)
        return now

    def _wait(self) -> None:
        now = self._clock.now()
        until = self._next_tend if self._wake_at is None else min(self._wake_at, self._next_tend)
        if self._wants_pass:
            until = min(until, self._next_pass)
        until = min(until, self._background.due_at(self._ledger))
        poller = self._poller
        if now < self._nodes_at:
            poller, until = self._others, min(until, self._nodes_at)
        # Rounded up: a poll that returns too early would spin.
        wait = 0 if until <= now else int((until - now) * 1000) + 1
        for source, _ in poller.poll(wait):
            if source is self._sockets.handshakes:
                self._sockets.admit()
            elif source == self._background.fd:
                self._take_plan()
            elif self._hooks is not None and source == self._hooks.fd:
                self._take_hooks(self._hooks)
            elif source == self._fd:
                self._fd_handler()

    def _take_plan(self) -> None:
        """The plan that is ready counts from now on; the next pass finds what still fits."""
        estimates = self._background.take(self._ledger)
        if estimates is not None:
            self._counter.planned(self._ledger, self._background.spent, self._clock.now())
            self._view.put({("plan", b"estimates"): encode(estimates)})
            self._wants_pass = True

    def _take_hooks(self, hooks: Hooks) -> None:
        """Programs of the site have ended: their jobs go on, or are taken back."""
        out = Outcome()
        for ended in hooks.take():
            self._ledger.apply(ended, self._clock.now(), out)
        self._carry_out(out)

    def _pass(self) -> None:
        before = self._clock.now()
        self._wants_pass = False
        began = stopwatch()
        plan = self._schedule(self._ledger, before)
        self.counts.passes += 1
        self._carry_out(self._ledger.apply(Start(plan), self._clock.now()))
        after = self._clock.now()
        self._counter.passed(self._ledger, plan, stopwatch() - began, after)
        if self._status.last_pass != int(after):
            self._status.last_pass = int(after)
            self._view.put({("status", b"controller"): encode(self._status)})
        # Commands get their turn between two passes, the longer the dearer passes are.
        pause = (after - before) * (1 / PASS_SHARE - 1)
        self._next_pass = after + max(min(pause, MAX_PAUSE_S), self._gap)

    # ---- messages in --------------------------------------------------------------------------

    def _take(self, received: Received, out: Outcome) -> None:
        self.counts.commands += 1
        try:
            if received.role == "node":
                self._take_node(received, out)
            else:
                self._take_call(received, out)
        except BadMessage as problem:
            self.counts.malformed += 1
            peer = received.name or "a frontend"
            self._complain(peer, f"malformed message from {peer}: {problem}")
            if received.role != "node":
                refusal = Refused(b"", f"malformed request: {problem}")
                self._sockets.answer(received.routing_id, [encode(refusal)], remote=received.remote)

    def _take_node(self, received: Received, out: Outcome) -> None:
        began = stopwatch()
        message: FromNode | FetchConfig = decode(ToController, received.payload)
        if isinstance(message, FetchConfig):
            answer = self._files.answer(received.name, self._clock.now())
            if answer is not None:
                self._sockets.send_node(received.name, answer)
            return
        if isinstance(message, Register) and message.node != received.name:
            raise BadMessage(f"it calls itself {message.node!r}")
        self._ledger.apply(NodeMessage(received.name, message), self._clock.now(), out)
        self._counter.message(type(message), began)

    def _take_call(self, received: Received, out: Outcome) -> None:
        began = stopwatch()
        call = decode(Call, received.payload)
        if not call.request_id or call.uid < 0:
            raise BadMessage("a call without a request id or a user")
        askers = self._askers.setdefault(call.request_id, [])
        asker = received.routing_id, received.remote
        if asker not in askers:
            # A question to an agent may be repeated while it is under way.
            askers.append(asker)
        write = call.write
        reply: Reply | None = None
        if isinstance(write, SubmitJob):
            # A repeated request was carried out already: its answer needs no room.
            if call.request_id not in self._ledger.answers:
                reply = submit.check(call, write, self._store, self._max_script)
                for spec in (write.spec, *write.components):
                    self._sharing.spec(spec)
        elif isinstance(write, Shutdown):
            reply = shutdown.shutdown(call, self._ledger.admins, self.stop)
        elif isinstance(write, ExplainJob):
            reply = why.explain(call, write, self._ledger, self._clock.now(), self._log)
        elif isinstance(write, Diagnose):
            reply = self._counter.answer(call, write, self._ledger, self._clock.now())
        elif isinstance(write, Reconfigure):
            reply = reconfigure.check(call, self._ledger.admins) or self._reconfigure(call, out)
        if reply is not None:
            out.answers.append((call.request_id, reply))
        else:
            self._ledger.apply(Write(call), self._clock.now(), out)
        self._counter.request(call, began)

    def _reconfigure(self, call: Call, out: Outcome) -> Reply:
        problem = self.reconfigure(out)
        if problem:
            return Refused(call.request_id, problem)
        return Done(call.request_id, 0)

    def reconfigure(self, out: Outcome | None = None) -> str:
        """Takes the configuration files as they are now, if they are good; else says what is wrong
        and changes nothing. Part of the batch `out`, or at once."""
        if self._reload is None:
            return "this controller was started without files"
        try:
            config = self._reload.read()
        except reconfigure.NotTaken as problem:
            self._log.error(f"the configuration stays as it was: {problem}")
            return str(problem)
        batch = out if out is not None else Outcome()
        self._ledger.apply(Configure(config), self._clock.now(), batch)
        self._config = config
        self._files = Files(config, self._log)
        if self._mailer is not None:
            self._mailer.program = config.mail_prog
        if self._hooks is not None:
            self._hooks.config = config
        self._max_script = submit.max_script(config)
        self._gap = self._rules_of(config)
        if out is None:
            self._carry_out(batch)
        memory.sweep()
        return ""

    def _complain(self, peer: str, text: str) -> None:
        now = self._clock.now()
        if now - self._complained.get(peer, 0.0) >= TEND_S:
            self._complained[peer] = now
            self._log.warning(text, malformed=self.counts.malformed)

    # ---- what came of it ----------------------------------------------------------------------

    def _carry_out(self, out: Outcome) -> None:
        images: dict[int, msgspec.Raw] = {}
        promised = False
        if out.puts:
            version = self._store.version + 1
            for _, reply in out.answers:
                if isinstance(reply, Done) and not reply.version:
                    reply.version = version
            # Time is persisted with whatever else is.
            out.puts["meta", b"meta"] = self._ledger.meta
            records = encode_records(out.puts)
            # Whoever waits for an answer does not wait for the database as well.
            if out.answers:
                promised = self._store.promise(records)
            else:
                self._store.commit(records)
            self.counts.commits += 1
            if out.orders:
                # Many orders carry what was just recorded.
                images = {
                    id(value): msgspec.Raw(records[key] or b"")
                    for key, value in out.puts.items()
                    if isinstance(value, Job)
                }
        # They wait for the facts alone: what the view says is no part of a promise.
        self._answer(out.answers)
        if promised:
            self._store.settle()
        if out.view or out.words or out.ranks:
            self._view.put(encode_records(out.view), out.words, out.ranks)
        if out.mails and self._mailer is not None:
            self._mailer.send(out.mails)
        if (out.prologs or out.given_back) and self._hooks is not None:
            self._hooks.run(out.prologs, out.given_back)
        for level, text in out.log:
            getattr(self._log, level, self._log.info)(text)
        for node, message in out.messages:
            self._sockets.send_node(node, encode(message))
        content, epoch = Contents(self._content), self._ledger.meta.epoch
        for node, orders in out.orders.items():
            live = self._ledger.live.get(node)
            if live is not None and live.session:
                for packed in pack(epoch, live.session, orders, content, images):
                    self._sockets.send_node(node, encode(packed))
        if out.schedule:
            self._wants_pass = True
        if out.wake_at is not None and (self._wake_at is None or out.wake_at < self._wake_at):
            self._wake_at = out.wake_at

    def _answer(self, answers: list[tuple[bytes, Reply]]) -> None:
        bundles: dict[tuple[bytes, bool], list[bytes]] = {}
        for request_id, reply in answers:
            if isinstance(reply, Done) and not reply.version:
                reply.version = self._store.version
            payload = encode(reply)
            for asker in self._askers.pop(request_id, ()):
                bundles.setdefault(asker, []).append(payload)
        for (routing_id, remote), payloads in bundles.items():
            self._sockets.answer(routing_id, payloads, remote=remote)

    def _content(self, digest: str) -> bytes | None:
        found = self._store.get("blob", digest.encode())
        if found is None:
            self._log.error(f"content {digest} is not stored")
        return found
