"""Commands on a host without the controller: a frontend there that carries them over one link."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.wire.codec import decode, encode
from gsched.wire.framing import frame, recv_frame, send_frame
from gsched.wire.messages import FromFrontend, OnBehalf, StatusQuery


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


class LoginHost:
    """A directory as another host has it: slurm.conf, two keys, sockets of its own."""

    def __init__(self, cluster: LocalCluster, prefix: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self.prefix = list(prefix)
        self.dir = cluster.base / "login"
        for name in ("etc/keys", "run"):
            (self.dir / name).mkdir(parents=True)
        text = (cluster.dir / "etc/slurm.conf").read_text()
        text = re.sub(r"(?m)^SlurmctldPidFile=.*", f"SlurmctldPidFile={self.dir}/run/c.pid", text)
        text = re.sub(r"(?m)^StateSaveLocation=.*", f"StateSaveLocation={self.dir}/none", text)
        text = re.sub(r"(?m)^SlurmdPidFile=.*", f"SlurmdPidFile={self.dir}/run/d.%n.pid", text)
        (self.dir / "etc/slurm.conf").write_text(text)
        for name in ("controller.key", "frontend.key", "frontend.key_secret"):
            shutil.copy(cluster.dir / "etc/keys" / name, self.dir / "etc/keys" / name)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        return {**self.cluster.env(), "SLURM_CONF": str(self.dir / "etc/slurm.conf")}

    def start(self) -> None:
        argv = [sys.executable, "-P", "-m", "gsched.frontend.main", "-D", "-r"]
        self.process = subprocess.Popen(
            [*self.prefix, *argv, "-f", str(self.dir / "etc/slurm.conf")],
            env={**self.env, "PATH": os.environ["PATH"]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until("answers", lambda: not self.run("squeue", check=False).returncode)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.prefix, str(BIN / argv[0]), *argv[1:]],
            env=self.env,
            cwd=self.cluster.work,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done


@pytest.fixture(scope="module")
def login() -> Iterator[LoginHost]:
    options = ("--simulate", "peer", "--set", f"FrontendPort={free_port()}")
    with LocalCluster(*options) as cluster:
        host = LoginHost(cluster)
        try:
            host.start()
            yield host
        finally:
            host.stop()


def test_commands_work_as_beside_the_controller(login: LoginHost) -> None:
    job = int(login.run("sbatch", "--parsable", "-o", "far.out", "--wrap", "echo far").stdout)
    login.cluster.ended(job)
    assert (login.cluster.work / "far.out").read_text() == "far\n"
    for argv in (["sinfo"], ["scontrol", "show", "job", str(job)], ["squeue", "-t", "all", "-h"]):
        here = login.cluster.run(argv).stdout
        assert login.run(*argv).stdout == here


def test_python_command_takes_the_same_way(login: LoginHost) -> None:
    done = subprocess.run(
        [str(BIN / "sinfo")],
        env={**login.env, "GSCHED_PYTHON_CLIENT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == login.run("sinfo").stdout
    assert done.stdout.startswith("PARTITION")


def test_srun_from_a_login_host(login: LoginHost) -> None:
    done = login.run("srun", "-N2", "-n2", "-l", "printenv", "SLURM_PROCID")
    assert sorted(done.stdout.splitlines()) == ["0: 0", "1: 1"]


def test_nobody_names_another_user_through_the_link(login: LoginHost) -> None:
    """What follows the first message of a connection is handed on as it is, so a second name in it
    must not count. The first is believed of the frontend's own user, who runs this test."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(login.dir / "run/frontend.sock"))
        sock.sendall(
            frame(encode(OnBehalf(4711, 4711, 1))) + frame(encode(OnBehalf(os.getuid(), 0, 1)))
        )
        answer = recv_frame(sock)
        assert "not allowed to ask for others" in str(decode(FromFrontend, answer))
        assert sock.recv(1) == b""


def test_clients_go_on_when_a_frontend_was_killed(login: LoginHost) -> None:
    gate = subprocess.run(
        ["pgrep", "-f", f"gsched.frontend.gate {login.cluster.dir}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    os.kill(int(gate[0]), signal.SIGKILL)
    until("answers again", lambda: not login.run("squeue", check=False).returncode)


def test_large_answers_come_whole(login: LoginHost) -> None:
    name = "x" * 900
    for _ in range(3):
        login.run("sbatch", "-H", "-J", name, "-a", "0-99", "--wrap", "true")
    try:
        lines = login.run("squeue", "-h", "-r", "-o", "%j").stdout.splitlines()
        assert [len(line) for line in lines] == [900] * 300
    finally:
        login.run("scancel", "--me")


def test_strangers_are_not_let_in(login: LoginHost) -> None:
    import zmq

    port = int(re.search(r"FrontendPort=(\d+)", (login.dir / "etc/slurm.conf").read_text())[1])  # type: ignore[index]
    context = zmq.Context()
    sock = context.socket(zmq.DEALER)
    sock.linger = 0
    public, secret = zmq.curve_keypair()
    server = (login.dir / "etc/keys/controller.key").read_text()
    sock.curve_publickey, sock.curve_secretkey = public, secret
    sock.curve_serverkey = re.search(r'public-key = "(.{40})"', server)[1].encode()  # type: ignore[index]
    monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    sock.connect(f"tcp://127.0.0.1:{port}")
    assert monitor.poll(10_000), "the handshake was not refused"
    sock.close()
    monitor.close(linger=0)
    context.term()


def test_typed_requests(login: LoginHost) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(login.dir / "run/frontend.sock"))
        send_frame(sock, encode(StatusQuery()))
        assert decode(FromFrontend, recv_frame(sock)).controller_up


# ---- two hosts ------------------------------------------------------------------------------


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace that reaches this one at 10.213.77.1; its name."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip to make a network namespace")
    name, link = f"gs{os.getpid()}", f"gv{os.getpid()}"
    steps = [
        f"ip netns add {name}",
        f"ip link add {link} type veth peer name {link}p netns {name}",
        f"ip addr add 10.213.77.1/30 dev {link}",
        f"ip link set {link} up",
        f"ip netns exec {name} ip addr add 10.213.77.2/30 dev {link}p",
        f"ip netns exec {name} ip link set {link}p up",
        f"ip netns exec {name} ip link set lo up",
    ]
    try:
        for step in steps:
            if subprocess.run(step.split(), capture_output=True).returncode:
                pytest.skip(f"no network namespaces here: {step}")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", link], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.root
def test_across_network_namespaces(namespace: str) -> None:
    """The login host reaches the controller's address alone, and nothing of its loopback."""
    host = socket.gethostname().partition(".")[0]
    options = (
        *("--simulate", "peer", "--set", f"FrontendPort={free_port()}"),
        *("--set", f"SlurmctldHost={host}(10.213.77.1)"),
    )
    with LocalCluster(*options) as cluster:
        far = LoginHost(cluster, ["ip", "netns", "exec", namespace])
        try:
            far.start()
            assert far.run("sinfo").stdout == cluster.run(["sinfo"]).stdout
            job = int(far.run("sbatch", "--parsable", "-o", "ns.out", "--wrap", "echo ns").stdout)
            cluster.ended(job)
            assert (cluster.work / "ns.out").read_text() == "ns\n"
            done = far.run("srun", "-N2", "-n2", "-l", "printenv", "SLURM_PROCID")
            assert sorted(done.stdout.splitlines()) == ["0: 0", "1: 1"]
            done = far.run("salloc", "-n1", str(BIN / "srun"), "printenv", "SLURM_NTASKS")
            assert done.stdout == "1\n"
        finally:
            far.stop()
