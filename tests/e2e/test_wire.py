"""Clients, frontends and the controller as real processes: durable, once, and nobody forged."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import zmq
from wire_support import Daemons, a_job, until

from gsched.client import Client, RequestRefused
from gsched.model import Gpu
from gsched.wire.codec import PROTOCOL, decode, encode
from gsched.wire.framing import ConnectionClosed, recv_frame, send_frame
from gsched.wire.messages import (
    BlobQuery,
    Call,
    CancelJobs,
    Done,
    FromFrontend,
    JobQuery,
    NodeQuery,
    Ping,
    Refused,
)
from gsched.wire.nodes import Orders, Prepare, Register, Report, ToNode, Welcome
from gsched.wire.sockets import dial_controller

CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    made = Daemons()
    yield made
    made.close()


@pytest.fixture(scope="module")
def steady() -> Iterator[Daemons]:
    """Daemons that no test ends."""
    made = Daemons()
    made.controller()
    made.frontend()
    yield made
    made.close()


def job_ids(client: Client) -> list[int]:
    return [job.id for job in client.jobs(JobQuery()).jobs]


def test_submissions_survive_a_killed_controller(daemons: Daemons) -> None:
    controller = daemons.controller()
    daemons.frontend()
    with daemons.client() as client:
        request_id = os.urandom(16)
        first = client.call(a_job(), request_id)
        assert isinstance(first, Done) and first.value == 1
        # Its own write is seen by the next read.
        assert job_ids(client) == [1]
        controller.kill()
        controller.wait()
        # Reads go on; writes are refused in Slurm's words, soon.
        assert job_ids(client) == [1]
        began = time.monotonic()
        refused = client.call(a_job())
        assert isinstance(refused, Refused)
        assert (refused.message, refused.temporary) == (CONNECT_FAILURE, True)
        assert time.monotonic() - began < 5
        until("seen as down", lambda: not client.status().controller_up)
        daemons.controller()
        until("seen as up", lambda: client.status().controller_up)
        again = client.call(a_job(), request_id)
        assert isinstance(again, Done) and again.value == 1
        second = client.call(a_job())
        assert isinstance(second, Done) and second.value == 2
        assert job_ids(client) == [1, 2]
        assert client.status().epoch == 2


def test_kill_in_the_middle_of_many(daemons: Daemons) -> None:
    """Whatever is answered is there, whatever is repeated is there once."""
    controller = daemons.controller()
    daemons.frontend()
    ids = [os.urandom(16) for _ in range(600)]
    with daemons.client() as client:
        pid = os.fork()
        if pid == 0:
            time.sleep(0.15)
            os.kill(controller.pid, signal.SIGKILL)
            os._exit(0)
        replies = client.call_many([a_job() for _ in ids], ids)
        os.waitpid(pid, 0)
        controller.wait()
        done = {r.value for r in replies if isinstance(r, Done)}
        assert all(r.temporary for r in replies if isinstance(r, Refused))
        daemons.controller()
        until("up", lambda: client.status().controller_up)
        assert done <= set(job_ids(client))
        again = client.call_many([a_job() for _ in ids], ids)
        assert [r.value for r in again if isinstance(r, Done)] and len(again) == 600
        for before, after in zip(replies, again, strict=True):
            assert isinstance(after, Done)
            assert not isinstance(before, Done) or before.value == after.value
        assert sorted(r.value for r in again if isinstance(r, Done)) == job_ids(client)
        assert len(job_ids(client)) == 600


def test_killed_workers_are_replaced_and_nothing_doubled(daemons: Daemons) -> None:
    daemons.controller()
    parent = daemons.frontend()
    ids = [os.urandom(16) for _ in range(2000)]
    with daemons.client() as client:
        workers = daemons.workers(parent.pid)
        assert len(workers) == 2
        pid = os.fork()
        if pid == 0:
            for worker in workers:
                time.sleep(0.05)
                os.kill(worker, signal.SIGKILL)
            os._exit(0)
        replies = client.call_many([a_job() for _ in ids], ids)
        os.waitpid(pid, 0)
        values = [r.value for r in replies if isinstance(r, Done)]
        assert sorted(values) == list(range(1, 2001)) == job_ids(client)
    until("two workers", lambda: len(set(daemons.workers(parent.pid)) - set(workers)) == 2)


def test_commands_that_come_together_share_a_commit(daemons: Daemons) -> None:
    controller = daemons.controller()
    daemons.frontend()
    with daemons.client() as client:
        client.call_many([a_job() for _ in range(1000)])
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(10) == 0
    assert int(daemons.logged(r"commits=(\d+)")) < 500


def test_frontend_parent_can_be_replaced(daemons: Daemons) -> None:
    daemons.controller()
    first = daemons.frontend()
    orphans = daemons.workers(first.pid)
    first.kill()
    first.wait()
    with daemons.client() as client:
        # Its workers go on for a while.
        assert isinstance(client.call(Ping()), Done)
        second = daemons.frontend()
        assert second.poll() is None
        # A connection to an old worker still gets its answer, or the client finds a new one.
        assert isinstance(client.call(Ping()), Done)
    until("old workers gone", lambda: not any(os.path.exists(f"/proc/{p}") for p in orphans))
    with daemons.client() as client:
        assert isinstance(client.call(Ping()), Done)
    third = daemons.start("gsched.frontend")
    assert third.wait(10) == 1


def test_second_controller_is_refused(daemons: Daemons) -> None:
    first = daemons.controller()
    daemons.frontend()
    second = daemons.start("gsched.controller.main")
    assert second.wait(10) == 1
    assert f"in use by process {first.pid}" in (daemons.dir / "log" / "out").read_text()
    with daemons.client() as client:
        assert isinstance(client.call(Ping()), Done)
    pid_file = daemons.dir / "run" / "slurmctld.pid"
    assert pid_file.read_text() == f"{first.pid}\n"


def as_nobody(action: Callable[[], object]) -> object:
    """Runs `action` in a process of uid and gid 65534; its result comes back as JSON."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(writes, json.dumps(action()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)


