"""The lines of a script that speak to sbatch: `#SBATCH`, and `#PBS` and `#BSUB` of older systems.

The quoting is Slurm's own, not a shell's: quotes and backslashes join and escape anywhere in a
word, an unquoted # ends the line even inside a word, a backslash does not keep a blank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gsched.request import Refusal
from gsched_cli.getopt import walk
from gsched_cli.options import BY_NAME, NOT_IN_SCRIPT, Option

PREFIX = "#SBATCH"


def check_script(script: bytes) -> None:
    """Refuses what cannot be a batch script, in Slurm's words; raises Refusal."""
    # Slurm reads the script as a C string before it looks for NULs in the rest.
    text = script.partition(b"\0")[0]
    if not script:
        raise Refusal("Batch script is empty!")
    if not text.strip():
        raise Refusal("Batch script contains only whitespace!")
    if not script.startswith(b"#!"):
        raise Refusal(
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        )
    if b"\0" in script:
        raise Refusal(
            "The Slurm controller does not allow scripts that",
            "contain a NULL character '\\0'.",
        )
    if b"\r\n" in script:
        raise Refusal(
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        )


def _lines(script: bytes) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines up to the first that is neither comment nor blank."""
    start, number = 0, 0
    while start < len(script):
        end = script.find(b"\n", start)
        end = len(script) if end < 0 else end
        number += 1
        line = script[start:end]
        start = end + 1
        if line.startswith(b"#"):
            yield number, line.decode("utf-8", "surrogateescape")
        elif line.strip() and not line.lstrip().startswith(b"#"):
            # A comment after blanks says nothing to sbatch, and is no command either.
            return


def split(text: str, file: str, number: int) -> list[str]:
    """Words of a directive line (without its prefix); raises Refusal for an open quote."""
    words: list[str] = []
    word: list[str] = []
    inside = False
    quote = ""
    place = 0
    # Where the word that is read begins; of a later one, the blanks before it.
    begun = len(text) - len(text.lstrip())
    while place < len(text):
        char = text[place]
        place += 1
        if char == "\\" and place < len(text) and (quote or not text[place].isspace()):
            word.append(text[place])
            inside = True
            place += 1
        elif char == "\\":
            # At the end of a line or before a blank it stands for nothing.
            continue
        elif quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in "'\"":
            quote = char
            inside = True
        elif char == "#":
            break
        elif char.isspace():
            if inside:
                words.append("".join(word))
                begun = place - 1
            word, inside = [], False
        else:
            word.append(char)
            inside = True
    if quote:
        raise Refusal(
            f"{file}: line {number}: Unmatched `{quote}` in [{text[begun:]}]", kind="fatal"
        )
    if inside:
        words.append("".join(word))
    return words


def sbatch_lines(script: bytes, file: str) -> list[list[tuple[Option, str | None]]]:
    """What the `#SBATCH` lines say, in order, for each component of a heterogeneous job (they are
    parted by `#SBATCH hetjob`); one list for an ordinary job.

    Raises Refusal for words that are no option, UsageError for unknown options. Options that make
    no sense in a script (--help, --wrap) are passed over.
    """
    components: list[list[tuple[Option, str | None]]] = [[]]
    for number, line in _lines(script):
        if not line.startswith(PREFIX):
            continue
        words = split(line[len(PREFIX) :], file, number)
        if words in (["hetjob"], ["packjob"]):
            components.append([])
            continue
        options, rest = walk(words)
        if rest:
            raise Refusal(f"Invalid directive found in batch script: {rest[0]}", code=255)
        components[-1] += [item for item in options if item[0].where != NOT_IN_SCRIPT]
    return components


# ---- PBS and LSF -------------------------------------------------------------------------------

_PBS = rb"^#PBS\b[ \t]*(.*)$"
_BSUB = rb"^#BSUB\b[ \t]*(.*)$"

#: letters that mean the same as an option here; "" where there is nothing to do. Slurm knows these
#: and refuses others.
_PBS_LETTERS = {
    "A": "account",
    "a": "begin",
    "C": "",
    "c": "",
    "e": "error",
    "h": "hold",
    "I": "",
    "J": "array",
    "j": "",
    "k": "",
    "l": "",
    "M": "mail-user",
    "m": "",
    "N": "job-name",
    "o": "output",
    "p": "nice",
    "q": "partition",
    "r": "",
    "S": "",
    "t": "array",
    "u": "",
    "v": "",
    "V": "",
    "W": "",
    "z": "",
}
_PBS_FLAGS = frozenset("hIVz")
_BSUB_LETTERS = {
    "c": "chdir",
    "e": "error",
    "J": "job-name",
    "m": "nodelist",
    "n": "ntasks",
    "o": "output",
    "q": "partition",
    "W": "",
    "M": "",
    "x": "exclusive",
}
_BSUB_FLAGS = frozenset("x")


def foreign_lines(script: bytes, file: str) -> list[tuple[Option, str | None]]:
    """What `#PBS` lines, then `#BSUB` lines say, as options of ours. As in Slurm they count
    anywhere in the script and override its `#SBATCH` lines. What has no counterpart is dropped.

    Raises Refusal for options that Slurm does not know either, and for words that are none.
    """
    said: list[tuple[Option, str | None]] = []
    for pattern, letters, flags in (
        (_PBS, _PBS_LETTERS, _PBS_FLAGS),
        (_BSUB, _BSUB_LETTERS, _BSUB_FLAGS),
    ):
        if b"#PBS" not in script and b"#BSUB" not in script:
            return said
        for found in re.finditer(pattern, script, re.MULTILINE):
            number = script.count(b"\n", 0, found.start()) + 1
            words = split(found[1].decode("utf-8", "surrogateescape"), file, number)
            for letter, value in _letters(words, letters, flags):
                said += _translate(pattern is _PBS, letter, value, letters)
    return said


def _letters(
    words: list[str], letters: dict[str, str], flags: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Letters and values, as getopt finds them in a line."""
    left = iter(words)
    for word in left:
        if word == "-cwd" and letters is _BSUB_LETTERS:
            word = "-c"
        if word.startswith("--") and word != "--":
            raise _unknown(f"unrecognized option '{word}'")
        if len(word) < 2 or word[0] != "-":
            raise Refusal(f"Invalid argument: {word}")
        for place, letter in enumerate(word[1:], 2):
            if letter not in letters:
                raise _unknown(f"invalid option -- '{letter}'")
            if letter in flags:
                yield letter, ""
                continue
            value = word[place:] or next(left, None)
            if value is None:
                raise _unknown(f"option requires an argument -- '{letter}'")
            yield letter, value
            break


