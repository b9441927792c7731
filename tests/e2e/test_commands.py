"""The viewing commands against a living cluster, and against a dead one."""

from __future__ import annotations

import re

from e2e_support import LocalCluster, until

from gsched.model import JobState


def test_sinfo_shows_the_partitions(cluster: LocalCluster) -> None:
    lines = cluster.run(["sinfo"]).stdout.splitlines()
    assert lines[0].split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert ["gpu*", "up", "7-00:00:00"] in [line.split()[:3] for line in lines]
    assert ["debug", "up", "30:00"] in [line.split()[:3] for line in lines]


def test_sinfo_format(cluster: LocalCluster) -> None:
    text = cluster.run(["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %c %m %G %f"]).stdout
    assert text.splitlines() == [
        f"node{index} 16 64000 gpu:h100:8 h100,rack{'A' if index <= 2 else 'B'}"
        for index in range(1, 5)
    ]


def test_squeue_shows_a_running_job(cluster: LocalCluster) -> None:
    mark = cluster.work / "squeue-mark"
    script = f"#!/bin/sh\ntouch {mark}\nsleep 600\n"
    job_id = cluster.sbatch("-J", "watched", "-o", "/dev/null", script=script)
    until("the job's mark", mark.exists)
    line = cluster.run(["squeue", "-h", "-j", str(job_id)]).stdout.split()
    me = cluster.env()["USER"]
    assert line[:5] == [str(job_id), "gpu", "watched", me[:8], "R"]
    assert re.fullmatch(r"node[1-4]", line[7])
    cluster.run(["scancel", str(job_id)])
    cluster.ended(job_id)


def test_squeue_of_an_unknown_job(cluster: LocalCluster) -> None:
    done = cluster.run(["squeue", "-j", "999999"], check=False)
    assert done.returncode == 1
    assert done.stderr == "slurm_load_jobs error: Invalid job id specified\n"


def test_why_a_job_waits(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-J", "later", "--gres=gpu:1", "--begin=now+1hour", "--wrap", "true")
    said = cluster.run(["gsched", "why", str(job_id)]).stdout.splitlines()
    assert said[0].startswith(f"Job {job_id} (later, ") and said[0].endswith(" waits: BeginTime")
    assert said[1].startswith("  It is not to begin before ")
    assert f"Or: scontrol update jobid={job_id} StartTime=now" in said
    detailed = cluster.run(["scontrol", "show", "job", "-dd", str(job_id)]).stdout
    assert re.search(r"^   Why=It is not to begin before \S+ \(--begin\)\.$", detailed, re.M)
    assert re.search(r"^   WhyInstead=--begin=now$", detailed, re.M)
    cluster.run(["scancel", str(job_id)])
    done = cluster.run(["gsched", "why", "999999"], check=False)
    assert (done.returncode, done.stderr) == (1, "Error: Invalid job id specified\n")


def test_scontrol_shows_job_node_partition_and_config(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-J", "shown", "--gres=gpu:1", "-H", "--wrap", "true")
    text = cluster.run(["scontrol", "show", "job", str(job_id)]).stdout
    assert text.startswith(f"JobId={job_id} JobName=shown\n")
    assert "JobState=PENDING Reason=JobHeldUser" in text
    cluster.run(["scancel", str(job_id)])
    node = cluster.run(["scontrol", "show", "node", "node2"]).stdout
    assert node.startswith("NodeName=node2 ")
    assert "Gres=gpu:h100:8" in node
    partition = cluster.run(["scontrol", "show", "partition", "debug"]).stdout
    assert partition.startswith("PartitionName=debug\n")
    config = cluster.run(["scontrol", "show", "config"]).stdout
    assert re.search(r"^ClusterName\s+= peer$", config, re.M)
    assert "UP" in cluster.run(["scontrol", "ping"]).stdout


def test_a_held_job_runs_when_released(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-H", "-o", "/dev/null", "--wrap", "true")
    cluster.run(["scontrol", "release", str(job_id)])
    assert cluster.ended(job_id).state is JobState.COMPLETED


def test_a_drained_node_takes_no_job_until_it_is_resumed(cluster: LocalCluster) -> None:
    cluster.run(["scontrol", "update", "nodename=node3", "state=drain", "reason=test"])
    job_id = cluster.sbatch("-w", "node3", "-o", "/dev/null", "--wrap", "true")
    assert cluster.run(["sinfo", "-h", "-n", "node3", "-o", "%t"]).stdout.split()[0] == "drain"
    assert cluster.job(job_id).state is JobState.PENDING
    cluster.run(["scontrol", "update", "nodename=node3", "state=resume"])
    job = cluster.ended(job_id)
    assert (job.state, job.last_nodes or job.batch_host) == (JobState.COMPLETED, "node3")
