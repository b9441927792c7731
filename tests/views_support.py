"""A cluster made by hand for the commands that read: the situations of the golden transcripts.

The reader gives fixed records; everything after it (options, views, formats) is the real thing.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gsched.model import (
    Dep,
    Gpu,
    Hold,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeAlloc,
    NodeFlag,
    NodeUse,
    Phase,
    PolicyRecord,
    Shape,
    Step,
    Used,
    Verdict,
)
from gsched.wire.messages import (
    BlobQuery,
    Done,
    JobQuery,
    JobRows,
    NodeQuery,
    NodeRows,
    Reply,
    Status,
    StepQuery,
    StepRows,
    Write,
)
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched.wire.report import ReportQuery, ReportRows
from gsched_cli.common import Streams


@dataclass
class FakeReader:
    """Records in, records out; keeps the writes it was sent and answers them from `answers`."""

    job_list: list[Job] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    node_list: list[Node] = field(default_factory=list)
    use: list[NodeUse] = field(default_factory=list)
    clock: float = 0.0
    conf: object = None
    uid: int = 0
    gid: int = 0
    cluster: str = "peer"
    up: bool = True
    blobs: dict[tuple[int, str], bytes] = field(default_factory=dict)
    sent: list[Write] = field(default_factory=list)
    answers: list[Reply] = field(default_factory=list)
    step_list: list[Step] = field(default_factory=list)
    policy_records: list[PolicyRecord] = field(default_factory=list)
    report_rows: dict[str, ReportRows] = field(default_factory=dict)
    reports: list[ReportQuery] = field(default_factory=list)
    used: dict[str, Used] = field(default_factory=dict)
    planned: str = ""

    def jobs(self, query: JobQuery) -> JobRows:
        found = [
            job
            for job in self.job_list
            if (not query.ids or {job.id, job.array_job_id, job.het_job_id} & {*query.ids} - {0})
            and (not query.uids or job.uid in query.uids)
            and (not query.active_only or not job.finished or job.completing)
        ]
        return JobRows(1, found, self.verdicts)

    def nodes(self, query: NodeQuery) -> NodeRows:
        return NodeRows(1, self.node_list, self.use, planned=self.planned)

    def steps(self, query: StepQuery) -> StepRows:
        jobs = [
            job
            for job in self.jobs(JobQuery(query.job_ids, query.uids, active_only=True)).jobs
            if job.state in (JobState.RUNNING, JobState.SUSPENDED)
        ]
        leaders = {job.het_job_id or job.id for job in jobs}
        return StepRows(1, [step for step in self.step_list if step.job_id in leaders], jobs)

    def policy(self, query: PolicyQuery) -> PolicyRows:
        return PolicyRows(1, self.policy_records, self.used if query.used else {})

    def report(self, query: ReportQuery) -> ReportRows:
        self.reports.append(query)
        return self.report_rows[query.kind]

    def blob(self, query: BlobQuery) -> bytes:
        return self.blobs[query.job_id, query.what]

    def status(self) -> Status:
        return Status("uuid", self.cluster, 1, 1, self.up, 100, 1795960007, 240)

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        self.sent.append(write)
        return self.answers.pop(0) if self.answers else Done(b"", 1)

    def config(self) -> object:
        return self.conf

    def settings(self) -> object:
        return self.config()

    def now(self) -> float:
        return self.clock


Run = Callable[[Sequence[str], Mapping[str, str], str, Streams, FakeReader], int]


def invoke(
    run: Run,
    argv: Sequence[str],
    reader: FakeReader,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: str = "/",
) -> tuple[str, str, int]:
    """Runs a command in this process: (standard output, standard error, exit code)."""
    streams = Streams(*(io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in "123"))
    streams.stdin.write(stdin)
    streams.stdin.seek(0)
    code = run(argv, env or {}, cwd, streams, reader)
    texts = []
    for stream in (streams.stdout, streams.stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return texts[0], texts[1], code


@dataclass(frozen=True)
class Case:
    """One command of a transcript."""

    command: str
    stdout: str
    stderr: str
    code: int

    @property
    def argv(self) -> list[str]:
        """The words after the command's name; NAME=value before it are in `env`."""
        return self._words()[1]

    @property
    def env(self) -> dict[str, str]:
        return self._words()[0]

    def _words(self) -> tuple[dict[str, str], list[str]]:
        words = shlex.split(self.command)
        env = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        return env, words[1:]


