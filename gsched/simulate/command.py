"""`gsched yardstick ...`: the scheduler behind the formats of published comparisons."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gsched.simulate import yardstick_fgd, yardstick_queue

_FOLDER = click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.group()
def yardstick() -> None:
    """Play a yardstick's folder with the code that schedules."""


@yardstick.command()
@_FOLDER
@click.option(
    "--policy",
    type=click.Choice(list(yardstick_fgd.POLICIES)),
    default=yardstick_fgd.DEFAULT_POLICY,
    show_default=True,
    help="How nodes and GPUs are chosen.",
)
def fgd(directory: Path, policy: str) -> None:
    """GPU shares in a cluster that only fills: DIRECTORY/nodes.csv, history.csv and tasks.csv in,
    placements.csv out. With an empty tasks.csv each task is read from standard input and answered
    before the next."""
    try:
        yardstick_fgd.run(directory, policy, sys.stdin, sys.stdout)
    except yardstick_fgd.YardstickError as problem:
        raise click.ClickException(str(problem)) from None


@yardstick.command()
@_FOLDER
@click.option(
    "--policy",
    type=click.Choice(yardstick_queue.POLICIES),
    default="easy",
    show_default=True,
    help="Who may overtake: none who delays the first, or none who delays anybody.",
)
@click.option(
    "--order",
    type=click.Choice(yardstick_queue.ORDERS),
    default="arrival",
    show_default=True,
    help="Who is first: by arrival, by time limit, by time limit x GPUs.",
)
def queue(directory: Path, policy: str, order: str) -> None:
    """Jobs for a pool of GPUs that are all alike: DIRECTORY/cluster.json and jobs.csv in,
    schedule.csv out."""
    try:
        yardstick_queue.run(directory, policy, order)
    except yardstick_fgd.YardstickError as problem:
        raise click.ClickException(str(problem)) from None
