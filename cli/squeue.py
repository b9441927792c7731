"""squeue: the queue, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from gsched.model.job import Job
from gsched.model.states import JobState
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, error
from gsched_cli.fields import Format, Table, parse_long, parse_short, sort_fields, sort_views
from gsched_cli.fields_job import job_table
from gsched_cli.jobquery import load_jobs, when_looked_at
from gsched_cli.jobview import BITSTR_LEN, JobView
from gsched_cli.queue_join import member
from gsched_cli.queue_lines import QueueLines
from gsched_cli.squeue_options import NAME, Wanted, array_tasks, number, read_options
from gsched_cli.stop import Stop, again_and_again, asking, own_cluster
from gsched_cli.text import date_line

if TYPE_CHECKING:
    from gsched.wire.messages import JobRows
    from gsched_cli.dump import Asked
    from gsched_cli.kept import Kept
    from gsched_cli.queue_records import Records
    from gsched_cli.stepview import StepView

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
#: partition, then state, then the highest priority first
SORT = "P,t,-p"
STEP_SORT = "P,i"
ASKING = "slurm_load_jobs error:"
#: variables that lines depend on beside those that are options
VARIABLES = ("SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT", "TZ")
#: fields that show what is planned for a waiting job
PLANNED = frozenset({"StartTime", "EndTime", "SchedNodes"})

View = TypeVar("View")


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = read_options(argv, env, streams, reader)
        if wanted.dump:
            from gsched_cli.dump import Asked

            asked = Asked(wanted.dump, NAME, argv, env, reader)
            again_and_again(wanted.iterate, streams, lambda: _dump(wanted, asked, streams))
            return 0
        again_and_again(wanted.iterate, streams, lambda: _report(wanted, env, streams, reader))
        return 0
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


# ---- the report ------------------------------------------------------------------------------


def _report(wanted: Wanted, env: Mapping[str, str], streams: Streams, reader: Reader) -> None:
    if wanted.steps is not None:
        _report_steps(wanted, env, streams, reader)
        return
    now = reader.now()
    cluster = wanted.cluster and own_cluster(wanted.cluster, reader, NAME, ASKING, streams)
    report = _Report(wanted, env, cluster)
    text = asking(lambda: report.text(reader, streams.kept), ASKING)
    _begin(wanted, cluster, now, streams)
    _head(wanted, report.layout, "job", streams)
    streams.stdout.write(text)


def _dump(wanted: Wanted, asked: Asked, streams: Streams) -> None:
    """The jobs or steps as JSON or YAML."""
    from gsched_cli.dump_job import job_document, step_document

    if wanted.steps is not None:
        streams.stdout.write(step_document(asked, _steps(wanted, asked.reader)))
        return
    rows, now = _rows(wanted, asked.reader), asked.reader.now()
    when_looked_at(rows.jobs, asked.reader)
    views = [
        JobView(each, rows.verdicts.get(job.id), now, bitstr_len=0)
        for job in rows.jobs
        for each in (_split(job) if _splits(wanted) else (job,))
    ]
    passed = filter(_passes(_tests(wanted)), views)
    streams.stdout.write(job_document(asked, list(passed), now))


def _report_steps(wanted: Wanted, env: Mapping[str, str], streams: Streams, reader: Reader) -> None:
    from gsched_cli.fields_step import step_table

    now = reader.now()
    steps = _steps(wanted, reader)
    cluster = wanted.cluster and own_cluster(wanted.cluster, reader, NAME, ASKING, streams)
    _begin(wanted, cluster, now, streams)
    table = step_table(env, now, cluster)
    layout = _layout(wanted, table, STEPS)
    _head(wanted, layout, "job step", streams)
    sort_views(steps, STEP_SORT if wanted.sort is None else wanted.sort, table)
    streams.stdout.writelines(map(layout.row, steps))


def _begin(wanted: Wanted, cluster: str, now: float, streams: Streams) -> None:
    if cluster and wanted.header:
        streams.stdout.write(f"CLUSTER: {cluster}\n")
    if wanted.iterate or (wanted.wide and wanted.header):
        streams.stdout.write(date_line(now))


def _head(wanted: Wanted, layout: Format[View], kind: str, streams: Streams) -> None:
    for name in layout.bad:
        error(streams, NAME, f"Invalid {kind} format specification: {name}")
    if wanted.header:
        streams.stdout.write(layout.header())


def _layout(wanted: Wanted, table: Table[View], default: str) -> Format[View]:
    if wanted.long is not None:
        return parse_long(wanted.long, table)
    return parse_short(default if wanted.short is None else wanted.short, table)


class _Report:
    """A report about jobs."""

    def __init__(self, wanted: Wanted, env: Mapping[str, str], cluster: str) -> None:
        self._wanted = wanted
        # Of the environment nothing but this may matter: see `_key`.
        self._env = {name: env[name] for name in VARIABLES if name in env}
        self._cluster = cluster
        table = job_table(self._env, cluster)
        default = START if wanted.start else LONG if wanted.wide else DEFAULT
        self.layout = _layout(wanted, table, default)
        sort = "S" if wanted.start else SORT
        self._sort = sort_fields(sort if wanted.sort is None else wanted.sort, table)
        shown = [column.field for column in self.layout.columns if column.field is not None]
        fields = shown + [field for field, _ in self._sort]
        self._planned = any(field.names[0] in PLANNED for field in fields)
        length = number(self._env.get("SLURM_BITSTR_LEN", ""))
        self._bitstr_len = BITSTR_LEN if length is None else length
        self._split = _splits(wanted)

    def text(self, reader: Reader, kept: Kept[QueueLines | Records] | None) -> str:
        """Its lines. Raises Stop, ControllerDown, RequestRefused."""
        wanted = self._wanted
        looked_at = wanted.long is not None and "lastschedeval" in wanted.long.lower()
        if kept is not None and wanted.jobs is None and not looked_at:
            from gsched.client import RequestRefused
            from gsched_cli.queue_kept import kept_text

            try:
                active = not _wants_ended(wanted)
                return kept_text(
                    reader,
                    kept,
                    self._key(),
                    lambda: self._lines(active=active),
                    wanted.uids or (),
                    active_only=active,
                    planned=self._planned,
                )
            except RequestRefused:
                # A frontend of an earlier release does not know the question.
                pass
        now = reader.now()
        rows = _rows(wanted, reader)
        if looked_at:
            when_looked_at(rows.jobs, reader)
        lines = self._lines()
        for place, job in enumerate(rows.jobs):
            lines.put(job, rows.verdicts.get(job.id), now, place)
        return lines.text(now)

    def _key(self) -> object:
        """All that the lines depend on but the jobs."""
        wanted = vars(self._wanted) | {"header": None, "iterate": None}
        parts = {name: _ordered(value) for name, value in wanted.items()}
        return repr((parts, sorted(self._env.items()), self._cluster))

    def _lines(self, *, active: bool = False) -> QueueLines:
        """Without lines yet. `active`: it will be told of active jobs alone."""
        return QueueLines(
            self.layout,
            self._sort,
            _passes(_tests(self._wanted, active=active)),
            planned=self._planned,
            split=self._parts if self._split else None,
            kind=(tuple(sorted(self._env.items())), self._cluster),
            convert=self._wanted.convert,
            bitstr_len=self._bitstr_len,
            members=None if self._split else member,
        )

    def _parts(self, job: Job) -> list[Job]:
        return _split(job) if self._wanted.each_task else _named(job, self._wanted.jobs or [])


def _ordered(value: object) -> object:
    """Sets in an order, so that equal ones are written alike."""
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, dict):
        return sorted((name, _ordered(each)) for name, each in value.items())
    return value


def _steps(wanted: Wanted, reader: Reader) -> list[StepView]:
    """Steps that run: those that are named, and that other options leave. As in Slurm, only jobs,
    users, partitions and nodes count."""
    from gsched_cli.stepview import load_steps

    named = wanted.steps or []
    ids = {job for job, _, _ in named} | {job for job, _ in wanted.jobs or ()}
    views = load_steps(reader, "slurm_get_job_steps error:", job_ids=ids, uids=wanted.uids or ())
    if len(named) == 1 and not views:
        # One job that is not there; of one step of such a job Slurm says nothing.
        job, _, step = named[0]
        if step is None and not load_jobs(reader, ids={job}).jobs:
            raise Stop(1, f"{NAME}: error: Invalid job_step id: {job}.??\n")
    return [view for view in views if _step_passes(view, wanted)]


def _step_passes(view: StepView, wanted: Wanted) -> bool:
    job = view.job
    if wanted.steps and not any(
        _is_job(view.view, number, task) and (step is None or step == view.number)
        for number, task, step in wanted.steps
    ):
        return False
    if wanted.jobs is not None and not any(_is_job(view.view, *each) for each in wanted.jobs):
        return False
    if wanted.nodes is not None and not wanted.nodes.intersection(view.nodes):
        return False
    return "p" not in wanted.names or job.partition in wanted.names["p"]


def _is_job(view: JobView, number: int, task: int) -> bool:
    """Whether an id names the job: its own, its array's, that of its heterogeneous job."""
    if task >= 0:
        own = task == view.job.array_task_id
        if view.together:
            own = task in array_tasks(view.job.array_pending)
        return number == view.array_job_id and own
    return number in (view.job.id, view.array_job_id, view.job.het_job_id)


