"""Every message between processes: msgspec structs, packed as msgpack arrays with a tag.

New fields go at the end with a default: an old reader skips what it does not know. A union per
direction is decoded in one call (`decode`), which raises BadMessage for anything malformed.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gsched.model import (
    Gpu,
    Job,
    JobSpec,
    Node,
    NodeUse,
    PartitionChange,
    Phase,
    Reservation,
    Verdict,
)
from gsched.model.acct import AcctJob
from gsched.model.step import Step
from gsched.wire.changes import JobChanges, JobDelta
from gsched.wire.policy import ManagePolicy as ManagePolicy
from gsched.wire.policy import PolicyDone as PolicyDone
from gsched.wire.policy import PolicyOp as PolicyOp
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched.wire.report import ReportQuery, ReportRows

PROTOCOL = 1
#: largest frame anybody may send, bytes (a script of 4 MB and its environment fit)
MAX_FRAME = 16 << 20


class BadMessage(Exception):
    """A frame that cannot be understood; the text says why."""


class _Msg(msgspec.Struct, array_like=True, tag=True, gc=False):
    pass


# ---- node -> controller ------------------------------------------------------------------


class AttemptReport(msgspec.Struct, array_like=True, gc=False):
    """What a node holds of one attempt. Durations and ages, never dates."""

    job_id: int
    attempt: int
    phase: Phase
    #: ms since the script started (batch host) or since go
    age_ms: int = 0
    #: wait status of the script, valid from ENDED on, on the batch host; -1: it never ran
    wstatus: int = -1
    #: "", "timeout", "cancelled", "oom", "failed", "node" ...: why it ended if not by itself
    cause: str = ""
    elapsed_ms: int = 0
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0
    #: sentence when it could not be launched
    error: str = ""
    #: from the leading node: steps that began or ended since the controller kept them (StepsKept);
    #: their times are ages in ms, not dates: start_time since the start, end_time since the end
    steps: list[Step] = []
    #: what is wrong with the node, in the words of its drain reason: "Epilog error", "Kill task
    #: failed: ..."
    fault: str = ""
    #: ms since it said last that its work is saved; -1 never
    checkpoint_ms: int = -1


class Register(_Msg):
    """First message of a session; also a complete report."""

    protocol: int
    node: str
    #: uuid of the cluster that this node last worked for ("" none)
    cluster: str
    boot_id: str
    session: str
    #: highest epoch seen
    epoch: int
    version: str
    cpus: int
    mem_mb: int
    gpus: list[Gpu]
    attempts: list[AttemptReport]
    uptime_s: int = 0
    arch: str = ""
    os: str = ""
    tmp_disk_mb: int = 0
    #: Config.checksum and Config.gres_checksum of what the node has read; "" not told
    conf: str = ""
    gres_conf: str = ""


class Report(_Msg):
    """Everything the node holds, after the orders up to (epoch, seen). Also the heartbeat."""

    session: str
    epoch: int
    #: number of the last order carried out or refused
    seen: int
    attempts: list[AttemptReport]
    cpu_load: int = -1
    free_mem_mb: int = -1
    #: uuid -> sentence, for GPUs that are out of service ("" in service again)
    gpu_faults: dict[str, str] = {}


class StepMail(_Msg):
    """A word between two nodes of one job (wire.steps.Mail), carried by the controller: it looks
    that both are of the attempt and that one of them leads it, and puts in who sent it. May be
    lost: both sides repeat."""

    job_id: int
    attempt: int
    #: to the controller: for whom ("" the node that leads); to the node: whose it is
    node: str
    payload: bytes


class AgentAnswer(_Msg):
    """The answer to AgentCall."""

    token: int
    payload: bytes


class FetchConfig(_Msg):
    """A node without files of its own asks for them; answered by ConfigFiles."""

    node: str


# ---- controller -> node ------------------------------------------------------------------


class LaunchSpec(msgspec.Struct, array_like=True, gc=False):
    """All a node needs to run its share of an attempt."""

    job: Job
    #: this node's place in job.alloc
    node_index: int
    #: UUIDs for the bits in job.alloc[node_index].gpus, lowest bit first
    gpu_uuids: list[str]
    #: seconds left; 0 unlimited
    limit_s: int
    #: only for the batch host
    script: bytes = b""
    #: NUL-separated NAME=value
    environment: bytes = b""
    cluster_name: str = ""
    #: all components of a heterogeneous job, for its script's environment
    components: list[Job] = []

    @property
    def batch(self) -> bool:
        """Whether the script runs here: on the first node, of the first component."""
        return self.node_index == 0 and self.job.het_offset == 0


class Prepare(_Msg):
    """Journal it and make it ready; with `go` (single node) start it as well."""

    n: int
    launch: LaunchSpec
    go: bool


class Go(_Msg):
    n: int
    job_id: int
    attempt: int


class Kill(_Msg):
    """End it: SIGCONT+SIGTERM, KillWait, SIGKILL, epilog, released. Unknown attempt: no-op."""

    n: int
    job_id: int
    attempt: int
    cause: str
    #: the node of the job that was lost, where that is why
    lost: str = ""


class Signal(_Msg):
    n: int
    job_id: int
    attempt: int
    signum: int
    #: "batch": only the script's shell, "steps": all but it, "all"
    target: str
    #: only this step; None: by `target`. signum 0 ends it
    step: int | None = None


class Notify(_Msg):
    """A line for the error file of the batch script."""

    n: int
    job_id: int
    attempt: int
    text: str


class SetLimit(_Msg):
    n: int
    job_id: int
    attempt: int
    #: seconds from the start of the script; 0 none
    limit_s: int


class Preempt(_Msg):
    """It makes way for another job: the notice is written, it is warned, and ended when its time is
    over, or as soon as it says that its work is saved."""

    n: int
    job_id: int
    attempt: int
    #: seconds that it has left; -1: it need not make way any more
    grace_s: int
    #: instead of SIGCONT and SIGTERM to its steps; 0 none
    signum: int = 0
    #: `signum` is for the script's shell alone
    batch: bool = False
    #: what becomes of it: "requeue" or "cancel"; and why it may be preempted
    mode: str = ""
    kind: str = ""


class Pause(_Msg):
    """All processes stand still: told by SIGTSTP, and stopped once its time is over; what it holds
    may be others' meanwhile, and no step starts. Or they go on."""

    n: int
    job_id: int
    attempt: int
    #: seconds between SIGTSTP and SIGSTOP; -1: it goes on
    grace_s: int


