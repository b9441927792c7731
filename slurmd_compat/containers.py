"""Scripts and tasks in an image (--container-image): the command of the site's that enters it takes
the place of the program, and gets the program as its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gsched.config import Config
from gsched.model import JobSpec
from gsched.model.step import StepSpec
from gsched.rawtext import to_bytes
from slurmd_compat.failure import LaunchError


class Image(NamedTuple):
    """An image, and how it is entered; "" none, or nothing said."""

    name: str = ""
    mounts: str = ""
    workdir: str = ""


def of_step(spec: StepSpec) -> Image:
    return Image(spec.container_image, spec.container_mounts, spec.container_workdir)


def of_script(spec: JobSpec, script: str) -> Image:
    """That of a job's script, which is shown in the image where it lies on the node."""
    if not spec.container_image:
        return Image()
    mounts = [spec.container_mounts] if spec.container_mounts else []
    shown = ",".join([*mounts, f"{script}:{script}"])
    return Image(spec.container_image, shown, spec.container_workdir)


def entered(image: Image, config: Config, argv: Sequence[str]) -> list[str]:
    """What is started for `argv`: itself where there is no image.

    Each word stays a word: no shell reads them. The launcher's path is absolute, so the task's PATH
    is not looked at, and where the program is, is left to the image.
    """
    if not image.name:
        return list(argv)
    if not config.container_launcher:
        raise LaunchError("ContainerLauncher is not set")
    return [config.container_launcher, image.name, "--", *argv]


def say(image: Image, variables: dict[bytes, bytes]) -> None:
    """Tells the launcher and the program of the image, in their environment. What a job or srun
    around this one has said of its own image does not hold here."""
    for name, text in (
        (b"SLURM_CONTAINER_IMAGE", image.name),
        (b"SLURM_CONTAINER_MOUNTS", image.mounts),
        (b"SLURM_CONTAINER_WORKDIR", image.workdir),
    ):
        variables.pop(name, None)
        if image.name and text:
            variables[name] = to_bytes(text)
