"""Ending a command from within, with its exit code and what to say; asking the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched_cli.common import Reader, Streams

UNREACHABLE = "Unable to contact slurm controller (connect failure)"

T = TypeVar("T")


class Stop(Exception):
    """Ends the command with an exit code; `text` goes to standard error as it stands."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def asking(question: Callable[[], T], prefix: str) -> T:
    """The answer to a question to the cluster; Stop with "`prefix` Unable to contact ..." if
    nobody is there to answer, and with the sentence of whoever refuses to."""
    from gsched.client import ControllerDown, RequestRefused

    try:
        return question()
    except ControllerDown:
        raise Stop(1, f"{prefix} {UNREACHABLE}\n") from None
    except RequestRefused as refusal:
        raise Stop(1, f"{prefix} {refusal}\n") from None


def cluster_config(reader: Reader, name: str, needs: str = "") -> Config:
    """The cluster's configuration; Stop with one sentence of command `name` if it is bad, or the
    file beside slurm.conf that the command needs."""
    from gsched.config import ConfigError

    try:
        config = reader.config()
    except (ConfigError, OSError) as problem:
        raise Stop(1, f"{name}: fatal: {problem}\n") from None
    if needs in config.broken:
        raise Stop(1, f"{name}: fatal: {config.broken[needs]}\n")
    return config


def own_cluster(text: str, reader: Reader, name: str, prefix: str, streams: Streams) -> str:
    """The cluster's name for a list given with -M: this cluster is the only one there is. Others
    beside it are named on standard error; Stop of command `name` where all are others."""
    own = asking(reader.status, prefix).cluster_name
    lines = other_clusters(text, own)
    said = "".join(f"{name}: error: {line}\n" for line in lines)
    if len(lines) > 1 and lines[-1].startswith("'"):
        raise Stop(1, said)
    streams.stderr.write(said)
    return own


def other_clusters(text: str, own: str) -> list[str]:
    """Slurm's sentences about the names in a list that do not mean the cluster `own`; the last one
    of all begins with a quotation mark where none does."""
    others = [word for word in text.split(",") if word.lower() not in ("all", own.lower())]
    lines = [unknown_cluster(word)[0] for word in others]
    if len(others) == len(text.split(",")):
        lines.append(unknown_cluster(others[0])[1])
    return lines


def unknown_cluster(name: str) -> tuple[str, str]:
    """Slurm's two sentences."""
    return (
        f"No cluster '{name}' known by database.",
        f"'{name}' can't be reached now, or it is an invalid entry for --cluster.  "
        "Use 'sacctmgr list clusters' to see available clusters.",
    )


def again_and_again(seconds: int, streams: Streams, report: Callable[[], None]) -> None:
    """Reports once, or with -i every so many seconds with an empty line between."""
    import time

    if seconds:
        streams.files.own()
    report()
    while seconds:
        streams.stdout.write("\n")
        streams.stdout.flush()
        time.sleep(seconds)
        report()
