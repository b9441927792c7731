"""A job's priority as the weighed sum of its factors (PriorityType=priority/multifactor).

    priority = site + sum of weight * factor - nice

Each factor lies between 0 and 1 (but for flags that say otherwise). Age and fair share change with
time, the others with the job and the configuration alone: those are summed up once, so that all
waiting jobs are recalculated in one sweep over columns. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gsched import tres

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job
    from gsched.policy.book import Book

MULTIFACTOR = "priority/multifactor"
#: largest priority of a job
MOST = (1 << 32) - 2
#: what a priority is divided by where it is shown as a fraction
WHOLE = float(1 << 32)


class Columns(NamedTuple):
    """What a waiting job's priority in one partition is made of from now on."""

    #: >= 0: it does not change (held, set by an administrator, or priority/basic)
    fixed: int
    #: the sum of all that time does not change
    static: float = 0.0
    #: since when its age counts (epoch seconds); -1 it does not yet
    since: float = -1.0
    #: association whose fair share counts; 0 none
    assoc_id: int = 0


@dataclass
class Factors:
    """The factors of one job in one partition, before they are weighed."""

    partition: str
    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    part: float = 0.0
    qos: float = 0.0
    #: by name, of those that have a weight
    tres: dict[str, float] = field(default_factory=dict)
    site: int = 0
    nice: int = 0
    #: >= 0: the priority is this whatever the factors are
    fixed: int = -1


@dataclass
class Weights:
    """What each factor counts, from the configuration."""

    age: float
    assoc: float
    fair_share: float
    job_size: float
    part: float
    qos: float
    tres: dict[str, float]
    max_age: float
    flags: frozenset[str]

    @classmethod
    def of(cls, config: Config) -> Weights:
        """Reads them from the configuration. Cost: constant."""
        return cls(
            config.priority_weight_age,
            config.priority_weight_assoc,
            config.priority_weight_fairshare,
            config.priority_weight_job_size,
            config.priority_weight_partition,
            config.priority_weight_qos,
            weights_of_tres(config.priority_weight_tres),
            max(1.0, float(config.priority_max_age)),
            frozenset(config.priority_flags),
        )

    def normal(self, what: str) -> bool:
        """Whether a factor ("ASSOC", "PART", "QOS", "TRES") is a part of the largest one."""
        return not self.flags & {f"NO_NORMAL_{what}", "NO_NORMAL_ALL"}

    @property
    def always(self) -> bool:
        """Jobs age though they may not start (ACCRUE_ALWAYS)."""
        return "ACCRUE_ALWAYS" in self.flags


def weights_of_tres(text: str) -> dict[str, float]:
    """PriorityWeightTRES by name, in the order it is written."""
    found: dict[str, float] = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        name, _, number = item.partition("=")
        found[tres.plain(name)] = float(number)
    return found


