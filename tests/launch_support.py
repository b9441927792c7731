"""srun, salloc, sattach and sbcast in-process: a cluster that remembers what it was asked, an agent
behind a real socket, and a client that keeps its plan."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from sbatch_support import CONFIG, FakeCluster

from gsched.wire.codec import decode, encode
from gsched.wire.framing import ConnectionClosed, frame, recv_frame
from gsched.wire.messages import AskAgent, Done, FirstLook, Refused, Reply, Write
from gsched.wire.steps import (
    AttachStep,
    Behalf,
    CreateStep,
    FromAgent,
    Interactive,
    NotTaken,
    Taken,
    ToAgent,
)
from gsched_cli import salloc as salloc_command
from gsched_cli import sattach as sattach_command
from gsched_cli import sbcast as sbcast_command
from gsched_cli import srun as srun_command
from gsched_cli.common import OwnFiles, Streams
from gsched_cli.process import Process

SECRET = bytes(range(32))
COMMANDS = {
    "srun": srun_command.run,
    "salloc": salloc_command.run,
    "sattach": sattach_command.run,
    "sbcast": sbcast_command.run,
}


@dataclass
class LaunchCluster(FakeCluster):
    """Answers submissions as the controller does, and passes questions on to an agent."""

    look: FirstLook = field(default_factory=lambda: FirstLook(True))
    #: what the agent that leads says, when it is asked through the controller
    relayed: FromAgent | Refused | None = None
    asked: list[AskAgent] = field(default_factory=list)
    first_id: int = 1

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        if isinstance(write, AskAgent):
            self.asked.append(write)
            if self.relayed is None or isinstance(self.relayed, Refused):
                return self.relayed or Refused(
                    b"", "Invalid job id specified", "ESLURM_INVALID_JOB_ID"
                )
            return Done(b"", 1, blob=encode(self.relayed))
        reply = super().call(write, request_id)
        if isinstance(reply, Done) and not reply.data:
            reply.value += self.first_id - 1
            reply.data = msgspec.json.encode(self.look).decode()
        return reply


class FakeAgent:
    """Listens where the agent of a node does, and gives the answers it was told to."""

    def __init__(self, path: str, answers: list[FromAgent]) -> None:
        self.heard: list[ToAgent] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                try:
                    while True:
                        said = decode(ToAgent, recv_frame(sock))
                        self.heard.append(said)
                        if not isinstance(said, Behalf):
                            sock.sendall(frame(encode(self._answers.pop(0))))
                            break
                except (OSError, ConnectionClosed):
                    continue

    def close(self) -> None:
        self._listener.close()


class KeptPlan:
    """The client that stays."""

    def __init__(self, behalf: tuple[int, int, int] | None = (1000, 1000, 77)) -> None:
        self.behalf = behalf
        self.plan: bytes | None = None

    def listening(self, ports: str = "") -> tuple[int, bytes]:
        return 40404, SECRET

    def follow(self, plan: bytes) -> int:
        self.plan = plan
        return 0


@dataclass
class Launched:
    """What one run did."""

    code: int
    out: str
    err: str
    cluster: LaunchCluster
    mover: KeptPlan

    @property
    def records(self) -> list[tuple[str, str]]:
        """The plan; fails the test when there was none."""
        assert self.mover.plan is not None, (self.code, self.out, self.err)
        assert self.mover.plan.endswith(b"\0")
        items = self.mover.plan[:-1].decode("utf-8", "surrogateescape").split("\0")
        return [(name, value) for name, _, value in (item.partition("=") for item in items)]

    @property
    def plan(self) -> dict[str, str]:
        return dict(self.records)

    @property
    def interactive(self) -> Interactive:
        assert len(self.cluster.submitted) == 1, (self.code, self.out, self.err)
        found: Interactive = decode(Interactive, self.cluster.submitted[0].script)
        return found

    @property
    def created(self) -> CreateStep:
        """What went through the controller to the agent."""
        assert len(self.cluster.asked) == 1, (self.code, self.out, self.err)
        found = decode(ToAgent, self.cluster.asked[0].payload)
        assert isinstance(found, CreateStep)
        return found


def launch(
    name: str,
    *argv: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = "/work dir",
    cluster: LaunchCluster | None = None,
    mover: KeptPlan | None = None,
    terminal: bool | None = None,
    window: tuple[int, int] = (0, 0),
) -> Launched:
    """Runs one of the commands in this process, as alice on the host login1."""
    cluster = cluster or LaunchCluster()
    mover = mover or KeptPlan()
    process = Process(
        umask=0o027,
        sid=4711,
        host="login1",
        user="alice",
        group="users",
        soft_limit={"NOFILE": 1024}.get,
        sleep=lambda seconds: None,
        mover=mover,
        terminal=terminal,
        window=window,
    )
    out, err = io.StringIO(), io.StringIO()
    streams = Streams(io.TextIOWrapper(io.BytesIO()), out, err, OwnFiles())
    code = COMMANDS[name](list(argv), dict(env or {}), str(cwd), streams, cluster, process)
    return Launched(code, out.getvalue(), err.getvalue(), cluster, mover)


def srun(*argv: str, **more: object) -> Launched:
    return launch("srun", *argv, **more)  # type: ignore[arg-type]


def step(*argv: str, env: Mapping[str, str] | None = None, **more: object) -> Launched:
    """srun inside job 17, whose agent is elsewhere and takes the step as number 3."""
    cluster = LaunchCluster(relayed=Taken(b"", 3))
    inside = {"SLURM_JOB_ID": "17", **(env or {})}
    return launch("srun", *argv, env=inside, cluster=cluster, **more)  # type: ignore[arg-type]


def salloc(*argv: str, **more: object) -> Launched:
    return launch("salloc", *argv, **more)  # type: ignore[arg-type]


__all__ = [
    "CONFIG",
    "SECRET",
    "AttachStep",
    "FakeAgent",
    "KeptPlan",
    "LaunchCluster",
    "NotTaken",
    "launch",
    "os",
    "salloc",
    "srun",
    "step",
]
