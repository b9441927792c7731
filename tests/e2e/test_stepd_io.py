"""The streams of tasks on their way between pipes, files, terminal and client."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepd_support import (
    ALL,
    FREE,
    MORE,
    Client,
    Records,
    Start,
    Step,
    assert_small,
    mover_of,
    starter,
    tasks,
    text,
    wait_for,
)


def begin(start: Start, client: Client, records: Records, **keys: str | int) -> Step:
    return start("", *records, *client.records(), out="", label="STEP 7.0 ON gpu01", **keys)


def test_every_byte_arrives_in_order(start: Start, client: Client) -> None:
    script = "for i in $(seq 20000); do echo $SLURM_PROCID line $i; done; printf '\\0\\377end'"
    step = begin(start, client, tasks(4, script))
    assert step.finish().wstatus == 0
    client.finish()
    for task in range(4):
        lines = "".join(f"{task} line {i}\n" for i in range(1, 20001)).encode()
        assert client.out[task] == lines + b"\0\377end"


def test_input_to_all_tasks(start: Start, client: Client) -> None:
    data = random.Random(3).randbytes(1_000_000)
    step = begin(start, client, tasks(3, "sha256sum"))
    client.feed(ALL, data)
    client.feed(ALL, b"")
    assert step.finish().wstatus == 0
    client.finish()
    digest = hashlib.sha256(data).hexdigest()
    assert [bytes(client.out[i]) for i in range(3)] == [f"{digest}  -\n".encode()] * 3
    assert client.credit[ALL] == MORE + len(data)


def test_input_to_one_task(start: Start, client: Client) -> None:
    data = random.Random(4).randbytes(300_000)
    script = "readlink /proc/$$/fd/0; exec sha256sum"
    step = begin(start, client, [*tasks(3, script), ("stdin_task", 1)])
    client.feed(1, data)
    client.feed(1, b"")
    assert step.finish().wstatus == 0
    client.finish()
    empty = hashlib.sha256(b"").hexdigest()
    for i in (0, 2):
        assert client.out[i].decode() == f"/dev/null\n{empty}  -\n"
    kind, digest = client.out[1].decode().splitlines()
    assert kind.startswith("pipe:") and digest.split()[0] == hashlib.sha256(data).hexdigest()
    assert client.credit[1] == MORE + len(data)


def test_no_input(start: Start, client: Client) -> None:
    step = begin(start, client, [*tasks(2, "readlink /proc/$$/fd/0; cat"), ("stdin_task", -2)])
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out == {0: b"/dev/null\n", 1: b"/dev/null\n"}


def test_who_does_not_read_gets_no_more_than_was_free(start: Start, client: Client) -> None:
    script = 'if [ "$SLURM_PROCID" = 1 ]; then while [ ! -e go ]; do sleep 0.02; done; fi; wc -c'
    step = begin(start, client, tasks(2, script))
    client.until(lambda: client.connections)
    client.say(0, b"I", struct.pack(">I", ALL) + b"x" * FREE)
    pipe = 64 << 10
    client.until(lambda: client.credit[ALL] > 0)
    time.sleep(0.2)
    assert client.credit[ALL] <= MORE + pipe  # what its pipe holds
    (step.out / "go").touch()
    client.until(lambda: client.credit[ALL] == MORE + FREE)
    client.feed(ALL, b"")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out == {0: b"65536\n", 1: b"65536\n"}


def test_a_client_that_sends_more_than_it_may_is_dropped(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(1, "exec sleep 300"))
    client.until(lambda: client.connections)
    # It may be dropped before it has said all.
    with contextlib.suppress(OSError):
        for _ in range(8):
            client.say(0, b"I", struct.pack(">I", 0) + b"x" * FREE)
    client.finish()
    step.tell("kill9 silent")
    assert step.finish().wstatus == 9


def test_tasks_that_closed_their_input_hold_up_nobody(start: Start, client: Client) -> None:
    data = b"y" * 500_000
    script = 'if [ "$SLURM_PROCID" = 0 ]; then exec <&-; read x; echo closed; else wc -c; fi'
    step = begin(start, client, tasks(2, script + " 2>/dev/null"))
    client.feed(ALL, data)
    client.feed(ALL, b"")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out == {0: b"closed\n", 1: b"500000\n"}


def test_ends_are_told_one_by_one(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(2, "exec >&-; read x; echo late >&2; exec 2>&-; read y"))
    client.until(lambda: client.closed == {("O", 0), ("O", 1)})
    client.feed(ALL, b"x\n")
    # The last output of the first task stays open for lines of the supervisor.
    client.until(lambda: ("E", 1) in client.closed)
    assert ("E", 0) not in client.closed
    client.feed(ALL, b"y\n")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.err == {0: b"late\n", 1: b"late\n"}
    assert len(client.closed) == 4


def test_when_the_client_is_gone_writers_get_sigpipe(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(2, "echo up; while echo x; do sleep 0.01; done; exit 3"))
    client.until(lambda: all(client.out[i] for i in (0, 1)))
    client.close()
    status = step.finish()
    assert all(task.wstatus == signal.SIGPIPE for task in status.tasks.values())
    assert status.cause == "none"


def test_a_client_that_does_not_read_makes_tasks_wait(start: Start, client: Client) -> None:
    """And nothing grows: bytes stay in the pipe of their task."""
    script = "head -c 30000000 /dev/zero; echo done > written$SLURM_PROCID"
    client.reading.clear()
    step = begin(start, client, tasks(2, script))
    client.until(lambda: client.connections)
    client.until(lambda: client.connections[0])
    time.sleep(0.5)
    assert not (step.out / "written0").exists()
    assert_small(mover_of(step))
    with step.connect() as ctl:  # meanwhile the supervisor answers
        ctl.sendall(b"ping\n")
        assert ctl.recv(100).startswith(b"state running")
    client.reading.set()
    assert step.finish().wstatus == 0
    client.finish()
    assert [len(client.out[i]) for i in (0, 1)] == [30_000_000] * 2


def test_a_slow_client_gets_everything_after_the_end(start: Start, client: Client) -> None:
    """`released` does not wait for it: no process of the step is left."""
    client.reading.clear()
    step = begin(start, client, tasks(1, "head -c 200000 /dev/zero; echo last >&2; exit 5"))
    status = step.finish()
    assert status.wstatus == 5 << 8
    time.sleep(0.1)
    client.reading.set()
    client.finish()
    assert len(client.out[0]) == 200_000 and client.err[0] == b"last\n"


def test_input_that_nobody_took_does_not_spoil_the_output(start: Start, client: Client) -> None:
    """Bytes that the client still sends at the end must not reset the connection."""
    client.reading.clear()
    step = begin(start, client, tasks(1, "head -c 300000 /dev/zero"))
    client.until(lambda: client.connections)
    client.say(0, b"I", struct.pack(">I", 0) + b"x" * 60000)
    step.finish()
    client.say(0, b"W", b"\0\1\0\1")
    client.reading.set()
    client.finish()
    assert len(client.out[0]) == 300_000


def test_files_of_their_own(start: Start, client: Client) -> None:
    out = start.out

    def own(i: int) -> Records:
        return [
            ("tstdin", f"{out}/in"),
            ("tstdout", f"{out}/new/dir/out.{i}"),
            ("tstderr", f"{out}/err.{i}"),
        ]

    (out / "in").write_text("given\n")
    step = begin(start, client, tasks(2, "cat; echo e$SLURM_PROCID >&2", own=own))
    assert step.finish().wstatus == 0
    client.finish()
    assert not client.out and not client.err and not client.closed
    for i in range(2):
        assert text(step, f"new/dir/out.{i}") == "given\n" and text(step, f"err.{i}") == f"e{i}\n"
        assert os.stat(out / f"err.{i}").st_uid == os.stat(out).st_uid
    step = begin(start, client, tasks(2, "echo more", own=own), openmode="append")
    assert step.finish().wstatus == 0
    assert text(step, "new/dir/out.1") == "given\nmore\n"


def test_output_and_error_in_one_file(start: Start, client: Client) -> None:
    out = start.out
    own: Records = [("tstdout", f"{out}/both"), ("tstderr", f"{out}/both")]
    step = begin(start, client, tasks(1, "echo one; echo two >&2; echo three", own=lambda i: own))
    assert step.finish().wstatus == 0
    assert text(step, "both") == "one\ntwo\nthree\n"


def test_a_kill_is_told_in_the_file_of_the_first_task(start: Start, client: Client) -> None:
    out = start.out
    script = "echo up >&2; exec sleep 300"
    step = begin(
        start, client, tasks(2, script, own=lambda i: [("tstderr", f"{out}/err.{i}")])
    )  # fmt: skip
    wait_for(out / "err.0")
    wait_for(out / "err.1")
    step.tell("kill9 cancelled")
    assert step.finish().wstatus == 9
    assert "*** STEP 7.0 ON gpu01 CANCELLED AT " in text(step, "err.0")
    assert text(step, "err.1") == "up\n"


@pytest.mark.root
def test_files_are_opened_with_the_rights_of_the_user(
    binary: Path, client: Client, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    for begin_step in starter(binary, nobody=True):
        own: Records = [("tstdout", f"{tmp_path}/x")]
        step = begin_step("", *tasks(1, "true", own=lambda i: own), *client.records(), out="")  # noqa: B023
        status = step.finish()
        assert (status.wstatus, status.failed and status.failed[0]) == (53, 13)
        assert not (tmp_path / "x").exists()


def test_a_fifo_of_one_task_holds_up_neither_others_nor_a_kill(
    start: Start, client: Client
) -> None:
    out = start.out
    os.mkfifo(out / "fifo")
    os.chown(out / "fifo", os.stat(out).st_uid, os.stat(out).st_gid)

    def own(i: int) -> Records:
        return [("tstdout", f"{out}/fifo")] if i == 0 else []

    step = begin(start, client, tasks(3, "echo here", own=own))
    client.until(lambda: {("O", 1), ("O", 2), ("E", 1), ("E", 2)} <= client.closed)
    step.until("task 2 ended")
    step.tell("kill cancelled")
    assert step.finish().tasks[0].wstatus == 15
    client.finish()


# -- the terminal


def terminal(client: Client, script: str, n: int = 1) -> Records:
    client.window = (33, 77)
    return [*tasks(n, script), ("pty", 1), ("env", "TERM=dumb")]


def test_a_terminal(start: Start, client: Client) -> None:
    script = (
        "tty; stty size; stat -c %u $(tty); ps -o sid=,pgid=,tpgid= -p $$; echo $$; "
        "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo err >&2"
    )
    step = begin(start, client, terminal(client, script))
    assert step.finish().wstatus == 0
    client.finish()
    lines = client.out[0].decode().split("\r\n")
    assert re.fullmatch(r"/dev/pts/\d+", lines[0])
    assert lines[1] == "33 77"  # known before the task begins
    assert lines[2] == str(os.stat(start.out).st_uid)
    assert set(lines[3].split()) == {lines[4]}  # leader of its session, in the foreground
    assert lines[5:] == ["all", "err", ""]
    assert client.closed == {("O", 0)} and not client.err


def test_a_terminal_is_typed_at_and_resized(start: Start, client: Client) -> None:
    script = "trap 'stty size' WINCH; echo up; while read x; do echo got $x; done; echo end"
    step = begin(start, client, terminal(client, script))
    client.until(lambda: b"up\r\n" in client.out[0])
    client.feed(0, b"one\n")
    client.until(lambda: b"got one\r\n" in client.out[0])
    client.say(0, b"W", struct.pack(">HH", 50, 120))
    client.feed(0, b"two\n")
    client.until(lambda: b"50 120\r\n" in client.out[0])
    client.feed(0, b"")  # end of file, as if control-D had been typed
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0].endswith(b"end\r\n")
    assert b"one\r\ngot one\r\n" in client.out[0]  # the terminal echoes


def test_control_c_at_a_terminal(start: Start, client: Client) -> None:
    step = begin(start, client, terminal(client, "trap 'echo int; exit 9' INT; echo up; read x"))
    client.until(lambda: b"up\r\n" in client.out[0])
    client.feed(0, b"\3")
    assert step.finish().wstatus == 9 << 8
    client.finish()
    assert client.out[0].endswith(b"int\r\n")


def test_a_terminal_without_a_size_starts_all_the_same(start: Start, client: Client) -> None:
    records = terminal(client, "stty size")
    client.window = None
    step = begin(start, client, records)
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0] == b"0 0\r\n"


def test_only_the_first_task_has_the_terminal(start: Start, client: Client) -> None:
    script = "ls -l /proc/$$/fd | grep -c /dev/null > nulls$SLURM_PROCID; echo seen; exit 0"
    step = begin(start, client, terminal(client, script, 3))
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out == {0: b"seen\r\n"}
    assert [text(step, f"nulls{i}") for i in (1, 2)] == ["3\n", "3\n"]


def test_a_killed_terminal_tells_why(start: Start, client: Client) -> None:
    step = begin(start, client, terminal(client, "echo up; sleep 300"))
    client.until(lambda: b"up\r\n" in client.out[0])
    step.tell("kill9 cancelled")
    assert step.finish().wstatus == 9
    client.finish()
    assert b"CANCELLED AT" in client.err[0]


# -- what it costs


def test_memory_of_both_parts(start: Start, client: Client) -> None:
    """At most 5 MB resident each, with a large environment, after work in both directions."""
    script = "head -c 5000000; echo up; exec sleep 300"
    more: Records = [("env", f"V{n}={'x' * 10000}") for n in range(60)]
    step = begin(start, client, [*tasks(8, script), ("pmi", 2), *more])
    client.feed(ALL, b"z" * 5_000_000)
    client.until(lambda: all(client.out[i].endswith(b"up\n") for i in range(8)))
    with step.connect() as ctl:
        ctl.sendall(b"ping\n")
        ctl.recv(100)
        assert_small(step.pid)
        assert_small(mover_of(step))
    step.tell("kill9 silent")
    step.finish()


def test_the_mover_is_nobody_elses_to_look_into(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(1, "echo up; read x"))
    client.until(lambda: client.out[0])
    pid = mover_of(step)
    status = Path(f"/proc/{pid}/status").read_text()
    uid = str(os.stat(start.out).st_uid)
    assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.M)
    # Not even by processes of the same user, but for those that may trace any.
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0
    client.feed(ALL, b"\n")
    assert step.finish().wstatus == 0


def test_a_mover_that_is_killed_ends_the_step(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(2, "echo up; exec sleep 300"))
    client.until(lambda: len(client.out) == 2)
    os.kill(mover_of(step), signal.SIGKILL)
    status = step.finish()
    assert status.failed is not None and status.failed[1].startswith("io: what moves its input")
    assert [task.wstatus for task in status.tasks.values()] == [9, 9]


# -- nonsense from whoever answers


def test_frames_of_nonsense(start: Start) -> None:
    """Whatever comes instead of a client: the step goes on or ends, and the supervisor lives."""
    rng = random.Random(5)
    for round in range(25):
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        io: Records = [("io", f"127.0.0.1:{port}"), ("io_secret", "ab" * 32), ("pmi", 2)]
        step = start("", *tasks(2, "echo up; read x; exit 3"), *io, out="")
        sock, _ = listener.accept()
        letters = b"IIIKWWXOE\0"
        with sock:
            sock.settimeout(5)
            try:
                for _ in range(rng.randrange(1, 30)):
                    body = rng.randbytes(rng.choice([0, 1, 3, 4, 5, 20, 3000]))
                    length = len(body) + 1 if rng.random() < 0.9 else rng.randrange(1 << 32)
                    letter = bytes([rng.choice(letters)])
                    if letter == b"I" and rng.random() < 0.8:
                        body = struct.pack(">I", rng.choice([0, 1, ALL])) + body
                        length = len(body) + 1
                    sock.sendall(struct.pack(">I", length) + letter + body)
            except OSError:
                pass
            if round % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        listener.close()
        status = step.finish()
        assert all(task.wstatus is not None for task in status.tasks.values())


# -- those who follow


def attach(step: Step, follower: Client, task: int = -1, feeds: bool = False) -> None:
    step.tell(f"attach 127.0.0.1:{follower.port} {follower.secret.hex()} 0 {task} {int(feeds)}")
    follower.until(lambda: follower.connections)


@pytest.fixture
def follower() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def test_a_follower_gets_what_comes(start: Start, client: Client, follower: Client) -> None:
    script = "echo early; read x; echo late $x; echo err >&2; exit 3"
    step = begin(start, client, tasks(2, script))
    client.until(lambda: len(client.out) == 2)
    attach(step, follower)
    client.feed(ALL, b"go\n")
    assert step.finish().wstatus == 3 << 8
    client.finish()
    follower.finish()
    assert follower.out == {0: b"late go\n", 1: b"late go\n"}
    assert follower.err == client.err == {0: b"err\n", 1: b"err\n"}
    assert client.out[0] == b"early\nlate go\n"
    assert follower.closed == client.closed


def test_a_follower_of_one_task_that_feeds_it(
    start: Start, client: Client, follower: Client
) -> None:
    step = begin(start, client, tasks(2, "read x; echo got $x; [ $x = two ]"))
    client.until(lambda: client.connections)
    attach(step, follower, task=1, feeds=True)
    follower.feed(1, b"two\n")
    client.feed(0, b"one\n")
    status = step.finish()
    client.finish()
    follower.finish()
    assert follower.out == {1: b"got two\n"}
    assert client.out == {0: b"got one\n", 1: b"got two\n"}
    assert status.tasks[1].wstatus == 0
    assert follower.credit[1] == client.credit[0] == MORE + 4


def test_a_follower_that_only_looks_cannot_feed(
    start: Start, client: Client, follower: Client
) -> None:
    step = begin(start, client, tasks(1, "read x; echo got $x"))
    client.until(lambda: client.connections)
    attach(step, follower)
    follower.say(0, b"I", struct.pack(">I", 0) + b"evil\n")
    follower.say(0, b"I", struct.pack(">I", ALL))
    client.feed(0, b"good\n")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0] == b"got good\n"


def test_followers_come_and_go(start: Start, client: Client) -> None:
    """Also more than there is room for; the step and its client notice nothing."""
    step = begin(start, client, tasks(1, "while read x; do echo $x; done"))
    client.until(lambda: client.connections)
    for round in range(12):
        guests = [Client() for _ in range(2)]
        for guest in guests:
            attach(step, guest)
        client.feed(0, f"{round}\n".encode())
        for guest in guests:
            guest.until(lambda: guest.out[0])  # noqa: B023
            assert guest.out[0] == f"{round}\n".encode()
            guest.close()
        time.sleep(0.01)
    client.feed(0, b"")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0].decode().split() == [str(round) for round in range(12)]


def test_a_follower_that_is_not_there_changes_nothing(start: Start, client: Client) -> None:
    step = begin(start, client, tasks(1, "read x; echo end"))
    client.until(lambda: client.connections)
    step.tell(f"attach 127.0.0.1:1 {'00' * 32} 0 -1 0")
    for bad in ("", "x", f"h {'00' * 32} 0 -1 0", "h:1 00 0 -1 0", f"h:1 {'00' * 32} 0 -1 0 1"):
        step.tell(f"attach {bad}")
    step.until("error")
    client.feed(0, b"\n")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0] == b"end\n"
    assert sum(line.startswith("error attach takes") for line in step.lines) == 5
