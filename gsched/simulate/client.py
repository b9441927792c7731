"""Users of a simulated cluster: they submit, cancel, and repeat until they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched.ledger import Write
from gsched.model import JobSpec
from gsched.wire.messages import Call, CancelJobs, Done, Refused, Reply, SubmitJob, UpdateJob
from gsched.wire.messages import Write as AnyWrite

if TYPE_CHECKING:
    from gsched.simulate.world import World

#: seconds after which an unanswered request is repeated under the same id
REPEAT_S = 2.0


@dataclass
class Submitted:
    """What the client was told, and what the job will do when it runs."""

    job_id: int
    duration: float
    exit_code: int
    cancelled: bool = False
    #: somebody queued it again, whatever had become of it; somebody changed its time limit
    requeued: bool = False
    relimited: bool = False


class Client:
    """All users at once; uid 1000 unless said otherwise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._count = 0
        self._open: dict[bytes, AnyWrite] = {}
        self._plans: dict[bytes, tuple[float, int]] = {}
        self._uids: dict[bytes, int] = {}
        #: acknowledged jobs by id
        self.jobs: dict[int, Submitted] = {}
        self.refused: list[str] = []

    def submit(
        self,
        spec: JobSpec,
        duration: float,
        exit_code: int,
        components: Sequence[JobSpec] = (),
    ) -> None:
        """A job that runs for `duration` seconds and then exits with `exit_code`."""
        script = f"#! {duration} {exit_code} {self._count}".encode()
        request_id = self._send(SubmitJob(spec, script, b"", "user", "group", list(components)))
        self._plans[request_id] = (duration, exit_code)

    def cancel(self, job_id: int) -> None:
        self._send(CancelJobs([str(job_id)]))

    def administer(self, write: AnyWrite) -> None:
        """A request of root's; what it is refused for its job (gone, waiting) does not matter."""
        self._send(write, uid=0)

    def _send(self, write: AnyWrite, uid: int = 1000) -> bytes:
        self._count += 1
        request_id = self._count.to_bytes(16, "big")
        self._uids[request_id] = uid
        self._open[request_id] = write
        self._try(request_id)
        return request_id

    def _try(self, request_id: bytes) -> None:
        write = self._open.get(request_id)
        if write is None:
            return
        controller = self.world.controller
        uid = self._uids[request_id]
        if controller is not None and controller.alive:
            controller.receive(Write(Call(request_id, write, uid, uid, 1)))
        self.world.at(self.world.now + REPEAT_S, lambda: self._try(request_id))

    def answered(self, request_id: bytes, reply: Reply) -> None:
        """A durable answer."""
        write = self._open.get(request_id)
        if write is None:
            if isinstance(reply, Done) and request_id in self._plans:
                # A second answer to the same request names the same job.
                assert reply.value in self.jobs, f"request answered with a second job {reply.value}"
            return
        if isinstance(reply, Refused) and reply.temporary:
            return
        del self._open[request_id]
        if isinstance(reply, Refused):
            if self._uids[request_id]:
                self.refused.append(reply.message)
        elif isinstance(write, SubmitJob):
            duration, exit_code = self._plans[request_id]
            assert reply.value not in self.jobs, f"job id {reply.value} was given twice"
            self.jobs[reply.value] = Submitted(reply.value, duration, exit_code)
            self.world.note(f"client: job {reply.value} acknowledged")
        elif isinstance(write, CancelJobs) and reply.value:
            self.jobs[int(write.ids[0])].cancelled = True
            self.world.note(f"client: cancel of {write.ids[0]} acknowledged")

        elif isinstance(write, UpdateJob) and write.verb.startswith("requeue") and reply.value:
            self.jobs[int(write.ids[0])].requeued = True
        elif isinstance(write, UpdateJob) and "timelimit" in write.fields:
            self.jobs[int(write.ids[0])].relimited = True

    @property
    def idle(self) -> bool:
        """Every request is answered."""
        return not self._open
