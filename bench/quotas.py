"""What guarantees cost a pass: 100 accounts with guarantees on full nodes of 8 GPUs, as many jobs
waiting; before each pass some jobs end.

python bench/quotas.py [nodes [jobs [accounts]]]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time

from gsched.config import parse_config
from gsched.ledger import Ledger, Meta, NodeMessage, Outcome, Start, TakeOver, Write
from gsched.model import Gpu, JobSpec, JobState, Phase, Shape
from gsched.model.policy import ROOT, Account, Assoc, User
from gsched.scheduling import run_pass
from gsched.wire.codec import PROTOCOL
from gsched.wire.messages import Call, SubmitJob
from gsched.wire.nodes import AttemptReport, Kill, Prepare, Register, Report

CONF = """
ClusterName=bench
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=100
SlurmdTimeout=0
MaxJobCount=1000000
PriorityType=priority/basic
AccountingStorageEnforce=limits
AccountingStorageTRES=gres/gpu
NodeName=n[1-{nodes}] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=512000 Gres=gpu:h100:8
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00 State=UP
"""
#: what is guaranteed: nothing, GPUs, GPUs of which a part is not lent, whole nodes
WAYS: dict[str, dict[str, object]] = {
    "none": {},
    "gpus": {"guarantee": {"gres/gpu": 0}},
    "lent": {"guarantee": {"gres/gpu": 0}, "lend": {"gres/gpu": 0}},
    "nodes": {"guarantee": {"gres/gpu": 0}, "guarantee_unit": "node"},
}
#: jobs that end before each pass, and passes
ENDS, ROUNDS = 10, 40


class Site:
    def __init__(self, way: str, nodes: int, jobs: int, accounts: int) -> None:
        self.led = Ledger(parse_config({"slurm.conf": CONF.format(nodes=nodes)}), Meta("c1"))
        self.now = 1_000_000.0
        self.ids = itertools.count(1)
        self.complete = True
        self.apply(TakeOver())
        book = self.led.book
        for record in book.first:
            if not isinstance(record, Assoc) or record.id not in book.assocs:
                book.put(record)
        share = nodes // accounts * 8
        for k in range(accounts):
            fields = dict(WAYS[way])
            if fields:
                fields["guarantee"] = {"gres/gpu": share}
            if "lend" in fields:
                fields["lend"] = {"gres/gpu": share // 2}
            book.put(Account(f"a{k}"))
            book.put(Assoc(10 + k, f"a{k}", parent=ROOT, **fields))  # type: ignore[arg-type]
        book.put(User("ana", "a0"))
        for k in range(accounts):
            book.put(Assoc(1000 + k, f"a{k}", "ana"))
        links = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
        for name in self.led.config.nodes:
            gpus = [Gpu(f"{name}-{i}", "h100", i, links=links[i]) for i in range(8)]
            facts = Register(
                protocol=PROTOCOL, node=name, version="t", cpus=64, mem_mb=512000, cluster="c1",
                boot_id="b", session=name, epoch=1, gpus=gpus, attempts=[],
            )  # fmt: skip
            self.apply(NodeMessage(name, facts))
            self.report(name)
        # Half of the accounts come first and take all; then comes everybody.
        for number in range(jobs):
            self.submit(f"a{number % (accounts // 2)}")
        while self.turn()[2]:
            self.now += 1
        for number in range(jobs):
            self.submit(f"a{number % accounts}")
        # Until all that wait have been told why, and who has to make way has done so.
        while self.turn()[2] or not self.complete:
            self.now += 1

    def apply(self, command: object) -> Outcome:
        out = self.led.apply(command, self.now)  # type: ignore[arg-type]
        for node, orders in out.orders.items():
            for order in orders:
                job = self.led.jobs.get(getattr(order, "job_id", 0))
                if isinstance(order, Kill) and job is not None and job.alloc:
                    self.report(node, gone=job.id)
                elif isinstance(order, Prepare) and not order.go:
                    self.report(node)
        return out

    def report(self, name: str, gone: int = 0) -> None:
        live = self.led.live[name]
        said = []
        for job_id in self.led.parts[name]:
            job = self.led.jobs[job_id]
            phase = Phase.RELEASED if job_id == gone else Phase.RUNNING
            said.append(AttemptReport(job_id, job.attempt, phase, wstatus=0))
        message = Report(live.session, self.led.meta.epoch, live.last_order, said)
        self.apply(NodeMessage(name, message))

    def submit(self, account: str) -> None:
        spec = JobSpec(shape=Shape(gpus_per_node=8), account=account, time_limit=36000)
        request = next(self.ids).to_bytes(8, "big")
        write = SubmitJob(spec, b"#!/bin/sh\n", b"", "ana", "users")
        self.apply(Write(Call(request, write, 1000, 1000, 1, user="ana")))

    def turn(self) -> tuple[float, float, int]:
        """(CPU ms of the pass, of recording it, starts and jobs that make way)."""
        began = time.process_time()
        plan = run_pass(self.led, self.now)
        self.complete = plan.complete
        passed = time.process_time()
        self.apply(Start(plan))
        done = time.process_time()
        count = len(plan.starts) + len(plan.preemptions)
        return (passed - began) * 1e3, (done - passed) * 1e3, count

    def measure(self) -> tuple[list[float], list[float], int]:
        passes, records, count = [], [], 0
        for _ in range(ROUNDS):
            self.now += 1
            running = [j for j in self.led.jobs.values() if j.state == JobState.RUNNING][:ENDS]
            for job in running:
                self.report(job.alloc[0].node, gone=job.id)
            one, two, some = self.turn()
            passes.append(one)
            records.append(two)
            count += some
        return passes, records, count


def main() -> None:
    words = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    nodes, jobs, accounts = (*words, *(10_000, 10_000, 100)[len(words) :])
    for way in [word for word in sys.argv[1:] if word in WAYS] or WAYS:
        passes, records, count = Site(way, nodes, jobs, accounts).measure()
        print(
            f"{nodes} nodes, {accounts} accounts, {jobs} jobs run and wait, guarantee {way}: "
            "a pass takes CPUs for "
            f"{statistics.median(passes):.1f} ms (most {max(passes):.1f}), recorded in "
            f"{statistics.median(records):.1f} ms (most {max(records):.1f}), "
            f"{count} started or promised"
        )


if __name__ == "__main__":
    main()
