"""The durable state: what was committed is there, what changed is named, who may open it."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched.store import (
    NotLocal,
    StateLocked,
    StateTooNew,
    Store,
    StoreError,
    StoreReader,
    ViewReader,
    ViewStore,
    number_key,
    read_blob,
)
from gsched.store.main import pack_blob, unpack_blob
from gsched.store.place import check_local, filesystem_type

SMALL = 64 << 20


def open_store(path: Path) -> Store:
    return Store.open(str(path), map_size=SMALL)


changes = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from(["job", "node", "answer"]), st.binary(min_size=1, max_size=6)),
        st.none() | st.binary(max_size=200),
        max_size=8,
    ),
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(history=changes)
def test_reload_equals_what_was_committed(
    history: list[dict[tuple[str, bytes], bytes | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("state")
    model: dict[tuple[str, bytes], bytes] = {}
    store = open_store(path)
    first = store.version
    for batch in history:
        store.commit(batch)
        for key, value in batch.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
    store.close()
    again = open_store(path)
    found = {(t, k): v for t in ("job", "node", "answer") for k, v in again.load(t)}
    assert found == model
    assert again.version == first + len(history)
    again.close()


@settings(max_examples=20, deadline=None)
@given(history=changes, killed=st.booleans())
def test_what_was_promised_is_there_after_a_kill(
    history: list[dict[tuple[str, bytes], bytes | None]],
    killed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Promised and settled commits are those of `commit`; of the last one only the promise."""
    one, other = (tmp_path_factory.mktemp("state") for _ in range(2))
    plain, store = open_store(one), open_store(other)
    for number, batch in enumerate(history, 1):
        plain.commit(batch)
        assert store.promise(batch)
        if number < len(history) or not killed:
            assert store.settle() == plain.version
    store.close()
    for _ in range(2):
        store = open_store(other)
        assert store.version == plain.version
        for table in ("job", "node", "answer"):
            assert dict(store.load(table)) == dict(plain.load(table))
        store.close()
    plain.close()


def test_a_promise_that_was_not_written_whole_is_none(tmp_path: Path) -> None:
    path = tmp_path / "main" / "journal"
    for place in (0, 8, 20, 40, 60, 70):
        store = open_store(tmp_path)
        version = store.version
        assert store.promise({("job", number_key(1)): b"never answered"})
        store.close()
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
        store = open_store(tmp_path)
        assert (store.version, store.get("job", number_key(1))) == (version, None)
        store.close()


def test_a_promise_of_another_database_is_none(tmp_path: Path) -> None:
    """A copy that was put back, or an empty state, has nothing to do with it."""
    store = open_store(tmp_path)
    store.commit({("job", number_key(1)): b"a"})
    store.close()
    data = (tmp_path / "main" / "data.mdb").read_bytes()
    store = open_store(tmp_path)
    assert store.promise({("job", number_key(2)): b"b"})
    store.close()
    (tmp_path / "main" / "data.mdb").write_bytes(data)
    store = open_store(tmp_path)
    assert dict(store.load("job")) == {number_key(1): b"a"}
    assert store.promise({("job", number_key(3)): b"c"})
    store.close()
    store = Store.open(str(tmp_path), map_size=SMALL, clear=True)
    assert dict(store.load("job")) == {}
    store.close()


@pytest.mark.parametrize("size", [(128 << 10) - 60, 1 << 20])
def test_what_is_too_large_is_committed_at_once(tmp_path: Path, size: int) -> None:
    store = open_store(tmp_path)
    version = store.version
    assert not store.promise({("job", number_key(1)): b"x" * size})
    assert store.version == version + 1
    assert store.commit({("job", number_key(2)): b"y"}) == version + 2
    store.close()
    store = open_store(tmp_path)
    assert dict(store.load("job")) == {number_key(1): b"x" * size, number_key(2): b"y"}
    store.close()


def test_content_is_promised_as_it_is_stored(tmp_path: Path) -> None:
    script = b"#!/bin/sh\n" + b"echo hello\n" * 400
    store = open_store(tmp_path)
    assert store.promise({("blob", b"h"): script})
    store.close()
    store = open_store(tmp_path)
    assert store.get("blob", b"h") == script
    store.close()


