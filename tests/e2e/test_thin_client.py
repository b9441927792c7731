"""The thin client: the same bytes as the Python command, as whom it runs, whatever dies."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.client import Client
from gsched.wire.messages import BlobQuery

#: command lines that change nothing
READS = [
    ["squeue"],
    ["squeue", "-a", "-l"],
    ["squeue", "-o", "%i %j %T %r", "-h"],
    ["squeue", "-j", "4242"],
    ["squeue", "--nonsense"],
    ["squeue", "-V"],
    ["squeue", "--help"],
    ["sinfo", "-N", "-o", "%N %c %G %T"],
    ["sinfo", "-i", "x"],
    ["scontrol", "show", "node", "node1"],
    ["scontrol", "show", "hostnames", "n[1-3,7]"],
    ["scontrol", "show", "job", "999"],
    ["scontrol", "show", "config"],
    ["scontrol"],
    ["scontrol", "wait_job", "999"],
    ["sacct", "-X", "-n", "-o", "jobid,state"],
    ["sacct", "-j", "x"],
    ["scancel"],
    ["scancel", "999"],
    ["sbatch", "--help"],
    ["sbatch", "--gres=gpu:99", "--wrap", "true"],
    ["sbatch", "no-such-script.sh"],
    ["sbatch", "/etc"],
    ["sbatch", "--export-file=no-such-folder/file", "--wrap", "true"],
    ["sbatch", "--test-only", "-N2", "--wrap", "true"],
    ["sbatch", "--uid=12345", "--test-only", "--wrap", "true"],
]


def told(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """Exit code and both outputs, without what differs from moment to moment."""
    texts = (done.stdout, done.stderr)
    out, err = (
        re.sub(r"\d{4}-\d\d-\d\dT[\d:]+|\d+(?::\d\d)+\b|Job \d+", "T", text) for text in texts
    )
    return done.returncode, out, err


@pytest.mark.parametrize("argv", READS, ids=" ".join)
def test_both_ways_say_the_same(cluster: LocalCluster, argv: list[str]) -> None:
    env = {**cluster.env(), "TZ": "Asia/Tokyo"}
    path = [str(BIN / argv[0]), *argv[1:]]
    thin = cluster.run(path, check=False, env=env, cwd=cluster.work)
    python = cluster.run(
        path, check=False, env={**env, "GSCHED_PYTHON_CLIENT": "1"}, cwd=cluster.work
    )
    assert told(thin) == told(python)


def submit(cluster: LocalCluster, python: bool, *argv: str, stdin: str = "") -> int:
    env = {**cluster.env(), "GSCHED_PYTHON_CLIENT": "1"} if python else cluster.env()
    env |= {"MARK": "a b\nc", "LATIN": os.fsdecode(b"\xe9")}
    done = cluster.run(
        [str(BIN / "sbatch"), "--parsable", *argv], stdin=stdin, env=env, cwd=cluster.work
    )
    return int(done.stdout)


@pytest.mark.parametrize("way", ["wrap", "file", "stdin", "path"])
def test_both_ways_submit_the_same(cluster: LocalCluster, way: str) -> None:
    script = "#!/bin/bash\n#SBATCH -J same\n#SBATCH -H -o /dev/null\ntrue\n"
    (cluster.work / "same.sh").write_text(script)
    (cluster.work / "same.sh").chmod(0o755)
    argv, stdin = {
        "wrap": (["-H", "-o", "/dev/null", "--wrap", "true"], ""),
        "file": (["same.sh", "one", "two  three"], ""),
        "stdin": ([], script),
        "path": (["-D", "/tmp", str(cluster.work / "same.sh")], ""),
    }[way]
    ids = [submit(cluster, python, *argv, stdin=stdin) for python in (False, True)]
    records = [cluster.job(job_id) for job_id in ids]
    with Client(str(cluster.socket)) as client:
        environments = [
            set(client.blob(BlobQuery(job_id, "environment")).split(b"\0")) for job_id in ids
        ]
    assert environments[0] ^ environments[1] == {b"GSCHED_PYTHON_CLIENT=1"}
    fields = ("uid", "gid", "user", "group", "script", "time_limit", "partition")
    for name in fields:
        assert getattr(records[0], name) == getattr(records[1], name), name
    # Each command runs in a session of its own here.
    for record in records:
        record.spec.alloc_sid = 0
    assert records[0].spec == records[1].spec
    cluster.run([str(BIN / "scancel"), *map(str, ids)])


def workers(cluster: LocalCluster) -> list[int]:
    """Pids of the workers that run command lines."""
    done = subprocess.run(
        ["pgrep", "-f", f"gsched.frontend.commands {cluster.dir}/"], capture_output=True, text=True
    )
    return [int(pid) for pid in done.stdout.split()]


def test_commands_that_wait_hold_no_worker(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-H", "-o", "/dev/null", "--wrap", "true")
    argv = [str(BIN / "squeue"), "-h", "-i", "1", "-j", str(job_id), "-o", "%i"]
    held = [
        subprocess.Popen(argv, env=cluster.env(), stdout=subprocess.PIPE)
        for _ in range(len(workers(cluster)) + 1)
    ]
    for process in held:
        assert process.stdout is not None
        # With -i squeue tells the time first.
        assert len(process.stdout.readline().split()) == 5
        assert process.stdout.readline().split() == [str(job_id).encode()]
    assert cluster.run([str(BIN / "squeue"), "-h", "-j", str(job_id)]).stdout
    for process in held:
        process.terminate()
        process.communicate()
    cluster.run([str(BIN / "scancel"), str(job_id)])


def test_killed_workers_lose_and_double_nothing(cluster: LocalCluster) -> None:
    rounds, stop = 10, threading.Event()

    def kill() -> None:
        while not stop.is_set():
            for pid in workers(cluster):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.15)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        ids = [
            submit(cluster, False, "-H", "-J", f"kill{n}", "-o", "/dev/null", "--wrap", "true")
            for n in range(rounds)
        ]
    finally:
        stop.set()
        killer.join()
    names = cluster.run([str(BIN / "squeue"), "-h", "-o", "%j", "-j", ",".join(map(str, ids))])
    assert sorted(names.stdout.split()) == sorted(f"kill{n}" for n in range(rounds))
    every = cluster.run([str(BIN / "squeue"), "-h", "-o", "%j"]).stdout.split()
    assert sum(name.startswith("kill") for name in every) == rounds
    cluster.run([str(BIN / "scancel"), *map(str, ids)])
    until("new workers", lambda: len(workers(cluster)) >= 2)


def test_a_user_is_who_the_kernel_says(cluster: LocalCluster, other_user: str) -> None:
    mine = cluster.sbatch("-H", "-o", "/dev/null", "--wrap", "true")
    denied = cluster.run([str(BIN / "scancel"), str(mine)], user=other_user, check=False)
    assert denied.returncode and "Access/permission denied" in denied.stderr
    env = {**cluster.env(other_user), "USER": "root", "LOGNAME": "root"}
    done = cluster.run(
        [str(BIN / "sbatch"), "-H", "-o", "/dev/null", "--parsable", "--wrap", "true"],
        user=other_user,
        env=env,
        cwd=cluster.work,
    )
    assert cluster.job(int(done.stdout)).user == other_user
    cluster.run([str(BIN / "scancel"), str(mine), done.stdout.strip()])


def test_a_file_is_read_with_the_users_rights(cluster: LocalCluster, other_user: str) -> None:
    secret = cluster.work / "secret.sh"
    secret.write_text("#!/bin/sh\ntrue\n")
    secret.chmod(0o600)
    # Without the capability that lets the test's user read this installation.
    words = ["setpriv", f"--reuid={other_user}", "--clear-groups"]
    probe = subprocess.run(
        [*words, "sh", "-c", f"test -x {BIN}/sbatch"], cwd="/", capture_output=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"the user {other_user} cannot reach {BIN} without more rights")
    done = subprocess.run(
        [*words, str(BIN / "sbatch"), str(secret)],
        env=cluster.env(other_user),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 1
    assert done.stderr == f"sbatch: error: Unable to open file {secret}\n"


# ---- a worker that misbehaves -------------------------------------------------------------------


def message(letter: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data) + 1) + letter + data


ODD = {
    "nothing": b"",
    "half a head": b"\0\0",
    "half a message": message(b"O", b"abc")[:-1],
    "too long": struct.pack(">I", 0xFFFFFFFF) + b"O",
    "no letter": struct.pack(">I", 0),
    "unknown letter": message(b"Z", b"x"),
    "own process": message(b"P"),
}


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD)
def test_a_strange_worker_is_left_for_python(tmp_path: Path, answer: bytes) -> None:
    done = against(tmp_path, answer)
    # There is no typed worker: what Python says then.
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Unable to contact slurm controller (connect failure)" in done.stderr


def test_half_an_answer_is_not_followed_by_another(tmp_path: Path) -> None:
    done = against(tmp_path, message(b"O", b"half\n"))
    assert (done.returncode, done.stdout) == (1, "half\n")
    assert done.stderr == "squeue: error: the answer broke off\n"


def test_the_exit_code_is_the_workers(tmp_path: Path) -> None:
    done = against(tmp_path, message(b"E", b"no\n") + message(b"X", bytes([7])))
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "no\n")


def against(
    folder: Path, answer: bytes, more: Callable[[socket.socket], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """squeue against a worker that answers so, whatever is asked."""
    conf = folder / "slurm.conf"
    conf.write_text(f"ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPidFile={folder}/ctl.pid\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "command.sock"))
        listener.listen()

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1 << 20)
                sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        done = subprocess.run(
            [str(BIN / "squeue")],
            env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        thread.join()
    return done


def test_output_that_nobody_reads_holds_no_worker(tmp_path: Path) -> None:
    """A pager takes its time: the client takes all that the worker says meanwhile."""
    lines = [b"%06d %s\n" % (n, b"x" * 1000) for n in range(3000)]
    letters = [b"E" if n % 7 == 3 else b"O" for n in range(len(lines))]
    said = b"".join(message(b, line) for b, line in zip(letters, lines, strict=True))
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        f"ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPidFile={tmp_path}/ctl.pid\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "command.sock"))
        listener.listen()
        listener.settimeout(30)
        with subprocess.Popen(
            [str(BIN / "squeue")],
            env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(30)
                sock.sendall(message(b"H") + said + message(b"X", b"\x05"))
            assert process.stdout is not None
            assert process.stdout.read() == b"".join(lines)
        assert process.returncode == 5
