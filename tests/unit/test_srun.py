"""srun: its command line and environment, and what it asks for. Sentences and exit codes are those
of Slurm 26.05 (transcripts) and 22.05 where they are no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch_support import SECRET, FakeAgent, KeptPlan, LaunchCluster, launch, srun, step
from sbatch_support import SLURM_CONF

from gsched.config import parse_config
from gsched.model.step import ALL_TASKS, NO_TASK
from gsched.wire.messages import FirstLook, Refused
from gsched.wire.steps import Behalf, CreateStep, NotTaken, Taken
from gsched_cli.launch_options import SALLOC, SRUN
from gsched_cli.launch_values import LaunchOptions
from gsched_cli.options import NONE, OPTIONAL, REQUIRED, Option
from gsched_cli.stepspec import step_spec


@pytest.mark.parametrize(
    ("argv", "err", "code"),
    [
        ([], "srun: fatal: No command given to execute.\n", 1),
        (
            ["--nosuch", "true"],
            "srun: unrecognized option '--nosuch'\nTry \"srun --help\" for more information\n",
            255,
        ),
        (["-Z", "hostname"], "srun: error: must specify a node list with -Z, --no-allocate.\n", 1),
        (
            ["--mpi=nosuch", "true"],
            "srun: error: MPI: Cannot create context for mpi/nosuch\n"
            "srun: error: MPI: Unable to load any plugin\n"
            "srun: error: Invalid MPI type 'nosuch', --mpi=list for acceptable types\n",
            1,
        ),
        (
            ["-r", "1", "true"],
            "srun: fatal: --relative option invalid for job allocation request\n",
            1,
        ),
        (
            ["--multi-prog", "m.conf"],
            "srun: error: Could not open multi_prog config file m.conf\n",
            1,
        ),
        (
            ["-p", "nosuch", "true"],
            "srun: error: invalid partition specified: nosuch\n"
            "srun: error: Unable to allocate resources: Invalid partition name specified\n",
            1,
        ),
        (
            ["--cpu-bind=foo", "true"],
            'srun: error: unrecognized --cpu-bind argument "foo"\n'
            "srun: fatal: Failed to parse --cpu-bind= values.\n",
            1,
        ),
        (["-Kx", "true"], 'srun: error: Invalid numeric value "x" for --kill-on-bad-exit.\n', 1),
        (["-Ix", "true"], 'srun: error: Invalid numeric value "x" for immediate.\n', 1),
        (["-rx", "true"], 'srun: error: Invalid numeric value "x" for --relative.\n', 1),
        (["-Wx", "true"], 'srun: error: Invalid numeric value "x" for --wait.\n', 1),
        (["--jobid=x", "true"], 'srun: error: Invalid numeric value "x" for --jobid.\n', 1),
        (["--jobid=0", "true"], 'srun: error: Invalid numeric value "0" for --jobid.\n', 1),
        (["-T0", "true"], 'srun: error: Invalid numeric value "0" for --threads.\n', 1),
        (
            ["--resv-ports=x", "true"],
            'srun: error: Invalid numeric value "x" for --resv-port.\n',
            1,
        ),
        (
            ["--het-group=x", "true"],
            "srun: error: _parse_single_range: Invalid range: `x'\n"
            "srun: error: Invalid --het-group value: x\n",
            1,
        ),
        (["--het-group=200", "true"], "srun: error: Invalid --het-group value: 200\n", 1),
        (["--send-libs=foo", "true"], "srun: error: Invalid --send-libs specification\n", 255),
        (["--accel-bind=z", "true"], "srun: error: Invalid --accel-bind specification\n", 255),
        (
            ["--distribution=plane", "true"],
            "srun: error: Invalid plane size or size not specified\n"
            "srun: error: Invalid --distribution specification\n",
            255,
        ),
        (["--exclusive=foo", "true"], "srun: error: Invalid --exclusive specification\n", 255),
        (
            ["--propagate=FOO", "true"],
            "srun: error: Bad rlimit name: FOO\nsrun: error: --propagate=FOO is not valid.\n",
            1,
        ),
        (
            ["--gres=", "true"],
            "srun: error: Unable to allocate resources: "
            "Invalid Trackable RESource (TRES) specification\n",
            1,
        ),
        (
            ["--nodelist=", "true"],
            "srun: error: Unable to allocate resources: Node count specification invalid\n",
            1,
        ),
        (["-Nx", "true"], 'srun: error: "x" is not a valid node count\n', 255),
        (["-tfoo", "true"], "srun: error: Invalid --time specification\n", 255),
    ],
)
def test_refusals(argv: list[str], err: str, code: int, tmp_path: Path) -> None:
    done = srun(*argv, cwd=tmp_path)
    assert (done.err, done.code) == (err, code)
    assert done.mover.plan is None


def test_mpi_list() -> None:
    """The form is Slurm's; the kinds are those that there are."""
    done = srun("--mpi=list")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("MPI plugin types are...\n\tnone\n")
    assert "\tpmi2\n" in done.out


