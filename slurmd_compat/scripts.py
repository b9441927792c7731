"""The supervisors of batch scripts: spawned, followed, adopted; what they say, for the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsched.config import Config
from gsched.model.step import BATCH_STEP
from slurmd_compat.agent import (
    Absent,
    AdoptStep,
    CleanUp,
    Ended,
    Failed,
    Input,
    Key,
    KillStep,
    Lost,
    NotifyStep,
    Record,
    Released,
    SetStepLimit,
    SignalStep,
    SpawnStep,
    Started,
    Unkillable,
)
from slurmd_compat.failure import LaunchError
from slurmd_compat.grants import Grants
from slurmd_compat.launcher import Launcher, kill_strays, kill_word
from slurmd_compat.links import ADOPT_TRIES, Link, Links, link_to_none
from slurmd_compat.vigil import Vigil


class Scripts:
    """All that run on this node. `feed` takes inputs for the agent, `find` an attempt's record,
    `linger(True)` asks to wait a moment for what follows an end."""

    def __init__(
        self,
        config: Config,
        node: str,
        launcher: Launcher,
        grants: Grants,
        watch: Callable[[int, Callable[[int], None]], None],
        unwatch: Callable[[int], None],
        feed: Callable[[Input], None],
        find: Callable[[Key], Record | None],
        linger: Callable[[bool], None],
        clock: Callable[[], int],
        log: Any,
    ) -> None:
        self.config = config
        self.node = node
        self.launcher = launcher
        self.grants = grants
        self.links = Links(watch, unwatch, self._tell, self._gone, log)
        self._feed = feed
        self._find = find
        self._linger = linger
        self._log = log
        grace_s = config.kill_wait + config.unkillable_step_timeout
        self.vigil = Vigil(self.links, grace_s, clock, self._adopt, self._stuck)

    # -- actions

    def spawn(self, action: SpawnStep) -> None:
        try:
            link = self.launcher.spawn(action.record)
        except LaunchError as error:
            self._feed(Failed(action.key, str(error)))
            return
        self.links.follow(link)

    def adopt(self, action: AdoptStep) -> None:
        self.grants.restore(action.key, action.record.launch)
        self._adopt(action.key, ADOPT_TRIES)

    def kill(self, action: KillStep) -> None:
        self.links.say(action.key, f"kill {kill_word(action.cause)}")
        self.vigil.must_end(action.key)

    def signal(self, action: SignalStep) -> None:
        if action.target == "steps":
            return  # what the script started by itself is no step
        target = "batch" if action.target == "batch" else "all"
        self.links.say(action.key, f"signal {action.signum} {target}")

    def notify(self, action: NotifyStep) -> None:
        self.links.say(action.key, f"notify {action.text}")

    def set_limit(self, action: SetStepLimit) -> None:
        self.links.say(action.key, f"limit {action.limit_s}")

    def clean_up(self, action: CleanUp) -> None:
        self.links.drop(action.key)
        self.vigil.forget(action.key)

    def _stuck(self, link: Link) -> None:
        """Its processes are left long after they had to end."""
        pid = link.status.pid
        evidence = self.grants.evidence(link.key, BATCH_STEP, [pid] if pid else [])
        self._feed(Unkillable(link.key, evidence))

    # -- what they say

    def _tell(self, link: Link) -> None:
        """Turns what is new in a supervisor's record into inputs."""
        status, key = link.status, link.key
        if status.pid and not link.told_started:
            link.told_started = True
            self._feed(Started(key))
        setup = status.failed[1] if status.failed and status.failed[1].startswith("setup") else ""
        if status.wstatus is not None and not link.told_ended and (not setup or status.released):
            link.told_ended = True
            if setup:
                self._feed(Failed(key, setup.partition(": ")[2]))
            else:
                cause = "" if status.cause == "none" else status.cause
                if not cause and self.grants.out_of_memory(key):
                    cause = "oom"
                self._feed(
                    Ended(
                        key,
                        status.wstatus,
                        cause,
                        status.elapsed_ms,
                        status.user_us // 1000,
                        status.system_us // 1000,
                        status.max_rss_kb,
                    )
                )
                self._linger(True)
        if status.wstatus is not None and not status.released:
            self.vigil.must_end(key)
        if status.released:
            self._linger(False)
            self._feed(Released(key))

    def _gone(self, link: Link) -> None:
        """The link ended without `released`: another supervisor had begun, or this one died."""
        if link.pid and self.launcher.left(link.key) is None:
            self._feed(Failed(link.key, "the supervisor could not be started"))
        else:
            self._adopt(link.key, ADOPT_TRIES)

    def _adopt(self, key: Key, tries: int) -> None:
        """Finds the supervisor of an attempt, or what it left."""
        record = self._find(key)
        if record is None:
            return
        link = self.launcher.adopt(key)
        if link is not None:
            self.links.follow(link)
            if record.launch.limit_s:
                self.links.say(key, f"limit {record.launch.limit_s}")
            if record.kill:
                self.kill(KillStep(key, record.kill))
            return
        left = self.launcher.left(key)
        if left is None:
            self._feed(Absent(key))
            return
        if self.vigil.awaits(key, left, tries):
            return
        self._tell(link_to_none(key, left))
        if not left.released:
            self._lost(record)

    def _lost(self, record: Record) -> None:
        killed = self.grants.kill(record.key, record.launch) + kill_strays(
            record.job_id, self.node, self.config.path
        )
        self._log.error(
            f"{record.title}: its supervisor is gone"
            + (f"; {killed} processes were killed" if killed else "")
        )
        self._feed(Lost(record.key))
