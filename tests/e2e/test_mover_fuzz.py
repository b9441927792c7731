"""Whatever comes over its connections, the C client neither breaks nor listens to strangers."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mover_support import FLAGS, SANITIZE, Moving, build, hello, message, numbers
from once_support import once


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = [] if FLAGS else SANITIZE
    name = "client-asan/gsched-mover"
    return once(tmp_path_factory, name, lambda target: build(target, *flags))


#: memory that is in use when the client leaves is the kernel's to free
ENV = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}

#: numbers that mean something somewhere: tasks, rounds, credits, sizes
NUMBER = st.one_of(
    st.integers(0, 5), st.sampled_from([65535, 65536, 1 << 24, (1 << 31) - 1, (1 << 32) - 1])
)
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda some, rest: numbers(*some) + rest,
        st.lists(NUMBER, max_size=3),
        st.binary(max_size=9),
    ),
)
FRAME = st.builds(message, st.sampled_from("oeANXRGZBOECKAIWM?\0"), CONTENT)
#: a length that is not the message's
TORN = st.builds(lambda size, rest: numbers(size) + rest, NUMBER, st.binary(max_size=20))
GREETING = st.one_of(
    st.builds(hello, st.sampled_from("CD"), st.integers(0, 3)),
    st.builds(hello, st.just("X")),
    st.binary(max_size=50),
)
TALK = st.builds(
    lambda first, frames: first + b"".join(frames),
    GREETING,
    st.lists(st.one_of(FRAME, FRAME, FRAME, TORN), max_size=12),
)
PLAN = st.fixed_dictionaries(
    {"mode": st.sampled_from(["step", "job", "salloc", "attach"])},
    optional={
        "label": st.just("1"),
        "quiet": st.just("1"),
        "pty": st.just("1"),
        "stdin_task": st.sampled_from(["-1", "0", "2"]),
        "killsig": st.sampled_from(["0", "9"]),
    },
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=PLAN,
    layout=st.booleans(),
    talks=st.lists(st.tuples(TALK, st.integers(1, 200)), max_size=5),
)
def test_nonsense_on_the_connections(
    sanitized: Path, plan: dict[str, str], layout: bool, talks: list[tuple[bytes, int]]
) -> None:
    client = Moving(sanitized, plan={**plan, "arg": "true", "job": ""}, env=ENV)  # type: ignore[arg-type]
    try:
        with contextlib.suppress(OSError):
            agent = client.agent()
            if layout:
                agent.say("N", numbers(3, 3))
            open_ = []
            for talk, piece in talks:
                sock = socket.create_connection(("127.0.0.1", client.port), 30)
                open_.append(sock)
                for at in range(0, len(talk), piece):
                    with contextlib.suppress(OSError):
                        sock.sendall(talk[at : at + piece])
            for sock in open_:
                sock.close()
            # The agent's last word, from a connection that is surely the last.
            client.agent().say("X", b"\0")
        # It may have taken that for nonsense too: then it gives up after twice 30 s of silence.
        _, err = client.process.communicate(timeout=100)
        # Not by a signal, and not by a sanitizer.
        assert client.process.returncode >= 0
        assert b"Sanitizer" not in err and b"runtime error" not in err, err
    finally:
        client.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.one_of(st.binary(max_size=60), st.lists(st.text(max_size=12), max_size=8)))
def test_nonsense_for_a_plan(sanitized: Path, data: bytes | list[str]) -> None:
    if isinstance(data, list):
        data = b"".join(text.encode() + b"\0" for text in data)
    if b"mode=" in data:
        return
    client = Moving(sanitized, raw=data, env=ENV)
    try:
        sentence = b"srun: fatal: the answer of the frontend makes no sense\n"
        assert client.process.communicate(timeout=60) == (b"", sentence)
        assert client.process.returncode == 1
    finally:
        client.close()
