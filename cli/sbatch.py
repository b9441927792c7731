"""sbatch: reads a script and its options, asks the controller to run it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gsched.request import (
    COMMAND_LINE,
    SCRIPT,
    Finished,
    Options,
    Refusal,
    finish,
    next_component,
)
from gsched_cli import directives, environ
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.options import Option, apply, from_environment
from gsched_cli.process import Process, identity, umask_of
from gsched_cli.submission import (
    MAX_SCRIPT,
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
    test_only,
)

if TYPE_CHECKING:
    from gsched.model import Job
    from gsched.wire.messages import SubmitJob

NAME = "sbatch"
#: how many questions in a row may be refused while --wait waits
WAIT_REFUSALS = 20


class _Script(NamedTuple):
    """The script and how the job shows it."""

    data: bytes
    #: default job name
    name: str
    #: for messages about its lines
    file: str
    #: Command= ("" for --wrap and standard input)
    command: str = ""
    args: Sequence[str] = ()


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None = None,
) -> int:
    """Runs `sbatch argv`; returns its exit code. `process` is what the caller knows of itself."""
    return guarded(NAME, streams, env, lambda: _run(argv, env, cwd, streams, reader, process))


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None,
) -> int:
    known = context(reader, cwd, streams)
    said, rest = components(argv)
    # Once for its own errors and for what it says about the script; what counts is set later,
    # over what script and environment say.
    first = Options()
    for item in (item for one in said for item in one):
        code = _immediate(item, streams)
        if code is not None:
            return code
        apply(first, [item], COMMAND_LINE, known)
    if first.verbose and first.quiet:
        raise Refusal("don't specify both --verbose (-v) and --quiet (-Q)")
    script = _script(first, rest, env, cwd, streams)
    directives.check_script(script.data)

    options = Options()
    lines = directives.sbatch_lines(script.data, script.file)
    finished: list[Finished] = []
    for number in range(max(len(lines), len(said))):
        if number:
            next_component(options)
        typed = said[number] if number < len(said) else []
        apply(options, lines[number] if number < len(lines) else [], SCRIPT, known)
        ignore_pbs = Options()
        from_environment(ignore_pbs, env, "SBATCH_", known)
        foreign = not (first.ignore_pbs or options.ignore_pbs or ignore_pbs.ignore_pbs)
        if foreign and not number:
            apply(options, directives.foreign_lines(script.data, script.file), SCRIPT, known)
        from_environment(options, env, "SBATCH_", known)
        if any(option.name == "verbose" for option, _ in typed):
            options.verbose = 0
        apply(options, typed, COMMAND_LINE, known)
        if options.core_spec or options.thread_spec:
            # Slurm says it as an error and goes on.
            error(streams, NAME, SPEC_RESOURCES)
            options.core_spec = options.thread_spec = 0
        in_image(options, reader)
        finished.append(finish(options))
        if options.job_name is None:
            finished[-1].spec.name = script.name
        for warning in finished[-1].warnings:
            if not options.quiet:
                streams.stderr.write(f"sbatch: warning: {warning}\n")
    if options.verbose:
        tell(NAME, options, [item for one in said for item in one], streams)
    process = process or Process.current()
    request = _request(argv, env, cwd, options, finished, script, process, reader, streams)
    if request.spec.ignored and not options.quiet:
        names = ", ".join(request.spec.ignored)
        streams.stderr.write(f"sbatch: warning: no effect in this release: {names}\n")
    if options.test_only:
        return test_only(NAME, options, request, env, streams, reader, process)
    return _submit(request, options, streams, reader, process)


def _immediate(item: tuple[Option, str | None], streams: Streams) -> int | None:
    """Options that answer at once; the exit code, None for any other option."""
    option = item[0]
    if option.name == "help":
        from gsched_cli.help import sbatch_help

        streams.stdout.write(sbatch_help())
        return 0
    if option.name == "usage":
        from gsched_cli.help import sbatch_usage

        streams.stdout.write(sbatch_usage())
        return 0
    if option.name == "version":
        streams.stdout.write(version_line())
        return 0
    return answered(item, streams)


def _script(
    options: Options, rest: list[str], env: Mapping[str, str], cwd: str, streams: Streams
) -> _Script:
    if options.wrap is not None:
        if rest:
            raise Refusal("Script arguments not permitted with --wrap option")
        text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{options.wrap}\n"
        return _Script(text.encode("utf-8", "surrogateescape"), "wrap", "wrap")
    if not rest:
        data = streams.stdin.buffer.read(MAX_SCRIPT + 1)
        return _Script(_sized(data), "sbatch", "stdin")
    path = _find(rest[0], env, cwd, streams)
    try:
        data = streams.files.read(path, MAX_SCRIPT + 1)
    except IsADirectoryError:
        data = b""
    except (OSError, ValueError):
        raise Refusal(f"Unable to open file {rest[0]}") from None
    return _Script(_sized(data), posixpath.basename(rest[0]), rest[0], path, rest[1:])


def _sized(data: bytes) -> bytes:
    if len(data) > MAX_SCRIPT:
        from gsched.errors import message

        raise Refusal(
            "Batch job submission failed: " + message("ESLURM_PATHNAME_TOO_LONG"),
            f"The script is larger than {MAX_SCRIPT} bytes.",
        )
    return data


def _find(name: str, env: Mapping[str, str], cwd: str, streams: Streams) -> str:
    """The script's absolute path: from the working directory, else, without a slash, from PATH."""
    path = posixpath.normpath(posixpath.join(cwd, name)) if name else cwd
    if name.endswith("/"):
        path += "/"
    if "/" in name or "\0" in name or streams.files.kind(path) != "-":
        return path
    for folder in env.get("PATH", "").split(":"):
        candidate = posixpath.join(cwd, folder, name)
        if folder and streams.files.kind(candidate) == "f":
            return candidate
    return path


