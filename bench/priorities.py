"""What recalculating the priorities of a long queue costs: 100,000 waiting jobs, 1,000 users.

    python bench/priorities.py [JOBS]

Prints the best and the median of a few recalculations, fair shares and usage included, and what
sorting the queue anew adds to the next pass.
"""

from __future__ import annotations

import statistics
import sys
import time

from gsched.config import parse_config
from gsched.ledger import Ledger, Meta, Outcome, TakeOver, ranking
from gsched.model import Job, JobSpec, Shape
from gsched.model.policy import Assoc, Used
from gsched.store.ranks import Ranks

CONF = """
ClusterName=bench
SlurmctldHost=ctl(127.0.0.1)
PriorityType=priority/multifactor
PriorityWeightAge=100000
PriorityWeightFairshare=1000000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=2000
PriorityMaxAge=7-0
MaxJobCount=1000000
GresTypes=gpu
NodeName=DEFAULT CPUs=64 RealMemory=512000 Gres=gpu:h100:8
NodeName=node[0001-1000]
PartitionName=gpu Nodes=ALL Default=YES State=UP
"""
NOW = 1_800_000_000.0


def ledger(jobs: int, users: int = 1000, accounts: int = 50) -> Ledger:
    """A cluster whose queue is long and whose users have used something."""
    records: list[Assoc] = []
    config = parse_config({"slurm.conf": CONF})
    made = Ledger(config, Meta("bench", last_now=NOW))
    for record in made.book.first:
        made.book.put(record)
    for number in range(accounts):
        records.append(Assoc(10 + number, f"team{number}", parent="root"))
    for number in range(users):
        records.append(Assoc(1000 + number, f"team{number % accounts}", f"user{number}"))
    for record in records:
        made.book.put(record)
        made.book.used[record.id] = Used({"billing": 1000.0 + record.id}, at=NOW - 86400)
    spec = JobSpec(shape=Shape(mem_per_cpu=2000), qos="normal", partitions=("gpu",))
    for number in range(1, jobs + 1):
        user = number * 7919 % users
        submit = int(NOW) - number % 100_000
        made.jobs[number] = job = Job(
            *(number, user, user, f"user{user}", "users", spec),
            partition="gpu",
            submit_time=submit,
            eligible_time=submit,
            assoc_id=1000 + user,
        )
        made.cluster.queue_job(job)
    made.meta.next_job_id = jobs + 1
    return made


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    led = ledger(jobs)
    led.apply(TakeOver(), NOW)
    pages = Ranks()
    times: list[tuple[float, float]] = []
    for step in range(1, 8):
        out = Outcome()
        began = time.perf_counter()
        ranking.recalculate(led, NOW + 300.0 * step, out)
        middle = time.perf_counter()
        pages.fold(out.ranks)
        times.append((middle - began, time.perf_counter() - middle))
        assert len(out.ranks) > jobs * 0.9, "every age has changed"
    for name, place in (("recalculation", 0), ("pages of the view", 1)):
        each = [one[place] * 1000 for one in times]
        print(f"{name}: best {min(each):.1f} ms, median {statistics.median(each):.1f} ms")


if __name__ == "__main__":
    main()