def test_exit_error_chooses_the_code() -> None:
    assert srun(env={"SLURM_EXIT_ERROR": "9"}).code == 9
    # A wrong option is none of its errors.
    assert srun("--nosuch", "true", env={"SLURM_EXIT_ERROR": "9"}).code == 255


# ---- outside of a job --------------------------------------------------------------------------


def test_a_job_of_its_own() -> None:
    done = srun("-n4", "-c2", "--gpus=2", "-t", "5", "hostname", "-f", env={"A": "b"})
    job = done.cluster.submitted[0]
    assert job.spec.name == "hostname"
    assert job.spec.interactive == "srun"
    assert (job.spec.shape.ntasks, job.spec.shape.cpus_per_task) == (4, 2)
    assert (job.spec.shape.gpus_total, job.spec.time_limit) == (2, 300)
    assert (job.spec.work_dir, job.spec.umask, job.spec.alloc_node) == (
        "/work dir",
        0o027,
        "login1",
    )
    assert job.spec.immediate == -1
    assert b"A=b" in job.environment.split(b"\0")
    call = done.interactive.callback
    assert (call.host, call.port, call.secret) == ("127.0.0.1", 40404, SECRET)
    spec = done.interactive.step
    assert spec is not None
    assert spec.argv == ["hostname", "-f"]
    assert (spec.ntasks, spec.cpus_per_task, spec.gpus_total, spec.job_id) == (4, 2, 2, 0)
    assert (spec.cwd, spec.umask) == ("/work dir", 0o027)
    assert spec.rlimits == {"NOFILE": 1024}
    assert done.plan["mode"] == "job"
    assert done.plan["job"] == "1"
    assert (done.plan["stdin"], done.plan["stdout"], done.plan["stderr"]) == ("-", "-", "-")
    assert "pending" not in done.plan
    assert done.err == ""


def test_waiting() -> None:
    cluster = LaunchCluster(look=FirstLook(False, "Resources"), first_id=265)
    done = srun("true", cluster=cluster)
    assert done.plan["pending"] == "srun: job 265 queued and waiting for resources\n"
    assert done.plan["granted"] == "srun: job 265 has been allocated resources\n"
    note = FirstLook(
        False, "PartitionConfig", "Requested partition configuration not available now"
    )
    done = srun("-N9", "true", cluster=LaunchCluster(look=note, first_id=265))
    assert done.plan["pending"] == (
        "srun: Requested partition configuration not available now\n"
        "srun: job 265 queued and waiting for resources\n"
    )
    quiet = srun("-Q", "true", cluster=LaunchCluster(look=note))
    assert "pending" not in quiet.plan
    assert quiet.plan["quiet"] == "1"


