"""1,000 simulated node agents in one process: what their reports cost the controller.

    python bench/agents.py [--nodes 1000] [--seconds 60] [--no-jobs]

The agents are the production ones (`slurmd_compat.agent`), each with a CURVE link of its own and a
running job on its 8 GPUs; only the supervisors of their steps are missing. CPU time of the
controller over `--seconds` of nothing but reports, in percent of a core.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from shutil import rmtree
from subprocess import Popen

import zmq
from sides import Row, load, process_s, report, rss_mb

from gsched import __version__
from gsched.client import Client, ControllerDown
from gsched.config import load_config, parse_config
from gsched.model import Gpu, JobSpec, JobState, NodeFlag, Shape
from gsched.wire.codec import PROTOCOL, decode, encode
from gsched.wire.keys import make_keys
from gsched.wire.messages import Done, JobQuery, NodeQuery, SubmitJob
from gsched.wire.nodes import Orders, Register, ToNode
from gsched.wire.sockets import dial_controller
from slurmd_compat.agent import (
    Agent,
    SendRegister,
    SendReport,
    SpawnStep,
    Started,
    Tick,
)

CONF = """\
ClusterName=agents
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
MaxJobCount=60000
NodeName={names} CPUs=128 Sockets=2 CoresPerSocket=64 RealMemory=1000000 \
Gres=gpu:h100:8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Simulated:
    """One agent at its link. Steps start at once and go on for ever."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], name: str, port: int, keys: str):
        self.sock = dial_controller(context, "127.0.0.1", port, keys, node=name)
        config = parse_config({"slurm.conf": "ClusterName=agents\nSlurmctldHost=localhost\n"})
        self.agent = Agent(name, "boot-" + name, "1", config)
        self.facts = Register(
            PROTOCOL, name, "", "", "", 0, __version__, 128, 1_000_000, gpus(name), [], 60,
            platform.machine(), "Linux",
        )  # fmt: skip
        self.carry_out(self.agent.restore(self.agent.identity, [], now_ms()))

    def turn(self, deaf: bool = False) -> None:
        while True:
            try:
                frames = self.sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = decode(ToNode, frames[-1])
            if not (deaf and isinstance(message, Orders)):
                self.carry_out(self.agent.apply(message, now_ms()))

    def tick(self) -> None:
        self.carry_out(self.agent.apply(Tick(), now_ms()))

    def carry_out(self, actions: list[object]) -> None:
        report = register = False
        todo = list(actions)
        while todo:
            action = todo.pop(0)
            if isinstance(action, SpawnStep):
                todo += self.agent.apply(Started(action.key), now_ms())
            report |= isinstance(action, SendReport)
            register |= isinstance(action, SendRegister)
        try:
            if register:
                message: object = self.agent.register_message(self.facts, now_ms())
                self.sock.send(encode(message), zmq.NOBLOCK)
            elif report and self.agent.session:
                message = self.agent.report_message(now_ms(), 12, 900_000)
                self.sock.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            pass  # there is no link yet: the agent tries again


def gpus(node: str) -> list[Gpu]:
    """Eight GPUs joined by one switch, as a DGX reports them."""
    links = [0 if n == m else 18 for n in range(8) for m in range(8)]
    rows = [links[8 * n : 8 * n + 8] for n in range(8)]
    return [
        Gpu(
            f"GPU-{node}-{n}",
            "h100",
            n,
            n // 4,
            "0-63" if n < 4 else "64-127",
            rows[n],
            81559,
            "NVIDIA H100 80GB HBM3",
            f"0000:{n:02x}:00.0",
        )
        for n in range(8)
    ]


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def agents_main(names: list[str], port: int, keys: str, stop: Event, deaf: bool) -> None:
    """All agents, one loop. Deaf ones report, but do nothing that they are told."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4 * len(names) + 64)
    poller = zmq.Poller()
    by_sock = {}
    for number, name in enumerate(names):
        one = Simulated(context, name, port, keys)
        by_sock[one.sock] = one
        poller.register(one.sock, zmq.POLLIN)
        if number % 50 == 49:
            time.sleep(0.05)
    everyone = list(by_sock.values())
    spread = {one: now_ms() + 10_000 * n // len(everyone) for n, one in enumerate(everyone)}
    while not stop.is_set():
        for sock, _ in poller.poll(20):
            by_sock[sock].turn(deaf)
        now = now_ms()
        for one in everyone:
            if now >= one.agent.wake_at():
                one.tick()
            elif one.agent.session and now >= spread.get(one, now + 1):
                # They all registered within two seconds: spread the reports over ten.
                del spread[one]
                one.carry_out([SendReport()])
    for sock in by_sock:
        sock.close(linger=0)
    context.term()


@contextlib.contextmanager
def cluster(nodes: int, *, deaf: bool = False) -> Iterator[tuple[Client, list[int]]]:
    """A controller, a frontend and so many agents, all up: a client, and the processes' ids."""
    directory = Path(tempfile.mkdtemp(prefix="bench-agents-"))
    started: list[Popen[bytes]] = []
    stop = multiprocessing.Event()
    agents = None
    try:
        names = [f"n{n:04d}" for n in range(1, nodes + 1)]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for name in ("etc", "run", "log"):
            (directory / name).mkdir()
        conf = directory / "etc" / "slurm.conf"
        conf.write_text(
            CONF.format(port=port, user=os.getuid(), dir=directory, names=f"n[0001-{nodes:04d}]")
        )
        keys = str(directory / "etc" / "keys")
        make_keys(keys, names)
        for module in ("gsched.controller.main", "gsched.frontend.main"):
            with open(directory / "log" / "out", "ab") as out:
                argv = [sys.executable, "-P", "-m", module, "-D", "-f", str(conf)]
                started.append(Popen(argv, stdout=out, stderr=out))
        client = Client(load_config(str(conf)).frontend_socket)
        wait("the controller", lambda: answers(client))
        agents = multiprocessing.Process(target=agents_main, args=(names, port, keys, stop, deaf))
        began = time.monotonic()
        before = process_s(started[0].pid)
        agents.start()
        wait("all agents", lambda: up(client) == nodes, 120)
        print(
            f"{nodes} agents registered in {time.monotonic() - began:.1f} s, "
            f"{process_s(started[0].pid) - before:.2f} s of the controller's CPU; {load()}",
            flush=True,
        )
        yield client, [process.pid for process in started]
    finally:
        stop.set()
        if agents is not None:
            agents.join(10)
            agents.kill()
        for process in reversed(started):
            process.terminate()
            process.wait()
        rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--no-jobs", action="store_true")
    options = parser.parse_args()
    with cluster(options.nodes) as (client, (controller, *_)):
        if not options.no_jobs:
            before = process_s(controller)
            spec = JobSpec(shape=Shape(gpus_per_node=8, mem_per_node=1000), time_limit=86400)
            write = SubmitJob(spec, b"#!/bin/sh\nsleep 86400\n", b"PATH=/usr/bin\0")
            replies = client.call_many([write] * options.nodes)
            assert all(isinstance(reply, Done) for reply in replies), replies[0]
            wait("all jobs to run", lambda: running(client) == options.nodes, 120)
            print(f"{options.nodes} jobs started: {process_s(controller) - before:.2f} s of CPU")
        # The spread of the reports has settled when every agent has reported once more.
        time.sleep(15)
        cpu, began = process_s(controller), time.monotonic()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        percent = 100 * (process_s(controller) - cpu) / took
        each = 1e6 * (process_s(controller) - cpu) / (options.nodes * took / 10)
        alive = up(client)
        print(
            f"{took:.0f} s of reports: controller at {percent:.2f} % of a core, some {each:.0f} us "
            f"a report, {rss_mb(controller):.0f} MB; {alive} agents up at the end; {load()}"
        )
        assert alive == options.nodes, "some agents were lost"
        what = f"{options.nodes} node agents, a report every 10 s: controller, % of a core"
        report([Row(what, f"{percent:.2f}", "", "", "< 5")])


def wait(what: str, ready: object, patience: float = 30) -> None:
    until = time.monotonic() + patience
    while not ready():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {patience:g} s")
        time.sleep(0.1)


def answers(client: Client) -> bool:
    try:
        return client.status().controller_up
    except ControllerDown:
        return False


def up(client: Client) -> int:
    down = NodeFlag.UNKNOWN | NodeFlag.NOT_RESPONDING | NodeFlag.DOWN
    return sum(not node.flags & down for node in client.nodes(NodeQuery()).nodes)


def running(client: Client) -> int:
    jobs = client.jobs(JobQuery(active_only=True)).jobs
    return sum(job.state == JobState.RUNNING and not job.configuring for job in jobs)


if __name__ == "__main__":
    main()