def test_a_promise_in_a_journal_of_another_size_is_carried_out(tmp_path: Path) -> None:
    """Of a release with a larger or smaller one, or cut off behind what counts."""
    path = tmp_path / "main" / "journal"
    for number, size in enumerate((1 << 10, 256 << 10), 1):
        store = open_store(tmp_path)
        assert store.promise({("job", number_key(number)): b"answered"})
        store.close()
        os.truncate(path, size)
        store = open_store(tmp_path)
        assert store.get("job", number_key(number)) == b"answered"
        assert path.stat().st_size == 128 << 10
        store.close()


@pytest.mark.parametrize("what", [b"", b"x", b"\xff" * 60, b"\xff" * (128 << 10)])
def test_a_journal_that_is_none_is_no_obstacle(tmp_path: Path, what: bytes) -> None:
    store = open_store(tmp_path)
    store.commit({("job", number_key(1)): b"a"})
    store.close()
    (tmp_path / "main" / "journal").write_bytes(what)
    store = open_store(tmp_path)
    assert dict(store.load("job")) == {number_key(1): b"a"}
    assert store.promise({("job", number_key(2)): b"b"})
    store.close()
    store = open_store(tmp_path)
    assert store.get("job", number_key(2)) == b"b"
    store.close()


def test_a_journal_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """What was promised may be in it."""
    open_store(tmp_path).close()
    (tmp_path / "main" / "journal").unlink()
    (tmp_path / "main" / "journal").mkdir()
    with pytest.raises(StoreError, match=r"main/journal: Is a directory"):
        open_store(tmp_path)


def test_nothing_is_promised_in_a_file_that_was_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "main" / "journal").unlink()
    assert not store.promise({("job", number_key(1)): b"a"})
    store.close()
    store = open_store(tmp_path)
    assert store.get("job", number_key(1)) == b"a"
    store.close()


def test_without_room_for_a_journal_commits_go_to_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gsched.store.journal._lay_down", full)
    store = open_store(tmp_path)
    assert not store.promise({("job", number_key(1)): b"a"})
    store.close()
    monkeypatch.undo()
    store = open_store(tmp_path)
    assert store.get("job", number_key(1)) == b"a"
    assert store.promise({("job", number_key(2)): b"b"})
    store.close()


