"""The clients that a node has control connections to, by number, and whose they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gsched.model.step import Callback
from gsched.rawtext import to_bytes
from slurmd_compat.agent.step_spoken import Client
from slurmd_compat.agent.step_words import CallClient, HangUp, StepAction, TellClient

if TYPE_CHECKING:
    from slurmd_compat.agent.step_create import JobSteps


class ClientTable:
    """Numbers are of this process: after a restart every client is called anew."""

    def __init__(self, emit: Callable[[StepAction], None]) -> None:
        self._emit = emit
        self._numbers = itertools.count(1)
        self._held: dict[int, tuple[Client, Any, JobSteps | None]] = {}

    def new(self, callback: Callback, *, main: bool) -> Client:
        client = Client(next(self._numbers), callback, main=main)
        self._held[client.id] = (client, None, None)
        return client

    def own(self, client: Client, owner: object, job: JobSteps | None) -> None:
        """Who hears what the client says: a Waiting, a Lead, an InteractiveJob."""
        self._held[client.id] = (client, owner, job)

    def find(self, number: int) -> tuple[Client, Any, JobSteps | None] | None:
        return self._held.get(number)

    def forget(self, number: int) -> None:
        self._held.pop(number, None)

    def call(self, client: Client, patience_ms: int = 5_000) -> None:
        self._emit(CallClient(client.id, client.callback, patience_ms))

    def say(self, client: Client, line: str) -> None:
        """A line on its standard error."""
        if client.alive:
            self._emit(TellClient(client.id, "e", to_bytes(line) + b"\n"))

    def tell(self, client: Client, letter: str, data: bytes = b"") -> None:
        if client.alive:
            self._emit(TellClient(client.id, letter, data))

    def exit(self, client: Client, code: int) -> None:
        """The one word that ends a client."""
        if client.alive and not client.told:
            client.told = True
            self._emit(TellClient(client.id, "X", bytes([code & 0xFF])))
            self._emit(HangUp(client.id))
