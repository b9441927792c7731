"""The configuration of `srun --multi-prog`: which program each task runs.

Pure. The grammar and the sentences are srun's: "RANKS PROGRAM ARGUMENTS", # in the first column for
comments, a backslash joins lines, single quotes keep what is inside as it is, %t is the task and
%o its place among the ranks of the line.
"""

from __future__ import annotations

import msgspec


class MultiProgError(ValueError):
    """The text cannot be used; a line for each of srun's sentences (without "srun: error: ")."""


class _Line(msgspec.Struct):
    #: ranks in the order given; () for *
    ranks: tuple[int, ...]
    everything: bool
    #: program and arguments: pieces of text, those in quotes apart
    words: list[list[tuple[str, bool]]]


def multi_prog(text: str, ntasks: int, name: str = "") -> list[list[str]]:
    """The argv of each task. Raises MultiProgError. Cost: the text, and tasks."""
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
    argvs = []
    for task in range(ntasks):
        entry = owner.get(task) or ((task, rest) if rest else None)
        if entry is None:
            raise MultiProgError(f"Configuration file {name} invalid, no record for task id {task}")
        offset, line_found = entry
        argvs.append([_expand(word, task, offset) for word in line_found.words])
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
        return _Line((), True, words[1:])
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"Invalid task range specification ({item})")
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"Invalid task range, {low}-{high}")
        if high >= ntasks:
            raise ValueError(f"Invalid task id, {high} >= ntasks")
        ranks += range(low, high + 1)
    return _Line(tuple(ranks), False, words[1:])


def _words(line: str) -> list[list[tuple[str, bool]]]:
    words: list[list[tuple[str, bool]]] = []
    word: list[tuple[str, bool]] | None = None
    at = 0
    while at < len(line):
        char = line[at]
        if char.isspace():
            if word is not None:
                words.append(word)
            word, at = None, at + 1
            continue
        word = [] if word is None else word
        if char == "'":
            end = line.find("'", at + 1)
            end = len(line) if end < 0 else end
            word.append((line[at + 1 : end], True))
            at = end + 1
        elif char == "\\" and at + 1 < len(line):
            word.append((line[at + 1], True))
            at += 2
        else:
            word.append((char, False))
            at += 1
    if word is not None:
        words.append(word)
    return [_joined(word) for word in words]


def _joined(word: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Neighbouring pieces of the same kind as one."""
    found: list[tuple[str, bool]] = []
    for text, quoted in word:
        if found and found[-1][1] == quoted:
            found[-1] = (found[-1][0] + text, quoted)
        else:
            found.append((text, quoted))
    return found


def _expand(word: list[tuple[str, bool]], task: int, offset: int) -> str:
    pieces = []
    for text, quoted in word:
        if quoted:
            pieces.append(text)
            continue
        first, *others = text.split("%")
        pieces.append(first)
        for other in others:
            # What is none of the two is left out.
            value = {"t": str(task), "o": str(offset)}.get(other[:1], "")
            pieces.append(value + other[1:])
    return "".join(pieces)
