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
from gsched_cli import option_values as v
from gsched_cli.common import Reader, Streams, command_main, error, fatal, version_line
from gsched_cli.getopt import UsageError, walk
from gsched_cli.options import Option, apply, from_environment

if TYPE_CHECKING:
    from gsched.model import Job
    from gsched.wire.messages import Reply, SubmitJob

NAME = "sbatch"
#: how often a controller that has no room is asked again, each time a second later than before
RETRIES = 15
#: the same for a controller that does not answer; the frontend has waited for it before
RETRIES_DOWN = 3
#: how many questions in a row may be refused while --wait waits
WAIT_REFUSALS = 20
MAX_SCRIPT = 4 << 20
#: stands for the exit code of a refused request
REFUSED = -1

SPEC_RESOURCES = (
    "Ignoring -S since it's not allowed by configuration (AllowSpecResourcesUsage = No)"
)

Said = list[tuple[Option, str | None]]


class Process(NamedTuple):
    """What only the submitting process knows of itself; a thin client sends it along."""

    umask: int
    sid: int
    host: str
    user: str
    group: str
    soft_limit: Callable[[str], int | None]
    sleep: Callable[[float], None]
    #: --uid and --gid of root: later requests are made as this user; None for any other caller
    become: Callable[[int, int], None] | None = None

    @classmethod
    def current(cls) -> Process:
        import time

        return cls(
            umask=_umask(),
            sid=os.getsid(0),
            host=os.uname().nodename.partition(".")[0],
            user=user_name(os.getuid()),
            group=group_name(os.getgid()),
            soft_limit=_soft_limit,
            sleep=time.sleep,
            become=_become if os.geteuid() == 0 else None,
        )


