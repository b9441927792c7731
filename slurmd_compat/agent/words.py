"""What an agent speaks of: attempts and their records, inputs and actions."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gsched.model import Phase
from gsched.model.step import BATCH_STEP
from gsched.wire.nodes import AttemptReport, LaunchSpec, Orders, Reregister, StepsKept, Welcome


class Key(NamedTuple):
    """An attempt. The cluster is part of it: two clusters may count the same numbers."""

    job_id: int
    attempt: int
    cluster: str


class Record(msgspec.Struct, array_like=True, gc=False):
    """What the journal keeps of an attempt. New fields at the end, with defaults."""

    job_id: int
    attempt: int
    cluster: str
    boot_id: str
    #: script and environment are not kept here: they lie in the job's directory
    launch: LaunchSpec
    phase: Phase = Phase.PREPARING
    go: bool = False
    #: cause of the kill order; "" none
    kill: str = ""
    #: monotonic ms of this boot at which the script started (elsewhere: go); -1 not yet
    started_ms: int = -1
    wstatus: int = -1
    cause: str = ""
    error: str = ""
    elapsed_ms: int = 0
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0
    #: its resources are its own: prolog and start may have happened
    begun: bool = False
    #: (wait status, cause) of an end that waits for the end of the steps
    ending: tuple[int, str] | None = None
    #: what is wrong with this node, as the attempt has shown: the reason for a drain
    fault: str = ""
    #: it makes way: monotonic ms of this boot at which it is ended; -1 it does not
    way_ms: int = -1
    #: monotonic ms of this boot at which it said last that its work is saved; -1 never
    saved_ms: int = -1
    #: it stands still: others may have its GPUs, and no step starts
    paused: bool = False

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.attempt, self.cluster)

    @property
    def title(self) -> str:
        """What the log calls it."""
        return f"job {self.job_id} attempt {self.attempt}"

    def report(self, now: int) -> AttemptReport:
        """What the controller is told of it at monotonic ms `now`."""
        return AttemptReport(
            job_id=self.job_id,
            attempt=self.attempt,
            phase=self.phase,
            age_ms=max(0, now - self.started_ms) if self.started_ms >= 0 else 0,
            wstatus=self.wstatus,
            cause=self.cause,
            elapsed_ms=self.elapsed_ms,
            user_ms=self.user_ms,
            system_ms=self.system_ms,
            max_rss_kb=self.max_rss_kb,
            error=self.error,
            fault=self.fault,
            checkpoint_ms=max(0, now - self.saved_ms) if self.saved_ms >= 0 else -1,
        )


class Identity(msgspec.Struct, array_like=True):
    """What the journal keeps of the clusters: the last one worked for, and their highest epochs."""

    cluster: str = ""
    epochs: dict[str, int] = {}


# ---- inputs (besides Welcome, Reregister and Orders) ------------------------------------------


class Tick(msgspec.Struct):
    """Time passed."""


class Linked(msgspec.Struct):
    """There is a link to the controller, again or for the first time: whoever is at its end may
    not know this node."""


class Started(msgspec.Struct):
    key: Key


class Ended(msgspec.Struct):
    """The script ended. `cause`: "" by itself, else "timeout", "oom", "killed", "node"."""

    key: Key
    wstatus: int
    cause: str = ""
    elapsed_ms: int = 0
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0


class Released(msgspec.Struct):
    """No process of the step is left."""

    key: Key


class Failed(msgspec.Struct):
    """The step could not be launched: nothing of the user's ran, nothing is left."""

    key: Key
    error: str

    @property
    def no_record(self) -> bool:
        """Its supervisor could not write its record: the disk is at fault, and no job."""
        return "could not write the step's record" in self.error


class Lost(msgspec.Struct):
    """The supervisor is gone without a word about the end; its processes were killed."""

    key: Key


class Absent(msgspec.Struct):
    """Answer to AdoptStep: no supervisor was ever begun for this attempt."""

    key: Key


class HookDone(msgspec.Struct):
    key: Key
    which: str
    #: "" it went well
    error: str = ""


class Marked(msgspec.Struct):
    """The job has said by a file that its work is saved: "saved" (it need not run on if it has to
    make way) or "checkpoint"."""

    key: Key
    what: str


class Unkillable(msgspec.Struct):
    """Processes of the attempt have been left for too long after SIGKILL; `evidence`: which."""

    key: Key
    evidence: str
    #: whose
    step: int = BATCH_STEP


class JournalFailed(msgspec.Struct):
    """The job's directory or a record that must come before a start could not be written (a full
    disk); what came after it for this attempt was not carried out."""

    key: Key
    error: str


Input = (
    Welcome
    | Reregister
    | Orders
    | StepsKept
    | Tick
    | Linked
    | Started
    | Ended
    | Released
    | Failed
    | Lost
    | Absent
    | HookDone
    | Unkillable
    | JournalFailed
    | Marked
)

# ---- actions ------------------------------------------------------------------------------------


class WriteJob(msgspec.Struct):
    """Make the job's directory with script and environment. Fails with JournalFailed."""

    key: Key
    launch: LaunchSpec


class JournalPut(msgspec.Struct):
    """Must be with the kernel before any later action is carried out. Where it fails: if the
    attempt has no record yet, or a SpawnStep follows, JournalFailed; else the older record will do.
    """

    key: Key
    record: Record


class JournalDel(msgspec.Struct):
    key: Key


class PutIdentity(msgspec.Struct):
    identity: Identity


class RunHook(msgspec.Struct):
    """ "prolog" or "epilog"; answered by HookDone. The prolog also fetches a login environment
    where the job asked for one. "unkillable": what the site has for a `step` that does not end."""

    key: Key
    which: str
    record: Record
    step: int = BATCH_STEP


class SpawnStep(msgspec.Struct):
    """Answered by Started, Ended, Released; or by Failed."""

    key: Key
    record: Record


class AdoptStep(msgspec.Struct):
    """After a restart of the daemon: answered by what has happened so far, by Absent or Lost."""

    key: Key
    record: Record


class KillStep(msgspec.Struct):
    key: Key
    cause: str


class SignalStep(msgspec.Struct):
    key: Key
    signum: int
    target: str


class WriteNotice(msgspec.Struct):
    """The job has so many seconds left, then makes way; carried out before any later action."""

    key: Key
    record: Record
    seconds: int
    mode: str
    kind: str


class DropNotice(msgspec.Struct):
    """It need not make way any more."""

    key: Key


class NotifyStep(msgspec.Struct):
    """A line for the step's error file."""

    key: Key
    text: str


class SetStepLimit(msgspec.Struct):
    key: Key
    limit_s: int


class CleanUp(msgspec.Struct):
    """Remove cgroup, GPU claims and the job's directory: nothing of it runs any more."""

    key: Key
    record: Record


class SendRegister(msgspec.Struct):
    """Send `agent.register_message(...)`."""


class SendReport(msgspec.Struct):
    """Send `agent.report_message(...)` at the end of this turn: many in one turn are one."""


class Log(msgspec.Struct):
    level: str
    text: str


Action = (
    WriteJob
    | JournalPut
    | JournalDel
    | PutIdentity
    | RunHook
    | SpawnStep
    | AdoptStep
    | KillStep
    | SignalStep
    | NotifyStep
    | WriteNotice
    | DropNotice
    | SetStepLimit
    | CleanUp
    | SendRegister
    | SendReport
    | Log
)
