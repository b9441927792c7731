"""--container-image and its like, named as pyxis does: what srun asks for, what a node starts."""

from __future__ import annotations

import pytest
from agent_world import World
from launch_support import LaunchCluster, Launched, launch
from layout_support import config
from sbatch_support import SLURM_CONF, FakeCluster, Ran, sbatch

from gsched.config import parse_config
from gsched.model import JobSpec
from gsched.model.step import StepSpec
from gsched.wire.steps import Taken
from slurmd_compat import containers
from slurmd_compat.agent.step_create import JobSteps
from slurmd_compat.agent.step_fit import unfit
from slurmd_compat.containers import Image
from slurmd_compat.failure import LaunchError

LAUNCHER = "/usr/local/sbin/enter-image"
SETTING = f"ContainerLauncher={LAUNCHER}"
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


JOBS = [
    ("sbatch", ["--wrap=true"]),
    ("salloc", ["true"]),
]


def job(name: str, *argv: str, launcher: str = LAUNCHER, stdin: bytes = b"") -> Ran | Launched:
    configured = parse_config({"slurm.conf": f"{SLURM_CONF}\nContainerLauncher={launcher}\n"})
    if name == "sbatch":
        return sbatch(*argv, stdin=stdin, cluster=FakeCluster(configured=configured))
    return launch(name, *argv, cluster=LaunchCluster(configured=configured))


@pytest.mark.parametrize(("name", "rest"), JOBS)
def test_jobs_in_an_image(name: str, rest: list[str]) -> None:
    """pyxis: sbatch runs the script in it (wiki, Frequently asked questions)."""
    ran = job(name, *OPTIONS, *rest)
    assert ran.err == ""
    spec = ran.cluster.submitted[0].spec
    assert (spec.container_image, spec.container_mounts, spec.container_workdir) == ASKED


def test_an_image_in_a_script() -> None:
    script = b"#!/bin/sh\n#SBATCH --container-image=a\n#SBATCH --container-mounts=/a:/b\ntrue\n"
    spec = job("sbatch", stdin=script).cluster.submitted[0].spec
    assert (spec.container_image, spec.container_mounts) == ("a", "/a:/b")
    # The command line counts before the script; mounts come together.
    ran = job("sbatch", "--container-image=b", "--container-mounts=/c:/d", stdin=script)
    spec = ran.cluster.submitted[0].spec
    assert (spec.container_image, spec.container_mounts) == ("b", "/a:/b,/c:/d")


@pytest.mark.parametrize(("name", "rest"), JOBS)
def test_jobs_that_are_refused(name: str, rest: list[str]) -> None:
    ran = job(name, "--container-image=a", *rest, launcher="")
    assert (ran.err, ran.code) == (NOT_SET_UP.replace("srun", name), 1)
    ran = job(name, "--container-mounts=/a:/b", *rest)
    needs = f"{name}: error: --container-mounts needs --container-image\n"
    assert (ran.err, ran.code, ran.cluster.submitted) == (needs, 1, [])


def test_the_image_of_srun_is_not_that_of_its_job() -> None:
    """Another step that comes into the job has asked for none."""
    assert srun(*OPTIONS, "prog").cluster.submitted[0].spec.container_image == ""


def test_mounts_of_one_component_are_not_those_of_another() -> None:
    image = "--container-image=a"
    done = srun(image, "--container-mounts=/a:/b", "x", ":", "--container-mounts=/c:/d", "y")
    step = done.interactive.step
    assert step is not None
    assert [part.container_mounts for part in step.parts] == ["/a:/b", "/a:/b,/c:/d"]


# ---- steps of a job in an image ----------------------------------------------------------------


def steps_of(world: World) -> JobSteps:
    (found,) = world.leader.steps.jobs.values()
    return found


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        ({}, ("lab", "/a:/b", "/w")),
        ({"container_image": "own"}, ("own", "", "")),
        ({"container_mounts": "/c:/d"}, ("lab", "/c:/d", "/w")),
        ({"container_workdir": "/x"}, ("lab", "/a:/b", "/x")),
    ],
)
def test_a_step_has_the_image_of_its_job_or_its_own(
    asked: dict[str, str], has: tuple[str, str, str]
) -> None:
    world = World(
        1, container_image="lab", container_mounts="/a:/b", container_workdir="/w", extra=SETTING
    )
    world.run()
    # Of salloc's shell (use_interactive_step) as of any other.
    for number, origin in enumerate(("", "salloc"), 1):
        world.create(number, ntasks=1, origin=origin, overlap=True, **asked)
        assert isinstance(world.answer, Taken)
        lead = steps_of(world).leads[world.answer.step]
        assert of_image(lead.record.spec) == has


def test_a_copy_of_a_file_is_made_on_the_node_itself() -> None:
    world = World(1, container_image="lab", extra=SETTING)
    world.run()
    world.create(1, ntasks=1, origin="sbcast")
    lead = steps_of(world).leads[world.answer.step]
    assert of_image(lead.record.spec) == ("", "", "")


def test_mounts_in_a_job_without_an_image() -> None:
    """srun leaves it to the node, which knows of the job."""
    step = srun("--container-mounts=/a:/b", "prog", env={"SLURM_JOB_ID": "17"})
    assert of_image(step.created.spec) == ("", "/a:/b", "")
    world = World(1, extra=SETTING)
    world.run()
    world.create(1, ntasks=1, container_mounts="/a:/b")
    assert world.answer.message == "error: --container-mounts needs --container-image"


# ---- on the node -------------------------------------------------------------------------------

SETUP = config(SETTING)


def test_the_launcher_in_place_of_the_program() -> None:
    image = Image("my image;reboot")
    assert containers.entered(image, SETUP, ["prog", "$(x)", "a b", ""]) == [
        *(LAUNCHER, "my image;reboot", "--", "prog", "$(x)", "a b", "")
    ]
    assert containers.entered(Image(), SETUP, ["prog"]) == ["prog"]
    with pytest.raises(LaunchError, match="ContainerLauncher is not set"):
        containers.entered(image, config(), ["prog"])


def test_the_script_of_a_job_lies_in_the_image_too() -> None:
    spec = JobSpec(container_image="i", container_mounts="/a:/b", container_workdir="/w")
    script = "/var/spool/job00007/slurm_script"
    assert containers.of_script(spec, script) == Image("i", f"/a:/b,{script}:{script}", "/w")
    assert containers.of_script(JobSpec(container_image="i"), script).mounts == f"{script}:{script}"
    assert containers.of_script(JobSpec(), script) == Image()


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
    containers.say(Image("i", workdir="/w\udcff"), variables)
    assert variables == {
        b"A": b"b",
        b"SLURM_CONTAINER_IMAGE": b"i",
        b"SLURM_CONTAINER_WORKDIR": b"/w\xff",
    }
    containers.say(Image(), variables)
    assert variables == {b"A": b"b"}
