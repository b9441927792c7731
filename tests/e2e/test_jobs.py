"""Jobs from submission to exit code, through real daemons."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from e2e_support import LocalCluster, until

from gsched.client import Client
from gsched.model import JobSpec, JobState, Shape
from gsched.wire.messages import Done, SubmitJob


def gpus_of(text: str) -> set[tuple[str, int]]:
    """(node, GPU number) pairs out of lines "node 0,1,2"."""
    found = set()
    for line in text.splitlines():
        node, numbers = line.split()
        for number in numbers.split(","):
            assert (node, int(number)) not in found, f"twice in {text}"
            found.add((node, int(number)))
    return found


def test_a_job_runs_and_its_output_is_where_slurm_puts_it(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch(
        "-J", "hello", script='#!/bin/sh\necho "out $SLURM_JOB_ID $SLURM_JOB_NAME"; echo err >&2\n'
    )
    job = cluster.ended(job_id)
    assert (job.state, job.wstatus) == (JobState.COMPLETED, 0)
    assert cluster.output(job_id) == f"out {job_id} hello\nerr\n"


def test_jobs_that_run_at_once_never_share_a_gpu(cluster: LocalCluster) -> None:
    # 16 jobs of 2 GPUs fill the 4 x 8 GPUs exactly; each holds its own until all have written.
    report = cluster.work / "gpus"
    script = (
        "#!/bin/sh\n"
        f'echo "$SLURMD_NODENAME $SLURM_JOB_GPUS" >> {report}\n'
        f"for i in $(seq 300); do [ $(wc -l < {report}) = 16 ] && exit 0; sleep 0.1; done; exit 1\n"
    )
    ids = [cluster.sbatch("--gres=gpu:2", "-o", "/dev/null", script=script) for _ in range(16)]
    for job_id in ids:
        assert cluster.ended(job_id, 60).state is JobState.COMPLETED
    every = {(f"node{node}", gpu) for node in range(1, 5) for gpu in range(8)}
    assert gpus_of(report.read_text()) == every


def test_a_job_without_gpus_sees_none(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch(script='#!/bin/sh\necho "<${CUDA_VISIBLE_DEVICES-unset}>"\n')
    cluster.ended(job_id)
    assert cluster.output(job_id) in {"<unset>\n", "<NoDevFiles>\n", "<>\n"}


def test_the_exit_code_arrives(cluster: LocalCluster) -> None:
    failed = cluster.sbatch(script="#!/bin/sh\nexit 3\n")
    killed = cluster.sbatch(script="#!/bin/sh\nkill -9 $$\n")
    job = cluster.ended(failed)
    assert (job.state, job.wstatus) == (JobState.FAILED, 3 << 8)
    job = cluster.ended(killed)
    assert (job.state, job.wstatus) == (JobState.FAILED, 9)
    shown = cluster.run(["scontrol", "show", "job", str(failed)]).stdout
    assert "JobState=FAILED Reason=NonZeroExitCode" in shown
    assert "ExitCode=3:0" in shown


def test_a_script_that_cannot_be_executed_fails_alone(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch(script="#!/no/such/interpreter\n")
    assert cluster.ended(job_id).state is JobState.FAILED
    good = cluster.sbatch("--wrap", "true")
    assert cluster.ended(good).state is JobState.COMPLETED


def test_an_output_file_that_cannot_be_opened_fails_the_job(cluster: LocalCluster) -> None:
    (cluster.work / "a-file").touch()
    job_id = cluster.sbatch("-o", "a-file/out", "--wrap", "true")
    assert cluster.ended(job_id).state is JobState.FAILED


def test_scancel_ends_a_running_job(cluster: LocalCluster) -> None:
    mark = cluster.work / "cancel-mark"
    job_id = cluster.sbatch(
        "-o", "/dev/null", script=f"#!/bin/sh\necho $$ > {mark}\nsleep 600 & wait\n"
    )
    pid = int(str(until("the job's mark", lambda: mark.exists() and mark.read_text())))
    cluster.run(["scancel", str(job_id)])
    job = cluster.ended(job_id)
    assert job.state is JobState.CANCELLED
    assert job.cancelled_by == os.getuid()
    assert not Path(f"/proc/{pid}").exists()


def test_scancel_ends_a_job_that_ignores_sigterm(cluster: LocalCluster) -> None:
    mark = cluster.work / "stubborn-mark"
    script = f"#!/bin/bash\ntrap '' TERM\ntouch {mark}\nwhile :; do sleep 0.2; done\n"
    job_id = cluster.sbatch("-o", "/dev/null", script=script)
    until("the job's mark", mark.exists)
    started = time.monotonic()
    cluster.run(["scancel", str(job_id)])
    assert cluster.ended(job_id).state is JobState.CANCELLED
    # KillWait is 2 s here: not before it, and not for ever.
    assert 1.5 < time.monotonic() - started < 15


def test_scancel_of_a_waiting_job(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-H", "--wrap", "true")
    assert cluster.run(["squeue", "-h", "-j", str(job_id), "-o", "%t"]).stdout == "PD\n"
    cluster.run(["scancel", str(job_id)])
    job = cluster.ended(job_id)
    assert (job.state, job.attempt) == (JobState.CANCELLED, 0)


def test_a_job_over_two_nodes_gets_both(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch(
        "-N2",
        "--gres=gpu:8",
        script='#!/bin/sh\necho "$SLURM_JOB_NUM_NODES $SLURM_JOB_NODELIST $SLURMD_NODENAME"\n',
    )
    job = cluster.ended(job_id)
    assert job.state is JobState.COMPLETED
    count, nodes, host = cluster.output(job_id).split()
    first, second = re.fullmatch(r"node\[(\d)[-,](\d)\]", nodes).groups()  # type: ignore[union-attr]
    assert (count, host) == ("2", f"node{first}")
    assert first < second


def test_more_gpus_than_a_node_has_are_refused_at_once(cluster: LocalCluster) -> None:
    done = cluster.run(["sbatch", "--gres=gpu:9", "--wrap", "true"], check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "sbatch: error: Batch job submission failed: "
        "Requested node configuration is not available\n"
    )


def test_a_job_waits_for_gpus_and_gets_them_when_they_are_free(cluster: LocalCluster) -> None:
    first = cluster.sbatch("-N4", "--gres=gpu:8", "-o", "/dev/null", "--wrap", "sleep 600")
    second = cluster.sbatch("--gres=gpu:1", "-o", "/dev/null", "--wrap", "true")
    until("the first job", lambda: cluster.job(first).state is JobState.RUNNING)
    view = cluster.run(["squeue", "-h", "-j", str(second), "-o", "%t %r"]).stdout
    until(
        "its reason",
        lambda: (
            cluster.run(["squeue", "-h", "-j", str(second), "-o", "%t %r"]).stdout
            in {"PD Resources\n", "PD Priority\n"}
        ),
    )
    assert view.startswith("PD ")
    cluster.run(["scancel", str(first)])
    assert cluster.ended(second).state is JobState.COMPLETED
    assert cluster.ended(first).state is JobState.CANCELLED


def test_output_patterns(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch(
        *("-J", "pat x", "-o", "o-%A-%j-%x-%u-%N-%n-%s-%t-%%-%5j.out", "-e", "sub/dir/e-%j"),
        *("--wrap", "echo out; echo err >&2"),
    )
    job = cluster.ended(job_id)
    me, node = cluster.env()["USER"], job.batch_host or job.last_nodes
    # As a real Slurm named it: "o-168-...-168-pat x-root-node1-0-batch-0-%-00168.out".
    out = cluster.work / f"o-{job_id}-{job_id}-pat x-{me}-{node}-0-batch-0-%-{job_id:05d}.out"
    assert out.read_text() == "out\n"
    # Missing folders are made.
    assert (cluster.work / f"sub/dir/e-{job_id}").read_text() == "err\n"


def test_open_mode(cluster: LocalCluster) -> None:
    for mode, expected in (("append", "old\nnew\n"), ("truncate", "new\n")):
        path = cluster.work / f"mode-{mode}"
        path.write_text("old\n")
        cluster.ended(cluster.sbatch("-o", path.name, f"--open-mode={mode}", "--wrap", "echo new"))
        assert path.read_text() == expected


def test_standard_input_and_working_directory(cluster: LocalCluster) -> None:
    (cluster.work / "in").write_text("some input\n")
    folder = cluster.work / "elsewhere"
    folder.mkdir()
    job_id = cluster.sbatch(
        *("-i", str(cluster.work / "in"), "--chdir", str(folder), "-o", "out"),
        *("--wrap", "pwd; cat"),
    )
    cluster.ended(job_id)
    assert (folder / "out").read_text() == f"{folder}\nsome input\n"


def test_a_job_past_its_limit_is_ended_with_sigterm_first(cluster: LocalCluster) -> None:
    # sbatch counts in minutes: the typed request can say two seconds.
    out = cluster.work / "limit.out"
    env = "\0".join(f"{name}={value}" for name, value in cluster.env().items()).encode()
    script = b"#!/bin/bash\ntrap 'echo term; exit 0' TERM\nsleep 60 & wait\necho never\n"
    spec = JobSpec(
        name="limit", shape=Shape(), time_limit=2, work_dir=str(cluster.work), std_out=str(out)
    )
    started = time.monotonic()
    with Client(cluster.socket) as client:
        me = cluster.env()["USER"]
        reply = client.call(SubmitJob(spec, script, env, user=me, group=me))
    assert isinstance(reply, Done), reply
    job = cluster.ended(reply.value)
    assert job.state is JobState.TIMEOUT
    assert 2 <= time.monotonic() - started < 20
    text = out.read_text()
    assert "term" in text and "never" not in text
    assert re.search(
        rf"error: \*\*\* JOB {job.id} ON node\d CANCELLED AT \S+ DUE TO TIME LIMIT \*\*\*", text
    )


def test_the_environment_of_the_submission_reaches_the_job(cluster: LocalCluster) -> None:
    done = cluster.run(
        ["sbatch", "--parsable", "--wrap", 'echo "$GREETING"'], env={"GREETING": "a b\tc"}
    )
    job_id = int(done.stdout)
    cluster.ended(job_id)
    assert cluster.output(job_id) == "a b\tc\n"


def test_jobs_start_soon_on_an_idle_cluster(cluster: LocalCluster) -> None:
    job_id = cluster.sbatch("-o", "start", "--wrap", "date +%s.%N")
    submitted = time.time()
    cluster.ended(job_id)
    assert float((cluster.work / "start").read_text()) - submitted < 5


def test_every_waiting_job_is_told_when_it_is_expected(cluster: LocalCluster) -> None:
    """The nodes are full for 10 minutes: the plan, made beside the daemon's work, gives the next
    job its time and nodes, and the one behind it a later time."""
    full = cluster.sbatch(
        "-N4", "--gres=gpu:8", "-t", "10", "-o", "/dev/null", "--wrap", "sleep 600"
    )
    until("the first job", lambda: cluster.job(full).state is JobState.RUNNING)
    waiting = [
        cluster.sbatch("-N4", "--gres=gpu:8", "-t", "5", "-o", "/dev/null", "--wrap", "true")
        for _ in range(2)
    ]
    begun = cluster.job(full).start_time

    def starts() -> list[float]:
        shown = cluster.run(["squeue", "--start", "-h", "-o", "%i %S %Y"]).stdout
        found = dict(line.split(maxsplit=1) for line in shown.splitlines())
        said = [found.get(str(job), "N/A").split()[0] for job in waiting]
        if "N/A" in said:
            return []
        return [time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) - begun for text in said]

    first, second = until("both start times", starts, 60)
    # Ends are rounded up to whole minutes.
    assert 600 <= first <= 660
    assert first + 300 <= second <= first + 360
    shown = cluster.run(["scontrol", "show", "job", str(waiting[1])]).stdout
    assert "SchedNodeList=node[1-4]" in shown
    for job in (full, *waiting):
        cluster.run(["scancel", str(job)])
        cluster.ended(job)
