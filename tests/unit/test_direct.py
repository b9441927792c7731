"""A command's writes go from the worker that runs it straight to the controller: real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gsched.frontend import upstream
from gsched.frontend.direct import Direct
from gsched.frontend.limits import Limits
from gsched.frontend.names import Names
from gsched.frontend.upstream import Upstream
from gsched.model import JobSpec
from gsched.wire.codec import MAX_FRAME, decode, encode
from gsched.wire.identity import Credentials
from gsched.wire.messages import TOO_OFTEN, Call, CancelJobs, Done, Ping, Refused, SubmitJob

WHO = Credentials(pid=7, uid=os.getuid(), gid=os.getgid())


class Controller:
    """Answers every call with its number; keeps what it was sent."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: list[Call] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._bound = threading.Event()

    def __enter__(self) -> Controller:
        self._thread.start()
        assert self._bound.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._context.term()

    def _serve(self) -> None:
        sock = self._context.socket(zmq.ROUTER)
        sock.bind(f"ipc://{self.path}")
        self._bound.set()
        while not self._stop.is_set():
            if not sock.poll(10):
                continue
            sender, *frames = sock.recv_multipart()
            # Backwards: answers need not come in the order of the questions.
            for frame in reversed(frames):
                call = decode(Call, frame)
                self.calls.append(call)
                answer = Done(call.request_id, 1, value=len(self.calls))
                sock.send_multipart([sender, encode(answer)])
        sock.close(linger=0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Direct]]:
    links: list[Upstream] = []

    def made(limits: Limits | None = None) -> Direct:
        links.append(Upstream(str(tmp_path / "ctl.sock")))
        return Direct(links[-1], limits or Limits(), Names())

    yield made
    for link in links:
        link.close()


def test_answers_come_in_the_order_of_the_calls(
    tmp_path: Path, make: Callable[..., Direct]
) -> None:
    direct = make()
    with Controller(str(tmp_path / "ctl.sock")) as controller:
        calls = [(b"%d" % n, CancelJobs([str(n)], 9)) for n in range(3)]
        replies = direct.carry_out(calls, WHO)
    assert [reply.request_id for reply in replies] == [b"0", b"1", b"2"]
    assert all(isinstance(reply, Done) for reply in replies)
    # The sender is whom the kernel named, and the id is bound to that user.
    assert {(c.uid, c.gid, c.pid) for c in controller.calls} == {(WHO.uid, WHO.gid, WHO.pid)}
    assert {c.request_id for c in controller.calls} == {
        WHO.uid.to_bytes(4, "big") + b"%d" % n for n in range(3)
    }


def test_names_and_groups_are_the_systems(tmp_path: Path, make: Callable[..., Direct]) -> None:
    direct = make()
    job = SubmitJob(JobSpec(), b"#!/bin/sh\n", b"", "somebody", "else", [])
    with Controller(str(tmp_path / "ctl.sock")) as controller:
        direct.carry_out([(b"1", job)], WHO)
    (call,) = controller.calls
    user, group = Names().of(WHO.uid, WHO.gid)
    assert isinstance(call.write, SubmitJob)
    assert (call.write.user, call.write.group, call.user) == (user, group, user)
    assert call.groups == Names().groups(WHO.uid, WHO.gid)


def test_the_link_is_found_again(tmp_path: Path, make: Callable[..., Direct]) -> None:
    direct = make()
    for _ in range(2):
        with Controller(str(tmp_path / "ctl.sock")):
            (reply,) = direct.carry_out([(b"1", Ping())], WHO)
            assert isinstance(reply, Done)
        (tmp_path / "ctl.sock").unlink(missing_ok=True)


def test_nobody_there_is_refused_for_now(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Direct]
) -> None:
    monkeypatch.setattr(upstream, "NO_LINK_S", 0.01)
    (reply,) = make().carry_out([(b"1", Ping())], WHO)
    assert isinstance(reply, Refused) and reply.temporary
    assert reply.request_id == b"1"
    assert reply.message == "Unable to contact slurm controller (connect failure)"


def test_who_asks_too_often_waits(tmp_path: Path, make: Callable[..., Direct]) -> None:
    direct = make(Limits.from_parameters(["rl_enable", "rl_bucket_size=2"]))
    with Controller(str(tmp_path / "ctl.sock")):
        calls = [(b"%d" % n, Ping()) for n in range(3)]
        first, second, third = direct.carry_out(calls, WHO)
    assert isinstance(first, Done) and isinstance(second, Done)
    assert isinstance(third, Refused) and third.temporary and third.message == TOO_OFTEN


def test_what_is_too_large_is_refused_at_once(make: Callable[..., Direct]) -> None:
    job = SubmitJob(JobSpec(), b"#" * MAX_FRAME, b"", "", "", [])
    (reply,) = make().carry_out([(b"1", job)], WHO)
    assert isinstance(reply, Refused) and not reply.temporary
    assert f"at most {MAX_FRAME} are taken" in reply.message
