"""What clients ask: writes, which frontends pass on to the controller, and reads, which they answer
themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gsched.model import (
    Job,
    JobSpec,
    Node,
    NodeUse,
    PartitionChange,
    Reservation,
    Verdict,
)
from gsched.model.acct import AcctJob
from gsched.model.step import Step
from gsched.wire.changes import JobChanges, JobDelta
from gsched.wire.codec import Message
from gsched.wire.policy import ManagePolicy as ManagePolicy
from gsched.wire.policy import PolicyDone as PolicyDone
from gsched.wire.policy import PolicyOp as PolicyOp
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched.wire.report import ReportQuery, ReportRows

# ---- writes: client -> frontend -> controller ----------------------------------------------


class SubmitJob(Message):
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


class CancelJobs(Message):
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


class UpdateNode(Message):
    names: list[str]
    #: Slurm's word in lower case: drain, resume, down, idle, undrain, fail ... ("" unchanged)
    state: str = ""
    reason: str = ""
    fields: dict[str, str] = {}


class UpdateJob(Message):
    """hold, uhold, release, requeue, update: verb plus Slurm's KEY=value pairs."""

    ids: list[str]
    verb: str
    fields: dict[str, str] = {}


class UpdatePartition(Message):
    """create, update, delete; fields as in slurm.conf, keys in lower case."""

    name: str
    verb: str
    fields: dict[str, str] = {}


class UpdateReservation(Message):
    """create, update, delete of an advance reservation. Keys in lower case, with a "+" or "-" at
    the end where something is added or taken away; times in epoch seconds, durations in
    seconds. `Done.data` is its name."""

    name: str
    verb: str
    fields: dict[str, str] = {}


class Ping(Message):
    pass


class ExplainJob(Message):
    """Why jobs wait: `Done.data` is a JSON list of `model.why.Why`. Changes nothing."""

    #: "17", "17_4", "17+1"
    ids: list[str]
    #: the time that is asked about, epoch seconds; 0 now
    at: int = 0


class Diagnose(Message):
    """What the controller counts of its own work: `Done.data` is a JSON `model.statistics`."""

    #: begin anew instead, for administrators
    reset: bool = False


class AskAgent(Message):
    """A request (wire.steps.ToAgent) for the agent that leads a job; `Done.blob` is its answer.
    Nothing is stored."""

    job_id: int
    payload: bytes


class Reconfigure(Message):
    pass


class Shutdown(Message):
    pass


class AckOutbox(Message):
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


class Call(Message):
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


class Done(Message):
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


class Refused(Message):
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


class JobQuery(Message):
    """Which jobs; empty filters match all. Ended jobs are given too (until MinJobAge)."""

    #: the id of an array or of a heterogeneous job's leader means all its records
    ids: list[int] = []
    uids: list[int] = []
    #: state version the caller has seen: the answer is at least that new
    min_version: int = 0
    #: only unfinished (and completing) jobs
    active_only: bool = False


class NodeQuery(Message):
    min_version: int = 0


class StepQuery(Message):
    """Jobs that run (or stand still), and their steps that are known to run (squeue -s, scontrol
    show step); empty filters match all."""

    job_ids: list[int] = []
    uids: list[int] = []
    min_version: int = 0


class PartitionQuery(Message):
    """What was changed of partitions at run time."""

    min_version: int = 0


class BlobQuery(Message):
    """A job's script or environment; only for its owner and administrators."""

    job_id: int
    what: str  # "script" | "environment"


class StatusQuery(Message):
    pass


class AcctQuery(Message):
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


class JobRows(Message):
    version: int
    jobs: list[Job]
    verdicts: dict[int, Verdict]
    #: waiting jobs without a planned place -> when they will not start before
    not_before: dict[int, int] = {}
    #: priorities in force of jobs whose records say another
    priorities: dict[int, int] = {}


class NodeRows(Message):
    version: int
    nodes: list[Node]
    use: list[NodeUse]
    reservations: list[Reservation] = []
    #: host list of the nodes of which something is planned for waiting jobs
    planned: str = ""


class StepRows(Message):
    """Jobs that run, also those without steps, and the steps, each with the id of the job that
    leads it."""

    version: int
    steps: list[Step]
    jobs: list[Job]


class PartitionRows(Message):
    version: int
    changes: list[PartitionChange]


class AcctRows(Message):
    """Attempts in sacct's order, every one that matches: a job that was requeued comes several
    times. More may follow after `last`; where that has six numbers, more steps of the last attempt:
    they come as the same attempt once more."""

    version: int
    jobs: list[AcctJob]
    last: list[int] = []
    more: bool = False
    #: why only what the controller still holds is here; "" nothing is missing
    warning: str = ""


class Blob(Message):
    data: bytes


class Status(Message):
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


class OnBehalf(Message):
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
