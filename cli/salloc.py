"""salloc: allocates a job, runs a command here while it lasts, and gives it back."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched.request import COMMAND_LINE, Refusal, finish, next_component
from gsched_cli import environ, reach
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.launch_options import SALLOC, SALLOC_SHORT
from gsched_cli.launch_values import LaunchOptions
from gsched_cli.options import Option, apply, from_environment
from gsched_cli.plan import OWN, Plan
from gsched_cli.process import Process, identity
from gsched_cli.srun import complete, immediate_code, waiting_texts, without_effect
from gsched_cli.srun_options import copied
from gsched_cli.submission import (
    REFUSED,
    SPEC_RESOURCES,
    answered,
    components,
    context,
    guarded,
    in_image,
    named_cluster,
    submitted,
    tell,
)

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model import JobSpec

NAME = "salloc"
#: what a job is called whose command is none in particular
INTERACTIVE = "interactive"
#: what use_interactive_step runs
STEP_OPTIONS = "--interactive --preserve-env --pty $SHELL"


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None = None,
) -> int:
    """Runs `salloc argv`; returns its exit code. `process` is what the caller knows of itself."""
    own = process or Process.current()
    return guarded(NAME, streams, env, lambda: _run(argv, env, cwd, streams, reader, own))


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    known = context(reader, cwd, streams)
    said, command = components(argv, SALLOC, SALLOC_SHORT)
    for item in (item for part in said for item in part):
        code = _immediate(item, streams)
        if code is not None:
            return code
    table = [option for option in SALLOC.values() if option.env]
    parts: list[LaunchOptions] = []
    options = LaunchOptions()
    for number, typed in enumerate(said):
        if number:
            next_component(options)
        from_environment(options, env, "SALLOC_", known, table)
        if any(option.name == "verbose" for option, _ in typed):
            options.verbose = 0
        apply(options, typed, COMMAND_LINE, known)
        parts.append(copied(options))
    first = parts[0]
    if first.verbose and first.quiet:
        raise Refusal("don't specify both --verbose (-v) and --quiet (-Q)")
    if any(part.core_spec or part.thread_spec for part in parts):
        # Slurm says it as an error and goes on.
        error(streams, NAME, SPEC_RESOURCES)
        for part in parts:
            part.core_spec = part.thread_spec = 0
    for part in parts:
        in_image(part, reader)
    if first.verbose:
        tell(NAME, first, [item for part in said for item in part], streams)
    specs = _job_specs(parts, argv, env, cwd, streams, process, command, reader.settings())
    return _allocate(specs, first, command, env, cwd, streams, reader, process)


def _immediate(item: tuple[Option, str | None], streams: Streams) -> int | None:
    """Options that answer at once; the exit code, None for any other option."""
    if item[0].name in {"help", "usage"}:
        from gsched_cli.help import launch_help, launch_usage

        render = launch_help if item[0].name == "help" else launch_usage
        streams.stdout.write(render(NAME, SALLOC, "[command [args...]]"))
        return 0
    if item[0].name == "version":
        streams.stdout.write(version_line())
        return 0
    return answered(item, streams)


def _job_specs(
    parts: Sequence[LaunchOptions],
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    process: Process,
    command: Sequence[str],
    config: Config,
) -> list[JobSpec]:
    specs: list[JobSpec] = []
    for options in parts:
        made = finish(options)
        spec = made.spec
        if options.job_name is None:
            spec.name = _name(options, env, command)
        spec.interactive = NAME
        spec.immediate = options.immediate
        spec.command = command[0] if command else ""
        complete(spec, options, argv, cwd, env, process, NAME, config)
        specs.append(spec)
        if not options.quiet:
            for warning in made.warnings:
                streams.stderr.write(f"{NAME}: warning: {warning}\n")
    without_effect(parts, NAME, streams)
    return specs


def _name(options: LaunchOptions, env: Mapping[str, str], command: Sequence[str]) -> str:
    """The job's name where none is given: SLURM_JOB_NAME, else "interactive"."""
    return env.get("SLURM_JOB_NAME", "") or ("no-shell" if options.no_shell else INTERACTIVE)


def _allocate(
    specs: list[JobSpec],
    options: LaunchOptions,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    from gsched.client import ControllerDown
    from gsched.wire.messages import Refused, SubmitJob
    from gsched.wire.steps import Interactive
    from gsched.wire.usertext import encode

    mover = process.mover
    assert mover is not None
    user, group = identity(options, process, reader)
    config = reader.settings()
    where = reach.callback(config, mover)
    script = encode(Interactive(where, no_shell=options.no_shell))
    variables = environ.packed(env)
    request = SubmitJob(specs[0], script, variables, user, group, specs[1:])
    try:
        named_cluster(NAME, options, streams, reader)
        reply = submitted(NAME, request, streams, reader, process)
    except ControllerDown as down:
        error(streams, NAME, f"Job submit/allocate failed: {down}")
        return REFUSED
    for note in reply.notes:
        error(streams, NAME, note)
    if isinstance(reply, Refused):
        busy = reply.code == "ESLURM_NODES_BUSY"
        what = "Unable to allocate resources" if busy else "Job submit/allocate failed"
        error(streams, NAME, f"{what}: {reply.message}")
        return immediate_code(reply.code, options, env)
    plan = Plan("salloc", reply.value)
    for stream in ("stdin", "stdout", "stderr"):
        plan.say(stream, OWN)
    plan.flag("quiet", options.quiet)
    plan.flag("noshell", options.no_shell)
    if options.bell:
        plan.say("bell", "1" if options.bell == 2 else "10")
    if options.kill_command is not None:
        plan.say("killsig", str(options.kill_command))
    waiting_texts(plan, NAME, reply.value, reply.data, options)
    plan.each("arg", command or _default_command(config, env))
    if options.chdir:
        plan.say("chdir", posixpath.normpath(posixpath.join(cwd, options.chdir)))
    return mover.follow(plan.packed())


def _default_command(config: Config, env: Mapping[str, str]) -> list[str]:
    """What runs where no command is given: the site's, or the user's shell."""
    shell = env.get("SHELL", "") or "/bin/sh"
    if "use_interactive_step" in config.launch_parameters:
        words = config.raw.get("interactivestepoptions", "") or STEP_OPTIONS
        return ["srun", *_words(words.replace("$SHELL", shlex.quote(shell)))]
    site = config.raw.get("sallocdefaultcommand", "")
    # Slurm leaves the site's command to a shell.
    return ["/bin/sh", "-c", site] if site else [shell]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def main() -> NoReturn:
    from gsched_cli.own_mover import with_mover

    command_main(NAME, with_mover(NAME, run))