def test_immediate() -> None:
    """The code of a request that would have to wait may be chosen."""
    busy = Refused(b"", "Requested nodes are busy", "ESLURM_NODES_BUSY")
    done = srun("-I", "true", cluster=LaunchCluster(refusals=[busy]))
    assert done.err == "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    assert done.code == 1
    chosen = {"SLURM_EXIT_IMMEDIATE": "7", "SLURM_EXIT_ERROR": "8"}
    assert srun("-I", "true", env=chosen, cluster=LaunchCluster(refusals=[busy])).code == 7
    bad = Refused(b"", "Invalid account", "ESLURM_INVALID_ACCOUNT")
    assert srun("-I", "true", env=chosen, cluster=LaunchCluster(refusals=[bad])).code == 8
    assert srun("-I", "true").cluster.submitted[0].spec.immediate == 1
    assert srun("-I30", "true").cluster.submitted[0].spec.immediate == 30
    assert srun("true", env={"SLURM_IMMEDIATE": "5"}).cluster.submitted[0].spec.immediate == 5


def test_variables_of_a_job() -> None:
    env = {
        "SLURM_JOB_NAME": "other",
        "SLURM_NTASKS": "3",
        "SLURM_PARTITION": "debug",
        "SLURM_TIMELIMIT": "2",
        "SRUN_CPUS_PER_TASK": "2",
        "SLURM_CPUS_PER_TASK": "7",
    }
    spec = srun("true", env=env).cluster.submitted[0].spec
    assert (spec.name, spec.partitions, spec.time_limit) == ("other", ("debug",), 120)
    assert (spec.shape.ntasks, spec.shape.cpus_per_task) == (3, 2)
    spec = srun("-J", "mine", "-n1", "true", env=env).cluster.submitted[0].spec
    assert (spec.name, spec.shape.ntasks) == ("mine", 1)


def test_too_many_nodes_for_the_tasks() -> None:
    done = srun("-N2", "-n1", "true")
    assert done.err == ("srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n")


def test_components_of_a_heterogeneous_job() -> None:
    done = srun("-n1", ":", "-n2", "--gpus=1", "hostname")
    job = done.cluster.submitted[0]
    assert [job.spec.shape.ntasks, *(c.shape.ntasks for c in job.components)] == [1, 2]
    assert done.interactive.step is not None
    assert done.interactive.step.het_group == [0, 1]
    assert [part.argv for part in done.interactive.step.parts] == [["hostname"]] * 2


def test_components_with_programs_of_their_own() -> None:
    done = srun("-n2", "echo", "a b", ":", "-n3", "hostname", "-s")
    job = done.cluster.submitted[0]
    assert (job.spec.command, job.components[0].command) == ("echo", "hostname")
    spec = done.interactive.step
    assert spec is not None
    assert (spec.het_group, spec.argv) == ([0, 1], ["echo", "a b"])
    assert [(part.argv, part.ntasks) for part in spec.parts] == [
        (["echo", "a b"], 2),
        (["hostname", "-s"], 3),
    ]


def test_components_of_the_job_that_there_is() -> None:
    """As launchers of replicas write it: one step with output and environment of each."""
    done = step(
        *("-o", "%j-a.out", "--export=ALL,A=1", "-K1", "echo", "a"),
        ":",
        *("-o", "%j-b.out", "--export=ALL,A=2", "echo", "b"),
        env={"SLURM_HET_SIZE": "2", "SLURM_NTASKS": "1", "P": "q"},
        cwd="/d",
    )
    spec = done.created.spec
    assert (spec.het_group, spec.kill_on_bad_exit) == ([0, 1], True)
    assert [part.ntasks for part in spec.parts] == [0, 0]
    assert [(part.argv, part.std_out, part.export) for part in spec.parts] == [
        (["echo", "a"], "/d/%j-a.out", "ALL,A=1"),
        (["echo", "b"], "/d/%j-b.out", "ALL,A=2"),
    ]
    assert done.plan["stdout"] == "-"
    # What lets which part through is looked at where the tasks are.
    assert b"P=q" in done.created.environment.split(b"\0")
    spec = step("--het-group=2", "hostname", ":", "--het-group=0,1", "date").created.spec
    assert spec.het_group == [0, 1, 2]
    assert [part.argv for part in spec.parts] == [["date"], ["date"], ["hostname"]]


