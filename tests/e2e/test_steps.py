"""Steps on one real node: requested over its socket, run by real supervisors, told to a client."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest
from node_support import NodeUnderTest
from step_support import Listener, a_job, ask, create, finished, socket_of
from waiting import until

from gsched.model import Phase
from gsched.model.step import BATCH_STEP, StepState
from gsched.wire.nodes import Kill
from gsched.wire.steps import NotTaken, StatSteps, Taken, Usages


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


def test_what_a_step_uses(node: NodeUnderTest, client: Listener) -> None:
    a_job(node, 103, cpus=2)
    hold = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ready; sleep 60"
    create(socket_of(node), client, 103, ["sh", "-c", hold], ntasks=2)
    until("both are ready", lambda: node.pump(1) or len(client.output()) == 2)
    answer = ask(socket_of(node), StatSteps(103, pids=True))
    assert isinstance(answer, Usages)
    batch, step = answer.steps
    assert (batch.step, batch.ntasks, batch.nodes) == (BATCH_STEP, 1, ["node1"])
    assert (step.step, step.name, step.ntasks, step.nodes) == (0, "sh", 2, ["node1"])
    # The string of 40 MB, twice while it is made, and little else.
    assert 38_000 < step.ave_rss_kb <= step.max_rss_kb < 200_000
    assert step.max_rss_node == "node1" and step.max_rss_task in (0, 1)
    assert step.read_max >= 40_000_000
    assert len(step.pids) >= 2
    for pid in step.pids:
        assert os.path.exists(f"/proc/{pid}")
    answer = ask(socket_of(node), StatSteps(103, [7]))
    assert answer == Usages([])
    answer = ask(socket_of(node), StatSteps(999))
    assert isinstance(answer, NotTaken) and answer.unknown
    node.order(Kill(0, 103, 1, "cancelled"))
    node.phase(103, Phase.RELEASED)


def test_the_daemon_dies_under_a_step(client: Listener) -> None:
    node = NodeUnderTest()
    node.start()
    try:
        a_job(node, 104, cpus=2)
        go = node.work / "go"
        script = f"while ! [ -e {go} ]; do sleep 0.05; done; echo done; exit 4"
        create(socket_of(node), client, 104, ["sh", "-c", script])
        waiting = Listener()
        create(socket_of(node), waiting, 104, ["sh", "-c", "echo mine"], ntasks=2)
        until("it waits", lambda: waiting.errors)
        node.kill()
        node.start()
        until("it calls again", lambda: len(client.control) == 2 and len(waiting.control) == 2)
        go.touch()
        assert finished(node, client) == 4
        assert client.output() == {0: b"done\n"}
        assert client.errors == ["srun: error: node1: task 0: Exited with exit code 4"]
        assert finished(node, waiting) == 0
        assert waiting.errors == [
            "srun: Job 104 step creation temporarily disabled, retrying (Requested nodes are busy)",
            "srun: Step created for StepId=104.1",
        ]
        waiting.close()
        node.order(Kill(0, 104, 1, "cancelled"))
        node.phase(104, Phase.RELEASED)
    finally:
        node.close()


def test_the_daemon_is_away_while_a_step_ends(client: Listener) -> None:
    node = NodeUnderTest()
    node.start()
    try:
        a_job(node, 105)
        go = node.work / "go"
        script = f"while ! [ -e {go} ]; do sleep 0.05; done; kill -9 $$"
        create(socket_of(node), client, 105, ["sh", "-c", script])
        until("it runs", lambda: client.data)
        node.kill()
        go.touch()
        time.sleep(0.3)
        node.start()
        assert finished(node, client) == 137
        assert "srun: error: node1: task 0: Killed" in client.errors
        node.order(Kill(0, 105, 1, "cancelled"))
        assert node.phase(105, Phase.RELEASED).steps[0].wstatus == 9
    finally:
        node.close()


def test_a_client_that_is_killed(node: NodeUnderTest) -> None:
    a_job(node, 106)
    client = Listener()
    create(socket_of(node), client, 106, ["sleep", "60"])
    until("it runs", lambda: client.data)
    client.close()
    second = Listener()
    create(socket_of(node), second, 106, ["true"])
    assert finished(node, second) == 0
    second.close()
    node.order(Kill(0, 106, 1, "cancelled"))
    report = node.phase(106, Phase.RELEASED)
    assert [step.state for step in report.steps] == [StepState.CANCELLED, StepState.COMPLETED]


def test_a_client_that_cannot_be_reached(node: NodeUnderTest) -> None:
    a_job(node, 107)
    client = Listener()
    client.close()
    create(socket_of(node), client, 107, ["sleep", "60"])
    node.until(
        "the step has ended",
        lambda: any(not step.running for step in node.last[107, 1].steps),
    )
    node.order(Kill(0, 107, 1, "cancelled"))


def test_hostile_clients_of_the_socket(node: NodeUnderTest, client: Listener) -> None:
    a_job(node, 108)
    path = socket_of(node)
    quiet = []
    for data in (b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\x03abc", b"\0\0\x10\0" + b"x" * 100):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        sock.sendall(data)
        quiet.append(sock)
    for _ in range(600):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        quiet.append(sock)
    create(path, client, 108, ["echo", "still there"])
    assert finished(node, client) == 0
    for sock in quiet:
        sock.close()
    node.order(Kill(0, 108, 1, "cancelled"))


def test_a_client_that_does_not_read(node: NodeUnderTest) -> None:
    """Its step goes on, others do not wait for it."""
    a_job(node, 109, cpus=2)
    slow = Listener()
    slow.close()
    sock = socket.create_server(("127.0.0.1", slow.callback.port))
    create(socket_of(node), slow, 109, ["sh", "-c", "yes | head -c 10000000"], exact=True)
    client = Listener()
    create(socket_of(node), client, 109, ["echo", "quick"], exact=True)
    assert finished(node, client) == 0
    client.close()
    sock.close()
    node.order(Kill(0, 109, 1, "cancelled"))
    node.phase(109, Phase.RELEASED)
