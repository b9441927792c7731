"""salloc: what it asks for and what it tells its client. Sentences are Slurm's."""

from __future__ import annotations

import pytest
from launch_support import SECRET, LaunchCluster, salloc, srun
from sbatch_support import SLURM_CONF

from gsched.config import parse_config
from gsched.wire.messages import FirstLook, Refused


def test_an_allocation() -> None:
    done = salloc("-N2", "--gres=gpu:1", "-t", "5", "bash", "-c", "true", cwd="/d")
    spec = done.cluster.submitted[0].spec
    assert (spec.name, spec.interactive, spec.time_limit) == ("interactive", "salloc", 300)
    assert (spec.shape.min_nodes, spec.shape.gpus_per_node, spec.work_dir) == (2, 1, "/d")
    assert done.interactive.step is None
    assert not done.interactive.no_shell
    assert done.interactive.callback.secret == SECRET
    assert [value for name, value in done.records if name == "arg"] == ["bash", "-c", "true"]
    assert (done.plan["mode"], done.plan["job"], done.plan["bell"]) == ("salloc", "1", "10")
    assert "noshell" not in done.plan
    assert "pending" not in done.plan


def test_waiting() -> None:
    done = salloc("true", cluster=LaunchCluster(look=FirstLook(False), first_id=307))
    assert done.plan["pending"] == (
        "salloc: Pending job allocation 307\nsalloc: job 307 queued and waiting for resources\n"
    )
    assert done.plan["granted"] == "salloc: job 307 has been allocated resources\n"


@pytest.mark.parametrize(
    ("argv", "refused", "err"),
    [
        (
            ["-p", "nosuch", "true"],
            None,
            "salloc: error: invalid partition specified: nosuch\n"
            "salloc: error: Job submit/allocate failed: Invalid partition name specified\n",
        ),
        (
            ["--gres=", "true"],
            None,
            "salloc: error: Job submit/allocate failed: "
            "Invalid Trackable RESource (TRES) specification\n",
        ),
        (
            ["--nodelist=", "true"],
            None,
            "salloc: error: Job submit/allocate failed: Node count specification invalid\n",
        ),
        (
            # Of a real one: with an empty name nothing is meant but what there is not.
            ["-p", "", "true"],
            None,
            "salloc: error: invalid partition specified: (null)\n"
            "salloc: error: Job submit/allocate failed: Invalid partition name specified\n",
        ),
        (
            ["-I", "--exclusive", "true"],
            Refused(b"", "Requested nodes are busy", "ESLURM_NODES_BUSY"),
            "salloc: error: Unable to allocate resources: Requested nodes are busy\n",
        ),
        (
            ["-I", "-N9", "true"],
            Refused(
                b"",
                "Requested partition configuration not available now",
                "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
            ),
            "salloc: error: Job submit/allocate failed: "
            "Requested partition configuration not available now\n",
        ),
    ],
)
def test_refusals(argv: list[str], refused: Refused | None, err: str) -> None:
    cluster = LaunchCluster(refusals=[refused] if refused else [])
    done = salloc(*argv, cluster=cluster)
    assert (done.err, done.code, done.mover.plan) == (err, 1, None)


def test_options_that_salloc_does_not_have() -> None:
    for option in ("--output=x", "--array=1", "--label", "--wrap=x"):
        done = salloc(option, "true")
        assert done.code == 255
        assert done.err.startswith(f"salloc: unrecognized option '{option}'\n")


def test_signals_bell_and_no_shell() -> None:
    assert salloc("-K", "true").plan["killsig"] == "0"
    assert salloc("--kill-command=INT", "true").plan["killsig"] == "2"
    assert salloc("true", env={"SALLOC_KILL_CMD": "9"}).plan["killsig"] == "9"
    done = salloc("-Kfoo", "true")
    assert (done.err, done.code) == ("salloc: error: Invalid --kill-command specification\n", 255)
    assert salloc("--bell", "true").plan["bell"] == "1"
    assert "bell" not in salloc("--no-bell", "true").plan
    done = salloc("--no-shell", "-N1")
    assert done.plan["noshell"] == "1"
    assert done.interactive.no_shell
    assert done.cluster.submitted[0].spec.name == "no-shell"


def test_variables() -> None:
    env = {"SALLOC_PARTITION": "debug", "SALLOC_TIMELIMIT": "3", "SLURM_NTASKS": "9"}
    spec = salloc("true", env=env).cluster.submitted[0].spec
    assert (spec.partitions, spec.time_limit, spec.shape.ntasks) == (("debug",), 180, 0)


def _configured(*lines: str) -> LaunchCluster:
    return LaunchCluster(configured=parse_config({"slurm.conf": "\n".join([SLURM_CONF, *lines])}))


def test_what_runs_without_a_command() -> None:
    def words(cluster: LaunchCluster) -> list[str]:
        done = salloc("-N1", env={"SHELL": "/bin/zsh"}, cluster=cluster)
        return [value for name, value in done.records if name == "arg"]

    assert words(LaunchCluster()) == ["/bin/zsh"]
    assert words(_configured("LaunchParameters=use_interactive_step")) == [
        *("srun", "--interactive", "--preserve-env", "--pty", "/bin/zsh")
    ]
    site = "srun -n1 --pty $SHELL"
    assert words(_configured(f'SallocDefaultCommand="{site}"')) == ["/bin/sh", "-c", site]


def test_a_heterogeneous_job() -> None:
    done = salloc("-N1", ":", "-n3", ":", "-N2", "bash")
    job = done.cluster.submitted[0]
    assert [len(job.components), job.components[0].shape.ntasks] == [2, 3]
    assert job.components[1].shape.min_nodes == 2


def test_another_directory() -> None:
    done = salloc("-D", "sub", "true", cwd="/d")
    assert done.plan["chdir"] == "/d/sub"
    assert done.cluster.submitted[0].spec.work_dir == "/d/sub"


def test_the_words_of_a_signal_while_the_job_waits() -> None:
    """Real salloc that gets SIGTERM while it waits; srun as in transcript 039 of 26.05."""
    assert salloc("true").plan["revoked"] == (
        "salloc: Job allocation 1 has been revoked.\nsalloc: Job aborted due to signal\n"
    )
    assert "expires" not in salloc("true").plan
    said = salloc("--immediate=7", "true").plan
    assert (said["expires"], said["expired"]) == (
        "7",
        "salloc: error: Unable to allocate resources: Connection timed out\n"
        "salloc: Job allocation 1 has been revoked.\n",
    )
    said = srun("--immediate=7", "-Q", "true").plan
    assert (said["expires"], said["expired"]) == (
        "7",
        "srun: error: Unable to allocate resources: Requested nodes are busy\n",
    )
    assert srun("true").plan["revoked"] == (
        "srun: Force Terminated JobId=1\nsrun: Job allocation 1 has been revoked\n"
    )
