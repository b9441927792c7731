"""Random histories: whatever comes, goes and changes, no start brings what runs over a limit that
is in force then. The sums are made here from the jobs' records alone."""

from __future__ import annotations

import os
import random
from collections import Counter

import msgspec
import pytest
from unit.ledger_support import Bench, at

from gsched.ledger import Ledger, Start, accounts
from gsched.ledger.invariants import check
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.model.policy import Account, Assoc, Qos, User
from gsched.scheduling import run_pass
from gsched.scheduling.planning import Planner
from gsched.wire.messages import CancelJobs, SubmitJob, UpdateJob

CONF = """
AccountingStorageEnforce={words}
AccountingStorageTRES=gres/gpu
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=1000
MinJobAge=300
SlurmdTimeout=0
NodeName=node[1-3] CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=16000 Gres=gpu:h100:8
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=10 State=UP {qos}
PartitionName=few Nodes=node[1-2] MaxTime=7-0 DefaultTime=10 State=UP
"""
TRES = ("cpu", "mem", "node", "gres/gpu", "billing")
SIZES = {"cpu": 10, "mem": 12000, "node": 2, "gres/gpu": 8, "billing": 12}
UIDS = {"ana": 1001, "ben": 1002}


class History:
    """One cluster, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        words = self.dice.choice(["limits", "limits,safe"])
        conf = CONF.format(words=words, qos=self.dice.choice(["", "QOS=part"]))
        self.made = Bench(conf)
        self.planner = Planner()
        self.led.limits.flush()
        for record in (
            *(Account("lab"), Account("sub"), User("ana", "lab"), User("ben", "sub")),
            *(Qos(2, "gold"), Qos(3, "part")),
            Assoc(1, "root", qos=("normal", "gold")),
            *(Assoc(10, "lab", parent="root"), Assoc(11, "sub", parent="lab")),
            *(Assoc(20, "lab", "ana"), Assoc(21, "sub", "ben"), Assoc(22, "lab", "ben")),
        ):
            accounts.put(self.led, record, Outcome())
        for _ in range(2):
            self.limit()

    @property
    def led(self) -> Ledger:
        return self.made.led

    def counts(self) -> dict[str, int]:
        names = self.dice.sample(TRES, self.dice.choice([0, 1, 1, 2]))
        return {name: self.dice.randint(SIZES[name] // 4, 2 * SIZES[name]) for name in names}

    def limit(self) -> None:
        """Somebody sets a limit, or takes one away."""
        number = self.dice.choice([None, None, 2, 3, 5, 8])
        if self.dice.random() < 0.5:
            found = self.led.book.assocs[self.dice.choice([1, 10, 11, 20, 21, 22])]
            name = self.dice.choice(
                ["grp_tres", "grp_tres", "grp_tres_run_mins", "grp_jobs", "max_jobs"]
                + ["max_tres_per_job"]
            )
            record: Assoc | Qos = found
        else:
            record = self.led.book.qos[self.dice.choice(["normal", "gold", "part"])]
            name = self.dice.choice(
                ["grp_tres", "max_tres_pu", "max_tres_pa", "grp_tres_run_mins", "grp_jobs"]
                + ["max_jobs_pu", "max_jobs_pa", "max_tres_per_job"]
            )
        value: object = number if "jobs" in name else self.counts()
        if name == "grp_tres_run_mins" and isinstance(value, dict):
            value = {tres: 8 * count for tres, count in value.items() if tres != "node"}
        accounts.put(self.led, msgspec.structs.replace(record, **{name: value}), Outcome())
        self.made.tick()

    def submit(self) -> None:
        dice = self.dice
        user = dice.choice(["ana", "ben"])
        shape = dice.choice(
            [
                Shape(ntasks=dice.randint(1, 4)),
                Shape(ntasks=dice.randint(1, 4)),
                Shape(gpus_total=dice.randint(1, 4)),
                Shape(min_nodes=2, max_nodes=2, nodes_set=True, gpus_per_node=dice.randint(1, 2)),
                Shape(ntasks=1, exclusive=1),
                Shape(ntasks=1, mem_per_node=dice.choice([0, 500, 8000])),
            ]
        )
        spec = JobSpec(
            shape=shape,
            account=dice.choice(["", "lab"]) if user == "ben" else "",
            qos=dice.choice(["", "gold"]),
            time_limit=dice.choice([None, 60, 600, 1200]),
            partitions=dice.choice([(), (), ("few",), ("gpu", "few")]),
            array=dice.choice(["", "", "", "1-3", "1-4%2"]),
        )
        more = []
        if not spec.array and not spec.partitions and dice.random() < 0.15:
            more = [msgspec.structs.replace(spec, shape=Shape(ntasks=dice.randint(1, 3)))]
        job = SubmitJob(spec, b"#!/bin/sh\n", b"", user, "users", components=more)
        self.made.write(job, UIDS[user])

    def running(self) -> list[Job]:
        live = (JobState.RUNNING, JobState.SUSPENDED)
        return [job for job in self.led.jobs.values() if job.state in live]

    def end(self) -> None:
        """A job runs, and is over."""
        found = [job for job in self.running() if job.state == JobState.RUNNING]
        if not found:
            return
        job = self.dice.choice(found)
        for phase in (Phase.PREPARED, Phase.RUNNING, Phase.ENDED, Phase.RELEASED):
            for part in list(job.alloc):
                if part.phase < phase:
                    self.made.report(part.node, at(job, phase, wstatus=0))

    def odd(self) -> None:
        """Something that does not happen often."""
        jobs = [job for job in self.led.jobs.values() if not job.finished]
        if not jobs:
            return
        job, what = self.dice.choice(jobs), self.dice.choice(["cancel", "verb", "verb", "reload"])
        if what == "cancel":
            self.made.write(CancelJobs([str(job.id)]), 0)
        elif what == "verb":
            verb = self.dice.choice(["suspend", "resume", "requeue", "hold", "release"])
            self.made.write(UpdateJob([str(job.id)], verb), 0)
        elif not any(one.configuring for one in jobs):
            assert not self.led.limits.wrong()

    def step(self) -> None:
        what = self.dice.random()
        if what < 0.4:
            self.submit()
        elif what < 0.65:
            self.end()
        elif what < 0.75:
            self.limit()
        elif what < 0.85:
            self.odd()
        elif what < 0.9:
            self.planner.prepare(self.led, self.made.now).run()
            self.planner.apply(self.led)
        self.made.now += self.dice.choice([0, 1, 30, 300])
        self.made.tick()
        before = {job.id for job in self.running()}
        plan = run_pass(self.led, self.made.now)
        # Limits as they were when it was decided.
        self.led.apply(Start(plan), self.made.now, Outcome())
        place = {id(start.alloc): number for number, start in enumerate(plan.starts)}
        started = [job for job in self.running() if job.id not in before]
        started.sort(key=lambda job: place[id(job.alloc)])
        # One after the other: those of whom another limit counts may start behind those of whom
        # this one does. (Components of one job do so in an order of their own.)
        live = [job for job in self.running() if job.id in before]
        for job in started:
            if job.het_job_id:
                self.judge(job, [*live, *(j for j in started if j.het_job_id == job.het_job_id)])
        for job in started:
            live.append(job)
            if not job.het_job_id:
                self.judge(job, live)

    def judge(self, job: Job, live: list[Job]) -> None:
        book = self.led.book
        part = self.led.config.partitions[job.partition].qos
        qoses = [book.qos[name] for name in dict.fromkeys(filter(None, (part, job.spec.qos)))]
        said: set[tuple[str, str]] = set()
        for qos in qoses:
            mine = [one for one in live if qos.name in self.qos_of(one)]
            own = [one for one in mine if one.user == job.user]
            team = [one for one in mine if one.spec.account == job.spec.account]
            rows = [
                ("grp", qos.grp_tres, mine),
                ("pu", qos.max_tres_pu, own),
                ("pa", qos.max_tres_pa, team),
                ("job", qos.max_tres_per_job, [job]),
                ("run", qos.grp_tres_run_mins, mine),
            ]
            counts = [
                ("jobs", qos.grp_jobs, mine),
                ("maxjobs", qos.max_jobs_pu, own),
                ("maxjobs", qos.max_jobs_pa, team),
            ]
            self.keeps(job, rows, counts, said)
            said |= {(kind, name) for kind, limit, _ in rows for name in limit}
            said |= {(kind, "") for kind, limit, _ in counts if limit is not None}
        chain = book.chain(book.assocs[job.assoc_id])
        for assoc in chain:
            under = [one for one in live if assoc in book.chain(book.assocs[one.assoc_id])]
            rows = [
                ("grp", assoc.grp_tres, under),
                ("run", assoc.grp_tres_run_mins, under),
            ]
            counts = [("jobs", assoc.grp_jobs, under)]
            if assoc is chain[0]:
                whole = book.effective(assoc)
                rows.append(("job", whole.max_tres_per_job, [job]))
                counts.append(("maxjobs", whole.max_jobs, under))
            self.keeps(job, rows, counts, said)

    def qos_of(self, job: Job) -> set[str]:
        return {job.spec.qos, self.led.config.partitions[job.partition].qos}

    def keeps(
        self,
        job: Job,
        rows: list[tuple[str, dict[str, int], list[Job]]],
        counts: list[tuple[str, int | None, list[Job]]],
        said: set[tuple[str, str]],
    ) -> None:
        for kind, most, among in counts:
            if most is not None and (kind, "") not in said:
                assert len(among) <= most, f"{kind}: {len(among)} of {most} after {job.id}"
        for kind, limits, among in rows:
            for name, most in limits.items():
                if (kind, name) in said:
                    continue
                if kind == "run":
                    used = sum(held(one)[name] * max(0, self.left(one)) for one in among)
                    most *= 60
                elif name == "node" and kind != "job":
                    used = len({part.node for one in among for part in one.alloc})
                else:
                    used = sum(held(one)[name] for one in among)
                assert used <= most, f"{kind} {name}: {used} of {most} after {job.id}"

    def left(self, job: Job) -> int:
        if job.state == JobState.SUSPENDED:
            return job.time_limit - job.pre_suspend_s
        return job.end_time - int(self.made.now)


def held(job: Job) -> Counter[str]:
    """What a job holds, as its record has it."""
    cpus = sum(part.cpus for part in job.alloc)
    return Counter(
        {
            "cpu": cpus,
            "billing": cpus,
            "mem": sum(part.mem_mb for part in job.alloc),
            "node": len(job.alloc),
            "gres/gpu": sum(part.gpus.bit_count() for part in job.alloc),
        }
    )


#: histories: GSCHED_HISTORIES=3000 is what a change here should have seen
NUMBER = int(os.environ.get("GSCHED_HISTORIES", "160"))


@pytest.mark.parametrize("block", range(8))
def test_no_start_goes_over_a_limit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What holds after every command is looked at once for each history: it would take all the time.
    monkeypatch.setattr("unit.ledger_support.check", lambda led: None)
    starts, each = 0, NUMBER // 8
    for seed in range(block * each, (block + 1) * each):
        history = History(seed)
        for _ in range(30):
            history.step()
        starts += sum(job.attempt > 0 for job in history.led.jobs.values())
        check(history.led)
    assert starts > 4 * each
