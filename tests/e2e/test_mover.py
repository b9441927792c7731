"""The C client carries out plans: streams of tasks, the agent's words, signals, files, ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mover_support import ALL, FLAGS, SECRET, Moving, Peer, build, hello, message, numbers
from once_support import once
from waiting import until

Start = Callable[..., Moving]


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "client/gsched-mover", build)


@pytest.fixture
def start(binary: Path) -> Iterator[Start]:
    made: list[Moving] = []

    def begin(**how: Any) -> Moving:
        made.append(Moving(binary, **how))
        return made[-1]

    yield begin
    for one in made:
        one.close()


# ---- output ------------------------------------------------------------------------------------


def test_output_passes_through_as_it_comes(start: Start) -> None:
    client = start()
    agent, (node,) = client.step()
    every = bytes(range(256))
    node.output(0, every)
    node.output(0, b"err\0or", "E")
    node.output(0, b"no newline")
    assert client.end(agent, [node]) == (every + b"no newline", b"err\0or")


def test_output_is_there_before_the_step_ends(start: Start) -> None:
    client = start()
    _, (node,) = client.step()
    node.output(0, b"now")
    assert client.process.stdout is not None
    assert os.read(client.process.stdout.fileno(), 100) == b"now"


def test_labels_are_as_wide_as_the_last_number(start: Start) -> None:
    """As real Slurm writes them for 12 tasks."""
    client = start(plan={"label": "1"})
    agent, nodes = client.step(2, 12)
    nodes[0].output(1, b"a\nb")
    nodes[1].output(11, b"c\n\n")
    nodes[0].output(1, b"c\n")
    nodes[0].output(1, b"e\n", "E")
    out, err = client.end(agent, nodes)
    assert sorted(out.splitlines()) == sorted([b" 1: a", b" 1: bc", b"11: c", b"11: "])
    assert err == b" 1: e\n"


def test_a_labelled_line_without_end_gets_one(start: Start) -> None:
    """Slurm: `srun -l printf abc` writes a newline; lines of two tasks are never mixed."""
    client = start(plan={"label": "1"})
    agent, (node,) = client.step(1, 2)
    node.output(0, b"abc")
    node.output(1, b"x\n")
    node.output(0, b"def\nghi")
    node.output(0, b"")
    node.output(1, b"last")
    assert client.end(agent, [node])[0] == b"1: x\n0: abcdef\n0: ghi\n1: last\n"


def test_long_labelled_lines_are_cut(start: Start) -> None:
    """Slurm: 20000 bytes and a newline become lines of 3 + 1024 and a last one of 3 + 544."""
    client = start(plan={"label": "1"})
    agent, (node,) = client.step()
    for size in (1, 4999, 15000):
        node.output(0, b"x" * size)
    node.output(0, b"\n")
    lines = client.end(agent, [node])[0].split(b"\n")
    assert [len(line) for line in lines] == [1027] * 19 + [547, 0]


@pytest.mark.parametrize("labelled", [False, True])
def test_any_cut_of_the_stream_gives_the_same(start: Start, labelled: bool) -> None:
    shuffle = random.Random(7)
    tasks = 5
    said = {task: b"".join(b"%d %d\n" % (task, n) for n in range(300)) for task in range(tasks)}
    stream = b""
    left = dict(said)
    while any(left.values()):
        task = shuffle.choice([t for t in left if left[t]])
        size = shuffle.randint(1, 40)
        stream += message("O", numbers(task) + left[task][:size])
        left[task] = left[task][size:]
    client = start(plan={"label": "1"} if labelled else {})
    agent, (node,) = client.step(1, tasks)
    node.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while stream:
        size = shuffle.choice([1, 2, 3, 7, 100, 5000])
        node.sock.sendall(stream[:size])
        stream = stream[size:]
    out = client.end(agent, [node])[0]
    if not labelled:
        assert sorted(out) == sorted(b"".join(said.values()))
        return
    for task, text in said.items():
        mine = [line[3:] for line in out.splitlines() if line.startswith(b"%d: " % task)]
        assert b"".join(line + b"\n" for line in mine) == text


def test_files_are_cut_or_appended_to(start: Start, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"before\n")
    for append in (False, True):
        client = start(plan={"stdout": str(tmp_path / "out"), "append": str(int(append))})
        agent, (node,) = client.step()
        agent.say("e", b"srun: own words\n")
        node.output(0, b"text\n")
        assert client.end(agent, [node]) == (b"", b"srun: own words\n")
    assert (tmp_path / "out").read_bytes() == b"text\ntext\n"


def test_one_file_for_both(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "both")
    client = start(plan={"stdout": path, "stderr": path})
    agent, (node,) = client.step()
    for letter in "OEOE":
        node.output(0, letter.encode(), letter)
    client.end(agent, [node])
    assert Path(path).read_bytes() == b"OEOE"


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_stream_that_is_closed(start: Start, closed: int) -> None:
    """As after `srun ... >&-`: what is written is lost, and goes nowhere else."""
    client = start(preexec=lambda: os.close(closed))
    agent, (node,) = client.step()
    assert node.expect("I") == numbers(ALL)
    for letter in "OE":
        node.output(0, letter.encode(), letter)
    assert client.end(agent, [node]) == (b"" if closed == 1 else b"O", b"" if closed == 2 else b"E")


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_file_that_cannot_be_opened(start: Start, stream: str, tmp_path: Path) -> None:
    client = start(plan={stream: str(tmp_path / "none/file")})
    sentence = f"srun: error: Could not open {stream} file: No such file or directory\n"
    assert client.done(1) == (b"", sentence.encode())


def test_only_one_task_is_looked_at(start: Start) -> None:
    client = start(name="sattach", plan={"mode": "attach", "stdout_task": "1", "stderr_task": "0"})
    agent, (node,) = client.step(1, 2)
    for task in (0, 1):
        node.output(task, b"o%d " % task)
        node.output(task, b"e%d " % task, "E")
    assert client.end(agent, [node]) == (b"o1 ", b"e0 ")


# ---- volume ------------------------------------------------------------------------------------


def pour(node: Peer, size: int, piece: bytes) -> None:
    data = message("O", numbers(0) + piece)
    for _ in range(size // len(piece)):
        node.sock.sendall(data)


def test_a_gigabyte_passes_through_three_megabytes(start: Start, tmp_path: Path) -> None:
    size = 1 << 30
    with open("/dev/null", "wb") as null:
        client = start(stdout=null)
        agent, (node,) = client.step()
        since = time.monotonic()
        pour(node, size, bytes(60000))
        node.leave()
        used = client.memory_kb()
        client.end(agent)
    seconds = time.monotonic() - since
    if not FLAGS:
        assert used < 3072
        # 500 MB/s where the machine is its own; it is shared with other tests here.
        assert size / seconds > 100e6, seconds


def test_a_slow_reader_makes_the_tasks_wait(start: Start) -> None:
    """Nothing is kept: what is not read stays in the kernel's buffers, which are bounded."""
    client = start()
    agent, (node,) = client.step()
    node.sock.settimeout(1)
    piece = message("O", numbers(0) + bytes(60000))
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 30:
            node.sock.sendall(piece)
            sent += 60000
    assert sent < 64 << 20
    if not FLAGS:
        assert client.memory_kb() < 3072
    # Signals still reach the agent.
    client.process.send_signal(signal.SIGINT)
    assert agent.expect("G") == bytes([signal.SIGINT])


