"""The short way between a frontend and the controller: real sockets, and the long way behind it."""

from __future__ import annotations

import os
import resource
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gsched.frontend import direct as direct_module
from gsched.frontend.direct import Direct
from gsched.frontend.limits import Limits
from gsched.frontend.names import Names
from gsched.frontend.upstream import Upstream
from gsched.model import JobSpec
from gsched.wire.codec import decode, encode
from gsched.wire.identity import Admission, Credentials
from gsched.wire.messages import Call, Done, Ping, Refused, SubmitJob
from gsched.wire.short import LIMIT, MOST, ShortEnd, ShortWay, short_socket
from gsched.wire.sockets import ControllerSockets

ME = frozenset({os.getuid()})
WHO = Credentials(pid=7, uid=os.getuid(), gid=os.getgid())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return short_socket(str(tmp_path / "ctl.sock"))


def test_a_message_and_its_answer(path: str) -> None:
    end, way, other = ShortEnd(Admission(ME), path), ShortWay(path), ShortWay(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert way.ask(b"one") and way.ask(b"two") and other.ask(b"three")
    found = list(end.receive(10))
    assert sorted(message for _, message in found) == [b"one", b"three", b"two"]
    (name,) = {name for name, message in found if message != b"three"}
    assert end.answer(name, [b"1", b"2"])
    assert (way.hear(1), way.hear(1), way.hear(0.001)) == (b"1", b"2", None)
    # Whoever gave up has hung up.
    assert list(end.receive(10)) == []
    assert not end.answer(name, [b"late"])
    end.close()


def test_only_so_many_at_once(path: str) -> None:
    end, way = ShortEnd(Admission(ME), path), ShortWay(path)
    assert all(way.ask(b"%d" % n) for n in range(5))
    assert [message for _, message in end.receive(2)] == [b"0", b"1"]
    assert [message for _, message in end.receive(9)] == [b"2", b"3", b"4"]
    end.close()


def test_who_may_not_speak_for_others_is_hung_up_on(path: str) -> None:
    end, way = ShortEnd(Admission(frozenset()), path), ShortWay(path)
    way.ask(b"one")
    assert list(end.receive(10)) == []
    assert way.hear(1) is None
    end.close()


def test_connections_are_bounded(path: str) -> None:
    end = ShortEnd(Admission(ME), path)
    ways = [ShortWay(path) for _ in range(MOST + 1)]
    for way in ways[:-1]:
        assert way.ask(b"here")
        assert len(list(end.receive(10))) == 1
    ways[-1].ask(b"one too many")
    assert list(end.receive(10)) == []
    ways[0].close()
    assert list(end.receive(10)) == []
    assert ways[-1].ask(b"again") or ways[-1].ask(b"again")
    assert len(list(end.receive(10))) == 1
    end.close()
    for way in ways:
        way.close()


def test_what_is_too_large_goes_another_way(path: str) -> None:
    end, way = ShortEnd(Admission(ME), path), ShortWay(path)
    assert not way.ask(b"x" * (LIMIT + 1))
    assert way.ask(b"x" * LIMIT)
    assert [len(message) for _, message in end.receive(1)] == [LIMIT]
    end.close()


def test_another_controller_is_found(path: str) -> None:
    way = ShortWay(path)
    assert not way.ask(b"nobody")
    for number in (b"1", b"2"):
        end = ShortEnd(Admission(ME), path)
        assert way.ask(number)
        assert [message for _, message in end.receive(10)] == [number]
        end.close()
    assert not way.ask(b"nobody")


def test_without_files_the_loop_goes_on(path: str) -> None:
    """Accepting fails and the listener stays ready: the controller must not ask for ever."""
    end, old, new = ShortEnd(Admission(ME), path), ShortWay(path), ShortWay(path)
    assert old.ask(b"one")
    assert [message for _, message in end.receive(9)] == [b"one"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert new.ask(b"from one more")
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        assert list(end.receive(9)) == []
        assert old.ask(b"two")
        assert [message for _, message in end.receive(9)] == [b"two"]
        # Nor does whoever waits for it wake at once, again and again.
        assert not select.select([end.fileno()], [], [], 0)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until = time.monotonic() + 20
    found: list[bytes] = []
    while not found and time.monotonic() < until:
        found = [message for _, message in end.receive(9)]
    assert found == [b"from one more"]
    end.close()


def test_who_does_not_read_holds_nobody_up(path: str) -> None:
    end, deaf, other = ShortEnd(Admission(ME), path), ShortWay(path), ShortWay(path)
    assert deaf.ask(b"deaf") and other.ask(b"other")
    names = {message: name for name, message in end.receive(9)}
    assert any(not end.answer(names[b"deaf"], [b"x" * 1000]) for _ in range(10_000))
    assert end.answer(names[b"other"], [b"here"]) and other.hear(1) == b"here"
    # Larger than what the other side takes: it hangs up and asks the long way.
    end.answer(names[b"other"], [b"x" * (LIMIT + 1)])
    assert other.hear(1) is None
    assert list(end.receive(9)) == []
    end.close()


def test_a_name_from_afar_is_no_name_here(tmp_path: Path) -> None:
    """A frontend on another host names its link itself: it gets no place among those of this
    host's commands."""
    sockets = ControllerSockets(Admission(ME))
    control = str(tmp_path / "ctl.sock")
    sockets.bind_local(control)
    way = ShortWay(short_socket(control))
    assert way.ask(b"mine")
    (received,) = sockets.receive(9)
    assert not sockets.answer(received.routing_id, [b"another's"], remote=True)
    assert sockets.answer(received.routing_id, [b"mine"], remote=False)
    assert way.hear(1) == b"mine"
    way.close()
    sockets.close()


class Controller:
    """The sockets of a controller in a thread; answers what `answers` says it does."""

    def __init__(self, path: str, *, short_answers: bool = True) -> None:
        self.short: list[Call] = []
        self.long: list[Call] = []
        self._short_answers = short_answers
        self._path = path
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Controller:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        sockets = ControllerSockets(Admission(ME))
        sockets.bind_local(self._path)
        poller = zmq.Poller()
        sockets.register(poller)
        self._ready.set()
        while not self._stop.is_set():
            if any(source is sockets.handshakes for source, _ in poller.poll(10)):
                sockets.admit()
            for received in sockets.receive(16):
                assert received.role == "proxy" and not received.remote
                call = decode(Call, received.payload)
                is_short = received.routing_id[:1] == b"S"
                (self.short if is_short else self.long).append(call)
                if is_short and not self._short_answers:
                    continue
                reply = encode(Done(call.request_id, 1, value=len(self.short)))
                sockets.answer(received.routing_id, [reply], remote=False)
        sockets.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Direct]]:
    links: list[Upstream] = []

    def made() -> Direct:
        path = str(tmp_path / "ctl.sock")
        links.append(Upstream(path))
        return Direct(links[-1], Limits(), Names(), ShortWay(short_socket(path)))

    yield made
    for link in links:
        link.close()


