"""sbatch in-process: a cluster that only remembers what was submitted; transcripts to replay."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gsched import request
from gsched.config import Config, parse_config
from gsched.errors import message
from gsched.model import Job, JobState
from gsched.wire.messages import (
    BlobQuery,
    Done,
    Forecast,
    JobQuery,
    JobRows,
    NodeQuery,
    NodeRows,
    Refused,
    Reply,
    Status,
    SubmitJob,
    Write,
)
from gsched_cli.common import Streams
from gsched_cli.process import Process
from gsched_cli.sbatch import run

#: the cluster of the transcripts: 4 nodes of 2 sockets, 16 CPUs, 8 GPUs, in two racks
SLURM_CONF = """
ClusterName=peer
SlurmctldHost=localhost
MaxArraySize=20001
GresTypes=gpu
DefMemPerCPU=2000
NodeName=node[1-2] CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000 \
 Gres=gpu:h100:8 Feature=h100,rackA
NodeName=node[3-4] CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000 \
 Gres=gpu:h100:8 Feature=h100,rackB
PartitionName=gpu Nodes=node[1-4] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00
PartitionName=debug Nodes=node1 MaxTime=00:30:00 DefaultTime=00:10:00
"""

#: their values vary from run to run; that they are there does not
VARYING = {
    *("SLURM_CONF", "SLURM_JOBID", "SLURM_JOB_END_TIME", "SLURM_JOB_GID", "SLURM_JOB_ID"),
    *("SLURM_JOB_SLUID", "SLURM_JOB_START_TIME", "SLURM_JOB_UID", "SLURM_JOB_USER"),
    *("SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_TASK_PID", "SLURM_ARRAY_JOB_ID"),
    *("HOME", "HOSTNAME", "LOGNAME", "PATH", "PWD", "USER"),
}
#: put there by the recording shell, not by Slurm
OF_THE_RECORDER = {"MYVAR", "TERM", "SHLVL", "LANG", "OLDPWD", "SHELL", "_"}

CONFIG = parse_config({"slurm.conf": SLURM_CONF})


@dataclass
class FakeCluster:
    """A Reader that takes every valid submission and keeps it."""

    submitted: list[SubmitJob] = field(default_factory=list)
    request_ids: list[bytes | None] = field(default_factory=list)
    #: answers to give before the usual one
    refusals: list[Refused] = field(default_factory=list)
    #: what jobs() answers, one per call; the last one stays
    job_rows: list[list[Job]] = field(default_factory=list)
    time: float = 1_795_960_000.0
    uid: int = 1000
    gid: int = 1000
    configured: Config = CONFIG

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        assert isinstance(write, SubmitJob)
        self.request_ids.append(request_id)
        if self.refusals:
            return self.refusals.pop(0)
        problem = request.validate(write.spec, self.configured, write.script, write.environment)
        if problem is not None:
            return Refused(b"", problem.message, problem.code, notes=list(problem.notes))
        if write.spec.reservation:
            # This cluster has none.
            code = "ESLURM_RESERVATION_INVALID"
            return Refused(b"", message(code), code)
        self.submitted.append(write)
        if write.test_only:
            where = Forecast(int(self.time), 1, "n1", "main")
            return Done(b"", 1, data=msgspec.json.encode(where))
        return Done(b"", 1, value=len(self.submitted))

    def new_request_id(self) -> bytes:
        return os.urandom(16)

    def jobs(self, query: JobQuery) -> JobRows:
        rows = self.job_rows.pop(0) if len(self.job_rows) > 1 else self.job_rows[0]
        return JobRows(1, rows, {})

    def nodes(self, query: NodeQuery) -> NodeRows:
        raise AssertionError("sbatch asks for no nodes")

    def blob(self, query: BlobQuery) -> bytes:
        raise AssertionError("sbatch asks for no blobs")

    def status(self) -> Status:
        return Status("uuid", "peer", 1, 1, True)

    def config(self) -> Config:
        return self.configured

    def settings(self) -> Config:
        return self.config()

    def now(self) -> float:
        return self.time


def ended_job(job_id: int, wstatus: int, state: JobState = JobState.COMPLETED) -> Job:
    """A job that has ended, as jobs() shows it."""
    return Job(job_id, 1000, 1000, "alice", "users", _spec(), state=state, wstatus=wstatus)


def _spec() -> request.JobSpec:
    return request.JobSpec()


@dataclass
class Ran:
    """What one run of sbatch did."""

    code: int
    out: str
    err: str
    cluster: FakeCluster
    slept: list[float]

    @property
    def sent(self) -> SubmitJob:
        """The one submission; fails the test when there was none."""
        assert len(self.cluster.submitted) == 1, (self.code, self.out, self.err)
        return self.cluster.submitted[0]

    @property
    def environment(self) -> dict[str, str]:
        items = self.sent.environment.decode("utf-8", "surrogateescape").split("\0")
        return dict(item.split("=", 1) for item in items)


def sbatch(
    *argv: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = "/work dir",
    stdin: bytes = b"",
    cluster: FakeCluster | None = None,
    limits: Mapping[str, int] | None = None,
) -> Ran:
    """Runs sbatch in this process, as alice on the host login1."""
    cluster = cluster or FakeCluster()
    slept: list[float] = []
    soft = dict(limits or {})
    process = Process(
        umask=0o027,
        sid=4711,
        host="login1",
        user="alice",
        group="users",
        soft_limit=soft.get,
        sleep=slept.append,
    )
    text_in = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    streams = Streams(text_in, out, err)
    code = run(list(argv), dict(env or {}), str(cwd), streams, cluster, process)
    return Ran(code, out.getvalue(), err.getvalue(), cluster, slept)


# ---- transcripts -------------------------------------------------------------------------------


@dataclass
class Step:
    """One command of a transcript."""

    command: str
    out: str
    err: str
    code: int


_STEP = re.compile(
    r"^\$ (?P<command>.*?)\n--- stdout\n(?P<out>.*?)--- stderr\n(?P<err>.*?)"
    r"--- exit (?P<code>\d+)$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^# file (\S+)\n(.*?)^# end of file$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def read_transcript(path: Path) -> tuple[dict[str, str], list[Step]]:
    """(files by name, steps) of a transcript."""
    text = path.read_text()
    files = {found[1]: found[2] for found in _FILE.finditer(text)}
    steps = [
        Step(found["command"], found["out"], found["err"], int(found["code"]))
        for found in _STEP.finditer(_FILE.sub("", text))
    ]
    return files, steps


def plain_sbatch(command: str) -> tuple[dict[str, str], Sequence[str]] | None:
    """(environment, arguments) of a step that is one plain sbatch command, else None."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        if any(set(token) <= set("();<>|&") for token in lexer):
            return None
        words = shlex.split(command)
    except ValueError:
        return None
    env = {}
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    if not words or words[0] != "sbatch":
        return None
    return env, words[1:]
