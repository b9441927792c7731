"""sstat: what running steps use now, as the nodes see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched.model.step import step_name, step_number
from gsched_cli import getopt_long
from gsched_cli.columns import BadField, delimited, help_names, parse_format, table
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.fields_sstat import COLUMNS, DEFAULT, PIDS, Use
from gsched_cli.getopt_long import Arg
from gsched_cli.sstat_help import HELP, USAGE
from gsched_cli.stepview import load_steps
from gsched_cli.stop import Stop, asking

if TYPE_CHECKING:
    from gsched.model.job import Job
    from gsched.wire.steps import StepUse

NAME = "sstat"
_NO, _YES = Arg.NO, Arg.YES
_SHORT = "aehij:no:pPvV"
_LONG: dict[str, tuple[Arg, str]] = {
    "allsteps": (_NO, "a"),
    "helpformat": (_NO, "e"),
    "help": (_NO, "h"),
    "jobs": (_YES, "j"),
    "noheader": (_NO, "n"),
    "fields": (_YES, "o"),
    "format": (_YES, "o"),
    "noconvert": (_NO, "noconvert"),
    "parsable": (_NO, "p"),
    "parsable2": (_NO, "P"),
    "pidformat": (_NO, "i"),
    "usage": (_NO, "usage"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
}
_ID = re.compile(r"(\d{1,9})(?:_(\d{1,9})|\+(\d{1,3}))?(?:\.(.*))?", re.ASCII)


class _Wanted:
    """What the options ask for."""

    def __init__(self) -> None:
        #: (as written, job, task or -1, step or None)
        self.jobs: list[tuple[str, int, int, int | None]] = []
        self.all_steps = False
        self.format = DEFAULT
        self.header = True
        #: "" a table, "p" or "P" with |
        self.parsable = ""
        self.convert = True


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = _options(argv, streams)
        shown = parse_format(wanted.format, COLUMNS, everything=False)
        pids = any(one.column.name == "Pids" for one in shown)
        uses = (use for each in wanted.jobs for use in _uses(*each, wanted, pids, streams, reader))
        if wanted.parsable:
            last = wanted.parsable == "p"
            lines = delimited(shown, uses, wanted.header, "|", last=last)
        else:
            lines = table(shown, uses, wanted.header)
        streams.stdout.writelines(lines)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f"{NAME}: {problem}\n")
        return 1
    except BadField as field:
        error(streams, NAME, f'Invalid field requested: "{field}"')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code
    return 0


def main() -> NoReturn:
    command_main(NAME, run)


def _options(argv: Sequence[str], streams: Streams) -> _Wanted:
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = _Wanted()
    texts = list(operands)
    for key, value in given:
        if key == "a":
            wanted.all_steps = True
        elif key == "i":
            wanted.format = PIDS
        elif key == "j":
            texts.append(value or "")
        elif key == "n":
            wanted.header = False
        elif key == "o":
            wanted.format = value or ""
        elif key in ("p", "P"):
            wanted.parsable = key
        elif key == "noconvert":
            wanted.convert = False
        elif key in ("V", "h", "usage", "e"):
            text = {"V": version_line(), "h": HELP, "usage": USAGE, "e": help_names(COLUMNS)}[key]
            streams.stdout.write(text)
            raise Stop(0)
    for text in ",".join(texts).split(","):
        if text.strip():
            wanted.jobs.append(_named(text.strip()))
    if not wanted.jobs:
        raise Stop(1, f"{NAME}: error: You didn't give me any jobs to stat.\n")
    return wanted


def _named(text: str) -> tuple[str, int, int, int | None]:
    match = _ID.fullmatch(text)
    step = step_number(match[4]) if match and match[4] is not None else None
    if match is None or (match[4] is not None and step is None):
        raise Stop(1, f"{NAME}: fatal: Bad job/step specified: {text}\n")
    job = int(match[1]) + int(match[3] or 0)
    return text.partition(".")[0], job, int(match[2]) if match[2] else -1, step


# ---- asking ----------------------------------------------------------------------------------


def _uses(
    text: str,
    number: int,
    task: int,
    step: int | None,
    wanted: _Wanted,
    pids: bool,
    streams: Streams,
    reader: Reader,
) -> Iterable[Use]:
    """What the steps of one job use; why not goes to standard error."""
    job = _job(number, task, reader)
    if job is None:
        error(streams, NAME, f"couldn't get steps for JobId={text}")
        return
    views = {
        view.number: view
        for view in load_steps(reader, f"{NAME}: error:", job_ids=[job.id], as_told=True)
        if view.job.id == job.id
    }
    found = _asked(job, [] if step is None else [step], pids, streams, reader) if views else []
    if found is None:
        return
    if step is None and not wanted.all_steps:
        # The first one that srun has made.
        found = sorted((use for use in found if use.step >= 0), key=lambda use: use.step)[:1]
    if not found:
        missing = f"No steps running for JobId={text}"
        if step is not None:
            missing = f"StepId={text}.{step_name(step)} not found running."
        error(streams, NAME, missing)
    for use in found:
        view = views.get(use.step)
        yield Use(
            view.view.id_text if view is not None else text,
            step_name(use.step),
            use,
            view.tres if view is not None else "",
            job.sluid,
            convert=wanted.convert,
        )


def _job(number: int, task: int, reader: Reader) -> Job | None:
    """The record that is meant: of an array its task, of a heterogeneous job its first part."""
    from gsched.wire.messages import JobQuery

    jobs = asking(lambda: reader.jobs(JobQuery(ids=[number])), f"{NAME}: error:").jobs
    for job in jobs:
        if task >= 0:
            if job.array_job_id == number and job.array_task_id == task:
                return job
        elif job.id == number:
            return job
    return None


def _asked(
    job: Job, steps: list[int], pids: bool, streams: Streams, reader: Reader
) -> list[StepUse] | None:
    """What the agent that leads the job says; None where that was an error, which is told."""
    from gsched.client import ControllerDown
    from gsched.wire.codec import BadMessage
    from gsched.wire.messages import AskAgent, Done
    from gsched.wire.steps import FromAgent, StatSteps, Usages
    from gsched.wire.usertext import decode, encode

    leader = job.het_job_id or job.id
    try:
        reply = reader.call(AskAgent(leader, encode(StatSteps(leader, steps, pids))))
    except ControllerDown as down:
        raise Stop(1, f"{NAME}: error: {down}\n") from None
    if not isinstance(reply, Done):
        if reply.code == "ESLURM_ALREADY_DONE":
            return []
        error(streams, NAME, f"couldn't get steps for JobId={job.id}: {reply.message}")
        return None
    try:
        answer = decode(FromAgent, reply.blob)
    except BadMessage as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None
    if isinstance(answer, Usages):
        return answer.steps
    if answer.unknown:
        return []
    streams.stderr.write(f"{NAME}: {answer.message}\n")
    return None
