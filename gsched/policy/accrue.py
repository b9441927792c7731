"""How many waiting jobs may grow older at once: GrpJobsAccrue and MaxJobsAccrue of associations,
GrpJobsAccrue, MaxJobsAccruePerAccount and MaxJobsAccruePerUser of a job's QOS (never of its
partition's). What the QOS says the association need not; groups of associations hold on every
level. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gsched.model.policy import Assoc, Qos
from gsched.policy.book import Book
from gsched.policy.limits import Scope


class Bounds(NamedTuple):
    """What bounds the jobs of one association and QOS."""

    #: how many of whose jobs
    most: tuple[tuple[Scope, int], ...]
    #: everybody whose jobs a job is one of, limited or not
    scopes: tuple[Scope, ...]


def limited(book: Book) -> bool:
    """Whether anybody's number of jobs is limited at all. Cost: associations and QOS."""
    return any(
        one.grp_jobs_accrue is not None or one.max_jobs_accrue is not None
        for one in book.assocs.values()
    ) or any(
        limit is not None
        for qos in book.qos.values()
        for limit in (qos.grp_jobs_accrue, qos.max_jobs_accrue_pa, qos.max_jobs_accrue_pu)
    )


def bounds(book: Book, assoc: Assoc | None, qos: Qos | None, user: str, account: str) -> Bounds:
    """The bounds of jobs that stand there. Cost: depth of the tree."""
    most: list[tuple[Scope, int]] = []
    scopes: list[Scope] = []

    def add(scope: Scope, limit: int | None) -> bool:
        if limit is not None:
            most.append((scope, limit))
        return limit is not None

    grouped = single = False
    if qos is not None:
        scopes = [("qos", qos.name, ""), ("account", qos.name, account), ("user", qos.name, user)]
        whole, by_account, by_user = scopes
        grouped = add(whole, qos.grp_jobs_accrue)
        single = add(by_account, qos.max_jobs_accrue_pa) | add(by_user, qos.max_jobs_accrue_pu)
    for level, one in enumerate(book.chain(assoc) if assoc is not None else ()):
        scope: Scope = ("assoc", one.id, "")
        scopes.append(scope)
        if not level and not single:
            add(scope, book.effective(one).max_jobs_accrue)
        if not grouped:
            add(scope, one.grp_jobs_accrue)
    return Bounds(tuple(most), tuple(scopes))


__all__ = ["Bounds", "bounds", "limited"]