def _wants_ended(wanted: Wanted) -> bool:
    states = wanted.states
    return states is not None and (not states or any(_is_end(name) for name in states))


def _rows(wanted: Wanted, reader: Reader) -> JobRows:
    """The jobs that may be in the report."""
    jobs = wanted.jobs
    if jobs is None:
        return load_jobs(reader, uids=wanted.uids or (), active_only=not _wants_ended(wanted))
    ids = {job for job, _ in jobs}
    rows = load_jobs(reader, ids=ids)
    rows.jobs = [
        job
        for job in rows.jobs
        if job.id in ids or job.array_job_id in ids or job.het_job_id in ids
    ]
    if not rows.jobs and len(jobs) == 1:
        raise Stop(1, f"{ASKING} Invalid job id specified\n")
    return rows


def _splits(wanted: Wanted) -> bool:
    """Whether tasks that are together in one record are shown one by one."""
    jobs = wanted.jobs
    return wanted.each_task or (jobs is not None and any(task >= 0 for _, task in jobs))


def _is_end(name: str) -> bool:
    return name in JobState.__members__ and JobState[name].finished


def _split(job: Job) -> list[Job]:
    """One record per task for an array whose tasks are still together."""
    if job.array_task_id >= 0 or not job.array_pending:
        return [job]
    return [
        msgspec.structs.replace(job, array_task_id=task) for task in array_tasks(job.array_pending)
    ]