class Multifactor:
    """The factors of jobs under one configuration and one state of the book. Cheap to make: what
    costs is found once."""

    def __init__(self, config: Config, book: Book, lineup: Mapping[str, Mapping[str, int]]) -> None:
        """`lineup`: TRES of the cluster (""), and of each partition by name."""
        self._config = config
        self._book = book
        self._lineup = lineup
        self.weights = Weights.of(config)
        self.basic = config.priority_type != MULTIFACTOR
        parts = config.partitions.values()
        self._top_part = max((part.priority_job_factor for part in parts), default=0)
        self._top_qos = max((qos.priority for qos in book.qos.values()), default=0)
        self._top_assoc = max((one.priority or 0 for one in book.assocs.values()), default=0)

    def factors(self, job: Job, partition: str, now: float, fair: Mapping[int, float]) -> Factors:
        """The factors of a job that is in, or considered for, a partition. `fair`: fair share by
        association. Cost: some us."""
        found = self._static(job, partition)
        since = self.since(job)
        found.age = age(since, now, self.weights.max_age)
        found.fair_share = fair.get(job.assoc_id, 0.0)
        found.fixed = self._fixed(job)
        return found

    def columns(self, job: Job, partition: str) -> Columns:
        """What its priority is made of until it, the configuration or the book changes."""
        fixed = self._fixed(job)
        if fixed >= 0:
            return Columns(fixed)
        static = total(self._static(job, partition), self.weights)
        return Columns(-1, static, self.since(job), job.assoc_id)

    def _fixed(self, job: Job) -> int:
        if job.held:
            return 0
        if job.spec.priority is not None:
            return job.spec.priority
        return job.priority if self.basic else -1

    def since(self, job: Job) -> float:
        """Since when a job's age counts; -1: not yet."""
        if self.weights.always:
            return float(job.submit_time)
        if job.deps or job.held or not job.eligible_time or not job.accrue_time:
            return -1.0
        return float(max(job.eligible_time, job.accrue_time))

    def _static(self, job: Job, partition: str) -> Factors:
        weights, spec = self.weights, job.spec
        found = Factors(partition, nice=spec.nice, site=job.site_factor)
        part = self._config.partitions.get(partition)
        if weights.part and part is not None:
            most = self._top_part if weights.normal("PART") else 1
            found.part = part.priority_job_factor / most if most else 0.0
        qos = self._book.qos.get(spec.qos)
        if weights.qos and qos is not None:
            most = self._top_qos if weights.normal("QOS") else 1
            found.qos = qos.priority / most if most else 0.0
        assoc = self._book.assocs.get(job.assoc_id)
        if weights.assoc and assoc is not None:
            most = self._top_assoc if weights.normal("ASSOC") else 1
            own = self._book.effective(assoc).priority or 0
            found.assoc = own / most if most else 0.0
        if weights.job_size:
            found.job_size = self._size(job)
        if weights.tres:
            asked = tres.requested(spec) | {"billing": max(0, job.billing_asked)}
            there = self._lineup.get(partition, {})
            if not asked.get("mem") and spec.shape.mem_per_node == 0 and there:
                # All the memory of its nodes.
                asked["mem"] = tres.asked_nodes(spec.shape) * there["mem"] // there["node"]
            for name in weights.tres:
                count = asked.get(name, 0)
                most = there.get(name, 0) if weights.normal("TRES") else 1
                if count and most:
                    found.tres[name] = count / most
        return found

    def _size(self, job: Job) -> float:
        """The part of all nodes and CPUs that it asks for."""
        whole = self._lineup.get("", {})
        nodes, cpus = max(1, whole.get("node", 0)), max(1, whole.get("cpu", 0))
        shape = job.spec.shape
        asked_nodes, asked_cpus = tres.asked_nodes(shape), tres.asked_cpus(shape)
        if shape.exclusive == 1:
            asked_cpus = max(asked_cpus, cpus * asked_nodes // nodes)
        small = self._config.priority_favor_small
        if "SMALL_RELATIVE_TO_TIME" in self.weights.flags:
            # Nodes, as Slurm does (its manual says CPUs).
            minutes = max(1.0, job.time_limit / 60 if job.time_limit else 365 * 1440)
            part = min(1.0, asked_nodes / minutes / nodes)
            return 1.0 - part if small else part
        if small:
            found = (nodes - asked_nodes) / nodes + (cpus - asked_cpus) / cpus
        else:
            found = asked_nodes / nodes + asked_cpus / cpus
        return min(1.0, max(0.0, found / 2))


def lineup(config: Config) -> dict[str, dict[str, int]]:
    """TRES of the cluster (""), and of each partition. Cost: nodes of all partitions."""
    each: dict[str, dict[str, int]] = {}
    for name, conf in config.nodes.items():
        has = each[name] = {"cpu": conf.cpus, "mem": conf.real_memory, "node": 1}
        for item in conf.gres:
            for word in (f"gres/{item.name}", f"gres/{item.name}:{item.type}" if item.type else ""):
                if word:
                    has[word] = has.get(word, 0) + item.count
        has["billing"] = conf.cpus
    found = {"": _sum(each.values())}
    for part in config.partitions.values():
        found[part.name] = _sum(each[name] for name in part.nodes if name in each)
    return found


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def age(since: float, now: float, max_age: float) -> float:
    """The factor of a job whose age counts since then."""
    if since < 0 or now <= since:
        return 0.0
    return min(1.0, (now - since) / max_age)


def total(found: Factors, weights: Weights) -> float:
    """The weighed sum, before it is made a whole number."""
    return (
        weights.assoc * found.assoc
        + weights.job_size * found.job_size
        + weights.part * found.part
        + weights.qos * found.qos
        + sum(weights.tres[name] * value for name, value in found.tres.items())
        + found.site
        - found.nice
        + weights.age * found.age
        + weights.fair_share * found.fair_share
    )


def whole(value: float) -> int:
    """The priority that a sum makes: of a job that may start it is never 0, which means held."""
    return min(MOST, max(1, int(value)))


def priority(columns: Columns, weights: Weights, now: float, fair: Mapping[int, float]) -> int:
    """The priority of one job: as the sweep over all (`_core.sweep`) gives it. Cost: constant."""
    if columns.fixed >= 0:
        return columns.fixed
    value = (
        columns.static
        + weights.age * age(columns.since, now, weights.max_age)
        + weights.fair_share * fair.get(columns.assoc_id, 0.0)
    )
    return whole(value)


__all__ = [
    "Columns",
    "Factors",
    "Multifactor",
    "Weights",
    "age",
    "lineup",
    "priority",
    "total",
    "weights_of_tres",
    "whole",
]
