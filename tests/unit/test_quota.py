"""Guarantees with borrowing: arithmetic by hand, and what must hold for any accounts and work.

The rules are the module's own (gsched/policy/quota.py); what they promise is after Kueue's cohorts
and HiveD: nobody's guaranteed work makes way, and whoever is within his guarantee finds enough
borrowed work to take back.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsched.model.policy import ROOT, Account, Assoc
from gsched.policy import Book
from gsched.policy.quota import Quota, Work, broken_promise, lender, promised_below

GPU = "gres/gpu"


def accounts(*rows: tuple[str, str, int | None]) -> Book:
    """(account, parent, guaranteed GPUs)."""
    book = Book()
    for record in book.first:
        book.put(record)
    for number, (name, parent, gpus) in enumerate(rows, 3):
        book.put(Account(name))
        guarantee = {} if gpus is None else {GPU: gpus}
        book.put(Assoc(number, name, parent=parent, guarantee=guarantee))
    return book


def work(job_id: int, account: str, gpus: int, start: int, lost: float = 0) -> Work:
    return Work(job_id, account, {GPU: gpus}, start, lost)


def test_the_oldest_jobs_that_fit_are_guaranteed() -> None:
    book = accounts(("red", ROOT, 8), ("blue", ROOT, 8))
    quota = Quota(book, [work(1, "red", 4, 10), work(2, "red", 8, 20), work(3, "red", 4, 30)])
    assert [quota.secure(n, "red") for n in (1, 2, 3)] == [True, False, True]
    red, blue = quota.standing["red", GPU], quota.standing["blue", GPU]
    assert (red.used, red.own) == (16, 8)
    assert (blue.used, blue.guarantee) == (0, 8)


def test_a_team_takes_back_its_own_from_the_youngest_of_the_most_over_borrowed() -> None:
    book = accounts(("red", ROOT, 8), ("blue", ROOT, 8), ("green", ROOT, 8))
    quota = Quota(
        book,
        [
            *(work(n, "blue", 2, n) for n in range(1, 8)),
            *(work(n, "green", 2, n) for n in range(11, 16)),
        ],
    )
    assert quota.claim("red", {GPU: 8}) == "red"
    assert quota.claim("red", {GPU: 9}) == ""
    # blue has 14 of 8, green 10 of 8. At 10 of 8 both are equal: the youngest job goes.
    assert quota.order("red", {GPU: 4}) == [7, 6, 15, 5]


def test_who_is_over_its_guarantee_has_no_claim() -> None:
    book = accounts(("red", ROOT, 8), ("blue", ROOT, 8))
    quota = Quota(book, [work(1, "red", 8, 1), work(2, "blue", 8, 2)])
    assert quota.claim("red", {GPU: 1}) == ""
    assert quota.order("red", {GPU: 1}) == []


def test_what_a_parent_has_beyond_its_children_is_for_all_of_them() -> None:
    book = accounts(
        ("science", ROOT, 24),
        ("physics", "science", 8),
        ("chemistry", "science", 8),
        ("arts", ROOT, 8),
    )
    quota = Quota(
        book, [work(1, "physics", 8, 1), work(2, "physics", 8, 2), work(3, "arts", 16, 3)]
    )
    assert quota.secure(2, "science") and not quota.secure(2, "physics")
    # chemistry has its own, and may take it from physics's loan or from arts.
    assert quota.claim("chemistry", {GPU: 8}) == "chemistry"
    assert set(quota.order("chemistry", {GPU: 8})) == {2, 3}
    # physics has nothing left anywhere, as science's 24 less chemistry's share in use are taken...
    assert quota.claim("physics", {GPU: 8}) == "science"
    assert quota.order("science", {GPU: 8}) == [3]
    # ... and arts may not touch what science is guaranteed.
    assert quota.order("arts", {GPU: 8}) == []


def test_work_of_the_parent_itself_makes_way_only_where_its_guarantee_is_used_up() -> None:
    book = accounts(("science", ROOT, 16), ("physics", "science", 8), ("arts", ROOT, 8))
    jobs = [work(1, "science", 8, 1), work(2, "arts", 8, 2), work(3, "arts", 8, 3)]
    assert Quota(book, jobs).order("physics", {GPU: 8}) == [3]
    jobs = [work(1, "science", 8, 1), work(2, "arts", 8, 2), work(3, "science", 8, 3)]
    assert Quota(book, jobs).order("physics", {GPU: 8}) == [3, 1]


def test_a_guarantee_by_type_binds_in_that_type() -> None:
    book = accounts(("red", ROOT, None), ("blue", ROOT, 8))
    book.put(Assoc(3, "red", parent=ROOT, guarantee={"gres/gpu:h100": 4, GPU: 8}))
    quota = Quota(book, [Work(1, "red", {GPU: 8, "gres/gpu:h100": 8}, 1)])
    assert not quota.secure(1, "red")
    assert quota.claim("red", {GPU: 4, "gres/gpu:h100": 4}) == "red"
    assert quota.claim("red", {GPU: 8, "gres/gpu:h100": 5}) == ""


def test_bounds_on_borrowing_and_lending() -> None:
    book = accounts(("red", ROOT, 8), ("blue", ROOT, 8), ("green", ROOT, None))
    book.put(Assoc(3, "red", parent=ROOT, guarantee={GPU: 8}, borrow={GPU: 2}))
    book.put(Assoc(4, "blue", parent=ROOT, guarantee={GPU: 8}, lend={GPU: 5}))
    quota = Quota(book, [work(1, "red", 8, 1)])
    # 3 of blue's 8 are never lent.
    assert quota.kept_from(lender(book, "green", GPU), GPU) == 3
    assert quota.kept_from(lender(book, "blue", GPU), GPU) == 0
    quota.put(work(2, "blue", 4, 2))
    assert quota.kept_from(lender(book, "green", GPU), GPU) == 0
    quota.drop(2)
    assert quota.kept_from(lender(book, "green", GPU), GPU) == 3


def test_promises_that_cannot_be_kept() -> None:
    assert broken_promise(accounts(("red", ROOT, 8), ("blue", ROOT, 8)), {GPU: 16}) == ""
    assert "in all" in broken_promise(accounts(("red", ROOT, 8), ("blue", ROOT, 9)), {GPU: 16})
    book = accounts(("red", ROOT, 8), ("pink", "red", 6), ("ruby", "red", 3))
    assert "gres/gpu=9 together, more than its own gres/gpu=8" in broken_promise(book, {GPU: 16})


TREES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), min_size=2, max_size=7)


@st.composite
def moments(draw: st.DrawFn) -> tuple[Book, list[Work]]:
    rows: list[tuple[str, str, int | None]] = []
    for number, (parent, gpus) in enumerate(draw(TREES)):
        rows.append((f"a{number}", f"a{parent}" if parent < number else ROOT, gpus or None))
    book = accounts(*rows)
    # Parents promise at least what their children are promised.
    for name, _, gpus in reversed(rows):
        own = book.account(name)
        assert own is not None
        below = sum(one.guarantee.get(GPU, 0) for one in book.below(name) if one.is_account)
        if gpus or below:
            number = own.id
            book.put(Assoc(number, name, parent=own.parent, guarantee={GPU: max(gpus or 0, below)}))
    jobs = draw(
        st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(1, 8), st.integers(0, 9)))
    )
    return book, [work(n, f"a{a}", g, s) for n, (a, g, s) in enumerate(jobs, 1)]


@given(moments())
def test_guaranteed_work_lies_within_guarantees_and_never_makes_way(
    moment: tuple[Book, list[Work]],
) -> None:
    book, jobs = moment
    quota = Quota(book, jobs)
    for account in book.accounts:
        assoc = book.account(account)
        assert assoc is not None
        if GPU in assoc.guarantee:
            assert quota.standing[account, GPU].own <= assoc.guarantee[GPU]
        for victim in quota.order(account, {GPU: 1}):
            account_of = next(one.account for one in jobs if one.job_id == victim)
            assert not any(
                quota.secure(victim, one)
                for one in quota.path(account_of)
                if one not in quota.path(account)
            )


@given(moments(), st.integers(0, 6), st.integers(1, 8))
def test_a_claim_is_always_covered_by_idle_and_borrowed_gpus(
    moment: tuple[Book, list[Work]], which: int, gpus: int
) -> None:
    """In a cluster that can keep its promises: what nobody holds and what makes way are together
    enough for any claim."""
    book, jobs = moment
    quota = Quota(book, jobs)
    account = f"a{which % (len(book.accounts) - 1)}"
    claimant = quota.claim(account, {GPU: gpus})
    if not claimant:
        return
    used = sum(one.tres[GPU] for one in jobs)
    promised = quota.standing[ROOT, GPU].guarantee
    total = max(promised, used)
    given_back = {one.job_id: one.tres[GPU] for one in jobs}
    freed = sum(given_back[victim] for victim in quota.order(claimant, {GPU: gpus}))
    # Work of the claimant's own that is borrowed at its account stays: it was there first.
    own = quota.standing[claimant, GPU]
    assert total - used + freed >= gpus - max(0, own.used - own.own)


@given(moments(), st.integers(0, 6), st.integers(1, 8))
def test_what_a_claim_started_is_not_taken_back_by_whom_it_took_from(
    moment: tuple[Book, list[Work]], which: int, gpus: int
) -> None:
    book, jobs = moment
    quota = Quota(book, jobs)
    account = f"a{which % (len(book.accounts) - 1)}"
    claimant = quota.claim(account, {GPU: gpus})
    if not claimant:
        return
    gone = set(quota.order(claimant, {GPU: gpus}))
    left = [one for one in jobs if one.job_id not in gone]
    new = work(1000, account, gpus, 100)
    after = Quota(book, [*left, new])
    assert after.secure(1000, claimant)
    for other in {one.account for one in jobs if one.job_id in gone}:
        assert 1000 not in after.order(other, {GPU: 1})


@given(moments(), st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6), st.integers(0, 8))))
def test_counted_job_by_job_it_is_the_same(
    moment: tuple[Book, list[Work]], changes: list[tuple[int, int, int]]
) -> None:
    book, jobs = moment
    now = {one.job_id: one for one in jobs}
    quota = Quota(book, jobs)
    for job_id, which, gpus in changes:
        account = f"a{which % (len(book.accounts) - 1)}"
        if gpus:
            now[job_id] = work(job_id, account, gpus, which)
            quota.put(now[job_id])
        else:
            now.pop(job_id, None)
            quota.drop(job_id)
        if which % 2:
            continue
        again = Quota(book, now.values())
        assert quota.standing == again.standing
        assert quota.guaranteed() == again.guaranteed()
        assert quota.order(account, {GPU: 1}) == again.order(account, {GPU: 1})


def test_a_tree_of_any_depth() -> None:
    """Nothing bounds how deep accounts lie below each other."""
    deep = 1200
    rows = [(f"a{n}", f"a{n - 1}" if n else ROOT, None if n else 8) for n in range(deep)]
    quota = Quota(accounts(*rows), [work(1, f"a{deep - 1}", 3, 0)])
    assert quota.standing["a0", GPU].own == 3
    book = accounts(*rows, (f"a{deep}", f"a{deep - 1}", 5))
    assert len(list(book.subtree(ROOT))) == len(book.assocs)
    above = book.account("a1")
    assert above is not None and promised_below(book, above, GPU) == 5
