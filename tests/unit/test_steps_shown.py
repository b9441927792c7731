"""squeue -s and scontrol show step. What Slurm 22.05 printed for such steps is written out."""

from __future__ import annotations

from acct_support import T244
from views_support import FakeReader, cpu_shape, invoke, make_job, share

from gsched.model import Job, JobState, NodeAlloc, Step, StepNode
from gsched_cli.scontrol import run as scontrol
from gsched_cli.squeue import run as squeue

NOW = T244 + 5


def job(number: int, name: str, nodes: int = 1, **more: object) -> Job:
    alloc = [share(f"node{n + 1}", 2, 3) for n in range(nodes)]
    fields = {"state": JobState.RUNNING, "alloc": alloc, "start_time": T244 + 1, **more}
    found = make_job(number, name, cpu_shape(), **fields)  # type: ignore[arg-type]
    found.partition = "gpu"
    return found


def step(number: int, of: int, name: str, nodes: int, ntasks: int, **more: object) -> Step:
    shares = [
        StepNode(NodeAlloc(f"node{n + 1}", 2, 2, 4000, gpus=3), [2 * n, 2 * n + 1])
        for n in range(nodes)
    ]
    more.setdefault("start_time", T244 + 2)
    return Step(of, 1, number, name, ntasks, shares, **more)  # type: ignore[arg-type]


def cluster() -> FakeReader:
    """Jobs 70 (a script with one step) and 72 (an srun alone)."""
    alpha = step(0, 70, "alpha", 2, 4, time_limit=120, gpu_types={"h100": 4}, layout="Block")
    alpha.srun = "vm:28453"
    out = step(0, 72, "lgout", 1, 2, start_time=T244 + 4, layout="Block", srun="vm:28502")
    out.nodes[0].alloc.gpus = 0
    jobs = [job(70, "lgst", 2), job(72, "lgout", start_time=T244 + 4)]
    jobs[1].spec.interactive = "srun"
    return FakeReader(jobs, step_list=[alpha, out], clock=NOW)


def test_squeue_shows_steps_and_scripts() -> None:
    out, err, code = invoke(squeue, ["-s"], cluster())
    assert (err, code) == ("", 0)
    assert out == (
        "         STEPID     NAME PARTITION     USER      TIME NODELIST\n"
        "           70.0    alpha       gpu     root      0:03 node[1-2]\n"
        "       70.batch    batch       gpu     root      0:04 node1\n"
        "           72.0    lgout       gpu     root      0:01 node1\n"
    )


def test_squeue_names_steps() -> None:
    def ids(*argv: str) -> list[str]:
        out, err, code = invoke(squeue, [*argv, "-h", "-o", "%i"], cluster())
        assert (err, code) == ("", 0), err
        return out.split()

    assert ids("-s", "70.0") == ["70.0"]
    assert ids("--steps=70.batch,72") == ["70.batch", "72.0"]
    assert ids("-s", "-j", "72") == ["72.0"]
    assert ids("-s70.99") == []
    assert ids("-s", "-S", "-i") == ["72.0", "70.batch", "70.0"]
    waiting = cluster()
    waiting.job_list.append(job(80, "late", state=JobState.PENDING, alloc=[]))
    assert invoke(squeue, ["-h", "-s", "80"], waiting) == ("", "", 0)
    for given in ("999.0", "999.batch"):
        assert invoke(squeue, ["-h", "-s", given], cluster()) == ("", "", 0), "as 22.05 answers"
    for given in ("999", "abc", "70.x"):
        out, err, code = invoke(squeue, ["-s", given], cluster())
        assert (out, code) == ("", 1)
        assert err.startswith("squeue: error: Invalid job_step id: ")


def test_squeue_has_other_fields_for_steps() -> None:
    letters = "A i j l M N P u U".split()
    text = "|".join(f"%{letter}" for letter in letters)
    out, _, _ = invoke(squeue, ["-s", "70.0", "-o", text], cluster())
    assert out == (
        "TASKS|STEPID|NAME|TIME_LIMIT|TIME|NODELIST|PARTITION|USER|UID\n"
        "4|70.0|alpha|2:00|0:03|node[1-2]|gpu|root|0\n"
    )
    out, err, code = invoke(squeue, ["-s", "70.0", "-h", "-o", "[%a]"], cluster())
    assert err == "squeue: error: Invalid job step format specification: a\n"
    assert (out, code) == ("[%a]\n", 0)
    names = "stepid,stepname,numtasks,nodes,stepstate,jobid,arrayjobid,timelimit,timeused"
    out, err, _ = invoke(squeue, ["-s", "70.0", "-O", f"{names},username,userid"], cluster())
    assert err == ""
    head, row = out.splitlines()
    assert head.split() == (
        "STEPID NAME TASKS NODELIST STATE JOB_ID ARRAY_JOB_ID TIME_LIMIT TIME USER UID".split()
    )
    assert row.split() == "70.0 alpha 4 node[1-2] RUNNING 70 0 2:00 0:03 root 0".split()


