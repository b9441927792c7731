"""What a trace holds, whatever its format was."""

from __future__ import annotations

from dataclasses import dataclass, field


class TraceError(Exception):
    """One sentence for the user: the file, the line and what is wrong there."""


@dataclass(slots=True)
class TraceJob:
    """A job as the trace tells of it. Where it says nothing, the field keeps its default."""

    name: str
    #: seconds from the trace's zero
    submit: float
    #: seconds that it runs once it is started
    run: float
    #: seconds that its user allowed it; None: not told; 0: no limit
    limit: float | None = None
    #: 0: any number, as few as hold it
    nodes: int = 0
    #: in all
    cpus: int = 0
    gpus: int = 0
    #: thousandths of its one GPU; 0: whole ones
    gpu_milli: int = 0
    #: of each node; 0: not told
    mem_mb: int = 0
    gpu_type: str = ""
    #: Slurm's expression ("" none)
    features: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    priority: int | None = None
    #: False: its script ended with an error
    good: bool = True

    @property
    def wanted_gpus(self) -> float:
        """GPUs in all, or the part of one."""
        return self.gpu_milli / 1000 if self.gpu_milli else self.gpus


@dataclass(slots=True)
class Trace:
    """All jobs in order of submission; jobs of the same moment keep the file's order."""

    name: str
    format: str
    jobs: list[TraceJob]
    #: epoch seconds of the trace's zero; None: it has no date
    epoch: int | None = None
    #: the cluster that it was taken from, as far as its header tells; 0: not told
    nodes: int = 0
    cpus: int = 0
    gpus: int = 0
    #: sentences for the user: what was left out or read otherwise than it stands there
    remarks: list[str] = field(default_factory=list)


def at(path: str, line: int, text: str) -> TraceError:
    """The error of a line."""
    return TraceError(f"{path}:{line}: {text}")


def number(text: str, what: str, path: str, line: int, least: float = 0.0) -> float:
    """A number of a column. TraceError for what is none, is below `least` or without bound."""
    try:
        value = float(text)
    except ValueError:
        raise at(path, line, f'{what} "{text[:40]}" is not a number') from None
    if not least <= value < 1e15:
        raise at(path, line, f'{what} "{text[:40]}" is out of range')
    return value


def whole(text: str, what: str, path: str, line: int, least: int = 0) -> int:
    """A whole number of a column; TraceError else."""
    value = number(text, what, path, line, least)
    if value != int(value):
        raise at(path, line, f'{what} "{text[:40]}" is not a whole number')
    return int(value)
