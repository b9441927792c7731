"""The legal moves of a job. Anything that is not here raises: a bug must never reach the store."""

from __future__ import annotations

from gsched.model.states import JobState as S

_ENDS = frozenset(
    {
        S.COMPLETED,
        S.CANCELLED,
        S.FAILED,
        S.TIMEOUT,
        S.NODE_FAIL,
        S.PREEMPTED,
        S.BOOT_FAIL,
        S.DEADLINE,
        S.OUT_OF_MEMORY,
    }
)

#: from -> where it may go
LEGAL: dict[S, frozenset[S]] = {
    S.PENDING: frozenset({S.RUNNING, S.CANCELLED, S.FAILED, S.DEADLINE, S.BOOT_FAIL}),
    S.RUNNING: _ENDS | {S.SUSPENDED, S.PENDING},
    S.SUSPENDED: _ENDS | {S.RUNNING, S.PENDING},
    # An ended job comes back only by a requeue.
    **{end: frozenset({S.PENDING}) for end in _ENDS},
    # An attempt that was to be followed by another may be cancelled before that begins.
    **{
        end: frozenset({S.PENDING, S.CANCELLED})
        for end in (S.CANCELLED, S.NODE_FAIL, S.BOOT_FAIL, S.PREEMPTED)
    },
}


class IllegalMove(Exception):
    """A job was asked to make a move that the table does not know."""


def check(job_id: int, old: S, new: S) -> None:
    """Raises IllegalMove unless a job may go from `old` to `new`."""
    if new not in LEGAL[old]:
        raise IllegalMove(f"job {job_id}: {old.name} -> {new.name}")
