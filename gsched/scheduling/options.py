"""SchedulerParameters and SchedulerType, read once per configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gsched.config import Config

#: bits of a job's priority in the core's order; the partition's tier stands above them
TIER_BITS = 40

#: name -> (field, least, most, seconds in a unit). Slurm's bounds.
_NUMBERS: dict[str, tuple[str, int, int, int]] = {
    "bf_interval": ("interval", 1, 10_800, 1),
    "bf_window": ("window", 1, 43_200, 60),
    "bf_resolution": ("resolution", 1, 3600, 1),
    "bf_max_job_test": ("plan_test", 1, 1_000_000, 1),
    "bf_max_job_user": ("max_user", 0, 1_000_000, 1),
    "bf_max_job_part": ("max_partition", 0, 1_000_000, 1),
    "bf_max_job_user_part": ("max_user_partition", 0, 1_000_000, 1),
    "bf_max_job_assoc": ("max_association", 0, 1_000_000, 1),
    "bf_job_part_count_reserve": ("partition_reserve", 0, 100_000, 1),
    "bf_max_job_start": ("max_starts", 0, 10_000, 1),
    "bf_max_job_array_resv": ("max_array", 0, 1000, 1),
    "bf_min_prio_reserve": ("min_priority", 0, 1 << 62, 1),
    "bf_min_age_reserve": ("min_age", 0, 2_592_000, 1),
    "bf_plan_exact": ("plan_jobs", 1, 1_000_000, 1),
    "default_queue_depth": ("depth", 1, 1_000_000, 1),
    "partition_job_depth": ("partition_depth", 0, 1_000_000, 1),
    "sched_interval": ("full_interval", 1, 3600, 1),
    "batch_sched_delay": ("batch_delay", 0, 3600, 1),
}

#: without a value
_FLAGS = {
    "bf_one_resv_per_job": "one_per_job",
    "bf_busy_nodes": "busy_nodes",
    "defer": "defer",
}

#: microseconds
_MIN_GAP = "sched_min_interval"


@dataclass(frozen=True)
class Options:
    """How passes go. Times in seconds; 0 of a bound: none."""

    #: SchedulerType=sched/builtin: strictly in order
    strict: bool = False
    #: between two plans; -1: none are made
    interval: int = 30
    window: int = 7 * 86_400
    resolution: int = 60
    #: jobs that passes and plans look at
    plan_test: int = 0
    #: jobs that a plan gives an exact place
    plan_jobs: int = 1000
    max_user: int = 0
    max_partition: int = 0
    max_user_partition: int = 0
    max_association: int = 0
    partition_reserve: int = 0
    max_starts: int = 0
    max_array: int = 20
    min_priority: int = 0
    min_age: int = 0
    one_per_job: bool = False
    busy_nodes: bool = False
    #: jobs, and jobs of a partition, that a quick pass looks at; all of them once in full_interval
    depth: int = 0
    partition_depth: int = 0
    full_interval: int = 60
    defer: bool = False
    batch_delay: int = 3
    min_gap: float = 0.0
    #: log lines about values that were not taken
    problems: tuple[str, ...] = ()

    @property
    def plans(self) -> bool:
        """Whether plans are made at all."""
        return self.interval > 0 and not self.strict

    @property
    def gap(self) -> float:
        """Least time between two passes."""
        return max(self.min_gap, float(self.batch_delay) if self.defer else 0.0)

    def rules(self) -> dict[str, Any]:
        """What Core.schedule is told in every pass."""
        bounds = [bound for bound in (self.max_partition, self.partition_reserve) if bound]
        users = [bound for bound in (self.max_user, self.max_association) if bound]
        return {
            "resolution": self.resolution,
            "window": self.window,
            "min_priority": self.min_priority,
            "tier_bits": TIER_BITS,
            "max_user": min(users, default=0),
            "max_partition": min(bounds, default=0),
            "max_user_partition": self.max_user_partition,
            "max_array": self.max_array,
            "one_per_unit": self.one_per_job,
            "min_age": self.min_age,
            "busy_first": self.busy_nodes,
        }

    def planning(self) -> dict[str, Any]:
        """What Core.run_plan is told."""
        return {**self.rules(), "plan_jobs": self.plan_jobs, "max_test": self.plan_test}


def options_of(config: Config) -> Options:
    """Those of a configuration. Cost: a look-up but for the first time."""
    return read(config.scheduler_parameters, config.scheduler_type)


@lru_cache(maxsize=8)
def read(parameters: str, scheduler: str = "sched/backfill") -> Options:
    """Values out of their bounds are as if they were not there, and a log line says so, in Slurm's
    words. Words that concern other parts, or nothing here, are passed over."""
    found: dict[str, Any] = {"strict": scheduler.rpartition("/")[2].lower() == "builtin"}
    problems = []
    for item in parameters.split(","):
        name, given, value = (part.strip() for part in item.partition("="))
        key = name.lower()
        if key in _FLAGS:
            found[_FLAGS[key]] = True
        elif key in _NUMBERS:
            field, least, most, unit = _NUMBERS[key]
            number = _number(value)
            if key == "bf_interval" and number == -1:
                found[field] = -1
            elif number is None or not least <= number <= most:
                problems.append(f"Invalid SchedulerParameters {key}: {value if given else ''}")
            else:
                found[field] = number * unit
        elif key == _MIN_GAP:
            number = _number(value)
            if number is None or number < 0:
                problems.append(f"Invalid SchedulerParameters {key}: {value}")
            else:
                found["min_gap"] = number / 1e6
    return Options(problems=tuple(problems), **found)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
