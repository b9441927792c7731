"""Further clients of a step (sattach): the other nodes are asked to connect to them until they have
said that they have heard of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gsched.model.step import Callback
from gsched.wire.steps import FollowStep
from slurmd_compat.agent.step_spoken import Client

#: ms between two tries, and how many there are: a node of the release before does not answer
REPEAT_MS = 1_000
MOST_TRIES = 10


def token(callback: Callback) -> bytes:
    """What stands for a client between nodes."""
    return callback.port.to_bytes(2, "big") + callback.secret[:8]


@dataclass
class _Asked:
    client: Client
    word: FollowStep
    tries: int
    again_at: int


class Followers:
    """Those of one step that some node has not heard of. `mail(place, word)` sends."""

    def __init__(self, mail: Callable[[int, FollowStep], None]) -> None:
        self._mail = mail
        self._asked: list[_Asked] = []

    def ask(self, client: Client, word: FollowStep, now: int) -> None:
        self._asked.append(_Asked(client, word, 1, now + REPEAT_MS))
        self._mail(word.index, word)

    def heard(self, place: int, tokens: Iterable[bytes]) -> None:
        """The node at a place has heard of these."""
        if self._asked:
            known = set(tokens)
            self._asked = [
                one
                for one in self._asked
                if one.word.index != place or token(one.word.callback) not in known
            ]

    def wake_at(self) -> int:
        """Monotonic ms; -1: nothing is due."""
        return min((one.again_at for one in self._asked), default=-1)

    def tick(self, now: int, over: Callable[[int], bool]) -> None:
        """Asks again; not of places that are `over`, nor for a client that has gone."""
        for one in list(self._asked):
            if not one.client.alive or over(one.word.index) or one.tries >= MOST_TRIES:
                self._asked.remove(one)
            elif one.again_at <= now:
                one.tries += 1
                one.again_at = now + REPEAT_MS
                self._mail(one.word.index, one.word)