def _request(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    options: Options,
    finished: Sequence[Finished],
    script: _Script,
    process: Process,
    reader: Reader,
    streams: Streams,
) -> SubmitJob:
    """The message to the controller: the specs and what only this process knows."""
    from gsched.wire.messages import SubmitJob

    rlimits = environ.propagated(options.propagate, process.soft_limit, reader.settings())
    folder = posixpath.join(cwd, options.chdir) if options.chdir else cwd
    specs = [one.spec for one in finished]
    for spec in specs:
        spec.work_dir = folder
        for name in ("std_in", "std_out", "std_err"):
            if getattr(spec, name).lower() == "none":
                setattr(spec, name, "/dev/null")
        spec.umask = umask_of(env, process.umask)
        spec.command = script.command
        spec.args = tuple(script.args)
        spec.submit_line = " ".join((NAME, *argv))
        spec.alloc_node = process.host
        spec.alloc_sid = process.sid
        spec.rlimits = rlimits

    if options.export_file:
        variables = environ.in_place(
            _export_file(options.export_file, cwd, streams), options.export
        )
        for spec in specs:
            spec.get_user_env |= options.export.upper() not in {"", "ALL"}
            spec.export = ""
    else:
        variables = environ.chosen(env, options.export)
    variables |= {
        "SLURM_SUBMIT_DIR": cwd,
        "SLURM_SUBMIT_HOST": process.host,
        "SLURM_JOB_NAME": specs[0].name,
        "SLURM_PRIO_PROCESS": "0",
    }
    user, group = identity(options, process, reader)
    return SubmitJob(specs[0], script.data, environ.packed(variables), user, group, specs[1:])


def _export_file(name: str, cwd: str, streams: Streams) -> bytes:
    try:
        if name.isascii() and name.isdigit() and int(name) > 2:
            streams.files.own()
            with os.fdopen(os.dup(int(name)), "rb") as file:
                return file.read(environ.MAX_ENVIRONMENT)
        return streams.files.read(posixpath.join(cwd, name), environ.MAX_ENVIRONMENT)
    except IsADirectoryError:
        raise Refusal("read(environment_file): Is a directory") from None
    except (OSError, ValueError, OverflowError):
        raise Refusal(f"Could not open user environment file {name}") from None


def _submit(
    request: SubmitJob, options: Options, streams: Streams, reader: Reader, process: Process
) -> int:
    from gsched.client import ControllerDown
    from gsched.wire.messages import Refused

    if options.wait:
        streams.files.own()
    try:
        cluster = named_cluster(NAME, options, streams, reader)
        reply = submitted(NAME, request, streams, reader, process)
    except ControllerDown as down:
        error(streams, NAME, f"Batch job submission failed: {down}")
        return REFUSED
    for note in reply.notes:
        error(streams, NAME, note)
    if isinstance(reply, Refused):
        # What nobody has a resource of, Slurm's sbatch sees for itself.
        what = "" if reply.code == "ESLURM_INVALID_GRES" else "Batch job submission failed: "
        error(streams, NAME, f"{what}{reply.message}")
        return REFUSED
    if options.quiet:
        # Not even with --parsable, as in Slurm.
        pass
    elif options.parsable:
        streams.stdout.write(f"{reply.value};{cluster}\n" if cluster else f"{reply.value}\n")
    else:
        where = f" on cluster {cluster}" if cluster else ""
        streams.stdout.write(f"Submitted batch job {reply.value}{where}\n")
    if options.wait:
        streams.stdout.flush()
        return wait_for(reply.value, reader, process.sleep)
    return 0


def exit_code(job: Job) -> int:
    """What --wait returns for an ended job: its exit code; 1 for a signal or any other bad end."""
    from gsched.model import JobState

    if job.wstatus & 0x7F:
        return 1
    if job.state == JobState.CANCELLED and not job.start_time:
        # It has no exit code, and as in Slurm that is 0.
        return 0
    code = job.wstatus >> 8 & 0xFF
    return code if code or job.state == JobState.COMPLETED else 1


def wait_for(job_id: int, reader: Reader, sleep: Callable[[float], None]) -> int:
    """Asks for a job, at growing intervals, until it (and every task of an array) has ended.

    Returns the highest exit code; 1 if the job is no longer known.
    """
    from gsched.client import ControllerDown, RequestRefused
    from gsched.wire.messages import JobQuery

    pause, refusals = 0.1, 0
    while True:
        try:
            rows = reader.jobs(JobQuery(ids=[job_id])).jobs
            refusals = 0
            if not rows:
                return 1
            if all(job.finished for job in rows):
                return max(exit_code(job) for job in rows)
        except ControllerDown:
            # The job goes on without the controller; so does the wait.
            pass
        except RequestRefused:
            # Too many questions at once; but one that is never answered must not be asked for ever.
            refusals += 1
            if refusals >= WAIT_REFUSALS:
                raise
        sleep(pause)
        pause = min(pause * 1.3, 5.0)


def main() -> NoReturn:
    command_main(NAME, run)
