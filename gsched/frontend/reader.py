"""Reads, answered from snapshots of the store: the controller is never asked.

Records lie in the store as they travel, so an answer is put together from their bytes: a job is
decoded only by whoever asked for it. What queries filter by is kept in a small mirror.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from gsched.errors import message
from gsched.frontend.accounting import Live, gather
from gsched.frontend.changes import Changes, only
from gsched.frontend.names import Names
from gsched.model import Job, JobState, PlannedNodes, PolicyRecord, StartEstimates
from gsched.policy import privacy
from gsched.store import (
    Snapshot,
    StoreError,
    StoreReader,
    ViewReader,
    number_key,
    ranks,
    read_blob,
    verdicts,
)
from gsched.wire.changes import JobChanges
from gsched.wire.codec import encode
from gsched.wire.messages import (
    AcctQuery,
    Blob,
    BlobQuery,
    JobQuery,
    NodeQuery,
    PartitionQuery,
    Read,
    Refused,
    Status,
    StatusQuery,
    StepQuery,
)
from gsched.wire.policy import PolicyQuery
from gsched.wire.report import ReportQuery

CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"


class Behind(Exception):
    """The snapshot is older than what the caller has seen already: ask again a little later."""


class _JobHead(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a job's record."""

    id: int
    uid: int
    gid: int
    user: msgspec.Raw
    group: msgspec.Raw
    spec: msgspec.Raw
    script: str
    environment: str
    state: int
    completing: bool
    array_job_id: int


class _MetaHead(msgspec.Struct, array_like=True, gc=False):
    """The first fields of the record about the cluster."""

    cluster: str
    epoch: int
    next_job_id: int


class _JobRows(msgspec.Struct, array_like=True, tag="JobRows", gc=False):
    version: int
    jobs: list[msgspec.Raw]
    verdicts: dict[int, msgspec.Raw]
    not_before: dict[int, int] = {}
    priorities: dict[int, int] = {}


class _NodeRows(msgspec.Struct, array_like=True, tag="NodeRows", gc=False):
    version: int
    nodes: list[msgspec.Raw]
    use: list[msgspec.Raw]
    reservations: list[msgspec.Raw]
    planned: str = ""


class _StepRows(msgspec.Struct, array_like=True, tag="StepRows", gc=False):
    version: int
    steps: list[msgspec.Raw]
    jobs: list[msgspec.Raw]


class _PolicyRows(msgspec.Struct, array_like=True, tag="PolicyRows", gc=False):
    version: int
    records: list[msgspec.Raw]
    used: dict[str, msgspec.Raw]
    fair: msgspec.Raw | None = None


class _PartitionRows(msgspec.Struct, array_like=True, tag="PartitionRows", gc=False):
    version: int
    changes: list[msgspec.Raw]


#: states of jobs that have processes on nodes
_ON_NODES = (JobState.RUNNING, JobState.SUSPENDED)

_head = msgspec.msgpack.Decoder(_JobHead)
_job = msgspec.msgpack.Decoder(Job)
_meta = msgspec.msgpack.Decoder(_MetaHead)
_status = msgspec.msgpack.Decoder(Status)
_estimates = msgspec.msgpack.Decoder(StartEstimates)
_planned = msgspec.msgpack.Decoder(PlannedNodes)
_encoder = msgspec.msgpack.Encoder()


