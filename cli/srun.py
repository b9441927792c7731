"""srun: runs tasks: as a step of the job that it is in, else as a job of its own."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gsched.request import COMMAND_LINE, Refusal, finish
from gsched_cli import environ, reach
from gsched_cli import launch_values as w
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.launch_options import SRUN
from gsched_cli.launch_values import LaunchOptions
from gsched_cli.options import Option
from gsched_cli.plan import OWN, Plan
from gsched_cli.process import Process, identity, umask_of
from gsched_cli.srun_options import components, own_job, read_options
from gsched_cli.stepspec import Files, expanded, files, known_gres, names, step_spec
from gsched_cli.submission import (
    REFUSED,
    SPEC_RESOURCES,
    Said,
    answered,
    context,
    error_code,
    guarded,
    in_image,
    named_cluster,
    submitted,
    tell,
    test_only,
)

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model import JobSpec
    from gsched.model.step import StepSpec
    from gsched.wire.steps import NotTaken

NAME = "srun"
#: kinds of MPI that supervisors serve; pmix where the nodes were built with libpmix
MPI_TYPES = ("none", "pmi2", "pmix", "pmix_v4")
MAX_PROGRAMS = 1 << 20
#: what stands for a job where there is none
NO_JOB = 4294967295
NO_TERMINAL = """srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device
srun: error: Not using a pseudo-terminal, disregarding --pty option
"""


class _Run(NamedTuple):
    """One run: what it was given, and what it is of."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    streams: Streams
    reader: Reader
    process: Process


class _Asked(NamedTuple):
    """What the command line and the environment say together."""

    options: LaunchOptions
    #: of a heterogeneous job: of each component
    components: list[LaunchOptions]
    said: Said
    command: list[str]
    #: that of each component
    commands: list[list[str]]


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None = None,
) -> int:
    """Runs `srun argv`; returns its exit code. `process` is what the caller knows of itself."""
    one = _Run(argv, env, cwd, streams, reader, process or Process.current())
    return guarded(NAME, streams, env, lambda: _run(one))


def _run(one: _Run) -> int:
    known = context(one.reader, one.cwd, one.streams)
    said, commands = components(one.argv)
    for item in (item for part in said for item in part):
        code = _immediate(item, one.streams)
        if code is not None:
            return code
    if not commands[-1] or not commands[-1][0]:
        # The values are looked at before.
        read_options(one.env, said[:1], known, inside=False)
        raise Refusal("No command given to execute.", kind="fatal")
    job = own_job(one.env, said, known)
    options = read_options(one.env, said, known, inside=job != 0)
    everything = [item for part in said for item in part]
    asked = _Asked(options[0], options, everything, commands[0], commands)
    _verify(asked, one, inside=job != 0)
    if options[0].verbose:
        tell(NAME, options[0], asked.said, one.streams)
    if options[0].bcast is not None and not options[0].test_only:
        asked = _broadcast(asked, job, one)
    if job and not options[0].test_only:
        return _inside(asked, job, one)
    return _outside(asked, one)


def _broadcast(asked: _Asked, job: int, one: _Run) -> _Asked:
    """--bcast: the program lies on the nodes before the step starts. A job of its own is allocated
    first, and srun runs again in it."""
    from gsched_cli import bcast

    options = asked.options
    # Another program runs before the step: that is not for a worker.
    one.streams.files.own()
    if options.multi_prog:
        raise Refusal("--bcast does not go with --multi-prog")
    if not job:
        return asked
    folder = _folder(options, one)
    target = bcast.copied_to(
        asked.command[0], options.bcast or "", job, folder, one.cwd, one.env, one.reader.settings()
    )
    return asked._replace(command=[target, *asked.command[1:]])


def _immediate(item: tuple[Option, str | None], streams: Streams) -> int | None:
    """Options that answer at once; the exit code, None for any other option."""
    option, text = item
    if option.name in {"help", "usage"}:
        from gsched_cli.help import launch_help, launch_usage

        words = "[executable [args...]]"
        render = launch_help if option.name == "help" else launch_usage
        streams.stdout.write(render(NAME, SRUN, words))
        return 0
    if option.name == "version":
        streams.stdout.write(version_line())
        return 0
    if option.name == "mpi" and text == "list":
        streams.stdout.write("MPI plugin types are...\n")
        streams.stdout.write("".join(f"\t{name}\n" for name in MPI_TYPES))
        return 0
    if option.name in {"cpu-bind", "cpu_bind"} and text == "help":
        streams.stdout.write(w.CPU_BIND_HELP)
        return 0
    if option.name == "mem-bind" and text == "help":
        streams.stdout.write(w.MEM_BIND_HELP)
        return 0
    return answered(item, streams)


