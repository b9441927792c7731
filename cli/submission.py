"""What sbatch, srun and salloc do alike on their way from a command line to the controller."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.request import Options, Refusal
from gsched_cli import option_values as v
from gsched_cli.common import Reader, Streams, error, fatal
from gsched_cli.getopt import UsageError, walk
from gsched_cli.options import BY_NAME, BY_SHORT, Option
from gsched_cli.process import Process, gid_of, uid_of
from gsched_cli.stop import other_clusters

if TYPE_CHECKING:
    from gsched.wire.messages import Reply, SubmitJob

#: how often a controller that has no room is asked again, each time a second later than before
RETRIES = 15
#: the same for a controller that does not answer; the frontend has waited for it before
RETRIES_DOWN = 3
#: the largest script, or other file, that a command reads for the user
MAX_SCRIPT = 4 << 20
#: stands for the exit code of a refused request
REFUSED = -1

SPEC_RESOURCES = (
    "Ignoring -S since it's not allowed by configuration (AllowSpecResourcesUsage = No)"
)

Said = list[tuple[Option, str | None]]


#: how each command says that the controller takes no job
_REFUSED_BY_CONTROLLER = {
    "sbatch": "Batch job submission failed",
    "salloc": "Job submit/allocate failed",
    "srun": "Unable to allocate resources",
}


def guarded(name: str, streams: Streams, env: Mapping[str, str], work: Callable[[], int]) -> int:
    """The exit code of `work`; what it raises is said in Slurm's words. A refusal ends with 1, or
    with what the environment chooses."""
    try:
        code = work()
    except UsageError as problem:
        streams.stderr.write(f'{name}: {problem}\nTry "{name} --help" for more information\n')
        return 255
    except Refusal as problem:
        if problem.remark:
            streams.stderr.write(f"{problem.remark}\n")
        for line in problem.warnings:
            streams.stderr.write(f"{name}: warning: {line}\n")
        if problem.kind == "fatal":
            fatal(streams, name, "\n".join(problem.lines))
            return error_code(env)
        what = f"{_REFUSED_BY_CONTROLLER[name]}: " if problem.kind == "controller" else ""
        for line in problem.lines:
            error(streams, name, f"{what}{line}")
        code = REFUSED if problem.code == 1 else problem.code
    return error_code(env) if code < 0 else code


def error_code(env: Mapping[str, str], name: str = "SLURM_EXIT_ERROR") -> int:
    """The exit code of a request that is refused: 1, or what SLURM_EXIT_ERROR says."""
    text = env.get(name, "")
    return int(text) & 0xFF if text.isascii() and text.isdigit() and len(text) < 10 else 1


def context(reader: Reader, cwd: str, streams: Streams) -> v.Context:
    """What the values of options are read with."""
    return v.Context(int(reader.now()), uid_of, gid_of, file_reader(cwd, streams))


def file_reader(cwd: str, streams: Streams) -> Callable[[str], str]:
    """Reads a file of the user's as text; OSError where it cannot."""

    def read(name: str) -> str:
        data = streams.files.read(posixpath.join(cwd, name), MAX_SCRIPT)
        return data.decode("utf-8", "surrogateescape")

    return read


def components(
    argv: Sequence[str],
    by_name: Mapping[str, Option] = BY_NAME,
    by_short: Mapping[str, Option] = BY_SHORT,
) -> tuple[list[Said], list[str]]:
    """The options of each component of a heterogeneous job (parted by ":"), and what follows."""
    said, rest = walk(argv, by_name, by_short)
    found = [said]
    while rest[:1] == [":"]:
        said, rest = walk(rest[1:], by_name, by_short)
        found.append(said)
    return found, rest


def in_image(options: Options, reader: Reader, *, of_job: bool = False) -> None:
    """--container-image: the site says what enters an image. `of_job`: in a job that may have an
    image, for which mounts and a directory can be meant."""
    if not options.container_image:
        for word, value in (
            ("mounts", options.container_mounts),
            ("workdir", options.container_workdir),
        ):
            if value and not of_job:
                raise Refusal(f"--container-{word} needs --container-image")
        return
    if not reader.settings().container_launcher:
        raise Refusal("containers are not set up on this cluster: ContainerLauncher is not set")


def answered(item: tuple[Option, str | None], streams: Streams) -> int | None:
    """Options that answer at once, of all commands alike; the exit code, None for any other."""
    option, text = item
    if option.name == "hint" and text == "help":
        streams.stdout.write(v.HINT_HELP)
        return 1
    if option.name == "gres" and text == "help":
        streams.stdout.write("Valid gres options are:\ngpu[:type][:count]\n")
        return 0
    return None


def tell(name: str, options: Options, said: Said, streams: Streams) -> None:
    """What was asked, as it was understood (-v)."""
    rule = "-" * 20
    lines = ["defined options", f"{rule} {rule}"]
    names = sorted(options.origin)
    values = {option.name: text for option, text in said}
    if options.verbose:
        values["verbose"] = str(options.verbose)
    lines += [f"{option:<20}: {values.get(option) or 'set'}" for option in names]
    lines += [f"{rule} {rule}", "end of defined options"]
    streams.stderr.write("".join(f"{name}: {line}\n" for line in lines))


def named_cluster(name: str, options: Options, streams: Streams, reader: Reader) -> str:
    """The cluster that -M names; only this one is known. "" where none is named."""
    if not options.clusters and not options.origin.keys() & {"cluster", "clusters"}:
        return ""
    own = reader.status().cluster_name
    lines = other_clusters(options.clusters, own)
    # The job goes to one of those that are named.
    if lines and lines[-1].startswith("'"):
        raise Refusal(*lines)
    streams.stderr.writelines(f"{name}: error: {line}\n" for line in lines)
    return own


def submitted(
    name: str, request: SubmitJob, streams: Streams, reader: Reader, process: Process
) -> Reply:
    """The controller's answer; a controller that has no room, or is not there, is asked again.
    Raises ControllerDown."""
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
            error(streams, name, "Slurm temporarily unable to accept job, sleeping and retrying")
            streams.stderr.flush()
        process.sleep(float(tries))


def test_only(
    name: str,
    options: Options,
    request: SubmitJob,
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    """When the job could start; none is made. Returns the exit code."""
    import msgspec

    from gsched.client import ControllerDown
    from gsched.wire.messages import Forecast, Refused
    from gsched_cli.text import timestamp

    request.test_only = True
    try:
        named_cluster(name, options, streams, reader)
        reply = submitted(name, request, streams, reader, process)
    except ControllerDown as down:
        streams.stderr.write(f"allocation failure: {down}\n")
        return 1
    if isinstance(reply, Refused):
        for note in reply.notes:
            error(streams, name, note)
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
        f"{name}: Job {reply.value} to start at {when} a using {found.cpus} processors {where}\n"
    )
    return 0
