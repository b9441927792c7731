"""The configuration of `srun --multi-prog`: which program each task runs.

Pure. The grammar and the sentences are srun's: "RANKS PROGRAM ARGUMENTS", # in the first column for
comments, a backslash joins lines, single quotes keep what is inside as it is, %t is the task and
%o its place among the ranks of the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

#: characters of all programs and arguments that are made at once
MOST_BYTES = 64 << 20

#: blanks; text in single quotes, which may lack its end; a backslash and what is after it; the rest
_PIECE = re.compile(r"(\s+)|('[^']*'?)|(\\.?)|([^\s'\\]+)", re.DOTALL)


class MultiProgError(ValueError):
    """The text cannot be used; a line for each of srun's sentences (without "srun: error: ")."""


#: a word of a program's command: its text, cut at each %o into parts and those at each %t
_Word = list[list[str]]


class _Line(msgspec.Struct):
    #: ranks in the order given; () for *
    ranks: tuple[int, ...]
    everything: bool
    #: program and arguments
    words: list[_Word]


def multi_prog(
    text: str, ntasks: int, name: str = "", tasks: Sequence[int] | None = None
) -> list[list[str]]:
    """The argv of each of `tasks`, where they are not named of all. Raises MultiProgError for a
    text that does not fit all of them. Cost: the text, tasks, and what is answered."""
    owner: dict[int, tuple[int, _Line]] = {}
    rest: _Line | None = None
    for number, line in _lines(text):
        try:
            found = _parse(line, ntasks)
        except ValueError as error:
            where = f"Line {number} of configuration file {name} invalid"
            raise MultiProgError("\n".join(filter(None, (str(error), where)))) from None
        for offset, rank in enumerate(found.ranks):
            if rank in owner:
                raise MultiProgError(
                    f"Duplicate record for task {rank}\n"
                    f"Line {number} of configuration file {name} invalid"
                )
            owner[rank] = (offset, found)
        if found.everything:
            rest = rest or found
    for task in range(ntasks) if rest is None else ():
        if task not in owner:
            raise MultiProgError(f"Configuration file {name} invalid, no record for task id {task}")
    argvs = []
    room = MOST_BYTES
    for task in range(ntasks) if tasks is None else tasks:
        offset, line_found = owner[task] if task in owner or rest is None else (task, rest)
        argvs.append([_expand(word, task, offset) for word in line_found.words])
        room -= sum(map(len, argvs[-1]))
        if room < 0:
            raise MultiProgError("Argument list too long")
    return argvs


def _lines(text: str) -> list[tuple[int, str]]:
    """(number of its first line, text) of each line that says something."""
    found: list[tuple[int, str]] = []
    pending, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            start = number
            if line.startswith("#"):
                continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1]
            continue
        if (pending + line).strip():
            found.append((start, pending + line))
        pending = ""
    if pending.strip():
        found.append((start, pending))
    return found


def _parse(line: str, ntasks: int) -> _Line:
    """ValueError with srun's sentence, "" where it has none but that the line is invalid."""
    words = _words(line.strip())
    if len(words) < 2:
        raise ValueError("")
    ranks: list[int] = []
    text = "".join(piece for piece, _ in words[0])
    if text == "*":
        return _Line((), True, [_template(word) for word in words[1:]])
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"Invalid task range specification ({item})")
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"Invalid task range, {low}-{high}")
        if high >= ntasks:
            raise ValueError(f"Invalid task id, {high} >= ntasks")
        if len(ranks) <= ntasks:
            # More than there are tasks name one of them twice, which is seen as well by then.
            ranks += range(low, high + 1)
    return _Line(tuple(ranks), False, [_template(word) for word in words[1:]])


def _words(line: str) -> list[list[tuple[str, bool]]]:
    words: list[list[tuple[str, bool]]] = []
    word: list[tuple[str, bool]] | None = None
    for space, quote, escape, plain in _PIECE.findall(line):
        if space:
            if word is not None:
                words.append(word)
            word = None
            continue
        word = [] if word is None else word
        if quote:
            word.append((quote[1:].removesuffix("'") if len(quote) > 1 else "", True))
        else:
            word.append((escape[1:], True) if len(escape) > 1 else (escape or plain, False))
    if word is not None:
        words.append(word)
    return [_joined(word) for word in words]


def _joined(word: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Neighbouring pieces of the same kind as one."""
    runs = itertools.groupby(word, key=lambda piece: piece[1])
    return [("".join(text for text, _ in run), quoted) for quoted, run in runs]


def _template(word: list[tuple[str, bool]]) -> _Word:
    """What is in quotes is no pattern; a % before another letter is left out with it."""
    parts = [[""]]
    for text, quoted in word:
        first, *others = (text,) if quoted else text.split("%")
        parts[-1][-1] += first
        for other in others:
            if other.startswith("t"):
                parts[-1].append(other[1:])
            elif other.startswith("o"):
                parts.append([other[1:]])
            else:
                parts[-1][-1] += other[1:]
    return parts


def _expand(word: _Word, task: int, offset: int) -> str:
    return str(offset).join([str(task).join(between) for between in word])
