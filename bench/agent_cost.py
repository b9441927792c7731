"""What a job costs the node daemon: CPU of its thread from `prepare` to `forget`, real supervisor.

    python bench/agent_cost.py [JOBS] [VARIABLES]

The daemon runs in this process, with its journal, job directories, ZeroMQ link and a real stepd for
every job; the controller's end is a thread of its own, whose time is not counted, and neither is
that of the supervisors. Prints the median over batches of 50 jobs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import zmq

from gsched.config import load_config
from gsched.model import Job, JobSpec, JobState, NodeAlloc, Phase
from gsched.wire.codec import decode, encode
from gsched.wire.identity import Admission
from gsched.wire.keys import CONTROLLER, key_table, load_pair, make_keys
from gsched.wire.nodes import (
    Forget,
    LaunchSpec,
    Order,
    Orders,
    Prepare,
    Register,
    Report,
    ToController,
    Welcome,
)
from gsched.wire.sockets import ControllerSockets
from slurmd_compat.daemon import Daemon

BATCH = 50
#: jobs that run at once
WIDTH = 16

CONF = """\
ClusterName=bench
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
TaskPlugin=task/none
ProctrackType=proctrack/linuxproc
SlurmdParameters=config_overrides
NodeName=node1 CPUs=64 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Quiet:
    """A log that nobody reads."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Controller(threading.Thread):
    """Keeps WIDTH jobs on the node until all have run."""

    def __init__(self, sockets: ControllerSockets, jobs: int, environment: bytes, work: str):
        super().__init__(daemon=True)
        self.sockets = sockets
        self.jobs = jobs
        self.environment = environment
        self.work = work
        self.session = ""
        self.next_order = 0
        self.next_job = 1
        self.done: set[int] = set()
        self.marks: list[int] = []
        self.reports = 0

    def launch(self, job_id: int) -> LaunchSpec:
        job = Job(
            *(job_id, os.getuid(), os.getgid(), "root", "root"),
            JobSpec(name="bench", work_dir=self.work, std_out="/dev/null"),
            state=JobState.RUNNING,
            partition="main",
            attempt=1,
            time_limit=600,
            start_time=int(time.time()),
            alloc=[NodeAlloc("node1", 1, 1, 100)],
        )
        return LaunchSpec(job, 0, [], 600, b"#!/bin/sh\n", self.environment, "bench")

    def run(self) -> None:
        poller = zmq.Poller()
        self.sockets.register(poller)
        while len(self.done) < self.jobs:
            poller.poll(100)
            self.sockets.admit()
            for received in self.sockets.receive(100):
                message: Any = decode(ToController, received.payload)  # type: ignore[arg-type]
                orders: list[Order] = []
                held = 0
                if isinstance(message, Register):
                    self.session = message.session
                    self.next_order = 0
                    welcome = Welcome(1, message.session, "uuid", heartbeat_s=60)
                    self.sockets.send_node("node1", encode(welcome))
                elif isinstance(message, Report):
                    self.reports += 1
                    held = len(message.attempts)
                    for report in message.attempts:
                        if report.phase == Phase.RELEASED and report.job_id not in self.done:
                            assert report.wstatus == 0, report
                            self.done.add(report.job_id)
                            orders.append(Forget(0, report.job_id, 1))
                            held -= 1
                while self.next_job <= self.jobs and self.next_job - len(self.done) <= WIDTH:
                    orders.append(Prepare(0, self.launch(self.next_job), go=True))
                    self.next_job += 1
                for order in orders:
                    self.next_order += 1
                    order.n = self.next_order
                if orders:
                    frame = encode(Orders(1, self.session, orders))
                    self.sockets.send_node("node1", frame)


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    variables = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    base = Path(tempfile.mkdtemp(prefix="gsched-agent-cost-"))
    try:
        for name in ("etc", "run", "spool/node1"):
            (base / name).mkdir(parents=True)
        keys = str(base / "etc" / "keys")
        make_keys(keys, ["node1"])
        sockets = ControllerSockets(Admission(frozenset({os.getuid()}), key_table(keys)[0]))
        port = sockets.bind_nodes("127.0.0.1", 0, load_pair(keys, CONTROLLER))
        conf = base / "etc" / "slurm.conf"
        conf.write_text(CONF.format(port=port, dir=base))
        config = load_config(str(conf))
        environment = b"\0".join(b"VARIABLE_%d=%s" % (n, b"x" * 40) for n in range(variables))
        controller = Controller(sockets, jobs, environment, str(base))
        daemon = Daemon(config, "node1", base / "spool/node1", keys, Quiet())
        daemon.start()
        controller.start()
        costs: list[float] = []
        begun, count, cpu = time.monotonic(), 0, time.thread_time()
        while controller.is_alive():
            daemon.turn(min(100, daemon._timeout_ms()))
            done = len(controller.done)
            if done - count >= BATCH:
                now = time.thread_time()
                costs.append((now - cpu) / (done - count) * 1000)
                count, cpu = done, now
        wall = time.monotonic() - begun
        print(f"daemon CPU per job: median {statistics.median(costs):.2f} ms", end="")
        print(f" (best {min(costs):.2f}, worst {max(costs):.2f} over {len(costs)} batches)")
        print(f"{jobs} jobs of true, {WIDTH} at once: {jobs / wall:.0f} jobs/s,", end="")
        print(f" {controller.reports / jobs:.2f} reports per job")
        daemon.close()
        sockets.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
