"""Limits of associations and QOS: which count for a job, how much is in use.

With AccountingStorageEnforce=limits. The tally follows the jobs; waiting jobs draw on what it
leaves, in the cluster's passes (`gsched.cluster.limits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gsched import tres
from gsched.cluster.limits import MOST, NO_BILL, Bill, Chain, Draw
from gsched.ledger import offered
from gsched.ledger.suspend import suspended_s
from gsched.model import Job, JobState, Shape
from gsched.model.policy import ROOT_ID, Assoc, Qos, Tres
from gsched.policy import limits as rules
from gsched.policy.enforce import enforced
from gsched.policy.limits import EACH, Limit, Limits, Pool, Scope, Under
from gsched.policy.tally import UNIT, WALL, Part, Tally, recount
from gsched.taskset import TaskSet

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.ledger.ledger import Ledger

#: where a job stands: association, QOS, partition, user, account
Place = tuple[int, str, str, str, str]
#: and what it asks for, for how many seconds, and of each node at least
Signature = tuple[Place, tuple[tuple[str, int], ...], int, tuple[tuple[str, int], ...]]

_BOUND: frozenset[str] = frozenset()
#: flags of a QOS by which limits of partitions do not hold
_LIFTING = frozenset({"PartitionTimeLimit", "PartitionMaxNodes", "PartitionMinNodes"})
#: seconds that a job without a time limit is taken to last
YEAR = 365 * 86400
#: what the core counts by itself for a place
_COUNTED = {"cpu": "cpus", "mem": "mem", "node": "nodes", "gres/gpu": "gpus", "billing": "bill"}
#: and of each node on the average
_COUNTED_EACH = {"cpu": "cpus_each", "mem": "mem_each", "gres/gpu": "gpus_each"}


class Lack(NamedTuple):
    """A limit that is in a job's way."""

    limit: Limit
    #: what the job would add, and what is in use; minutes where these are limited
    want: int
    have: int
    #: however little is in use
    never: bool