class Forget(_Msg):
    """The end is durable at the controller: drop it from the journal."""

    n: int
    job_id: int
    attempt: int


Order = Prepare | Go | Kill | Signal | SetLimit | Forget | Notify | Preempt | Pause


class Welcome(_Msg):
    epoch: int
    session: str
    cluster: str
    #: seconds between heartbeats
    heartbeat_s: int = 10
    #: answer to a registration that is not taken: the node waits and tries again
    refused: str = ""


class Reregister(_Msg):
    """The controller does not know the session (it was restarted): register again."""

    epoch: int


class Reread(_Msg):
    """The configuration has changed: the node reads its own again and registers with what it then
    finds."""

    epoch: int


class ConfigFiles(_Msg):
    """The configuration for a node that has fetched it (see gsched.config.bundle)."""

    data: bytes = b""
    #: why there is none
    refused: str = ""


class AgentCall(_Msg):
    """A client's request to the agent (wire.steps.ToAgent) that came through the controller."""

    token: int
    uid: int
    gid: int
    payload: bytes


class StepsKept(_Msg):
    """These steps, as last told (running or ended), are durable at the controller."""

    job_id: int
    attempt: int
    #: (step, has ended)
    steps: list[tuple[int, bool]]


class Orders(_Msg):
    epoch: int
    session: str
    orders: list[Order]


ToController = Register | Report | FetchConfig | StepMail | AgentAnswer
ToNode = Welcome | Reregister | Orders | Reread | ConfigFiles
ToNode |= StepMail | AgentCall | StepsKept

# ---- writes: client -> frontend -> controller ----------------------------------------------


class SubmitJob(_Msg):
    spec: JobSpec
    script: bytes
    #: NUL-separated NAME=value
    environment: bytes
    user: str = ""
    group: str = ""
    #: a heterogeneous job: the components after the first, which alone has the script
    components: Annotated[list[JobSpec], msgspec.Meta(max_length=127)] = []
    #: only say when and where it could start (`Done.data`, a Forecast); no job is made
    test_only: bool = False


class Forecast(msgspec.Struct):
    """When and where a job could start; in JSON in the answer to a `test_only` submission."""

    start: int
    cpus: int
    nodes: str
    partition: str


class FirstLook(msgspec.Struct):
    """How it looks for an interactive job just submitted; in JSON in the answer, which comes when a
    scheduling pass has looked at it, or after two seconds. With `spec.immediate` 0 or 1 a job that
    has not started by then is refused (and has ended); with more it ends after so many seconds."""

    started: bool
    #: why it waits, as squeue shows it; "" not known yet
    reason: str = ""
    #: what srun and salloc say of that before "queued and waiting for resources"; "" nothing
    note: str = ""


class CancelJobs(_Msg):
    """Cancel or signal. Empty filters match everything the caller may touch."""

    #: "17", "17_4", "17_[1-3]"; () with filters: all that match
    ids: list[str]
    signum: int = 0
    #: "batch", "steps", "all"; only with signum
    target: str = "all"
    user: int = -1
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    state: int = -1
    nodelist: list[str] = []
    reservation: str = ""
    wckey: str = ""
    hurry: bool = False
    #: ids with a step: (job, step); signum 0 ends the step. Filters do not count for them
    steps: list[tuple[str, int]] = []