def test_scontrol_shows_steps() -> None:
    out, err, code = invoke(scontrol, ["show", "step", "70.0"], cluster(), {"TZ": "UTC"})
    assert (err, code) == ("", 0)
    start = out.split("StartTime=")[1].split()[0]
    assert out == (
        f"StepId=70.0 UserId=0 StartTime={start} TimeLimit=00:02:00\n"
        "   State=RUNNING Partition=gpu NodeList=node[1-2]\n"
        "   Nodes=2 CPUs=4 Tasks=4 Name=alpha Network=(null)\n"
        "   TRES=cpu=4,gres/gpu:h100=4,gres/gpu=4,mem=8000M,node=2\n"
        "   ResvPorts=(null)\n"
        "   CPUFreqReq=Default Dist=Block\n"
        "   SrunHost:Pid=vm:28453\n"
        "\n"
    )
    out, _, _ = invoke(scontrol, ["-o", "show", "steps"], cluster())
    assert [line.split()[0] for line in out.splitlines()] == [
        "StepId=70.batch",
        "StepId=70.0",
        "StepId=72.0",
    ]
    assert "TRES=cpu=2,mem=4000M,node=1 " in out


def test_scontrol_names_steps_that_are_not() -> None:
    assert invoke(scontrol, ["show", "step", "70.99"], cluster()) == (
        "Job step 70.99 not found\n",
        "",
        1,
    )
    assert invoke(scontrol, ["show", "step", "999"], cluster()) == (
        "",
        "slurm_get_job_steps error: Invalid job id specified\n",
        1,
    )
    assert invoke(scontrol, ["show", "steps"], FakeReader())[0] == "No job steps in the system\n"


def test_a_component_shows_its_part() -> None:
    reader = cluster()
    for offset, one in enumerate(reader.job_list):
        one.id, one.het_job_id, one.het_offset, one.het_size = 70 + offset, 70, offset, 2
    both = reader.step_list[0]
    both.nodes[1].het_offset = 1
    reader.step_list = [both]
    out, _, _ = invoke(squeue, ["-s", "-h", "-o", "%i %A %N"], reader)
    assert out == "70+0.0 2 node1\n70+0.batch 1 node1\n70+1.0 2 node2\n"


def test_time_of_a_suspended_job_stands_still() -> None:
    reader = cluster()
    one = reader.job_list[0]
    # Suspended after 10 s, of which the step had 9.
    one.state, one.suspend_time, one.pre_suspend_s = JobState.SUSPENDED, T244 + 11, 10
    reader.clock = T244 + 500
    out, _, _ = invoke(squeue, ["-s", "70.0", "-h", "-o", "%M"], reader)
    assert out == "0:09\n"
    # It goes on at +311: the 300 s do not count, for a later step neither.
    one.state, one.suspend_time = JobState.RUNNING, T244 + 311
    late = step(1, 70, "late", 1, 1, start_time=T244 + 400, suspended_s=300)
    reader.step_list.append(late)
    out, _, _ = invoke(squeue, ["-s", "70.0,70.1", "-h", "-o", "%M"], reader)
    assert out == "3:18\n1:40\n"


def test_jobs_of_srun_and_salloc_have_no_script() -> None:
    """Transcript 032, jobs 183 and 184."""
    reader = cluster()
    one = reader.job_list[1]
    one.spec.command, one.spec.args = "bash", ("-c", "env | sort")
    one.spec.alloc_node, one.submit_time, one.eligible_time = "login1", T244 + 4, T244 + 4
    out, _, _ = invoke(scontrol, ["show", "job", "72"], reader)
    lines = out.splitlines()
    assert "   Command=bash" in lines and "   AccrueTime=Unknown" in lines
    assert any("BatchFlag=0" in text for text in lines)
    assert not any("Std" in text for text in lines)
    assert "   BatchHost=node1" in lines
    out, _, _ = invoke(squeue, ["-h", "-j", "72", "-o", "%o|%B"], reader)
    assert out == "bash|login1\n"
    out, _, _ = invoke(squeue, ["-h", "-j", "72", "-O", "batchflag:2,stdin:7"], reader)
    assert out == "0 (null) \n"


def test_accounting_of_jobs_without_a_script() -> None:
    from gsched.accounting.rows import row

    one = cluster().job_list[1]
    found = row(one, "peer", NOW)
    assert found.steps == []
    assert (found.std_in, found.std_out, found.std_err) == ("", "", "")


def test_a_line_for_a_step_goes_to_its_job() -> None:
    from gsched.wire.messages import UpdateJob

    reader = cluster()
    assert invoke(scontrol, ["notify", "70.0", "hello", "step"], reader) == ("", "", 0)
    assert reader.sent == [UpdateJob(["70"], "notify", {"message": "hello step"})]
