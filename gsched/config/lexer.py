"""From text to lines of key=value pairs: what all of Slurm's configuration files share.

"#" starts a comment (not inside quotes, and not after a backslash), a backslash at the end
continues a line, values with blanks stand in double quotes, `Include file` reads another file in
place. Keys are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gsched.config.errors import ConfigError

#: how deep files may include each other
MAX_DEPTH = 10

INCLUDE = re.compile(r"\s*include\s+(?![=\s])(\S.*?)\s*\Z", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PAIR = re.compile(
    r"""\s*(?P<key>[A-Za-z][A-Za-z0-9_.\[\]]*)\s*(?P<how>[+\-*/]?=)\s*
        (?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]*))(?=\s|\Z)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Pair:
    """One key=value."""

    #: as written
    key: str
    value: str
    file: str
    line: int
    #: `+=`: add to what is there
    append: bool = False

    @property
    def name(self) -> str:
        """The key in lower case."""
        return self.key.lower()

    def error(self, sentence: str) -> ConfigError:
        """A ConfigError at this place."""
        return ConfigError(self.file, self.line, sentence)

    def bad(self, why: str = "") -> ConfigError:
        """The usual error: the value does not suit the key."""
        tail = f": {why}" if why else ""
        return self.error(f'"{self.value}" is not a valid value for {self.key}{tail}')


@dataclass(frozen=True)
class Line:
    """One logical line: its pairs in order, never empty."""

    pairs: tuple[Pair, ...]

    @property
    def plain(self) -> str:
        """The same for all ways to write the line down, wherever it stands."""
        return " ".join(
            f"{pair.name}{'+' if pair.append else ''}={pair.value!r}" for pair in self.pairs
        )

    @property
    def first(self) -> Pair:
        return self.pairs[0]


#: (name as written, name of the including file) -> (name for messages, text); raises OSError
ReadFile = Callable[[str, str], tuple[str, str]]


def _strip_comment(text: str) -> str:
    quoted = False
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char == "#" and not quoted and not (at and text[at - 1] == "\\"):
            return text[:at]
    # An odd quote: the "#" inside it is text only if the quote is closed somewhere.
    return text


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first physical line, text without comments) of each line that has any."""
    start, kept = 0, ""
    # Only real line ends count: str.splitlines() knows more of them than editors do.
    for number, physical in enumerate(text.split("\n"), 1):
        piece = _strip_comment(physical.rstrip("\r")).rstrip()
        if not kept:
            start = number
        if piece.endswith("\\"):
            kept += piece[:-1]
            continue
        kept += piece
        if kept.strip():
            yield start, kept.replace("\\#", "#")
        kept = ""
    if kept.strip():
        yield start, kept.replace("\\#", "#")


def split_pairs(text: str, file: str, line: int) -> Line:
    """The key=value pairs of a logical line."""
    if control := _CONTROL.search(text):
        raise ConfigError(file, line, f"control character {control[0]!r} in the line")
    pairs = []
    at = 0
    while text[at:].strip():
        found = _PAIR.match(text, at)
        if not found:
            rest = text[at:].strip()
            raise ConfigError(file, line, f'cannot understand "{rest}": Key=value is expected')
        how = found["how"]
        value = found["quoted"] if found["quoted"] is not None else found["bare"]
        if how not in {"=", "+="}:
            raise ConfigError(file, line, f'"{found["key"]}{how}{value}": {how} is not supported')
        pairs.append(Pair(found["key"], value, file, line, append=how == "+="))
        at = found.end()
    return Line(tuple(pairs))


class Lexer:
    """Reads a file and what it includes.

    `cluster` is asked when an Include names %c; it gives "" while no ClusterName was seen.
    """

    def __init__(self, read: ReadFile, cluster: Callable[[], str]) -> None:
        self._read = read
        self._cluster = cluster

    def lines(self, name: str, text: str, depth: int = 0) -> Iterator[Line]:
        """All lines of `text`, those of included files in their place."""
        for number, content in logical_lines(text):
            included = INCLUDE.match(content)
            if included:
                yield from self._included(included[1].strip('"'), name, number, depth)
            else:
                yield split_pairs(content, name, number)

    def _included(self, wanted: str, name: str, number: int, depth: int) -> Iterator[Line]:
        if depth >= MAX_DEPTH:
            raise ConfigError(name, number, f'Include of "{wanted}": more than {MAX_DEPTH} deep')
        if "%c" in wanted:
            cluster = self._cluster()
            if not cluster:
                why = "ClusterName is not set yet"
                raise ConfigError(name, number, f'Include of "{wanted}": {why}')
            wanted = wanted.replace("%c", cluster)
        try:
            path, text = self._read(wanted, name)
        except OSError as error:
            why = error.strerror or str(error)
            sentence = f'cannot read included file "{wanted}": {why}'
            raise ConfigError(name, number, sentence) from None
        except ValueError:
            # A null byte in the name.
            raise ConfigError(name, number, f'"{wanted!r}" is not a file name') from None
        yield from self.lines(path, text, depth + 1)