def test_test_only() -> None:
    done = srun("--test-only", "-N1", "hostname")
    assert re.fullmatch(
        r"srun: Job \d+ to start at [-\dT:]{19} a using 1 processors on nodes n1 "
        r"in partition main\n",
        done.err,
    )
    assert done.mover.plan is None


# ---- in a job ----------------------------------------------------------------------------------


def test_a_step() -> None:
    done = step("-n2", "-l", "-K", "-W5", "-J", "mine", "hostname", env={"A": "b"})
    created = done.created
    spec = created.spec
    assert (done.cluster.asked[0].job_id, spec.job_id) == (17, 17)
    assert (spec.ntasks, spec.label, spec.kill_on_bad_exit, spec.wait) == (2, True, True, 5)
    assert (spec.name, spec.argv, spec.submit_line) == (
        "mine",
        ["hostname"],
        "srun -n2 -l -K -W5 -J mine hostname",
    )
    assert created.callback.port == 40404
    assert b"A=b" in created.environment.split(b"\0")
    assert done.plan["mode"] == "step"
    assert (done.plan["job"], done.plan["label"]) == ("17", "1")
    assert done.cluster.submitted == []


def test_the_hosts_of_a_file(tmp_path: Path) -> None:
    """SLURM_HOSTFILE: the first so many names, whatever -m says (as Slurm 22.05); what there is too
    little of is refused in its words."""
    (tmp_path / "hosts").write_text("node2\nnode1\nnode2\nnode1\n")
    env = {"SLURM_HOSTFILE": "hosts"}
    for more in ([], ["-m", "block"], ["--distribution=arbitrary"]):
        spec = step("-n4", *more, "hostname", env=env, cwd=tmp_path).created.spec
        assert (list(spec.nodelist), spec.distribution) == (
            ["node2", "node1", "node2", "node1"],
            "arbitrary",
        )
    spec = step("-n2", "hostname", env=env, cwd=tmp_path).created.spec
    assert list(spec.nodelist) == ["node2", "node1"]
    done = step("-n5", "hostname", env=env, cwd=tmp_path)
    assert done.code == 1
    assert set(done.err.splitlines()) == {
        "srun: error: Too few NodeNames in Slurm Hostfile",
        "srun: error: Failure getting NodeNames from hostfile",
    }
    spec = step("-w", "node1", "hostname", env=env, cwd=tmp_path).created.spec
    assert (list(spec.nodelist), spec.distribution) == (["node1"], "")


def test_nothing_but_the_id_of_the_job() -> None:
    spec = step("hostname").created.spec
    assert (spec.ntasks, spec.min_nodes, spec.max_nodes, spec.cpus_per_task) == (0, 0, 0, 0)
    assert (spec.time_limit, spec.kill_on_bad_exit, spec.wait, spec.immediate) == (
        None,
        None,
        None,
        -1,
    )
    assert (spec.name, spec.relative, spec.export) == ("hostname", -1, "ALL")
    assert not spec.gpus_set


def test_jobid_counts_more_than_the_environment() -> None:
    done = step("--jobid=18", "hostname")
    assert done.created.spec.job_id == 18


def test_variables_of_the_job_count_less_than_options() -> None:
    env = {
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NAME": "envjob",
        "SLURM_GPUS_PER_NODE": "2",
        "SLURM_TRES_PER_TASK": "cpu=2",
        "SLURM_MEM_PER_NODE": "4096",
    }
    spec = step("hostname", env=env).created.spec
    assert (spec.ntasks, spec.min_nodes, spec.name) == (4, 2, "hostname")
    assert (spec.gpus_per_node, spec.gpus_set, spec.cpus_per_task) == (2, False, 2)
    assert spec.mem_per_node == 4096
    spec = step("-n3", "-N3", "-c1", "--mem-per-cpu=1G", "hostname", env=env).created.spec
    assert (spec.ntasks, spec.min_nodes, spec.cpus_per_task) == (3, 3, 1)
    assert (spec.mem_per_node, spec.mem_per_cpu) == (None, 1024)


