"""Guarantees with borrowing: who is owed what, who has borrowed it, whose work makes way.

A guarantee (`Assoc.guarantee`, sacctmgr's GrpTRESGuarantee) is what an account may use at any time.
What it leaves idle is lent to whoever has work, and taken back when it comes for it. The accounts
are the cohorts: what a child leaves goes first to those below the same parent.

**Guaranteed and borrowed work.** Of an account's running jobs those are *guaranteed* that are
guaranteed to an account below it, and then those that fit into what is left of its own guarantee:
first such as had a claim when they started (below), then the others, oldest start first. So what
was taken back once stays guaranteed, whatever ends beside it. All others are *borrowed* work of
that account. A job that fits only in part is borrowed as a whole: the account could not have run it
alone. What is guaranteed is never more than the guarantee, and what the children are guaranteed
always lies within their parent's.

**A claim.** A waiting job has a claim at the lowest account above it in whose guarantee it still
fits. It may take back from jobs outside of that account that are borrowed work of their own branch,
the branch being what lies below the account that both have in common: so a claim never touches what
is guaranteed to anybody, and what was started for a claim is not taken back by another.

**Order of taking back.** The branch that is over its guarantee by most first; within it the job
that started last, of equals the one that loses least.

TRES are counted by name ("gres/gpu", "gres/gpu:h100", "cpu", ...); a guarantee binds in each TRES
that it names, and says nothing of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gsched.model.policy import ROOT, Assoc
from gsched.policy.book import Book


@dataclass(frozen=True)
class Work:
    """A running job as quotas see it."""

    job_id: int
    #: account that it is charged to
    account: str
    #: what it holds, by name
    tres: Mapping[str, int]
    #: epoch seconds
    start: int
    #: what would be lost by ending it: so many GPU-seconds, and since then so many each second
    lost: float = 0.0
    since: int = 0
    size: int = 0
    #: it had a claim when it started
    secured: bool = False
    #: the account in whose whole units it is guaranteed (see policy/units.py); "" none
    pool: str = ""

    def loses(self, now: int) -> float:
        """GPU-seconds since its work was saved last."""
        return self.lost + self.size * max(0, now - self.since)


@dataclass
class Standing:
    """How one account stands in one TRES."""

    account: str
    tres: str
    #: what it may use at any time; of an account that names none what those below it may
    guarantee: int
    #: held by its jobs and those of all below it
    used: int = 0
    #: of that, guaranteed work
    own: int = 0
    #: most that it may use beyond its guarantee, and most of it that may be lent; None: no bound
    borrow: int | None = None
    lend: int | None = None
    #: kept for it, and those below it, though nobody uses it: what is not lent
    kept: int = 0


@dataclass
class _Place:
    """What is known of one account."""

    assoc: Assoc
    children: list[str]
    #: an account above it has a guarantee
    asked: bool
    #: its own jobs, not those of accounts below
    jobs: dict[int, Work]
    #: of these and those below, who is guaranteed nowhere up to here; where an account above may
    open: list[Work]
    #: who is guaranteed here and not below
    secure: set[int]
    #: TRES -> kept for all children together
    kept: dict[str, int]


class Quota:
    """The accounts' guarantees and the work that runs. Nothing is counted where no account has a
    guarantee; else a job that comes, goes or changes costs the jobs of its account and, where an
    account above has a guarantee, of that."""

    def __init__(self, book: Book, work: Iterable[Work] = ()) -> None:
        self._book = book
        #: TRES that some guarantee names
        self.names = names(book)
        self._work: dict[int, Work] = {}
        #: account -> its own and those above, root last
        self._paths: dict[str, tuple[str, ...]] = {}
        self._standing: dict[tuple[str, str], Standing] = {}
        self._places: dict[str, _Place] = {}
        #: job -> lowest account of which it is guaranteed work
        self._at: dict[int, str] = {}
        #: accounts in which something has changed since they were counted
        self._dirty: set[str] = set()
        #: claims that have been answered since anything has changed
        self._orders: dict[tuple[str, tuple[tuple[str, int], ...], int], list[int]] = {}
        root = book.account(ROOT)
        if not self.names or root is None:
            return
        self._plant()
        for one in work:
            self.put(one)

    def _plant(self) -> None:
        """The tree, each account before those below it."""
        for assoc in self._book.subtree(ROOT):
            if not assoc.is_account:
                continue
            children = [one.account for one in self._book.below(assoc.account) if one.is_account]
            above = self._places.get(assoc.parent)
            asked = above is not None and (above.asked or bool(above.assoc.guarantee))
            self._places[assoc.account] = _Place(assoc, children, asked, {}, [], set(), {})
            self._dirty.add(assoc.account)

    def put(self, work: Work) -> None:
        """A job runs, or what it holds has changed."""
        if self._work.get(work.job_id) == work:
            return
        self.drop(work.job_id)
        self._work[work.job_id] = work
        place = self._places.get(work.account)
        if place is not None:
            place.jobs[work.job_id] = work
            self._dirty.add(work.account)

    def drop(self, job_id: int) -> None:
        """A job holds nothing any more, if it did."""
        work = self._work.pop(job_id, None)
        if work is None:
            return
        self._at.pop(job_id, None)
        place = self._places.get(work.account)
        if place is not None:
            del place.jobs[job_id]
            self._dirty.add(work.account)

    def path(self, account: str) -> tuple[str, ...]:
        """An account and those above it, root last."""
        known = self._paths.get(account)
        if known is None:
            known = self._paths[account] = self._book.lineage(account)
        return known

    @property
    def standing(self) -> Mapping[tuple[str, str], Standing]:
        """(account, TRES) -> how it stands."""
        self._settle()
        return self._standing

    def _settle(self) -> None:
        """Counts what has changed, from below."""
        if not self._dirty:
            return
        todo = {above for account in self._dirty for above in self.path(account)}
        self._dirty.clear()
        self._orders.clear()
        for account in sorted(todo, key=lambda one: -len(self.path(one))):
            if account in self._places:
                self._count(account)

    def _count(self, account: str) -> None:
        place = self._places[account]
        assoc = place.assoc
        below = [self._places[child] for child in place.children]
        standing, left = self._standing, list(place.jobs.values())
        for child in below:
            left += child.open
        own = {
            name: sum(standing[child, name].own for child in place.children) for name in self.names
        }
        before, place.secure = place.secure, set()
        place.open = []
        if assoc.guarantee:
            left.sort(key=lambda each: (not each.secured, each.start, each.job_id))
        for one in left:
            if assoc.guarantee_unit:
                fit = bool(assoc.guarantee) and one.pool == account
            else:
                fit = bool(assoc.guarantee) and fits(one.tres, assoc.guarantee, own)
            if fit:
                place.secure.add(one.job_id)
                self._at[one.job_id] = account
                for name in self.names:
                    own[name] += one.tres.get(name, 0)
            elif place.asked:
                place.open.append(one)
        for job_id in before - place.secure:
            if self._at.get(job_id) == account:
                del self._at[job_id]
        for name in self.names:
            lower = [standing[child, name] for child in place.children]
            guarantee = assoc.guarantee.get(name, sum(one.guarantee for one in lower))
            used = sum(one.tres.get(name, 0) for one in place.jobs.values())
            used += sum(one.used for one in lower)
            lend = assoc.lend.get(name)
            back = 0 if lend is None else max(0, guarantee - lend - used)
            place.kept[name] = sum(one.kept for one in lower)
            kept = max(back, place.kept[name])
            borrow = assoc.borrow.get(name)
            standing[account, name] = Standing(
                account, name, guarantee, used, own[name], borrow, lend, kept
            )

    def guaranteed(self) -> dict[int, str]:
        """Running job -> the lowest account of which it is guaranteed work."""
        self._settle()
        return dict(self._at)

    def secure(self, job_id: int, account: str) -> bool:
        """Whether a running job is guaranteed work of an account that it is of or below."""
        self._settle()
        at = self._at.get(job_id)
        return at is not None and account in self.path(at)

    def claim(self, account: str, wants: Mapping[str, int]) -> str:
        """The account at which a waiting job has a claim; "" it has none, or one in whole units
        (policy/units.py). Cost: depth."""
        for above in self.path(account):
            assoc = self._book.account(above)
            if assoc is None or not assoc.guarantee or not _covers(assoc.guarantee, wants):
                continue
            if assoc.guarantee_unit:
                # Where its jobs are says who is guaranteed, not how many GPUs they have.
                continue
            own = {name: self.standing[above, name].own for name in self.names}
            if fits(wants, assoc.guarantee, own):
                return above
        return ""

    def top(self, account: str) -> str:
        """The highest account above one with a guarantee of single resources that it shares in; ""
        there is none. Cost: depth."""
        found = ""
        for above in self.path(account):
            assoc = self._book.account(above)
            if assoc is not None and assoc.guarantee and not assoc.guarantee_unit:
                found = above
        return found

    def left(self, accounts: Iterable[str]) -> dict[tuple[str, str], int]:
        """(account, TRES) -> what is left of its guarantee, for these accounts and those above.
        Cost: theirs."""
        standing, found = self.standing, dict[tuple[str, str], int]()
        for above in {above for account in accounts for above in self.path(account)}:
            assoc = self._book.account(above)
            for name, most in assoc.guarantee.items() if assoc is not None else ():
                found[above, name] = most - standing[above, name].own
        return found

    def owe(self, account: str, wants: Mapping[str, int], left: dict[tuple[str, str], int]) -> bool:
        """Whether a job has a claim (see claim) to some of what is left, which is then the less."""
        path = self.path(account)
        for place, above in enumerate(path):
            assoc = self._book.account(above)
            if assoc is None or not assoc.guarantee or not _covers(assoc.guarantee, wants):
                continue
            if assoc.guarantee_unit:
                continue
            if all(wants.get(name, 0) <= left[above, name] for name in assoc.guarantee):
                for each in path[place:]:
                    for name in self.names:
                        if (each, name) in left:
                            left[each, name] -= wants.get(name, 0)
                return True
        return False

    def start(self, work: Work) -> bool:
        """A job starts: whether it has a claim, and is guaranteed from now on. Cost: depth."""
        claimant = work.pool or self.claim(work.account, work.tres)
        self.put(replace(work, secured=bool(claimant)))
        return bool(claimant)

    def branch(self, claimant: str, account: str) -> str:
        """The account below the lowest one that both have in common, on the side of `account`; ""
        where `account` is the claimant's, or below or above it."""
        mine = set(self.path(claimant))
        before = ""
        for above in self.path(account):
            if above in mine:
                return before if above != claimant else ""
            before = above
        return ""

    def makes_way(self, claimant: str, job_id: int, wants: Mapping[str, int]) -> bool:
        """Whether a running job makes way for a claim at that account."""
        work = self._work.get(job_id)
        if work is None or claimant in self.path(work.account):
            return False
        branch = self.branch(claimant, work.account)
        if branch:
            return not self.secure(job_id, branch)
        # Work of an account above the claimant's: of what that is guaranteed the claimant's part
        # goes first.
        assoc = self._book.account(work.account)
        if assoc is None or not self.secure(job_id, work.account):
            return True
        own = {name: self.standing[work.account, name].own for name in self.names}
        return not fits(wants, assoc.guarantee, own)

    def order(self, claimant: str, wants: Mapping[str, int], now: int = 0) -> list[int]:
        """The running jobs that make way for a claim at an account, in the order in which they
        are taken: each the youngest of the branch that is over its guarantee by most (of what is
        wanted) once those before it have gone. Cost: accounts, and n log n in jobs of those that
        have borrowed; a look-up for the same claim while nothing changes."""
        self._settle()
        asked = [name for name in self.names if wants.get(name)]
        key = claimant, tuple((name, wants[name]) for name in asked), now
        known = self._orders.get(key)
        if known is None:
            known = self._orders[key] = self._order(claimant, wants, asked, now)
        return known

    def _order(
        self, claimant: str, wants: Mapping[str, int], asked: list[str], now: int
    ) -> list[int]:
        over: dict[str, int] = {}
        waiting: dict[str, list[Work]] = {}
        for account, place in self._places.items():
            branch = self.branch(claimant, account)
            stands = [self._standing[branch or account, name] for name in asked]
            if not place.jobs or (branch and all(one.used == one.own for one in stands)):
                # All that they hold is guaranteed.
                continue
            for job_id, work in place.jobs.items():
                if any(work.tres.get(name) for name in asked):
                    if self.makes_way(claimant, job_id, wants):
                        waiting.setdefault(branch or account, []).append(work)
        for branch, jobs in waiting.items():
            jobs.sort(key=lambda one: (one.start, -one.loses(now), one.job_id))
            stands = [self._standing[branch, name] for name in asked]
            over[branch] = sum(one.used - one.guarantee for one in stands)
        found: list[int] = []
        while waiting:
            branch = max(waiting, key=lambda name: (over[name], waiting[name][-1].start, name))
            work = waiting[branch].pop()
            over[branch] -= sum(work.tres.get(name, 0) for name in asked)
            found.append(work.job_id)
            if not waiting[branch]:
                del waiting[branch]
        return found

    def kept_from(self, account: str, name: str) -> int:
        """How much of a TRES is kept, though idle, from jobs of an account and of those below it
        that lend nothing themselves; "" from jobs of accounts below no lender. Cost: depth."""
        self._settle()
        found = 0
        for above in self.path(account) if account else ():
            place = self._places.get(above)
            if place is not None and place.assoc.parent:
                siblings = self._places[place.assoc.parent].kept[name]
                found += siblings - self._standing[above, name].kept
        return found + self._places[account or ROOT].kept[name]