def _umask() -> int:
    """Read from /proc: the system call can only set it, and other threads would see that."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError, IndexError):
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _soft_limit(name: str) -> int | None:
    import resource

    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        return None
    soft = resource.getrlimit(number)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _become(uid: int, gid: int) -> None:
    # Loaded while its files can still be read for certain.
    import gsched.client  # noqa: F401

    # The frontend asks the kernel who connects, and the kernel tells the effective ids.
    os.setegid(gid)
    os.seteuid(uid)


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _uid_of(text: str) -> int | None:
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _gid_of(text: str) -> int | None:
    import grp

    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _primary_group(uid: int) -> int | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


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
    code = _guarded(argv, env, cwd, streams, reader, process)
    return _error_code(env) if code < 0 else code


def _error_code(env: Mapping[str, str]) -> int:
    """The exit code of a request that is refused: 1, or what SLURM_EXIT_ERROR says."""
    text = env.get("SLURM_EXIT_ERROR", "")
    return int(text) & 0xFF if text.isascii() and text.isdigit() and len(text) < 10 else 1


def _guarded(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None,
) -> int:
    """The exit code; REFUSED for a refusal, whose code the environment may choose."""
    try:
        return _run(argv, env, cwd, streams, reader, process)
    except UsageError as problem:
        streams.stderr.write(f'sbatch: {problem}\nTry "sbatch --help" for more information\n')
        return 255
    except Refusal as problem:
        if problem.remark:
            streams.stderr.write(f"{problem.remark}\n")
        if problem.kind == "fatal":
            fatal(streams, NAME, "\n".join(problem.lines))
            return REFUSED
        for line in problem.lines:
            error(streams, NAME, line)
        return REFUSED if problem.code == 1 else problem.code


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None,
) -> int:
    context = v.Context(int(reader.now()), _uid_of, _gid_of, _file_reader(cwd, streams))
    said, rest = _components(argv)
    # Once for its own errors and for what it says about the script; what counts is set later,
    # over what script and environment say.
    first = Options()
    for item in (item for one in said for item in one):
        code = _immediate(item, streams)
        if code is not None:
            return code
        apply(first, [item], COMMAND_LINE, context)
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
        apply(options, lines[number] if number < len(lines) else [], SCRIPT, context)
        ignore_pbs = Options()
        from_environment(ignore_pbs, env, "SBATCH_", context)
        foreign = not (first.ignore_pbs or options.ignore_pbs or ignore_pbs.ignore_pbs)
        if foreign and not number:
            apply(options, directives.foreign_lines(script.data, script.file), SCRIPT, context)
        from_environment(options, env, "SBATCH_", context)
        if any(option.name == "verbose" for option, _ in typed):
            options.verbose = 0
        apply(options, typed, COMMAND_LINE, context)
        if options.core_spec or options.thread_spec:
            # Slurm says it as an error and goes on.
            error(streams, NAME, SPEC_RESOURCES)
            options.core_spec = options.thread_spec = 0
        finished.append(finish(options))
        if options.job_name is None:
            finished[-1].spec.name = script.name
        for warning in finished[-1].warnings:
            if not options.quiet:
                streams.stderr.write(f"sbatch: warning: {warning}\n")
    if options.verbose > 1:
        _tell(options, [item for one in said for item in one], streams)
    process = process or Process.current()
    request = _request(argv, env, cwd, options, finished, script, process, reader, streams)
    if request.spec.ignored and not options.quiet:
        names = ", ".join(request.spec.ignored)
        streams.stderr.write(f"sbatch: warning: no effect in this release: {names}\n")
    if options.test_only:
        return _test_only(request, env, streams, reader, process)
    return _submit(request, options, streams, reader, process)


def _components(argv: Sequence[str]) -> tuple[list[Said], list[str]]:
    """The options of each component of a heterogeneous job (parted by ":"), and what follows."""
    said, rest = walk(argv)
    components = [said]
    while rest[:1] == [":"]:
        said, rest = walk(rest[1:])
        components.append(said)
    return components, rest


def _file_reader(cwd: str, streams: Streams) -> Callable[[str], str]:
    def read(name: str) -> str:
        data = streams.files.read(posixpath.join(cwd, name), MAX_SCRIPT)
        return data.decode("utf-8", "surrogateescape")

    return read


def _immediate(item: tuple[Option, str | None], streams: Streams) -> int | None:
    """Options that answer at once; the exit code, None for any other option."""
    option, text = item
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
    if option.name == "hint" and text == "help":
        streams.stdout.write(v.HINT_HELP)
        return 1
    if option.name == "gres" and text == "help":
        streams.stdout.write("Valid gres options are:\ngpu[:type][:count]\n")
        return 0
    return None


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


def _tell(options: Options, said: Said, streams: Streams) -> None:
    """-vv: what was asked, as it was understood."""
    rule = "-" * 20
    lines = ["defined options", f"{rule} {rule}"]
    names = sorted(options.origin)
    values = {option.name: text for option, text in said}
    lines += [f"{name:<20}: {values.get(name) or 'set'}" for name in names]
    lines += [f"{rule} {rule}", "end of defined options"]
    streams.stderr.write("".join(f"sbatch: {line}\n" for line in lines))


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

    rlimits = environ.propagated(options.propagate, process.soft_limit)
    folder = posixpath.normpath(posixpath.join(cwd, options.chdir)) if options.chdir else cwd
    specs = [one.spec for one in finished]
    for spec in specs:
        spec.work_dir = folder
        spec.umask = _umask_of(env, process.umask)
        spec.command = script.command
        spec.args = tuple(script.args)
        spec.submit_line = " ".join((NAME, *argv))
        spec.alloc_node = process.host
        spec.alloc_sid = process.sid
        spec.rlimits = rlimits

    variables = environ.chosen(env, options.export)
    if options.export_file:
        variables.update(environ.from_file(_export_file(options.export_file, cwd, streams)))
    variables |= {
        "SLURM_SUBMIT_DIR": cwd,
        "SLURM_SUBMIT_HOST": process.host,
        "SLURM_JOB_NAME": specs[0].name,
        "SLURM_PRIO_PROCESS": "0",
    }
    user, group = _identity(options, process, reader)
    return SubmitJob(specs[0], script.data, environ.packed(variables), user, group, specs[1:])


def _umask_of(env: Mapping[str, str], own: int) -> int:
    text = env.get("SLURM_UMASK", "")
    try:
        named = int(text, 8)
    except ValueError:
        return own
    return named if 0 <= named <= 0o777 else own


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


def _identity(options: Options, process: Process, reader: Reader) -> tuple[str, str]:
    """Names of the user and group the job belongs to; --uid and --gid are root's."""
    if options.uid is None and options.gid is None:
        return process.user, process.group
    uid = reader.uid if options.uid is None else options.uid
    gid = options.gid if options.gid is not None else _primary_group(uid)
    if gid is None:
        gid = reader.gid
    if (uid, gid) == (reader.uid, reader.gid):
        return process.user, process.group
    if process.become is None:
        which = "uid" if options.uid is not None else "gid"
        raise Refusal(f"--{which} only permitted by root user", code=255)
    process.become(uid, gid)
    return user_name(uid), group_name(gid)


