"""One command of `sacctmgr` under way: changes that can all be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import accounts, associate, tell, use
from gsched.ledger.outcome import Outcome
from gsched.model.policy import (
    Assoc,
    PolicyRecord,
    key_of,
)
from gsched.policy.settings import Known, limitable
from gsched.wire.messages import Call, PolicyDone

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: code of a refusal that is no mistake: nothing was there to change (Slurm writes it to standard
#: output)
UNCHANGED = "SLURM_NO_CHANGE_IN_DATA"
ACCESS = "ESLURM_ACCESS_DENIED"


class No(Exception):
    """Why the command is refused, in the lines that it prints."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


def wrong(text: str) -> No:
    """A request that makes no sense, in Slurm's form."""
    return No(f"sacctmgr: error: {text}\n Error with request: {text}\n")


class Work:
    """The changes so far, in effect in the ledger's book, and how to undo them."""

    def __init__(self, led: Ledger, call: Call, now: float, load: bool = False) -> None:
        self.led = led
        self.book = led.book
        self.call = call
        self.now = int(now)
        #: what is there already is no reason to refuse
        self.load = load
        self.done: list[PolicyDone] = []
        #: (action, where, info)
        self.told: list[tuple[str, str, str]] = []
        self.resets: list[int | str] = []
        self._version = led.book.version
        self._undo: list[tuple[PolicyRecord | None, PolicyRecord | None]] = []
        self._next_assoc = 0
        self._next_qos = 0
        self._next_wckey = 0
        self._tres = limitable(led.config)

    # ---- records --------------------------------------------------------------------------------

    def put(self, record: PolicyRecord) -> None:
        """A record is new, or is now this."""
        old = self.book.same(record)
        if old != record:
            self._undo.append((old, record))
            self.book.put(record)

    def drop(self, record: PolicyRecord) -> None:
        self._undo.append((record, None))
        self.book.drop(record)

    @property
    def changed(self) -> bool:
        return bool(self._undo or self.resets)

    def undo(self) -> None:
        """All is as it was."""
        for old, new in reversed(self._undo):
            if old is None:
                assert new is not None
                self.book.drop(new)
            else:
                self.book.put(old)
        self.book.version = self._version
        self._undo.clear()

    def commit(self, out: Outcome) -> None:
        """The changes become the ledger's: they are stored and told."""
        last: dict[bytes, tuple[PolicyRecord, bool]] = {}
        made: set[bytes] = set()
        for old, new in self._undo:
            record = new if new is not None else old
            assert record is not None
            key = key_of(record)
            if old is None and key not in last:
                made.add(key)
            last[key] = (record, new is None)
        for key, (record, gone) in last.items():
            # What was made and taken away again was never there.
            if not (gone and key in made):
                accounts.note(self.led, record, gone, out)
        use.reset(self.led, self.resets, float(self.now), out)
        for action, where, info in self.told:
            tell.transaction(self.led, self.actor, action, where, info)
        if self._next_assoc or self._next_qos or self._next_wckey:
            meta = self.led.meta
            meta.next_assoc = self._next_assoc or meta.next_assoc
            meta.next_qos = self._next_qos or meta.next_qos
            meta.next_wckey = self._next_wckey or meta.next_wckey
            self.led.put_meta(out)

    def count(self) -> int:
        """How many changes there are so far."""
        return len(self._undo)

    def say(self, what: str, *items: str) -> None:
        """One more item of what the command reports under `what`."""
        for each in self.done:
            if each.what == what:
                if list(items) not in each.items:
                    each.items.append(list(items))
                return
        self.done.append(PolicyDone(what, [list(items)]))

    def say_assoc(self, what: str, assoc: Assoc) -> None:
        self.say(what, assoc.account, assoc.parent, assoc.user, assoc.partition)

    def tell(self, action: str, where: str, info: str = "") -> None:
        """What `sacctmgr show transactions` will have."""
        self.told.append((action, where, info))

    # ---- numbers --------------------------------------------------------------------------------

    def assoc_id(self) -> int:
        """A number that no association has or had: jobs and usage go by it."""
        if not self._next_assoc:
            self._next_assoc = max(self.led.meta.next_assoc, max(self.book.assocs, default=0) + 1)
        self._next_assoc += 1
        return self._next_assoc - 1

    def qos_id(self) -> int:
        if not self._next_qos:
            most = max((qos.id for qos in self.book.qos.values()), default=0)
            self._next_qos = max(self.led.meta.next_qos, most + 1)
        self._next_qos += 1
        return self._next_qos - 1

    def wckey_id(self) -> int:
        if not self._next_wckey:
            most = max(self.book.wckeys, default=0)
            self._next_wckey = max(self.led.meta.next_wckey, most + 1)
        self._next_wckey += 1
        return self._next_wckey - 1

    # ---- who ------------------------------------------------------------------------------------

    @property
    def actor(self) -> str:
        return self.call.user or str(self.call.uid)

    @property
    def admin(self) -> bool:
        """Root, the cluster's own users, and whose admin level is Administrator."""
        return self.led.is_admin(self.call.uid) or self._level == "Administrator"

    @property
    def operator(self) -> bool:
        return associate.is_operator(self.led, self.call)

    @property
    def _level(self) -> str:
        return self.book.level(self.call.user)

    def coordinates(self, account: str) -> bool:
        """Whether the caller is coordinator of an account, or of one above it."""
        user = self.call.user
        if not user:
            return False
        if self.book.is_coordinator(user, account):
            return True
        own = self.book.account(account)
        return own is not None and any(
            "UsersAreCoords" in one.flags and self.book.find(one.account, user) is not None
            for one in self.book.chain(own)
        )

    # ---- what values may name -------------------------------------------------------------------

    @property
    def known(self) -> Known:
        by_id = sorted(self.book.qos.values(), key=lambda qos: qos.id)
        return Known([qos.name for qos in by_id], self._tres)


def replaced(record: Assoc, **fields: object) -> Assoc:
    """The same association with other fields."""
    return msgspec.structs.replace(record, **fields)
