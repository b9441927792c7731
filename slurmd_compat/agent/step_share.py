"""A node's shares of steps: launched when the leading node says so, told of until it knows the end.

The leading node treats its own share in the same way, without mail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gsched.model.step import Step
from gsched.wire.steps import FollowStep, LaunchStep, Mail, StepShare, TaskEnd
from slurmd_compat.agent.step_follow import token
from slurmd_compat.agent.step_words import (
    GONE,
    AdoptShare,
    AttachClient,
    CleanShare,
    DropStep,
    KillShare,
    PutShare,
    SendMail,
    ShareAbsent,
    ShareFailed,
    ShareRecord,
    ShareReleased,
    SignalShare,
    SpawnShare,
    StepAction,
    StepKey,
    TaskEnded,
    TaskStarted,
)
from slurmd_compat.agent.words import Key

#: ms for which news of tasks are gathered into one word to the leading node
GATHER_MS = 10
#: ms between words about an end that the leading node has not confirmed: the first, and the most
RETELL_MS = 1_000
RETELL_MAX_MS = 15_000


class Listener(Protocol):
    """The leading side, where it is this node itself."""

    def task_started(self, lead: StepKey, index: int, task: int, now: int) -> None: ...
    def task_ended(self, lead: StepKey, index: int, end: TaskEnd, now: int) -> None: ...
    def share_over(self, lead: StepKey, index: int, error: str, now: int) -> None: ...


#: clients that have joined a share and are remembered
MOST_FOLLOWED = 63


class Share:
    """One step's tasks on this node. `leader` is "" where this node leads it."""

    __slots__ = (
        *("ends", "error", "followed", "index", "key", "kill", "launch", "lead", "leader", "over"),
        *("started", "tell_at", "wait"),
    )

    def __init__(self, key: StepKey, launch: LaunchStep, leader: str, lead: StepKey) -> None:
        self.key = key
        self.launch = launch
        self.index = launch.index
        self.leader = leader
        #: the step's key where it is led; mail is sent under its job and attempt
        self.lead = lead
        self.started: list[int] = []
        self.ends: dict[int, TaskEnd] = {}
        #: nothing of it is left here
        self.over = False
        self.error = ""
        #: clients that have joined, by their tokens; the last ones
        self.followed: list[bytes] = []
        #: cause of the kill, once one was ordered
        self.kill = ""
        #: when the leading node is told (again); -1: nothing to tell
        self.tell_at = -1
        self.wait = RETELL_MS

    @property
    def step(self) -> Step:
        return self.launch.step

    def word(self) -> StepShare:
        """All that is known of it."""
        return StepShare(
            self.step.id,
            self.index,
            self.started,
            list(self.ends.values()),
            self.over,
            self.error,
            self.followed,
        )


