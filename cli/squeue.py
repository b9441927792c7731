"""squeue: the queue, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from gsched.model.job import Job
from gsched.model.states import JobState
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, error
from gsched_cli.fields import Format, Table, parse_long, parse_short, sort_views
from gsched_cli.fields_job import job_table
from gsched_cli.jobquery import load_jobs, when_looked_at
from gsched_cli.jobview import BITSTR_LEN, JobView
from gsched_cli.squeue_options import NAME, Wanted, array_tasks, number, read_options
from gsched_cli.stop import Stop, again_and_again, own_cluster
from gsched_cli.text import date_line

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
#: partition, then state, then the highest priority first
SORT = "P,t,-p"


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = read_options(argv, env, streams, reader)
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
    now = reader.now()
    views = _views(wanted, env, reader, now)
    out = streams.stdout
    cluster = ""
    if wanted.cluster:
        cluster = own_cluster(wanted.cluster, reader, NAME, "slurm_load_jobs error:")
        out.write(f"CLUSTER: {cluster}\n")
    if wanted.iterate or (wanted.wide and wanted.header):
        out.write(date_line(now))
    if wanted.steps:
        # The script of a heterogeneous job runs in its first component.
        views = [v for v in views if v.job.state is JobState.RUNNING and not v.job.het_offset]
        table = _step_table(job_table(env, now, cluster))
    else:
        table = job_table(env, now, cluster)
    layout = _layout(wanted, table)
    for name in layout.bad:
        error(streams, NAME, f"Invalid job format specification: {name}")
    if wanted.header:
        out.write(layout.header())
    sort = wanted.sort if wanted.sort is not None else "S" if wanted.start else SORT
    sort_views(views, "P,i" if wanted.steps and wanted.sort is None else sort, table)
    out.writelines(map(layout.row, views))


def _layout(wanted: Wanted, table: Table[JobView]) -> Format[JobView]:
    if wanted.long is not None:
        return parse_long(wanted.long, table)
    if wanted.short is not None:
        return parse_short(wanted.short, table)
    if wanted.steps:
        return parse_short(STEPS, table)
    if wanted.start:
        return parse_short(START, table)
    return parse_short(LONG if wanted.wide else DEFAULT, table)


def _step_table(table: Table[JobView]) -> Table[JobView]:
    """The same fields seen as the batch step: only it is known to the controller."""
    changes = {
        "i": ("STEPID", lambda v: f"{v.id_text}.batch"),
        "j": ("NAME", lambda v: "batch"),
        "N": ("NODELIST", lambda v: v.batch_host),
        "A": ("NTASKS", lambda v: "1"),
    }
    fields = []
    for field in table.fields:
        if field.letter in changes:
            header, read = changes[field.letter]
            field = field._replace(header=header, read=read)
        fields.append(field)
    return Table(fields, table.unnamed)


def _views(wanted: Wanted, env: Mapping[str, str], reader: Reader, now: float) -> list[JobView]:
    jobs = wanted.jobs
    ended = wanted.states is not None and (
        not wanted.states or any(_is_end(name) for name in wanted.states)
    )
    if jobs is None:
        rows = load_jobs(reader, uids=wanted.uids or (), active_only=not ended)
        records = rows.jobs
    else:
        ids = {job for job, _ in jobs}
        rows = load_jobs(reader, ids=ids)
        records = [
            job
            for job in rows.jobs
            if job.id in ids or job.array_job_id in ids or job.het_job_id in ids
        ]
        if not records and len(jobs) == 1:
            raise Stop(1, "slurm_load_jobs error: Invalid job id specified\n")
    if wanted.each_task or (jobs is not None and any(task >= 0 for _, task in jobs)):
        records = [task for job in records for task in _split(job)]
    if wanted.long is not None and "lastschedeval" in wanted.long.lower():
        when_looked_at(records, reader)
    length = number(env.get("SLURM_BITSTR_LEN", ""))
    views = []
    for job in records:
        view = JobView(
            job,
            rows.verdicts.get(job.id),
            now,
            convert=wanted.convert,
            bitstr_len=BITSTR_LEN if length is None else length,
        )
        if _passes(view, wanted):
            views.append(view)
    return views


def _is_end(name: str) -> bool:
    return name in JobState.__members__ and JobState[name].finished


def _split(job: Job) -> list[Job]:
    """One record per task for an array whose tasks are still together."""
    if job.array_task_id >= 0 or not job.array_pending:
        return [job]
    return [
        msgspec.structs.replace(job, array_task_id=task) for task in array_tasks(job.array_pending)
    ]


def _passes(view: JobView, wanted: Wanted) -> bool:
    job, spec = view.job, view.job.spec
    if wanted.jobs is not None and not any(
        number == view.array_job_id and task == job.array_task_id
        if task >= 0
        else number in (job.id, view.array_job_id, job.het_job_id)
        for number, task in wanted.jobs
    ):
        return False
    if wanted.uids is not None and job.uid not in wanted.uids:
        return False
    if not _state_passes(view, wanted):
        return False
    if wanted.nodes is not None and not wanted.nodes.intersection(_node_names(view)):
        return False
    names = wanted.names
    if "A" in names and spec.account not in names["A"]:
        return False
    if "q" in names and (spec.qos or "(null)") not in names["q"]:
        return False
    if "n" in names and spec.name not in names["n"]:
        return False
    if "R" in names and spec.reservation not in names["R"]:
        return False
    if "p" in names and not names["p"].intersection((job.partition, *spec.partitions)):
        return False
    if "L" in names and not names["L"].intersection(
        part.partition(":")[0] for part in spec.licenses.split(",")
    ):
        return False
    if wanted.start and not view.pending:
        return False
    if wanted.over is not None and view.elapsed <= wanted.over:
        return False
    return wanted.under is None or view.elapsed < wanted.under


def _state_passes(view: JobView, wanted: Wanted) -> bool:
    states = wanted.states
    if states is None:
        return view.active
    return (
        not states
        or view.job.state.name in states
        or (view.job.completing and "COMPLETING" in states)
        or (view.job.configuring and "CONFIGURING" in states)
    )


def _node_names(view: JobView) -> list[str]:
    if view.shares:
        return [share.node for share in view.shares]
    from gsched.hostlist import expand

    return expand(view.node_text)


if __name__ == "__main__":
    main()
