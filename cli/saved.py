"""`gsched saved`: a job that has to make way says that its work is saved, from any of its nodes."""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--checkpoint", is_flag=True, help="A checkpoint is written, and the job works on.")
def saved(checkpoint: bool) -> None:
    """Say within a job that its work is saved.

    One that has to make way ends at once then, and its nodes are handed over. With --checkpoint
    it works on: less is lost by ending it, so others are asked first.
    """
    name = "GSCHED_CHECKPOINT_DONE" if checkpoint else "GSCHED_PREEMPT_SAVED"
    path = os.environ.get(name, "")
    if not path:
        raise click.ClickException(f"{name} is not set: this is said within a job")
    try:
        with open(path, "ab"):
            os.utime(path)
    except OSError as problem:
        raise click.ClickException(f"{path}: {problem.strerror}") from None