class Mirror:
    """Of every job: its owner, and whether it is still of interest as an active one.

    Kept up to date by the index of what changed; about 200 bytes a job.
    """

    def __init__(self) -> None:
        self.version = -1
        #: job id -> owner, active, array or heterogeneous job it is a part of
        self.jobs: dict[int, tuple[int, bool, int]] = {}
        self.by_uid: dict[int, set[int]] = {}
        self.by_array: dict[int, set[int]] = {}
        self.active: set[int] = set()

    def update(self, snapshot: Snapshot) -> None:
        """Brings it to the snapshot: by what changed, or anew where that is not known."""
        if snapshot.version == self.version:
            return
        changed = snapshot.changed_since(self.version) if self.version >= 0 else None
        if changed is None:
            self.jobs.clear()
            self.by_uid.clear()
            self.by_array.clear()
            self.active.clear()
            for _, value in snapshot.scan("job"):
                self._put(value)
        else:
            for table, key in changed:
                if table != "job":
                    continue
                self._drop(int.from_bytes(key, "big"))
                record = snapshot.get("job", key)
                if record is not None:
                    self._put(record)
        self.version = snapshot.version

    def _put(self, record: bytes | memoryview) -> None:
        head = _head.decode(record)
        active = head.state < JobState.COMPLETED or head.completing
        # Only a job without a script can be a further component of a heterogeneous job.
        group = head.array_job_id if head.script else _job.decode(record).het_job_id
        self.jobs[head.id] = (head.uid, active, group)
        if group:
            self.by_array.setdefault(group, set()).add(head.id)
        self.by_uid.setdefault(head.uid, set()).add(head.id)
        if active:
            self.active.add(head.id)

    def _drop(self, job_id: int) -> None:
        known = self.jobs.pop(job_id, None)
        if known is None:
            return
        for index, value in ((self.by_uid, known[0]), (self.by_array, known[2])):
            members = index.get(value)
            if members is not None:
                members.discard(job_id)
                if not members:
                    del index[value]
        self.active.discard(job_id)

    def select(self, query: JobQuery) -> list[int] | None:
        """Ids that a query asks for, sorted; None: all."""
        if not (query.ids or query.uids or query.active_only):
            return None
        if query.ids:
            # The id of an array means all its tasks, that of a leader all components.
            chosen = {job_id for job_id in query.ids if job_id in self.jobs}
            for job_id in query.ids:
                chosen |= self.by_array.get(job_id, set())
            if query.uids:
                chosen &= self._of(query.uids)
        elif query.uids:
            chosen = self._of(query.uids)
        else:
            chosen = set(self.active)
        if query.active_only:
            chosen &= self.active
        return sorted(chosen)

    def matches(self, job_id: int, query: JobQuery) -> bool:
        """Whether `select` of a query without ids would give the job."""
        known = self.jobs.get(job_id)
        if known is None or (query.uids and known[0] not in query.uids):
            return False
        return known[1] or not query.active_only

    def _of(self, uids: Iterable[int]) -> set[int]:
        return set().union(*(self.by_uid.get(uid, ()) for uid in uids))


_policy_decoder: msgspec.msgpack.Decoder[PolicyRecord] = msgspec.msgpack.Decoder(PolicyRecord)


