"""How a plan reaches the client that stays: from a worker, and from a Python process that becomes
the mover."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gsched.frontend.commands import Commands
from gsched.wire.codec import BadMessage
from gsched.wire.commandline import parse
from gsched.wire.framing import _recv_exactly
from gsched_cli.own_mover import OwnMover

SECRET = bytes(range(32))


def field(letter: bytes, value: bytes) -> bytes:
    return letter + struct.pack(">I", len(value)) + value


def request(name: bytes, *more: bytes) -> bytes:
    return b"".join(
        [
            field(b"n", name),
            field(b"i", b"00112233445566778899aabbccddeeff"),
            field(b"d", b"/home/alice"),
            *more,
        ]
    )


LISTENING = field(b"c", b"40404 " + SECRET.hex().encode())


def test_whether_there_is_a_terminal() -> None:
    assert parse(request(b"srun")).terminal is None
    assert parse(request(b"srun", field(b"t", b"1 0 0 24 80"))).terminal is True
    assert parse(request(b"srun", field(b"t", b"1 0 0 24 80"))).window == (24, 80)
    assert parse(request(b"srun", field(b"t", b"0 1 1 24 80"))).terminal is False


def test_where_a_client_listens() -> None:
    line = parse(request(b"srun", LISTENING))
    assert (line.port, line.secret) == (40404, SECRET)
    assert (parse(request(b"srun")).port, parse(request(b"srun")).secret) == (0, b"")


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"40404", b"40404 ", b"40404 00", b"0 " + b"00" * 32, b"99999 " + b"00" * 32],
)
def test_a_client_that_does_not_know_where_it_listens(value: bytes) -> None:
    with pytest.raises(BadMessage):
        parse(request(b"srun", field(b"c", value)))


def _conversation(
    tmp_path: Path, data: bytes, run: Callable[..., int]
) -> list[tuple[bytes, bytes]]:
    """What a worker says to a client that sends `data` and whose command is `run`."""
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=localhost\n")
    path = str(tmp_path / "command.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        commands = Commands(listener, str(tmp_path / "slurm.conf"), str(tmp_path / "none.sock"))
        commands._run["srun"] = run
        client.connect(path)
        client.sendall(struct.pack(">I", len(data) + 1) + b"C" + data)
        worker = threading.Thread(target=commands.serve)
        worker.start()
        heard = []
        while True:
            try:
                (size,) = struct.unpack(">I", _recv_exactly(client, 4))
            except Exception:
                break
            message = _recv_exactly(client, size)
            heard.append((message[:1], message[1:]))
        worker.join()
    return heard


def _planning(argv: object, env: object, cwd: object, streams: object, *more: object) -> int:
    process = more[1]
    assert process.mover.behalf == (os.getuid(), os.getgid(), os.getpid())  # type: ignore[attr-defined]
    assert process.mover.listening() == (40404, SECRET)  # type: ignore[attr-defined]
    streams.stderr.write("srun: said before\n")  # type: ignore[attr-defined]
    code: int = process.mover.follow(b"mode=step\0")  # type: ignore[attr-defined]
    return code


def test_a_worker_s_last_word_is_the_plan(tmp_path: Path) -> None:
    heard = _conversation(tmp_path, request(b"srun", LISTENING), _planning)
    assert heard == [(b"H", b""), (b"E", b"srun: said before\n"), (b"M", b"mode=step\0")]


def test_a_client_that_does_not_listen_runs_the_command_itself(tmp_path: Path) -> None:
    heard = _conversation(tmp_path, request(b"srun"), lambda *all_: all_[5].mover.listening() and 0)
    assert heard == [(b"H", b""), (b"P", b"")]


MOVER = f"""#!{sys.executable}
import os, socket, sys
name, listener = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
plan = open(int(sys.argv[3]), "rb")
print(name, listener.getsockname()[1], plan.read().hex())
"""

STARTER = """
import sys
sys.argv[0] = sys.argv[1]
from gsched_cli.own_mover import OwnMover
mover = OwnMover("srun")
port, secret = mover.listening()
print(port, secret.hex(), flush=True)
sys.exit(mover.follow(b"mode=step\\0"))
"""


def test_a_python_command_becomes_the_mover(tmp_path: Path) -> None:
    mover = tmp_path / "gsched-mover"
    mover.write_text(MOVER)
    mover.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", STARTER, str(tmp_path / "gsched-command")],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    port, secret = first.split()
    assert second == f"srun {port} {secret}{b'mode=step'.hex()}00"
    assert len(secret) == 64


def test_the_listener_of_the_thin_client_is_taken_over(tmp_path: Path) -> None:
    """A request that is made again must be called back at the same place."""
    mover = tmp_path / "gsched-mover"
    mover.write_text(MOVER)
    mover.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        where = f"{listener.fileno()} {port} {SECRET.hex()}"
        done = subprocess.run(
            [sys.executable, "-c", STARTER, str(tmp_path / "gsched-command")],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GSCHED_LISTENER": where},
            pass_fds=[listener.fileno()],
        )
    assert done.stdout.splitlines()[0] == f"{port} {SECRET.hex()}"


def test_ports_of_the_site(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    mover = OwnMover("srun")
    assert mover.listening(f"{free}-{free}")[0] == free
    with pytest.raises(OSError, match=r"[Aa]ddress"):
        OwnMover("srun").listening(f"{free}-{free}")


@pytest.mark.parametrize(
    ("ports", "last"), [("40000-40403", (b"P", b"")), ("40404-40404", (b"X", b"\0"))]
)
def test_a_client_that_listens_outside_the_site_s_ports(
    tmp_path: Path, ports: str, last: tuple[bytes, bytes]
) -> None:
    """It did not read all of slurm.conf: the Python command opens another listener."""

    def run(*given: object) -> int:
        given[5].mover.listening(ports)  # type: ignore[attr-defined]
        return 0

    assert _conversation(tmp_path, request(b"srun", LISTENING), run)[-1] == last


def test_a_listener_outside_the_site_s_ports_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    handed = socket.create_server(("127.0.0.1", 0))
    port = handed.getsockname()[1]
    monkeypatch.setenv("GSCHED_LISTENER", f"{handed.detach()} {port} {SECRET.hex()}")
    mover = OwnMover("srun")
    assert mover.listening(f"{free}-{free}")[0] == free
    assert mover.listening(f"{free}-{free}")[1] != SECRET