def _verify(asked: _Asked, one: _Run, *, inside: bool) -> None:
    """What cannot stand together, whatever the cluster is like."""
    options = asked.options
    if options.verbose and options.quiet:
        raise Refusal("don't specify both --verbose (-v) and --quiet (-Q)")
    if options.mpi is not None and options.mpi not in MPI_TYPES:
        raise Refusal(
            f"MPI: Cannot create context for mpi/{options.mpi}",
            "MPI: Unable to load any plugin",
            f"Invalid MPI type '{options.mpi}', --mpi=list for acceptable types",
        )
    if options.asynchronous:
        raise Refusal("--async is not supported: a step's output goes to its srun")
    if options.pty and one.process.terminal is False:
        one.streams.stderr.write(NO_TERMINAL)
        for part in asked.components:
            part.pty = False
    for part in asked.components:
        in_image(part, one.reader, of_job=inside)
        if part.container_image and options.bcast is not None:
            raise Refusal("--bcast does not go with --container-image")
    if options.no_allocate:
        if not names("nodelist", options.nodelist):
            raise Refusal("must specify a node list with -Z, --no-allocate.")
        _without_job(options, one)
    if inside and options.relative >= 0 and (options.nodelist or options.exclude):
        raise Refusal("-r,--relative not allowed with -w,--nodelist or -x,--exclude.")
    if inside and options.begin:
        error(one.streams, NAME, "--begin is ignored because nodes are already allocated.")
    if not inside and options.relative >= 0:
        raise Refusal("--relative option invalid for job allocation request", kind="fatal")
    if options.core_spec or options.thread_spec:
        # Slurm says it as an error and goes on.
        error(one.streams, NAME, SPEC_RESOURCES)
        for part in asked.components:
            part.core_spec = part.thread_spec = 0
    host_file = one.env.get("SLURM_HOSTFILE", "")
    if host_file and not options.nodelist:
        # Whatever -m says, as in Slurm.
        for part in asked.components:
            hosts = _listed(host_file, one).split(",")
            if len(hosts) < part.ntasks:
                raise Refusal(
                    "Too few NodeNames in Slurm Hostfile",
                    "Failure getting NodeNames from hostfile",
                )
            part.nodelist = ",".join(hosts[: part.ntasks or None])
            part.distribution = "arbitrary"
    for part in asked.components:
        if "/" in part.nodelist:
            part.nodelist = _listed(part.nodelist, one)
        if "/" in part.exclude:
            part.exclude = _listed(part.exclude, one)


def _without_job(options: LaunchOptions, one: _Run) -> NoReturn:
    """-Z, which Slurm's nodes take of root and the SlurmUser alone."""
    from gsched_cli.process import uid_of

    if one.reader.uid not in (0, uid_of(one.reader.config().slurm_user)):
        first = names("nodelist", options.nodelist)[0]
        step = f"{NO_JOB}.{one.process.sid}"
        denied = "Access/permission denied"
        one.streams.stderr.write(
            "srun: do not allocate resources\n"
            f"srun: error: Task launch for StepId={step} failed on node {first}: {denied}\n"
            f"srun: error: Application launch failed: {denied}\nsrun: Job step aborted\n"
        )
        raise Refusal(code=210)
    raise Refusal("--no-allocate (-Z) is not supported: tasks run within jobs alone")


def _listed(name: str, one: _Run) -> str:
    """Node names of a file, each on a line."""
    try:
        data = one.streams.files.read(posixpath.join(one.cwd, name), MAX_PROGRAMS)
    except OSError as problem:
        raise Refusal(
            f"slurm_allocate_resources error opening file {name}, {problem.strerror}",
            "Invalid --nodelist specification",
        ) from None
    return ",".join(data.decode("utf-8", "surrogateescape").split())


# ---- the step ----------------------------------------------------------------------------------


