"""sreport: who used how much, from accounting's roll-ups and what still runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.sreport_cluster import (
    account_by_user,
    top_usage,
    user_by_account,
    user_by_wckey,
    utilization,
    wckey_by_user,
)
from gsched_cli.sreport_help import HELP
from gsched_cli.sreport_jobs import sizes_by_account, sizes_by_account_and_wckey, sizes_by_wckey
from gsched_cli.sreport_resv import reservations
from gsched_cli.sreport_settings import UNITS, BadCondition, Settings, unit_named
from gsched_cli.stop import Stop

NAME = "sreport"
_NO, _YES = Arg.NO, Arg.YES
_SHORT = "aF:hM:npPQt:T:vV"
_LONG: dict[str, tuple[Arg, str]] = {
    "all_clusters": (_NO, "a"),
    "autocomplete": (_YES, "ignored"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "federation": (_NO, "ignored"),
    "help": (_NO, "h"),
    "local": (_NO, "ignored"),
    "noheader": (_NO, "n"),
    "parsable": (_NO, "p"),
    "parsable2": (_NO, "P"),
    "quiet": (_NO, "Q"),
    "tres": (_YES, "T"),
    "usage": (_NO, "h"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
}
Report = Callable[[Settings, Sequence[str], Streams, Reader], int]
#: keyword -> (what Slurm lists as valid, name -> report)
_REPORTS: dict[str, tuple[str, dict[str, Report]]] = {
    "cluster": (
        '"AccountUtilizationByUser", "UserUtilizationByAccount", "UserUtilizationByWckey", '
        '"Utilization", and "WCKeyUtilizationByUser"',
        {
            "accountutilizationbyuser": account_by_user,
            "userutilizationbyaccount": user_by_account,
            "userutilizationbywckey": user_by_wckey,
            "utilization": utilization,
            "wckeyutilizationbyuser": wckey_by_user,
        },
    ),
    "job": (
        '"SizesByAccount, SizesByAccountAndWcKey, and SizesByWckey"',
        {
            "sizesbyaccount": sizes_by_account,
            "sizesbyaccountandwckey": sizes_by_account_and_wckey,
            "sizesbywckey": sizes_by_wckey,
        },
    ),
    "reservation": ('"Utilization"', {"utilization": reservations}),
    "user": ('"TopUsage"', {"topusage": top_usage}),
}


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    settings = Settings(env)
    try:
        words = _options(settings, argv, streams)
        if words:
            return _command(settings, words, streams, reader)
        return _interactive(settings, streams, reader)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f"{NAME}: {problem}\n")
        streams.stderr.write(f'Try "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _options(settings: Settings, argv: Sequence[str], streams: Streams) -> list[str]:
    given, words = getopt_long.parse(argv, _SHORT, _LONG)
    for key, text in given:
        value = text or ""
        if key == "h":
            streams.stdout.write(HELP)
            raise Stop(0)
        if key == "V":
            streams.stdout.write(version_line())
            raise Stop(0)
        if key == "a":
            settings.all_clusters = True
        elif key == "M":
            settings.clusters = _list(value)
        elif key == "n":
            settings.header = False
        elif key in ("p", "P"):
            settings.parsable = key
        elif key == "Q":
            settings.quiet = True
        elif key == "t":
            _unit(settings, value, streams)
        elif key == "T":
            settings.tres = _list(value)
    return list(words)


def _list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _unit(settings: Settings, text: str, streams: Streams) -> None:
    found = unit_named(text)
    if found is None:
        streams.stderr.write(f"unknown time format {text}")
    else:
        settings.unit = UNITS[found]


def _command(settings: Settings, words: list[str], streams: Streams, reader: Reader) -> int:
    first = words[0].lower()
    if first in ("exit", "quit"):
        if len(words) > 1:
            raise Stop(1, f"too many arguments for keyword:{first}\n")
        raise Stop(0)
    simple = _simple(settings, first, words, streams)
    if simple is not None:
        return simple
    kind = next((name for name in _REPORTS if len(first) >= 1 and name.startswith(first)), None)
    if kind is None:
        streams.stderr.write(f"invalid keyword: {words[0]}\n")
        return 1
    if len(words) < 2:
        streams.stderr.write(f"too few arguments for keyword:{words[0]}\n")
        return 1
    valid, reports = _REPORTS[kind]
    wanted = words[1].lower()
    report = reports.get(wanted) or next(
        (reports[name] for name in reports if name.startswith(wanted)), None
    )
    if report is None:
        streams.stderr.write(f"Not valid report {words[1]}\nValid {kind} reports are, {valid}\n")
        return 1
    try:
        return report(settings, words[2:], streams, reader)
    except BadCondition as bad:
        streams.stderr.write(f"{bad}\n")
        return 1


def _simple(settings: Settings, first: str, words: Sequence[str], streams: Streams) -> int | None:
    """Keywords that are no reports; None: it is none of these."""
    if first == "help":
        streams.stdout.write(HELP)
    elif first == "version":
        streams.stdout.write(version_line())
    elif first in ("parsable", "parsable2", "nonparsable"):
        settings.parsable = {"parsable": "p", "parsable2": "P"}.get(first, "")
    elif first == "noheader":
        settings.header = False
    elif first in ("quiet", "verbose"):
        settings.quiet = first == "quiet"
    elif first == "time":
        if len(words) != 2:
            streams.stderr.write("too few arguments for keyword:time\n")
            return 1
        _unit(settings, words[1], streams)
    else:
        return None
    return 0


def _interactive(settings: Settings, streams: Streams, reader: Reader) -> int:
    """One command a line until the end or "quit"; "!!" is the last one again."""
    code = 0
    last: list[str] = []
    while True:
        streams.stdout.write(f"{NAME}: ")
        streams.stdout.flush()
        line = streams.stdin.readline()
        if not line:
            streams.stdout.write("\n")
            return code
        if not streams.stdin.isatty():
            # As if somebody had written it there.
            streams.stdout.write(line if line.endswith("\n") else f"{line}\n")
        try:
            words = shlex.split(line)
        except ValueError as problem:
            streams.stderr.write(f"{NAME}: {problem}\n")
            code = 1
            continue
        if words == ["!!"]:
            words = last
        if not words:
            continue
        last = words
        try:
            code = max(code, _command(settings, words, streams, reader))
        except Stop as stop:
            streams.stderr.write(stop.text)
            if words[0].lower() in ("quit", "exit"):
                return code
            code = max(code, stop.code)


if __name__ == "__main__":
    main()
