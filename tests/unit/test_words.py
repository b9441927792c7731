"""Why thousands of jobs wait: a byte each in the view, a record where there is more to say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gsched.model import Verdict
from gsched.store import Snapshot, ViewStore, number_key, verdicts, words


def pack(verdict: Verdict) -> bytes:
    return msgspec.msgpack.encode(verdict)


class View:
    """Both sides of a view, in turns: one process cannot have it open twice."""

    def __init__(self, path: Path) -> None:
        self.store = ViewStore(str(path))

    def put(self, told: dict[int, str], own: dict[int, Verdict | None] | None = None) -> None:
        changes = {
            ("verdict", number_key(job_id)): pack(one) if one is not None else None
            for job_id, one in (own or {}).items()
        }
        self.store.put(changes, told)

    def read(self, ids: list[int] | None = None) -> dict[int, Verdict]:
        with self.snapshot() as snapshot:
            found = verdicts(snapshot, ids)
        return {key: msgspec.msgpack.decode(value, type=Verdict) for key, value in found.items()}

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        db = self.store._db
        with db._env.begin(buffers=True) as txn:
            yield Snapshot(txn, db._dbs)

    def records(self, table: str) -> int:
        with self.snapshot() as snapshot:
            return sum(1 for _ in snapshot.scan(table))


def test_the_last_word_counts(tmp_path: Path) -> None:
    view = View(tmp_path)
    planned = Verdict(7, "Resources", start=1_000, nodes="n1")
    view.put({7: "Priority", 8: "Priority", 100_000: "Dependency"})
    view.put({}, {7: planned})
    assert view.read() == {
        7: planned,
        8: Verdict(8, "Priority"),
        100_000: Verdict(100_000, "Dependency"),
    }
    assert view.read([7, 8, 9]) == {7: planned, 8: Verdict(8, "Priority")}
    view.put({7: "Resources"})
    assert view.read([7]) == {7: Verdict(7, "Resources")} and view.records("verdict") == 0
    # Of one batch, records come after words.
    view.put({7: "Priority", 8: "Resources"}, {7: planned, 8: None})
    assert view.read() == {7: planned, 100_000: Verdict(100_000, "Dependency")}
    view.put({}, {7: None, 8: None, 100_000: None, 12: None})
    assert view.read() == {} and view.read([7, 12]) == {}
    # Nothing is left of them but the words.
    assert view.records("verdict") == 0 and view.records("words") == 1


def test_ten_thousand_words_are_few_records(tmp_path: Path) -> None:
    view = View(tmp_path)
    view.put({job_id: ("Priority", "Resources")[job_id % 2] for job_id in range(1, 10_241)})
    assert view.records("words") <= 10_240 // words.PAGE + 2 and view.records("verdict") == 0
    assert view.read([10_239, 10_240]) == {
        10_239: Verdict(10_239, "Resources"),
        10_240: Verdict(10_240, "Priority"),
    }
    assert len(view.read()) == 10_240


def test_words_beyond_those_that_have_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MOST", 2)
    view = View(tmp_path)
    view.put({1: "a", 2: "b", 3: "c", 4: "a"})
    view.put({1: "c"})
    expected = {1: "c", 2: "b", 3: "c", 4: "a"}
    assert view.read() == {job_id: Verdict(job_id, word) for job_id, word in expected.items()}
    assert view.read([1, 2, 3, 4]) == view.read()


def test_as_a_plain_dictionary_would_have_it(tmp_path: Path) -> None:
    rng = random.Random(3)
    view = View(tmp_path)
    model: dict[int, Verdict] = {}
    ids = [*range(1, 40), *range(500, 530), 5_000, 70_000]
    for _ in range(300):
        told = {i: rng.choice(("Priority", "Resources", "BeginTime")) for i in rng.sample(ids, 6)}
        own: dict[int, Verdict | None] = {
            i: rng.choice((None, Verdict(i, "Resources", start=rng.randrange(1, 99))))
            for i in rng.sample(ids, 6)
        }
        view.put(told, own)
        model |= {i: Verdict(i, word) for i, word in told.items()}
        for i, one in own.items():
            model.pop(i, None)
            if one is not None:
                model[i] = one
        some = rng.sample(ids, 9)
        assert view.read() == model
        assert view.read(some) == {i: model[i] for i in some if i in model}
        assert view.records("verdict") == sum(1 for one in model.values() if one.start)
