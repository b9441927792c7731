"""Worlds in which a job waits: built by commands, asked why, and tried with what is suggested."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable

from unit.ledger_support import Bench

from gsched.config import Config
from gsched.hostlist import expand
from gsched.ledger import NodeMessage
from gsched.model import Gpu, Job, JobState
from gsched.model.why import Cause, Lack, Place, Suggestion, Why
from gsched.scheduling.explain import Asked, explain
from gsched.wire.codec import PROTOCOL
from gsched.wire.messages import Reply, Status, Write
from gsched.wire.nodes import Register
from gsched_cli.common import Streams
from gsched_cli.process import Process
from gsched_cli.sbatch import run

#: four nodes in two racks, 16 CPUs, 64,000 MB and 8 GPUs on one island each
CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
KillWait=5
SlurmdTimeout=60
MinJobAge=300
ReturnToService=2
Licenses=matlab:4
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=node[1-2] Feature=h100,rackA
NodeName=node[3-4] Feature=h100,rackB
PartitionName=DEFAULT State=UP MaxTime=7-0 DefaultTime=1:00:00 DefMemPerCPU=1000
PartitionName=gpu Nodes=ALL Default=YES
"""

FULL = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
#: two boards of four
BOARDS = [[0 if i == j or i // 4 != j // 4 else 4 for j in range(8)] for i in range(8)]


class World(Bench):
    """A cluster of which sbatch is asked by its options."""

    def __init__(
        self, conf: str = CONF, links: list[list[int]] | None = None, topology: str = ""
    ) -> None:
        self.links = links or FULL
        super().__init__(conf, topology=topology)
        self.uid = self.gid = 1000

    def register(self, name: str, attempts: object = None, **kw: object):  # type: ignore[no-untyped-def]
        conf = self.config.nodes[name]
        kinds = [kind for kind, n in conf.gpu_types.items() for _ in range(n)]
        gpus = [
            Gpu(f"{name}-{i}", kind, i, links=self.links[i][: len(kinds)])
            for i, kind in enumerate(kinds)
        ]
        session = f"{name}.{next(self._ids)}"
        facts = {"cluster": "c1", "boot_id": "b1", "session": session, "epoch": 1, "gpus": gpus}
        message = Register(
            protocol=PROTOCOL,
            node=name,
            version="t",
            cpus=conf.cpus,
            mem_mb=conf.real_memory,
            attempts=[],
            **(facts | kw),  # type: ignore[arg-type]
        )
        self.apply(NodeMessage(name, message))
        return self.report(name)

    # ---- a reader for sbatch -------------------------------------------------------------------

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        return self.write(write, self.uid)

    def status(self) -> Status:
        return Status("c1", "peer", 1, 1, True)

    def sbatch(self, *argv: str, uid: int = 1000) -> Job:
        """Submits by options; the record (the leader's of a heterogeneous job)."""
        code, out, err = self.tried(*argv, uid=uid)
        assert code == 0, (argv, err)
        return self.led.jobs[int(out.split()[-1])]

    def tried(self, *argv: str, uid: int = 1000) -> tuple[int, str, str]:
        """The exit code of sbatch, and what it says."""
        self.uid = self.gid = uid
        process = Process(
            umask=0o022,
            sid=1,
            host="login",
            user="alice",
            group="users",
            soft_limit={}.get,
            sleep=lambda s: None,
        )
        out, err = io.StringIO(), io.StringIO()
        script = io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\ntrue\n"))
        streams = Streams(script, out, err)
        code = run(list(argv), {}, "/home/alice", streams, _Reader(self), process)  # type: ignore[arg-type]
        return code, out.getvalue(), err.getvalue()

    def started(self, *argv: str, uid: int = 1000) -> Job:
        """A job that runs from now on."""
        job = self.sbatch(*argv, uid=uid)
        self.settle()
        assert any(one.alloc for one in self.records(job)), f"{argv} does not start"
        return job

    def records(self, job: Job) -> list[Job]:
        members = self.led.array_members.get(job.array_job_id or job.id, {job.id})
        return [self.led.jobs[number] for number in sorted(members)]

    def settle(self) -> dict[int, str]:
        """Passes until nothing is left to decide; the reason words that they told."""
        words: dict[int, str] = {}
        for _ in range(20):
            out = self.schedule()
            words |= out.words
            for (table, key), verdict in out.view.items():
                if table == "verdict":
                    number = int.from_bytes(key, "big")
                    words[number] = verdict.reason if verdict is not None else ""  # type: ignore[union-attr]
            if not out.schedule:
                return words
        raise AssertionError("passes do not end")

    def why(self, job: Job, at: float = 0) -> Why:
        now = int(self.now)
        return explain(self.led, job, Asked(now, max(now, int(at)), ["users"]))


class _Reader:
    """The world as sbatch sees it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.call = world.call
        self.new_request_id = lambda: uuid.uuid4().bytes
        self.status = world.status
        self.uid = self.gid = world.uid

    def config(self) -> Config:
        return self._world.config

    def settings(self) -> Config:
        return self.config()

    def now(self) -> float:
        return self._world.now


Build = Callable[[], World]


class Waits:
    """A job that waits in a world, and the verdict on it."""

    def __init__(self, build: Build, *argv: str, at_s: int = 0, suggestions: bool = True) -> None:
        self.world = build()
        self.now = int(self.world.now)
        self.job = self.world.sbatch(*argv)
        words = self.world.settle()
        waiting = [one for one in self.world.records(self.job) if one.state == JobState.PENDING]
        assert waiting, f"{argv} does not wait"
        self.job = waiting[0]
        self.why = self.world.why(self.job, self.world.now + at_s if at_s else 0)
        #: what squeue shows
        self.word = words.get(self.job.id, "")
        if not at_s and not self.job.het_job_id:
            assert self.why.reason == self.word
            assert not self.why.starts
        if suggestions and not at_s:
            for one in self.why.suggestions:
                try_out(build, argv, one)

    @property
    def kinds(self) -> list[str]:
        return [cause.kind for cause in self.why.causes]

    @property
    def cause(self) -> Cause:
        return self.why.causes[0]

    @property
    def place(self) -> Place:
        assert len(self.why.places) == 1
        return self.why.places[0]

    def lack(self, what: str, never: bool = False) -> Lack:
        return next(one for one in self.place.lacks if (one.what, one.never) == (what, never))

    @property
    def counts(self) -> dict[tuple[str, bool], tuple[int, int]]:
        """Nodes that fail each demand, and those that fail it alone."""
        return {(one.what, one.never): (one.nodes, one.alone) for one in self.place.lacks}

    @property
    def start(self) -> tuple[str, int]:
        """How it is known when it starts, and seconds from now (-1: it is not)."""
        start = self.why.start
        return start.basis, start.time - self.now if start.time else -1

    @property
    def options(self) -> set[str]:
        return {
            " ".join([*one.options, *(f"without {name}" for name in one.without)])
            for one in self.why.suggestions
        }


def try_out(build: Build, argv: tuple[str, ...], suggestion: Suggestion) -> None:
    """Submits the job as it is suggested instead, in the same world: it starts at once, on the
    nodes that were named."""
    kept = [word for word in argv if word.partition("=")[0] not in suggestion.without]
    world = build()
    job = world.sbatch(*kept, *suggestion.options)
    world.settle()
    ran = [one for one in world.records(job) if one.alloc]
    assert ran, f"{suggestion} does not start"
    assert ran[0].partition == suggestion.partition
    assert [part.node for part in ran[0].alloc] == expand(suggestion.nodes)