@pytest.mark.parametrize("kind", ["pipe", "socket", "file"])
def test_all_arrives_in_order(start: Start, kind: str, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    ours: int | None = None
    if kind == "socket":
        one, other = socket.socketpair()
        client = start(stdout=other.fileno())
        other.close()
        ours = one.detach()
    elif kind == "file":
        with sink.open("wb") as file:
            client = start(stdout=file)
    else:
        client = start()
        assert client.process.stdout is not None
        ours = os.dup(client.process.stdout.fileno())
    agent, (node,) = client.step()
    shuffle = random.Random(3)
    sent, got = hashlib.sha256(), hashlib.sha256()
    if os.fork() == 0:
        # A writer of its own: reading and writing in turn would make each wait for the other.
        for _ in range(400):
            data = shuffle.randbytes(shuffle.choice([1, 100, 4096, 60000]))
            node.output(0, data)
        os._exit(0)
    total = 0
    for _ in range(400):
        data = shuffle.randbytes(shuffle.choice([1, 100, 4096, 60000]))
        sent.update(data)
        total += len(data)
    if ours is not None:
        while total:
            data = os.read(ours, min(total, 10000))
            assert data
            got.update(data)
            total -= len(data)
        os.close(ours)
    os.wait()
    client.end(agent, [node])
    if kind == "file":
        got.update(sink.read_bytes())
    assert got.hexdigest() == sent.hexdigest()


def test_a_named_pipe_waits_for_its_reader(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    client = start(plan={"stdout": str(tmp_path / "pipe")})
    agent, (node,) = client.step()
    node.output(0, b"through")
    with (tmp_path / "pipe").open("rb") as reader:
        client.end(agent, [node])
        assert reader.read() == b"through"


def test_a_named_pipe_nobody_reads_does_not_hold_the_client(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    client = start(plan={"stdout": str(tmp_path / "pipe")})
    caught = Path(f"/proc/{client.process.pid}/status")
    # Blocked together with SIGINT, which the kernel shows as free while it is waited for.
    blocked = 1 << (signal.SIGUSR1 - 1)

    def waits() -> bool:
        (line,) = [x for x in caught.read_text().splitlines() if x.startswith("SigBlk:")]
        return bool(int(line.split()[1], 16) & blocked)

    until("signals are caught", waits)
    client.process.send_signal(signal.SIGINT)
    sentence = b"srun: error: Could not open stdout file: Interrupted system call\n"
    assert client.done(1) == (b"", sentence)


def test_a_reader_that_goes_is_told_to_the_agent(start: Start) -> None:
    client = start()
    agent, (node,) = client.step()
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.process.stdout = None
    pour(node, 1 << 20, bytes(1000))
    assert agent.expect("B") == b""
    # What comes is thrown away; the end is the agent's.
    pour(node, 1 << 24, bytes(1000))
    client.end(agent, [node], 141)


# ---- input -------------------------------------------------------------------------------------


def test_input_goes_to_all_nodes(start: Start) -> None:
    client = start(stdin=subprocess.PIPE)
    agent, nodes = client.step(3, 3)
    assert client.process.stdin is not None
    client.process.stdin.write(b"line\n")
    client.process.stdin.close()
    client.process.stdin = None
    for node in nodes:
        assert node.expect("I") == numbers(ALL) + b"line\n"
        assert node.expect("I") == numbers(ALL)
    client.end(agent, nodes)


def test_input_waits_for_the_last_node(start: Start) -> None:
    client = start(stdin=subprocess.PIPE)
    agent = client.agent()
    assert client.process.stdin is not None
    client.process.stdin.write(b"x")
    client.process.stdin.flush()
    first = client.node(0)
    agent.say("N", numbers(2, 2))
    first.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        first.hear()
    second = client.node(1)
    first.sock.settimeout(30)
    assert first.expect("I") == second.expect("I") == numbers(ALL) + b"x"


def received(node: Peer, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = node.expect("I")[4:]
        assert data
        got += data
    return got


def test_no_more_input_than_was_asked_for(start: Start, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(200_000)
    (tmp_path / "in").write_bytes(data)
    client = start(plan={"stdin": str(tmp_path / "in")})
    agent, nodes = client.step(2, 4)
    assert [received(node, 65536) for node in nodes] == [data[:65536]] * 2
    # One node alone gets nothing more.
    nodes[0].say("C", numbers(ALL, 1 << 20))
    nodes[0].sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        nodes[0].hear()
    nodes[0].sock.settimeout(30)
    nodes[1].say("C", numbers(ALL, 1000))
    assert [received(node, 1000) for node in nodes] == [data[65536:66536]] * 2
    nodes[1].close()
    # One that has ended holds nobody up.
    assert received(nodes[0], 200_000 - 66536) == data[66536:]
    assert nodes[0].expect("I") == numbers(ALL)
    client.end(agent, nodes)


def test_input_of_one_task_goes_to_its_node(start: Start, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(150_000)
    (tmp_path / "in").write_bytes(data)
    client = start(plan={"stdin": str(tmp_path / "in"), "stdin_task": "3"})
    agent, nodes = client.step(2, 4)
    # Nobody knows yet where it is.
    assert [received(node, 65536) for node in nodes] == [data[:65536]] * 2
    nodes[1].say("C", numbers(3, 1 << 20))
    assert received(nodes[1], 150_000 - 65536) == data[65536:]
    assert nodes[1].expect("I") == numbers(3)
    nodes[0].sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        nodes[0].hear()
    client.end(agent, nodes)


def test_no_input(start: Start) -> None:
    client = start(stdin=subprocess.PIPE, plan={"stdin": ""})
    agent, (node,) = client.step()
    node.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        node.hear()
    client.end(agent, [node])


# ---- who may connect ---------------------------------------------------------------------------

STRANGE = {
    "wrong secret": hello(secret=bytes(32)),
    "one bit": hello(secret=SECRET[:-1] + bytes([SECRET[-1] ^ 1])),
    "version": hello()[:4] + b"\2" + hello()[5:],
    "kind": hello("X"),
    "magic": b"HTTP" + hello()[4:],
    "reserved": hello()[:8] + b"\1" + hello()[9:],
}


@pytest.mark.parametrize("greeting", STRANGE.values(), ids=STRANGE)
def test_strangers_are_sent_away(start: Start, greeting: bytes) -> None:
    client = start()
    with socket.create_connection(("127.0.0.1", client.port), 30) as stranger:
        stranger.sendall(greeting + message("X", b"\7"))
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    agent, (node,) = client.step()
    node.output(0, b"mine")
    assert client.end(agent, [node])[0] == b"mine"


def test_many_silent_strangers_do_not_keep_the_agent_out(start: Start) -> None:
    client = start()
    silent = [socket.create_connection(("127.0.0.1", client.port), 30) for _ in range(300)]
    agent, (node,) = client.step()
    node.output(0, b"mine")
    assert client.end(agent, [node])[0] == b"mine"
    for one in silent:
        one.close()


def test_a_place_is_taken_once(start: Start) -> None:
    client = start()
    agent, (node,) = client.step(1, 1)
    node.output(0, b"first ")
    second = client.node(0)
    assert second.hear() == ("", b"")
    node.output(0, b"again")
    assert client.end(agent, [node])[0] == b"first again"


def test_ipv6(start: Start) -> None:
    client = start()
    agent = client.peer("C", 0, socket.AF_INET6)
    agent.say("o", b"six\n")
    assert client.end(agent)[0] == b"six\n"


# ---- the agent ---------------------------------------------------------------------------------


def test_the_agent_s_words_and_code(start: Start) -> None:
    client = start()
    agent = client.agent()
    agent.say("e", b"srun: error: Unable to create step\n")
    assert client.end(agent, code=3) == (b"", b"srun: error: Unable to create step\n")


def test_quiet_leaves_out_what_is_no_complaint(start: Start) -> None:
    client = start(plan={"quiet": "1"})
    agent = client.agent()
    agent.say("e", b"srun: job 7 queued\nsrun: error: bad\nother\nsrun: warning: odd\n")
    assert client.end(agent)[1] == b"srun: error: bad\nother\nsrun: warning: odd\n"


def test_output_on_its_way_is_waited_for(start: Start) -> None:
    client = start()
    agent, (node,) = client.step()
    agent.say("X", b"\4")
    for n in range(30):
        # Together longer than the client waits for a connection that says nothing.
        node.output(0, b"%d " % n)
        time.sleep(0.1)
    node.leave()
    assert client.done(4)[0] == b"".join(b"%d " % n for n in range(30))


def test_a_node_that_never_calls_is_not_waited_for(start: Start) -> None:
    client = start()
    agent = client.agent()
    agent.say("N", numbers(2, 2))
    node = client.node(0)
    since = time.monotonic()
    client.end(agent, [node], 1)
    assert 1.5 < time.monotonic() - since < 10


def test_a_restarted_agent_calls_again(start: Start) -> None:
    client = start()
    agent, (node,) = client.step()
    begun(node)
    client.process.send_signal(signal.SIGUSR1)
    assert agent.expect("G") == bytes([signal.SIGUSR1])
    agent.close()
    node.output(0, b"meanwhile ")
    assert client.process.stdout is not None
    assert os.read(client.process.stdout.fileno(), 100) == b"meanwhile "
    client.process.send_signal(signal.SIGUSR2)
    again = client.agent()
    again.say("N", numbers(1, 1))
    assert again.expect("G") == bytes([signal.SIGUSR2])
    node.output(0, b"after")
    assert client.end(again, [node], 5)[0] == b"after"


def test_messages_of_a_newer_agent_are_passed_over(start: Start) -> None:
    client = start()
    agent, (node,) = client.step()
    agent.say("y", b"?")
    node.say("y", b"?")
    node.output(0, b"x")
    assert client.end(agent, [node])[0] == b"x"


def begun(node: Peer) -> None:
    """Waits until the client has heard of agent and node: its input, which is empty, ends."""
    assert node.expect("I") == numbers(ALL)


# ---- signals -----------------------------------------------------------------------------------


def test_signals_are_told_to_the_agent(start: Start) -> None:
    # A shell without job control starts what is in the background with INT and QUIT ignored.
    client = start(preexec=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    agent, nodes = client.step()
    begun(nodes[0])
    for name in "INT TERM QUIT HUP USR1 USR2 CONT ALRM PIPE".split():
        number = getattr(signal, f"SIG{name}")
        client.process.send_signal(number)
        assert agent.expect("G") == bytes([number])
    client.end(agent, nodes)


@pytest.mark.parametrize(("program", "mode"), [("sattach", "attach"), ("sbcast", "step")])
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_what_only_looks_on_ends_by_a_signal(
    start: Start, program: str, mode: str, name: str
) -> None:
    """As real sattach and sbcast, which leave signals as they are."""
    client = start(name=program, plan={"mode": mode})
    agent, (node,) = client.step()
    begun(node)
    client.process.send_signal(getattr(signal, f"SIG{name}"))
    client.done(-getattr(signal, f"SIG{name}"))
    assert agent.hear() == ("", b"")


def test_nohup_keeps_hangups_away(start: Start) -> None:
    client = start(preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    agent, nodes = client.step()
    begun(nodes[0])
    client.process.send_signal(signal.SIGHUP)
    client.process.send_signal(signal.SIGUSR1)
    assert agent.expect("G") == bytes([signal.SIGUSR1])
    client.end(agent, nodes)


# ---- PMI ---------------------------------------------------------------------------------------


def test_exchanges_go_to_all_in_the_order_of_places(start: Start) -> None:
    client = start(plan={"stdin": ""})
    agent, nodes = client.step(3, 3)
    parts = [b"zero", b"", b"two" * 100_000]
    for place in (2, 0, 1):
        nodes[place].say("K", numbers(1) + parts[place])
    whole = numbers(1) + b"".join(numbers(len(part)) + part for part in parts)
    assert [node.expect("K") for node in nodes] == [whole] * 3
    for round_ in (2, 3):
        for node in nodes:
            node.say("K", numbers(round_))
    for round_ in (2, 3):
        assert [node.expect("K") for node in nodes] == [numbers(round_, 0, 0, 0)] * 3
    client.end(agent, nodes)


def test_an_abort_is_passed_on(start: Start) -> None:
    client = start()
    agent, nodes = client.step()
    nodes[0].say("A", numbers(6) + b"no more")
    assert agent.expect("A") == numbers(6) + b"no more"
    client.end(agent, nodes, 6)


# ---- prolog and epilog -------------------------------------------------------------------------


def test_programs_of_the_site(start: Start, tmp_path: Path) -> None:
    """srun's man page: run with the command of the step as arguments, before and after it."""
    for which, code in (("prolog", 3), ("epilog", 4)):
        (tmp_path / which).write_text(f'#!/bin/sh\necho {which} $MARK "$@"\nexit {code}\n')
        (tmp_path / which).chmod(0o755)
    client = start(
        plan={
            "prolog": str(tmp_path / "prolog"),
            "epilog": str(tmp_path / "epilog"),
            "arg": ["cmd", "a b"],
            "env": ["MARK=m"],
        }
    )
    agent, nodes = client.step()
    # A prolog that fails ends the step.
    assert agent.expect("G") == bytes([signal.SIGTERM])
    nodes[0].output(0, b"task\n")
    out, err = client.end(agent, nodes)
    assert out == b"prolog m cmd a b\ntask\nepilog m cmd a b\n"
    assert err.decode().splitlines() == [
        "srun: error: srun prolog failed rc = 3. Aborting step.",
        "srun: error: srun epilog failed status=4",
    ]


# ---- nonsense ----------------------------------------------------------------------------------

PLANS = {
    "nothing": b"",
    "no mode": b"job=7\0",
    "no value": b"mode=step\0job\0",
    "unknown mode": b"mode=dance\0",
    "number": b"mode=step\0stdin_task=x\0",
    "cut": b"mode=ste",
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_without_sense(start: Start, plan: bytes) -> None:
    client = start(raw=plan)
    sentence = b"srun: fatal: the answer of the frontend makes no sense\n"
    assert client.done(1) == (b"", sentence)


def test_usage(binary: Path) -> None:
    for words in ([], ["srun"], ["srun", "0", "x"], ["srun", "99", "98"]):
        done = subprocess.run([binary, *words], capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 1
        assert done.stderr.startswith(b"usage: gsched-mover NAME LISTEN_FD PLAN_FD")


def test_a_node_that_talks_nonsense_is_dropped(start: Start) -> None:
    nonsense = [
        message("O", numbers(9) + b"no such task"),
        message("O", b"ab"),
        b"\0\0\0\0O",
        b"\xff\xff\xff\xffO",
        message("C", b"short"),
        message("K", b"ab"),
    ]
    client = start()
    agent = client.agent()
    agent.say("N", numbers(len(nonsense) + 1, 1))
    for place, data in enumerate(nonsense):
        node = client.node(place)
        node.sock.sendall(data)
        assert node.hear() == ("", b"")
    good = client.node(len(nonsense))
    good.output(0, b"good")
    assert client.end(agent, [good])[0] == b"good"


def test_it_leaves_nothing_behind(start: Start) -> None:
    client = start()
    agent, nodes = client.step()
    client.end(agent, nodes)
    until("the listener is gone", lambda: _refused(client.port))


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False
