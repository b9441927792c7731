"""The image that the tasks of a step run in: its own, or that of its job (sbatch and salloc
--container-image)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gsched.layout import StepRefused
from gsched.model import Job
from gsched.model.step import StepSpec


def with_image(spec: StepSpec, components: Sequence[Job]) -> StepSpec:
    """The request with the images of its parts filled in.

    A step that names an image has what it is given alone. One that names none has that of its
    component of the job, with the mounts and the directory that it names instead. Raises
    StepRefused for mounts without any image.
    """
    groups = spec.het_group or [0]
    if not spec.parts:
        return _filled(spec, _component(components, groups[0]))
    parts = [
        _filled(part, _component(components, groups[index] if index < len(groups) else 0))
        for index, part in enumerate(spec.parts)
    ]
    return msgspec.structs.replace(spec, parts=parts)


def _component(components: Sequence[Job], offset: int) -> Job:
    """That of a number; a number that is none is refused when the step is laid out, and the parts
    of a step in a job of one component are all of that one."""
    return components[offset] if 0 <= offset < len(components) else components[0]


def _filled(spec: StepSpec, job: Job) -> StepSpec:
    # A copy of a file is made by the node itself.
    if spec.container_image or spec.origin == "sbcast":
        return spec
    image = job.spec.container_image
    if not image:
        for word, value in (
            ("mounts", spec.container_mounts),
            ("workdir", spec.container_workdir),
        ):
            if value:
                raise StepRefused(f"error: --container-{word} needs --container-image")
        return spec
    return msgspec.structs.replace(
        spec,
        container_image=image,
        container_mounts=spec.container_mounts or job.spec.container_mounts,
        container_workdir=spec.container_workdir or job.spec.container_workdir,
    )
