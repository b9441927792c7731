"""Cost of reading the configuration anew for a cluster with its jobs: the part of the ledger, which
holds up the controller's loop. Usage: bench/reconfigure.py [NODES] [JOBS]
"""

from __future__ import annotations

import sys
import time

from gsched.config import Config, parse_config
from gsched.ledger import Configure, Ledger, Meta, NodeMessage, TakeOver, Write
from gsched.model import Gpu, JobSpec, Shape
from gsched.wire.codec import PROTOCOL
from gsched.wire.messages import Call, SubmitJob
from gsched.wire.nodes import Register

CONF = """
ClusterName=bench
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=1000
MaxJobCount=1000000
NodeName=n[1-{nodes}] CPUs=64 RealMemory=512000 Gres=gpu:h100:8
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 State=UP
"""


def cluster(nodes: int, jobs: int) -> tuple[Ledger, Config]:
    """Registered nodes of eight GPUs on NVSwitch, and jobs of four shapes that wait."""
    config = parse_config({"slurm.conf": CONF.format(nodes=nodes)})
    led = Ledger(config, Meta("c1"))
    led.apply(TakeOver(), 1e6)
    for name in config.nodes:
        gpus = [
            Gpu(
                f"{name}-{i}",
                "h100",
                i,
                numa=i // 4,
                cores="0-31" if i < 4 else "32-63",
                links=[0 if i == j else 18 for j in range(8)],
            )
            for i in range(8)
        ]
        message = Register(PROTOCOL, name, "c1", "b1", f"{name}.1", 1, "t", 64, 512000, gpus, [])
        led.apply(NodeMessage(name, message), 1e6)
    for number in range(jobs):
        spec = JobSpec(shape=Shape(gpus_per_node=1 << number % 4), work_dir="/", time_limit=3600)
        call = Call(
            number.to_bytes(8, "big"), SubmitJob(spec, b"#!/bin/sh\n", b"", "u", "g"), 1000, 1000, 1
        )
        led.apply(Write(call), 1e6)
    return led, config


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    led, config = cluster(nodes, jobs)
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        led.apply(Configure(config), 1e6 + 1)
        took.append(time.perf_counter() - begun)
    print(f"{nodes} nodes, {len(led.jobs)} jobs: {min(took) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