def test_one_task_of_a_job_with_two_nodes() -> None:
    """As the transcript has it."""
    done = step("-n1", "hostname", env={"SLURM_NNODES": "2", "SLURM_NTASKS": "4"})
    assert done.err == "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n"
    assert (done.created.spec.min_nodes, done.created.spec.max_nodes) == (1, 1)


def test_preserve_env() -> None:
    """It is the tasks' environment that is preserved, as measured with 22.05."""
    env = {"SLURM_NTASKS": "4", "SLURM_NNODES": "2"}
    spec = step("-E", "-n1", "-N1", "hostname", env=env).created.spec
    assert (spec.ntasks, spec.min_nodes, spec.preserve_env) == (1, 1, True)


def test_a_number_of_the_job_that_is_none() -> None:
    done = srun("true", env={"SLURM_JOB_ID": "abc"})
    assert (done.err, done.code) == ('srun: error: Invalid numeric value "abc" for --jobid.\n', 1)


def test_gpus_of_a_step() -> None:
    env = {"SLURM_GPUS_PER_NODE": "2"}
    done = step("--gres=gpu:3", "hostname", env=env)
    assert (done.err, done.code) == (
        "srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive.\n",
        1,
    )
    done = step("-n1", "--gres=gpu:0", "hostname", env=env)
    assert done.err == "srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive.\n"
    spec = step("--gpus=1", "hostname", env=env).created.spec
    assert (spec.gpus_total, spec.gpus_per_node, spec.gpus_set) == (1, 0, True)
    spec = step("--gres=gpu:h100:3", "hostname").created.spec
    assert (spec.gpus_per_node, spec.gpu_type, spec.gpus_set) == (3, "h100", True)
    for none in ("--gres=none", "--gres=gpu:0", "--gpus=0", "--gpus-per-node=0"):
        spec = step(none, "hostname").created.spec
        assert (spec.no_gpus, spec.gpus_per_node) == (True, 0)
    spec = step("hostname", env={"SLURM_STEP_GRES": "none", "SLURM_GRES": "gpu:2"}).created.spec
    assert spec.no_gpus
    # Who names other resources gets those alone; parts of a GPU are those of the job.
    options = LaunchOptions()
    options.gres = "licence:1"
    assert step_spec(options, ["hostname"], "/", 0o022, []).no_gpus
    options.gres = "shard:2"
    spec = step_spec(options, ["hostname"], "/", 0o022, [])
    assert (spec.no_gpus, spec.gpus_per_node) == (False, 0)
    spec = step("-n2", "--gpus-per-task=1", "hostname", env=env).created.spec
    assert (spec.gpus_per_task, spec.gpus_set) == (1, True)


def test_exclusive_steps() -> None:
    spec = step("--exclusive", "hostname").created.spec
    assert (spec.exclusive, spec.exact) == (True, True)
    spec = step("--overlap", "--whole", "hostname").created.spec
    assert (spec.overlap, spec.whole, spec.exact) == (True, True, False)


