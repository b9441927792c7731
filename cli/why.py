"""`gsched why`: the whole verdict on a job that waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from gsched.client import ControllerDown, RequestRefused
from gsched.model.why import SCHEMA, Why
from gsched.units import parse_time_point
from gsched.wire.messages import ExplainJob, Refused
from gsched_cli import why_words
from gsched_cli.common import LazyReader, Reader
from gsched_cli.stop import UNREACHABLE
from gsched_cli.text import timestamp

#: jobs that one request is answered for
MOST_JOBS = 32


class Unexplained(Exception):
    """There is no verdict; one sentence."""


def verdicts(reader: Reader, ids: Sequence[str], at: int = 0) -> list[Why]:
    """Asks the controller; raises Unexplained."""
    try:
        reply = reader.call(ExplainJob(list(ids), at))
    except ControllerDown:
        raise Unexplained(UNREACHABLE) from None
    except RequestRefused as refusal:
        raise Unexplained(str(refusal)) from None
    if isinstance(reply, Refused):
        raise Unexplained(reply.message)
    try:
        return msgspec.json.decode(reply.data, type=list[Why])
    except msgspec.DecodeError:
        raise Unexplained("the controller's answer cannot be read") from None


def as_json(found: list[Why], env: Mapping[str, str]) -> str:
    """The documented form, with each cause in words beside it."""
    jobs = [_with_text(why, env) for why in found]
    text = msgspec.json.encode({"schema": SCHEMA, "jobs": jobs})
    return msgspec.json.format(text, indent=2).decode()


def _with_text(why: Why, env: Mapping[str, str]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(why)
    texts = why_words.sentences(why, _when(why, env))
    for cause, text in zip(plain["causes"], texts, strict=True):
        cause["text"] = text
    plain["components"] = [_with_text(part, env) for part in why.components]
    return plain


def _when(why: Why, env: Mapping[str, str]) -> why_words.When:
    return lambda moment: timestamp(moment, env, why.now)


def as_text(found: list[Why], env: Mapping[str, str]) -> str:
    """For people."""
    return "\n".join("\n".join([*why_words.lines(why, _when(why, env)), ""]) for why in found)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--at", "moment", metavar="TIME", help="Would it start then? As for sbatch --begin.")
@click.option("--json", "wants_json", is_flag=True, help="The same for programs (docs/why.md).")
def why(jobs: tuple[str, ...], moment: str | None, wants_json: bool) -> None:
    """Say why JOB waits, when it is expected to start, and what would start now.

    JOB is a job id, ARRAY_TASK, or LEADER+COMPONENT of a heterogeneous job.
    """
    reader = LazyReader(os.environ)
    at = 0
    if moment is not None:
        try:
            at = parse_time_point(moment, int(reader.now()))
        except ValueError as problem:
            raise click.ClickException(f"--at {moment}: {problem}") from None
    try:
        found = verdicts(reader, jobs, at)
    except Unexplained as problem:
        raise click.ClickException(str(problem)) from None
    env = dict(os.environ)
    sys.stdout.write(as_json(found, env) + "\n" if wants_json else as_text(found, env))
