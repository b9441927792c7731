"""--help and --usage, rendered by click from the option table. Imported only when asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

import click

from gsched_cli.options import NONE, OPTIONAL, OPTIONS, Option


def _left(option: Option) -> str:
    start = f"-{option.short}, " if option.short else "    "
    if option.argument == NONE:
        return f"{start}--{option.name}"
    value = f"[={option.metavar}]" if option.argument == OPTIONAL else f"={option.metavar}"
    return f"{start}--{option.name}{value}"


def _help(name: str, table: Iterable[Option], words: str) -> str:
    formatter = click.HelpFormatter(width=80)
    formatter.write_usage(name, f"[OPTIONS...] {words}")
    options = list(table)
    for title, wanted in (
        ("Options", True),
        ("Options that are accepted but have no effect in this release", False),
    ):
        with formatter.section(title):
            formatter.write_dl(
                [(_left(option), option.help) for option in options if option.effect is wanted],
                col_max=28,
            )
    return formatter.getvalue()


def _usage(name: str, table: Iterable[Option], words: str) -> str:
    found = []
    for option in table:
        left = _left(option).strip()
        found.append(f"[{left.rpartition(', ')[2]}]")
    # An option is not broken at its hyphens: click's own usage text would do that.
    lines = textwrap.wrap(" ".join([*found, words]), 66, break_on_hyphens=False)
    return f"Usage: {name} " + ("\n" + " " * 14).join(lines) + "\n"


def sbatch_help() -> str:
    """The text of `sbatch --help`."""
    return _help("sbatch", OPTIONS, "script [args...]")


def sbatch_usage() -> str:
    """The text of `sbatch --usage`."""
    return _usage("sbatch", OPTIONS, "script [args...]")


def launch_help(name: str, table: Mapping[str, Option], words: str) -> str:
    """The text of `srun --help` and `salloc --help`."""
    return _help(name, table.values(), words)


def launch_usage(name: str, table: Mapping[str, Option], words: str) -> str:
    """The text of `srun --usage` and `salloc --usage`."""
    return _usage(name, table.values(), words)
