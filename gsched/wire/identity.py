"""Who is at the other end: the kernel's word on this host, a key's across hosts.

Nothing that a peer says about itself is believed. The ids are those at connect().
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from socket import SO_PEERCRED, SOL_SOCKET, socket
from typing import NamedTuple

_CREDENTIALS = struct.Struct("iII")

#: ZAP domains: which socket of the controller is knocked at.
LOCAL_DOMAIN = b"local"
NODE_DOMAIN = b"nodes"

_ZAP_VERSION = b"1.0"


class Credentials(NamedTuple):
    """What the kernel says about a process of this host."""

    pid: int
    uid: int
    gid: int


class KeyHolder(NamedTuple):
    """Whom a public key belongs to: role "node" or "proxy", and its name."""

    role: str
    name: str


def stream_peer(sock: socket) -> Credentials:
    """The process at the other end of a Unix stream socket."""
    return Credentials(*_CREDENTIALS.unpack(sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)))


def ipc_peer(address: str) -> Credentials | None:
    """Reads libzmq's Peer-Address of an ipc connection, "host:UID:GID:PID"; None if it is none.

    Only for messages of an ipc socket: on another socket the text has another meaning.
    """
    parts = address.rsplit(":", 3)
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        return None
    uid, gid, pid = (int(part) for part in parts[1:])
    return Credentials(pid, uid, gid)


@dataclass
class Admission:
    """Who may connect to the controller; decides ZAP requests. Pure."""

    #: uids whose processes may speak for others (root, SlurmUser, the daemon's own)
    proxies: frozenset[int]
    #: raw public key (32 bytes) -> whose it is
    keys: Mapping[bytes, KeyHolder] = field(default_factory=dict)
    #: refusals so far
    refused: int = 0

    def is_proxy(self, address: str) -> bool:
        """Whether the sender of a message on the ipc socket may speak for others."""
        peer = ipc_peer(address)
        return peer is not None and peer.uid in self.proxies

    def decide(self, request: Sequence[bytes]) -> list[bytes]:
        """The reply to a ZAP request: 200 with a User-Id, else 400. Never raises."""
        sequence = request[1] if len(request) > 1 else b""
        user = self._user(request)
        if user is None:
            self.refused += 1
            return [_ZAP_VERSION, sequence, b"400", b"not admitted", b"", b""]
        return [_ZAP_VERSION, sequence, b"200", b"OK", user.encode(), b""]

    def _user(self, request: Sequence[bytes]) -> str | None:
        if len(request) < 6 or request[0] != _ZAP_VERSION:
            return None
        # The identity that a ZAP request carries is the server's own: it says nothing of the peer.
        domain, address, _, mechanism = request[2:6]
        if domain == LOCAL_DOMAIN and mechanism == b"NULL":
            text = address.decode("ascii", "replace")
            return text if self.is_proxy(text) else None
        if domain == NODE_DOMAIN and mechanism == b"CURVE" and len(request) == 7:
            holder = self.keys.get(bytes(request[6]))
            return None if holder is None else f"{holder.role}:{holder.name}"
        return None


@lru_cache(maxsize=1 << 16)
def key_holder(user_id: str) -> KeyHolder | None:
    """Reads the User-Id that `Admission.decide` gave to a connection."""
    role, colon, name = user_id.partition(":")
    return KeyHolder(role, name) if colon and role in {"node", "proxy"} else None


def proxy_uids(*uids: int) -> frozenset[int]:
    """root and the given uids."""
    return frozenset({0, *uids})


def names_of(holders: Iterable[KeyHolder], role: str) -> list[str]:
    """Names with a role, sorted: for logs."""
    return sorted(holder.name for holder in holders if holder.role == role)
