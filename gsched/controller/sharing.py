"""Equal values of many jobs are kept once: most users submit the same thing many times."""

from __future__ import annotations

from typing import TypeVar

from gsched.model import Job, JobSpec, Shape

#: Distinct values remembered before starting over: forgetting costs memory, never correctness.
_REMEMBERED = 50_000
#: Characters of the longest text, and items of the longest list, that are remembered: they stay
#: longer than the job, and refused requests (which may be large) come by here too.
_LONGEST = 1024
_MOST_ITEMS = 64

T = TypeVar("T")


class Sharing:
    """Replaces immutable values by equal ones seen before. A few us and some 1 KB saved a job."""

    def __init__(self) -> None:
        self._seen: dict[object, object] = {}
        #: names and hashes: often each job's own, so they must not push the others out
        self._own: dict[str, str] = {}

    def _one(self, value: T) -> T:
        if not _small(value):
            return value
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        found: T = self._seen.setdefault(value, value)  # type: ignore[assignment]
        return found

    def _text(self, value: str) -> str:
        if len(value) > _LONGEST:
            return value
        if len(self._own) >= _REMEMBERED:
            self._own.clear()
        return self._own.setdefault(value, value)

    def spec(self, spec: JobSpec) -> JobSpec:
        """Shares what is in `spec`, in place; returns it."""
        one = self._one
        spec.shape = one(spec.shape)
        spec.partitions = one(spec.partitions)
        spec.name = self._text(spec.name)
        spec.work_dir = one(spec.work_dir)
        spec.std_out = one(spec.std_out)
        spec.std_err = one(spec.std_err)
        spec.command = one(spec.command)
        spec.submit_line = one(spec.submit_line)
        spec.alloc_node = one(spec.alloc_node)
        spec.account = one(spec.account)
        spec.export = one(spec.export)
        return spec

    def job(self, job: Job) -> Job:
        """Shares what is in `job`, in place; returns it."""
        one = self._one
        job.user = one(job.user)
        job.group = one(job.group)
        job.partition = one(job.partition)
        job.script = self._text(job.script)
        job.environment = self._text(job.environment)
        job.usage = one(job.usage)
        self.spec(job.spec)
        return job


def _small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, tuple):
        return len(value) <= _MOST_ITEMS and all(len(item) <= _LONGEST for item in value)
    if isinstance(value, Shape):
        return (
            len(value.features) <= _LONGEST
            and len(value.gpu_type) <= _LONGEST
            and _small(value.nodelist)
            and _small(value.exclude)
        )
    return True