def test_a_command_goes_the_short_way(tmp_path: Path, make: Callable[[], Direct]) -> None:
    with Controller(str(tmp_path / "ctl.sock")) as controller:
        replies = make().carry_out([(b"%d" % n, Ping()) for n in range(3)], WHO)
    assert [reply.request_id for reply in replies] == [b"0", b"1", b"2"]
    assert all(isinstance(reply, Done) for reply in replies)
    assert not controller.long
    # The sender is whom the kernel named, and the id is bound to that user.
    assert {(c.uid, c.gid, c.pid) for c in controller.short} == {(WHO.uid, WHO.gid, WHO.pid)}
    assert [c.request_id for c in controller.short] == [
        WHO.uid.to_bytes(4, "big") + b"%d" % n for n in range(3)
    ]


def test_without_an_answer_the_same_is_asked_the_long_way(
    tmp_path: Path, make: Callable[[], Direct], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_module, "REPEAT_S", 0.01)
    with Controller(str(tmp_path / "ctl.sock"), short_answers=False) as controller:
        (reply,) = make().carry_out([(b"1", Ping())], WHO)
    assert isinstance(reply, Done) and reply.request_id == b"1"
    (short,), (long,) = controller.short, controller.long
    assert short == long


def test_a_large_script_goes_the_long_way(tmp_path: Path, make: Callable[[], Direct]) -> None:
    job = SubmitJob(JobSpec(), b"#" * (1 << 20), b"", "", "", [])
    with Controller(str(tmp_path / "ctl.sock")) as controller:
        direct = make()
        (reply,) = direct.carry_out([(b"1", job)], WHO)
        assert not isinstance(reply, Refused)
        (other,) = direct.carry_out([(b"2", Ping())], WHO)
    assert [len(calls) for calls in (controller.long, controller.short)] == [1, 1]
    assert other.request_id == b"2"