@pytest.mark.parametrize(
    ("argv", "plan", "node"),
    [
        ([], ("-", "-", "-"), ("", "", "", ALL_TASKS)),
        (["-o", "all", "-e", "all", "-i", "all"], ("-", "-", "-"), ("", "", "", ALL_TASKS)),
        (["-o", "none"], ("-", "-", "-"), ("", "/dev/null", "/dev/null", ALL_TASKS)),
        (["-i", "none"], ("", "-", "-"), ("", "", "", NO_TASK)),
        (["-i", "0"], ("-", "-", "-"), ("", "", "", 0)),
        (["-o", "o.%j"], ("-", "/here/o.17", "/here/o.17"), ("", "", "", ALL_TASKS)),
        (["-o", "o", "-e", "/e.%4j"], ("-", "/here/o", "/e.0017"), ("", "", "", ALL_TASKS)),
        (["-o", "o.%J"], ("-", "/here/o.17.3", "/here/o.17.3"), ("", "", "", ALL_TASKS)),
        (
            ["-o", "task-%t.out"],
            ("-", "-", "-"),
            ("", "/here/task-%t.out", "/here/task-%t.out", ALL_TASKS),
        ),
        (["-o", "\\%t"], ("-", "/here/%t", "/here/%t"), ("", "", "", ALL_TASKS)),
        (["-e", "%n-%N"], ("-", "-", "-"), ("", "", "/here/%n-%N", ALL_TASKS)),
        (["-i", "in"], ("/here/in", "-", "-"), ("", "", "", ALL_TASKS)),
        (["-i", "in.%t"], ("", "-", "-"), ("/here/in.%t", "", "", NO_TASK)),
        # A number that is no task's is a name.
        (["-n2", "-o", "7"], ("-", "/here/7", "/here/7"), ("", "", "", ALL_TASKS)),
    ],
)
def test_files(
    argv: list[str], plan: tuple[str, str, str], node: tuple[str, str, str, int]
) -> None:
    done = step(*argv, "cat", cwd="/here")
    found = done.plan
    assert (found["stdin"], found["stdout"], found["stderr"]) == plan
    spec = done.created.spec
    assert (spec.std_in, spec.std_out, spec.std_err, spec.stdin_task) == node


def test_output_of_one_task() -> None:
    spec = step("-n2", "-o", "1", "cat").created.spec
    assert (spec.stdout_task, spec.stderr_task) == (1, 1)
    assert step("-n2", "-e", "0", "cat").created.spec.stdout_task == -1


def test_what_slurm_says_in_a_job() -> None:
    """As 22.05 has it."""
    done = step("-r1", "-w", "node2", "true")
    assert (done.err, done.code) == (
        "srun: error: -r,--relative not allowed with -w,--nodelist or -x,--exclude.\n",
        1,
    )
    done = step("--gres=foo:1", "true")
    assert (done.err, done.code) == (
        "srun: error: Invalid generic resource (gres) specification\n",
        1,
    )
    for argv in (["-w", ""], ["--nodelist=,"]):
        done = step(*argv, "true")
        assert (done.err, done.code) == ("srun: error: Hostlist is empty!  Can not run job.\n", 1)
    done = step("--jobid=7", "--gres=", "true")
    assert (done.err, done.code) == (
        "srun: error: Unable to create step for job 7: "
        "Invalid Trackable RESource (TRES) specification\n",
        1,
    )
    done = step("-b", "now+1hour", "true")
    assert done.err == "srun: error: --begin is ignored because nodes are already allocated.\n"
    assert done.plan["mode"] == "step"
    assert step("").err == "srun: fatal: No command given to execute.\n"
    done = step("--uid=0", "id")
    assert (done.err, done.code) == ("srun: error: --uid only permitted by root user\n", 255)


def test_options_without_effect_are_named_where_they_were_given() -> None:
    assert srun("--reboot", "true").err == "srun: warning: no effect in this release: --reboot\n"
    # Steps of a job that there is, too; what the environment of the job says is not theirs.
    words = ("--mem-bind=local", "--cpu-freq=low", "--gpu-freq=low")
    named = "--mem-bind, --cpu-freq, --gpu-freq"
    done = step(*words, "true", env={"SLURM_NETWORK": "any"})
    assert done.err == f"srun: warning: no effect in this release: {named}\n"
    assert step("-Q", *words, "true").err == ""
    # Jobs leave it behind in the environment of their script.
    assert srun("true", env={"SLURM_OOM_KILL_STEP": "0"}).err == ""
    assert srun("-k", "true").err == ""


def test_terminal() -> None:
    done = step("--pty", "bash")
    assert done.plan["pty"] == "1"
    assert done.created.spec.pty
    assert done.created.spec.stdin_task == 0


