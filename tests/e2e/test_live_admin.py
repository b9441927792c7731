"""Administration of a living cluster: nothing that runs is touched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState

COUNT = "#!/bin/sh\nn=0\nwhile :; do n=$((n+1)); echo $n > {mark}; sleep 0.1; done\n"


@pytest.fixture(scope="module")
def mine() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer", "--set", "KillWait=2") as made:
        yield made


def count(mark: Path) -> int:
    return int(mark.read_text().strip() or 0) if mark.exists() else 0


def test_a_suspended_job_stands_still(mine: LocalCluster) -> None:
    mark = mine.work / "counts"
    job_id = mine.sbatch("-o", "/dev/null", script=COUNT.format(mark=mark))
    until("it counts", lambda: count(mark) > 2)
    mine.run(["scontrol", "suspend", str(job_id)])
    assert mine.job(job_id).state is JobState.SUSPENDED

    def stands() -> bool:
        before = count(mark)
        time.sleep(0.5)
        return count(mark) == before

    until("it stands still", stands)
    before = count(mark)
    mine.run(["scontrol", "resume", str(job_id)])
    until("it counts on", lambda: count(mark) > before)
    mine.run(["scancel", str(job_id)])
    assert mine.ended(job_id).state is JobState.CANCELLED


def test_a_requeued_job_runs_again_when_told_to(mine: LocalCluster) -> None:
    out = mine.work / "again.out"
    script = (
        "#!/bin/sh\necho run ${SLURM_RESTART_COUNT-none}\n"
        'test -n "$SLURM_RESTART_COUNT" || sleep 600\n'
    )
    job_id = mine.sbatch("-o", str(out), "--open-mode=append", script=script)
    until("the first run", lambda: out.exists() and "run none" in out.read_text())
    mine.run(["scontrol", "requeue", str(job_id)])
    until("it waits", lambda: mine.job(job_id).state is JobState.PENDING)
    reason = mine.run(["squeue", "-h", "-j", str(job_id), "-o", "%r"]).stdout
    assert reason == "BeginTime\n"
    mine.run(["scontrol", "update", f"job={job_id}", "starttime=now"])
    assert mine.ended(job_id).state is JobState.COMPLETED
    text = out.read_text()
    assert "DUE TO JOB REQUEUE ***" in text and text.endswith("run 1\n")


def test_a_line_for_the_user(mine: LocalCluster) -> None:
    out = mine.work / "noted.out"
    job_id = mine.sbatch("-o", str(out), script="#!/bin/sh\necho here\nsleep 600\n")
    until("it runs", lambda: out.exists() and out.read_text() == "here\n")
    mine.run(["scontrol", "notify", str(job_id), "disk full", "at noon"])
    until("the line", lambda: "error: disk full at noon\n" in out.read_text())
    mine.run(["scancel", str(job_id)])
    assert mine.ended(job_id).state is JobState.CANCELLED


def test_partitions_come_and_go(mine: LocalCluster) -> None:
    mine.run(["scontrol", "create", "partition=extra", "nodes=node[2-3]", "maxtime=10"])
    assert "extra" in mine.run(["sinfo", "-h", "-o", "%P"]).stdout.split()
    job_id = mine.sbatch("-p", "extra", "-o", "/dev/null", "--wrap", "true")
    assert mine.ended(job_id).last_nodes == "node2"
    mine.run(["scontrol", "update", "partition=extra", "state=down"])
    line = mine.run(["sinfo", "-h", "-p", "extra", "-o", "%a %l"]).stdout
    assert line.splitlines()[0] == "down 10:00"
    mine.run(["scontrol", "delete", "partition=extra"])
    refused = mine.run(["sbatch", "-p", "extra", "--wrap", "true"], check=False)
    assert refused.returncode == 1 and "invalid partition specified: extra" in refused.stderr


def test_a_new_configuration_while_jobs_run(mine: LocalCluster) -> None:
    conf = mine.dir / "etc" / "slurm.conf"
    before = conf.read_text()
    kept, moved = mine.work / "kept", mine.work / "moved"
    ids = [
        mine.sbatch("-w", node, "-o", "/dev/null", script=COUNT.format(mark=mark))
        for node, mark in (("node1", kept), ("node3", moved))
    ]
    until("both count", lambda: count(kept) > 0 < count(moved))
    conf.write_text(before + "Nonsense=1\n")
    bad = mine.run(["scontrol", "reconfigure"], check=False)
    assert bad.returncode == 1 and '"Nonsense" is not a key of slurm.conf' in bad.stderr
    assert f"{conf}:" in bad.stderr
    without = [line for line in before.splitlines() if not line.startswith("NodeName=node3 ")]
    text = "\n".join(without).replace("node[1-4]", "node[1-2,4]") + "\nMinJobAge=123\n"
    conf.write_text(text.replace("MinJobAge=300", ""))
    mine.run(["scontrol", "reconfigure"])
    assert "node3" not in mine.run(["sinfo", "-h", "-N", "-o", "%N"]).stdout.split()
    assert "123 sec" in mine.run(["scontrol", "show", "config", "MinJobAge"]).stdout
    marks = count(kept), count(moved)
    until("both count on", lambda: count(kept) > marks[0] and count(moved) > marks[1])
    assert [mine.job(job_id).state for job_id in ids] == [JobState.RUNNING] * 2
    mine.run(["scancel", str(ids[1])])
    assert mine.ended(ids[1]).state is JobState.CANCELLED
    conf.write_text(before)
    mine.run(["scontrol", "reconfigure"])
    again = mine.sbatch("-w", "node3", "-o", "/dev/null", "--wrap", "true")
    assert mine.ended(again).state is JobState.COMPLETED
    mine.run(["scancel", str(ids[0])])
    assert mine.ended(ids[0]).state is JobState.CANCELLED
