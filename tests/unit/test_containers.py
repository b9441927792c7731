"""--container-image and its like, named as pyxis does: what srun asks for, what a node starts."""

from __future__ import annotations

import pytest
from launch_support import LaunchCluster, Launched, launch
from layout_support import config
from sbatch_support import SLURM_CONF, sbatch

from gsched.config import parse_config
from gsched.model.step import StepSpec
from gsched.wire.steps import Taken
from slurmd_compat import containers
from slurmd_compat.agent.step_fit import unfit
from slurmd_compat.launcher import LaunchError

LAUNCHER = "/usr/local/sbin/enter-image"
NOT_SET_UP = (
    "srun: error: containers are not set up on this cluster: ContainerLauncher is not set\n"
)


def srun(*argv: str, launcher: str = LAUNCHER, env: dict[str, str] | None = None) -> Launched:
    text = f"{SLURM_CONF}\nContainerLauncher={launcher}\n"
    cluster = LaunchCluster(relayed=Taken(b"", 3), configured=parse_config({"slurm.conf": text}))
    return launch("srun", *argv, env=env, cluster=cluster)


def of_image(spec: StepSpec | None) -> tuple[str, str, str]:
    assert spec is not None
    return spec.container_image, spec.container_mounts, spec.container_workdir


OPTIONS = (
    *("--container-image=registry.example#lab/tool:2", "--container-mounts=/data:/d:ro+nosuid"),
    *("--container-mounts", "/scratch:/s,/data:/d:ro+nosuid", "--container-workdir=/s"),
)
ASKED = ("registry.example#lab/tool:2", "/data:/d:ro+nosuid,/scratch:/s", "/s")


def test_what_is_asked_for() -> None:
    job = srun(*OPTIONS, "prog", "-x")
    assert of_image(job.interactive.step) == ASKED
    assert job.interactive.step is not None
    assert job.interactive.step.argv == ["prog", "-x"]
    step = srun(*OPTIONS, "prog", env={"SLURM_JOB_ID": "17"})
    assert of_image(step.created.spec) == ASKED
    assert (job.err, step.err) == ("", "")


def test_an_image_around_is_not_that_of_a_srun_in_it() -> None:
    """As with pyxis: srun has the image that it is given, and no other."""
    env = {"SLURM_JOB_ID": "17", "SLURM_CONTAINER_IMAGE": "a", "SLURM_CONTAINER_MOUNTS": "/a:/b"}
    assert of_image(srun("prog", env=env).created.spec) == ("", "", "")


@pytest.mark.parametrize("env", [{}, {"SLURM_JOB_ID": "17"}])
def test_a_cluster_without_containers(env: dict[str, str]) -> None:
    done = srun("--container-image=a", "true", launcher="", env=env)
    assert (done.err, done.code) == (NOT_SET_UP, 1)
    assert done.cluster.submitted == done.cluster.asked == []
    assert srun("true", launcher="", env=env).code == 0


def test_each_component_has_its_own() -> None:
    done = srun("true", ":", "--container-image=a", "true", launcher="")
    assert (done.err, done.code) == (NOT_SET_UP, 1)
    whole = srun("true", ":", "--container-image=a", "true").interactive.step
    assert whole is not None
    assert [of_image(part)[0] for part in whole.parts] == ["", "a"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--container-mounts=/a:/b"], "--container-mounts needs --container-image"),
        (["--container-workdir=/b"], "--container-workdir needs --container-image"),
        (["--container-image=a", "--bcast"], "--bcast does not go with --container-image"),
        (["--container-image="], "Invalid --container-image specification: "),
        # It would be an option of the launcher's.
        (["--container-image=--root"], "Invalid --container-image specification: --root"),
        *(
            (
                ["--container-image=a", f"--container-mounts={text}"],
                f"Invalid --container-mounts specification: {wrong}: SRC:DST[:FLAGS] is expected",
            )
            for text, wrong in {
                "/a": "/a",
                "/a:": "/a:",
                "/a:/b,": "/a:/b,",
                "/a:/b,/c:/d:ro:x": "/c:/d:ro:x",
            }.items()
        ),
        (
            ["--container-image=a", "--container-workdir=b"],
            "Invalid --container-workdir specification: b: an absolute path is expected",
        ),
    ],
)
def test_refusals(argv: list[str], words: str) -> None:
    done = srun(*argv, "true")
    assert done.err.startswith(f"srun: error: {words}")
    assert (done.err.count("\n"), done.code != 0) == (1, True)
    assert done.cluster.submitted == []


def test_jobs_have_no_image() -> None:
    """Neither a script nor a shell of salloc runs in one."""
    words = "error: --container-image is an option of srun: give it to each srun in the job\n"
    script = "#!/bin/sh\n#SBATCH --container-image=a\ntrue\n"
    ran = sbatch(stdin=script.encode())
    assert (ran.err, ran.code != 0) == (f"sbatch: {words}", True)
    ran = sbatch("--container-image=a", "--wrap=true")
    assert (ran.err, ran.code != 0) == (f"sbatch: {words}", True)
    done = launch("salloc", "--container-image=a", "true")
    assert (done.err, done.code != 0) == (f"salloc: {words}", True)


# ---- on the node -------------------------------------------------------------------------------

SETUP = config(f"ContainerLauncher={LAUNCHER}")


def test_the_launcher_in_place_of_the_program() -> None:
    spec = StepSpec(1, container_image="my image;reboot")
    assert containers.entered(spec, SETUP, ["prog", "$(x)", "a b", ""]) == [
        *(LAUNCHER, "my image;reboot", "--", "prog", "$(x)", "a b", "")
    ]
    assert containers.entered(StepSpec(1), SETUP, ["prog"]) == ["prog"]
    with pytest.raises(LaunchError, match="ContainerLauncher is not set"):
        containers.entered(spec, config(), ["prog"])


def test_long_lists_of_mounts() -> None:
    """The node takes them up to 64 KiB: a variable may have 128 (man execve)."""
    assert (
        unfit(StepSpec(1, container_image="i", container_mounts=",".join(["/a:/b"] * 10000))) == ""
    )
    assert unfit(StepSpec(1, container_mounts="a" * (1 << 17))) == "container_mounts"
    assert unfit(StepSpec(1, container_image="a\0b")) == "container_image"


def test_what_is_said_of_it() -> None:
    around = {
        *(b"SLURM_CONTAINER_IMAGE", b"SLURM_CONTAINER_MOUNTS", b"SLURM_CONTAINER_WORKDIR"),
    }
    variables = {b"A": b"b", **dict.fromkeys(around, b"old")}
    containers.say(StepSpec(1, container_image="i", container_workdir="/w\udcff"), variables)
    assert variables == {
        b"A": b"b",
        b"SLURM_CONTAINER_IMAGE": b"i",
        b"SLURM_CONTAINER_WORKDIR": b"/w\xff",
    }
    containers.say(StepSpec(1), variables)
    assert variables == {b"A": b"b"}
