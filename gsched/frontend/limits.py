"""How much one user may ask of a frontend at once and per second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Limits:
    """The numbers; 0 for a rate is no limit."""

    #: writes under way of one connection, and of one user over all connections of a worker
    per_connection: int = 1024
    per_user: int = 8192
    #: connections of one user, and of all
    connections_per_user: int = 1024
    connections: int = 16384
    #: bytes of one user that a worker holds: incomplete requests, and writes under way
    bytes_per_user: int = 256 << 20
    #: requests that may come at once, and how many more each second (Slurm's rl_enable)
    bucket: float = 0.0
    refill_per_s: float = 0.0

    @classmethod
    def from_parameters(cls, parameters: Iterable[str]) -> Limits:
        """Reads rl_enable, rl_bucket_size, rl_refill_rate and rl_refill_period of
        SlurmctldParameters, with Slurm's defaults; odd values count as not given."""
        given = dict(item.lower().partition("=")[::2] for item in parameters)
        limits = cls()
        if "rl_enable" in given:
            period = _number(given.get("rl_refill_period"), 1)
            limits.bucket = _number(given.get("rl_bucket_size"), 30)
            limits.refill_per_s = _number(given.get("rl_refill_rate"), 2) / period
        return limits


def _number(text: str | None, default: float) -> float:
    return float(text) if text and text.isdigit() and int(text) > 0 else default


@dataclass
class User:
    """What one user has under way in this worker."""

    open: int = 0
    connections: int = 0
    #: bytes of incomplete requests, and of writes under way
    held: int = 0
    open_bytes: int = 0
    tokens: float = 0.0
    refilled: float = 0.0


@dataclass
class Accounts:
    """Users by uid; only those with something under way or a bucket that is not full."""

    limits: Limits
    users: dict[int, User] = field(default_factory=dict)

    def user(self, uid: int, now: float) -> User:
        found = self.users.get(uid)
        if found is None:
            found = self.users[uid] = User(tokens=self.limits.bucket, refilled=now)
        return found

    def take_token(self, user: User, now: float) -> bool:
        """False when the user asks too often."""
        limits = self.limits
        if not limits.bucket:
            return True
        user.tokens = min(limits.bucket, user.tokens + (now - user.refilled) * limits.refill_per_s)
        user.refilled = now
        if user.tokens < 1:
            return False
        user.tokens -= 1
        return True

    def purge(self, now: float) -> None:
        """Forgets users without anything under way whose bucket has filled up."""
        for uid, user in list(self.users.items()):
            full = not self.limits.bucket or (
                user.tokens + (now - user.refilled) * self.limits.refill_per_s >= self.limits.bucket
            )
            if full and not user.open and not user.connections:
                del self.users[uid]