#: why a job waits for a quota: reason words of our own
BORROW = "AssocBorrowLimit"
KEPT = "AssocGuaranteeKept"


def fits(tres: Mapping[str, int], guarantee: Mapping[str, int], own: Mapping[str, int]) -> bool:
    """Whether so much fits into what is left of a guarantee, in each TRES that it names."""
    return all(own.get(name, 0) + tres.get(name, 0) <= most for name, most in guarantee.items())


def _covers(guarantee: Mapping[str, int], wants: Mapping[str, int]) -> bool:
    """Whether a guarantee says anything of what a job is after: its GRES, else its CPUs."""
    wanted = {_base(name) for name, count in wants.items() if count and name.startswith("gres/")}
    if not wanted:
        return bool(guarantee.get("cpu"))
    return wanted <= {_base(name) for name, most in guarantee.items() if most}


def _base(name: str) -> str:
    return name.partition(":")[0]


def lenders(book: Book, name: str) -> list[str]:
    """The accounts that bound how much of a TRES they lend."""
    return [one.account for one in book.assocs.values() if one.is_account and name in one.lend]


def lender(book: Book, account: str, name: str) -> str:
    """The lowest account on the way up that bounds how much of a TRES it lends; "" none does. All
    accounts with the same answer have the same kept from them. Cost: depth."""
    for above in book.lineage(account):
        assoc = book.account(above)
        if assoc is not None and name in assoc.lend:
            return above
    return ""


