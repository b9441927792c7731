"""Speed of accounting: storing attempts, and asking for them among a million.

    python bench/accounting.py [--jobs N] [--days N] [URL ...]

A URL is SQLAlchemy's, of an empty database; without one an SQLite file in a temporary directory.
`--servers` starts PostgreSQL and MariaDB as the tests do. Times are seconds of wall time.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gsched.accounting.calendar import Calendar
from gsched.accounting.database import Database
from gsched.accounting.project import BATCH
from gsched.accounting.report import LiveRows, answer
from gsched.accounting.sql_news import Told
from gsched.model import ClusterSize
from gsched.model.acct import AcctJob, AcctStep
from gsched.wire.messages import AcctQuery
from gsched.wire.report import ReportQuery

STATE = "bench"
BEGIN = 20718 * 86400


def attempt(number: int, of: int, days: int, rng: random.Random) -> AcctJob:
    """One of 200 users' in 50 accounts, of a few minutes up to a day; they begin in order."""
    start = BEGIN + number * days * 86400 // of + rng.randrange(60)
    length = int(min(rng.expovariate(1 / 3600), 86400))
    cpus, gpus = rng.choice([(1, 0), (8, 1), (32, 4), (64, 8)])
    user = rng.randrange(200)
    more = f",gres/gpu:h100={gpus},gres/gpu={gpus}" if gpus else ""
    text = f"billing={cpus},cpu={cpus}{more},mem={cpus * 2000}M,node=1"
    found = AcctJob(number, 0, start, number, 0, uid=1000 + user, gid=100)
    found.user_name, found.account = f"user{user}", f"account{user % 50}"
    found.assoc_id, found.cluster, found.name = user + 10, "bench", f"train{number % 97}"
    found.partition_name, found.qos, found.state = "gpu", "normal", "COMPLETED"
    found.submit = found.eligible = start - rng.randrange(600)
    found.start, found.end_time, found.elapsed_s = start, start + length, length
    found.alloc_tres = found.req_tres = text
    found.alloc_cpus, found.alloc_nodes, found.nodes = cpus, 1, f"node{number % 500}"
    found.submit_line, found.work_dir = "sbatch train.sh", f"/home/user{user}"
    found.steps = [
        AcctStep("batch", "batch", "COMPLETED", 0, start, start + length, length, ncpus=cpus)
    ]
    return found


def timed(what: str, act: Callable[[], object]) -> object:
    since = time.perf_counter()
    found = act()
    print(f"  {what}: {time.perf_counter() - since:.3f}", flush=True)
    return found


def bench(url: str, jobs: int, days: int) -> None:
    database = Database(url, calendar=Calendar(UTC))
    database.migrate()
    database.sync(STATE, "bench", [], BEGIN)
    rng = random.Random(1)
    size = {"cpu": 32000, "mem": 64_000_000, "node": 500, "gres/gpu": 4000}
    database.store(STATE, [(1, Told(BEGIN, ClusterSize("node[0-499]", size, [], True)))])
    since, busy = time.perf_counter(), time.process_time()
    drawing = 0.0
    for done in range(0, jobs, BATCH):
        before = time.process_time()
        some = [
            (n + 2, attempt(n + 1, jobs, days, rng)) for n in range(done, min(done + BATCH, jobs))
        ]
        drawing += time.process_time() - before
        database.store(STATE, some)
    since, busy = time.perf_counter() - since, time.process_time() - busy - drawing
    each = 1000 / jobs
    print(
        f"  {jobs} attempts stored: {since - drawing:.1f} "
        f"({(since - drawing) * each:.3f} ms each, {busy * each:.3f} ms of CPU time in Python)",
        flush=True,
    )
    now = BEGIN + (days + 1) * 86400
    live = LiveRows(STATE, "bench", now, outbox_next=jobs + 2)
    day = BEGIN + days // 2 * 86400
    month = (day // 86400 * 86400, day // 86400 * 86400 + 30 * 86400)

    def page(**more: object) -> Callable[[], int]:
        return lambda: len(database.rows(AcctQuery(**more), 5000))  # type: ignore[arg-type]

    def report(kind: str, start: int, end: int, **only: list[str]) -> Callable[[], int]:
        return lambda: len(answer(database, ReportQuery(kind, start, end, only), live).rows)

    timed("sacct -j ID", page(ids=[(jobs // 2, -1)]))
    timed("sacct of one user, one day", page(uids=[1007], start=day, end=day + 86400))
    timed(
        "sacct of one user, 30 days, first page",
        page(uids=[1007], start=month[0], end=month[1]),
    )
    timed("sacct of one account, all, first page", page(accounts=["account7"]))
    timed("sacct -a, last day, first page", page(start=now - 2 * 86400))
    timed("sacct -a, everything, first page", page())
    timed("sreport cluster utilization, one day", report("cluster", day, day + 86400))
    timed("sreport cluster utilization, 30 days", report("cluster", *month))
    timed("sreport user top, one day", report("usage", day, day + 86400))
    timed("sreport user top, 30 days", report("usage", *month))
    timed("sreport user top, all", report("usage", BEGIN, now))
    timed("sreport job sizesbyaccount, one day", report("sizes", day, day + 86400))
    timed("sreport job sizesbyaccount, 30 days", report("sizes", *month))
    timed("sreport job sizesbyaccount, all", report("sizes", BEGIN, now))
    timed("sreport cluster utilization, all", report("cluster", BEGIN, now))
    timed("gsched bill, all", report("bill", BEGIN, now))
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--servers", nargs="*", choices=["postgresql", "mariadb"], default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        urls = given.urls or ([] if given.servers else [f"sqlite:///{folder}/a.sqlite"])
        for url in urls:
            print(url.partition(":")[0], flush=True)
            bench(url, given.jobs, given.days)
    for kind in given.servers:
        from db_support import own_server

        server = own_server(kind)
        try:
            print(kind, flush=True)
            bench(server.url(), given.jobs, given.days)
        finally:
            server.close()


if __name__ == "__main__":
    main()
