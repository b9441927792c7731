"""Which records a question means: the one place that decides it, for SQL's rows and live ones."""

from __future__ import annotations

from gsched.hostlist import HostlistError, expand
from gsched.model.acct import AcctJob
from gsched.taskset import TaskSet, TaskSetError
from gsched.wire.messages import AcctQuery


class Choice:
    """A question, ready to be put to many records."""

    def __init__(self, query: AcctQuery) -> None:
        self.query = query
        self._ids: dict[int, set[int]] = {}
        for job_id, task in query.ids:
            self._ids.setdefault(job_id, set()).add(task)
        self._uids = frozenset(query.uids)
        self._gids = frozenset(query.gids)
        self._assocs = frozenset(query.assocs)
        self._nodes = frozenset(query.nodes)
        self._states = frozenset(query.states)
        self._lists = [
            (name, frozenset(wanted))
            for name, wanted in (
                ("account", query.accounts),
                ("name", query.names),
                ("qos", query.qos),
                ("wckey", query.wckeys),
                ("reason", query.reasons),
            )
            if wanted
        ]
        self._partitions = frozenset(query.partitions)

    def takes(self, row: AcctJob) -> bool:
        """Whether the record is asked for. About 2 us."""
        query = self.query
        if self._ids and not self._named(row):
            return False
        if self._uids and row.uid not in self._uids:
            return False
        if self._gids and row.gid not in self._gids:
            return False
        if self._assocs and row.assoc_id not in self._assocs:
            return False
        for name, wanted in self._lists:
            if getattr(row, name) not in wanted:
                return False
        if self._partitions and self._partitions.isdisjoint(row.partition_name.split(",")):
            return False
        if self._nodes and self._nodes.isdisjoint(_names(row.nodes)):
            return False
        if query.constraints and not set(query.constraints) <= _features(row.constraints):
            return False
        ranges = (
            (query.ncpus, row.alloc_cpus),
            (query.nnodes, row.alloc_nodes),
            (query.limit_s, row.time_limit),
        )
        for bounds, value in ranges:
            if bounds and not bounds[0] <= value <= bounds[-1]:
                return False
        return self._in_time(row)

    def _named(self, row: AcctJob) -> bool:
        if -1 in self._ids.get(row.job_id, ()):
            return True
        tasks = self._ids.get(row.group_id)
        if tasks is None:
            return False
        if -1 in tasks:
            # The id of a heterogeneous job is that of its first component, too.
            return not (row.het_job_id and self.query.whole_het is False)
        if row.het_job_id:
            # 188+1 comes as the component below -1.
            return -2 - row.het_offset in tasks
        if row.array_task_id >= 0:
            return row.array_task_id in tasks
        if row.array_tasks:
            try:
                together = TaskSet.parse(row.array_tasks)
            except (TaskSetError, ValueError):
                return False
            return any(task in together for task in tasks if task >= 0)
        return False

    def _in_time(self, row: AcctJob) -> bool:
        """The time window, as sacct's manual has it: without states, what was there at some time
        in it; with states, what was in one of them."""
        begin, end = self.query.start, self.query.end
        if not self._states:
            if row.end_time and row.end_time < begin:
                return False
            if self.query.ineligible:
                return row.submit < end
            return 0 < row.eligible < end
        return any(self._was(row, state, begin, end) for state in self._states)

    def _was(self, row: AcctJob, state: str, begin: int, end: int) -> bool:
        over = row.start or row.end_time
        if state == "PENDING":
            return bool(row.eligible) and row.eligible < end and (not over or over >= begin)
        if state == "RUNNING":
            alive = not row.end_time or row.end_time >= begin
            return bool(row.start) and row.start < end and alive
        if row.state != state:
            return False
        return not row.end_time or begin <= row.end_time <= end


def _names(nodes: str) -> list[str]:
    try:
        return expand(nodes) if nodes else []
    except HostlistError:
        return []


def _features(text: str) -> set[str]:
    for sign in "&|*[]()":
        text = text.replace(sign, ",")
    return {word for word in text.split(",") if word}
