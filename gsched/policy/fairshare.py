"""Fair share: how far behind its promised share an association is, between 0 and 1.

`fair_tree` (the default) ranks all users: within every account its children by *level fair share*,
what is promised of the account over what was used of it; users below a better ranked account all
come before those below a worse one. `classic` (PriorityFlags=NO_FAIR_TREE) is 2^(-U/S/d) of each
association for itself. Both take shares from the book and usage as billing-seconds, decayed. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched.model.policy import ROOT, SHARES_PARENT, Assoc
from gsched.policy.book import Book

if TYPE_CHECKING:
    from gsched.config import Config

INFINITE = math.inf


@dataclass
class Standing:
    """How an association stands: what `sshare` shows."""

    assoc: Assoc
    #: association above it, of what its share is a part; 0: root itself
    above: int
    depth: int
    #: its part of what is promised to all below the same parent (Fair Tree), or of all (classic)
    norm_shares: float = 0.0
    #: billing-seconds, decayed
    raw_usage: float = 0.0
    #: its part of what all have used
    norm_usage: float = 0.0
    #: its part of what was used below the same parent (Fair Tree); with what the parent's other
    #: users have used (classic)
    effective: float = 0.0
    #: promised over used, at its level; infinite where nothing was used (Fair Tree)
    level: float = 0.0
    #: the factor; of accounts only the classic ones know it
    factor: float = 0.0


def standings(config: Config, book: Book, usage: Mapping[int, float]) -> dict[int, Standing]:
    """All associations by id as PriorityFlags say. Cost: ~2 us each."""
    flags = set(config.priority_flags)
    oblivious = "DEPTH_OBLIVIOUS" in flags
    if oblivious or "NO_FAIR_TREE" in flags:
        damping = float(config.fair_share_dampening_factor)
        return classic(book, usage, damping, oblivious=oblivious)
    return fair_tree(book, usage)


def fair_tree(book: Book, usage: Mapping[int, float]) -> dict[int, Standing]:
    """All associations by id, root first and parents before children. `usage`: billing-seconds by
    association, an account's with what is below it. Cost: n log n."""
    root = book.account(ROOT)
    if root is None:
        return {}
    tree = _Tree(book, usage, root)
    tree.measure()
    tree.rank([root.id])
    return tree.standing


class _Tree:
    """One calculation of Fair Tree."""

    def __init__(self, book: Book, usage: Mapping[int, float], root: Assoc) -> None:
        self._book = book
        self.standing = _standings(book, usage, root)
        #: association -> those that share with each other below it: users and accounts whose
        #: shares are their parent's are looked through
        self._children: dict[int, list[int]] = {}
        for one in self.standing.values():
            if one.above:
                self._children.setdefault(one.above, []).append(one.assoc.id)
        self._users = sum(not one.assoc.is_account for one in self.standing.values())
        self._left = self._users

    def measure(self) -> None:
        """Shares, usage and levels."""
        for one in self.standing.values():
            if not one.above:
                one.norm_shares = one.effective = 1.0
                one.level = 1.0
                continue
            above = self.standing[one.above]
            if one.assoc.shares == SHARES_PARENT and not one.assoc.is_account:
                # A user whose share is the account's own stands as high as the account itself.
                one.effective, one.norm_shares = above.effective, above.norm_shares
                one.level = above.level
                continue
            all_shares = sum(
                max(0, self.standing[child].assoc.shares) for child in self._children[one.above]
            )
            one.norm_shares = max(0, one.assoc.shares) / all_shares if all_shares else 0.0
            one.effective = one.raw_usage / above.raw_usage if above.raw_usage > 0 else 0.0
            one.level = _level(one.norm_shares, one.effective)

    def rank(self, accounts: list[int]) -> None:
        """Gives all users below tied accounts their places. A loop: the tree may be deep."""
        todo = [self._places(accounts, 0)]
        while todo:
            below = next(todo[-1], None)
            if below is None:
                todo.pop()
            else:
                todo.append(self._places(*below))

    def _places(self, accounts: list[int], place: int) -> Iterator[tuple[list[int], int]]:
        """Gives the users right below tied accounts, one list of children, their places; those of
        each yielded list of tied accounts come before it goes on. The best of them get `place`,
        where that was given to users who tie with the accounts."""
        children = [child for one in accounts for child in self._children.get(one, ())]
        key = {child: self._key(child) for child in children}
        children.sort(key=lambda child: (-key[child], not self._is_user(child), child))
        first = 0
        while first < len(children):
            last = first
            while last < len(children) and key[children[last]] == key[children[first]]:
                last += 1
            tied = children[first:last]
            users = [child for child in tied if self._is_user(child)]
            # Users that tie with accounts get the place of the best user in these.
            place = place or self._left
            for user in users:
                self.standing[user].factor = place / self._users
            self._left -= len(users)
            below = [child for child in tied if not self._is_user(child)]
            if below:
                yield below, place if users or self._left != place else 0
            place = 0
            first = last

    def _key(self, child: int) -> float:
        return self.standing[child].level

    def _is_user(self, child: int) -> bool:
        return not self.standing[child].assoc.is_account


