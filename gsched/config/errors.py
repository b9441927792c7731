"""What is wrong with a configuration file."""

from __future__ import annotations


class ConfigError(Exception):
    """One mistake in a configuration: `str()` is "file:line: sentence", naming the value.

    `line` is 0 where the mistake is something that is missing.
    """

    def __init__(self, file: str, line: int, sentence: str) -> None:
        super().__init__(f"{file}:{line}: {sentence}" if line else f"{file}: {sentence}")
        self.file = file
        self.line = line
        self.sentence = sentence
