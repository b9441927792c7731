"""Random histories of teams with guarantees, beside preemption by QOS: guaranteed work never makes
way for borrowed work, no two jobs make way for each other, nobody goes in vain, and nobody who is
within his guarantee is left waiting for what others have borrowed."""

from __future__ import annotations

import os

import pytest
from unit.test_preempt_histories import ENDING, History

from gsched import tres
from gsched.ledger import Start
from gsched.ledger.outcome import Outcome
from gsched.model import JobState, Shape
from gsched.model.policy import ROOT, Account, Assoc
from gsched.policy.preempt import above
from gsched.policy.quota import broken_promise
from gsched.scheduling import run_pass

#: blocks of eight histories; GSCHED_RECLAIM_HISTORIES says another number
BLOCKS = int(os.environ.get("GSCHED_RECLAIM_HISTORIES", "3"))
GPU = "gres/gpu"
TREES = (
    {"red": (ROOT, 8), "blue": (ROOT, 16)},
    {"red": (ROOT, 8), "blue": (ROOT, 8), "green": (ROOT, None)},
    {"lab": (ROOT, 16), "vision": ("lab", 8), "speech": ("lab", None), "guests": (ROOT, 0)},
    {"lab": (ROOT, None), "vision": ("lab", 8), "speech": ("lab", 8), "other": (ROOT, 8)},
)


class Teams(History):
    """The same with accounts."""

    def __init__(self, seed: int, modes: tuple[str, ...] = ENDING) -> None:
        super().__init__(seed, modes)
        self.taken = 0
        book = self.b.led.book
        tree = self.rnd.choice(TREES)
        for record in book.first:
            if not isinstance(record, Assoc) or record.id not in book.assocs:
                book.put(record)
        for number, (name, (parent, gpus)) in enumerate(tree.items(), 10):
            book.put(Account(name))
            guarantee = {} if gpus is None else {GPU: gpus}
            book.put(Assoc(number, name, parent=parent, guarantee=guarantee))
        self.accounts = list(tree)
        assert not broken_promise(book, {GPU: 24})
        self.b.schedule = self.judged  # type: ignore[method-assign]

    def submit(self) -> None:
        rnd = self.rnd
        nodes = rnd.choice([1, 1, 1, 2])
        shape = Shape(gpus_per_node=rnd.choice([1, 2, 4, 8]), min_nodes=nodes, max_nodes=nodes)
        self.b.job(
            shape=shape,
            qos=rnd.choice(["a", "a", "b", "c"]),
            account=rnd.choice(self.accounts),
            time_limit=rnd.choice([60, 600]),
        )

    def judged(self) -> Outcome:
        """A pass, and a look at what it decides before it is carried out."""
        led = self.b.led
        plan = run_pass(led, self.b.now)
        stands = led.quotas([start.job_id for start in plan.starts])
        assert stands is not None
        for one in plan.preemptions:
            job = led.jobs[one.job_id]
            claimant = stands.claim(job.spec.account, tres.requested(job.spec))
            for victim in one.victims:
                account = led.jobs[victim.job_id].spec.account
                # Guaranteed to somebody who has nothing to do with the one that it goes for.
                theirs = [
                    each
                    for each in stands.path(account)
                    if each not in stands.path(job.spec.account)
                    and stands.secure(victim.job_id, each)
                ]
                if victim.kind == "quota":
                    assert claimant
                    assert not theirs
                    self.taken += 1
                elif not claimant:
                    assert not theirs
        return self.b.apply(Start(plan))

    def quiet(self) -> None:
        """Nothing comes any more, and what runs runs on."""
        self.submit = lambda: None  # type: ignore[method-assign]
        for key in self.ends:
            self.ends[key] = 1e18
        for _ in range(40):
            self.step()
            for job in self.b.led.jobs.values():
                if job.state == JobState.RUNNING:
                    self.ends[job.id, job.attempt] = 1e18
                    job.end_time = 0
                    self.b.led.cluster.set_end(job)

    def held_back(self) -> list[int]:
        """Jobs of a single GPU with a claim, that wait although others have borrowed some that may
        be taken."""
        led = self.b.led
        stands = led.quotas()
        assert stands is not None
        found = []
        for job in led.jobs.values():
            wants = tres.requested(job.spec)
            if job.state != JobState.PENDING or wants.get(GPU) != 1 or job.claim is not None:
                continue
            claimant = stands.claim(job.spec.account, wants)
            victims = stands.order(claimant, wants) if claimant else []
            free = [
                one
                for one in victims
                if one in led.jobs
                and led.rules().exempt_until(led.jobs[one]) == 0
                and led.jobs[one].state == JobState.RUNNING
                and led.jobs[one].way is None
                and not above(job, led.jobs[one], led.jobs.get)
            ]
            if free and not self.ahead(job.id):
                found.append(job.id)
        return found

    def ahead(self, job_id: int) -> bool:
        """Whether somebody before it in the queue waits for room, which is not given away."""
        led = self.b.led
        mine = led.jobs[job_id]
        return any(
            other.state == JobState.PENDING
            and (-other.priority, other.id) < (-mine.priority, mine.id)
            for other in led.jobs.values()
        )


def test_jobs_that_stand_still() -> None:
    """The same where jobs are suspended for others and for guarantees."""
    taken = broken = stood = 0
    for seed in range(2000, 2000 + BLOCKS * 4):
        history = Teams(seed, ("SUSPEND,GANG", "SUSPEND,GANG,WITHIN"))
        for _ in range(50):
            history.step()
        assert not history.rings(), seed
        taken += history.taken
        broken += history.broken
        stood += len(history.stood)
    assert taken > 4
    assert stood > 10
    assert broken == 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_histories(block: int) -> None:
    taken = broken = 0
    for seed in range(1000 + block * 8, 1008 + block * 8):
        history = Teams(seed)
        for _ in range(50):
            history.step()
        assert not history.rings(), seed
        history.quiet()
        assert history.held_back() == [], seed
        taken += history.taken
        broken += history.broken
    assert taken > 4
    assert broken == 0


@pytest.mark.parametrize("seed", [1095, 1118, 1208])
def test_seeds_that_have_failed(seed: int) -> None:
    """1208: of two promises on a node the CPU of one was taken out of the other's."""
    history = Teams(seed)
    for _ in range(50):
        history.step()
    history.quiet()
    assert history.held_back() == []
    assert history.broken == 0