def _unknown(what: str) -> Refusal:
    return Refusal("Unrecognized command line parameter ?", remark=f"sbatch: {what}")


def _translate(
    pbs: bool, letter: str, value: str, letters: dict[str, str]
) -> list[tuple[Option, str | None]]:
    name = letters[letter]
    if pbs and letter == "l":
        return _pbs_resources(value)
    if pbs and letter == "r":
        return [(BY_NAME["no-requeue" if value.startswith("n") else "requeue"], None)]
    if pbs and letter == "m":
        bits = {"a": "FAIL", "b": "BEGIN", "e": "END", "n": "NONE"}
        return [(BY_NAME["mail-type"], ",".join(bits.get(char, char) for char in value))]
    if pbs and name in {"output", "error"}:
        # host:/path names a machine to copy to; there is one file system here.
        value = value.rpartition(":")[2]
    if not pbs and letter == "W":
        # LSF counts hours:minutes.
        return [(BY_NAME["time"], value if ":" not in value else value + ":00")]
    if not pbs and letter == "n":
        # The fewest and the most that LSF would give.
        value = value.rpartition(",")[2]
    if not pbs and letter == "M":
        return [(BY_NAME["mem-per-cpu"], f"{value}K" if value.isdigit() else value)]
    if pbs and letter == "p" and not re.fullmatch(r"-?[0-9]{1,5}", value):
        value = "0"
    if not name:
        return []
    option = BY_NAME[name]
    return [(option, (value or None) if option.argument else None)]


def _pbs_resources(text: str) -> list[tuple[Option, str | None]]:
    """-l walltime=1:00:00,nodes=2:ppn=4,mem=4gb"""
    said: list[tuple[Option, str | None]] = []
    simple = {
        **{"walltime": "time", "mem": "mem", "pmem": "mem-per-cpu", "vmem": "mem"},
        **{"ncpus": "mincpus", "procs": "ntasks", "file": "tmp", "nice": "nice"},
        **{"mppwidth": "ntasks", "mppnppn": "ntasks-per-node", "mppdepth": "cpus-per-task"},
        **{"naccelerators": "gpus-per-node"},
    }
    for item in text.split(","):
        key, _, value = item.partition("=")
        if key in {"nodes", "select"}:
            count, *more = value.split(":")
            if "+" in value:
                said.append((BY_NAME["nodelist"], value.replace("+", ",")))
                more = []
            elif count.isdigit():
                said.append((BY_NAME["nodes"], count))
            elif count:
                said.append((BY_NAME["nodelist"], count))
            for part in more:
                name, _, number = part.partition("=")
                target = {
                    "ppn": "ntasks-per-node",
                    "mpiprocs": "ntasks-per-node",
                    "gpus": "gpus-per-node",
                    "ngpus": "gpus-per-node",
                    "mem": "mem",
                }.get(name)
                if target and number:
                    said.append((BY_NAME[target], number))
        elif key in simple and value:
            if key.endswith("mem") and re.fullmatch(r"[0-9]{1,18}[bB]", value):
                # Bytes.
                value = f"{max(1, -(-int(value[:-1]) >> 20))}M"
            said.append((BY_NAME[simple[key]], value))
    return said
