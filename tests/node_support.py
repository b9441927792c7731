"""A real slurmd against a controller's end of the real wire, driven by the test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zmq
from waiting import PATIENCE, pause, until

from gsched.model import Job, JobSpec, JobState, NodeAlloc, Phase
from gsched.wire.codec import decode, encode
from gsched.wire.identity import Admission
from gsched.wire.keys import CONTROLLER, key_table, load_pair, make_keys
from gsched.wire.nodes import (
    AttemptReport,
    LaunchSpec,
    Order,
    Orders,
    Prepare,
    Register,
    Report,
    Reregister,
    ToController,
    Welcome,
)
from gsched.wire.sockets import ControllerSockets

CONF = """\
ClusterName=nodetest
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd.%n.pid
SlurmdLogFile={dir}/log/slurmd.%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
{plugins}
DefMemPerCPU=2000
GresTypes=gpu
KillWait=1
NvmlTopology={topology}
{extra}
NodeName=node1 CPUs={cpus} RealMemory=64000 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

WITHOUT_CGROUPS = "TaskPlugin=task/none\nProctrackType=proctrack/linuxproc"
WITH_CGROUPS = "TaskPlugin=task/cgroup\nProctrackType=proctrack/cgroup"


class NodeUnderTest:
    """One slurmd process and the controller's sockets, both real; the test is the controller."""

    def __init__(self, extra: str = "", *, cgroups: bool = False, cpus: int = 16) -> None:
        """`cpus`: with as many as the machine has, jobs are confined to theirs."""
        from slurmd_compat import fake_nvml

        self.dir = Path(tempfile.mkdtemp(prefix="gsched-node-"))
        self.dir.chmod(0o755)
        for name in ("etc", "run", "log", "work"):
            (self.dir / name).mkdir()
        keys = str(self.dir / "etc" / "keys")
        make_keys(keys, ["node1"])
        self._keys = keys
        self.port = 0
        self.sockets: ControllerSockets | None = None
        self.listen()
        self.conf = self.dir / "etc" / "slurm.conf"
        self.conf.write_text(
            CONF.format(
                port=self.port,
                user=os.getuid(),
                dir=self.dir,
                topology=fake_nvml.topology("peer"),
                extra=extra,
                cpus=cpus,
                plugins=WITH_CGROUPS if cgroups else WITHOUT_CGROUPS,
            )
        )
        (self.dir / "etc" / "cgroup.conf").write_text(
            f"ConstrainCores={'no' if cpus == 16 else 'yes'}\n"
            "ConstrainRAMSpace=yes\nConstrainDevices=yes\n"
        )
        (self.dir / "etc" / "gres.conf").write_text("AutoDetect=nvml\n")
        self.work = self.dir / "work"
        self.process: subprocess.Popen[bytes] | None = None
        self.epoch = 1
        self.registered: Register | None = None
        self.session = ""
        self.n = 0
        self.last: dict[tuple[int, int], AttemptReport] = {}
        self.history: list[Report] = []

    # -- the controller's end

    def listen(self) -> None:
        table, problems = key_table(self._keys)
        assert not problems
        self.sockets = ControllerSockets(Admission(frozenset({os.getuid()}), table))
        self.port = self.sockets.bind_nodes(
            "127.0.0.1", self.port, load_pair(self._keys, CONTROLLER)
        )
        self.poller = zmq.Poller()
        self.sockets.register(self.poller)

    def vanish(self) -> None:
        """The controller is gone."""
        assert self.sockets is not None
        self.sockets.close()
        self.sockets = None

    def pump(self, ms: int = 20) -> None:
        assert self.sockets is not None
        self.poller.poll(ms)
        self.sockets.admit()
        for received in self.sockets.receive(100):
            assert received.name == "node1"
            message: object = decode(ToController, received.payload)  # type: ignore[arg-type]
            if isinstance(message, Register):
                self.registered = message
                self.session = message.session
                self.n = 0
                self._take(message.attempts)
                self.sockets.send_node(
                    "node1", encode(Welcome(self.epoch, message.session, "uuid-1", heartbeat_s=1))
                )
            elif isinstance(message, Report):
                if message.session != self.session:
                    self.sockets.send_node("node1", encode(Reregister(self.epoch)))
                else:
                    self.history.append(message)
                    self._take(message.attempts)

    def _take(self, attempts: list[AttemptReport]) -> None:
        self.last = {(report.job_id, report.attempt): report for report in attempts}

    def order(self, *orders: Order) -> None:
        assert self.sockets is not None
        for order in orders:
            self.n += 1
            order.n = self.n
        self.sockets.send_node("node1", encode(Orders(self.epoch, self.session, list(orders))))

    def until(self, what: str, ready: Callable[[], object], patience: float = PATIENCE) -> None:
        between = pause if self.sockets is None else self.pump
        until(what, ready, patience, between=between, log=self.log)

    def phase(self, job_id: int, phase: Phase, attempt: int = 1) -> AttemptReport:
        """Waits until the node reports the phase."""

        def there() -> bool:
            report = self.last.get((job_id, attempt))
            return report is not None and report.phase >= phase

        self.until(f"job {job_id} {phase.name}", there)
        return self.last[job_id, attempt]

    # -- the node

    def start(self) -> None:
        with open(self.dir / "log" / "out", "ab") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "slurmd_compat.main"),
                    *("-D", "-f", str(self.conf), "-N", "node1"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        before = self.registered
        self.history.clear()
        # Its first report says that it has taken the welcome: the session stands.
        self.until(
            "a registration",
            lambda: (
                self.registered is not before
                and any(report.session == self.session for report in self.history)
            ),
        )

    def kill(self) -> None:
        """kill -9 of the daemon alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=10)

    def log(self) -> str:
        return (self.dir / "log" / "out").read_text(errors="replace")

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for status in self.dir.glob("spool/node1/job*/status"):
            pid = int(status.read_text().split()[2])
            children = Path(f"/proc/{pid}/task/{pid}/children")
            if children.exists():
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
        if self.sockets is not None:
            self.sockets.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    # -- jobs

    def launch(
        self,
        job_id: int,
        script: str,
        *,
        limit_s: int = 0,
        gpus: int = 0,
        attempt: int = 1,
        env: dict[str, str] | None = None,
        restarts: int = 0,
        user: pwd.struct_passwd | None = None,
        mem_mb: int = 2000,
        cpus: int = 1,
        **spec: object,
    ) -> LaunchSpec:
        fields = {"name": "test", "work_dir": str(self.work), **spec}
        job = Job(
            id=job_id,
            uid=user.pw_uid if user else os.getuid(),
            gid=user.pw_gid if user else os.getgid(),
            user=user.pw_name if user else pwd.getpwuid(os.getuid()).pw_name,
            group="root",
            spec=JobSpec(**fields),  # type: ignore[arg-type]
            state=JobState.RUNNING,
            partition="main",
            attempt=attempt,
            restarts=restarts,
            time_limit=limit_s,
            start_time=int(time.time()),
            alloc=[NodeAlloc("node1", cpus, 1, mem_mb, (1 << gpus) - 1, [(1 << cpus) - 1])],
        )
        assert self.registered is not None
        uuids = [gpu.uuid for gpu in self.registered.gpus[:gpus]]
        environment = {"PATH": os.environ["PATH"], **(env or {})}
        packed = b"\0".join(f"{n}={v}".encode() for n, v in environment.items())
        return LaunchSpec(job, 0, uuids, limit_s, script.encode(), packed, cluster_name="nodetest")

    def run(self, job_id: int, script: str, **options: object) -> None:
        launch = self.launch(job_id, script, **options)  # type: ignore[arg-type]
        self.order(Prepare(0, launch, go=True))

    def output(self, name: str) -> str:
        return (self.work / name).read_text()
