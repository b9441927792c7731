"""The nodes of a replay: each does at once, and without fault, what the controller orders.

The exchange of messages is the real one as far as the ledger sees it (registrations, numbered
orders, complete reports); journals, supervisors, hooks and the time they take are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gsched.config import NodeConfig
from gsched.ledger import NodeMessage
from gsched.model import Gpu, Phase
from gsched.wire.codec import PROTOCOL
from gsched.wire.nodes import (
    AttemptReport,
    Forget,
    Go,
    Kill,
    LaunchSpec,
    Order,
    Preempt,
    Prepare,
    Register,
    Report,
)

#: NVLinks between any two GPUs of a node, as behind NVSwitches
LINKS = 18

#: (job id, attempt)
Key = tuple[int, int]


class ReplayNode:
    """One node, and the attempts it holds."""

    def __init__(self, conf: NodeConfig) -> None:
        self.name = conf.name
        self._conf = conf
        self._session = f"{conf.name}-1"
        self._epoch = 0
        self._seen = 0
        self._held: dict[Key, AttemptReport] = {}

    def register(self, epoch: int) -> Iterator[NodeMessage]:
        """What it sends when it comes up."""
        self._epoch = epoch
        types = [kind for kind, count in self._conf.gpu_types.items() for _ in range(count)]
        gpus = [
            Gpu(
                f"GPU-{self.name}-{i}",
                kind,
                i,
                links=[0 if i == j else LINKS for j in range(len(types))],
            )
            for i, kind in enumerate(types)
        ]
        yield NodeMessage(
            self.name,
            Register(
                protocol=PROTOCOL,
                node=self.name,
                cluster="",
                boot_id="boot",
                session=self._session,
                epoch=0,
                version="replay",
                cpus=self._conf.cpus,
                mem_mb=self._conf.real_memory,
                gpus=gpus,
                attempts=[],
            ),
        )
        yield self.report()

    def report(self) -> NodeMessage:
        """All it holds, after the orders it has seen."""
        held = list(self._held.values())
        return NodeMessage(self.name, Report(self._session, self._epoch, self._seen, held))

    def obey(self, orders: Iterable[Order]) -> tuple[list[LaunchSpec], bool]:
        """(scripts that begin to run here, whether the controller waits for a report)."""
        begun: list[LaunchSpec] = []
        awaited = False
        for order in orders:
            if order.n <= self._seen:
                # Repeated, since no report has told of it yet.
                awaited = True
                continue
            self._seen = order.n
            if isinstance(order, Prepare):
                launch = order.launch
                key = (launch.job.id, launch.job.attempt)
                phase = Phase.RUNNING if order.go else Phase.PREPARED
                self._held[key] = AttemptReport(*key, phase)
                awaited = True
                if launch.batch:
                    begun.append(launch)
            elif isinstance(order, Go):
                held = self._held.get((order.job_id, order.attempt))
                if held is not None:
                    held.phase = Phase.RUNNING
            elif isinstance(order, Kill):
                held = self._held.get((order.job_id, order.attempt))
                if held is not None:
                    held.phase = Phase.RELEASED
                    held.cause = order.cause
                    awaited = True
            elif isinstance(order, Preempt):
                # The controller ends it when its time is over.
                awaited = True
            elif isinstance(order, Forget):
                self._held.pop((order.job_id, order.attempt), None)
        return begun, awaited

    def end(self, key: Key, wstatus: int, cause: str, elapsed_ms: int) -> bool:
        """The script of an attempt comes to its end; False if it was killed before."""
        held = self._held.get(key)
        if held is None or held.phase >= Phase.ENDED:
            return False
        held.phase = Phase.RELEASED
        held.wstatus, held.cause, held.elapsed_ms = wstatus, cause, elapsed_ms
        return True