def promised(book: Book, assoc: Assoc, name: str) -> int:
    """What an account may use at any time: its guarantee, or what those below it have together."""
    found, todo = 0, [assoc]
    while todo:
        one = todo.pop()
        own = one.guarantee.get(name)
        if own is not None:
            found += own
        else:
            todo += [child for child in book.below(one.account) if child.is_account]
    return found


def promised_below(book: Book, assoc: Assoc, name: str) -> int:
    """What the accounts below one may use at any time, together."""
    return sum(promised(book, one, name) for one in book.below(assoc.account) if one.is_account)


def names(book: Book) -> tuple[str, ...]:
    """The TRES that some account's guarantee names, in order."""
    found = {name for one in book.assocs.values() if one.is_account for name in _named(one)}
    return tuple(sorted(found))


def _named(assoc: Assoc) -> set[str]:
    return {*assoc.guarantee, *assoc.borrow, *assoc.lend}


def broken_promise(book: Book, total: Mapping[str, int]) -> str:
    """Why the guarantees cannot all be kept; "" they can. What the accounts below one are
    guaranteed must lie within its own guarantee, and in all within what the cluster has."""
    for assoc in book.assocs.values():
        if not assoc.is_account:
            continue
        for name in _named(assoc):
            below = promised_below(book, assoc, name)
            own = assoc.guarantee.get(name)
            if own is not None and below > own:
                return (
                    f"the accounts below {assoc.account} are guaranteed {name}={below} "
                    f"together, more than its own {name}={own}"
                )
    root = next((one for one in book.assocs.values() if one.is_account and not one.parent), None)
    for name in names(book):
        in_all = promised(book, root, name) if root is not None else 0
        if in_all > total.get(name, 0):
            return f"{name}={in_all} is guaranteed in all, the cluster has {total.get(name, 0)}"
    return ""


__all__ = [
    "BORROW",
    "KEPT",
    "Quota",
    "Standing",
    "Work",
    "broken_promise",
    "lender",
    "lenders",
    "names",
    "promised",
    "promised_below",
]
