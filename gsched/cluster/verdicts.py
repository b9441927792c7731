"""Verdicts of passes on their way to the view: why each job waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from gsched import _core
from gsched.cluster.limits import Limits
from gsched.cluster.nodes import Nodes
from gsched.cluster.queue import Queue
from gsched.cluster.windows import Windows
from gsched.hostlist import compress
from gsched.licenses import LICENSES
from gsched.model import Verdict
from gsched.together import Together

#: a verdict that is not the core's: nodes are expected back
_SETTLING = -1

#: verdict codes of the core -> Slurm's reason word
_WORDS = {
    _SETTLING: "Resources",
    _core.UNTESTED: "None",
    _core.RESOURCES: "Resources",
    _core.PRIORITY: "Priority",
    # It would not fit either if nobody were ahead.
    _core.BEHIND: "Resources",
    _core.BEGIN: "BeginTime",
    _core.NODES_DOWN: (
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
        "partitions"
    ),
    _core.NEVER: "BadConstraints",
    _core.GROUP: "JobArrayTaskLimit",
    _core.RESERVATION: "Reservation",
    _core.WINDOW: "ReqNodeNotAvail, May be reserved for other job",
    LICENSES: "Licenses",
}
#: where a maintenance is in the way
_MAINTENANCE = "ReqNodeNotAvail, Reserved for maintenance"

#: of several partitions the most hopeful one is told
_HOPE = (
    _SETTLING,
    _core.PRIORITY,
    _core.RESOURCES,
    _core.BEHIND,
    _core.WINDOW,
    _core.RESERVATION,
    LICENSES,
    _core.LIMIT,
    _core.GROUP,
    _core.BEGIN,
    _core.NODES_DOWN,
    _core.UNTESTED,
    _core.NEVER,
    _core.HELD,
)

_STARTED = int(_core.STARTED)
#: what is said of a job for which there is no room
_ROOM = (_core.RESOURCES, _core.BEHIND, _core.PRIORITY)

#: verdicts told to the view per pass: the rest follow in the next one, so that a pass over a
#: long queue does not hold up the loop
VERDICTS_PER_PASS = 4000
#: a verdict that must be worked out counts as so many that need not
DEARER = 4
#: verdicts told per pass where a word says all
ALIKE_PER_PASS = 50_000
#: reservations that are not looked through in every pass
LONG_PLAN = 500
#: codes that say all that there is to be said: nearly every verdict of a long queue is one of them
_PLAIN = {code: _WORDS[code] for code in (_core.PRIORITY, _core.BEHIND)}


def _at(reservation: Any) -> int:
    return int(reservation.at)


def _same(old: _core.Reservation | None, new: _core.Reservation) -> bool:
    """Whether two reservations tell the user the same."""
    return (
        old is not None
        and old.at == new.at
        and (
            [share[0] for share in old.placement.nodes]
            == [share[0] for share in new.placement.nodes]
        )
    )


class Verdicts:
    """What changed for waiting jobs and has not been told yet."""

    def __init__(
        self,
        nodes: Nodes,
        queue: Queue,
        core: _core.Core,
        together: Together,
        windows: Windows,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self._nodes = nodes
        self._windows = windows
        self._queue = queue
        self._core = core
        self._together = together
        #: rows whose verdict changed
        self._changed: dict[int, int] = {}
        #: reservations by row
        self._kept: dict[int, _core.Reservation] = {}
        #: what they keep is another than was told, and from when on it is looked at again
        self._moved = True
        self._look_at = 0
        #: rows that were told that nodes are expected back
        self._settling: set[int] = set()
        #: jobs that were told that a node which they name is away: their row and verdict code
        self._away_said: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        """Verdicts to be told."""
        return len(self._changed)

    @property
    def keeps(self) -> bool:
        """Whether something is kept for a waiting job."""
        return bool(self._kept)

    def add(self, changes: Iterable[tuple[int, int]]) -> None:
        """Verdicts of rows that a pass has changed."""
        self._changed.update([change for change in changes if change[1] != _STARTED])

    def settling(self) -> None:
        """Nodes are expected back: everybody waits for that."""
        new = self._queue.row.keys() - self._settling
        self._settling |= new
        self._changed.update((key, _SETTLING) for key in sorted(new))

    def settled(self) -> None:
        """They are there, or no longer expected: who was told so is told anew."""
        if self._settling:
            told = sorted(key for key in self._settling if key in self._queue.row)
            self._settling.clear()
            self._changed.update((key, self._core.verdict(key)) for key in told)

    def alike(self, groups: Mapping[int, tuple[list[int], list[int]]]) -> dict[str, list[int]]:
        """Jobs of a single row by the word that they are told, of those whose verdict a pass has
        changed: code -> rows and jobs, after `add` and `reserved`. What a word does not say, or
        would be too many, is told with the others. Cost: ~0.1 us each."""
        words: dict[str, list[int]] = {}
        left = ALIKE_PER_PASS
        for code, (keys, ids) in groups.items():
            planned = set() if self._kept.keys().isdisjoint(keys) else self._kept.keys() & keys
            if self._limits.likely and code in _ROOM:
                planned = planned | {key for key in keys if self._likely(key) >= 0}
            if planned or len(keys) > left:
                here = [n for n, key in enumerate(keys) if key not in planned][:left]
                self._changed.update(dict.fromkeys(keys, code))
                keys, ids = [keys[n] for n in here], [ids[n] for n in here]
            left -= len(keys)
            if self._changed:
                for key in self._changed.keys() & keys:
                    del self._changed[key]
            if code != _core.HELD:
                words.setdefault(_WORDS[code], []).extend(ids)
                continue
            parked = self._queue.parked
            for job_id in ids:
                words.setdefault(parked.get(job_id, "None"), []).append(job_id)
        return words

    def parked(self, job_id: int) -> None:
        """A job has entered the queue; if it may not start its reason is told."""
        if job_id in self._queue.parked:
            self._changed[self._queue.first_row(job_id)] = _core.HELD

    def forget(self, job_id: int, keys: Iterable[int]) -> None:
        """A job has left the queue."""
        for key in keys:
            self._changed.pop(key, None)
            if self._kept.pop(key, None) is not None:
                self._moved = True
        self._away_said.pop(job_id, None)

    def usable_changed(self, name: str) -> None:
        """A node went up or down: jobs that name it are told anew."""
        for job_id, (key, code) in self._away_said.items():
            if name in self._queue.named(job_id) and key in self._queue.row:
                self._changed.setdefault(key, code)

    def reserved(self, made: Iterable[_core.Reservation], *, whole: bool) -> None:
        """Reservations that were made; `whole`: there are no others. What they change is told."""
        found = {one.key: one for one in made if one.key in self._queue.row}
        for key, one in found.items():
            if not _same(self._kept.get(key), one):
                self._moved = True
                self._changed.setdefault(key, self._core.verdict(key))
        if not whole:
            self._kept.update(found)
            return
        for key in self._kept.keys() - found.keys():
            self._moved = True
            if key in self._queue.row:
                self._changed.setdefault(key, self._core.verdict(key))
        self._kept = found

    def planned(self, now: int) -> str | None:
        """Host list of the nodes of which something is kept for waiting jobs; None: as it was told
        last, or not looked at yet. Cost: all that is kept, for a long plan every two seconds."""
        if not self._moved or now < self._look_at:
            return None
        self._moved = False
        if len(self._kept) > LONG_PLAN:
            self._look_at = now + 2
        kept = [one.placement.nodes for one in self._kept.values() if one.at >= 0]
        names = self._nodes.names
        return compress([names[i] for i in sorted({share[0] for nodes in kept for share in nodes})])

    def tell(self, now: int) -> list[Verdict]:
        """Those that changed, and are not told by a word. Cost: ~0.5 us each."""
        verdicts = []
        estimates = self._kept
        rows, single, parked = self._queue.row, self._queue.single, self._queue.parked
        left = VERDICTS_PER_PASS
        for key in list(islice(self._changed, VERDICTS_PER_PASS)):
            if left <= 0:
                break
            left -= 1
            code = self._changed.pop(key)
            row = rows.get(key)
            if row is None:
                continue
            job_id = row[0]
            plain = _PLAIN.get(code)
            simple = key not in estimates and job_id not in parked and self._likely(key) < 0
            if plain and simple and single(job_id):
                verdicts.append(Verdict(job_id, plain))
                continue
            left -= DEARER - 1
            leads = self._queue.leads(job_id)
            if key not in leads:
                continue
            if len(leads) > 1:
                key, code = self._most_hopeful(leads, key, code)
            verdict = Verdict(job_id, self._word(job_id, key, code, now))
            kept = min((estimates[k] for k in leads if k in estimates), key=_at, default=None)
            if kept is not None and kept.at >= 0:
                verdict.start = kept.at
                names = self._nodes.names
                verdict.nodes = ",".join(names[share[0]] for share in kept.placement.nodes)
            if code in (_core.RESOURCES, _core.NODES_DOWN, _core.NEVER, _core.WINDOW):
                away = self._named_away(job_id) if code != _core.NEVER else ""
                if away:
                    verdict.reason = f"ReqNodeNotAvail, UnavailableNodes:{away}"
                    self._away_said[job_id] = key, code
            verdicts.append(verdict)
        return verdicts

    def _word(self, job_id: int, key: int, code: int, now: int) -> str:
        """Slurm's reason word."""
        parked = self._queue.parked.get(job_id)
        if parked:
            return parked
        if code == _SETTLING:
            return _WORDS[code]
        likely = self._likely(key) if code in _ROOM else -1
        if code == _core.LIMIT or likely >= 0:
            chain = self._queue.chain.get(key, -1)
            return self._limits.word(key, max(likely, self._together.over.get(job_id, -1)), chain)
        if code in (_core.NODES_DOWN, _core.NEVER) and self._queue.possible_later(job_id, key):
            code = _core.RESOURCES
        if code == _core.RESOURCES and job_id not in self._together:
            # The first of its partition, but those ahead in other partitions may be the cause.
            req = self._queue.request_of(job_id, key)
            if self._core.what_if(req, now) is not None:
                code = _core.WINDOW if self._windowed(req, job_id, now) else _core.PRIORITY
        if code == _core.WINDOW:
            limit, partition = self._queue.limit(job_id), self._queue.row[key][1]
            if self._windows.maintenance_ahead(now, limit, partition, self._queue.named(job_id)):
                return _MAINTENANCE
        elif code == _core.UNTESTED:
            # A component that may not start holds the others back.
            return self._together.parked(job_id) or _WORDS[code]
        return _WORDS.get(code, "None")

    def _likely(self, key: int) -> int:
        """The bin of a limit that the place of a job is likely to break; -1: none. There is no
        room for it now; once there is, it is seen whether it does."""
        return self._limits.likely.get(self._queue.chain.get(key, -1), -1)

    def _windowed(self, req: int, job_id: int, now: int) -> bool:
        """Whether a job for which there is room would run into an advance reservation, whatever
        is planned."""
        if not len(self._windows):
            return False
        plans = [one.key for one in self._core.reservations()]
        return self._core.what_if(req, now, self._queue.limit(job_id), without=plans) is None

    def _most_hopeful(self, leads: list[int], key: int, code: int) -> tuple[int, int]:
        """Of the rows that stand for the partitions of a job the one that is told, and its
        verdict; `key` has just got `code`."""
        codes = [(code if k == key else self._core.verdict(k), k) for k in leads]
        hope = {one: rank for rank, one in enumerate(_HOPE)}
        code, key = min(codes, key=lambda one: (hope.get(one[0], len(hope)), leads.index(one[1])))
        return key, code

    def _named_away(self, job_id: int) -> str:
        """The nodes that a job names and that take no work now, as a host list; "" none."""
        names = self._queue.named(job_id)
        indexes = [self._nodes.index[name] for name in names if name in self._nodes.index]
        away = [self._nodes.names[i] for i in indexes if not self._core.node(i).usable]
        return compress(away) if away else ""