def _level(shares: float, effective: float) -> float:
    """What is promised over what was used."""
    if shares <= 0:
        return 0.0
    return shares / effective if effective > 0 else INFINITE


def _standings(book: Book, usage: Mapping[int, float], root: Assoc) -> dict[int, Standing]:
    """All associations, parents first, each with what it is a part of."""
    found: dict[int, Standing] = {}
    whole = usage.get(root.id, 0.0)

    for assoc in book.subtree(root.account):
        above = depth = 0
        parent = book.parent(assoc)
        if parent is not None:
            over = found[parent.id]
            # The children of an account with fairshare=parent are its parent's.
            looked_through = parent.shares == SHARES_PARENT and over.above
            above, depth = over.above if looked_through else parent.id, over.depth + 1
        raw = max(0.0, usage.get(assoc.id, 0.0))
        one = Standing(assoc, above, depth, raw_usage=raw)
        one.norm_usage = raw / whole if whole > 0 else 0.0
        found[assoc.id] = one
    return found


# ---- classic -------------------------------------------------------------------------------------


def classic(
    book: Book, usage: Mapping[int, float], damping: float = 1.0, *, oblivious: bool = False
) -> dict[int, Standing]:
    """All associations by id, root first and parents before children: F = 2^(-UE/S/d).
    `oblivious`: PriorityFlags=DEPTH_OBLIVIOUS. Cost: associations."""
    root = book.account(ROOT)
    if root is None:
        return {}
    standing = _standings(book, usage, root)
    shares: dict[int, int] = {}
    used: dict[int, float] = {}
    for one in standing.values():
        if one.above:
            shares[one.above] = shares.get(one.above, 0) + max(0, one.assoc.shares)
            if not (one.assoc.is_account and one.assoc.shares == SHARES_PARENT):
                used[one.above] = used.get(one.above, 0.0) + one.norm_usage
    ratios: dict[int, float] = {}
    for one in standing.values():
        if not one.above:
            one.norm_shares = one.effective = 1.0
            one.factor = _classic(1.0, 1.0, damping)
            ratios[one.assoc.id] = 1.0
            continue
        above = standing[one.above]
        if one.assoc.shares == SHARES_PARENT:
            one.norm_shares, one.effective = above.norm_shares, above.effective
            one.factor = above.factor
            if oblivious:
                ratios[one.assoc.id] = ratios[one.above]
            continue
        part = one.assoc.shares / shares[one.above] if shares[one.above] else 0.0
        one.norm_shares = above.norm_shares * part
        # What siblings have used counts against a user or account as far as its share goes; at the
        # top there is nobody to share with.
        one.effective = one.norm_usage
        if above.above:
            one.effective += (above.effective - one.norm_usage) * part
        if oblivious:
            one.effective = one.norm_usage
            ratio = _oblivious(one, ratios[one.above], used.get(one.above, 0.0), above.norm_shares)
            ratios[one.assoc.id] = ratio
            one.factor = float(2.0 ** (-ratio / damping)) if one.norm_shares > 0 else 0.0
        else:
            one.factor = _classic(one.effective, one.norm_shares, damping)
    return standing


def _classic(effective: float, shares: float, damping: float) -> float:
    if shares <= 0:
        return 0.0
    return float(2.0 ** (-(effective / shares) / damping))


def _oblivious(one: Standing, above: float, all_used: float, all_shares: float) -> float:
    """How much of its share an association has used, the closer to its parent's figure the further
    that is from 1."""
    if one.norm_shares <= 0:
        return INFINITE
    own = one.norm_usage / one.norm_shares
    level = all_used / all_shares if all_shares > 0 else 0.0
    local = own / level if level > 0 else 0.0
    if local <= 0 or above <= 0:
        return 0.0
    turn = math.log(above) * math.log(local)
    pull = 1.0 if turn > 0 else 1.0 / (1.0 + (5.0 * math.log(above)) ** 2)
    return above * float(local**pull)


__all__ = ["INFINITE", "Standing", "classic", "fair_tree", "standings"]
