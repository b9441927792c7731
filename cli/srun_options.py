"""What srun was asked: its command line, and the environment under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.request import COMMAND_LINE, next_component
from gsched_cli.getopt import walk
from gsched_cli.launch_options import SRUN, SRUN_SHORT
from gsched_cli.launch_values import LaunchOptions
from gsched_cli.option_values import number
from gsched_cli.options import apply, from_environment
from gsched_cli.submission import Said

if TYPE_CHECKING:
    from gsched_cli.option_values import Context


def components(argv: Sequence[str]) -> tuple[list[Said], list[list[str]]]:
    """Options and command of each component, parted by ":"; one without a command of its own has
    that of the next. [] where there is none at all."""
    said: list[Said] = []
    commands: list[list[str]] = []
    rest = list(argv)
    while True:
        one, words = walk(rest, SRUN, SRUN_SHORT)
        said.append(one)
        if ":" not in words:
            commands.append(words)
            break
        place = words.index(":")
        commands.append(words[:place])
        rest = words[place + 1 :]
    for place in range(len(commands) - 2, -1, -1):
        commands[place] = commands[place] or commands[place + 1]
    return said, commands


def own_job(env: Mapping[str, str], said: list[Said], known: Context) -> int:
    """The job that the step is of; 0: none, a job is made."""
    named = LaunchOptions()
    apply(named, [item for item in said[0] if item[0].name == "jobid"], COMMAND_LINE, known)
    if named.jobid:
        return named.jobid
    if any(option.name == "no-allocate" for option, _ in said[0]):
        return 0
    text = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    return number(text, "--jobid", 1) if text else 0


#: variables that mean a job, and not the steps in it
_OF_THE_JOB = {"job-name", "exclusive", "dependency", "immediate"}


#: variables that say how large the first component of a heterogeneous job is
_OF_A_COMPONENT = {
    *("nodes", "ntasks", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core"),
    *("ntasks-per-gpu", "cpus-per-task", "tres-per-task", "gpus", "gpus-per-node"),
    *("gpus-per-task", "gpus-per-socket", "gres", "mem", "mem-per-cpu", "mem-per-gpu"),
}


def _groups(env: Mapping[str, str], said: list[Said]) -> bool:
    """Whether components of a heterogeneous job are named."""
    if not env.get("SLURM_HET_SIZE"):
        return False
    named = {"het-group", "pack-group"}
    return (
        len(said) > 1
        or "SLURM_HET_GROUP" in env
        or any(item[0].name in named for one in said for item in one)
    )


def read_options(
    env: Mapping[str, str], said: list[Said], known: Context, *, inside: bool
) -> list[LaunchOptions]:
    """The options of each component: the environment, and over it the command line."""
    found: list[LaunchOptions] = []
    options = LaunchOptions()
    # SLURM_JOB_ID was looked at before; the name, above all, is the job's.
    skipped = {"jobid", *(_OF_THE_JOB if inside else ())}
    if inside and _groups(env, said):
        # They are those of the first component; each is as large as it was asked for.
        skipped |= _OF_A_COMPONENT
    table = [option for option in SRUN.values() if option.env and option.name not in skipped]
    variables = _variables(env, inside)
    for place, typed in enumerate(said):
        if place:
            next_component(options)
            options.origin = dict(options.origin)
            options.het_group = []
        from_environment(options, variables, "SLURM_", known, table)
        if any(option.name == "verbose" for option, _ in typed):
            options.verbose = 0
        apply(options, typed, COMMAND_LINE, known)
        found.append(copied(options))
    return found


def copied(options: LaunchOptions) -> LaunchOptions:
    """Options of one component, before the next one is read over them."""
    import copy

    result = copy.copy(options)
    result.origin = dict(options.origin)
    result.ignored = list(options.ignored)
    return result


def _variables(env: Mapping[str, str], inside: bool) -> Mapping[str, str]:
    """The environment as options are read from it."""
    result = dict(env)
    if not inside:
        result.pop("SLURM_STEP_GRES", None)
    plane = env.get("SLURM_DIST_PLANESIZE", "")
    if plane and env.get("SLURM_DISTRIBUTION", "").lower() == "plane":
        result["SLURM_DISTRIBUTION"] = f"plane={plane}"
    return result
