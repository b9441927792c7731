"""A job that has to make way: told, saves its work, and goes on from there."""

from __future__ import annotations

import os
import time

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.model import JobState

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="QOS are an administrator's")

#: trains up to STEPS; on SIGUSR1 it saves where it is and says so
SCRIPT = """#!/bin/bash
#SBATCH --requeue --signal=B:USR1 --open-mode=append --exclusive --qos=scavenger
#SBATCH --output={work}/train.out --time=30
step=$(cat {work}/checkpoint 2>/dev/null || echo 0)
echo "begins at $step restart=$SLURM_RESTART_COUNT reason=$GSCHED_RESTART_REASON"
save() {{
    cat "$GSCHED_PREEMPT_NOTICE" > {work}/notice
    echo "$step" > {work}/checkpoint
    date +%s.%N > {work}/saved_at
    touch "$GSCHED_PREEMPT_SAVED"
    sleep 60
}}
trap save USR1
while [ ! -e {work}/finish ]; do
    step=$((step + 1))
    echo "$step" > {work}/step
    sleep 0.05 & wait $!
done
echo "ends after $step"
"""


def test_it_goes_on_from_its_checkpoint_within_a_second() -> None:
    with LocalCluster("--nodes", "1") as cluster:
        conf = cluster.dir / "etc/slurm.conf"
        text = conf.read_text()
        for line in ("PreemptType=preempt/qos", "PreemptMode=REQUEUE"):
            if line not in text:
                text += line + "\n"
        conf.write_text(text + "PreemptParameters=send_user_signal\n")
        cluster.run(["scontrol", "reconfigure"])
        cluster.run(["sacctmgr", "-i", "add", "qos", "scavenger", "GraceTime=60"])
        cluster.run(["sacctmgr", "-i", "add", "qos", "urgent"])
        cluster.run(["sacctmgr", "-i", "modify", "qos", "urgent", "set", "Preempt=scavenger"])
        train = cluster.sbatch(script=SCRIPT.format(work=cluster.work))
        steps = cluster.work / "step"
        until("some steps", lambda: steps.exists() and int(steps.read_text() or 0) > 5)
        urgent = cluster.sbatch(
            "--exclusive", "--qos=urgent", "--wrap", f"date +%s.%N; echo x > {cluster.work}/urgent"
        )
        until("the urgent job", lambda: (cluster.work / "urgent").exists())
        saved_at = float((cluster.work / "saved_at").read_text())
        notice = (cluster.work / "notice").read_text()
        assert '"reason": "preempted"' in notice
        assert '"then": "requeue"' in notice
        # The grace time is a minute: it was over when the work was saved.
        job = cluster.ended(urgent)
        assert job.state == JobState.COMPLETED
        assert job.start_time - saved_at < 2
        again = until(
            "the second attempt",
            lambda: cluster.job(train).state == JobState.RUNNING and cluster.job(train),
        )
        assert time.time() - job.end_time < 30
        assert again.restarts == 1
        step = int((cluster.work / "checkpoint").read_text())
        out = cluster.work / "train.out"
        line = f"begins at {step} restart=1 reason=preempted"
        until("the checkpoint", lambda: line in out.read_text())
        assert again.start_time - job.end_time <= 2
        (cluster.work / "finish").touch()
        assert cluster.ended(train).state == JobState.COMPLETED
        shown = cluster.run(["sacct", "-D", "-X", "-n", "-P", "-j", str(train), "-o", "State"])
        assert shown.stdout.split() == ["PREEMPTED", "COMPLETED"]
        assert "begins at 0" in out.read_text()


def test_any_node_says_that_the_work_is_saved() -> None:
    with LocalCluster("--nodes", "2") as cluster:
        conf = cluster.dir / "etc/slurm.conf"
        conf.write_text(
            conf.read_text()
            + "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptParameters=send_user_signal\n"
        )
        cluster.run(["scontrol", "reconfigure"])
        cluster.run(["sacctmgr", "-i", "add", "qos", "scavenger", "GraceTime=300"])
        cluster.run(["sacctmgr", "-i", "add", "qos", "urgent"])
        cluster.run(["sacctmgr", "-i", "modify", "qos", "urgent", "set", "Preempt=scavenger"])
        said = f"""
            [ "$SLURM_PROCID" = 1 ] || exec sleep 600
            touch {cluster.work}/ready
            until [ -e "$GSCHED_PREEMPT_NOTICE" ]; do sleep 0.1; done
            {BIN}/gsched saved; sleep 600
        """
        script = "#!/bin/bash\n#SBATCH --signal=B:USR1\n"
        script += f"trap '' USR1\nsrun bash -c '{said}'\n"
        first = cluster.sbatch(
            "-N2", "--exclusive", "--qos=scavenger", "-o", "/dev/null", script=script
        )
        until("its second task", lambda: (cluster.work / "ready").exists())
        urgent = cluster.sbatch("-N2", "--exclusive", "--qos=urgent", "--wrap", "true")
        assert cluster.ended(urgent).state == JobState.COMPLETED
        assert cluster.job(first).restarts == 1
