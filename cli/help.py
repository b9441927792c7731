"""--help and --usage, rendered by click from the option table. Imported only when asked for."""

from __future__ import annotations

import textwrap

import click

from gsched_cli.options import NONE, OPTIONAL, OPTIONS, Option


def _left(option: Option) -> str:
    start = f"-{option.short}, " if option.short else "    "
    if option.argument == NONE:
        return f"{start}--{option.name}"
    value = f"[={option.metavar}]" if option.argument == OPTIONAL else f"={option.metavar}"
    return f"{start}--{option.name}{value}"


def sbatch_help() -> str:
    """The text of `sbatch --help`."""
    formatter = click.HelpFormatter(width=80)
    formatter.write_usage("sbatch", "[OPTIONS...] script [args...]")
    for title, wanted in (
        ("Options", True),
        ("Options that are accepted but have no effect in this release", False),
    ):
        with formatter.section(title):
            formatter.write_dl(
                [(_left(option), option.help) for option in OPTIONS if option.effect is wanted],
                col_max=28,
            )
    return formatter.getvalue()


def sbatch_usage() -> str:
    """The text of `sbatch --usage`."""
    words = []
    for option in OPTIONS:
        left = _left(option).strip()
        words.append(f"[{left.rpartition(', ')[2]}]")
    # An option is not broken at its hyphens: click's own usage text would do that.
    lines = textwrap.wrap(" ".join([*words, "script", "[args...]"]), 66, break_on_hyphens=False)
    return "Usage: sbatch " + ("\n" + " " * 14).join(lines) + "\n"
