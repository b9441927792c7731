"""sbcast: copies a file to all nodes of a job.

It is a step of one task on each node, which writes its standard input where the file shall be: the
file is read once, here, as the user, and written there as the user.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched_cli import environ, reach
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.getopt_long import Arg, OptionError, parse
from gsched_cli.plan import OWN, Plan
from gsched_cli.process import Process
from gsched_cli.submission import REFUSED, guarded

if TYPE_CHECKING:
    from gsched.model.step import StepSpec

NAME = "sbcast"
_LONG = {
    "compress": (Arg.MAYBE, "C"),
    "exclude": (Arg.YES, "exclude"),
    "fanout": (Arg.YES, "F"),
    "force": (Arg.NO, "f"),
    "help": (Arg.NO, "help"),
    "jobid": (Arg.YES, "j"),
    "preserve": (Arg.NO, "p"),
    "send-libs": (Arg.MAYBE, "send-libs"),
    "size": (Arg.YES, "s"),
    "timeout": (Arg.YES, "t"),
    "treewidth": (Arg.YES, "F"),
    "usage": (Arg.NO, "usage"),
    "verbose": (Arg.NO, "v"),
    "version": (Arg.NO, "V"),
}
#: variable -> key of the option that it stands for
_VARIABLES = {"SBCAST_FORCE": "f", "SBCAST_PRESERVE": "p"}
_USAGE = "Usage: sbcast [--exclude] [-CfFjpvV] [--send-libs] SOURCE DEST\n"
_HELP = """Usage: sbcast [OPTIONS] SOURCE DEST

Options:
  -C, --compress[=lib]    taken, without effect
      --exclude=paths     taken, without effect
  -f, --force             replace a file that is there
  -F, --fanout=n          taken, without effect
  -j, --jobid=id          the job, with its component (+n) or step (.n)
  -p, --preserve          keep modes and times of the file
      --send-libs[=yes|no]  taken, without effect
  -s, --size=n            taken, without effect
  -t, --timeout=seconds   taken, without effect
      --treewidth=n       taken, without effect
  -v, --verbose           tell more (may be repeated)
  -V, --version           print the version
      --help              this text
      --usage             a short summary
"""

#: What each task does: "$1" the file, "$2" whether it may be replaced, "$3" its mode, "$4" its time
#: of change (both may be empty). A reader never sees half of it under its name.
WRITER = """
said() {
    echo "sbcast: error: REQUEST_FILE_BCAST($SLURMD_NODENAME): $1" >&2
    exit "$2"
}
[ -z "$2" ] && [ -e "$1" ] && said "File exists" 17
[ -d "$1" ] && said "Is a directory" 21
folder=$(dirname -- "$1")
[ -d "$folder" ] || said "No such file or directory" 2
new=$(mktemp -- "$1.XXXXXX" 2>/dev/null) || said "Permission denied" 13
trap 'rm -f -- "$new"' EXIT
cat >"$new" && chmod -- "$3" "$new" || said "Input/output error" 5
[ -z "$4" ] || touch -d "$4" -- "$new"
mv -fT -- "$new" "$1" || said "Input/output error" 5
trap - EXIT
"""


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None = None,
) -> int:
    """Runs `sbcast argv`; returns its exit code. `process` is what the caller knows of itself."""
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
    try:
        said, operands = parse(argv, "C::fF:j:ps:t:vV", _LONG)
    except OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "sbcast --help" for more information\n')
        return 1
    options = {key: "" for name, key in _VARIABLES.items() if name in env}
    for key, value in said:
        if key in {"help", "usage", "V"}:
            streams.stdout.write({"help": _HELP, "usage": _USAGE, "V": version_line()}[key])
            return 0
        options[key] = value or ""
    if len(operands) != 2:
        streams.stderr.write(
            f"Need two file names, have {len(operands)} names\n"
            'Try "sbcast --help" for more information\n'
        )
        return 1
    if "s" in options and not re.match(r"[0-9]+[kKmMgG]?", options["s"]):
        streams.stderr.write("size specification is invalid, ignored\n")
    job = _job(options.get("j", ""), env)
    if not job:
        error(
            streams,
            NAME,
            "Need a job id to run this command.  "
            "Run from within a Slurm job or use the --jobid option.",
        )
        return REFUSED
    source = posixpath.join(cwd, operands[0])
    # The mode and the times of a file are asked for here alone.
    streams.files.own()
    try:
        found = os.stat(source)
        streams.files.read(source, 1)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        error(streams, NAME, f"Can't open `{operands[0]}`: {why}")
        return 255
    changed = found.st_mtime if "p" in options else 0.0
    if operands[1].endswith("/"):
        error(streams, NAME, "Target filename cannot be a directory.")
        return REFUSED
    target = posixpath.normpath(posixpath.join(cwd, operands[1]))
    spec = writer_step(job, target, found.st_mode, changed, "f" in options)
    return _broadcast(spec, source, env, streams, reader, process)


def _job(text: str, env: Mapping[str, str]) -> int:
    """The job named, else the one that this is in; 0 none."""
    for named in (text, env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOBID", "")):
        found = re.match(r"[0-9]{1,9}", named)
        if found:
            return int(found[0])
    return 0


def writer_step(job: int, target: str, mode: int, changed: float, force: bool) -> StepSpec:
    """The step that writes: one task on each node of the job, beside whatever runs there."""
    from gsched.model.step import StepSpec

    time = f"@{changed:.9f}" if changed else ""
    words = [target, "1" if force else "", f"{mode & 0o777:o}", time]
    return StepSpec(
        job_id=job,
        name=NAME,
        argv=["/bin/sh", "-c", WRITER, NAME, *words],
        ntasks_per_node=1,
        overlap=True,
        no_gpus=True,
        origin=NAME,
        program=NAME,
        kill_on_bad_exit=False,
        mpi="none",
        quiet=True,
    )


def _broadcast(
    spec: StepSpec,
    source: str,
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    """Runs the step that writes; its standard input is the file."""
    from gsched.client import ControllerDown
    from gsched.wire.steps import CreateStep, NotTaken

    mover = process.mover
    assert mover is not None
    spec.umask = process.umask
    spec.client_host = process.host
    question = CreateStep(
        reader.new_request_id(),
        spec,
        reach.callback(reader.settings(), mover),
        environ.packed({name: env[name] for name in ("PATH", "TMPDIR") if name in env}),
    )
    try:
        answer = reach.ask(question, spec.job_id, reader, env, process)
    except ControllerDown as down:
        return _no_job(spec.job_id, str(down), streams)
    if isinstance(answer, NotTaken):
        return _no_job(spec.job_id, reach.reason(answer), streams)
    plan = Plan("step", spec.job_id)
    plan.say("stdin", source)
    plan.say("stdout", OWN)
    plan.say("stderr", OWN)
    plan.flag("quiet", True)
    return mover.follow(plan.packed())


def _no_job(job: int, why: str, streams: Streams) -> int:
    error(streams, NAME, f"Slurm job {job} lookup error: {why}")
    return 255


def main() -> NoReturn:
    from gsched_cli.own_mover import with_mover

    command_main(NAME, with_mover(NAME, run))