def transcript(shared: Path, name: str) -> dict[str, Case]:
    """The commands of a golden transcript of 26.05; the last one where a command is repeated."""
    (path,) = (shared / "golden" / "26.05").glob(f"{name}*.txt")
    cases: dict[str, Case] = {}
    lines = path.read_text().split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.startswith("$ "):
            continue
        parts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        current = ""
        while not lines[at].startswith("--- exit "):
            if lines[at] in ("--- stdout", "--- stderr"):
                current = lines[at][4:]
            else:
                parts[current].append(lines[at] + "\n")
            at += 1
        command = line[2:].rstrip()
        cases[command] = Case(
            command, "".join(parts["stdout"]), "".join(parts["stderr"]), int(lines[at][9:])
        )
    return cases


#: 2026-11-29T13:51:50 UTC, when the mixed queue's first jobs started
T0 = 1795960310
H100 = {"per_node": 8}


def share(node: str, cpus: int, gpus: int = 0, **more: object) -> NodeAlloc:
    """A running share with 2000 MB per CPU."""
    return NodeAlloc(node, cpus, 1, 2000 * cpus, gpus, [(1 << cpus) - 1], Phase.RUNNING)


def make_job(job_id: int, name: str, shape: Shape, **more: object) -> Job:
    """A waiting job of root in partition gpu, one hour, 2000 MB per CPU, as the peer's are."""
    import msgspec

    job_fields = {f.name for f in msgspec.structs.fields(Job)}
    spec_fields = {f.name for f in msgspec.structs.fields(JobSpec)} - job_fields
    spec = {key: more.pop(key) for key in list(more) if key in spec_fields}
    defaults: dict[str, object] = {
        "user": "root",
        "group": "root",
        "uid": 0,
        "gid": 0,
        "partition": "gpu",
        "time_limit": 3600,
        "submit_time": T0,
        "eligible_time": T0,
        "last_sched_eval": T0,
    }
    time_limit = more.get("time_limit", 3600)
    defaults.update(more)
    job_spec = JobSpec(
        **{
            "name": name,
            "shape": shape,
            "account": "research",
            "qos": "normal",
            "std_out": "/dev/null",
            "work_dir": "CWD",
            "alloc_node": "localhost",
            "alloc_sid": 1459,
            "time_limit": time_limit,
            **spec,
        }  # type: ignore[arg-type]
    )
    return Job(id=job_id, spec=job_spec, **defaults)  # type: ignore[arg-type]


def cpu_shape(**more: object) -> Shape:
    """A request with the peer's default memory."""
    return Shape(mem_per_cpu=2000, **more)  # type: ignore[arg-type]