class UpdateNode(_Msg):
    names: list[str]
    #: Slurm's word in lower case: drain, resume, down, idle, undrain, fail ... ("" unchanged)
    state: str = ""
    reason: str = ""
    fields: dict[str, str] = {}


class UpdateJob(_Msg):
    """hold, uhold, release, requeue, update: verb plus Slurm's KEY=value pairs."""

    ids: list[str]
    verb: str
    fields: dict[str, str] = {}


class UpdatePartition(_Msg):
    """create, update, delete; fields as in slurm.conf, keys in lower case."""

    name: str
    verb: str
    fields: dict[str, str] = {}


class UpdateReservation(_Msg):
    """create, update, delete of an advance reservation. Keys in lower case, with a "+" or "-" at
    the end where something is added or taken away; times in epoch seconds, durations in
    seconds. `Done.data` is its name."""

    name: str
    verb: str
    fields: dict[str, str] = {}


class Ping(_Msg):
    pass


class ExplainJob(_Msg):
    """Why jobs wait: `Done.data` is a JSON list of `model.why.Why`. Changes nothing."""

    #: "17", "17_4", "17+1"
    ids: list[str]
    #: the time that is asked about, epoch seconds; 0 now
    at: int = 0


class Diagnose(_Msg):
    """What the controller counts of its own work: `Done.data` is a JSON `model.statistics`."""

    #: begin anew instead, for administrators
    reset: bool = False


class AskAgent(_Msg):
    """A request (wire.steps.ToAgent) for the agent that leads a job; `Done.blob` is its answer.
    Nothing is stored."""

    job_id: int
    payload: bytes


class Reconfigure(_Msg):
    pass


class Shutdown(_Msg):
    pass


class AckOutbox(_Msg):
    """Accounting has stored every fact up to this number: they may be dropped."""

    through: int


Write = (
    SubmitJob
    | CancelJobs
    | UpdateNode
    | UpdateJob
    | UpdatePartition
    | UpdateReservation
    | Ping
    | Reconfigure
    | Shutdown
    | AckOutbox
    | ExplainJob
    | Diagnose
    | AskAgent
    | ManagePolicy
)


#: to a user who asks more often than the site allows (Slurm's rl_enable)
TOO_OFTEN = "Rate limit exceeded, please retry"


class Call(_Msg):
    """A write on its way to the controller. `uid`, `gid`, `pid` are put in by the frontend from
    the kernel's word; from any other peer they are ignored."""

    request_id: bytes
    write: Write
    uid: int = -1
    gid: int = -1
    pid: int = 0
    #: names of the user's groups, where the write may need them; put in as `uid` is
    groups: list[str] = []
    #: login name that `uid` stands for on the frontend's host; put in as `uid` is
    user: str = ""


class Done(_Msg):
    """The answer; durable before it is sent (but for that of an agent)."""

    request_id: bytes
    #: state version that contains the change: reads after it wait for this version
    version: int
    #: submit: the new job id; cancel: how many
    value: int = 0
    #: one entry per item that was refused: (what, message)
    errors: list[tuple[str, str]] = []
    #: remarks for standard error
    notes: list[str] = []
    #: JSON text where more is answered
    data: str = ""
    #: an agent's answer
    blob: bytes = b""


class Refused(_Msg):
    request_id: bytes
    #: Slurm's message, e.g. "Requested node configuration is not available"
    message: str
    #: symbolic, e.g. "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
    code: str = ""
    notes: list[str] = []
    #: the caller may try the same request id again later
    temporary: bool = False


Reply = Done | Refused

# ---- reads: client -> frontend -------------------------------------------------------------


class JobQuery(_Msg):
    """Which jobs; empty filters match all. Ended jobs are given too (until MinJobAge)."""

    #: the id of an array or of a heterogeneous job's leader means all its records
    ids: list[int] = []
    uids: list[int] = []
    #: state version the caller has seen: the answer is at least that new
    min_version: int = 0
    #: only unfinished (and completing) jobs
    active_only: bool = False


class NodeQuery(_Msg):
    min_version: int = 0


class StepQuery(_Msg):
    """Jobs that run (or stand still), and their steps that are known to run (squeue -s, scontrol
    show step); empty filters match all."""

    job_ids: list[int] = []
    uids: list[int] = []
    min_version: int = 0


class PartitionQuery(_Msg):
    """What was changed of partitions at run time."""

    min_version: int = 0


class BlobQuery(_Msg):
    """A job's script or environment; only for its owner and administrators."""

    job_id: int
    what: str  # "script" | "environment"


