"""HealthCheckProgram: the site's script that looks after the node now and then, beside all jobs.

What it finds it deals with by itself (scontrol update nodename=... state=drain): its exit code is
only logged, as with Slurm.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gsched.config import Config
from slurmd_compat.hooks import Command

#: seconds after which a check is killed
TIMEOUT_S = 60


class HealthChecks:
    """When it runs on this node. `busy` counts the CPUs that jobs hold; `run` starts a command, of
    whose end `done` is told."""

    def __init__(
        self,
        config: Config,
        node: str,
        busy: Callable[[], int],
        run: Callable[[Command], None],
        log: Any,
    ) -> None:
        self._program = config.health_check_program
        self._interval = 1000 * config.health_check_interval if self._program else 0
        states = {word.upper() for word in config.health_check_node_state}
        self._cycle = "CYCLE" in states
        #: empty: in any state
        self._states = set() if "ANY" in states else states - {"CYCLE", "START_ONLY"}
        if "START_ONLY" in states:
            self._interval = 0
        self._cpus = config.nodes[node].cpus
        self._env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURMD_NODENAME": node,
            "SLURM_CLUSTER_NAME": config.cluster_name,
            "SLURM_CONF": config.path,
        }
        self._busy = busy
        self._run = run
        self._log = log
        self._running = False
        #: monotonic ms; 0: at once, None: never again
        self._at: int | None = 0 if self._program else None

    def deadline(self) -> int | None:
        """Monotonic ms of the next check."""
        return None if self._running else self._at

    def on_time(self, now: int) -> None:
        if self._running or self._at is None or now < self._at:
            return
        first = self._at == 0
        self._at = now + self._interval if self._interval else None
        if first and self._cycle and self._interval:
            # Not all nodes at the same time.
            self._at = now + random.randrange(self._interval)
        if first or not self._states or self._state() in self._states:
            self._running = True
            self._run(Command([self._program], self._env, TIMEOUT_S))

    def done(self, error: str, now: int) -> None:
        """A check is over."""
        self._running = False
        if error:
            self._log.error(error)

    def _state(self) -> str:
        busy = self._busy()
        return "IDLE" if not busy else "MIXED" if busy < self._cpus else "ALLOC"