def _spec(asked: _Asked, one: _Run, ntasks: int) -> tuple[StepSpec, Files]:
    """The step, and where its streams go; of a heterogeneous job, with those of its components."""
    if len(asked.components) == 1:
        return _one_spec(asked.options, asked.command, one, ntasks)
    parts: dict[int, StepSpec] = {}
    made: list[tuple[StepSpec, Files]] = []
    for number, (options, command) in enumerate(zip(asked.components, asked.commands, strict=True)):
        made.append(_one_spec(options, command, one, 0))
        for offset in options.het_group or [number]:
            parts[offset] = made[-1][0]
    files_of_all = made[0][1]
    if any(where != files_of_all for _, where in made):
        for spec, where in made:
            _to_the_nodes(spec, where)
        files_of_all = files_of_all._replace(client_out=OWN, client_err=OWN)
    groups = sorted(parts)
    whole = copy.copy(parts[groups[0]])
    whole.het_group = groups
    whole.parts = [parts[offset] for offset in groups]
    return whole, files_of_all


def _variables(asked: _Asked, one: _Run) -> bytes:
    """The environment that goes along: all of it where components let different parts through,
    which the nodes then look at."""
    exports = {options.export for options in asked.components}
    env = dict(environ.chosen(one.env, exports.pop()) if len(exports) == 1 else one.env)
    if asked.options.pty and one.process.mover is not None:
        ports = one.reader.settings().raw.get("srunportrange", "")
        env["SLURM_PTY_PORT"] = str(one.process.mover.listening(ports)[0])
        rows, columns = one.process.window
        if rows and columns:
            env["SLURM_PTY_WIN_COL"], env["SLURM_PTY_WIN_ROW"] = str(columns), str(rows)
    return environ.packed(env)


def _to_the_nodes(spec: StepSpec, where: Files) -> None:
    """Components with files of their own: they are opened on the node, as the client has but one
    place for the output of all."""
    if where.client_out != OWN:
        spec.std_out = where.client_out
    if where.client_err != OWN:
        spec.std_err = where.client_err


def _one_spec(
    options: LaunchOptions, command: Sequence[str], one: _Run, ntasks: int
) -> tuple[StepSpec, Files]:
    warnings: list[str] = []
    folder = _folder(options, one)
    if options.gres is not None:
        known_gres(options.gres, one.reader.settings().gres_types)
    spec = step_spec(options, command, folder, umask_of(one.env, one.process.umask), warnings)
    if not options.quiet:
        for warning in warnings:
            one.streams.stderr.write(f"srun: warning: {warning}\n")
    if options.multi_prog:
        # Arguments of the command line come after those of the file.
        spec.multi_prog = _programs(command[0], one)
    spec.rlimits = environ.propagated(
        options.propagate, one.process.soft_limit, one.reader.settings()
    )
    spec.client_host = one.process.host
    spec.submit_line = " ".join((NAME, *one.argv))
    where = files(options, spec.ntasks or ntasks, one.cwd, folder)
    spec.std_in, spec.std_out, spec.std_err = where.node_in, where.node_out, where.node_err
    spec.stdin_task = where.stdin_task
    spec.stdout_task, spec.stderr_task = where.stdout_task, where.stderr_task
    if options.pty:
        _terminal(spec)
    return spec, where


def _terminal(spec: StepSpec) -> None:
    """--pty: task 0 has the terminal, the others have nothing."""
    spec.stdin_task = 0
    spec.unbuffered = True
    spec.stdout_task = spec.stderr_task = 0


def _folder(options: LaunchOptions, one: _Run) -> str:
    return posixpath.normpath(posixpath.join(one.cwd, options.chdir)) if options.chdir else one.cwd


def _programs(name: str, one: _Run) -> str:
    try:
        data = one.streams.files.read(posixpath.join(one.cwd, name), MAX_PROGRAMS)
    except OSError:
        raise Refusal(f"Could not open multi_prog config file {name}") from None
    return data.decode("utf-8", "surrogateescape")


