"""A small cluster for ledger tests: four peer-like nodes, played by hand."""

from __future__ import annotations

import itertools

from gsched.config import Config, parse_config
from gsched.ledger import Ledger, Meta, NodeMessage, Outcome, Start, TakeOver, Tick, Write
from gsched.ledger.invariants import check
from gsched.model import Gpu, Job, JobSpec, Phase, Shape, Verdict
from gsched.scheduling import run_pass
from gsched.wire.codec import PROTOCOL
from gsched.wire.messages import Call, Reply, SubmitJob
from gsched.wire.messages import Write as AnyWrite
from gsched.wire.nodes import AttemptReport, Order, Register, Report

CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=2000
KillWait=5
SlurmdTimeout=60
MinJobAge=300
ReturnToService=2
PriorityType=priority/basic
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=node[1-2] Feature=h100,rackA
NodeName=node[3-4] Feature=h100,rackB
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00 State=UP
PartitionName=debug Nodes=node1 MaxTime=30 DefaultTime=10 State=UP
"""


class Bench:
    """A ledger with its nodes registered; time moves only by `now`."""

    def __init__(self, conf: str = CONF, register: bool = True, topology: str = "") -> None:
        self.config: Config = parse_config({"slurm.conf": conf, "topology.conf": topology})
        self.led = Ledger(self.config, Meta("c1"))
        self.now = 1_000_000.0
        self._ids = itertools.count(1)
        self.sent: dict[str, list[Order]] = {}
        #: what was told to the view last, by table and key
        self.view: dict[object, object] = {}
        self.apply(TakeOver())
        if register:
            for name in self.config.nodes:
                self.register(name)

    def apply(self, command: object) -> Outcome:
        out = self.led.apply(command, self.now)  # type: ignore[arg-type]
        check(self.led)
        for job_id, reason in out.words.items():
            self.view["verdict", job_id.to_bytes(8, "big")] = Verdict(job_id, reason)
        self.view.update(out.view)
        for node, orders in out.orders.items():
            self.sent.setdefault(node, []).extend(orders)
        return out

    def register(
        self, name: str, attempts: list[AttemptReport] | None = None, **kw: object
    ) -> Outcome:
        gpus = [
            Gpu(f"{name}-{i}", "h100", i, links=[0 if i == j else 18 for j in range(8)])
            for i in range(8)
        ]
        facts: dict[str, object] = {
            "cluster": "c1",
            "boot_id": "b1",
            "session": f"{name}.{next(self._ids)}",
            "epoch": 1,
            "gpus": gpus,
        } | kw
        out = self.apply(
            NodeMessage(
                name,
                Register(
                    protocol=PROTOCOL,
                    node=name,
                    version="t",
                    cpus=16,
                    mem_mb=64000,
                    attempts=attempts or [],
                    **facts,  # type: ignore[arg-type]
                ),
            )
        )
        if self.led.live[name].session == facts["session"]:
            self.report(name, *(attempts or []))
        return out

    def report(self, name: str, *attempts: AttemptReport) -> Outcome:
        """A report that has seen everything sent so far."""
        live = self.led.live[name]
        return self.apply(
            NodeMessage(
                name, Report(live.session, self.led.meta.epoch, live.last_order, list(attempts))
            )
        )

    def write(
        self, write: AnyWrite, uid: int = 1000, request_id: bytes = b"", user: str = ""
    ) -> Reply:
        request_id = request_id or next(self._ids).to_bytes(8, "big")
        out = self.apply(Write(Call(request_id, write, uid, uid, 1, user=user)))
        return dict(out.answers)[request_id]

    def apply_write(self, write: AnyWrite, uid: int = 1000) -> Outcome:
        """What came of a request."""
        return self.apply(Write(Call(next(self._ids).to_bytes(8, "big"), write, uid, uid, 1)))

    def tick(self) -> Outcome:
        return self.apply(Tick())

    def submit(self, uid: int = 1000, **kw: object) -> Reply:
        shape = kw.pop("shape", Shape())
        spec = JobSpec(shape=shape, **kw)  # type: ignore[arg-type]
        return self.write(SubmitJob(spec, b"#!/bin/sh\ntrue\n", b"A=1", "user", "group"), uid)

    def job(self, **kw: object) -> Job:
        """Submits and returns the record."""
        return self.led.jobs[self.submit(**kw).value]  # type: ignore[union-attr]

    def schedule(self) -> Outcome:
        return self.apply(Start(run_pass(self.led, self.now)))

    def verdict(self, job: Job) -> str:
        """The reason word after the next pass: a verdict is told only when it changes."""
        self.schedule()
        verdict = self.view.get(("verdict", job.id.to_bytes(8, "big")))
        return verdict.reason if verdict is not None else ""  # type: ignore[union-attr]


def told(out: Outcome) -> dict[int, str]:
    """The reasons that an outcome tells, by job id."""
    own = {one.job_id: one.reason for one in out.view.values() if isinstance(one, Verdict)}
    assert not own.keys() & out.words.keys()
    return out.words | own


def at(job: Job, phase: Phase, **kw: object) -> AttemptReport:
    """What a node says of the job's present attempt."""
    return AttemptReport(job.id, job.attempt, phase, **kw)  # type: ignore[arg-type]
