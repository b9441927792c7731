"""getopt_long as the GNU C library does it: permuted operands, bundled short options, unique
prefixes of long options, and its messages. The standard library's `getopt` differs in all of these.

For the commands that read and control. The commands that allocate walk their option table with
`getopt.walk`, which stops at the script's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum


class Arg(Enum):
    """Whether an option takes an argument."""

    NO = 0
    YES = 1
    #: only as `--name=value` or `-xvalue`
    MAYBE = 2


class OptionError(Exception):
    """A command line getopt_long refuses; `str()` is its sentence without the program's name."""


Options = list[tuple[str, str | None]]


def parse(
    argv: Sequence[str], short: str, long: Mapping[str, tuple[Arg, str]]
) -> tuple[Options, list[str]]:
    """Splits `argv` into (options, operands).

    `short` is the C library's optstring ("ab:c::"); `long` maps a long name to (argument, key).
    An option comes out as (key, value or None); a short option's key is its letter. Raises
    OptionError. Cost: one pass, plus one pass over `long` per long option that is not exact.
    """
    letters = _letters(short)
    found: Options = []
    operands: list[str] = []
    rest = list(argv)
    place = 0
    while place < len(rest):
        word = rest[place]
        place += 1
        if word == "--":
            operands.extend(rest[place:])
            break
        if word.startswith("--"):
            place = _long(word, rest, place, long, found)
        elif len(word) > 1 and word[0] == "-":
            place = _bundle(word, rest, place, letters, found)
        else:
            operands.append(word)
    return found, operands


def _letters(short: str) -> dict[str, Arg]:
    letters: dict[str, Arg] = {}
    place = 0
    while place < len(short):
        letter = short[place]
        colons = 0
        while short[place + 1 + colons : place + 2 + colons] == ":":
            colons += 1
        letters[letter] = (Arg.NO, Arg.YES, Arg.MAYBE)[colons]
        place += 1 + colons
    return letters


def _bundle(word: str, rest: list[str], place: int, letters: dict[str, Arg], found: Options) -> int:
    for at, letter in enumerate(word[1:], 1):
        kind = letters.get(letter)
        if kind is None:
            raise OptionError(f"invalid option -- '{letter}'")
        if kind is Arg.NO:
            found.append((letter, None))
            continue
        value: str | None = word[at + 1 :] or None
        if value is None and kind is Arg.YES:
            if place >= len(rest):
                raise OptionError(f"option requires an argument -- '{letter}'")
            value = rest[place]
            place += 1
        found.append((letter, value))
        break
    return place


def _long(
    word: str,
    rest: list[str],
    place: int,
    long: Mapping[str, tuple[Arg, str]],
    found: Options,
) -> int:
    name, equals, text = word[2:].partition("=")
    exact = name if name in long else _complete(word, name, long)
    kind, key = long[exact]
    value: str | None = text if equals else None
    if kind is Arg.NO and equals:
        raise OptionError(f"option '--{exact}' doesn't allow an argument")
    if kind is Arg.YES and value is None:
        if place >= len(rest):
            raise OptionError(f"option '--{exact}' requires an argument")
        value = rest[place]
        place += 1
    found.append((key, value))
    return place


def _complete(word: str, name: str, long: Mapping[str, tuple[Arg, str]]) -> str:
    candidates = [full for full in long if full.startswith(name)]
    if not candidates:
        raise OptionError(f"unrecognized option '{word}'")
    # Several spellings of one option are no ambiguity.
    if len({long[full] for full in candidates}) > 1:
        choices = " ".join(f"'--{full}'" for full in candidates)
        raise OptionError(f"option '{word}' is ambiguous; possibilities: {choices}")
    return candidates[0]
