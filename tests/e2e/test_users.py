"""Several users on one cluster, and a cluster of an ordinary user's own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState


@pytest.mark.root
def test_a_job_runs_as_the_user_who_submitted_it(cluster: LocalCluster, other_user: str) -> None:
    job_id = cluster.sbatch("--wrap", "id -un; id -u; umask", user=other_user)
    job = cluster.ended(job_id)
    uid = pwd.getpwnam(other_user).pw_uid
    assert (job.state, job.uid, job.user) == (JobState.COMPLETED, uid, other_user)
    assert cluster.output(job_id).splitlines()[:2] == [other_user, str(uid)]
    assert os.stat(cluster.work / f"slurm-{job_id}.out").st_uid == uid


@pytest.mark.root
def test_nobody_cancels_the_jobs_of_others_but_root(cluster: LocalCluster, other_user: str) -> None:
    mine = cluster.sbatch("-H", "--wrap", "true")
    theirs = cluster.sbatch("-H", "--wrap", "true", user=other_user)
    done = cluster.run(["scancel", str(mine)], user=other_user, check=False)
    assert done.returncode == 210
    assert done.stderr == (
        f"scancel: error: Kill job error on job id {mine}: Access/permission denied\n"
    )
    assert cluster.job(mine).state is JobState.PENDING
    # Without ids: only one's own.
    cluster.run(["scancel", "-u", other_user], user=other_user)
    assert cluster.ended(theirs).state is JobState.CANCELLED
    assert cluster.job(mine).state is JobState.PENDING
    cluster.run(["scancel", str(mine)])
    assert cluster.ended(mine).state is JobState.CANCELLED


@pytest.mark.root
def test_the_output_file_is_opened_as_the_user(cluster: LocalCluster, other_user: str) -> None:
    forbidden = cluster.base / "forbidden"
    forbidden.mkdir(mode=0o700, exist_ok=True)
    job_id = cluster.sbatch("-o", f"{forbidden}/out", "--wrap", "true", user=other_user)
    assert cluster.ended(job_id).state is JobState.FAILED
    assert list(forbidden.iterdir()) == []


@pytest.mark.root
def test_only_administrators_drain_nodes(cluster: LocalCluster, other_user: str) -> None:
    words = ["scontrol", "update", "nodename=node4", "state=drain", "reason=test"]
    done = cluster.run(words, user=other_user, check=False)
    assert done.returncode == 1
    assert "denied" in done.stderr or "Invalid user id" in done.stderr
    assert cluster.run(["sinfo", "-h", "-n", "node4", "-o", "%t"]).stdout.split()[0] == "idle"


@pytest.fixture(scope="module")
def own_cluster(other_user: str) -> Iterator[LocalCluster]:
    with LocalCluster("--nodes", "2", "--simulate", "peer", user=other_user) as made:
        yield made


@pytest.mark.root
def test_an_ordinary_user_has_a_cluster_of_their_own(
    own_cluster: LocalCluster, other_user: str
) -> None:
    job_id = own_cluster.sbatch("--gres=gpu:3", "--wrap", 'id -un; echo "$CUDA_VISIBLE_DEVICES"')
    assert own_cluster.ended(job_id).state is JobState.COMPLETED
    name, gpus = own_cluster.output(job_id).split()
    assert name == other_user
    assert len(set(gpus.split(","))) == 3
    assert os.stat(own_cluster.work / f"slurm-{job_id}.out").st_uid == (
        pwd.getpwnam(other_user).pw_uid
    )


@pytest.mark.root
def test_a_job_of_an_ordinary_users_cluster_is_cancelled_whole(own_cluster: LocalCluster) -> None:
    mark = own_cluster.work / "child"
    job_id = own_cluster.sbatch(
        "-o", "/dev/null", script=f"#!/bin/sh\n(setsid sleep 611 & echo $! > {mark}); sleep 612\n"
    )
    pid = int(str(until("the child's pid", lambda: mark.exists() and mark.read_text())))
    own_cluster.run(["scancel", str(job_id)])
    assert own_cluster.ended(job_id).state is JobState.CANCELLED
    assert not os.path.exists(f"/proc/{pid}")
