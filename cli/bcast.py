"""srun --bcast: the program is copied to the nodes of the job before the step starts."""

from __future__ import annotations

import os
import posixpath
import secrets
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gsched.request import Refusal

if TYPE_CHECKING:
    from gsched.config import Config


def copied_to(
    program: str,
    wanted: str,
    job: int,
    folder: str,
    cwd: str,
    env: Mapping[str, str],
    config: Config,
) -> str:
    """Copies `program` and says where it now lies on every node. Raises Refusal.

    `wanted` is what --bcast said: a file, a folder (with "/" at its end), or "": the folder that
    BcastParameters names, else the step's.
    """
    source = found(program, cwd, env)
    target = posixpath.join(folder, wanted or _site(config))
    if not wanted or wanted.endswith("/"):
        target = posixpath.join(target, f"slurm_bcast_{job}.{secrets.token_hex(4)}")
    target = posixpath.normpath(target)
    words = [_sbcast(), "-f", "-p", f"--jobid={job}", source, target]
    if subprocess.run(
        words, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, check=False
    ).returncode:
        raise Refusal(f"Failed to broadcast '{source}'.")
    return target


def found(program: str, cwd: str, env: Mapping[str, str]) -> str:
    """The file that a command names, as srun finds it. Raises Refusal."""
    if "/" in program:
        return posixpath.normpath(posixpath.join(cwd, program))
    for place in (*env.get("PATH", "").split(":"), cwd):
        candidate = posixpath.join(cwd, place, program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise Refusal(f"Unable to find executable '{program}' for --bcast")


def _site(config: Config) -> str:
    for item in config.raw.get("bcastparameters", "").split(","):
        name, _, value = item.strip().partition("=")
        if name.lower() == "destdir" and value:
            return value
    return ""


def _sbcast() -> str:
    from gsched_cli.own_mover import program

    return os.path.join(os.path.dirname(program()), "sbcast")