def _test_only(
    request: SubmitJob, env: Mapping[str, str], streams: Streams, reader: Reader, process: Process
) -> int:
    """When the job could start; none is made."""
    import msgspec

    from gsched.client import ControllerDown
    from gsched.wire.messages import Forecast, Refused
    from gsched_cli.text import timestamp

    request.test_only = True
    try:
        reply = _call(request, streams, reader, process)
    except ControllerDown as down:
        streams.stderr.write(f"allocation failure: {down}\n")
        return 1
    if isinstance(reply, Refused):
        for note in reply.notes:
            error(streams, NAME, note)
        streams.stderr.write(f"allocation failure: {reply.message}\n")
        return 1
    found = msgspec.json.decode(reply.data, type=Forecast)
    when = timestamp(found.start, env, reader.now())
    # "a" is Slurm's own; programs look for the words around it.
    where = (
        f"on {found.nodes}"
        if request.components
        else f"on nodes {found.nodes} in partition {found.partition}"
    )
    streams.stderr.write(
        f"sbatch: Job {reply.value} to start at {when} a using {found.cpus} processors {where}\n"
    )
    return 0


def _submit(
    request: SubmitJob, options: Options, streams: Streams, reader: Reader, process: Process
) -> int:
    from gsched.client import ControllerDown
    from gsched.wire.messages import Refused

    if options.wait:
        streams.files.own()
    try:
        cluster = _cluster(options, reader)
        reply = _call(request, streams, reader, process)
    except ControllerDown as down:
        error(streams, NAME, f"Batch job submission failed: {down}")
        return REFUSED
    for note in reply.notes:
        error(streams, NAME, note)
    if isinstance(reply, Refused):
        error(streams, NAME, f"Batch job submission failed: {reply.message}")
        return REFUSED
    if options.parsable:
        streams.stdout.write(f"{reply.value};{cluster}\n" if cluster else f"{reply.value}\n")
    elif not options.quiet:
        where = f" on cluster {cluster}" if cluster else ""
        streams.stdout.write(f"Submitted batch job {reply.value}{where}\n")
    if options.wait:
        streams.stdout.flush()
        return wait_for(reply.value, reader, process.sleep)
    return 0


def _cluster(options: Options, reader: Reader) -> str:
    """The cluster that -M names; only this one is known. "" where none is named."""
    if not options.clusters:
        return ""
    own = reader.status().cluster_name
    for name in options.clusters.split(","):
        if name == own:
            return own
    name = options.clusters.partition(",")[0]
    raise Refusal(
        f"No cluster '{name}' known by database.",
        f"'{name}' can't be reached now, or it is an invalid entry for --cluster.  "
        "Use 'sacctmgr list clusters' to see available clusters.",
    )


def _call(request: SubmitJob, streams: Streams, reader: Reader, process: Process) -> Reply:
    from gsched.client import CONNECT_FAILURE
    from gsched.wire.messages import Refused

    # One id for all tries: should an earlier one have been carried out after all, its answer
    # comes back instead of a second job.
    request_id = reader.new_request_id()
    tries = 0
    while True:
        reply = reader.call(request, request_id)
        if not (isinstance(reply, Refused) and reply.temporary):
            return reply
        down = reply.message == CONNECT_FAILURE
        tries += 1
        if tries > (RETRIES_DOWN if down else RETRIES):
            return reply
        if tries == 1 and not down:
            error(streams, NAME, "Slurm temporarily unable to accept job, sleeping and retrying")
            streams.stderr.flush()
        process.sleep(float(tries))


def exit_code(job: Job) -> int:
    """What --wait returns for an ended job: its exit code; 1 for a signal or any other bad end."""
    from gsched.model import JobState

    if job.wstatus & 0x7F:
        return 1
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
