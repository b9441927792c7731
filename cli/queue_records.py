"""The jobs themselves, as a worker keeps them between reports: what a report that nobody has asked
for before is made of, without asking for all jobs again.

Cells that were read once are kept by field, so that a new form of a report is put together from
what other forms have shown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec

from gsched.model.job import Job, JobSpec
from gsched.model.node import Verdict
from gsched.rawtext import marked, unpack
from gsched.wire.changes import JobDelta
from gsched_cli.jobview import FOREVER, JobView

#: bytes of a record, of what a user submitted (which many records may share), of a cell
RECORD_BYTES, SPEC_BYTES, CELL_BYTES = 1600, 2200, 60
#: bytes of cells that are kept for as long as the jobs are: the least used field goes first
CELLS = 16 << 20


class _Loose(Job, array_like=True, gc=False):
    """A record whose specification was not unpacked yet: that of many jobs is the same."""

    spec: msgspec.Raw  # type: ignore[assignment]


_loose = msgspec.msgpack.Decoder(_Loose)
_spec = msgspec.msgpack.Decoder(JobSpec)
_job = msgspec.msgpack.Decoder(Job)
_verdict = msgspec.msgpack.Decoder(Verdict)


class _Column:
    """What one field says of jobs."""

    __slots__ = ("cells", "timed")

    def __init__(self) -> None:
        #: job id -> text, or what is compared; None: it looks at the time
        self.cells: dict[int, Any] = {}
        #: jobs of which it does
        self.timed: set[int] = set()


class Records:
    """All jobs that one asker sees, active ones alone or all, and what is told of them."""

    def __init__(self) -> None:
        #: of the last answer (JobDelta.state)
        self.state = b""
        #: the time of the last look
        self.now = 0.0
        self.views: dict[int, JobView] = {}
        #: when jobs will not start before
        self.late: dict[int, int] = {}
        self._specs: dict[bytes, JobSpec] = {}
        #: by field, and what its cells depend on beside the job
        self._columns: OrderedDict[Hashable, _Column] = OrderedDict()

    # ---- what is new ---------------------------------------------------------------------------

    def take(self, delta: JobDelta) -> None:
        """What is different, or the first answer. Cost: 6 us for each job in it."""
        for job_id in delta.gone:
            self._drop(job_id)
        told: dict[int, Verdict | None] = dict.fromkeys(delta.silent)
        told |= {job_id: _verdict.decode(packed) for job_id, packed in delta.verdicts.items()}
        for record in delta.jobs:
            job = self._unpacked(record)
            job.priority = delta.priorities.get(job.id, job.priority)
            if self._columns:
                self._drop(job.id)
            self.views[job.id] = JobView(job, None, 0, late=self.late.get(job.id, 0))
        for job_id, verdict in told.items():
            self._tell(job_id, verdict)
        if delta.not_before is not None:
            self._expect(delta.not_before)
        if len(self._specs) > 2 * len(self.views) + 100:
            self._specs.clear()

    def _unpacked(self, record: msgspec.Raw) -> Job:
        if marked(record):
            found: Job = unpack(record, _job)
            return found
        job: Job = _loose.decode(record)
        packed = bytes(job.spec)  # type: ignore[call-overload]
        spec = self._specs.get(packed)
        if spec is None:
            spec = self._specs[packed] = _spec.decode(packed)
        job.spec = spec
        return job

    def _drop(self, job_id: int) -> None:
        self.views.pop(job_id, None)
        self._forget(job_id)

    def _forget(self, job_id: int) -> None:
        for column in self._columns.values():
            column.cells.pop(job_id, None)
            column.timed.discard(job_id)

    def _tell(self, job_id: int, verdict: Verdict | None) -> None:
        view = self.views.get(job_id)
        if view is None or view.verdict == verdict:
            return
        if verdict is not None:
            verdict.reason = intern(verdict.reason)
        view.verdict = verdict
        self._forget(job_id)

    def _expect(self, not_before: Mapping[int, int]) -> None:
        self.late = dict(not_before)
        for job_id, view in self.views.items():
            late = self.late.get(job_id, 0)
            if late != view.late:
                view.late = late
                self._forget(job_id)

    # ---- what is read --------------------------------------------------------------------------

    def at(self, now: float) -> None:
        """The time of all that is read from now on."""
        if now < self.now:
            # What was true from some moment on need not be so before.
            self._columns.clear()
        self.now = now

    def column(
        self,
        key: Hashable,
        read: Callable[[JobView], Any],
        ids: Sequence[int],
        look: Callable[[JobView], None],
        timed: set[int],
    ) -> list[Any]:
        """What `read` reads of these jobs, in their order. Where it may be another soon the job is
        added to `timed`, and None stands for it. `key` names all that it depends on beside the job
        (`look` prepares views for it). Cost: 0.03 us for each job, and what `read` takes for those
        that it was not asked of yet."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column()
        self._columns.move_to_end(key)
        cells = column.cells
        if len(cells) < len(self.views):
            # Equal texts are one.
            same: dict[Any, Any] = {}
            views = self.views
            for job_id in ids:
                if job_id not in cells:
                    view = views[job_id]
                    look(view)
                    cell = read(view)
                    if view.until == FOREVER:
                        cells[job_id] = same.setdefault(cell, cell)
                    else:
                        cells[job_id] = None
                        column.timed.add(job_id)
        timed |= column.timed
        return list(map(cells.__getitem__, ids))

    def tidy(self) -> None:
        """Gives up cells of fields that were not asked for lately, where they are many."""
        while len(self._columns) > 1 and self._cells * CELL_BYTES > CELLS:
            self._columns.popitem(last=False)

    @property
    def _cells(self) -> int:
        return sum(len(column.cells) for column in self._columns.values())

    @property
    def bytes(self) -> int:
        """About what it occupies."""
        own = len(self.views) * RECORD_BYTES + len(self._specs) * SPEC_BYTES
        return own + self._cells * CELL_BYTES + 100 * len(self.late)
