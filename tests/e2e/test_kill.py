"""kill -9 of any daemon at any moment: no acknowledged job is lost, none runs twice.

GSCHED_KILL_ROUNDS says how many rounds (default 5), GSCHED_KILL_SEED where the series starts,
GSCHED_KILL_SHAPE which nodes (peer: without control groups). A round that fails names its seed; the
moments are random in real time, so the seed narrows the search and does not repeat the history.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.client import Client, ControllerDown
from gsched.local.daemons import Process
from gsched.model import JobSpec, JobState, Shape
from gsched.wire.messages import Done, JobQuery, SubmitJob

ROUNDS = int(os.environ.get("GSCHED_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("GSCHED_KILL_SEED", "1"))
SHAPE = os.environ.get("GSCHED_KILL_SHAPE", "dgx-h100")
JOBS = 30
VICTIMS = ("slurmctld", "frontend", "worker", "node", "all")


class Submitter(threading.Thread):
    """A user who submits jobs without a pause and asks again until each is acknowledged."""

    def __init__(self, cluster: LocalCluster, rng: random.Random, tag: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.rng, self.tag = cluster, rng, tag
        #: job id -> (label, exit code)
        self.acknowledged: dict[int, tuple[str, int]] = {}
        self.problem = ""

    def spec(self, label: str, nodes: int) -> JobSpec:
        return JobSpec(
            name=label,
            shape=Shape(min_nodes=nodes, max_nodes=nodes, nodes_set=nodes > 1, gpus_per_node=1),
            tres={"per_node": "gres/gpu:1"},
            time_limit=600,
            work_dir=str(self.cluster.work),
            std_out="/dev/null",
        )

    def script(self, label: str, code: int) -> bytes:
        work, nap = self.cluster.work, self.rng.uniform(0.1, 1.0)
        # The lock of a GPU is held until the last process of the job is gone.
        return (
            "#!/bin/bash\n"
            f"exec 9>{work}/gpu.$SLURMD_NODENAME.$SLURM_JOB_GPUS\n"
            f'flock -n 9 || echo "{label} $SLURMD_NODENAME $SLURM_JOB_GPUS" >> {work}/clashes\n'
            f'echo "$SLURM_JOB_ID {label}" >> {work}/ran.{self.tag}\n'
            f"sleep {nap:.2f}\nexit {code}\n"
        ).encode()

    def run(self) -> None:
        try:
            self.submit_all()
        except Exception as problem:
            self.problem = f"{type(problem).__name__}: {problem}"

    def submit_all(self) -> None:
        names = self.cluster.env()
        environment = "\0".join(f"{key}={value}" for key, value in names.items()).encode()
        client = Client(self.cluster.socket)
        end = time.monotonic() + 60
        for index in range(JOBS):
            label, code = f"{self.tag}-{index}", self.rng.choice((0, 0, 1, 7, 42))
            nodes = 2 if self.rng.random() < 0.15 else 1
            write = SubmitJob(
                self.spec(label, nodes),
                self.script(label, code),
                environment,
                user=names["USER"],
                group=names["USER"],
            )
            request = self.rng.randbytes(16)
            while True:
                try:
                    reply = client.call(write, request)
                except ControllerDown:
                    reply = None
                if isinstance(reply, Done):
                    break
                if reply is not None and not reply.temporary:
                    raise AssertionError(f"{label} was refused: {reply.message}")
                if time.monotonic() > end:
                    raise AssertionError(f"{label} was not acknowledged within a minute")
                time.sleep(0.05)
            assert reply.value not in self.acknowledged, f"job id {reply.value} was given twice"
            self.acknowledged[reply.value] = (label, code)
            time.sleep(self.rng.uniform(0, 0.06))


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill(cluster: LocalCluster, victim: str, rng: random.Random) -> str:
    """SIGKILL to a kind of victim; says which."""
    disk = cluster.on_disk
    if victim == "node":
        daemons = [rng.choice(disk.nodes())]
    elif victim == "all":
        daemons = disk.all()
        rng.shuffle(daemons)
    else:
        daemons = [disk.controller() if victim == "slurmctld" else disk.frontend()]
    hit = []
    for daemon in daemons:
        process: Process | None = disk.find(daemon)
        if process is None:
            continue
        pid = process.pid
        if victim == "worker":
            pid = rng.choice(children(pid) or [pid])
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        hit.append(daemon.name if victim != "worker" else "a frontend worker")
    return ", ".join(hit) or f"nobody ({victim} was dead)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = ["--simulate", SHAPE, "--set", "MinJobAge=3600", "--set", "KillWait=2"]
    with LocalCluster(*options) as made:
        yield made


@pytest.mark.parametrize("number", range(SEED, SEED + ROUNDS))
def test_nothing_is_lost_and_nothing_runs_twice(cluster: LocalCluster, number: int) -> None:
    rng = random.Random(number)
    tag = f"r{number}"
    history: list[str] = []
    began = time.monotonic()

    def note(text: str) -> None:
        history.append(f"{time.monotonic() - began:6.2f} {text}")

    submitter = Submitter(cluster, random.Random(number + 1_000_000), tag)
    submitter.start()
    for _ in range(2):
        time.sleep(rng.uniform(0.05, 1.2))
        note(f"killed {kill(cluster, rng.choice(VICTIMS), rng)}")
        if rng.random() < 0.5:
            # Again, while it is coming up.
            up = subprocess.Popen(
                [BIN / "gsched", "up", "-q", "--dir", cluster.dir],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            time.sleep(rng.uniform(0.3, 1.5))
            note(f"killed {kill(cluster, rng.choice(VICTIMS), rng)} during up")
            up.communicate(timeout=90)
        cluster.gsched("up", "-q")
        note("up")
    submitter.join(timeout=90)
    report = "\n".join([f"seed {number}", *history])
    assert not submitter.is_alive(), f"the submitter hangs\n{report}\n{cluster.logs()}"
    assert not submitter.problem, f"{submitter.problem}\n{report}\n{cluster.logs()}"
    acknowledged = submitter.acknowledged
    assert len(acknowledged) == JOBS

    with Client(cluster.socket) as client:

        def all_ended() -> bool:
            rows = client.jobs(JobQuery(ids=list(acknowledged)))
            return len(rows.jobs) == JOBS and all(
                job.finished and not job.completing for job in rows.jobs
            )

        try:
            until("all jobs have ended", all_ended, 40)
        except AssertionError as problem:
            rows = client.jobs(JobQuery(ids=list(acknowledged)))
            left = [
                f"{job.id} {job.spec.name} {job.state.name} completing={job.completing} "
                f"attempt={job.attempt} {job.alloc} {rows.verdicts.get(job.id)}"
                for job in rows.jobs
                if not job.finished or job.completing
            ]
            gone = sorted(set(acknowledged) - {job.id for job in rows.jobs})
            raise AssertionError(
                f"{problem}\n{report}\nlost: {gone}\n" + "\n".join(left) + "\n" + cluster.logs()
            ) from None
        jobs = {job.id: job for job in client.jobs(JobQuery(ids=list(acknowledged))).jobs}
        strangers = [
            job.id
            for job in client.jobs(JobQuery()).jobs
            if job.spec.name.startswith(f"{tag}-") and job.id not in acknowledged
        ]
    note("all ended")

    report = "\n".join([f"seed {number}", *history])
    assert strangers == [], f"jobs that nobody was told of\n{report}"
    ran = sorted((cluster.work / f"ran.{tag}").read_text().splitlines())
    expected = sorted(f"{job_id} {label}" for job_id, (label, _) in acknowledged.items())
    assert ran == expected, f"lost or run twice\n{report}\n{cluster.logs()}"
    wrong = {
        job_id: (jobs[job_id].state.name, jobs[job_id].wstatus, code << 8)
        for job_id, (_, code) in acknowledged.items()
        if jobs[job_id].wstatus != code << 8
        or jobs[job_id].state is not (JobState.FAILED if code else JobState.COMPLETED)
    }
    assert wrong == {}, f"{report}\n{cluster.logs()}"
    assert not (cluster.work / "clashes").exists(), (
        f"a GPU was given out twice: {(cluster.work / 'clashes').read_text()}\n{report}"
    )
