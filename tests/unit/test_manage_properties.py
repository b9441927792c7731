"""Whatever is asked of sacctmgr: the tree stays a tree, indexes stay right, and what is stored is
what is there."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.ledger_support import CONF, Bench

from gsched.ledger import Ledger, Write
from gsched.model.policy import PolicyRecord, User, key_of
from gsched.policy import Book
from gsched.wire.messages import Call, ManagePolicy, PolicyOp, Refused

_IDS = itertools.count(1)
_ACCOUNT = st.sampled_from(["root", "a", "b", "c", "d"])
_USER = st.sampled_from(["root", "kim", "lee", "pat"])
_QOS = st.sampled_from(["normal", "low", "high", "night"])
_VALUE = st.sampled_from(
    [
        *(("grpjobs", "=", text) for text in ("3", "-1", "-7", "x")),
        *(("maxwall", "=", text) for text in ("1-0", "-1", "abc")),
        *(("grptres", "=", text) for text in ("cpu=3", "cpu=-1,mem=5G", "foo=1", "")),
        *(("fairshare", "=", text) for text in ("parent", "7", "-1")),
        *(("qos", sign, text) for sign in ("=", "+=", "-=") for text in ("low", "high,night", "")),
        *(("defaultqos", "=", text) for text in ("low", "-1", "nosuch")),
        ("rawusage", "=", "0"),
        ("comment", "=", "words"),
        ("grptresguarantee", "=", "gres/gpu=4"),
    ]
)


@st.composite
def changes(draw: st.DrawFn) -> PolicyOp:
    verb = draw(st.sampled_from(["add", "add", "modify", "delete"]))
    entity = draw(st.sampled_from(["account", "user", "qos", "coordinator"]))
    name = {"account": _ACCOUNT, "user": _USER, "coordinator": _USER, "qos": _QOS}[entity]
    where = {"name": draw(st.lists(name, min_size=1, max_size=2, unique=True))}
    sets = draw(st.lists(_VALUE, max_size=2))
    if entity == "account":
        sets += [("parent", "=", one) for one in draw(st.lists(_ACCOUNT, max_size=1))]
    elif entity in ("user", "coordinator"):
        where["account"] = draw(st.lists(_ACCOUNT, min_size=1, max_size=2, unique=True))
        if entity == "user" and draw(st.booleans()):
            where["partition"] = draw(st.sampled_from([["gpu"], ["debug", "gpu"], ["nosuch"]]))
        if entity == "user" and verb != "add":
            where = {key: where[key] for key in draw(st.sets(st.sampled_from([*where])))}
            extra = [("newname", "=", draw(_USER)), ("defaultaccount", "=", draw(_ACCOUNT))]
            sets += draw(st.lists(st.sampled_from(extra), max_size=1))
        if entity == "user" and verb == "add" and draw(st.booleans()):
            where["wckey"] = ["k1", "k2"]
    else:
        sets += [("preempt", "=", one) for one in draw(st.lists(_QOS, max_size=1))]
    if entity == "coordinator" and verb == "modify":
        verb = "add"
    return PolicyOp(verb, entity, where, sets)


_COMMANDS = st.lists(
    st.tuples(st.lists(changes(), min_size=1, max_size=3), st.booleans(), st.booleans()),
    max_size=12,
)


def _sound(book: Book) -> None:
    """What must hold of all records, whatever was asked."""
    ids = [one.id for one in book.assocs.values()]
    assert len(ids) == len(set(ids))
    triples = [(one.account, one.user, one.partition) for one in book.assocs.values()]
    assert len(triples) == len(set(triples))
    for assoc in book.assocs.values():
        assert assoc.account in book.accounts
        assert not assoc.user or assoc.user in book.users
        # Up to root, and no way round.
        chain = book.chain(assoc)
        assert chain[-1].account == "root"
        assert len({one.id for one in chain}) == len(chain)
        assert book.exact(assoc.account, assoc.user, assoc.partition) is assoc
        above = book.parent(assoc)
        assert above is None or assoc in book.below(above.account)
        assert {one.lstrip("+-") for one in assoc.qos or ()} <= set(book.qos)
        assert assoc.default_qos is None or assoc.default_qos in book.qos
        for limit in (assoc.grp_jobs, assoc.max_wall, *assoc.grp_tres.values()):
            assert limit is None or limit >= 0
    assert {one.id for one in book.subtree("root")} == set(ids)
    for name in book.accounts:
        assert book.account(name) is not None
    for user in book.users.values():
        has = {one.account for one in book.assocs.values() if one.user == user.name}
        assert not has or user.default_account in has
        assert set(user.coordinator) <= set(book.accounts)
    for qos in book.qos.values():
        assert set(qos.preempt) <= set(book.qos)
    assert {key.user for key in book.wckeys.values()} <= set(book.users)
    # Indexes made anew are the same.
    again = Book(book.records())
    assert again._ids == book._ids
    for name in book.users:
        mine = [one for _, one in sorted(book.assocs.items()) if one.user == name]
        assert again.of_user(name) == book.of_user(name) == mine
    below = {name: set(found) for name, found in book._below.items() if found}
    assert {name: set(found) for name, found in again._below.items() if found} == below
    for assoc in book.assocs.values():
        assert again.effective(assoc) == book.effective(assoc)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(_COMMANDS)
def test_random_commands(commands: list[tuple[list[PolicyOp], bool, bool]]) -> None:
    bench = Bench(CONF, register=False)
    led = bench.led
    stored: dict[bytes, bytes] = {key_of(one): _packed(one) for one in led.book.records()}
    for ops, dry, as_root in commands:
        before = {key_of(one): _packed(one) for one in led.book.records()}
        call = Call(
            b"p%d" % next(_IDS), ManagePolicy(ops, dry), 0 if as_root else 7, 7, 1, [], "kim"
        )
        out = led.apply(Write(call), bench.now)
        for (table, key), record in out.puts.items():
            if table != "policy":
                continue
            if record is None:
                stored.pop(key)
            else:
                assert not isinstance(record, bytes)
                stored[key] = msgspec.msgpack.encode(record)
        _sound(led.book)
        after = {key_of(one): _packed(one) for one in led.book.records()}
        if dry or isinstance(out.answers[0][1], Refused):
            assert after == before
        assert stored == after
    decoder = msgspec.msgpack.Decoder(PolicyRecord)
    loaded = Ledger.load(
        bench.config, led.meta, [], [], policy_records=map(decoder.decode, stored.values())
    )
    assert {key_of(one): one for one in loaded.book.records()} == {
        key_of(one): one for one in led.book.records()
    }


def _packed(record: PolicyRecord) -> bytes:
    assert not isinstance(record, User) or record.name
    return msgspec.msgpack.encode(record)