class Shares:
    """All shares on this node. `emit` takes actions in order; `idle(job)` is called when the last
    share of an attempt has gone."""

    def __init__(
        self,
        boot_id: str,
        emit: Callable[[StepAction], None],
        listener: Listener,
        idle: Callable[[Key, int], None],
    ) -> None:
        self.boot_id = boot_id
        self._emit = emit
        self._listener = listener
        self._idle = idle
        self.held: dict[StepKey, Share] = {}
        #: shares of others' steps that this node will not hear of again: no second launch
        self._past: dict[StepKey, None] = {}

    def living(self, job: Key) -> bool:
        """Whether something of the attempt's steps is on this node."""
        return any(key.job == job and not share.over for key, share in self.held.items())

    # -- words of the leading side

    def launch(
        self, key: StepKey, launch: LaunchStep, leader: str, lead: StepKey, now: int
    ) -> None:
        """Starts it, or says again where it stands."""
        share = self.held.get(key)
        if share is None:
            if key in self._past:
                return
            share = Share(key, launch, leader, lead)
            self.held[key] = share
            if leader:
                record = ShareRecord(key, self.boot_id, leader, launch, lead.job_id, lead.attempt)
                self._emit(PutShare(key, record))
            self._emit(SpawnShare(key, launch))
        if leader:
            share.tell_at = now

    def refuse(
        self, key: StepKey, launch: LaunchStep, leader: str, lead: StepKey, error: str, now: int
    ) -> None:
        """It cannot run here: only that is told."""
        share = self.held.get(key)
        if share is None:
            share = Share(key, launch, leader, lead)
            share.over = True
            share.error = error
            self.held[key] = share
        share.tell_at = now

    def stop(self, key: StepKey, signum: int, cause: str, now: int) -> None:
        """`cause` "": a plain signal; else its end, at once where `signum` is KILL."""
        share = self.held.get(key)
        if share is None:
            return
        if not share.over:
            if not cause:
                self._emit(SignalShare(key, signum))
            else:
                share.kill = share.kill or cause
                self._emit(KillShare(key, share.kill, signum == 9))
        if share.leader:
            share.tell_at = now

    def follow(self, key: StepKey, word: FollowStep, now: int) -> None:
        """One more client for its tasks' streams; the leading side repeats it until it is told."""
        share = self.held.get(key)
        if share is None or share.index != word.index:
            return
        client = token(word.callback)
        if not share.over and client not in share.followed:
            self._emit(AttachClient(key, word.callback, word.index, word.task, word.stdin))
            share.followed = [*share.followed[-MOST_FOLLOWED:], client]
        share.tell_at = now

    def known(self, key: StepKey) -> None:
        """The leading side has the end in its journal."""
        share = self.held.get(key)
        if share is None or not share.over:
            return
        self._forget(share)

    def _forget(self, share: Share) -> None:
        del self.held[share.key]
        self._emit(CleanShare(share.key))
        if share.leader:
            self._past[share.key] = None
            while len(self._past) > 1000:
                del self._past[next(iter(self._past))]
            self._emit(DropStep(share.key))

    # -- the attempt

    def of_step(self, lead: StepKey) -> list[Share]:
        """What this node holds of a step, by its key where it is led."""
        return [share for share in self.held.values() if share.lead == lead]

    def kill_job(self, job: Key, cause: str) -> None:
        """Ends all of an attempt's shares here."""
        for key, share in self.held.items():
            if key.job == job and not share.over:
                share.kill = share.kill or cause or "cancelled"
                self._emit(KillShare(key, share.kill))

    def signal_job(self, job: Key, signum: int) -> None:
        for key, share in self.held.items():
            if key.job == job and not share.over:
                self._emit(SignalShare(key, signum))

    def forget_job(self, job: Key) -> None:
        """The attempt is released and forgotten: nobody waits for a word about its shares."""
        for share in [s for k, s in self.held.items() if k.job == job]:
            self._forget(share)
        for key in [k for k in self._past if k.job == job]:
            del self._past[key]

    # -- events of supervisors

    def event(
        self,
        item: TaskStarted | TaskEnded | ShareFailed | ShareReleased | ShareAbsent,
        now: int,
    ) -> None:
        share = self.held.get(item.key)
        if share is None or share.over:
            return
        if isinstance(item, TaskStarted):
            if item.task in share.started:
                return
            share.started.append(item.task)
            if not share.leader:
                self._listener.task_started(share.lead, share.index, item.task, now)
        elif isinstance(item, TaskEnded):
            if item.end.task in share.ends:
                return
            share.ends[item.end.task] = item.end
            if not share.leader:
                self._listener.task_ended(share.lead, share.index, item.end, now)
        elif isinstance(item, ShareAbsent):
            if share.kill:
                self._over(share, "", now)
            else:
                self._emit(SpawnShare(share.key, share.launch))
            return
        elif isinstance(item, ShareFailed):
            self._over(share, item.error or "could not be launched", now)
            return
        else:
            self._over(share, GONE if item.lost else "", now)
            return
        if share.leader and (share.tell_at < 0 or share.tell_at > now + GATHER_MS):
            share.tell_at = now + GATHER_MS

    def _over(self, share: Share, error: str, now: int) -> None:
        share.over = True
        share.error = error
        if share.leader:
            share.tell_at = now
        else:
            self._listener.share_over(share.lead, share.index, error, now)
        if not self.living(share.key.job):
            self._idle(share.key.job, now)

    # -- time and restarts

    def wake_at(self) -> int:
        """Monotonic ms; -1: nothing is due."""
        return min((s.tell_at for s in self.held.values() if s.tell_at >= 0), default=-1)

    def tick(self, now: int) -> None:
        for share in self.held.values():
            if 0 <= share.tell_at <= now:
                share.tell_at = -1
                if share.over:
                    share.tell_at = now + share.wait
                    share.wait = min(2 * share.wait, RETELL_MAX_MS)
                self._mail(share, share.word())

    def _mail(self, share: Share, mail: Mail) -> None:
        self._emit(SendMail(share.lead.job_id, share.lead.attempt, share.leader, mail))

    def restore(self, record: ShareRecord, now: int) -> None:
        """After a restart of the daemon."""
        lead = StepKey(
            record.lead_job, record.lead_attempt, record.key.cluster, record.launch.step.id
        )
        share = Share(record.key, record.launch, record.leader, lead)
        self.held[record.key] = share
        if record.boot_id != self.boot_id:
            share.over = True
            share.error = "the node was rebooted"
            share.tell_at = now
        else:
            self._emit(AdoptShare(share.key, share.launch))

    def adopt_own(self, key: StepKey, launch: LaunchStep, lead: StepKey) -> None:
        """The leading side's own share, after a restart."""
        self.held[key] = Share(key, launch, "", lead)
        self._emit(AdoptShare(key, launch))
