"""What srun, salloc, sattach and sbcast tell the client that stays: the plan (docs/design.md,
section 7), a list of NUL-terminated `key=value` records."""

from __future__ import annotations

from collections.abc import Iterable

#: the client's own standard input, output or error
OWN = "-"


class Plan:
    """Collects records; an empty value, or False, is not said at all unless it has a meaning."""

    def __init__(self, mode: str, job: int = 0) -> None:
        """`mode`: step, job, salloc or attach; `job` its id, 0 where it is not known."""
        self._records: list[str] = [f"mode={mode}"]
        if job:
            self.say("job", str(job))

    def say(self, key: str, value: str) -> None:
        """One record; NULs, which no value of an argument can hold, are left out."""
        self._records.append(f"{key}={value}".replace("\0", ""))

    def some(self, key: str, value: str) -> None:
        if value:
            self.say(key, value)

    def flag(self, key: str, value: bool) -> None:
        if value:
            self.say(key, "1")

    def each(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            self.say(key, value)

    def packed(self) -> bytes:
        return "".join(f"{record}\0" for record in self._records).encode("utf-8", "surrogateescape")
