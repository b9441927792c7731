"""What clients, agents and agents among themselves say about steps. Frames as on any stream.

A client (srun, or a frontend's worker on behalf of one) speaks to the agent of a node of the job
through the agent's Unix socket (`wire.paths.step_socket`); where there is none on its host, through
frontend and controller (`messages.AskAgent`). Any node of the job takes the request and passes it
on to the one that leads it. The answer only says whether it was taken: what comes of it is told on
the connection which the agent makes to the client's `Callback` (docs/design.md, section 7).
"""

from __future__ import annotations

import msgspec

from gsched.model.job import Job
from gsched.model.step import Callback, Step, StepSpec
from gsched.wire.codec import Message

# ---- client -> agent ------------------------------------------------------------------------


class Behalf(Message):
    """Whom the next request is of. Only from root, the SlurmUser or the agent's own user."""

    uid: int
    gid: int
    pid: int


class CreateStep(Message):
    """Run a step. Answered by Taken or NotTaken."""

    request_id: bytes
    spec: StepSpec
    callback: Callback
    #: NUL-separated NAME=value: the client's environment
    environment: bytes = b""


class AttachStep(Message):
    """Let another client follow a step (sattach). Answered by Taken or NotTaken."""

    request_id: bytes
    job_id: int
    step: int
    callback: Callback
    #: task whose output is wanted; -1 all
    task: int = -1
    #: also give the step its input
    stdin: bool = False
    #: only say how the tasks lie (as text on the connection)
    layout_only: bool = False


class StatSteps(Message):
    """What running steps use now (sstat). Answered by Usages or NotTaken."""

    job_id: int
    #: () all
    steps: list[int] = []
    pids: bool = False


class TellSteps(Message):
    """Tell the controller of all steps of a job now. Answered by Taken once it has them."""

    job_id: int


class ListPids(Message):
    """The processes of all steps on a node (scontrol listpids). Answered by Pids."""


ToAgent = Behalf | CreateStep | AttachStep | StatSteps | TellSteps | ListPids


class Taken(Message):
    request_id: bytes
    step: int = -1


class NotTaken(Message):
    """What srun says, a line for each sentence, without its name in front ("error: Unable to create
    step for job 7: ..."), and the symbolic name where it has one."""

    message: str
    code: str = ""
    #: no job of that number is held here: another agent may know it
    unknown: bool = False


class StepUse(msgspec.Struct, array_like=True, gc=False):
    """What one step uses, over all its tasks."""

    step: int
    name: str
    ntasks: int
    nodes: list[str]
    #: of the task that uses most, and which: KB
    max_rss_kb: int = 0
    max_rss_node: str = ""
    max_rss_task: int = 0
    ave_rss_kb: int = 0
    max_vm_kb: int = 0
    max_vm_node: str = ""
    max_vm_task: int = 0
    ave_vm_kb: int = 0
    #: ms of CPU: least, where, and average
    min_cpu_ms: int = 0
    min_cpu_node: str = ""
    min_cpu_task: int = 0
    ave_cpu_ms: int = 0
    pages_max: int = 0
    pages_ave: int = 0
    read_max: int = 0
    read_ave: int = 0
    write_max: int = 0
    write_ave: int = 0
    pids: list[int] = []
    gpu_util: int = -1
    gpu_mem_mb: int = -1


class Usages(Message):
    steps: list[StepUse]


class StepPids(msgspec.Struct, array_like=True, gc=False):
    """Of a step's processes on a node: the number, the task's number there and in the step; -1
    where it is no task but belongs to one."""

    job_id: int
    step: int
    pids: list[tuple[int, int, int]]


class Pids(Message):
    steps: list[StepPids]


FromAgent = Taken | NotTaken | Usages | Pids


# ---- what lies in the place of a script for srun and salloc outside a job --------------------


class Interactive(Message):
    """Stored as the script of a job with `spec.interactive`: whom to call once it is allocated,
    and for srun the step to run at once (its job_id 0: the job's)."""

    callback: Callback
    step: StepSpec | None = None
    #: salloc --no-shell: the job outlives the client, which ends once it has heard of it
    no_shell: bool = False


# ---- agent <-> agent (payload of messages.StepMail) ------------------------------------------


class LaunchStep(Message):
    """Leader -> node: run its share. Repeated until the node has told a StepShare of it."""

    step: Step
    spec: StepSpec
    #: place in step.nodes
    index: int
    callback: Callback
    environment: bytes
    #: CPUs of each task's own, as a list "0-3,8", in local order; [] not bound
    task_cpus: list[str] = []
    #: GPU bits of each task's own; [] all of the step's share
    task_gpus: list[int] = []
    #: uid, gid are the job's; the components of a heterogeneous job for the environment
    components: list[Job] = []


class StopStep(Message):
    """Leader -> node: signal its tasks; signum 0 ends it (TERM, KillWait, KILL). Repeated while
    it must end and has not."""

    step: int
    signum: int
    #: for the line in the error file: "cancelled", "timeout", "task_failure" ...
    cause: str = ""


class TaskEnd(msgspec.Struct, array_like=True, gc=False):
    task: int
    wstatus: int
    cause: str = ""
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0
    elapsed_ms: int = 0


class FollowStep(Message):
    """Leader -> node: one more client follows its share (sattach)."""

    step: int
    index: int
    callback: Callback
    task: int = -1
    stdin: bool = False


class StepShare(Message):
    """Node -> leader: where its share stands; all that is known, each time. Repeated after the
    end until StepKnown."""

    step: int
    index: int
    #: task ids that have started
    started: list[int] = []
    ended: list[TaskEnd] = []
    #: nothing of it is left here
    released: bool = False
    #: sentence when nothing could be launched
    error: str = ""
    #: further clients that it has heard of, by their ports and the first bytes of their secrets
    followed: list[bytes] = []


class StepKnown(Message):
    """Leader -> node: the end of its share is journalled."""

    step: int


class PassOn(Message):
    """Node -> leader: a client's request that reached the wrong node; `token` comes back."""

    token: int
    uid: int
    gid: int
    payload: bytes


class PassedBack(Message):
    token: int
    payload: bytes


Mail = LaunchStep | StopStep | StepShare | StepKnown | PassOn | PassedBack | FollowStep
