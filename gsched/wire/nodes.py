"""Messages between the controller and the agents of nodes."""

from __future__ import annotations

import msgspec

from gsched.model import Gpu, Job, Phase
from gsched.model.step import Step
from gsched.wire.codec import Message

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


class Register(Message):
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


class Report(Message):
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


class StepMail(Message):
    """A word between two nodes of one job (wire.steps.Mail), carried by the controller: it looks
    that both are of the attempt and that one of them leads it, and puts in who sent it. May be
    lost: both sides repeat."""

    job_id: int
    attempt: int
    #: to the controller: for whom ("" the node that leads); to the node: whose it is
    node: str
    payload: bytes


class AgentAnswer(Message):
    """The answer to AgentCall."""

    token: int
    payload: bytes


class FetchConfig(Message):
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


class Prepare(Message):
    """Journal it and make it ready; with `go` (single node) start it as well."""

    n: int
    launch: LaunchSpec
    go: bool


class Go(Message):
    n: int
    job_id: int
    attempt: int


class Kill(Message):
    """End it: SIGCONT+SIGTERM, KillWait, SIGKILL, epilog, released. Unknown attempt: no-op."""

    n: int
    job_id: int
    attempt: int
    cause: str
    #: the node of the job that was lost, where that is why
    lost: str = ""


class Signal(Message):
    n: int
    job_id: int
    attempt: int
    signum: int
    #: "batch": only the script's shell, "steps": all but it, "all"
    target: str
    #: only this step; None: by `target`. signum 0 ends it
    step: int | None = None


class Notify(Message):
    """A line for the error file of the batch script."""

    n: int
    job_id: int
    attempt: int
    text: str


class SetLimit(Message):
    n: int
    job_id: int
    attempt: int
    #: seconds from the start of the script; 0 none
    limit_s: int


class Preempt(Message):
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


class Pause(Message):
    """All processes stand still: told by SIGTSTP, and stopped once its time is over; what it holds
    may be others' meanwhile, and no step starts. Or they go on."""

    n: int
    job_id: int
    attempt: int
    #: seconds between SIGTSTP and SIGSTOP; -1: it goes on
    grace_s: int


class Forget(Message):
    """The end is durable at the controller: drop it from the journal."""

    n: int
    job_id: int
    attempt: int


Order = Prepare | Go | Kill | Signal | SetLimit | Forget | Notify | Preempt | Pause


class Welcome(Message):
    epoch: int
    session: str
    cluster: str
    #: seconds between heartbeats
    heartbeat_s: int = 10
    #: answer to a registration that is not taken: the node waits and tries again
    refused: str = ""


class Reregister(Message):
    """The controller does not know the session (it was restarted): register again."""

    epoch: int


class Reread(Message):
    """The configuration has changed: the node reads its own again and registers with what it then
    finds."""

    epoch: int


class ConfigFiles(Message):
    """The configuration for a node that has fetched it (see gsched.config.bundle)."""

    data: bytes = b""
    #: why there is none
    refused: str = ""


class AgentCall(Message):
    """A client's request to the agent (wire.steps.ToAgent) that came through the controller."""

    token: int
    uid: int
    gid: int
    payload: bytes


class StepsKept(Message):
    """These steps, as last told (running or ended), are durable at the controller."""

    job_id: int
    attempt: int
    #: (step, has ended)
    steps: list[tuple[int, bool]]


class Orders(Message):
    epoch: int
    session: str
    orders: list[Order]


ToController = Register | Report | FetchConfig | StepMail | AgentAnswer
ToNode = Welcome | Reregister | Orders | Reread | ConfigFiles
ToNode |= StepMail | AgentCall | StepsKept
