"""Jobs of srun and salloc: no script runs, the node calls back whoever asked for the job.

With srun the job is its one step; with salloc it lasts until the client's shell has ended.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import msgspec

from gsched.hostlist import compress
from gsched.model.step import StepState
from gsched.rawtext import to_bytes
from gsched.stepenv import salloc_environment
from gsched.wire.codec import BadMessage, decode
from gsched.wire.steps import Interactive
from slurmd_compat.agent import step_text
from slurmd_compat.agent.step_create import JobSteps, NoStep
from slurmd_compat.agent.step_fit import unfit, unfit_callback
from slurmd_compat.agent.step_lead import Lead
from slurmd_compat.agent.step_spoken import Client
from slurmd_compat.agent.words import Record

if TYPE_CHECKING:
    from slurmd_compat.agent.steps import Steps

#: ms for which a client is called again after a restart: it waits for 30 s
PATIENCE_MS = 25_000
#: signals at which salloc gives its allocation back
SALLOC_ENDS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


def read(record: Record) -> Interactive | None:
    """What lies in the place of a script; None when it is not to be read."""
    try:
        found: Interactive = decode(Interactive, record.launch.script)
    except BadMessage:
        return None
    if unfit_callback(found.callback) or (found.step is not None and unfit(found.step)):
        return None
    return found


class InteractiveJob:
    """One such job on the node that leads it."""

    def __init__(self, jobs: JobSteps, wire: Interactive, steps: Steps) -> None:
        self.jobs = jobs
        self.wire = wire
        self._steps = steps
        self.client: Client = steps.clients.new(wire.callback, main=True)
        steps.clients.own(self.client, self, jobs)
        self._revoked = False
        self._over = False
        #: the client has its environment, and may run what it likes
        self._given = False
        #: it is of a daemon before this one
        self._restored = False
        #: when its client was seen to be gone; -1: it was not
        self._lost_ms = -1

    @property
    def _salloc(self) -> bool:
        return self.wire.step is None or self.wire.step.origin == "salloc"

    @property
    def _program(self) -> str:
        return "salloc" if self._salloc else "srun"

    def _say(self, text: str) -> None:
        self._steps.clients.say(self.client, f"{self._program}: {text}")

    def notify(self, text: str) -> None:
        """A line from somebody, on the client's standard error."""
        self._say(text)

    # -- its life

    def begin(self, now: int) -> None:
        """The job runs: the client is called, and for srun the step is made."""
        self._steps.clients.call(self.client)
        job = self.jobs.job
        nodes = [p.node for c in self.jobs.components for p in c.alloc]
        ready = f"Nodes {compress(list(dict.fromkeys(nodes)))} are ready for job"
        if self._salloc:
            self._say(f"Granted job allocation {job.id}")
            self._say(ready)
            self._give()
        elif self.wire.step is not None and self.wire.step.verbose:
            self._say(ready)
        if self.wire.step is not None:
            self._begin_step(now)
        elif self.wire.no_shell:
            self._steps.clients.exit(self.client, 0)

    def _begin_step(self, now: int) -> None:
        assert self.wire.step is not None
        job = self.jobs.job
        spec = msgspec.structs.replace(self.wire.step, job_id=job.id)
        try:
            self.jobs.create(
                spec,
                self.wire.callback,
                self.jobs.record.launch.environment,
                b"",
                now,
                self.client,
            )
        except NoStep as refused:
            for line in refused.message.split("\n"):
                self._say(line)
            self._end(1 << 8, "", now)

    def _give(self) -> None:
        launch = self.jobs.record.launch
        variables = salloc_environment(launch.job, self._steps.config, launch.components)
        data = b"\0".join(to_bytes(f"{name}={value}") for name, value in variables.items())
        self._steps.clients.tell(self.client, "A", data)
        self._given = True

    def restore(self, now: int) -> None:
        """After a restart of the daemon: it calls again. A step that is there has its own client,
        which is this one."""
        if self.wire.no_shell:
            return
        self._restored = True
        self._steps.clients.call(self.client, PATIENCE_MS)
        if self.jobs.record.kill:
            return
        for waiting in self.jobs.waiting:
            if waiting.record.of_job:
                waiting.client = self.client
                self._steps.clients.own(self.client, waiting, self.jobs)
                return
        if self.jobs.leads:
            for lead in self.jobs.leads.values():
                if lead.record.of_job:
                    self._steps.clients.own(self.client, lead, self.jobs)
                    lead.join(self.client, call=False)
                    if lead.over:
                        self.step_over(lead, now)
        elif self.wire.step is None:
            self._give()
        else:
            # Nothing of it came into the journal.
            self._begin_step(now)

    def never_ran(self, now: int) -> None:
        """The job has ended before it ran."""
        self._over = True
        self._steps.clients.call(self.client)
        job = self.jobs.job.id
        if self._salloc:
            self._say(f"Job allocation {job} has been revoked.")
        else:
            self._say(f"Force Terminated JobId={job}")
            self._say(f"Job allocation {job} has been revoked")
        self._steps.clients.exit(self.client, 1)

    def step_over(self, lead: Lead, now: int) -> None:
        """Its step has ended, and with it the job."""
        cause = lead.record.stop if lead.record.stop in ("timeout", "node") else ""
        if lead.step.wstatus == 0 and lead.record.stop == "cancelled" and self.jobs.stopping:
            cause = self.jobs.stopping
        if lead.step.state == StepState.OUT_OF_MEMORY:
            cause = cause or "oom"
        self._end(lead.step.wstatus, cause, now)

    def said(self, letter: str, data: bytes, now: int) -> None:
        """A word of the client; those about its step are the step's."""
        if letter == "Z" and len(data) >= 4:
            wstatus = int.from_bytes(data[:4], "big")
            code = step_text.shell_code(wstatus)
            if self._revoked and wstatus & 0x7F:
                code = 1
            self._end(wstatus, "", now, code)
        elif letter == "G" and data and self._salloc:
            self._signalled(data[0], now)
        elif letter == "G" and data and data[0] in (1, 2, 3, 15):
            self._end(0, "cancelled", now, 1)

    def _signalled(self, signum: int, now: int) -> None:
        """salloc itself, not its shell, got a signal: the allocation is given back. The shell goes
        on, but that a hangup reaches it too."""
        if signum not in SALLOC_ENDS:
            return
        if not self._given:
            self._end(0, "cancelled", now, 1)
        elif signum == signal.SIGHUP:
            self._end(0, "", now, 1)
        elif not self._over:
            self._say_revoked("")
            self._end(0, "cancelled", now)

    def lost(self, now: int, *, met: bool) -> None:
        """The client has gone. Where it has a step, that ends and the job with it; one that has
        never been there wants no job. What salloc has allocated stays for InactiveLimit: there may
        be others that use it."""
        if self.wire.no_shell or any(lead.record.of_job for lead in self.jobs.running):
            return
        if self.wire.step is None and (met or self._restored):
            if self._lost_ms < 0:
                self._lost_ms = now
            return
        self._end(0, "cancelled", now)

    def wake_at(self) -> int:
        """Monotonic ms at which `tick` is due; -1: nothing is."""
        limit = self._steps.rules.inactive_limit
        if self._lost_ms < 0 or not limit or self._over:
            return -1
        partition = self._steps.config.partitions.get(self.jobs.job.partition)
        if partition is not None and partition.root_only:
            return -1
        return self._lost_ms + 1000 * limit

    def tick(self, now: int) -> None:
        if 0 <= self.wake_at() <= now:
            self._end(0, "inactive", now)

    def revoke(self, cause: str, now: int) -> None:
        """The job is ended from outside."""
        if self._over:
            return
        if self._salloc and not self._revoked and not self.wire.no_shell:
            self._say_revoked(cause)
        if not self.jobs.running:
            self._end(0, cause, now)

    def forgotten(self) -> None:
        """Nobody else knows the job any more; its client may still say that its shell has ended."""
        self._over = True

    def _say_revoked(self, cause: str) -> None:
        self._revoked = True
        job = self.jobs.job.id
        if cause == "timeout":
            self._say(f"Job {job} has exceeded its time limit and its allocation has been revoked.")
        else:
            self._say(f"Job allocation {job} has been revoked.")
        self._steps.clients.tell(self.client, "R")

    def _end(self, wstatus: int, cause: str, now: int, code: int | None = None) -> None:
        """The job's end, once: durable before the client hears of it."""
        if not self._over:
            self._over = True
            self._steps.job_over(self.jobs.key, wstatus, cause, now)
        if self._revoked and code is None:
            return  # its shell goes on, and says so when it ends
        if self._salloc and not self._revoked and self.client.alive and not self.client.told:
            self._say(f"Relinquishing job allocation {self.jobs.job.id}")
        self._steps.clients.exit(
            self.client, step_text.exit_code(wstatus) if code is None else code
        )
