"""Jobs that stand still on the node: told by SIGTSTP, stopped by SIGSTOP once their time is over,
and going on with SIGCONT. What starts in one meanwhile is stopped as soon as it runs."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model import Phase
from gsched.wire.nodes import Pause
from slurmd_compat.agent.attempt import SPAWNED, Attempt
from slurmd_compat.agent.deadlines import Deadlines
from slurmd_compat.agent.step_words import StepAction
from slurmd_compat.agent.words import Action, Key, SignalStep

#: as Linux numbers them on every machine that has GPUs
SIGCONT, SIGSTOP, SIGTSTP = 18, 19, 20
#: ms after a restart of the daemon within which supervisors are found again
FOUND_MS = 2000


class Standing(Deadlines):
    """Attempts that stand still, by when they are stopped."""

    def __init__(
        self,
        act: Callable[[Action | StepAction], None],
        put: Callable[[Attempt], None],
        signal_steps: Callable[[Key, int], None],
        retry_steps: Callable[[Key, int], None],
    ) -> None:
        """`act` takes actions, `put` journals an attempt, `signal_steps` sends its steps a signal,
        `retry_steps` looks at those that wait anew."""
        super().__init__()
        self._act = act
        self._put = put
        self._signal_steps = signal_steps
        self._retry_steps = retry_steps

    def restore(self, attempt: Attempt, now: int) -> None:
        """After a restart of the daemon: whether it was stopped in time is not known."""
        if attempt.record.paused and attempt.record.phase < Phase.ENDED:
            self._until[attempt.record.key] = now + FOUND_MS

    def order(self, attempt: Attempt, order: Pause, now: int) -> None:
        """It stands still, or goes on. What it does already it is told once more."""
        record = attempt.record
        if record.phase >= Phase.ENDED or record.kill:
            return
        stop = order.grace_s >= 0
        news = record.paused != stop
        record.paused = stop
        if news:
            self._put(attempt)
        if not stop:
            self.forget(record.key)
            self.signal(attempt, SIGCONT)
            self._retry_steps(record.key, now)
        elif news and order.grace_s:
            self._until[record.key] = now + 1000 * order.grace_s
            self.signal(attempt, SIGTSTP)
        elif record.key not in self._until:
            self.signal(attempt, SIGSTOP)

    def signal(self, attempt: Attempt, signum: int) -> None:
        """To all that runs of it here."""
        if attempt.record.phase != Phase.RUNNING or attempt.record.kill:
            return
        self._signal_steps(attempt.record.key, signum)
        if attempt.step == SPAWNED:
            self._act(SignalStep(attempt.record.key, signum, "all"))

    def began(self, attempt: Attempt) -> None:
        """Something of it has been started."""
        if attempt.record.paused and attempt.record.key not in self._until:
            self.signal(attempt, SIGSTOP)