class StatusQuery(_Msg):
    pass


class AcctQuery(_Msg):
    """Past and present attempts, as `sacct` asks for them; empty filters match all."""

    #: (job, task of its array); task -1: all of it, -2 - N: component N of a heterogeneous job
    ids: list[tuple[int, int]] = []
    uids: list[int] = []
    gids: list[int] = []
    accounts: list[str] = []
    names: list[str] = []
    partitions: list[str] = []
    qos: list[str] = []
    wckeys: list[str] = []
    reasons: list[str] = []
    constraints: list[str] = []
    #: node names, expanded: ran on any of them
    nodes: list[str] = []
    #: state names: in one of them at some time in the window
    states: list[str] = []
    #: window, epoch seconds
    start: int = 0
    end: int = 1 << 40
    #: also what was never eligible to run
    ineligible: bool = False
    #: (least, most); () any
    ncpus: list[int] = []
    nnodes: list[int] = []
    limit_s: list[int] = []
    #: only what comes after this place (AcctRows.last)
    after: list[int] = []
    min_version: int = 0
    #: no steps
    allocations: bool = False
    #: numbers of associations
    assocs: list[int] = []
    #: a component's id stands for the whole heterogeneous job; False: the first's id for it alone
    whole_het: bool | None = None


ReadJobs = JobQuery | StepQuery | BlobQuery | AcctQuery | JobChanges
Read = ReadJobs | NodeQuery | PartitionQuery | StatusQuery | PolicyQuery | ReportQuery


class JobRows(_Msg):
    version: int
    jobs: list[Job]
    verdicts: dict[int, Verdict]
    #: waiting jobs without a planned place -> when they will not start before
    not_before: dict[int, int] = {}
    #: priorities in force of jobs whose records say another
    priorities: dict[int, int] = {}


class NodeRows(_Msg):
    version: int
    nodes: list[Node]
    use: list[NodeUse]
    reservations: list[Reservation] = []
    #: host list of the nodes of which something is planned for waiting jobs
    planned: str = ""


class StepRows(_Msg):
    """Jobs that run, also those without steps, and the steps, each with the id of the job that
    leads it."""

    version: int
    steps: list[Step]
    jobs: list[Job]


class PartitionRows(_Msg):
    version: int
    changes: list[PartitionChange]


class AcctRows(_Msg):
    """Attempts in sacct's order, every one that matches: a job that was requeued comes several
    times. More may follow after `last`; where that has six numbers, more steps of the last attempt:
    they come as the same attempt once more."""

    version: int
    jobs: list[AcctJob]
    last: list[int] = []
    more: bool = False
    #: why only what the controller still holds is here; "" nothing is missing
    warning: str = ""


class Blob(_Msg):
    data: bytes


class Status(_Msg):
    cluster: str
    cluster_name: str
    version: int
    epoch: int
    controller_up: bool
    #: controller's pid and start (epoch seconds) as it recorded them
    pid: int = 0
    start: int = 0
    next_job_id: int = 0
    config_version: int = 0
    #: when the queue was last gone over, epoch seconds
    last_pass: int = 0


class OnBehalf(_Msg):
    """Whom the requests that follow on this connection are of; there is no answer. Only for a
    process of root, the SlurmUser or the frontend's own user (a worker that runs command lines)."""

    uid: int
    gid: int
    pid: int


#: what a client may send to a frontend / get back
ToFrontend = Call | JobQuery | NodeQuery | PartitionQuery | BlobQuery | StatusQuery | AcctQuery
ToFrontend |= OnBehalf | StepQuery | PolicyQuery | JobChanges | ReportQuery
FromFrontend = Done | Refused | JobRows | NodeRows | PartitionRows | Blob | Status | AcctRows
FromFrontend |= StepRows | PolicyRows | JobDelta | ReportRows

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[object, msgspec.msgpack.Decoder[object]] = {}


def encode(message: msgspec.Struct) -> bytes:
    """Packs any message of this module; ValueError for text that is not UTF-8. About 1 us for a
    small one."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError as problem:
        # What users write and where they are is bytes to the system: names are text here.
        shown = ascii(problem.object)[1:-1].replace("\\udc", "\\x")
        raise ValueError(f"this is not UTF-8 text: {shown[:200]}") from None


def decode(union: Any, frame: bytes | memoryview) -> Any:
    """Unpacks `frame` as one of `union`'s types; BadMessage says what is wrong with it.

    `union` is one of this module's unions of messages, which the type system cannot name.
    """
    decoder = _decoders.get(union)
    if decoder is None:
        decoder = msgspec.msgpack.Decoder(union)
        _decoders[union] = decoder
    if len(frame) > MAX_FRAME:
        raise BadMessage(f"message of {len(frame)} bytes is larger than {MAX_FRAME}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
