"""Steps as the daemon sees them: one object that carries the agent's actions about steps out.

The node's socket, the control connections to clients, mail through the controller, supervisors and
the journal each have a module of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from gsched.config import Config
from gsched.model.step import BATCH_STEP
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.nodes import AgentAnswer, AgentCall, StepMail
from gsched.wire.paths import step_socket
from gsched.wire.steps import (
    AttachStep,
    Behalf,
    CreateStep,
    FromAgent,
    LaunchStep,
    ListPids,
    Mail,
    NotTaken,
    PassedBack,
    PassOn,
    StatSteps,
    TellSteps,
    ToAgent,
)
from slurmd_compat import step_pids
from slurmd_compat.agent import Key, Record, Unkillable
from slurmd_compat.agent.step_words import (
    AdoptShare,
    Answer,
    Ask,
    AttachClient,
    CallClient,
    CleanShare,
    ClientLost,
    ClientSaid,
    DropStep,
    HangUp,
    KillShare,
    MailIn,
    PutLead,
    PutShare,
    PutWait,
    SendMail,
    ShareFailed,
    SignalShare,
    Source,
    SpawnShare,
    StepAction,
    StepInput,
    StepKey,
    TellClient,
)
from slurmd_compat.grants import Grants
from slurmd_compat.journal import Journal
from slurmd_compat.launcher import Launcher
from slurmd_compat.step_calls import ClientCalls
from slurmd_compat.step_shares import ShareSupervisors
from slurmd_compat.step_socket import Loop, StepSocket
from slurmd_compat.step_stat import Looked, StepStats


def now_ms() -> int:
    """Monotonic ms of this boot."""
    return time.monotonic_ns() // 1_000_000


class StepService:
    """One per daemon. `feed` takes inputs for the agent, `find` an attempt's record, `post` sends
    to the controller what may be lost; `running(job_id)` is the attempt that a job number means,
    `others` its further nodes that run steps, `script_pid` the process of its script (0 none),
    `held` all attempts here."""

    def __init__(
        self,
        config: Config,
        node: str,
        launcher: Launcher,
        grants: Grants,
        journal: Journal,
        loop: Loop,
        feed: Callable[[StepInput | Unkillable], None],
        find: Callable[[Key], Record | None],
        post: Callable[[Any], None],
        running: Callable[[int], Record | None],
        others: Callable[[Record], set[str]],
        script_pid: Callable[[Key], int],
        held: Callable[[], Iterable[Record]],
        log: Any,
    ) -> None:
        self._node = node
        self._journal = journal
        self._feed = feed
        self._post = post
        self._log = log
        #: malformed words of others
        self.bad = 0
        #: steps whose record could not be written: not launched anywhere
        self._unwritten: dict[StepKey, PutLead | PutShare] = {}
        self.shares = ShareSupervisors(
            config, node, launcher, grants, loop, feed, find, now_ms, log
        )
        addresses = {name: conf.addr for name, conf in config.nodes.items()}
        self._calls = ClientCalls(
            loop,
            {"localhost": "127.0.0.1", **addresses},
            lambda number, letter, data: feed(ClientSaid(number, letter, data)),
            lambda number, met: feed(ClientLost(number, met)),
            now_ms,
            log,
        )
        run_dir = os.path.dirname(config.nodes[node].expand(config.slurmd_pid_file))
        self._socket = StepSocket(
            step_socket(run_dir, node), config.slurm_user, loop, self._local, log
        )
        self._script_pid = script_pid
        self._held = held
        self._grants = grants
        self._private = {word.lower() for word in config.private_data}
        self._stats = StepStats(node, running, self._look, others, self._reply, post, now_ms)
        self._carry: dict[type, Callable[[Any], None]] = {
            Answer: self._answer,
            SendMail: self._mail,
            CallClient: lambda a: self._calls.call(a.client, a.callback, a.patience_ms),
            TellClient: lambda a: self._calls.tell(a.client, a.letter, a.data),
            HangUp: lambda a: self._calls.hang_up(a.client),
            PutLead: self._put,
            PutShare: self._put,
            PutWait: self._put_wait,
            DropStep: self._drop,
            SpawnShare: self._spawn,
            AdoptShare: self.shares.adopt,
            SignalShare: self.shares.signal,
            KillShare: self.shares.kill,
            CleanShare: self.shares.clean,
            AttachClient: self._attach,
        }

    def carry_out(self, action: StepAction) -> None:
        self._carry[type(action)](action)

    def children(self) -> list[int]:
        """Supervisors of this process whose exit status nobody has read yet."""
        return list(self.shares.links.children())

    def close(self) -> None:
        """Lets go of everything; supervisors and clients stay."""
        self._socket.close()
        self._calls.close()
        self.shares.links.close()

    def deadline(self) -> int | None:
        """Monotonic ms at which `on_time` has something to do."""
        marks = (self.shares.vigil.deadline(), self._calls.deadline(), self._stats.deadline())
        return min((mark for mark in marks if mark is not None), default=None)

    def on_time(self, now: int) -> None:
        self.shares.vigil.on_time(now)
        self._calls.on_time(now)
        self._socket.on_time()
        self._stats.on_time(now)

    # -- requests

    def _local(self, number: int, uid: int, gid: int, message: Any) -> None:
        self._ask(Source("local", number), uid, gid, message)

    def _ask(self, source: Source, uid: int, gid: int, message: Any) -> None:
        if isinstance(message, CreateStep | AttachStep | TellSteps):
            self._feed(Ask(source, uid, gid, message))
        elif isinstance(message, StatSteps):
            self._stats.ask(source, uid, gid, message)
        elif isinstance(message, ListPids):
            self._reply(source, self._pids(uid))

    def _pids(self, uid: int) -> FromAgent:
        # Others' processes are seen in /proc as well, unless the site keeps jobs from them.
        mine = uid not in (0, os.geteuid()) and self._private & {"jobs", "all"}
        return step_pids.listed(
            self._held(),
            lambda record: self.shares.launched(record.key),
            self.shares.pids,
            lambda record: self._script_pid(record.key),
            lambda record, step: self._grants.step_pids(record.key, step),
            self._stats.processes(),
            uid if mine else None,
        )

    def incoming(self, message: Any) -> bool:
        """Takes what the controller passes on; False: it is nothing of steps."""
        if isinstance(message, StepMail):
            try:
                mail = decode(Mail, message.payload)
            except BadMessage as problem:
                self.bad += 1
                self._log.error(f"a word of {message.node} was not understood: {problem}")
                return True
            if not self._of_stats(message, mail):
                self._feed(MailIn(message.node, message.job_id, message.attempt, mail))
            return True
        if isinstance(message, AgentCall):
            source = Source("call", message.token)
            try:
                asked: Any = decode(ToAgent, message.payload)
                if isinstance(asked, Behalf):
                    raise BadMessage("not a request")
            except BadMessage as problem:
                self.bad += 1
                self._answer(Answer(source, NotTaken(f"error: {problem}", "EINVAL")))
                return True
            self._ask(source, message.uid, message.gid, asked)
            return True
        return False

    def _of_stats(self, letter: StepMail, mail: Any) -> bool:
        """Takes words about what steps use; False: it is another's."""
        try:
            if isinstance(mail, PassOn):
                asked: Any = decode(ToAgent, mail.payload)
                if isinstance(asked, StatSteps):
                    source = Source("node", mail.token, letter.node, letter.job_id, letter.attempt)
                    self._stats.ask(source, mail.uid, mail.gid, asked)
                    return True
            elif isinstance(mail, PassedBack):
                answer: FromAgent = decode(FromAgent, mail.payload)
                return self._stats.passed_back(letter.node, mail.token, answer)
        except BadMessage:
            self.bad += 1
            return True
        return False

    def _look(self, record: Record) -> Iterable[Looked]:
        """The shares of an attempt's steps here, and its script."""
        key = record.key
        for step_key, launch in self.shares.launched(key):
            step = launch.step
            yield Looked(
                step.id,
                step.name,
                step.ntasks,
                [part.node for part in step.nodes],
                self.shares.pids(step_key),
            )
        pid = self._script_pid(key)
        if pid:
            yield Looked(BATCH_STEP, "batch", 1, [self._node], {0: pid})

    def _answer(self, action: Answer) -> None:
        self._reply(action.source, action.message)

    def _reply(self, source: Source, answer: FromAgent) -> None:
        if source.kind == "local":
            self._socket.answer(source.token, answer)
        elif source.kind == "call":
            self._post(AgentAnswer(source.token, encode(answer)))
        else:
            back = encode(PassedBack(source.token, encode(answer)))
            self._post(StepMail(source.job_id, source.attempt, source.node, back))

    # -- mail, journal, supervisors

    def _mail(self, action: SendMail) -> None:
        if isinstance(action.mail, LaunchStep):
            step = action.mail.step
            for key in [k for k in self._unwritten if k.step == step.id]:
                if (key.job_id, key.attempt) == (action.job_id, action.attempt):
                    self._put(self._unwritten[key])
                    if key in self._unwritten:
                        return  # it is repeated
        self._post(StepMail(action.job_id, action.attempt, action.node, encode(action.mail)))

    def _put(self, action: PutLead | PutShare) -> None:
        try:
            if isinstance(action, PutLead):
                self._journal.put_lead(action.record)
            else:
                self._journal.put_share(action.record)
        except OSError as error:
            self._log.error(f"could not write the journal: {error.strerror or error}")
            if isinstance(action, PutShare) or action.record.ended_ms < 0:
                self._unwritten[action.key] = action
        else:
            self._unwritten.pop(action.key, None)

    def _put_wait(self, action: PutWait) -> None:
        try:
            self._journal.put_wait(action.record)
        except OSError as error:
            self._log.error(f"could not write the journal: {error.strerror or error}")

    def _drop(self, action: DropStep) -> None:
        self._unwritten.pop(action.key, None)
        try:
            self._journal.delete_step(action.key)
        except OSError as error:
            self._log.error(f"could not write the journal: {error.strerror or error}")

    def _spawn(self, action: SpawnShare) -> None:
        mine = (action.key.job_id, action.launch.step.job_id)
        if any(
            (key.step, key.cluster) == (action.key.step, action.key.cluster) and key.job_id in mine
            for key in self._unwritten
        ):
            self._feed(ShareFailed(action.key, "No space left on device"))
            return
        self.shares.spawn(action)

    def _attach(self, action: AttachClient) -> None:
        self.shares.links.say(
            action.key,
            f"attach {action.callback.host}:{action.callback.port} "
            f"{action.callback.secret.hex()} {action.index} {action.task} {int(action.stdin)}",
        )
