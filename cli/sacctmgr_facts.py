"""sacctmgr's listings of what accounting's database keeps: events, transactions, reservations; and
of what is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gsched_cli.process import user_name
from gsched_cli.sacctmgr_list import State, refuse
from gsched_cli.sacctmgr_words import Said
from gsched_cli.stop import asking

if TYPE_CHECKING:
    from gsched_cli.common import Reader, Streams


def listing(reader: Reader, streams: Streams, state: State, kind: str, said: Said) -> int:
    """The rows of one kind, or why there are none. The exit code."""
    if kind == "runawayjobs":
        return _runaway(reader, streams, state)
    raise refuse(f"list {kind}")


def _runaway(reader: Reader, streams: Streams, state: State) -> int:
    """What runs is the controller's own knowledge, which the database follows."""
    if reader.uid != 0 and state.book.level(user_name(reader.uid)) == "None":
        streams.stderr.write(
            "sacctmgr: error: You must have an AdminLevel>=Operator to fix runaway jobs\n"
        )
        return 1
    streams.stdout.write(f"Runaway Jobs: No runaway jobs found on cluster {state.cluster}\n")
    return 0


def stats(reader: Reader, env: Mapping[str, str]) -> str:
    """The state of the controller, which keeps what slurmdbd does in Slurm."""
    from gsched_cli.text import timestamp

    status = asking(reader.status, "sacctmgr: error:")
    now = reader.now()
    return (
        f"sacctmgr show stats output at {timestamp(int(now), env, now)}\n"
        f"Data since {timestamp(status.start, env, now)}\n"
        f"State version: {status.version}\n"
    )


def modify_job(reader: Reader, streams: Streams, words: Sequence[str]) -> int:
    """Fields of jobs that are over lie in the database."""
    raise refuse("modify job")
