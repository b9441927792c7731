"""What accounting keeps of a job: one record per attempt, as `sacct` shows it."""

from __future__ import annotations

import msgspec

from gsched.model.step import NAMED_STEPS

#: sort key of the tasks of an array that are still together: after those that have split off
TOGETHER = (1 << 31) - 1


class AcctStep(msgspec.Struct, array_like=True, gc=False):
    """One step of an attempt."""

    #: "batch", "extern" or the number
    step: str
    name: str
    #: state name, e.g. "COMPLETED"
    state: str
    #: as waitpid gives it
    wstatus: int = 0
    #: epoch seconds; end 0: still running
    start: int = 0
    end: int = 0
    elapsed_s: int = 0
    suspended_s: int = 0
    ncpus: int = 0
    nnodes: int = 0
    ntasks: int = 0
    #: host list
    nodes: str = ""
    #: TRES text, memory in megabytes
    alloc_tres: str = ""
    user_ms: int = 0
    system_ms: int = 0
    #: -1: nobody measured it
    max_rss_kb: int = -1
    max_rss_node: str = ""
    #: how the tasks were laid out ("Unknown", "Block", "Cyclic")
    layout: str = ""
    submit_line: str = ""
    #: uid; -1 nobody
    cancelled_by: int = -1
    max_rss_task: int = 0
    #: of all tasks; -1: nobody measured it
    ave_rss_kb: int = -1
    #: percent (average, most) and MB of GPU memory (most); -1: nobody measured it
    gpu_util_ave: int = -1
    gpu_util_max: int = -1
    gpu_mem_max_mb: int = -1

    @property
    def number(self) -> int:
        """Its number in the job: those that no srun made come first."""
        return NAMED_STEPS.get(self.step) or int(self.step)


class AcctSteps(msgspec.Struct, gc=False):
    """Ended steps of an attempt that may still run."""

    job_id: int
    restarts: int
    steps: list[AcctStep]


class AcctJob(msgspec.Struct, array_like=True, gc=False):
    """One attempt of a job: over, running or still waiting. Also a row of the table `jobs`."""

    job_id: int
    #: how often it had been requeued before
    restarts: int
    #: place in the order of sacct: when this attempt came to be (epoch seconds), the id of the
    #: array or heterogeneous job (else its own), the task or component (TOGETHER: the rest)
    begun: int
    group_id: int
    sub_id: int
    array_job_id: int = 0
    array_task_id: int = -1
    #: tasks that are still together: "0-3,7"; else ""
    array_tasks: str = ""
    array_throttle: int = 0
    het_job_id: int = 0
    het_offset: int = 0
    sluid: str = ""
    cluster: str = ""
    uid: int = -1
    gid: int = -1
    user_name: str = ""
    group_name: str = ""
    account: str = ""
    wckey: str = ""
    name: str = ""
    partition_name: str = ""
    qos: str = ""
    reservation: str = ""
    licenses: str = ""
    constraints: str = ""
    comment: str = ""
    admin_comment: str = ""
    system_comment: str = ""
    extra: str = ""
    container: str = ""
    #: state name, e.g. "COMPLETED", "REQUEUED"
    state: str = "PENDING"
    #: uid; -1 nobody
    cancelled_by: int = -1
    #: why it last waited; "None"
    reason: str = "None"
    wstatus: int = 0
    derived_wstatus: int = 0
    priority: int = 0
    #: epoch seconds; 0 unknown
    submit: int = 0
    eligible: int = 0
    start: int = 0
    end_time: int = 0
    elapsed_s: int = 0
    suspended_s: int = 0
    #: seconds; 0 unlimited
    time_limit: int = 0
    req_cpus: int = 0
    req_nodes: int = 0
    #: megabytes; 0 not said
    req_mem_mb: int = 0
    #: TRES text, memory in megabytes; alloc_tres "" before the start
    req_tres: str = ""
    alloc_tres: str = ""
    alloc_cpus: int = 0
    alloc_nodes: int = 0
    #: host list; "" none assigned
    nodes: str = ""
    exclusive: str = "NO"
    oversubscribe: str = "NO"
    std_in: str = ""
    std_out: str = ""
    std_err: str = ""
    submit_line: str = ""
    work_dir: str = ""
    steps: list[AcctStep] = []
    assoc_id: int = 0
    #: 1: a lost node ended it: what it used after `last_report` (epoch seconds) is not known
    uncertain: int = 0
    last_report: int = 0
    #: 1: what SQL has was changed when it was over, and counts before what the controller holds
    changed: int = 0

    @property
    def order(self) -> tuple[int, int, int, int, int]:
        """Place in the order of rows; unique within a cluster's state."""
        return self.begun, self.group_id, self.sub_id, self.job_id, self.restarts