def test_a_kill_while_a_promise_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of the next start, twice in a row: it is there once, and stays."""

    class Killed(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    store = open_store(tmp_path)
    assert store.promise({("job", number_key(1)): b"answered"})
    version = store.version + 1
    store.close()
    for step in ("versioned.Versioned.commit", "journal.Journal.begin", "versioned.Versioned.mark"):
        for _ in range(2):
            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(f"gsched.store.{step}", killed)
                open_store(tmp_path)
    store = open_store(tmp_path)
    assert (store.version, store.get("job", number_key(1))) == (version, b"answered")
    store.commit({("job", number_key(1)): None})
    store.close()
    store = open_store(tmp_path)
    assert (store.version, store.get("job", number_key(1))) == (version + 1, None)
    store.close()


def test_index_names_the_changed_keys(tmp_path: Path) -> None:
    # One process may open an environment only once: the writer closes before the reader opens.
    store = open_store(tmp_path)
    one = store.commit({("job", number_key(1)): b"a", ("blob", b"h"): b"script"})
    two = store.commit({("job", number_key(2)): b"b", ("node", b"n1"): b"c"})
    store.commit({("job", number_key(1)): None})
    store.close()
    with StoreReader(str(tmp_path)).snapshot() as snapshot:
        assert snapshot.version == two + 1
        assert snapshot.changed_since(one) == {
            ("job", number_key(2)),
            ("node", b"n1"),
            ("job", number_key(1)),
        }
        assert snapshot.changed_since(two + 1) == set()
        # A reader that saw another history must start over.
        assert snapshot.changed_since(two + 7) is None
        assert [bytes(k) for k, _ in snapshot.scan("job")] == [number_key(2)]


def test_old_readers_read_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsched.store.versioned.RING", 3)
    store = open_store(tmp_path)
    versions = [store.commit({("job", number_key(n)): b"x"}) for n in range(8)]
    store.close()
    with StoreReader(str(tmp_path)).snapshot() as snapshot:
        assert snapshot.changed_since(versions[0]) is None
        assert snapshot.changed_since(versions[-2]) == {("job", number_key(7))}


def test_content_is_stored_once_and_packed(tmp_path: Path) -> None:
    script = b"#!/bin/sh\n" + b"echo hello\n" * 400
    key = hashlib.sha256(script).digest()
    store = open_store(tmp_path)
    store.commit({("blob", key): script})
    store.commit({("blob", key): b"never written over"})
    assert store.get("blob", key) == script
    store.close()
    with StoreReader(str(tmp_path)).snapshot() as snapshot:
        assert read_blob(snapshot, key) == script
        packed = snapshot.get("blob", key)
        assert packed is not None and len(packed) < len(script) // 4


@given(st.binary(max_size=4000))
def test_packing_comes_back(data: bytes) -> None:
    assert unpack_blob(pack_blob(data)) == data


def test_second_controller_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StateLocked, match=str(os.getpid())):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


def test_newer_format_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit({("meta", b"format"): b"999"})
    store.close()
    with pytest.raises(StateTooNew, match="999"):
        open_store(tmp_path)


def test_clear_starts_empty_and_keeps_the_old(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit({("job", number_key(1)): b"a"})
    store.close()
    for _ in range(2):
        store = Store.open(str(tmp_path), map_size=SMALL, clear=True)
        assert list(store.load("job")) == []
        store.close()
    assert (tmp_path / "main.old" / "data.mdb").exists()


def test_view_is_empty_after_a_start_and_readers_notice(tmp_path: Path) -> None:
    view = ViewStore(str(tmp_path))
    seen = view.put({("verdict", number_key(3)): b"Resources"})
    view.close()
    reader = ViewReader(str(tmp_path))
    with reader.snapshot() as snapshot:
        assert bytes(snapshot.get("verdict", number_key(3)) or b"") == b"Resources"
    reader.close()
    ViewStore(str(tmp_path)).close()
    with reader.snapshot() as snapshot:
        assert snapshot.get("verdict", number_key(3)) is None
        assert snapshot.changed_since(seen) is None


def test_replaced_files_are_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        store = open_store(tmp_path / name)
        store.commit({("job", name.encode()): b"x"})
        store.close()
    reader = StoreReader(str(tmp_path / "a"))
    with reader.snapshot() as snapshot:
        assert [bytes(key) for key, _ in snapshot.scan("job")] == [b"a"]
    (tmp_path / "a" / "main").rename(tmp_path / "old")
    (tmp_path / "b" / "main").rename(tmp_path / "a" / "main")
    reader.refresh()
    with reader.snapshot() as snapshot:
        assert [bytes(key) for key, _ in snapshot.scan("job")] == [b"b"]
    assert reader.reopened == 2


MOUNTS = """\
25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 25 0:41 / /home rw - nfs4 server:/home rw,vers=4.2
41 25 0:42 / /mnt/with\\040space rw - fuse.sshfs host:/ rw
42 40 254:1 / /home/local rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/gsched", "ext4"),
        ("/home/alice/state", "nfs4"),
        ("/home/local/state", "xfs"),
        ("/homestead", "ext4"),
        ("/mnt/with space/x", "fuse.sshfs"),
    ],
)
def test_filesystem_type(path: str, kind: str) -> None:
    assert filesystem_type(path, MOUNTS) == kind


def test_network_filesystem_is_refused() -> None:
    with pytest.raises(NotLocal, match="nfs4"):
        check_local("/home/alice/state", MOUNTS)
    check_local("/var/lib/gsched", MOUNTS)


def test_pages_can_be_forgotten_and_read_again(tmp_path: Path) -> None:
    def mapped_kb() -> int:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        at = next(n for n, line in enumerate(lines) if line.endswith(f"{tmp_path}/main/data.mdb"))
        return int(next(line for line in lines[at:] if line.startswith("Rss:")).split()[1])

    store = open_store(tmp_path)
    store.commit({("job", number_key(n)): b"x" * 1000 for n in range(4000)})
    before = sum(len(value) for _, value in store.load("job"))
    assert mapped_kb() > 4000
    store.tend()
    assert mapped_kb() < 400
    assert sum(len(value) for _, value in store.load("job")) == before == 4_000_000
    store.close()
