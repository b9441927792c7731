"""Who may preempt whom, how, and from when on: PreemptType, PreemptMode, GraceTime, exempt times.

A relation between waiting and running jobs that has no cycles: of QOS whose lists lead back to
each other none preempts another (`cycles` names them), of partitions the higher PriorityTier is
above the lower, and no job ever preempts one that it has made way for, by however many others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gsched.config import Config
from gsched.model import Job
from gsched.model.preempt import CANCEL, REQUEUE, SUSPEND
from gsched.policy.book import Book

#: what a job has that names no QOS
_DEFAULT_QOS = "normal"
#: after which cooling never gets longer, seconds
_MOST_COOL_S = 3600


@dataclass(frozen=True)
class Options:
    """PreemptParameters, and the older words for them; SchedulerParameters' preempt_* of gsched's
    own. Seconds; 0: none."""

    youngest_first: bool = False
    strict_order: bool = False
    #: Slurm's tries to preempt fewer jobs: the fewest are found anyway
    reorder_count: int = 1
    send_user_signal: bool = False
    #: jobs make way also for the licences that they hold
    reclaim_licenses: bool = False
    #: jobs of that priority, or a higher one, are not preempted; -1: all may be
    min_exempt_priority: int = -1
    #: a job that is to stand still is told so long before
    stop_after: int = 2
    #: a job that would start by itself within so long waits instead
    wait: int = 0
    #: how often a job makes way at most; 0: any number
    most: int = 16
    #: how long a job is left alone after it made way and started again, times how often it did
    cooldown: int = 60
    problems: tuple[str, ...] = ()


_FLAGS = {"youngest_first", "strict_order", "send_user_signal", "reclaim_licenses"}
_NUMBERS = {
    "reorder_count": "reorder_count",
    "min_exempt_priority": "min_exempt_priority",
    "preempt_reorder_count": "reorder_count",
    "suspend_grace_time": "stop_after",
    "preempt_wait": "wait",
    "preempt_max": "most",
    "preempt_cooldown": "cooldown",
}


def options_of(config: Config) -> Options:
    """Those of a configuration. Cost: a look-up but for the first time."""
    return _read(
        config.preempt_parameters,
        config.scheduler_parameters,
        config.raw.get("slurmctldparameters", ""),
    )


@lru_cache(maxsize=8)
def _read(parameters: str, scheduler: str, controller: str) -> Options:
    found: dict[str, int | bool] = {}
    problems = []
    for text, ours in ((parameters, True), (scheduler, False), (controller, False)):
        for item in text.split(","):
            word, given, value = (part.strip() for part in item.partition("="))
            word = word.lower()
            if not ours and not word.startswith("preempt_"):
                continue
            flag = word.removeprefix("preempt_")
            if flag in _FLAGS and (ours or word != flag):
                found[flag] = True
            elif word in _NUMBERS:
                if value.isdecimal():
                    found[_NUMBERS[word]] = int(value)
                else:
                    problems.append(f"Invalid PreemptParameters {word}: {value}")
            elif ours and word:
                problems.append(f"Invalid PreemptParameters option {word}")
            del given
    return Options(problems=tuple(problems), **found)  # type: ignore[arg-type]


def cycles(preempt: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """QOS that would each preempt one another, by their lists. Cost: QOS times entries."""
    reach = {name: _reached(preempt, name) for name in preempt}
    found: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for name in sorted(preempt):
        ring = tuple(other for other in sorted(reach[name]) if name in reach.get(other, ()))
        if len(ring) > 1 and name not in seen:
            found.append(ring)
            seen.update(ring)
    return found


def _reached(preempt: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    found: set[str] = set()
    todo = list(preempt.get(name, ()))
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(preempt.get(one, ()))
    return found


class Rules:
    """The relation as one configuration and one book have it. Cost of making it: QOS times the
    entries of their lists."""

    def __init__(self, config: Config, book: Book) -> None:
        self.config = config
        self.options = options_of(config)
        self._book = book
        self.version = book.version
        modes = set(config.preempt_mode.upper().split(","))
        on = config.preempt_type.rpartition("/")[2].lower()
        self.kind = "" if on == "none" else on
        if modes <= {"OFF"} or not modes:
            self.kind = ""
        self._mode = next((m for m in ("SUSPEND", "REQUEUE", "CANCEL") if m in modes), "")
        self._within = "WITHIN" in modes
        #: QOS that may preempt -> those that they may, none of which leads back to it
        self._lower: dict[str, frozenset[str]] = {}
        self.problems = list(self.options.problems)
        if self.kind == "qos":
            lists = {name: one.preempt for name, one in book.qos.items()}
            for ring in cycles(lists):
                names = ", ".join(ring)
                self.problems.append(f"QOS {names} would preempt each other: none of them does")
            reach = {name: _reached(lists, name) for name in lists}
            for name, lower in lists.items():
                mine = {one for one in lower if name not in reach.get(one, ())} - {name}
                if mine:
                    self._lower[name] = frozenset(mine)
        #: accounts that may take back what they are guaranteed
        self._guaranteed = {
            one.account for one in book.assocs.values() if one.is_account and one.guarantee
        }
        self._tiers = {name: part.priority_tier for name, part in config.partitions.items()}
        self._least = min(self._tiers.values(), default=0)
        #: whether jobs may stand still for others, and go on afterwards
        self._gang = "GANG" in modes
        if self.kind and self._mode == "SUSPEND" and not self._gang:
            self.problems.append(
                "PreemptMode=SUSPEND needs GANG (PreemptMode=SUSPEND,GANG): its jobs are left alone"
            )
        if self.kind and self._mode == "SUSPEND" and self._gang:
            top = max(self._tiers.values(), default=0)
            closed = [
                name
                for name, part in config.partitions.items()
                if not self._lends(name)
                and (self.kind == "qos" or part.priority_tier < top)
                and (not part.preempt_mode or "SUSPEND" in part.preempt_mode)
            ]
            if closed:
                self.problems.append(
                    f"jobs of partition {','.join(closed)} are not suspended for others: "
                    "OverSubscribe is NO (FORCE:1 allows it)"
                )

    def current(self, config: Config, book: Book) -> bool:
        """Whether nothing has changed since."""
        return config is self.config and book.version == self.version

    # ---- the waiting side ------------------------------------------------------------------------

    @property
    def guarantees(self) -> bool:
        """Whether any account is guaranteed anything."""
        return bool(self._guaranteed)

    def may_preempt(self, job: Job) -> bool:
        """Whether a waiting job may preempt anything at all. Cost: its partitions."""
        # What is kept for one job cannot be of several.
        if job.het_job_id:
            return False
        if self._guaranteed and not self._guaranteed.isdisjoint(
            self._book.lineage(job.spec.account)
        ):
            return True
        if not self.kind:
            return False
        if self.kind == "qos":
            name = job.spec.qos or _DEFAULT_QOS
            return name in self._lower or self._in_itself(name)
        return any(
            self._tiers.get(name, 0) > self._least
            for name in job.spec.partitions or (job.partition,)
        )

    def _in_itself(self, name: str) -> bool:
        qos = self._book.qos.get(name)
        own = qos.preempt_mode.lower() if qos is not None else "cluster"
        return "within" in own or (self._within and own in ("", "cluster"))

    def preempts(self, job: Job, partition: str, victim: Job) -> bool:
        """Whether a job that waits for `partition` ranks strictly above a running one."""
        if self.kind == "partition_prio":
            return self._tiers.get(partition, 0) > self._tiers.get(victim.partition, 0)
        if self.kind != "qos":
            return False
        mine, its = job.spec.qos or _DEFAULT_QOS, victim.spec.qos or _DEFAULT_QOS
        if mine == its:
            return self._in_itself(mine) and job.priority > victim.priority
        return its in self._lower.get(mine, ())

    # ---- the running side ------------------------------------------------------------------------

    def _lends(self, partition: str) -> bool:
        """Whether jobs of a partition may stand still for others: as in Slurm not where each has
        what it has for itself."""
        part = self.config.partitions.get(partition)
        return part is not None and part.oversubscribe.upper() in ("FORCE", "YES")

    def mode(self, victim: Job, may_requeue: bool) -> str:
        """What becomes of it: REQUEUE, CANCEL, SUSPEND, or "" where it is left alone."""
        own = ""
        if self.kind == "qos":
            qos = self._book.qos.get(victim.spec.qos or _DEFAULT_QOS)
            own = qos.preempt_mode if qos is not None else ""
        elif self.kind == "partition_prio":
            part = self.config.partitions.get(victim.partition)
            own = part.preempt_mode if part is not None else ""
        words = set(own.upper().split(",")) - {"WITHIN", "GANG", "CLUSTER", ""}
        word = next(iter(sorted(words)), self._mode)
        if word == "REQUEUE":
            return REQUEUE if may_requeue else CANCEL
        if word == "SUSPEND":
            # What is in parts is not given away whole.
            parts = any(part.shares for part in victim.alloc)
            return SUSPEND if self._gang and self._lends(victim.partition) and not parts else ""
        return CANCEL if word == "CANCEL" else ""

    def grace(self, victim: Job) -> int:
        """Seconds that it has between the warning and the end."""
        if self.kind == "partition_prio":
            part = self.config.partitions.get(victim.partition)
            return part.grace_time if part is not None else 0
        qos = self._book.qos.get(victim.spec.qos or _DEFAULT_QOS)
        return qos.grace_time if qos is not None else 0

    def exempt_until(self, victim: Job, mode: str = "") -> int:
        """Before when a running job is not preempted (epoch seconds); 0: it may be at any time, -1
        never. One that only stands still loses nothing: no time protects it."""
        floor = self.options.min_exempt_priority
        if 0 <= floor <= victim.priority:
            return -1
        if mode == SUSPEND:
            return 0
        most = self.options.most
        if most and victim.preempted >= most:
            return -1
        exempt = self.config.preempt_exempt_time
        if self.kind == "qos":
            exempt = self._exempt(victim, exempt)
        cool = min(self.options.cooldown * victim.preempted, _MOST_COOL_S)
        longest = max(exempt, cool)
        return victim.start_time + longest if longest else 0

    def _exempt(self, victim: Job, otherwise: int) -> int:
        """PreemptExemptTime of its partition's QOS, else of its own, as it has OverPartQOS."""
        qos = self._book.qos.get(victim.spec.qos or _DEFAULT_QOS)
        part = self.config.partitions.get(victim.partition)
        asked = [self._book.qos.get(part.qos.lower()) if part is not None else None, qos]
        if qos is not None and "OverPartQOS" in qos.flags:
            asked.reverse()
        for one in asked:
            if one is not None and one.preempt_exempt_time is not None:
                return max(0, one.preempt_exempt_time)
        return otherwise


def above(job: Job, other: Job, find: Callable[[int], Job | None]) -> bool:
    """Whether `job` has made way for `other`, by however many others: it never preempts it then.
    Cost: the jobs that it made way for."""
    seen: set[int] = set()
    todo = list(job.above)
    while todo:
        one = todo.pop()
        if one == other.id:
            return True
        if one in seen:
            continue
        seen.add(one)
        known = find(one)
        if known is not None:
            todo.extend(known.above)
    return False


def lost(job: Job, now: float, mode: str = "") -> int:
    """What ending a job now costs: the seconds since it started, or said last that its work is
    saved, each times 1000 for a GPU and 1 for a CPU that it holds. One that stands still loses
    nothing: it costs as much as one second, or nothing where it does so already."""
    since = max(job.start_time, job.checkpoint_time)
    if mode == SUSPEND:
        since = int(now) if job.paused else int(now) - 1
    gpus = sum(part.gpus.bit_count() for part in job.alloc)
    cpus = sum(part.cpus for part in job.alloc)
    return max(0, int(now) - since) * (1000 * gpus + cpus)