def test_no_terminal() -> None:
    done = step("--pty", "true", terminal=False)
    assert done.err == (
        "srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device\n"
        "srun: error: Not using a pseudo-terminal, disregarding --pty option\n"
    )
    assert "pty" not in done.plan
    assert not done.created.spec.pty
    assert step("--pty", "true", terminal=True).plan["pty"] == "1"


def test_the_first_component_is_no_measure_for_others() -> None:
    env = {"SLURM_HET_SIZE": "2", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_GPUS": "3"}
    spec = step("--het-group=1", "hostname", env=env).created.spec
    assert (spec.ntasks, spec.min_nodes, spec.gpus_total) == (0, 0, 0)
    assert step("hostname", env=env).created.spec.ntasks == 4
    assert step("--het-group=0,1", "-n2", "hostname", env=env).created.spec.ntasks == 2


def test_export() -> None:
    env = {"A": "b", "PATH": "/bin", "SLURM_X": "1"}
    done = step("--export=NONE", "true", env=env)
    found = set(done.created.environment.split(b"\0"))
    assert b"SLURM_X=1" in found
    assert not found & {b"A=b", b"PATH=/bin"}
    assert done.created.spec.export == "NONE"
    done = step("true", env={**env, "SLURM_EXPORT_ENV": "A,C=d"})
    assert {b"A=b", b"C=d"} <= set(done.created.environment.split(b"\0"))


def test_srun_s_own_programs() -> None:
    conf = parse_config({"slurm.conf": SLURM_CONF + "SrunProlog=/site/prolog\n"})
    cluster = LaunchCluster(configured=conf, relayed=Taken(b"", 0))
    env = {"SLURM_JOB_ID": "17"}
    assert srun("true", cluster=cluster, env=env).plan["prolog"] == "/site/prolog"
    done = srun("--prolog=none", "--epilog=/my/own", "true", cluster=cluster, env=env)
    assert "prolog" not in done.plan
    assert done.plan["epilog"] == "/my/own"


def test_no_such_job() -> None:
    done = srun("true", env={"SLURM_JOB_ID": "99"})
    assert done.code == 1
    assert done.err == (
        "srun: error: Unable to confirm allocation for job 99: Invalid job id specified\n"
        "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 99\n"
    )


def test_what_the_agent_says() -> None:
    refused = NotTaken(
        "error: Unable to create step for job 17: More processors requested than permitted"
    )
    cluster = LaunchCluster(relayed=refused)
    done = srun("-n5", "hostname", env={"SLURM_JOB_ID": "17"}, cluster=cluster)
    assert done.err == (
        "srun: error: Unable to create step for job 17: More processors requested than permitted\n"
    )
    assert done.code == 1


# ---- the agent on this host --------------------------------------------------------------------


def _on_this_host(folder: Path) -> LaunchCluster:
    conf = SLURM_CONF + f"SlurmdPidFile={folder}/slurmd.%n.pid\n"
    return LaunchCluster(configured=parse_config({"slurm.conf": conf}))


def test_the_agent_of_this_node_is_asked_first(tmp_path: Path) -> None:
    cluster = _on_this_host(tmp_path)
    agent = FakeAgent(f"{tmp_path}/slurmd.node2.sock", [Taken(b"", 5)])
    env = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "node2"}
    done = srun("-o", "%J", "hostname", env=env, cluster=cluster, cwd="/d")
    agent.close()
    assert done.plan["stdout"] == "/d/17.5"
    assert cluster.asked == []
    behalf, created = agent.heard
    assert behalf == Behalf(1000, 1000, 77)
    assert isinstance(created, CreateStep)
    assert created.spec.argv == ["hostname"]


def test_a_process_of_the_user_asks_for_itself(tmp_path: Path) -> None:
    cluster = _on_this_host(tmp_path)
    agent = FakeAgent(f"{tmp_path}/slurmd.node1.sock", [Taken(b"", 5)])
    mover = KeptPlan(behalf=None)
    srun("hostname", env={"SLURM_JOB_ID": "17"}, cluster=cluster, mover=mover)
    agent.close()
    assert [type(said) for said in agent.heard] == [CreateStep]


