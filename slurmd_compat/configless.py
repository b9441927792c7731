"""A node without files of its own: it fetches them from the controller and keeps a copy.

Only over the link that the controller's key and the node's own secure: what comes is carried out as
root.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from gsched.config import Config, ConfigError, load_config, parse_config
from gsched.config.bundle import FILES, unpack
from gsched.config.locate import SYSTEM_CONF
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.nodes import ConfigFiles, FetchConfig, ToNode
from gsched.wire.process import ProcessProblem, own_directory

#: the files beside slurm.conf that a node goes by
NEEDS = ("gres.conf", "cgroup.conf")

#: where the keys are looked for if nothing else is said
KEYS = os.path.join(os.path.dirname(SYSTEM_CONF), "keys")
PORT = 6817
#: seconds for which one controller is given to answer, and all of them together
ANSWER_S = 5.0
PATIENCE_S = 60.0


def servers(text: str) -> list[tuple[str, int]]:
    """The controllers of "host[:port][,host[:port]...]". ProcessProblem for anything else."""
    found = []
    for item in text.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon:
            host, port = port, str(PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ProcessProblem(f"--conf-server {text}: host:port is expected")
        found.append((host.strip("[]"), int(port)))
    return found


def fetch(
    wanted: list[tuple[str, int]], keys: str, node: str, say: Callable[[str], object]
) -> dict[str, str]:
    """The files, from the first controller that gives them. Raises ProcessProblem after PATIENCE_S,
    or where it is refused; KeyProblem."""
    end = time.monotonic() + PATIENCE_S
    while True:
        for host, port in wanted:
            answer = _ask(host, port, keys, node)
            if answer is None:
                say(f"no configuration from {host}:{port} yet")
            elif answer.refused:
                raise ProcessProblem(f"{host}:{port} gives no configuration: {answer.refused}")
            else:
                try:
                    return unpack(answer.data)
                except ValueError as error:
                    raise ProcessProblem(f"{host}:{port}: {error}") from None
        if time.monotonic() >= end:
            names = ", ".join(f"{host}:{port}" for host, port in wanted)
            raise ProcessProblem(
                f"Unable to fetch the configuration from {names} as node {node} within "
                f"{PATIENCE_S:g} s (is the key of {node} in {keys} the one the controller knows?)"
            )


def _ask(host: str, port: int, keys: str, node: str) -> ConfigFiles | None:
    import zmq

    from gsched.wire.sockets import dial_controller

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    end = time.monotonic() + ANSWER_S
    sock = None
    try:
        sock = dial_controller(context, host, port, keys, node=node)
        if not sock.poll(int(ANSWER_S * 1000), zmq.POLLOUT):
            return None
        sock.send(encode(FetchConfig(node)), zmq.NOBLOCK)
        while (left := end - time.monotonic()) > 0 and sock.poll(int(left * 1000) + 1):
            with contextlib.suppress(BadMessage):
                message = decode(ToNode, sock.recv_multipart()[-1])
                if isinstance(message, ConfigFiles):
                    return message
    except zmq.ZMQError:
        return None
    finally:
        if sock is not None:
            sock.close(linger=0)
        context.term()
    return None


def cache_of(config: Config, node: str) -> Path:
    """Where a node keeps its copy: below SlurmdSpoolDir."""
    return Path(config.nodes[node].expand(config.slurmd_spool_dir)) / "conf-cache"


def store(texts: dict[str, str], folder: Path) -> None:
    """Replaces the copy, slurm.conf last. Raises OSError."""
    for name in reversed(FILES):
        path = folder / name
        if name not in texts:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            continue
        new = folder / f".{name}.new"
        new.write_text(texts[name], encoding="utf-8")
        new.chmod(0o644)
        new.rename(path)


def first(texts: dict[str, str], node: str) -> Config:
    """The configuration of a node that starts, its copy made. Raises ConfigError, ProcessProblem,
    OSError."""
    config = parse_config(texts)
    if node not in config.nodes:
        raise ProcessProblem(f"Unable to determine this slurmd's NodeName: no {node}")
    folder = cache_of(config, node)
    for directory in (folder.parent, folder):
        own_directory(str(directory), config.slurmd_user, 0o755)
    store(texts, folder)
    return load_config(str(folder / "slurm.conf"), needs=NEEDS)


def renew(data: bytes, node: str, folder: Path) -> str:
    """Takes a new parcel into the copy; what is wrong with it otherwise, and the copy stays."""
    try:
        texts = unpack(data)
        if node not in parse_config(texts).nodes:
            return f"{node} is not in it"
        store(texts, folder)
    except (ConfigError, ValueError, OSError) as error:
        return str(error)
    return ""
