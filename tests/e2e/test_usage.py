"""What jobs have used, in SQL, whoever was killed while they ran."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from db_support import Missing, Server, own_server
from e2e_support import LocalCluster, until

from gsched.client import Client
from gsched.wire.report import ReportQuery, SizeRow, UsageRow

SEED = int(os.environ.get("GSCHED_KILL_SEED", "1"))


def kill(cluster: LocalCluster, name: str) -> None:
    """kill -9; `gsched up` brings it back."""
    path = cluster.dir / f"run/{name}.pid"
    # One that was started a moment ago has not written its number yet.
    until(f"{name}'s start", lambda: path.exists() and alive(int(path.read_text() or 0)))
    pid = int(path.read_text())
    os.kill(pid, signal.SIGKILL)
    until(f"{name}'s end", lambda: not alive(pid))


def alive(pid: int) -> bool:
    try:
        # A zombie of somebody else's is dead too.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rows(url: str) -> dict[int, tuple[int, int, int, int, int, str]]:
    engine = sa.create_engine(url)
    with engine.connect() as db:
        found = db.execute(
            sa.text(
                "SELECT job_id, start, end_time, elapsed_s, uncertain, last_report, alloc_tres "
                "FROM jobs"
            )
        )
        return {number: tuple(rest) for number, *rest in found}  # type: ignore[misc]


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[Server | None]:
    if request.param == "sqlite":
        yield None
        return
    try:
        made = own_server(request.param)
    except Missing as why:
        pytest.skip(str(why))
    yield made
    made.close()


def test_usage_is_exact_whoever_was_killed(tmp_path: Path, server: Server | None) -> None:
    rng = random.Random(SEED)
    options = ["--simulate", "peer", "--set", "KillWait=2"]
    url = server.url() if server is not None else ""
    if url:
        options += ["--set", f"AccountingStorageLoc={url}"]
    with LocalCluster(*options) as cluster:
        file = until("the database", lambda: url or next(cluster.dir.rglob("*.sqlite"), None))
        url = url or f"sqlite:///{file}"
        (prices := tmp_path / "prices").write_text("gres/gpu=3600\nDigits=0\n")
        marks = tmp_path / "marks"
        marks.mkdir()
        os.chmod(tmp_path, 0o755)
        os.chmod(marks, 0o777)
        script = f"date +%s > {marks}/$SLURM_JOB_ID; sleep 6; date +%s >> {marks}/$SLURM_JOB_ID"
        jobs = [
            cluster.sbatch("-o", "/dev/null", f"--gpus={n % 2 + 1}", "--wrap", script)
            for n in range(6)
        ]
        until("their starts", lambda: len(list(marks.iterdir())) == len(jobs))
        # One, the other, and both.
        for victims in (["slurmctld"], ["slurmdbd"], ["slurmctld", "slurmdbd"]):
            for name in rng.sample(victims, len(victims)):
                kill(cluster, name)
            if server is not None and "slurmdbd" in victims:
                server.kill()
                server.start()
            cluster.up()
            time.sleep(rng.uniform(0, 1))
        for job in jobs:
            cluster.ended(job)
        until("all in SQL", lambda: set(jobs) <= set(rows(url)))
        found = rows(url)
        used = 0
        for n, job in enumerate(jobs):
            start, end, elapsed, uncertain, last_report, text = found[job]
            began, over = map(int, (marks / str(job)).read_text().split())
            # The node's own clock saw it run so long; its end is when the controller heard of it.
            assert start <= began and over - began <= elapsed == end - start
            assert (uncertain, last_report) == (0, 0)
            assert f"gres/gpu={n % 2 + 1}" in text.split(",")
            used += (n % 2 + 1) * elapsed
        with Client(cluster.socket) as client:
            now = int(time.time())
            usage = client.report(ReportQuery("usage", 0, now + 3600))
            sizes = client.report(ReportQuery("sizes", 0, now + 3600))
        gpus = sum(r.tres.get("gres/gpu", 0) for r in usage.rows if isinstance(r, UsageRow))
        assert gpus == used
        assert sum(r.jobs for r in sizes.rows if isinstance(r, SizeRow)) == len(jobs)
        done = cluster.run(["gsched", "bill", "--prices", str(prices), "--format", "json"])
        assert json.loads(done.stdout)["total"] == str(used)
        top = cluster.run(["sreport", "-n", "-P", "-t", "sec", "user", "top", "start=00:00"])
        assert top.returncode == 0