def _plan(
    mode: str, asked: _Asked, where: Files, one: _Run, job: int, step: int | None, name: str
) -> Plan:
    """What the client does with its streams and signals."""
    options = asked.options
    plan = Plan(mode, job)

    def placed(pattern: str) -> str:
        if pattern in ("", OWN):
            return pattern
        return expanded(pattern, job, step, one.process.user, name)

    plan.say("stdin", placed(where.client_in))
    plan.say("stdout", placed(where.client_out))
    plan.say("stderr", placed(where.client_err))
    plan.flag("append", options.open_mode == "append")
    plan.flag("label", options.label)
    plan.flag("unbuffered", options.unbuffered)
    plan.flag("pty", options.pty)
    plan.flag("quiet", options.quiet)
    config = one.reader.settings()
    for key, said in (("prolog", options.prolog), ("epilog", options.epilog)):
        program = said or config.raw.get(f"srun{key}", "")
        if program and program.lower() != "none":
            plan.say(key, program)
    return plan


def _inside(asked: _Asked, job: int, one: _Run) -> int:
    """A step of a job that there is."""
    from gsched.client import ControllerDown
    from gsched.wire.steps import CreateStep, NotTaken, Taken

    mover = one.process.mover
    assert mover is not None
    asked.options.jobid = job
    without_effect(asked.components, NAME, one.streams)
    spec, where = _spec(asked, one, 0)
    variables = _variables(asked, one)
    question = CreateStep(
        one.reader.new_request_id(),
        spec,
        reach.callback(one.reader.settings(), mover),
        variables,
    )
    # --uid of root: it is that user who must be allowed to. Nothing new is loaded from here on: the
    # files of this program may be closed to that user.
    identity(asked.options, one.process, one.reader)
    try:
        answer = reach.ask(question, job, one.reader, one.env, one.process)
    except ControllerDown as down:
        error(one.streams, NAME, f"Unable to confirm allocation for job {job}: {down}")
        return REFUSED
    if isinstance(answer, NotTaken):
        return _not_taken(answer, job, one)
    assert isinstance(answer, Taken)
    step = answer.step if answer.step >= 0 else None
    plan = _plan("step", asked, where, one, job, step, spec.name)
    return mover.follow(plan.packed())


def _not_taken(answer: NotTaken, job: int, one: _Run) -> int:
    """Slurm's sentences for a step that cannot be; the agent has them, where there is one."""
    if answer.unknown:
        why = reach.reason(answer)
        if answer.code == "ESLURM_ALREADY_DONE":
            error(one.streams, NAME, f"Slurm job {job} has expired")
        else:
            error(one.streams, NAME, f"Unable to confirm allocation for job {job}: {why}")
        one.streams.stderr.write(
            f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {job}\n"
        )
    else:
        for line in answer.message.split("\n"):
            one.streams.stderr.write(f"{NAME}: {line}\n")
    return REFUSED


# ---- the job of its own ------------------------------------------------------------------------


def _outside(asked: _Asked, one: _Run) -> int:
    """A job for this step alone."""
    from gsched.client import ControllerDown
    from gsched.wire.messages import Refused, SubmitJob
    from gsched.wire.steps import Interactive
    from gsched.wire.usertext import encode

    options = asked.options
    specs = _job_specs(asked, one)
    mover = one.process.mover
    assert mover is not None
    user, group = identity(options, one.process, one.reader)
    variables = _variables(asked, one)
    step, where = _spec(asked, one, specs[0].shape.ntasks)
    callback = reach.callback(one.reader.settings(), mover)
    script = encode(Interactive(callback, step if options.bcast is None else None))
    request = SubmitJob(specs[0], script, variables, user, group, specs[1:])
    if options.test_only:
        return test_only(NAME, options, request, one.env, one.streams, one.reader, one.process)
    try:
        named_cluster(NAME, options, one.streams, one.reader)
        reply = submitted(NAME, request, one.streams, one.reader, one.process)
    except ControllerDown as down:
        error(one.streams, NAME, f"Unable to allocate resources: {down}")
        return REFUSED
    for note in reply.notes:
        error(one.streams, NAME, note)
    if isinstance(reply, Refused):
        error(one.streams, NAME, f"Unable to allocate resources: {reply.message}")
        return immediate_code(reply.code, options, one.env)
    if options.bcast is None:
        plan = _plan("job", asked, where, one, reply.value, 0, step.name)
    else:
        plan = Plan("salloc", reply.value)
        plan.flag("quiet", True)
        plan.each("arg", [NAME, *one.argv])
    waiting_texts(plan, NAME, reply.value, reply.data, options)
    if options.verbose:
        one.streams.stderr.write(f"srun: JobId={reply.value} returned by the controller\n")
    return mover.follow(plan.packed())


