"""sacct: what became of jobs, from accounting and the queue together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from gsched.model.acct import AcctJob, AcctStep
from gsched.wire.messages import AcctQuery, AcctRows, BlobQuery
from gsched_cli import getopt_long
from gsched_cli.columns import BadField, Shown, delimited, parse_format, table
from gsched_cli.common import Reader, Streams, command_main
from gsched_cli.fields_sacct import COLUMNS, Look, Row, expand_pattern
from gsched_cli.sacct_options import NAME, Wanted, read_options
from gsched_cli.stop import Stop, asking

BITSTR_LEN = 64
DISABLED = "Slurm accounting storage is disabled"
TROUBLE = "Problem talking to the database"


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = read_options(argv, env, streams, reader)
        shown = _alike(parse_format(wanted.format, COLUMNS))
        jobs = load(wanted, reader)
        if wanted.blob:
            _blobs(wanted.blob, jobs, streams, reader)
        elif wanted.dump:
            from gsched_cli.dump import Asked
            from gsched_cli.sacct_json import document

            asked = Asked(wanted.dump, NAME, argv, env, reader)
            streams.stdout.write(document(asked, jobs))
        else:
            _report(wanted, shown, jobs, env, streams, reader)
        if wanted.warning:
            streams.stderr.write(
                f"{NAME}: error: {TROUBLE}: {wanted.warning}: only what the controller still holds "
                "is shown\n"
            )
            return 1
    except getopt_long.OptionError as problem:
        streams.stderr.write(f"{NAME}: {problem}\n")
        return 1
    except BadField as field:
        streams.stderr.write(f'{NAME}: error: Invalid field requested: "{field}"\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code
    return 0


def main() -> NoReturn:
    command_main(NAME, run)


def load(wanted: Wanted, reader: Reader) -> list[AcctJob]:
    """The attempts to show, in order. Raises Stop when nobody can say."""
    if wanted.clusters and not _here(wanted.clusters, reader):
        return []
    query = wanted.query
    query.allocations = wanted.allocations
    found = _all(wanted, query, reader)
    if query.whole_het is True and (leaders := {(job.het_job_id, -1) for job in found}):
        # Of components that were named, the others too.
        ids = [*query.ids, *(leader for leader in leaders if leader[0])]
        wanted.steps |= {leader: {""} for leader in leaders}
        found = _all(wanted, msgspec.structs.replace(query, ids=ids), reader)
    found = [_cut(wanted, job) for job in found]
    if not wanted.duplicates:
        # Of a job that was queued again, the last try that matches.
        newest = {job.job_id: job for job in found}
        found = [job for job in found if newest[job.job_id] is job]
    if wanted.each_task:
        found = [task for job in found for task in _tasks(job)]
    if wanted.expand:
        for job in found:
            for name in ("std_in", "std_out", "std_err"):
                setattr(job, name, expand_pattern(job, getattr(job, name)))
    return found


def _all(wanted: Wanted, query: AcctQuery, reader: Reader) -> list[AcctJob]:
    found: list[AcctJob] = []
    while True:
        rows = _page(query, reader)
        if found and rows.jobs and found[-1].order == rows.jobs[0].order:
            # More of its steps.
            found[-1].steps += rows.jobs.pop(0).steps
        found += rows.jobs
        wanted.warning = wanted.warning or rows.warning
        if not rows.more:
            return found
        query = msgspec.structs.replace(query, after=rows.last)


def _cut(wanted: Wanted, job: AcctJob) -> AcctJob:
    """With the steps that were there in the window."""
    some = [step for step in job.steps if _in_time(wanted, step)]
    # The record may be another's, too.
    return job if len(some) == len(job.steps) else msgspec.structs.replace(job, steps=some)


def _in_time(wanted: Wanted, step: AcctStep) -> bool:
    """Whether a step was there in the window."""
    begin, end = wanted.query.start, wanted.query.end
    return step.start <= end and (not step.end or step.end >= begin)


def _alike(shown: list[Shown[Row]]) -> list[Shown[Row]]:
    """A field that comes twice is as wide both times: the last width that was given is its own."""
    widths: dict[str, int] = {}
    for one in shown:
        if one.given or one.column.name not in widths:
            widths[one.column.name] = one.width
    return [one._replace(width=widths[one.column.name]) for one in shown]


def _page(query: AcctQuery, reader: Reader) -> AcctRows:
    from gsched.client import ControllerDown, RequestRefused

    try:
        return reader.accounting(query)
    except ControllerDown as down:
        raise Stop(1, f"{NAME}: error: {TROUBLE}: {down}\n") from None
    except RequestRefused as refusal:
        text = str(refusal)
        # Slurm says this one without its name.
        raise Stop(
            1, f"{text}\n" if text == DISABLED else f"{NAME}: error: {TROUBLE}: {text}\n"
        ) from None


def _here(clusters: str, reader: Reader) -> bool:
    """Whether this cluster, the only one there is, is among those asked."""
    names = {name.strip().lower() for name in clusters.split(",")}
    if "all" in names:
        return True
    return asking(reader.status, f"{NAME}: error:").cluster_name.lower() in names


def _tasks(job: AcctJob) -> list[AcctJob]:
    if not job.array_tasks:
        return [job]
    from gsched.taskset import TaskSet

    return [
        msgspec.structs.replace(job, array_task_id=task, array_tasks="")
        for task in TaskSet.parse(job.array_tasks)
    ]


def _report(
    wanted: Wanted,
    shown: list[Shown[Row]],
    jobs: Iterable[AcctJob],
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
) -> None:
    length = env.get("SLURM_BITSTR_LEN", "")
    query = wanted.query
    look = Look(
        env,
        reader.now(),
        convert=wanted.convert,
        unit=wanted.unit,
        window=(query.start, wanted.until) if wanted.truncate else None,
        qos_ids=_qos_ids(reader) if any(x.column.name == "QOSRAW" for x in shown) else None,
        bitstr_len=int(length) if length.isascii() and length.isdigit() else BITSTR_LEN,
    )
    rows = (row for job in jobs for row in _rows(wanted, query, job, look))
    if wanted.parsable:
        last = wanted.parsable == "p"
        lines = delimited(shown, rows, wanted.header, wanted.delimiter, last=last)
    else:
        lines = table(shown, rows, wanted.header)
    streams.stdout.writelines(lines)


def _qos_ids(reader: Reader) -> dict[str, int]:
    from gsched.model.policy import Qos
    from gsched.wire.policy import PolicyQuery

    records = asking(lambda: reader.policy(PolicyQuery()), f"{NAME}: error:").records
    return {one.name: one.id for one in records if isinstance(one, Qos)}


def _rows(wanted: Wanted, query: AcctQuery, job: AcctJob, look: Look) -> Iterable[Row]:
    """The job's line and its steps', as far as they were named."""
    steps = _named_steps(wanted, job)
    if steps is None or wanted.allocations:
        yield Row(job, None, look, total=not wanted.allocations)
    if wanted.allocations:
        return
    for step in job.steps:
        if steps is None or step.step in steps:
            yield Row(job, step, look, total=True)


def _named_steps(wanted: Wanted, job: AcctJob) -> set[str] | None:
    """The steps of this job that -j names; None: the job itself and all of them."""
    if not wanted.steps:
        return None
    tasks = [job.array_task_id] if job.array_task_id >= 0 else []
    if job.het_job_id:
        tasks = [-2 - job.het_offset]
    elif job.array_tasks:
        return None
    found: set[str] = set()
    for key in ((job.job_id, -1), (job.group_id, -1), *((job.group_id, task) for task in tasks)):
        found |= wanted.steps.get(key, set())
    return None if "" in found else found


def _blobs(what: str, jobs: Iterable[AcctJob], streams: Streams, reader: Reader) -> None:
    """-B and --env-vars: what the cluster still holds of the named jobs."""
    from gsched.client import ControllerDown, RequestRefused

    for job in jobs:
        if what == "script":
            title = f"Batch Script for {job.job_id}"
        else:
            title = f"Environment used for {job.job_id} (must be batch to display)"
        try:
            data = reader.blob(BlobQuery(job.job_id, what))
        except ControllerDown as down:
            raise Stop(1, f"{NAME}: error: {down}\n") from None
        except RequestRefused as refusal:
            if refusal.code == "ESLURM_ACCESS_DENIED":
                raise Stop(1, f"{NAME}: error: {refusal}\n") from None
            data = b""
        text = data.decode("utf-8", "surrogateescape")
        if what == "environment":
            text = text.replace("\0", "\n")
        text = text or "NONE\n"
        streams.stdout.write(f"{title}\n{'-' * 80}\n{text}")
        if not text.endswith("\n"):
            streams.stdout.write("\n")


if __name__ == "__main__":
    main()