class Reads:
    """Answers reads; one per worker. Values of the store are never changed here."""

    def __init__(
        self,
        state_dir: str,
        cluster_name: str,
        admins: frozenset[int],
        *,
        private: bool = False,
        private_policy: frozenset[str] = frozenset(),
    ) -> None:
        """`admins` may read every job's script and environment; `private`: nobody but them sees
        the jobs of others (PrivateData=jobs); `private_policy`: the same for accounts and users
        (gsched.policy.privacy)."""
        self._main = StoreReader(state_dir)
        self._view = ViewReader(state_dir)
        #: start estimates as they are stored, and unpacked
        self._plan: tuple[bytes, dict[int, int]] = b"", {}
        self._cluster_name = cluster_name
        self._admins = admins
        self._private = private
        self._private_policy = private_policy
        self._names = Names()
        self._mirror = Mirror()
        self._opened = 0
        #: a version that was promised and does not come: the controller was killed meanwhile
        self._vain = 0
        #: what was promised last, and since when
        self._owed, self._owed_since = 0, 0.0

    def refresh(self) -> None:
        """Notices that the files were replaced, and what changed in them: so no question has to
        wait while a long queue is read. Call it before the first one, and every second or so."""
        self._main.refresh()
        self._view.refresh()
        try:
            with self._main.snapshot() as main:
                self._current(main)
        except (StoreError, msgspec.DecodeError):
            return  # the next question says so

    def _current(self, main: Snapshot) -> Mirror:
        """The mirror as of a snapshot."""
        if self._main.reopened != self._opened:
            self._opened = self._main.reopened
            self._mirror = Mirror()
        self._mirror.update(main)
        return self._mirror

    @property
    def promised(self) -> int:
        """The version that somebody may have been told of already: what a question that comes now
        has to be answered from. Later ones need not be waited for, however many come."""
        return self._main.promised

    def _check(self, main: Snapshot, known: int | None) -> None:
        """Raises Behind when somebody may have known of more than the snapshot shows when the
        question came, that is of the version `known` (None: it comes now)."""
        promised = self._main.promised
        # Of another state that lay here then it says nothing.
        wanted = promised if known is None else min(known, promised)
        if main.version < wanted != self._vain:
            raise Behind

    def give_up(self) -> bool:
        """What was promised is not waited for any longer; False: it was not waited for."""
        vain, self._vain = self._vain, self._main.promised
        return self._vain != vain

    def watch(self, now: float, patience_s: float) -> None:
        """Call it every second or so: what does not come in `patience_s` is not waited for by a
        question that comes later still, whichever worker it comes to."""
        promised = self._main.promised
        if promised != self._owed:
            self._owed, self._owed_since = promised, now
        elif now - self._owed_since >= patience_s:
            self._vain = promised

    def answer(self, query: Read, uid: int, controller_up: bool, known: int | None = None) -> bytes:
        """The packed answer. Raises Behind when the snapshot is too old for `min_version`, or for
        what others had been told when it came: `known` is what `promised` was then.

        Cost: all jobs about 0.5 us each, a selection 2 us for each job in it.
        """
        whose = self._whose(uid)
        if whose >= 0 and isinstance(query, JobQuery | StepQuery):
            query.uids = only(whose, query.uids)
        try:
            with self._main.snapshot() as main:
                self._check(main, known)
                if isinstance(query, JobQuery):
                    return self._jobs(query, main)
                if isinstance(query, JobChanges):
                    return self._changes(query, uid, main)
                if isinstance(query, NodeQuery):
                    return self._nodes(query, main)
                if isinstance(query, PartitionQuery):
                    return self._partitions(query, main)
                if isinstance(query, PolicyQuery):
                    return self._policy(query, uid, main)
                if isinstance(query, StepQuery):
                    return self._steps(query, main)
                if isinstance(query, BlobQuery):
                    return encode(self._blob(query, uid, main))
                assert isinstance(query, StatusQuery)
                return encode(self._status(main, controller_up))
        except StoreError:
            if isinstance(query, StatusQuery):
                return encode(Status("", self._cluster_name, 0, 0, controller_up))
            return encode(Refused(b"", CONNECT_FAILURE, temporary=True))
        except msgspec.DecodeError as error:
            return encode(Refused(b"", f"a stored record cannot be read: {error}"))

    def _whose(self, uid: int) -> int:
        """The only user whose jobs the asker may see; -1: everybody's."""
        return uid if self._private and uid not in self._admins else -1

    def live(self, query: AcctQuery | ReportQuery, known: int | None = None) -> Live:
        """What accounting's question concerns in the state: jobs, verdicts, the outbox.

        Raises Behind and StoreError. Cost: a copy of every record that may match.
        """
        with self._main.snapshot() as main:
            if main.version < query.min_version:
                raise Behind
            self._check(main, known)
            ids = None
            if isinstance(query, AcctQuery) and (query.ids or query.uids):
                mirror = self._current(main)
                # A job may be named by the id of its heterogeneous job, which no index has.
                named = [job_id for job_id, task in query.ids if task >= -1]
                whole = len(named) < len(query.ids)
                ids = mirror.select(JobQuery([] if whole else named, query.uids))
            try:
                with self._view.snapshot() as view:
                    return gather(main, view, ids)
            except StoreError:
                return gather(main, None, ids)

    def _jobs(self, query: JobQuery, main: Snapshot) -> bytes:
        version = main.version
        if version < query.min_version:
            raise Behind
        selected = None
        if query.ids or query.uids or query.active_only:
            selected = self._current(main).select(query)
        if selected is None:
            jobs = [msgspec.Raw(value) for _, value in main.scan("job")]
        else:
            found = (main.get("job", number_key(i)) for i in selected)
            jobs = [msgspec.Raw(value) for value in found if value is not None]
        # Packed while the snapshots that own the bytes are open.
        try:
            with self._view.snapshot() as view:
                why = _verdicts(view, selected)
                late = self._not_before(view, selected)
                ranked = ranks(view, selected)
                return _encoder.encode(_JobRows(version, jobs, why, late, ranked))
        except StoreError:
            return _encoder.encode(_JobRows(version, jobs, {}))

    def _changes(self, query: JobChanges, uid: int, main: Snapshot) -> bytes:
        if main.version < query.min_version:
            raise Behind
        mirror = self._current(main)
        value = main.get("meta", b"meta")
        meta = _meta.decode(value) if value is not None else _MetaHead("", 0, 0)
        try:
            with self._view.snapshot() as view:
                found = view.get("status", b"controller")
                own = _status.decode(found) if found is not None else None
                run = (own.pid, own.start) if own is not None else (0, 0)
                cluster = self._main.inode, self._view.inode, meta.cluster, meta.epoch, *run
                late = partial(self._not_before, view, None)
                # Packed while the snapshots that own the bytes are open.
                return Changes(main, view, mirror, cluster, late).answer(query, self._whose(uid))
        except StoreError:
            nowhere = 0, 0, "", 0, 0, 0
            return Changes(main, None, mirror, nowhere, dict).answer(query, self._whose(uid))

    def _steps(self, query: StepQuery, main: Snapshot) -> bytes:
        version = main.version
        if version < query.min_version:
            raise Behind
        whose = JobQuery(query.job_ids, query.uids, active_only=True)
        leaders: dict[int, None] = {}
        jobs: list[msgspec.Raw] = []
        for job_id in self._current(main).select(whose) or ():
            record = main.get("job", number_key(job_id))
            head = _head.decode(record) if record is not None else None
            if record is None or head is None or head.state not in _ON_NODES:
                continue
            jobs.append(msgspec.Raw(record))
            # Steps of a heterogeneous job are all of its first component, which has the script.
            leaders[job_id if head.script else _job.decode(record).het_job_id or job_id] = None
        if query.job_ids or query.uids:
            below = (main.below("step", number_key(leader)) for leader in leaders)
            steps = [msgspec.Raw(value) for found in below for _, value in found]
        else:
            steps = [msgspec.Raw(value) for _, value in main.scan("step")]
        return _encoder.encode(_StepRows(version, steps, jobs))

    def _not_before(self, view: Snapshot, selected: list[int] | None) -> dict[int, int]:
        """Start estimates of jobs without a planned place. Cost: jobs, once per plan."""
        packed = view.get("plan", b"estimates")
        if packed is None:
            return {}
        if packed != self._plan[0]:
            packed = bytes(packed)
            self._plan = packed, _estimates.decode(packed).by_job()
        known = self._plan[1]
        if selected is None:
            return known
        return {job_id: known[job_id] for job_id in selected if job_id in known}

    def _nodes(self, query: NodeQuery, main: Snapshot) -> bytes:
        version = main.version
        if version < query.min_version:
            raise Behind
        nodes = [msgspec.Raw(value) for _, value in main.scan("node")]
        kept = [msgspec.Raw(value) for _, value in main.scan("reservation")]
        try:
            with self._view.snapshot() as view:
                use = [msgspec.Raw(value) for _, value in view.scan("use")]
                packed = view.get("plan", b"nodes")
                planned = "" if packed is None else _planned.decode(packed).names
                return _encoder.encode(_NodeRows(version, nodes, use, kept, planned))
        except StoreError:
            return _encoder.encode(_NodeRows(version, nodes, [], kept))

    def _partitions(self, query: PartitionQuery, main: Snapshot) -> bytes:
        version = main.version
        if version < query.min_version:
            raise Behind
        changes = [msgspec.Raw(value) for _, value in main.scan("partition")]
        return _encoder.encode(_PartitionRows(version, changes))

    def _policy(self, query: PolicyQuery, uid: int, main: Snapshot) -> bytes:
        version = main.version
        if version < query.min_version:
            raise Behind
        if self._private_policy and uid not in self._admins:
            whole = [_policy_decoder.decode(value) for _, value in main.scan("policy")]
            user = self._names.of(uid, -1)[0]
            records = [
                msgspec.Raw(_encoder.encode(record))
                for record in privacy.visible(whole, user, self._private_policy)
            ]
        else:
            records = [msgspec.Raw(value) for _, value in main.scan("policy")]
        if not query.used:
            return _encoder.encode(_PolicyRows(version, records, {}))
        used = {bytes(key).hex(): msgspec.Raw(value) for key, value in main.scan("used")}
        try:
            with self._view.snapshot() as view:
                found = view.get("rank", b"fair")
                fair = msgspec.Raw(found) if found is not None else None
                return _encoder.encode(_PolicyRows(version, records, used, fair))
        except StoreError:
            return _encoder.encode(_PolicyRows(version, records, used))

    def _blob(self, query: BlobQuery, uid: int, main: Snapshot) -> Blob | Refused:
        record = main.get("job", number_key(query.job_id)) if query.job_id > 0 else None
        if record is None:
            return Refused(b"", "Invalid job id specified", "ESLURM_INVALID_JOB_ID")
        head = _head.decode(record)
        if uid != head.uid and uid not in self._admins:
            return Refused(b"", "Invalid user id", "ESLURM_USER_ID_MISSING")
        if query.what not in {"script", "environment"}:
            return Refused(b"", f"a job has no {query.what!r}")
        digest = head.script if query.what == "script" else head.environment
        if query.what == "script" and _job.decode(record).spec.interactive:
            # What lies there lets its holder pass for an agent.
            code = "ESLURM_JOB_SCRIPT_MISSING"
            return Refused(b"", message(code), code)
        if not digest:
            return Blob(b"")
        data = read_blob(main, digest.encode())
        if data is None:
            return Refused(b"", f"the {query.what} of job {query.job_id} is not stored")
        return Blob(data)

    def _status(self, main: Snapshot, controller_up: bool) -> Status:
        value = main.get("meta", b"meta")
        meta = _meta.decode(value) if value is not None else _MetaHead("", 0, 0)
        status = Status(meta.cluster, self._cluster_name, main.version, meta.epoch, controller_up)
        status.next_job_id = meta.next_job_id
        try:
            with self._view.snapshot() as view:
                found = view.get("status", b"controller")
                if found is not None:
                    own = _status.decode(found)
                    status.pid, status.start = own.pid, own.start
                    status.config_version = own.config_version
                    status.last_pass = own.last_pass
        except StoreError:
            pass
        return status

    def close(self) -> None:
        self._main.close()
        self._view.close()


def _verdicts(view: Snapshot, selected: list[int] | None) -> dict[int, msgspec.Raw]:
    """Verdicts by job id; a handful is looked up, many are scanned for."""
    few = selected if selected is not None and len(selected) <= 1000 else None
    found = verdicts(view, few)
    if selected is None or few is not None:
        return {job_id: msgspec.Raw(value) for job_id, value in found.items()}
    return {job_id: msgspec.Raw(found[job_id]) for job_id in selected if job_id in found}
