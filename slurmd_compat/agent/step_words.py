"""What an agent says and hears of steps: keys, journal records, inputs and actions."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gsched.model.step import Callback, Step, StepSpec
from gsched.wire.steps import (
    AttachStep,
    CreateStep,
    FromAgent,
    LaunchStep,
    Mail,
    TaskEnd,
    TellSteps,
)
from slurmd_compat.agent.words import Key

#: what is wrong with a share whose supervisor was killed
GONE = "the supervisor is gone"


class StepKey(NamedTuple):
    """A step's share on this node. `job_id` and `attempt` are of what the node holds itself (of a
    heterogeneous job its own component); `step` is the number in the leading job."""

    job_id: int
    attempt: int
    cluster: str
    step: int

    @property
    def job(self) -> Key:
        return Key(self.job_id, self.attempt, self.cluster)


class Source(NamedTuple):
    """Whom an answer goes to: "local" (a connection to the node's socket), "call" (through the
    controller), "node" (another node of the job, which passed it on)."""

    kind: str
    token: int
    node: str = ""
    job_id: int = 0
    attempt: int = 0


class LeadRecord(msgspec.Struct, array_like=True, gc=False):
    """What the journal of the leading node keeps of a step. New fields at the end, with defaults.

    Written before anything is launched, when something decides its end, when it has ended, and
    once more, small, when both controller and client know of the end.
    """

    key: StepKey
    step: Step
    spec: StepSpec
    callback: Callback
    #: "" once it has ended
    environment: bytes = b""
    task_cpus: list[list[str]] = []
    task_gpus: list[list[int]] = []
    #: monotonic ms of this boot
    started_ms: int = 0
    ended_ms: int = -1
    #: why it is being ended; "" it is not
    stop: str = ""
    stop_signal: int = 0
    #: places of the shares that are over
    over: list[int] = []
    #: how the tasks of those ended, and of which ends the client was told
    ends: list[TaskEnd] = []
    said: list[int] = []
    #: what the client exits with
    exit_code: int = 0
    #: controller and client know: only the number counts
    told: bool = False
    #: its client's connection is the job's (srun, salloc outside of a job)
    of_job: bool = False
    request_id: bytes = b""


class WaitRecord(msgspec.Struct, array_like=True, gc=False):
    """What the journal of the leading node keeps of a request that waits for room. Its number
    (below FIRST_WAIT) is no step's."""

    key: StepKey
    spec: StepSpec
    callback: Callback
    environment: bytes = b""
    request_id: bytes = b""
    #: its client's connection is the job's (srun outside of a job)
    of_job: bool = False


#: numbers of requests that wait go down from here
FIRST_WAIT = -1000


class ShareRecord(msgspec.Struct, array_like=True, gc=False):
    """What the journal of another node than the leading one keeps of its share."""

    key: StepKey
    boot_id: str
    leader: str
    launch: LaunchStep
    #: mail is sent under these
    lead_job: int = 0
    lead_attempt: int = 0


# ---- inputs --------------------------------------------------------------------------------------


class Ask(msgspec.Struct):
    """A client's request, from somebody whom the kernel or the controller vouches for."""

    source: Source
    uid: int
    gid: int
    message: CreateStep | AttachStep | TellSteps


class MailIn(msgspec.Struct):
    """StepMail that the controller passed on; `node` sent it."""

    node: str
    job_id: int
    attempt: int
    mail: Mail


class ClientSaid(msgspec.Struct):
    client: int
    letter: str
    data: bytes = b""


class ClientLost(msgspec.Struct):
    """It could not be reached, or (`met`) its connection has ended."""

    client: int
    met: bool = True


class TaskStarted(msgspec.Struct):
    key: StepKey
    task: int


class TaskEnded(msgspec.Struct):
    key: StepKey
    end: TaskEnd


class ShareFailed(msgspec.Struct):
    """It could not be launched: nothing of the user's ran, nothing is left."""

    key: StepKey
    error: str


class ShareReleased(msgspec.Struct):
    """No process of it is left here. `lost`: its supervisor was gone without a word about it."""

    key: StepKey
    lost: bool = False


class ShareAbsent(msgspec.Struct):
    """Answer to AdoptShare: no supervisor was ever begun for it."""

    key: StepKey


StepInput = (
    Ask
    | MailIn
    | ClientSaid
    | ClientLost
    | TaskStarted
    | TaskEnded
    | ShareFailed
    | ShareReleased
    | ShareAbsent
)

# ---- actions -------------------------------------------------------------------------------------


class Answer(msgspec.Struct):
    source: Source
    message: FromAgent


class SendMail(msgspec.Struct):
    """To another node of the job, through the controller; may be lost."""

    job_id: int
    attempt: int
    node: str
    mail: Mail


class CallClient(msgspec.Struct):
    """Open the control connection. What is told to a client before it stands is kept for it;
    answered by ClientLost when it cannot be reached (`patience_ms`: tried for so long)."""

    client: int
    callback: Callback
    patience_ms: int = 5_000


class TellClient(msgspec.Struct):
    client: int
    letter: str
    data: bytes = b""


class HangUp(msgspec.Struct):
    """Close the connection once all that was told is written."""

    client: int


class PutLead(msgspec.Struct):
    """As JournalPut: with the kernel before any later action is carried out. Where it fails the
    launches that follow are not carried out: ShareFailed for each."""

    key: StepKey
    record: LeadRecord


class PutShare(msgspec.Struct):
    key: StepKey
    record: ShareRecord


class PutWait(msgspec.Struct):
    """As JournalPut; where it fails the request does not survive the daemon."""

    key: StepKey
    record: WaitRecord


class DropStep(msgspec.Struct):
    """Forget the journal's record of a step, share or waiting request."""

    key: StepKey


class SpawnShare(msgspec.Struct):
    """Answered by TaskStarted, TaskEnded, ShareReleased; or by ShareFailed."""

    key: StepKey
    launch: LaunchStep


class AdoptShare(msgspec.Struct):
    """After a restart of the daemon: answered by all that has happened so far, or ShareAbsent."""

    key: StepKey
    launch: LaunchStep


class SignalShare(msgspec.Struct):
    key: StepKey
    signum: int


class KillShare(msgspec.Struct):
    """TERM, KillWait, KILL; with `at_once` KILL. `cause` chooses the line in the tasks' error."""

    key: StepKey
    cause: str
    at_once: bool = False


class CleanShare(msgspec.Struct):
    """Remove the directory and what was granted: nothing of it runs any more."""

    key: StepKey


class AttachClient(msgspec.Struct):
    """Let the share's supervisor serve one more client's data connection."""

    key: StepKey
    callback: Callback
    index: int
    task: int
    stdin: bool


StepAction = (
    Answer
    | SendMail
    | CallClient
    | TellClient
    | HangUp
    | PutLead
    | PutShare
    | PutWait
    | DropStep
    | SpawnShare
    | AdoptShare
    | SignalShare
    | KillShare
    | CleanShare
    | AttachClient
)
