"""What a step's clients are told and say: lines, exit codes, signals, as srun takes them.

The rules for signals are those of srun itself (its manual page, and what it does).
"""

from __future__ import annotations

from collections.abc import Callable

from gsched.model.step import Callback
from gsched.rawtext import to_bytes
from slurmd_compat.agent.step_words import (
    CallClient,
    HangUp,
    LeadRecord,
    StepAction,
    TellClient,
)

#: ms within which a second interrupt ends the step
INTERRUPT_MS = 1_000
#: ms within which a client passes on what its tasks have got already (scancel --full)
ECHO_MS = 1_000

HUP, INT, QUIT, KILL, USR1, USR2, PIPE, ALRM, TERM = 1, 2, 3, 9, 10, 12, 13, 14, 15
CONT = 18


class Client:
    """A control connection, or one that is to be."""

    __slots__ = ("alive", "callback", "id", "main", "told")

    def __init__(self, number: int, callback: Callback, *, main: bool) -> None:
        self.id = number
        self.callback = callback
        #: the step's own srun, which it does not outlive
        self.main = main
        self.alive = True
        #: its exit code was sent
        self.told = False


class Spoken:
    """A step as its clients know it. What their words come to is for the leading side to do."""

    def __init__(self, record: LeadRecord, emit: Callable[[StepAction], None]) -> None:
        self.record = record
        self._emit = emit
        self.clients: list[Client] = []
        self._last_interrupt = -1
        #: signal that its tasks and its client have got together, and when
        self.reached = (0, 0)
        #: no more is said of tasks after a second interrupt
        self._mute = False

    @property
    def name(self) -> str:
        return f"StepId={self.record.step.job_id}.{self.record.step.id}"

    @property
    def over(self) -> bool:
        return self.record.ended_ms >= 0

    @property
    def stopping(self) -> bool:
        return bool(self.record.stop)

    # what the leading side does, and knows

    @property
    def user(self) -> int:
        """uid of the job's user."""
        raise NotImplementedError

    def stop(self, cause: str, signum: int, now: int) -> None:
        raise NotImplementedError

    def abort(self, cause: str, signum: int, now: int) -> None:
        raise NotImplementedError

    def signal(self, signum: int, now: int) -> None:
        raise NotImplementedError

    def say_abort(self) -> None:
        raise NotImplementedError

    def say_status(self) -> None:
        raise NotImplementedError

    def tidy(self) -> None:
        raise NotImplementedError

    # -- what they are told

    def say(self, text: str, *, info: bool = False) -> None:
        """A line on every client's standard error, as its program says it."""
        if info and self.record.spec.quiet:
            return
        line = to_bytes(f"{self.record.spec.program}: {text}\n")
        for client in self.clients:
            if client.alive:
                self._emit(TellClient(client.id, "e", line))

    def join(
        self, client: Client, *, call: bool, patience_ms: int = 5_000, nodes: int = -1
    ) -> None:
        """A client from now on; `call`: it is to be called first. `nodes`: so many connect to it;
        all, where it is not said."""
        self.clients.append(client)
        if call:
            self._emit(CallClient(client.id, client.callback, patience_ms))
        if self.over:
            self._exit(client)
        else:
            step = self.record.step
            counts = (len(step.nodes) if nodes < 0 else nodes, step.ntasks)
            data = b"".join(count.to_bytes(4, "big") for count in counts)
            self._emit(TellClient(client.id, "N", data))

    def _exit(self, client: Client) -> None:
        if client.alive and not client.told:
            client.told = True
            self._emit(TellClient(client.id, "X", bytes([self.record.exit_code])))
            self._emit(HangUp(client.id))

    def client_lost(self, client: Client, now: int) -> None:
        if not client.alive:
            return
        client.alive = False
        if client.main and not self.over:
            self._cancelled()
            self.stop("cancelled", KILL, now)
        if self.over:
            self.tidy()

    # -- what they say

    def said(self, client: Client, letter: str, data: bytes, now: int) -> None:
        """A word of a client of the step."""
        if self.over or not client.main:
            return
        if letter == "G" and data:
            self._signalled(data[0], now)
        elif letter == "B":
            self.signal(PIPE, now)
        elif letter == "A" and len(data) >= 4:
            # A task has called for the end of all: with what it said.
            text = data[4:].decode(errors="replace").strip()
            if text:
                self.say(f"error: {text}")
            # As with Slurm 22.05, where srun cancels the step: no failure of a task.
            self._cancelled()
            self.abort("cancelled", KILL, now)

    def _signalled(self, signum: int, now: int) -> None:
        if signum == INT:
            self._interrupted(now)
        elif signum in (TERM, HUP, QUIT):
            if signum == QUIT:
                self.say("Quit", info=True)
            self.force(now)
        elif signum == CONT:
            self.say("got SIGCONT", info=True)
        elif signum == PIPE:
            self.abort("cancelled", KILL, now)
        elif signum in (USR1, USR2):
            known, at = self.reached
            if signum != known or now - at > ECHO_MS:
                self.signal(signum, now)

    def _cancelled(self) -> None:
        """The client ends it: it is cancelled by the job's user (sacct: CANCELLED by UID)."""
        if not self.stopping and self.record.step.cancelled_by < 0:
            self.record.step.cancelled_by = self.user

    def force(self, now: int) -> None:
        """TERM, HUP, QUIT of the client, or its second interrupt."""
        self.say("forcing job termination", info=True)
        self.say_abort()
        self._cancelled()
        self.stop("cancelled", KILL, now)

    def _interrupted(self, now: int) -> None:
        spec = self.record.spec
        first = self._last_interrupt < 0 or now - self._last_interrupt > INTERRUPT_MS
        self._last_interrupt = now
        if first and not spec.quit_on_interrupt:
            if spec.disable_status:
                self.say(f"sending Ctrl-C to {self.name}", info=True)
                self.signal(INT, now)
                return
            word = "one more within 1 sec to abort"
            if self.stopping:
                word = "abort already in progress"
            self.say(f"interrupt ({word})", info=True)
            self.say_status()
            return
        if not self.stopping:
            self.say(f"sending Ctrl-C to {self.name}", info=True)
            self.signal(INT, now)
        self._mute = True
        self.force(now)