def mixed_queue(offset: int = 5) -> FakeReader:
    """The queue of transcripts 024 (seen at T0+5) and 025."""
    running = JobState.RUNNING
    jobs = [
        make_job(
            190,
            "runner",
            cpu_shape(min_nodes=2, max_nodes=2, nodes_set=True, gpus_per_node=8),
            tres={"per_node": "gres/gpu:8"},
            state=running,
            time_limit=1800,
            submit_time=T0 - 2,
            eligible_time=T0 - 2,
            start_time=T0,
            priority=1994,
            alloc=[share("node1", 1, 255), share("node2", 1, 255)],
            gpu_types={"h100": 16},
            sluid="s0Z9M8KS70KV00",
        ),
        make_job(
            191,
            "filler",
            cpu_shape(min_nodes=2, max_nodes=2, nodes_set=True, gpus_per_node=6),
            tres={"per_node": "gres/gpu:6"},
            state=running,
            time_limit=2700,
            submit_time=T0 - 2,
            eligible_time=T0 - 2,
            start_time=T0,
            priority=1994,
            alloc=[share("node3", 1, 63), share("node4", 1, 63)],
            gpu_types={"h100": 12},
            sluid="s0Z9M8KS70M400",
        ),
        make_job(
            192,
            "big",
            cpu_shape(min_nodes=4, max_nodes=4, nodes_set=True, gpus_per_node=8),
            tres={"per_node": "gres/gpu:8"},
            priority=2259,
            last_sched_eval=T0 + 3,
            sluid="s0Z9M8KS728R00",
        ),
        make_job(
            193,
            "arr",
            cpu_shape(gpus_total=4),
            tres={"per_job": "gres/gpu:4"},
            array="1-5",
            array_job_id=193,
            array_pending="1-5",
            time_limit=7200,
            priority=1861,
            last_sched_eval=T0 + 3,
            sluid="s0Z9M8KS729000",
        ),
        make_job(
            194,
            "a very long job name indeed",
            cpu_shape(),
            held=Hold.USER,
            eligible_time=0,
            sluid="s0Z9M8KS729B00",
        ),
        make_job(
            195,
            "small",
            cpu_shape(gpus_total=1),
            tres={"per_job": "gres/gpu:1"},
            qos="high",
            state=running,
            time_limit=300,
            start_time=T0 + 3,
            last_sched_eval=T0 + 3,
            priority=3661,
            alloc=[share("node3", 1, 64)],
            gpu_types={"h100": 1},
            sluid="s0Z9M8KS729N00",
        ),
        make_job(
            196,
            "dep",
            cpu_shape(),
            deps=[Dep("afterok", 190)],
            priority=1861,
            sluid="s0Z9M8KS72A000",
        ),
        make_job(
            197,
            "alice",
            cpu_shape(gpus_total=1),
            tres={"per_job": "gres/gpu:1"},
            uid=1001,
            gid=1001,
            user="alice",
            group="alice",
            work_dir="/tmp",
            state=running,
            start_time=T0 + 3,
            last_sched_eval=T0 + 3,
            priority=6147,
            alloc=[share("node3", 1, 128)],
            gpu_types={"h100": 1},
            sluid="s0Z9M8KS72AB00",
        ),
    ]
    # 193 and 196 have one priority: among such the controller's own order decides.
    jobs[3], jobs[6] = jobs[6], jobs[3]
    reasons = {192: "Resources", 193: "Priority", 196: "Dependency"}
    verdicts = {number: Verdict(number, reason) for number, reason in reasons.items()}
    nodes = [Node(f"node{n}", NodeFlag.NONE) for n in range(1, 5)]
    use = [NodeUse(f"node{n}") for n in range(1, 5)]
    return FakeReader(jobs, verdicts, nodes, use, clock=T0 + offset)


def h100s(count: int = 8) -> list[Gpu]:
    return [Gpu(f"GPU-{n}", "h100", n) for n in range(count)]


PEER_CONF = """\
ClusterName=peer
SlurmctldHost=vm(127.0.0.1)
SlurmctldPort=23000
SlurmUser=root
StateSaveLocation=/tmp/peer/state
SlurmctldPidFile=/tmp/peer/run/slurmctld.pid
GresTypes=gpu
DefMemPerCPU=2000
PreemptMode=REQUEUE
PreemptType=preempt/qos
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=node1 NodeAddr=127.0.0.1 Port=23101 Feature=h100,rackA
NodeName=node2 NodeAddr=127.0.0.1 Port=23102 Feature=h100,rackA
NodeName=node3 NodeAddr=127.0.0.1 Port=23103 Feature=h100,rackB
NodeName=node4 NodeAddr=127.0.0.1 Port=23104 Feature=h100,rackB
PartitionName=gpu Nodes=node[1-4] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=node1 MaxTime=00:30:00 DefaultTime=00:10:00 PriorityJobFactor=10
"""


def peer_config() -> object:
    """The configuration that the transcripts were recorded with."""
    from gsched.config import parse_config

    return parse_config({"slurm.conf": PEER_CONF})


#: 2026-11-29T13:54:38 UTC, when the views of nodes were recorded
T_NODES = 1795960478


def peer_cluster() -> FakeReader:
    """The nodes of transcript 034: node1 full, node2 partly, node3 drained, node4 down."""
    flags = [NodeFlag.NONE, NodeFlag.NONE, NodeFlag.DRAIN, NodeFlag.DOWN]
    reasons = ["", "", "disk full", "no power"]
    nodes = [
        Node(
            f"node{at + 1}",
            flags[at],
            reason=reasons[at],
            reason_time=T_NODES if reasons[at] else 0,
            gpus=h100s(),
            cpus=16,
            mem_mb=64000,
            version="26.05.3",
            arch="x86_64",
        )
        for at in range(4)
    ]
    use = [
        NodeUse("node1", 16, 32000, 255, 1, 0, 13, 22727),
        NodeUse("node2", 1, 2000, 7, 1, 0, 13, 22727),
        NodeUse("node3", 0, 0, 0, 0, 0, 14, 22724),
        NodeUse("node4", 0, 0, 0, 0, 0, 0, 22724),
    ]
    return FakeReader([], {}, nodes, use, clock=T_NODES, conf=peer_config())
