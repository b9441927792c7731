"""The supervisors of steps on this node: spawned, followed, adopted after a restart.

Each lies in step.N below the job's directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gsched.config import Config
from gsched.wire.steps import LaunchStep, TaskEnd
from slurmd_compat import notices, tasks
from slurmd_compat.agent import Key, Record, Unkillable
from slurmd_compat.agent.step_text import NO_IO
from slurmd_compat.agent.step_words import (
    AdoptShare,
    CleanShare,
    KillShare,
    ShareAbsent,
    ShareFailed,
    ShareReleased,
    SignalShare,
    SpawnShare,
    StepInput,
    StepKey,
    TaskEnded,
    TaskStarted,
)
from slurmd_compat.failure import LaunchError
from slurmd_compat.grants import Grants
from slurmd_compat.launcher import Launcher, join, kill_strays, kill_word, start
from slurmd_compat.links import ADOPT_TRIES, Link, Links, link_to_none
from slurmd_compat.removal import remove_later
from slurmd_compat.step_socket import Loop
from slurmd_compat.stepd import encode_spec, read_status
from slurmd_compat.vigil import Vigil


class ShareSupervisors:
    """All of them. `feed` takes inputs for the agent, `find` the record of an attempt here."""

    def __init__(
        self,
        config: Config,
        node: str,
        launcher: Launcher,
        grants: Grants,
        loop: Loop,
        feed: Callable[[StepInput | Unkillable], None],
        find: Callable[[Key], Record | None],
        clock: Callable[[], int],
        log: Any,
    ) -> None:
        self._config = config
        self._node = node
        self._launcher = launcher
        self._grants = grants
        self.links = Links(loop.watch, loop.unwatch, self._tell, self._gone, log)
        self._feed: Callable[[StepInput | Unkillable], None] = feed
        self._find = find
        self._log = log
        self._launches: dict[StepKey, LaunchStep] = {}
        self._kills: dict[StepKey, str] = {}
        grace_s = config.kill_wait + config.unkillable_step_timeout
        self.vigil = Vigil(self.links, grace_s, clock, self._adopt, self._stuck)

    def directory(self, key: StepKey) -> Path:
        """Its directory; step.batch and the like do not occur."""
        return self._launcher.directory(key.job) / f"step.{key.step}"

    # -- actions

    def spawn(self, action: SpawnShare) -> None:
        key = action.key
        try:
            link = self._start(key, action.launch)
        except (LaunchError, OSError, ValueError) as error:
            self._remove(key)
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._feed(ShareFailed(key, text))
            return
        except Exception as error:
            # What a step says must not end the daemon of all.
            self._log.error(f"step {key.job_id}.{key.step} could not be launched: {error!r}")
            self._remove(key)
            self._feed(ShareFailed(key, "Invalid argument"))
            return
        self._launches[key] = action.launch
        self.links.follow(link)

    def _start(self, key: StepKey, launch: LaunchStep) -> Link:
        record = self._find(key.job)
        if record is None:
            raise LaunchError("the job is not here")
        job = record.launch.job
        root = self._launcher.root
        if not root and job.uid not in (0, os.geteuid()):
            raise LaunchError(
                f"{self._node} runs jobs only for uid {os.geteuid()}, not for uid {job.uid}"
            )
        directory = self.directory(key)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory.parent, 0o711)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o711)
        notices.make_marks(directory.parent, job.uid, job.gid, root=root)
        share = launch.step.nodes[launch.index]
        grant = self._grants.grant_step(key.job, record.launch, share, key.step)
        items = tasks.step_order(
            launch,
            job,
            self._config,
            self._node,
            grant,
            owner=(job.uid, job.gid) if root else (os.geteuid(), os.getegid()),
            groups=self._launcher.group_list(job.uid, job.gid) if root else "",
            rlimits=self._launcher.rlimits(launch.spec.rlimits, share.alloc.mem_mb),
            private=lambda: _private(directory, job.uid if root else -1, job.gid if root else -1),
        )
        return start(self._launcher.stepd, key, directory, encode_spec(items))

    def adopt(self, action: AdoptShare) -> None:
        self._launches[action.key] = action.launch
        record = self._find(action.key.job)
        if record is not None:
            self._grants.restore(action.key.job, record.launch)
        self._adopt(action.key, ADOPT_TRIES)

    def kill(self, action: KillShare) -> None:
        word = "kill9" if action.at_once else "kill"
        cause = action.cause if action.cause == "task_failure" else kill_word(action.cause)
        self._kills[action.key] = f"{word} {cause}"
        self.links.say(action.key, self._kills[action.key])
        self.vigil.must_end(action.key)

    def signal(self, action: SignalShare) -> None:
        self.links.say(action.key, f"signal {action.signum} all")

    def clean(self, action: CleanShare) -> None:
        key = action.key
        self.links.drop(key)
        self._launches.pop(key, None)
        self._kills.pop(key, None)
        self.vigil.forget(key)
        self._remove(key)

    def _remove(self, key: StepKey) -> None:
        self._grants.release_step(key.job, key.step)
        remove_later(self.directory(key), self._launcher.spool)

    def _stuck(self, link: Link) -> None:
        """Its processes are left long after they had to end."""
        key = link.key
        pids = [task.pid for task in link.status.tasks.values() if task.pid]
        evidence = self._grants.evidence(key.job, key.step, pids)
        self._feed(Unkillable(key.job, evidence, key.step))

    # -- what may be asked

    def launched(self, job: Key) -> list[tuple[StepKey, LaunchStep]]:
        """The shares of an attempt here."""
        return [(key, launch) for key, launch in self._launches.items() if key.job == job]

    def pids(self, key: StepKey) -> dict[int, int]:
        """The processes of the tasks that run here: task -> pid."""
        link = self.links.held.get(key)
        if link is None:
            return {}
        found = link.status.tasks.items()
        return {number: task.pid for number, task in found if task.wstatus is None and task.pid}

    # -- what they say

    def _tell(self, link: Link) -> None:
        status, key = link.status, link.key
        changed, link.changed = link.changed, []
        setup = _setup(status.failed)
        for number in changed:
            task = status.tasks[number]
            if task.wstatus is None:
                self._feed(TaskStarted(key, number))
            elif not setup:
                self._feed(
                    TaskEnded(
                        key,
                        TaskEnd(
                            number,
                            task.wstatus,
                            "" if task.cause == "none" else task.cause,
                            task.user_us // 1000,
                            task.system_us // 1000,
                            task.max_rss_kb,
                            task.elapsed_ms,
                        ),
                    )
                )
        if status.wstatus is not None and not status.released:
            self.vigil.must_end(key)
        if status.released:
            if setup:
                self._feed(ShareFailed(key, setup))
            else:
                self._feed(ShareReleased(key))
        elif link.told_started is False:
            link.told_started = True
            word = self._kills.get(key)
            if word is not None:
                # It was ordered before there was anybody to hear it.
                self.links.say(key, word)

    def _gone(self, link: Link) -> None:
        """The link ended without `released`: another supervisor had begun, or this one died."""
        if link.status.released:
            return
        if link.pid and read_status(self.directory(link.key)) is None:
            self._feed(ShareFailed(link.key, "the supervisor could not be started"))
        else:
            self._adopt(link.key, ADOPT_TRIES)

    def _adopt(self, key: StepKey, tries: int) -> None:
        if key not in self._launches:
            return
        directory = self.directory(key)
        link = join(key, directory)
        if link is not None:
            self.links.follow(link)
            if key in self._kills:
                self.links.say(key, self._kills[key])
            return
        left = read_status(directory)
        if left is None:
            self._feed(ShareAbsent(key))
            return
        if self.vigil.awaits(key, left, tries):
            return
        dead = link_to_none(key, left)
        dead.told_started = True
        for number, task in left.tasks.items():
            self._feed(TaskStarted(key, number))
            if task.wstatus is not None:
                dead.changed.append(number)
        self._tell(dead)
        if not left.released:
            self._lost(key, left.tasks)

    def _lost(self, key: StepKey, known: dict[int, Any]) -> None:
        """Its supervisor is gone: what it had started ends too."""
        launch = self._launches.get(key)
        record = self._find(key.job)
        for task in known.values():
            # Tasks are in the process group of the first, which may have ended before.
            if record is not None and task.wstatus is None and _is_of(task.pid, record):
                for kill in (os.killpg, os.kill):
                    with contextlib.suppress(OSError):
                        kill(task.pid, signal.SIGKILL)
        killed = self._grants.kill_step(key.job, key.step)
        if launch is not None:
            # Whoever has left the group, and children.
            killed += kill_strays(launch.step.job_id, self._node, self._config.path, launch.step.id)
        self._log.error(
            f"step {key.job_id}.{key.step}: its supervisor is gone"
            + (f"; {killed} processes were killed" if killed else "")
        )
        self._feed(ShareReleased(key, lost=True))


def _is_of(pid: int, record: Record) -> bool:
    """Whether a process is of the job's user still: a number may have been given anew."""
    uid = record.launch.job.uid if os.geteuid() == 0 else os.geteuid()
    try:
        return pid > 0 and os.stat(f"/proc/{pid}").st_uid == uid
    except OSError:
        return False


def _private(directory: Path, uid: int, gid: int) -> str:
    """A directory of the user's in the step's own, which goes with it. Raises OSError."""
    made = directory / "pmix"
    os.mkdir(made, 0o700)
    os.chown(made, uid, gid)
    return str(made)


def _setup(failed: tuple[int, str] | None) -> str:
    """Why nothing could be launched at all; "" something could."""
    if failed is None:
        return ""
    what, _, why = failed[1].partition(": ")
    if what in ("open", "io"):
        return NO_IO
    return (why or "could not be launched") if what == "setup" else ""
