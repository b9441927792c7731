"""sattach: follows a running step: its output here, and standard input to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gsched.errors import message
from gsched.request import Refusal
from gsched_cli import reach
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.getopt_long import Arg, OptionError, parse
from gsched_cli.option_values import number
from gsched_cli.plan import OWN, Plan
from gsched_cli.process import Process
from gsched_cli.submission import REFUSED, guarded

NAME = "sattach"
_LONG = {
    "error-filter": (Arg.YES, "error-filter"),
    "help": (Arg.NO, "h"),
    "input-filter": (Arg.YES, "input-filter"),
    "label": (Arg.NO, "l"),
    "layout": (Arg.NO, "layout"),
    "output-filter": (Arg.YES, "output-filter"),
    "pty": (Arg.NO, "pty"),
    "quiet": (Arg.NO, "Q"),
    "usage": (Arg.NO, "u"),
    "verbose": (Arg.NO, "v"),
    "version": (Arg.NO, "V"),
}
_USAGE = "Usage: sattach [options] <jobid.stepid>\n"
_HELP = f"""{_USAGE}
Options:
      --input-filter=N    standard input to task N alone
      --output-filter=N   standard output of task N alone
      --error-filter=N    standard error of task N alone
  -l, --label             number of the task before each line
      --layout            only say how the tasks lie
      --pty               task 0 has a terminal
  -Q, --quiet             say nothing but errors
  -v, --verbose           tell more (may be repeated)
  -V, --version           print the version
  -h, --help              this text
  -u, --usage             a short summary
"""


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    streams: Streams,
    reader: Reader,
    process: Process | None = None,
) -> int:
    """Runs `sattach argv`; returns its exit code. `process` is what the caller knows of itself."""
    own = process or Process.current()
    return guarded(NAME, streams, env, lambda: _run(argv, env, streams, reader, own))


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    try:
        said, operands = parse(argv, "hlQuvV", _LONG)
    except OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "sattach --help" for more information\n')
        return 1
    options: dict[str, str] = {}
    for key, value in said:
        if key in {"h", "u", "V"}:
            text = {"h": _HELP, "u": _USAGE, "V": version_line()}[key]
            streams.stdout.write(text)
            return 0
        options[key] = value or ""
    filters = {
        name: number(options[name], name, 0)
        for name in ("input-filter", "output-filter", "error-filter")
        if name in options
    }
    if len(operands) != 1:
        # Slurm says so of none, too.
        return _refused(streams, "too many parameters")
    job, dot, step = operands[0].partition(".")
    if not dot:
        return _refused(streams, "Failed to parse stepid from command line options")
    if not (_NUMBER.fullmatch(job) and _NUMBER.fullmatch(step)):
        raise Refusal(f"Bad step specified: {operands[0]}", kind="fatal")
    if filters and "pty" in options:
        raise Refusal("--input/output/error-filter cannot be used with --pty", kind="fatal")
    return _attach(int(job), int(step), filters, options, env, streams, reader, process)


_NUMBER = re.compile(r"[0-9]{1,9}")


def _refused(streams: Streams, what: str) -> int:
    error(streams, NAME, what)
    streams.stderr.write(_USAGE)
    return REFUSED


def _attach(
    job: int,
    step: int,
    filters: Mapping[str, int],
    options: Mapping[str, str],
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
    process: Process,
) -> int:
    from gsched.client import ControllerDown
    from gsched.wire.steps import AttachStep, NotTaken

    mover = process.mover
    assert mover is not None
    layout = "layout" in options
    question = AttachStep(
        reader.new_request_id(),
        job,
        step,
        reach.callback(reader.settings(), mover),
        task=filters.get("output-filter", -1),
        stdin=not layout,
        layout_only=layout,
    )
    try:
        answer = reach.ask(question, job, reader, env, process)
    except ControllerDown as down:
        error(streams, NAME, f"Could not get job step info: {down}")
        return REFUSED
    if isinstance(answer, NotTaken):
        # Of a job that has ended nothing is known either.
        why = reach.reason(answer)
        if answer.code == "ESLURM_ALREADY_DONE":
            why = message("ESLURM_INVALID_JOB_ID")
        error(streams, NAME, f"Could not get job step info: {why}")
        return REFUSED
    plan = Plan("attach", job)
    plan.say("stdin", "" if layout else OWN)
    plan.say("stdout", OWN)
    plan.say("stderr", OWN)
    for name, key in (
        ("input-filter", "stdin_task"),
        ("output-filter", "stdout_task"),
        ("error-filter", "stderr_task"),
    ):
        if name in filters:
            plan.say(key, str(filters[name]))
    plan.flag("label", "l" in options)
    plan.flag("pty", "pty" in options)
    plan.flag("quiet", "Q" in options)
    return mover.follow(plan.packed())


def main() -> NoReturn:
    from gsched_cli.own_mover import with_mover

    command_main(NAME, with_mover(NAME, run))
