"""Steps on one real node: requested over its socket, run by real supervisors, told to a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_support import NodeUnderTest
from step_support import Listener, create, wait_for

from gsched.model import Phase
from gsched.model.step import StepState
from gsched.wire.messages import Kill
from gsched.wire.steps import NotTaken, Taken


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest()
    made.start()
    yield made
    made.close()


@pytest.fixture
def client() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def socket_of(node: NodeUnderTest) -> str:
    return str(node.dir / "run" / "slurmd.node1.sock")


def a_job(node: NodeUnderTest, job_id: int, **fields: object) -> None:
    node.run(job_id, "#!/bin/sh\nsleep 60\n", **fields)
    node.phase(job_id, Phase.RUNNING)


def finished(node: NodeUnderTest, client: Listener) -> int:
    wait_for(f"an exit code; {client.heard}", lambda: node.pump(1) or client.code is not None)
    assert client.code is not None
    return client.code


def test_two_tasks_say_who_they_are(node: NodeUnderTest, client: Listener) -> None:
    a_job(node, 101, cpus=2)
    argv = ["sh", "-c", "echo task $SLURM_PROCID of $SLURM_NTASKS in $SLURM_JOB_ID.$SLURM_STEP_ID"]
    answer = create(socket_of(node), client, 101, argv, ntasks=2)
    assert isinstance(answer, Taken) and answer.step == 0
    assert finished(node, client) == 0
    assert client.output() == {0: b"task 0 of 2 in 101.0\n", 1: b"task 1 of 2 in 101.0\n"}
    assert client.errors == []
    node.order(Kill(0, 101, 1, "cancelled"))
    report = node.phase(101, Phase.RELEASED)
    assert [(step.id, step.state, step.ntasks) for step in report.steps] == [
        (0, StepState.COMPLETED, 2)
    ]


def test_how_tasks_ended_is_said_as_srun_does(node: NodeUnderTest, client: Listener) -> None:
    a_job(node, 102, cpus=3)
    create(socket_of(node), client, 102, ["sh", "-c", "exit $SLURM_PROCID"], ntasks=3)
    assert finished(node, client) == 2
    assert client.errors == [
        "srun: error: node1: task 1: Exited with exit code 1",
        "srun: error: node1: task 2: Exited with exit code 2",
    ]
    second = Listener()
    create(socket_of(node), second, 102, ["sh", "-c", "kill -SEGV $$"], ntasks=2)
    assert finished(node, second) == 139
    assert second.errors == ["srun: error: node1: tasks 0-1: Segmentation fault"]
    third = Listener()
    create(socket_of(node), third, 102, ["sh", "-c", "kill -9 $$"])
    assert finished(node, third) == 137
    assert third.errors == [
        "srun: error: node1: task 0: Killed",
        "srun: Force Terminated StepId=102.2",
    ]
    second.close()
    third.close()
    node.order(Kill(0, 102, 1, "cancelled"))


def test_unknown_jobs_and_other_users(node: NodeUnderTest, client: Listener) -> None:
    answer = create(socket_of(node), client, 999, ["true"])
    assert isinstance(answer, NotTaken) and answer.unknown
    assert answer.message == (
        "error: Unable to confirm allocation for job 999: Invalid job id specified\n"
        "Check SLURM_JOB_ID environment variable. Expired or invalid job 999"
    )
