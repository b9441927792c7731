"""How a client of steps reaches the agent of its job, and how agents reach the client.

An agent of the job on this host is asked through its Unix socket: a script with thousands of
steps does not touch the controller. Where none is here, the question goes through frontend and
controller to the agent that leads the job.
"""

from __future__ import annotations

import contextlib
import glob
import os
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gsched_cli.common import Reader

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.step import Callback
    from gsched.wire.steps import AttachStep, CreateStep, NotTaken, Pids, StatSteps, Taken, Usages
    from gsched_cli.process import Mover, Process

    Question = CreateStep | AttachStep | StatSteps
    Answer = Taken | NotTaken | Usages | Pids

#: seconds for an agent's answer: it journals, and answers before it looks for resources
PATIENCE_S = 20.0
#: how often an agent that cannot be reached is asked again
RETRIES = 3
LOOPBACK = "127.0.0.1"

#: the controller's words for a job that can have no steps
_WITHOUT_STEPS = {
    *("ESLURM_INVALID_JOB_ID", "ESLURM_JOB_PENDING", "ESLURM_ALREADY_DONE"),
    *("ESLURM_ACCESS_DENIED", "ESLURM_USER_ID_MISSING"),
}

#: (names and ports that were tried) -> the address found
_addresses: dict[tuple[tuple[str, int], ...], str] = {}


def callback(config: Config, mover: Mover) -> Callback:
    """Where agents find this client. Raises OwnProcess, OSError."""
    from gsched.model.step import Callback

    port, secret = mover.listening(config.raw.get("srunportrange", ""))
    return Callback(own_address(config), port, secret)


def own_address(config: Config) -> str:
    """The address of this host that the other hosts of the cluster see: that from which it would
    speak to the controller, or, on the controller's own host, to a node elsewhere."""
    targets = tuple((host.addr, config.slurmctld_port) for host in config.slurmctld_host)
    nodes = dict.fromkeys((node.addr, config.slurmd_port) for node in config.nodes.values())
    # A few nodes stand for all: who is not alone has one elsewhere among them.
    targets += tuple(nodes)[:3] + tuple(nodes)[-1:]
    found = _addresses.get(targets)
    if found is None:
        found = _addresses[targets] = _first_address(targets)
    return found


def _first_address(targets: tuple[tuple[str, int], ...]) -> str:
    for host, port in targets:
        with contextlib.suppress(OSError):
            for family, kind, _, _, address in socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM
            ):
                with socket.socket(family, kind) as probe:
                    # Nothing is sent: the kernel only says which way it would go.
                    probe.connect(address)
                    own = str(probe.getsockname()[0])
                if not own.startswith("127.") and own != "::1":
                    return own
    return LOOPBACK


def ask(
    question: Question,
    job_id: int,
    reader: Reader,
    env: Mapping[str, str],
    process: Process,
) -> Answer:
    """The agent's answer. NotTaken with `unknown` where nobody holds such a job. Raises
    ControllerDown, OSError."""
    from gsched.wire.messages import AskAgent, Done
    from gsched.wire.steps import FromAgent, NotTaken
    from gsched.wire.usertext import decode, encode

    behalf = process.mover.behalf if process.mover else None

    config = reader.settings()
    payload = encode(question)
    for path in _sockets(config, env, job_id, reader):
        try:
            answer = told(path, payload, behalf)
        except OSError:
            # It has just gone, or is not ours to ask: another one, or the controller, can tell.
            continue
        if not (isinstance(answer, NotTaken) and answer.unknown):
            return answer
    tries = 0
    while True:
        reply = reader.call(AskAgent(job_id, payload))
        tries += 1
        if isinstance(reply, Done) or not reply.temporary or tries > RETRIES:
            break
        process.sleep(float(tries))
    if isinstance(reply, Done):
        relayed: Answer = decode(FromAgent, reply.blob)
        return relayed
    if reply.code in _WITHOUT_STEPS:
        return NotTaken(reply.message, reply.code, unknown=True)
    return NotTaken(f"error: Unable to create step for job {job_id}: {reply.message}", reply.code)


def told(path: str, payload: bytes, behalf: tuple[int, int, int] | None) -> Answer:
    """One agent's answer. Raises OSError."""
    from gsched.wire.codec import BadMessage
    from gsched.wire.framing import ConnectionClosed, frame, recv_frame
    from gsched.wire.paths import reachable
    from gsched.wire.steps import Behalf, FromAgent
    from gsched.wire.usertext import decode, encode

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(reachable(path))
        said = frame(encode(Behalf(*behalf))) if behalf else b""
        sock.sendall(said + frame(payload))
        try:
            answer: Answer = decode(FromAgent, recv_frame(sock))
        except (ConnectionClosed, BadMessage) as problem:
            raise OSError(str(problem)) from None
        return answer


def _sockets(config: Config, env: Mapping[str, str], job_id: int, reader: Reader) -> Iterator[str]:
    """Sockets of agents of this host, the likeliest first."""
    own = env.get("SLURMD_NODENAME", "")
    if own in config.nodes:
        path = agent_socket(config, own)
        if os.path.exists(path):
            yield path
    here = _here(config)
    if own:
        here.pop(own, None)
    if len(here) > 1:
        # Many nodes on one host: whose the job is, is faster asked than tried.
        here = {node: here[node] for node in _nodes_of(job_id, reader) if node in here}
    yield from here.values()


def agent_socket(config: Config, node: str) -> str:
    """Where the agent of a node listens."""
    from gsched.wire.paths import step_socket

    known = config.nodes.get(node)
    pid_file = config.slurmd_pid_file
    return step_socket(os.path.dirname(known.expand(pid_file) if known else pid_file), node)


def _here(config: Config) -> dict[str, str]:
    """node -> socket, of agents of this host."""
    folder = glob.escape(os.path.dirname(config.slurmd_pid_file))
    pattern = folder.replace("%n", "*").replace("%h", "*")
    found = {}
    for path in sorted(glob.glob(os.path.join(pattern, "slurmd.*.sock"))):
        node = os.path.basename(path).removeprefix("slurmd.").removesuffix(".sock")
        if node in config.nodes:
            found[node] = path
    return found


def _nodes_of(job_id: int, reader: Reader) -> list[str]:
    """Nodes of a job, the leading one first; [] where it cannot be told."""
    from gsched.client import ControllerDown, RequestRefused
    from gsched.wire.messages import JobQuery

    try:
        rows = reader.jobs(JobQuery(ids=[job_id])).jobs
    except (ControllerDown, RequestRefused):
        return []
    return [share.node for job in rows for share in job.alloc]


def reason(answer: NotTaken) -> str:
    """Why an agent or the controller has not taken it, without the sentence around."""
    first = answer.message.partition("\n")[0] or "Invalid job id specified"
    return first.rpartition(": ")[2]