def _named(job: Job, jobs: Sequence[tuple[int, int]]) -> list[Job]:
    """Of the tasks that are together in a record those that are named, still together."""
    if job.array_task_id >= 0 or not job.array_pending:
        return [job]
    if any(task < 0 and number in (job.id, job.array_job_id) for number, task in jobs):
        return [job]
    asked = {task for number, task in jobs if number == job.array_job_id}
    tasks = [task for task in array_tasks(job.array_pending) if task in asked]
    if len(tasks) > 1:
        return [msgspec.structs.replace(job, array_pending=",".join(map(str, tasks)))]
    return [msgspec.structs.replace(job, array_task_id=task) for task in tasks]


def _tests(wanted: Wanted, *, active: bool = False) -> list[Callable[[JobView], bool]]:
    """What a job must pass to be in the report. `active`: the jobs are active ones alone."""
    found: list[Callable[[JobView], bool]] = []
    jobs, uids, nodes, over, under = (
        *(wanted.jobs, wanted.uids, wanted.nodes, wanted.over),
        wanted.under,
    )
    if jobs is not None:
        found.append(lambda view: any(_is_job(view, *each) for each in jobs))
    if uids is not None:
        found.append(lambda view: view.job.uid in uids)
    if wanted.states is not None:
        states = wanted.states
        found.append(lambda view: _state_passes(view, states))
    elif not active:
        found.append(lambda view: view.active)
    if nodes is not None:
        found.append(lambda view: not nodes.isdisjoint(_node_names(view)))
    found += [_TESTS[letter](names) for letter, names in wanted.names.items()]
    if wanted.start:
        found.append(lambda view: view.pending)
    if over is not None:
        found.append(lambda view: view.elapsed > over)
    if under is not None:
        found.append(lambda view: view.elapsed < under)
    return found


#: by the option's letter: the test that a job's name, account ... is among those that are named
_TESTS: dict[str, Callable[[set[str]], Callable[[JobView], bool]]] = {
    "A": lambda names: lambda view: view.job.spec.account in names,
    "q": lambda names: lambda view: (view.job.spec.qos or "(null)") in names,
    "n": lambda names: lambda view: view.job.spec.name in names,
    "R": lambda names: lambda view: view.job.spec.reservation in names,
    "p": lambda names: (
        lambda view: view.job.partition in names or not names.isdisjoint(view.job.spec.partitions)
    ),
    "L": lambda names: (
        lambda view: (
            not names.isdisjoint(
                part.partition(":")[0] for part in view.job.spec.licenses.split(",")
            )
        )
    ),
}


def _passes(tests: list[Callable[[JobView], bool]]) -> Callable[[JobView], bool] | None:
    """Whether a job passes all of them; None: any does."""
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda view: all(test(view) for test in tests)


def _state_passes(view: JobView, states: set[str]) -> bool:
    return (
        not states
        or view.job.state.name in states
        or (view.job.completing and "COMPLETING" in states)
        or (view.configuring and "CONFIGURING" in states)
    )


def _node_names(view: JobView) -> list[str]:
    if view.shares:
        return [share.node for share in view.shares]
    from gsched.hostlist import expand

    return expand(view.node_text)


if __name__ == "__main__":
    main()