class Keeper:
    """The tally of one ledger, and the limits of its jobs."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        self.tally = Tally()
        #: jobs that have changed since the last command
        self.touched: set[int] = set()
        #: associations or QOS have
        self.outdated = False
        self._known: dict[Place, Limits] = {}
        #: the configuration without the limits of partitions that flags of a QOS lift
        self._lifted: dict[frozenset[str], Config] = {}
        #: what the largest and the smallest node of a partition have
        self._most: dict[str, tuple[int, int, int, int]] = {}
        #: whether there are limits on minutes used at all, and when jobs are looked at for them
        self.minutes = False
        self.look_at = 0.0
        #: of each QOS those flags that it had when jobs were queued
        self._flags: dict[str, frozenset[str]] = {}

    # ---- what is in force -------------------------------------------------------------------

    @property
    def on(self) -> bool:
        return "limits" in enforced(self._led.config.accounting_storage_enforce)

    @property
    def safe(self) -> bool:
        """Whether a job must be able to end within the minutes that are left."""
        return "safe" in enforced(self._led.config.accounting_storage_enforce)

    def place(self, job: Job, partition: str) -> Place:
        return job.assoc_id, job.spec.qos, partition, job.user, job.spec.account

    def under(self, place: Place) -> Under:
        assoc_id, qos, partition, user, account = place
        book = self._led.book
        part = self._led.config.partitions.get(partition)
        part_qos = book.qos.get(part.qos.lower()) if part is not None and part.qos else None
        return Under(book.assocs.get(assoc_id), book.qos.get(qos), part_qos, user, account)

    def of(self, place: Place) -> Limits:
        """The limits of jobs that stand there. Cost: ~20 us after a change, else constant."""
        found = self._known.get(place)
        if found is None:
            found = rules.of(
                self._led.book,
                self.under(place),
                safe=self.safe,
                percent=self._percent,
                capacity=self.capacity(self._led.config.nodes),
            )
            self._known[place] = found
        return found

    def limits_of(self, job: Job) -> Limits:
        """The limits of a job in its (first) partition."""
        return self.of(self.place(job, job.partition))

    def _percent(self, qos: Qos, counts: Tres) -> Tres:
        """Flag Relative: percentages of what the cluster has, or the partition whose QOS it is."""
        config = self._led.config
        names = [part.nodes for part in config.partitions.values() if part.qos.lower() == qos.name]
        have = self.capacity(names[0] if names else config.nodes)
        return {name: have.get(name, 0) * min(n, 100) // 100 for name, n in counts.items()}

    def capacity(self, names: Iterable[str]) -> Tres:
        """What these nodes have together, as they are configured."""
        nodes = set(names)
        have: Tres = {"node": len(nodes)}
        for name in nodes:
            conf = self._led.config.nodes[name]
            for what, count in (
                ("cpu", conf.cpus),
                ("mem", conf.real_memory),
                ("gres/gpu", conf.gpus),
                *((f"gres/gpu:{kind}", number) for kind, number in conf.gpu_types.items() if kind),
            ):
                have[what] = have.get(what, 0) + count
        have["billing"] = have.get("cpu", 0)
        return have

    # ---- for the passes: cluster.limits.Source ------------------------------------------------

    def signature(self, job: Job, partition: str, shape: Shape) -> Hashable | None:
        if not self.on:
            return None
        asked = self.needed(job, partition, shape)
        least = self._least(job, partition, shape, asked)
        return self.place(job, partition), tuple(asked.items()), job.time_limit, least

    def asked(self, job: Job, partition: str, shape: Shape | None = None) -> Tres:
        """What a job asks for, with billing."""
        counts = tres.requested(job.spec, shape=shape)
        return tres.with_billing(self._led.config, partition, counts)

    def needed(self, job: Job, partition: str, shape: Shape) -> Tres:
        """The same with as many nodes as its CPUs and GPUs need at least, where it leaves their
        number open, and with all that they have for who has them for himself: it is judged by the
        place that it would get."""
        cpus, gpus, *least_of = self._sizes(partition)
        if shape.exclusive == 1:
            asked, nodes = self.asked(job, partition, shape), tres.asked_nodes(shape)
            for name, count in zip(("cpu", "gres/gpu"), least_of, strict=True):
                if count * nodes > asked.get(name, 0):
                    asked[name] = count * nodes
            per_cpu, per_gpu = shape.mem_per_cpu or 0, shape.mem_per_gpu or 0
            more = per_cpu * asked["cpu"] + per_gpu * asked.get("gres/gpu", 0)
            if more > asked.get("mem", 0):
                asked["mem"] = more
            return tres.with_billing(self._led.config, partition, asked)
        if not shape.nodes_set and not shape.overcommit:
            least = max(
                -(-tres.asked_cpus(shape) // cpus) if cpus else 0,
                -(-shape.gpus_total // gpus) if gpus else 0,
            )
            if least > tres.asked_nodes(shape):
                shape = msgspec.structs.replace(shape, min_nodes=least)
        return self.asked(job, partition, shape)

    def _least(
        self, job: Job, partition: str, shape: Shape, asked: Tres
    ) -> tuple[tuple[str, int], ...]:
        """What a job has of each node on the average at least, on as many as it may have: judged is
        the place that it would get. Components of a heterogeneous job are judged by what they ask
        for."""
        part = self._led.config.partitions.get(partition)
        nodes = max(asked.get("node", 1), 1)
        if part is not None and not job.het_size:
            nodes = max(nodes, shape.max_nodes or len(part.nodes))
        of_each = {"mem": shape.mem_per_node, "gres/gpu": shape.gpus_per_node}
        return tuple(
            (name, of_each.get(name) or asked.get(name, 0) // nodes) for name in _COUNTED_EACH
        )

    def _sizes(self, partition: str) -> tuple[int, int, int, int]:
        """The most CPUs and GPUs of any node of a partition, and the fewest."""
        found = self._most.get(partition)
        if found is None:
            config = self._led.config
            part = config.partitions.get(partition)
            nodes = [config.nodes[name] for name in part.nodes] if part is not None else []
            cpus, gpus = [node.cpus for node in nodes] or [0], [node.gpus for node in nodes] or [0]
            found = self._most[partition] = (max(cpus), max(gpus), min(cpus), min(gpus))
        return found

    def chain(self, signature: Hashable) -> Chain:
        place, items, seconds, least = _signature(signature)
        asked = dict(items)
        limits = self.of(place)
        draws = [self._draw(limit, limits, asked, seconds, dict(least)) for limit in limits.rules]
        draws += [self._taking(pool, asked) for pool in limits.also]
        floor = limits.floor
        part = self._led.config.partitions.get(place[2])
        if floor is not None and part is not None:
            # As priorities stand in the queue: below the tier of the partition.
            floor = MOST if floor < 0 else floor + part.priority_tier * (1 << 40)
        if any(draw.likely for draw in draws if draw is not None):
            # What would be planned for it, it is not likely to have: it waits for a limit.
            floor = MOST
        return Chain(tuple(filter(None, draws)), floor, self._bill(place[2], asked))

    def _draw(
        self, limit: Limit, limits: Limits, asked: Tres, seconds: int, least: Tres
    ) -> Draw | None:
        _, what, name = limit.pool
        value = limit.value
        if what == "node" and name in _COUNTED_EACH:
            counted, likely = _COUNTED_EACH[name], rules.breaks(limit, asked, seconds)
            return Draw(limit.pool, counted, least.get(name, 0), False, 1.0, value, True, likely)
        if what in EACH:
            if rules.breaks(limit, asked, seconds):
                return Draw(limit.pool, "fixed", 1, limit=0, fixed=True)
            if what in ("job", "jobmins") and name in _COUNTED:
                timed = what == "jobmins"
                bound = value * 60 if timed else value
                counted = _COUNTED[name]
                return Draw(limit.pool, counted, asked.get(name, 0), timed, 1.0, bound, True)
            return None
        if what in ("jobs", "maxjobs"):
            return Draw(limit.pool, "fixed", 1, limit=value)
        if what == "threshold":
            # Nothing is taken: what is "in use" is how much more than the fair share is asked for.
            return Draw(limit.pool, "fixed", 0, limit=0)
        if what == "wall" or (what == "mins" and not self.safe):
            # Only what is used up keeps a job waiting.
            return Draw(limit.pool, "fixed", 0, limit=value * 60 - 1)
        return self._counted(limit.pool, asked, value, limits.factor if what == "mins" else 1.0)

    def _taking(self, pool: Pool, asked: Tres) -> Draw | None:
        """A pool that limits others."""
        _, what, _ = pool
        if what in ("jobs", "maxjobs"):
            return Draw(pool, "fixed", 1)
        if what == "wall" or (what == "mins" and not self.safe):
            return None
        draw = self._counted(pool, asked, MOST, 1.0)
        return draw

    @staticmethod
    def _counted(pool: Pool, asked: Tres, value: int, factor: float) -> Draw | None:
        _, what, name = pool
        count = asked.get(name, 0)
        timed = what in ("run", "mins")
        how = _COUNTED.get(name, "fixed")
        if how == "nodes" and not timed:
            if count > value:
                # However many of its nodes others of the group are on.
                return Draw(pool, "fixed", count, limit=value, fixed=True)
            how = "hosts"
        if how == "fixed" and not count:
            return None
        bound = value * 60 if timed and value < MOST else value
        return Draw(pool, how, count, timed, factor, bound)

    def _bill(self, partition: str, asked: Tres) -> Bill:
        part = self._led.config.partitions.get(partition)
        text = part.tres_billing_weights if part is not None else ""
        if not text:
            return NO_BILL
        weight = tres.weights(text)
        flags = {flag.lower() for flag in getattr(self._led.config, "priority_flags", ())}
        mode = 3 if "max_tres_gres" in flags else 2 if "max_tres" in flags else 1
        own = {name: weight.get(name, 0.0) for name in ("cpu", "mem", "node", "gres/gpu")}
        costs = {n: asked[n] * w for n, w in weight.items() if n not in own and asked.get(n)}
        gres = [cost for name, cost in costs.items() if name.startswith("gres/")]
        rest = sum(costs.values()) - sum(gres)
        return (mode, *own.values(), sum(gres), max(gres, default=0.0), rest)  # type: ignore

    def moves(self, pool: Pool) -> bool:
        return pool[1] in ("run", "mins", "wall", "kept", "threshold")

    def word(self, pool: Pool) -> str:
        scope, what, name = pool
        return rules.word(what, scope[0], name)

    def free_of(self, job: Job) -> frozenset[str]:
        return self._lifting(job.spec.qos)

    def _lifting(self, name: str) -> frozenset[str]:
        qos = self._led.book.qos.get(name)
        if qos is None or not qos.flags:
            return _BOUND
        return _LIFTING.intersection(qos.flags)

    def config_for(self, qos: str) -> Config:
        """The configuration as it is for jobs of a QOS: without the limits of partitions that this
        lifts. Cost: constant, but partitions the first time."""
        flags = self._lifting(qos)
        if not flags:
            return offered.extended(self._led, self._led.config)
        found = self._lifted.get(flags)
        if found is None:
            none = {
                "max_time": "PartitionTimeLimit" in flags,
                "max_nodes": "PartitionMaxNodes" in flags,
                "min_nodes": "PartitionMinNodes" in flags,
            }
            change = {field: 0 for field, lifted in none.items() if lifted}
            partitions = {
                name: msgspec.structs.replace(part, **change)
                for name, part in self._led.config.partitions.items()
            }
            found = msgspec.structs.replace(self._led.config, partitions=partitions)
            self._lifted[flags] = found
        return offered.extended(self._led, found)

    def used(self, pool: Pool, now: int) -> tuple[int, Mapping[str, int] | None]:
        """How much of a pool is in use (seconds where it is minutes that are limited)."""
        scope, what, name = pool
        if what == "kept":
            return self._kept(str(scope[1]), name), None
        if what == "threshold":
            return self._short(scope), None
        one = self.tally.of(scope)
        if what in ("jobs", "maxjobs"):
            return one.jobs, None
        if what in ("submit", "maxsubmit"):
            return one.submitted, None
        if what == "run":
            return one.to_come(name, now), None
        if what == "wall":
            return self._past(scope, WALL, now), None
        if what == "mins":
            more = one.to_come(name, now) if self.safe else 0
            return self._past(scope, name, now) + more, None
        if name == "node":
            return len(one.nodes), one.nodes
        return one.tres[name], None

    def too_low(self, limits: Limits) -> bool:
        """Whether a fair share is below a UsageThreshold that holds."""
        pools = [limit.pool for limit in limits.rules if limit.pool[1] == "threshold"]
        return any(self._short(scope) for scope, _, _ in pools)

    def _short(self, scope: Scope) -> int:
        """By how much a fair share is below the UsageThreshold of a QOS, in parts of SHARE."""
        _, assoc_id, name = scope
        qos = self._led.book.qos.get(name)
        share = self._led.ranking.fair.get(int(assoc_id))
        if share is None or qos is None or qos.usage_thres is None:
            return 0
        return max(0, round((qos.usage_thres - share) * rules.SHARE))

    def _kept(self, lender: str, name: str) -> int:
        """What all jobs hold, and what is kept from those below a lender ("": below none)."""
        stands = self._led.quotas()
        return self.held(name) + (stands.kept_from(lender, name) if stands is not None else 0)

    def held(self, name: str) -> int:
        """How much of a TRES all running jobs hold."""
        return self.tally.of(("assoc", ROOT_ID, "")).tres[name]

    def _past(self, scope: Scope, name: str, now: int) -> int:
        """Seconds used so far, by jobs that have ended and by those that run."""
        kind, of, _ = scope
        ended = self._led.book.used.get(of) if kind in ("assoc", "qos") else None
        past = 0.0
        if ended is not None:
            ended = self._led.meter.ended(of, float(now))
            past = ended.wall if name == WALL else ended.tres.get(name, 0.0)
        return int(past + self.tally.of(scope).spent(name, now))

    def lacks(self, job: Job, partition: str, now: int) -> list[Lack]:
        """The limits that keep a job from starting in a partition now, in Slurm's order. Cost: its
        limits."""
        if not self.on:
            return []
        limits = self.of(self.place(job, partition))
        asked = self.needed(job, partition, job.spec.shape)
        least = dict(self._least(job, partition, job.spec.shape, asked))
        told = self._led.cluster.limit_of(job.id)
        found = []
        for limit in limits.rules:
            draw = self._draw(limit, limits, asked, job.time_limit, least)
            if draw is None:
                continue
            _, what, name = limit.pool
            used = 0 if draw.fixed else self.used(limit.pool, now)[0]
            want = draw.amount
            if draw.timed:
                want = int(want * (job.time_limit or YEAR) * draw.factor)
            over = want + used > draw.limit
            # By the place that it would get, it may be more than it asks for.
            if draw.what == "hosts" or not (over or (draw.fixed and limit.pool == told)):
                continue
            minutes = what in ("run", "mins", "wall", "jobmins")
            if what == "jobwall":
                want = job.time_limit // 60
            elif what in EACH:
                want = asked.get(name, 0)
                if what == "node":
                    want = max(least.get(name, 0), want // max(asked.get("node", 1), 1))
                want = want * (job.time_limit or YEAR) // 60 if what == "jobmins" else want
            elif minutes:
                want = -(-want // 60)
            have = used // 60 if minutes and not draw.fixed else used
            if what == "threshold":
                want, have = limit.value, limit.value - used
            never = over if what in EACH else what != "threshold" and want > limit.value
            found.append(Lack(limit, want, have, never))
        return found

    def over(
        self,
        job: Job,
        partition: str,
        held: Tres,
        nodes: Iterable[str],
        gone: Iterable[int],
        now: int,
    ) -> Limit | None:
        """The first limit that a waiting job would break by what it would hold on these nodes once
        the jobs in `gone` hold nothing; None: none. Limits that do not depend on its place are not
        looked at. Cost: its limits times those jobs."""
        parts = [self.tally.parts[one] for one in gone if one in self.tally.parts]
        seconds = job.time_limit or YEAR
        for limit in self.of(self.place(job, partition)).rules if self.on else ():
            scope, what, name = limit.pool
            if what in ("job", "node", "jobmins"):
                if rules.breaks(limit, held, job.time_limit):
                    return limit
            elif what in ("tres", "run"):
                leave = [part for part in parts if scope in part.scopes]
                used, on = self.used(limit.pool, now)
                if what == "run":
                    used -= sum(p.tres.get(name, 0) * max(0, p.end - now) for p in leave)
                    if used + held.get(name, 0) * seconds > limit.value * 60:
                        return limit
                    continue
                if on is not None:
                    left = Counter(on)
                    left.subtract(node for part in leave for node in part.nodes)
                    used = len({node for node, jobs in left.items() if jobs > 0} | set(nodes))
                else:
                    used += held.get(name, 0) - sum(part.tres.get(name, 0) for part in leave)
                if used > limit.value:
                    return limit
        return None

    def spent(self, job: Job, now: int) -> Limit | None:
        """The limit on minutes that a running job's group has used up; None: none has."""
        for limit in self.limits_of(job).rules:
            if limit.pool[1] in ("mins", "wall"):
                if self.used(limit.pool, now)[0] >= limit.value * 60:
                    return limit
        return None

    def holders(self, scope: Scope) -> list[Job]:
        """Running jobs that count for a scope. Cost: all jobs that have not ended."""
        return [self._led.jobs[job_id] for job_id in self.tally.holders(scope)]

    # ---- the tally ----------------------------------------------------------------------------

    def part_of(self, job: Job) -> Part | None:
        """What a job adds to the sums; None: it has ended."""
        if job.finished or not self.on:
            return None
        scopes = self.limits_of(job).scopes
        if job.state == JobState.PENDING:
            tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
            return Part(scopes, tasks)
        still, now = job.state == JobState.SUSPENDED, int(self._led.meta.last_now)
        qos = self._led.book.qos.get(job.spec.qos)
        limit = job.time_limit
        counts = tres.allocated(job)
        counts["billing"] = counts.get("cpu", 0) if job.billing < 0 else job.billing
        return Part(
            scopes,
            1,
            True,
            counts,
            tuple(part.node for part in job.alloc),
            end=job.end_time if limit and not still and job.end_time > now else 0,
            left=max(0, limit - job.pre_suspend_s) if still and limit else 0,
            since=0 if still else job.start_time + suspended_s(job),
            ran=job.pre_suspend_s if still else 0,
            factor=round(qos.usage_factor * UNIT) if qos is not None else UNIT,
        )

    def flush(self) -> bool:
        """Takes in what a command has changed. Whether limits have changed. Cost: a few us for each
        job touched; after a change of associations or QOS for all jobs."""
        jobs, cluster = self._led.jobs, self._led.cluster
        anew = self.outdated
        if anew:
            self.outdated = False
            before, self._known = self._known, {}
            self.touched.update(job.id for job in jobs.values() if self._moved(job, before))
            book = self._led.book
            groups: list[Assoc | Qos] = [*book.assocs.values(), *book.qos.values()]
            self.minutes = any(one.grp_tres_mins or one.grp_wall is not None for one in groups)
        for job_id in self.touched:
            job = jobs.get(job_id)
            self.tally.set(job_id, self.part_of(job) if job is not None else None)
        self.touched.clear()
        self.tally.advance(int(self._led.meta.last_now))
        for scope in self.tally.changed:
            cluster.holdings_changed(scope)
        self.tally.changed.clear()
        if anew:
            cluster.limits_changed()
            self._lift()
        return anew

    def _moved(self, job: Job, before: Mapping[Place, Limits]) -> bool:
        """Whether a job may add to other sums, or otherwise, than before a change."""
        if job.state != JobState.PENDING:
            return not job.finished
        place = self.place(job, job.partition)
        old = before.get(place)
        return old is None or old.scopes != self.of(place).scopes

    def _lift(self) -> None:
        """Who waits in a QOS whose flags have changed is judged by its partitions anew."""
        flags = {qos.name: _LIFTING.intersection(qos.flags) for qos in self._led.book.qos.values()}
        other = {name for name, now in flags.items() if self._flags.get(name, _BOUND) != now}
        self._flags = flags
        for job in self._led.jobs.values() if other else ():
            if job.spec.qos in other and self._led.cluster.queued(job.id):
                self._led.cluster.queue_job(job)

    def forget(self) -> None:
        """The configuration has changed, or all jobs were loaded: all is counted anew, by the next
        flush."""
        self.outdated = True
        self._known.clear()
        self._most.clear()
        self._lifted.clear()
        self.touched.update(self._led.jobs)

    def wrong(self) -> str:
        """What the sums say that the jobs do not; "" nothing. Cost: all jobs."""
        parts = {
            job.id: part
            for job in self._led.jobs.values()
            if (part := self.part_of(job)) is not None
        }
        if parts != self.tally.parts:
            other = [job for job in parts if parts[job] != self.tally.parts.get(job)]
            return f"the tally does not know jobs {other or self.tally.parts.keys() - parts.keys()}"
        return "" if recount(parts) == self.tally.sums else "the sums of the tally are wrong"


def _signature(of: Hashable) -> Signature:
    assert isinstance(of, tuple)
    return of