def test_an_agent_that_does_not_know_the_job(tmp_path: Path) -> None:
    cluster = _on_this_host(tmp_path)
    cluster.relayed = Taken(b"", 2)
    agent = FakeAgent(f"{tmp_path}/slurmd.node1.sock", [NotTaken("", unknown=True)])
    done = srun("hostname", env={"SLURM_JOB_ID": "17"}, cluster=cluster)
    agent.close()
    assert len(agent.heard) == 2
    assert [question.job_id for question in cluster.asked] == [17]
    assert done.plan["mode"] == "step"


def test_help_names_every_option() -> None:
    done = launch("srun", "--help")
    assert done.code == 0
    for name in ("--ntasks", "--multi-prog", "--gpus-per-task", "--kill-on-bad-exit", "--async"):
        assert name in done.out
    assert launch("srun", "--usage").out.startswith("Usage: srun ")
    assert launch("srun", "--version").out == "slurm 26.05.0\n"


@pytest.mark.shared
@pytest.mark.parametrize(("name", "table"), [("srun", SRUN), ("salloc", SALLOC)])
def test_every_option_of_the_real_one_is_known(  # type: ignore[no-untyped-def]
    shared, name: str, table: dict[str, Option]
) -> None:
    """With its letter, and with or without an argument; the help of Slurm shows optional arguments
    as required or not at all."""
    text = (shared / "golden" / "26.05" / "045-options-and-fields.txt").read_text()
    listed = text[text.index(f"$ {name} --help") :]
    listed = listed[: listed.index("--- exit")]
    rows = re.findall(r"^ +(?:-(\w), )? *--([a-z][a-z-]+)(\[?=)?", listed, re.MULTILINE)
    assert len(rows) > 80
    for short, long, argument in rows:
        option = table[long]
        assert option.short == short, long
        if option.argument == OPTIONAL or long == "mem":
            continue
        assert option.argument == (REQUIRED if argument else NONE), long


def test_the_tables_are_sound() -> None:
    for table in (SRUN, SALLOC):
        assert list(table) == sorted(table)
        shorts = [option.short for option in table.values() if option.short]
        assert len(shorts) == len(set(shorts))
    # Options of Slurm 22.05 that its help does not name.
    assert {"cpu_bind", "tasks-per-node", "cluster", "uid", "gid", "interactive"} <= set(SRUN)


def test_the_window_of_the_terminal_is_told() -> None:
    """As `srun --pty env` of real Slurm shows it; without a size only the port."""
    found = step("--pty", "env", terminal=True, window=(43, 209)).created.environment.split(b"\0")
    assert {b"SLURM_PTY_WIN_COL=209", b"SLURM_PTY_WIN_ROW=43"} <= set(found)
    port = [item for item in found if item.startswith(b"SLURM_PTY_PORT=")]
    assert port == [b"SLURM_PTY_PORT=40404"]
    found = step("--pty", "env", terminal=True).created.environment.split(b"\0")
    assert port[0] in found and not [item for item in found if b"PTY_WIN" in item]
    found = step("env", terminal=True, window=(43, 209)).created.environment.split(b"\0")
    assert not [item for item in found if b"PTY" in item]


def test_without_a_job_for_users() -> None:
    """A real Slurm 22.05 to a user who is neither root nor the SlurmUser; its number of a step
    is by chance."""
    done = srun("-Z", "-w", "node[2-3]", "hostname")
    denied = "Access/permission denied"
    words = done.err.splitlines()
    assert words.pop(1).startswith("srun: error: Task launch for StepId=")
    assert done.err.splitlines()[1].endswith(f" failed on node node2: {denied}")
    assert words == [
        "srun: do not allocate resources",
        f"srun: error: Application launch failed: {denied}",
        "srun: Job step aborted",
    ]
    assert (done.code, done.cluster.submitted) == (210, [])
