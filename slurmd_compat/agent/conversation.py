"""A node's place in the conversation with the controller: registration, sessions, reports."""

from __future__ import annotations

import msgspec

from gsched.model import Phase
from gsched.wire.nodes import AttemptReport, Register, Report, Welcome
from slurmd_compat.agent.attempt import Attempt
from slurmd_compat.agent.step_words import StepAction
from slurmd_compat.agent.steps import Steps
from slurmd_compat.agent.words import (
    Action,
    Identity,
    Key,
    Log,
    PutIdentity,
    SendRegister,
    SendReport,
)

#: ms: first and longest wait for the answer to a registration
REGISTER_FIRST_MS = 1_000
REGISTER_MAX_MS = 30_000
#: ms after which a gap in the orders is healed by a new registration
GAP_MS = 5_000


class Conversation:
    """What of an agent has to do with sessions and not with what an attempt needs."""

    steps: Steps

    def __init__(self, node: str, boot_id: str, nonce: str) -> None:
        self.node = node
        self.boot_id = boot_id
        self.nonce = nonce
        self.identity = Identity()
        self._held: dict[Key, Attempt] = {}
        #: accepted session; "" while unregistered
        self.session = ""
        #: session of the registration on its way
        self._offered = ""
        #: uuid of the cluster that answers at the controller's address
        self._facing = ""
        self._sessions = 0
        self.seen = 0
        self.heartbeat_ms = 10_000
        self._register_at = 0
        self._register_wait = REGISTER_FIRST_MS
        self._report_at = 0
        self._gap_since = -1
        self._out: list[Action | StepAction] = []

    @property
    def epoch(self) -> int:
        """Highest epoch seen of the cluster worked for."""
        return self.identity.epochs.get(self.identity.cluster, 0)

    def _talk_at(self) -> int:
        """When `_talk` is due."""
        if not self.session:
            return self._register_at
        if self._gap_since >= 0:
            return min(self._report_at, self._gap_since + GAP_MS)
        return self._report_at

    def _reports(self, cluster: str, now: int) -> list[AttemptReport]:
        reports = []
        for key, attempt in self._held.items():
            if key.cluster == cluster:
                report = attempt.record.report(now)
                report.steps = self.steps.told(key, now)
                untold = not self.steps.all_told(key, report.steps)
                if report.phase >= Phase.ENDED and untold:
                    # Its end comes with or after that of its steps.
                    report.phase, report.wstatus = Phase.RUNNING, -1
                reports.append(report)
        return reports

    def report_message(self, now: int, cpu_load: int = -1, free_mem_mb: int = -1) -> Report:
        """The report and heartbeat of this moment."""
        self._report_at = now + self.heartbeat_ms
        return Report(
            session=self.session,
            epoch=self.epoch,
            seen=self.seen,
            attempts=self._reports(self.identity.cluster, now),
            cpu_load=cpu_load,
            free_mem_mb=free_mem_mb,
        )

    def register_message(self, facts: Register, now: int) -> Register:
        """`facts` (hardware, version) completed to the registration of this moment."""
        # Never let go of another cluster's attempts: it is told of them and keeps away. What is
        # over and can only be forgotten by the other cluster stays in the journal, unmentioned.
        foreign = self._foreign()
        return msgspec.structs.replace(
            facts,
            node=self.node,
            cluster=foreign or self.identity.cluster,
            boot_id=self.boot_id,
            session=self._offered,
            epoch=self.identity.epochs.get(foreign or self.identity.cluster, 0),
            attempts=self._reports(foreign or self._facing, now),
        )

    # -- sessions

    def _talk(self, now: int) -> None:
        """Registers and reports where it is time to."""
        if not self.session:
            if now >= self._register_at:
                self._offer(now)
            return
        if self._gap_since >= 0 and now - self._gap_since >= GAP_MS:
            self._log("warning", "orders were lost on the way: registering again")
            self._unregister(now)
            self._talk(now)
        elif now >= self._report_at:
            self._report_at = now + self.heartbeat_ms
            self._out.append(SendReport())

    def _offer(self, now: int) -> None:
        """Registers under a new session; a late answer to an older one means nothing."""
        self._sessions += 1
        self._offered = f"{self.nonce}.{self._sessions}"
        self._register_at = now + self._register_wait
        self._register_wait = min(2 * self._register_wait, REGISTER_MAX_MS)
        self._out.append(SendRegister())

    def _unregister(self, now: int) -> None:
        self.session = ""
        self._offered = ""
        self._gap_since = -1
        self._register_wait = REGISTER_FIRST_MS
        self._register_at = now

    def _welcome(self, item: Welcome, now: int) -> None:
        if item.refused:
            if self._offered and not self.session:
                self._facing = item.cluster
                self._log("error", f"the controller refused this node: {item.refused}")
            return
        if item.session != self._offered or not self._offered:
            return  # late or doubled
        if item.epoch < self.identity.epochs.get(item.cluster, 0):
            return  # a controller that has been superseded
        self._facing = item.cluster
        self._offered = ""
        self.session = item.session
        self.seen = 0
        self._gap_since = -1
        self.heartbeat_ms = max(1, item.heartbeat_s) * 1000
        self._register_wait = REGISTER_FIRST_MS
        epochs = self.identity.epochs
        if item.cluster != self.identity.cluster or item.epoch > epochs.get(item.cluster, 0):
            self.identity = Identity(item.cluster, {**epochs, item.cluster: item.epoch})
            self._out.append(PutIdentity(self.identity))
        self._soon(now)

    def _foreign(self) -> str:
        """A cluster, not the one spoken to, that still has unreleased attempts here; or ""."""
        for attempt in self._held.values():
            record = attempt.record
            if record.cluster != self._facing and record.phase < Phase.RELEASED:
                return record.cluster
        return ""

    # -- small things

    def _report_by(self, when: int) -> None:
        if self.session:
            self._report_at = min(self._report_at, when)

    def _soon(self, now: int) -> None:
        if self.session:
            self._report_at = now + self.heartbeat_ms
            self._out.append(SendReport())

    def _log(self, level: str, text: str) -> None:
        self._out.append(Log(level, text))
