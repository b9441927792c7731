"""Walks a command line over the option table exactly as the C library's getopt_long does.

Not click: Slurm's users rely on what getopt_long does and says, to the byte ("unrecognized option
'--nosuch=3'", "option '--no' is ambiguous; possibilities: ..."), on unique prefixes, on `-kH` where
-k takes an optional value, and on options ending at the script's name. click answers each in its
own way, and importing it costs more than the rest of sbatch; it renders --help, from this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gsched_cli.options import BY_NAME, BY_SHORT, NONE, REQUIRED, Option


class UsageError(Exception):
    """A command line that getopt_long would complain about; the text is its complaint."""


def walk(
    argv: Sequence[str],
    by_name: Mapping[str, Option] = BY_NAME,
    by_short: Mapping[str, Option] = BY_SHORT,
) -> tuple[list[tuple[Option, str | None]], list[str]]:
    """(options in order with their values, what follows them) of `argv` without argv[0].

    Stops at the first word that is not an option, or behind "--". Raises UsageError. Cost: one
    look at each word, and at every name for an abbreviation.
    """
    said: list[tuple[Option, str | None]] = []
    place = 0
    while place < len(argv):
        word = argv[place]
        if word == "--":
            return said, list(argv[place + 1 :])
        if len(word) < 2 or word[0] != "-":
            break
        place += 1
        if word[1] == "-":
            place = _long(word, argv, place, by_name, said)
        else:
            place = _short(word, argv, place, by_short, said)
    return said, list(argv[place:])


def _long(
    word: str,
    argv: Sequence[str],
    place: int,
    by_name: Mapping[str, Option],
    said: list[tuple[Option, str | None]],
) -> int:
    name, equals, value = word[2:].partition("=")
    option = by_name.get(name)
    if option is None:
        matches = [known for known in by_name if known.startswith(name)]
        if not matches:
            raise UsageError(f"unrecognized option '{word}'")
        if len(matches) > 1:
            possible = " ".join(f"'--{match}'" for match in matches)
            raise UsageError(f"option '{word}' is ambiguous; possibilities: {possible}")
        option = by_name[matches[0]]
    if equals:
        if option.argument == NONE:
            raise UsageError(f"option '--{option.name}' doesn't allow an argument")
        said.append((option, value))
    elif option.argument == REQUIRED:
        if place >= len(argv):
            raise UsageError(f"option '--{option.name}' requires an argument")
        said.append((option, argv[place]))
        place += 1
    else:
        said.append((option, None))
    return place


def _short(
    word: str,
    argv: Sequence[str],
    place: int,
    by_short: Mapping[str, Option],
    said: list[tuple[Option, str | None]],
) -> int:
    for at, letter in enumerate(word[1:], 1):
        option = by_short.get(letter)
        if option is None:
            raise UsageError(f"invalid option -- '{letter}'")
        if option.argument == NONE:
            said.append((option, None))
            continue
        rest = word[at + 1 :]
        if rest:
            said.append((option, rest))
        elif option.argument == REQUIRED:
            if place >= len(argv):
                raise UsageError(f"option requires an argument -- '{letter}'")
            said.append((option, argv[place]))
            place += 1
        else:
            said.append((option, None))
        break
    return place
