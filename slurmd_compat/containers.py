"""Tasks in an image (--container-image): the command of the site's that enters it takes the place
of the program, and gets the program as its arguments."""

from __future__ import annotations

from collections.abc import Sequence

from gsched.config import Config
from gsched.model.step import StepSpec
from slurmd_compat.launcher import LaunchError


def entered(spec: StepSpec, config: Config, argv: Sequence[str]) -> list[str]:
    """What is started for `argv`: itself where there is no image.

    Each word stays a word: no shell reads them. The launcher's path is absolute, so the task's PATH
    is not looked at, and where the program is, is left to the image.
    """
    if not spec.container_image:
        return list(argv)
    if not config.container_launcher:
        raise LaunchError("ContainerLauncher is not set")
    return [config.container_launcher, spec.container_image, "--", *argv]


def say(spec: StepSpec, variables: dict[bytes, bytes]) -> None:
    """Tells the launcher and the tasks of the image, in their environment. What a srun around this
    one has said of its own image does not hold here."""
    for name, text in (
        (b"SLURM_CONTAINER_IMAGE", spec.container_image),
        (b"SLURM_CONTAINER_MOUNTS", spec.container_mounts),
        (b"SLURM_CONTAINER_WORKDIR", spec.container_workdir),
    ):
        variables.pop(name, None)
        if spec.container_image and text:
            variables[name] = text.encode(errors="surrogateescape")
