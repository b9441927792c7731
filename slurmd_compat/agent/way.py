"""Jobs that make way for others, on the node: warned, given their time, and ended when it is over
or they say that their work is saved. The controller need not live for it."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model import Phase
from gsched.wire.nodes import Preempt
from slurmd_compat.agent.attempt import SPAWNED, Attempt
from slurmd_compat.agent.deadlines import Deadlines
from slurmd_compat.agent.step_words import StepAction
from slurmd_compat.agent.words import Action, DropNotice, Key, Marked, SignalStep, WriteNotice

#: as Linux numbers them on every machine that has GPUs
SIGTERM, SIGCONT = 15, 18
#: cause of the end
CAUSE = "preempted"
#: ms within which a second word about a saved state is not news
SOON_MS = 1000


class Ways(Deadlines):
    """Attempts that make way, by when their time is over."""

    def __init__(
        self,
        kill_wait_s: int,
        act: Callable[[Action | StepAction], None],
        put: Callable[[Attempt], None],
        kill: Callable[[Attempt, str, int], None],
        signal_steps: Callable[[Key, int], None],
    ) -> None:
        """`act` takes actions, `put` journals an attempt, `kill` ends one, `signal_steps` sends its
        steps a signal."""
        super().__init__()
        self._kill_wait_s = kill_wait_s
        self._act = act
        self._put = put
        self._kill = kill
        self._signal_steps = signal_steps

    def restore(self, attempt: Attempt) -> None:
        """After a restart of the daemon."""
        if attempt.record.way_ms >= 0 and attempt.record.phase < Phase.ENDED:
            self._until[attempt.record.key] = attempt.record.way_ms

    def order(self, attempt: Attempt, order: Preempt, now: int) -> None:
        """It has to make way, or need not any more. A second order to the same changes nothing."""
        record = attempt.record
        if record.phase >= Phase.ENDED or record.kill:
            return
        if order.grace_s < 0:
            if record.way_ms >= 0:
                record.way_ms = -1
                self.forget(record.key)
                self._put(attempt)
                self._act(DropNotice(record.key))
            return
        if record.way_ms >= 0:
            return
        record.way_ms = now + 1000 * order.grace_s
        self._put(attempt)
        seconds = order.grace_s or self._kill_wait_s
        self._act(WriteNotice(record.key, record, seconds, order.mode, order.kind))
        if not order.grace_s:
            self._kill(attempt, CAUSE, now)
            return
        self._until[record.key] = record.way_ms
        if record.phase != Phase.RUNNING:
            return
        if order.signum and order.batch:
            if attempt.step == SPAWNED:
                self._act(SignalStep(record.key, order.signum, "batch"))
        elif order.signum:
            self._signal_steps(record.key, order.signum)
        else:
            self._signal_steps(record.key, SIGCONT)
            self._signal_steps(record.key, SIGTERM)

    def marked(self, attempt: Attempt, item: Marked, now: int) -> bool:
        """Its work is saved; whether that is news."""
        record = attempt.record
        if record.phase != Phase.RUNNING or record.kill:
            return False
        ends = item.what == "saved" and record.way_ms >= 0
        if not ends and 0 <= record.saved_ms and now - record.saved_ms < SOON_MS:
            return False
        record.saved_ms = now
        self._put(attempt)
        if ends:
            self.forget(record.key)
            self._kill(attempt, CAUSE, now)
        return True
