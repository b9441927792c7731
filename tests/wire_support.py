"""A controller and its frontend as real processes, without node daemons: for tests of the wire."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from waiting import until

from gsched.client import Client, ControllerDown
from gsched.model import JobSpec, Shape
from gsched.wire.keys import make_keys
from gsched.wire.messages import SubmitJob

CONF = """\
ClusterName=wire
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
MaxJobCount=1000000
MinJobAge=300
{extra}
NodeName=node[1-4] CPUs=16 RealMemory=64000 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Daemons:
    """A cluster without nodes in a directory that every user can reach."""

    def __init__(self, extra: str = "") -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="gsched-wire-"))
        self.dir.chmod(0o755)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        for name in ("etc", "run", "log"):
            (self.dir / name).mkdir()
        self.conf = self.dir / "etc" / "slurm.conf"
        self.conf.write_text(
            CONF.format(port=self.port, user=os.getuid(), dir=self.dir, extra=extra)
        )
        self.keys = str(self.dir / "etc" / "keys")
        make_keys(self.keys, [f"node{n}" for n in range(1, 5)])
        self.socket = str(self.dir / "run" / "frontend.sock")
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        with open(self.dir / "log" / "out", "ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, "-D", "-f", str(self.conf), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.running.append(process)
        return process

    def controller(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a controller; returns when it answers or has ended."""
        process = self.start("gsched.controller.main", *options)
        pid = self.dir / "run" / "slurmctld.pid"
        until(
            "controller",
            lambda: (
                process.poll() is not None
                or (pid.exists() and pid.read_text().strip() == str(process.pid))
            ),
        )
        return process

    def frontend(self) -> subprocess.Popen[bytes]:
        """Starts a frontend; returns when it serves."""
        process = self.start("gsched.frontend")

        def serves() -> bool:
            if process.poll() is not None:
                return True
            try:
                with self.client() as client:
                    return client.status().controller_up and bool(self.workers(process.pid))
            except ControllerDown:
                return False

        until("frontend", serves)
        return process

    def workers(self, parent: int) -> list[int]:
        """Pids of a frontend's workers for typed requests."""
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        typed = b"gsched.frontend.worker"
        return [
            pid
            for pid in map(int, text.split())
            if typed in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def client(self) -> Client:
        return Client(self.socket, slurm_conf=str(self.conf))

    def logged(self, pattern: str) -> str:
        """The last match of a pattern's first group in the controller's log; "" none."""
        found = re.findall(pattern, (self.dir / "log" / "slurmctld.log").read_text())
        return found[-1] if found else ""

    def close(self) -> None:
        """Ends what was started here, and removes the directory."""
        orphans = []
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                orphans.append(process)
                process.kill()
                process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not orphans, "a daemon did not end on SIGTERM"


def a_job(name: str = "job", script: bytes = b"#!/bin/sh\ntrue\n", **shape: int) -> SubmitJob:
    """A submission that this cluster takes."""
    return SubmitJob(JobSpec(name=name, shape=Shape(**shape)), script, b"A=1\0B=2\0")