@pytest.mark.root
def test_nobody_can_speak_for_another(steady: Daemons) -> None:
    with steady.client() as client:
        mine = client.call(a_job("roots", b"#!/bin/sh\nsecret\n"))
        assert isinstance(mine, Done)

    def attack() -> object:
        found: list[object] = []
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(steady.socket)
            # The call itself claims to be root's.
            send_frame(raw, encode(Call(b"forged request", a_job("forged"), uid=0, gid=0, pid=1)))
            answer = decode(FromFrontend, recv_frame(raw))
            assert isinstance(answer, Done)
            found.append(answer.value)
        with steady.client() as client:
            cancel = client.call(CancelJobs([str(mine.value)]))
            found.append([type(cancel).__name__, [e[0] for e in getattr(cancel, "errors", [])]])
            try:
                client.blob(BlobQuery(mine.value, "script"))
            except RequestRefused as refusal:
                found.append(str(refusal))
            found.append(client.blob(BlobQuery(found[0], "script")).decode())
        # The controller's own socket is closed to users.
        with socket.socket(socket.AF_UNIX) as raw:
            try:
                raw.connect(str(steady.dir / "run" / "ctl.sock"))
                found.append("connected")
            except PermissionError:
                found.append("denied")
        return found

    forged, cancelled, denied, own, control = as_nobody(attack)  # type: ignore[misc]
    assert denied == "Invalid user id"
    assert own == "#!/bin/sh\ntrue\n"
    assert control == "denied"
    assert cancelled[0] == "Refused" or cancelled[1] != []
    with steady.client() as client:
        jobs = {job.id: job for job in client.jobs(JobQuery()).jobs}
        assert (jobs[forged].uid, jobs[forged].gid) == (65534, 65534)
        assert jobs[mine.value].uid == 0 and not jobs[mine.value].finished
        assert client.blob(BlobQuery(forged, "script")) == b"#!/bin/sh\ntrue\n"
        # root's request of the same id is another request.
        other = client.call(a_job(), b"forged request")
        assert isinstance(other, Done) and other.value != forged


def test_filters_of_job_queries(steady: Daemons) -> None:
    with steady.client() as client:
        replies = client.call_many([a_job(f"f{n}") for n in range(3)])
        ids = [reply.value for reply in replies if isinstance(reply, Done)]
        client.call(CancelJobs([str(ids[1])]))
        rows = client.jobs(JobQuery(ids=ids))
        assert [job.spec.name for job in rows.jobs] == ["f0", "f1", "f2"]
        assert [j.id for j in client.jobs(JobQuery(ids=ids, active_only=True)).jobs] == [
            ids[0],
            ids[2],
        ]
        assert client.jobs(JobQuery(uids=[4242])).jobs == []
        assert set(ids) <= {j.id for j in client.jobs(JobQuery(uids=[os.getuid()])).jobs}
        assert client.jobs(JobQuery(ids=[999_999, -1])).jobs == []
        assert [n.name for n in client.nodes(NodeQuery()).nodes] == [
            f"node{n}" for n in range(1, 5)
        ]