_BUSY = {
    *("ESLURM_CAN_NOT_START_IMMEDIATELY", "ESLURM_NODES_BUSY"),
    *("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", "ESLURM_JOB_HELD"),
}


def immediate_code(code: str, options: LaunchOptions, env: Mapping[str, str]) -> int:
    """The exit code of a refusal: with -I the environment may choose another for one that only
    had to wait."""
    if options.immediate >= 0 and code in _BUSY and env.get("SLURM_EXIT_IMMEDIATE"):
        return error_code(env, "SLURM_EXIT_IMMEDIATE")
    return REFUSED


def waiting_texts(plan: Plan, name: str, job: int, looked: str, options: LaunchOptions) -> None:
    """What the client says when the job has not started at once, when it then does, and when it is
    cancelled before."""
    if options.immediate > 1:
        plan.say("expires", str(options.immediate))
        plan.say("expired", _expired(name, job, options.quiet))
    if options.quiet:
        return
    import msgspec

    from gsched.wire.messages import FirstLook

    look = msgspec.json.decode(looked, type=FirstLook) if looked else FirstLook(started=False)
    queued = f"{name}: job {job} queued and waiting for resources\n"
    if name == "salloc":
        queued = f"{name}: Pending job allocation {job}\n{queued}"
    if look.note:
        queued = f"{name}: {look.note}\n{queued}"
    if not look.started:
        plan.say("pending", queued)
        plan.say("granted", f"{name}: job {job} has been allocated resources\n")
    if name == "srun":
        texts = f"srun: Force Terminated JobId={job}\nsrun: Job allocation {job} has been revoked\n"
        plan.say("revoked", texts)
    else:
        texts = (
            f"{name}: Job allocation {job} has been revoked.\n{name}: Job aborted due to signal\n"
        )
        plan.say("revoked", texts)


def _expired(name: str, job: int, quiet: bool) -> str:
    """What real clients say when --immediate is over."""
    if name == "srun":
        return "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    text = f"{name}: error: Unable to allocate resources: Connection timed out\n"
    return text if quiet else f"{text}{name}: Job allocation {job} has been revoked.\n"


def _job_specs(asked: _Asked, one: _Run) -> list[JobSpec]:
    """The components of the job, as sbatch makes them."""
    specs: list[JobSpec] = []
    for options, command in zip(asked.components, asked.commands, strict=True):
        made = finish(options)
        spec = made.spec
        if options.job_name is None:
            spec.name = posixpath.basename(asked.command[0])
        spec.interactive = NAME if options.bcast is None else "salloc"
        spec.immediate = options.immediate
        complete(
            spec, options, one.argv, one.cwd, one.env, one.process, NAME, one.reader.settings()
        )
        spec.command = command[0]
        spec.args = tuple(command[1:])
        # The step has its own files.
        spec.std_in = spec.std_out = spec.std_err = ""
        # Its image, too, is the step's: others that come into the job have not asked for it.
        spec.container_image = spec.container_mounts = spec.container_workdir = ""
        specs.append(spec)
    without_effect(asked.components, NAME, one.streams)
    return specs


def without_effect(parts: Sequence[LaunchOptions], name: str, streams: Streams) -> None:
    """Names options that were given and mean nothing here. Those that the environment has are of
    the job around, or of the site: nobody would know what to do about them."""
    found = dict.fromkeys(
        word
        for options in parts
        for word in options.ignored
        if options.origin.get(word.removeprefix("--").partition("=")[0]) == COMMAND_LINE
    )
    if found and not parts[0].quiet:
        streams.stderr.write(f"{name}: warning: no effect in this release: {', '.join(found)}\n")


def complete(
    spec: JobSpec,
    options: LaunchOptions,
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    process: Process,
    name: str,
    config: Config,
) -> None:
    """What only the submitting process knows."""
    folder = posixpath.normpath(posixpath.join(cwd, options.chdir)) if options.chdir else cwd
    spec.work_dir = folder
    spec.umask = umask_of(env, process.umask)
    spec.submit_line = " ".join((name, *argv))
    spec.alloc_node = process.host
    spec.alloc_sid = process.sid
    spec.rlimits = environ.propagated(options.propagate, process.soft_limit, config)


def main() -> NoReturn:
    from gsched_cli.own_mover import with_mover

    command_main(NAME, with_mover(NAME, run))
