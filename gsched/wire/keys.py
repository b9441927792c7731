"""Key pairs for links between hosts: files in zmq.auth's form, secrets for their owner alone."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

import zmq
from zmq.utils import z85

from gsched.wire.identity import KeyHolder

CONTROLLER = "controller"
FRONTEND = "frontend"

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FIELD = re.compile(rb'^\s*(public-key|secret-key)\s*=\s*"([^"]*)"\s*$', re.M)


class KeyProblem(Exception):
    """A key file is missing or cannot be used; the text names it."""


class KeyPair(NamedTuple):
    """Z85 text of both halves, as libzmq's options take them."""

    public: bytes
    secret: bytes


def make_keys(keys_dir: str, node_names: Iterable[str]) -> list[str]:
    """Makes what is missing: the controller's, the frontends' and each node's pair.

    Returns the paths of the public files that were made. Repeating it changes nothing: a pair
    whose public half exists is kept, so a node's secret may be moved to the node. Secrets are
    mode 0600. About 0.2 ms a pair.
    """
    names = list(node_names)
    for name in names:
        if not _NAME.fullmatch(name) or name.startswith("."):
            raise KeyProblem(f"Node name {name!r} cannot be the name of a key file")
    made = []
    nodes_dir = os.path.join(keys_dir, "nodes")
    try:
        for folder in (keys_dir, nodes_dir):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        wanted = [os.path.join(keys_dir, name) for name in (CONTROLLER, FRONTEND)]
        wanted += [os.path.join(nodes_dir, name) for name in names]
        for base in wanted:
            if os.path.exists(base + ".key"):
                continue
            public, secret = zmq.curve_keypair()
            # The secret first: a crash in between leaves no public half that nobody can use.
            _write(base + ".key_secret", _text(public, secret), 0o600)
            _write(base + ".key", _text(public, None), 0o644)
            made.append(base + ".key")
    except OSError as error:
        raise KeyProblem(f"cannot write keys below {keys_dir}: {error}") from None
    return made


def load_pair(keys_dir: str, name: str, *, node: bool = False) -> KeyPair:
    """Both halves of a pair; KeyProblem when the secret is absent, damaged or open to others."""
    path = os.path.join(keys_dir, "nodes" if node else "", name + ".key_secret")
    found = _read(path)
    if b"secret-key" not in found:
        raise KeyProblem(f"{path} holds no secret key")
    if os.stat(path).st_mode & 0o077:
        raise KeyProblem(f"{path} can be read by others: its mode must be 0600")
    return KeyPair(found[b"public-key"], found[b"secret-key"])


def load_public(keys_dir: str, name: str, *, node: bool = False) -> bytes:
    """Z85 text of a public key; KeyProblem when it is absent or damaged."""
    return _read(os.path.join(keys_dir, "nodes" if node else "", name + ".key"))[b"public-key"]


def key_table(keys_dir: str) -> tuple[dict[bytes, KeyHolder], list[str]]:
    """Raw public key -> whose it is, for the controller; and one sentence per bad file."""
    table: dict[bytes, KeyHolder] = {}
    problems: list[str] = []
    found = [(KeyHolder("proxy", FRONTEND), False)]
    try:
        names = sorted(os.listdir(os.path.join(keys_dir, "nodes")))
    except OSError:
        names = []
    found += [(KeyHolder("node", n[:-4]), True) for n in names if n.endswith(".key")]
    for holder, node in found:
        try:
            raw = z85.decode(load_public(keys_dir, holder.name, node=node))
        except KeyProblem as problem:
            problems.append(str(problem))
            continue
        if raw in table:
            problems.append(f"{holder.name} and {table[raw].name} have the same key")
            continue
        table[raw] = holder
    return table, problems


def _text(public: bytes, secret: bytes | None) -> bytes:
    kind = b"public" if secret is None else b"SECRET"
    lines = [
        b"#   Made by gsched: " + kind + b" half of a CURVE key pair.",
        b"metadata",
        b"curve",
        b'    public-key = "' + public + b'"',
    ]
    if secret is not None:
        lines.append(b'    secret-key = "' + secret + b'"')
    return b"\n".join(lines) + b"\n"


def _write(path: str, data: bytes, mode: int) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _read(path: str) -> dict[bytes, bytes]:
    try:
        with open(path, "rb") as file:
            data = file.read(4096)
    except OSError as error:
        raise KeyProblem(f"cannot read the key {path}: {error.strerror}") from None
    found = dict(_FIELD.findall(data))
    if b"public-key" not in found or any(len(value) != 40 for value in found.values()):
        raise KeyProblem(f"{path} is no key file")
    return found