def test_malformed_requests_are_answered_and_harm_nobody(steady: Daemons) -> None:
    with socket.socket(socket.AF_UNIX) as raw, steady.client() as client:
        raw.settimeout(10)
        raw.connect(steady.socket)
        for _ in range(16):
            send_frame(raw, b"\xc1 no message")
            answer = decode(FromFrontend, recv_frame(raw))
            assert isinstance(answer, Refused) and answer.message.startswith("malformed request")
        with pytest.raises((ConnectionClosed, OSError)):
            recv_frame(raw)
        assert isinstance(client.call(Ping()), Done)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(steady.socket)
        raw.sendall(b"\xff\xff\xff\xff")
        answer = decode(FromFrontend, recv_frame(raw))
        assert isinstance(answer, Refused) and "4294967295 bytes" in answer.message
        with pytest.raises((ConnectionClosed, OSError)):
            recv_frame(raw)
    with steady.client() as client:
        assert isinstance(client.call(Ping(), b"x" * 65), Refused)
        large = client.call(a_job(script=b"#" * (16 << 20)))
        assert isinstance(large, Refused) and "16777216 are taken" in large.message
        assert isinstance(client.call(Ping()), Done)


def test_client_that_does_not_read_stops_nobody(steady: Daemons) -> None:
    with socket.socket(socket.AF_UNIX) as greedy, steady.client() as client:
        greedy.connect(steady.socket)
        greedy.setblocking(False)
        query = encode(JobQuery())
        frame = len(query).to_bytes(4, "big") + query
        sent = 0
        # Until the worker reads no more of it.
        for _ in range(200_000):
            try:
                sent += greedy.send(frame)
            except BlockingIOError:
                break
        for _ in range(20):
            assert isinstance(client.call(Ping()), Done)


def test_node_gets_its_orders_with_content(daemons: Daemons) -> None:
    """A node that speaks through CURVE: welcome, the job with its script, the end."""
    daemons.controller()
    daemons.frontend()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = dial_controller(context, "127.0.0.1", daemons.port, daemons.keys, node="node1")
    try:
        gpus = [Gpu(uuid=f"GPU-{n}", type="h100", minor=n, links=[18] * 8) for n in range(8)]
        assert link.poll(10_000, zmq.POLLOUT)
        register = Register(
            *(PROTOCOL, "node1", "", "boot", "session1", 0, "0.1", 16, 64000, gpus, [])
        )
        link.send(encode(register))

        def message() -> ToNode:
            assert link.poll(10_000), "nothing came"
            return decode(ToNode, link.recv())

        welcome = message()
        assert isinstance(welcome, Welcome) and not welcome.refused
        assert welcome.session == "session1"
        # A node gets work once it has shown that it heard the welcome.
        link.send(encode(Report("session1", welcome.epoch, 0, [])))
        with daemons.client() as client:
            script = b"#!/bin/sh\n" + b"echo hello\n" * 300
            reply = client.call(a_job("real", script, gpus_per_node=2))
            assert isinstance(reply, Done)
            orders = message()
            assert isinstance(orders, Orders) and orders.epoch == welcome.epoch
            prepare = orders.orders[0]
            assert isinstance(prepare, Prepare) and prepare.go and prepare.n == 1
            assert prepare.launch.script == script
            assert prepare.launch.environment == b"A=1\0B=2\0"
            assert prepare.launch.job.id == reply.value
            assert len(set(prepare.launch.gpu_uuids)) == 2
            # A frame that nobody can read costs the node nothing but a line in the log.
            link.send(b"\xc1")
            link.send(encode(Report("session1", welcome.epoch, 1, [])))
            # It holds nothing of it although it has seen the order: it is lost and queued again.
            again = message()
            assert isinstance(again, Orders)
    finally:
        link.close()
        context.term()


def test_state_of_a_newer_release_is_refused(daemons: Daemons) -> None:
    from gsched.store import Store

    store = Store.open(str(daemons.dir / "state"))
    store.commit({("meta", b"format"): b"7"})
    store.close()
    process = daemons.start("gsched.controller.main")
    assert process.wait(10) == 1
    assert "format 7" in (daemons.dir / "log" / "out").read_text()


def test_usage(daemons: Daemons) -> None:
    done = subprocess.run(
        [*(sys.executable, "-P", "-m", "gsched.controller.main"), "-V"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "slurm 26.05.0\n")
