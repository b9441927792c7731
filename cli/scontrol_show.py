"""`scontrol show`: which records, and how they are laid out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gsched_cli.common import Reader, Streams, error
from gsched_cli.stop import Stop, asking, cluster_config
from gsched_cli.text import timestamp

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job
    from gsched.model.why import Why
    from gsched.taskset import TaskSet
    from gsched_cli.jobview import JobView
    from gsched_cli.nodeview import NodeView

NAME = "scontrol"

#: entity -> (fewest letters it may be cut to, its kind)
ENTITIES: dict[str, tuple[int, str]] = {
    "aliases": (2, "aliases"),
    "bbstat": (2, "nothing"),
    "burstbuffer": (2, "nothing"),
    "config": (1, "config"),
    "daemons": (1, "daemons"),
    "federation": (1, "federation"),
    "hostlist": (5, "hostlist"),
    "hostlistsorted": (9, "hostlistsorted"),
    "hostnames": (5, "hostnames"),
    "jobs": (1, "job"),
    "jobid": (1, "job"),
    "licenses": (2, "licenses"),
    "nodes": (1, "node"),
    "partitions": (2, "partition"),
    "partitionname": (2, "partition"),
    "reservations": (1, "reservation"),
    "reservationname": (1, "reservation"),
    "steps": (2, "step"),
    "topology": (1, "topology"),
}


class Layout:
    """How records are written: one line each with -o, or indented lines and a blank one."""

    def __init__(self, streams: Streams, one_line: bool) -> None:
        self._out = streams.stdout
        self._one_line = one_line

    def record(self, lines: Sequence[str], but: str = "") -> None:
        """Writes one record. A line that begins with `but` is for several lines only: programs take
        one line apart at its blanks, and what the line tells is full of them."""
        if self._one_line:
            lines = [line for line in lines if not (but and line.startswith(but))]
            # Each line's own indentation is for the eye; the blanks at their ends stay.
            self._out.write(" ".join(line.lstrip() for line in lines).rstrip(" ") + "\n")
        else:
            self._out.write("\n   ".join(lines) + "\n\n")


def show(
    kind: str,
    what: str | None,
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
    *,
    one_line: bool = False,
    detail: int = 0,
    all_: bool = False,
    future: bool = False,
) -> int:
    """Shows the records of a kind (a value of ENTITIES); `what` names some of them."""
    layout = Layout(streams, one_line)
    if kind == "job":
        return _jobs(what, env, reader, layout, streams, detail)
    if kind == "node":
        return _nodes(what, env, reader, layout, streams, detail, future)
    if kind == "partition":
        return _partitions(what, reader, layout, streams, all_)
    if kind == "config":
        return _config(what, env, reader, streams)
    if kind == "hostnames":
        return hostnames(what, env, streams)
    if kind in ("hostlist", "hostlistsorted"):
        return hostlist(what, streams, kind == "hostlistsorted")
    if kind == "step":
        from gsched_cli.scontrol_step import show_steps

        return show_steps(what, env, reader, layout, streams)
    if kind == "topology":
        return _topology(what, env, reader, streams)
    if kind == "reservation":
        return _reservations(what, env, reader, layout, streams)
    if kind == "licenses":
        from gsched_cli.scontrol_licenses import show_licenses

        return show_licenses(what, env, reader, streams, one_line)
    if kind == "federation":
        from gsched_cli.scontrol_licenses import show_federation

        return show_federation(reader, streams)
    texts = {
        "aliases": "",
        "daemons": "slurmctld \n",
    }
    if kind == "aliases" and what is not None:
        streams.stdout.write(f"{what}\n")
    streams.stdout.write(texts.get(kind, ""))
    return 0


# ---- topology --------------------------------------------------------------------------------


def _topology(what: str | None, env: Mapping[str, str], reader: Reader, streams: Streams) -> int:
    from gsched import topology
    from gsched.hostlist import HostlistError

    try:
        lines = topology.show(cluster_config(reader, NAME, "topology.conf"), what)
    except HostlistError:
        lines = None
    if lines is None:
        error(streams, NAME, f"Topology information contains no switch or node named {what}")
        return 0
    longest = env.get("SLURM_TOPO_LEN", "")
    for line in lines:
        streams.stdout.write(line[: int(longest)] if longest.isdecimal() else line)
        streams.stdout.write("\n")
    return 0


# ---- jobs ------------------------------------------------------------------------------------


def _jobs(
    what: str | None,
    env: Mapping[str, str],
    reader: Reader,
    layout: Layout,
    streams: Streams,
    detail: int,
) -> int:
    from gsched_cli.scontrol_job import job_lines

    now = reader.now()
    try:
        views = chosen_jobs(what, env, reader, now)
    except _NoSuchTask as problem:
        streams.stdout.write(problem.text)
        return problem.code
    if not views:
        streams.stdout.write("No jobs in the system\n")
        return 0
    explained = _explained([view.job for view in views], reader) if detail > 1 else {}
    for view in views:
        lines = job_lines(view, env, now, detail)
        if view.job.id in explained:
            from gsched_cli.why_words import record_lines

            why = explained[view.job.id]
            place = next(i for i, line in enumerate(lines) if line.startswith("JobState="))
            lines[place + 1 : place + 1] = record_lines(why, lambda t: timestamp(t, env, now))
        layout.record(lines, but="SubmitLine=")
    return 0


class _NoSuchTask(Stop):
    """The array is there, but not that task of it: said on standard output, as in Slurm."""


def chosen_jobs(
    what: str | None, env: Mapping[str, str], reader: Reader, now: float
) -> list[JobView]:
    """The jobs that are named, or all. Raises Stop where there are none of them."""
    from gsched_cli.jobquery import load_jobs, when_looked_at
    from gsched_cli.jobview import BITSTR_LEN, JobView

    wanted = None if what is None else _job_ids(what)
    rows = load_jobs(reader, ids={number for number, _ in wanted or ()})
    jobs = rows.jobs
    if wanted is not None:
        jobs = [
            job
            for job in jobs
            if any(
                number in (job.id, job.array_job_id, job.het_job_id)
                and (task < 0 or task == job.array_task_id or task in _together(job))
                for number, task in wanted
            )
        ]
        if not jobs:
            if rows.jobs and wanted[0][1] >= 0:
                raise _NoSuchTask(1, f"Job {wanted[0][0]}_{wanted[0][1]} not found\n")
            raise Stop(1, "slurm_load_jobs error: Invalid job id specified\n")
        jobs = [shown for job in jobs for shown in _as_asked(job, wanted)]
    when_looked_at(jobs, reader)
    length = env.get("SLURM_BITSTR_LEN", "")
    bitstr = int(length[:9]) if length.isascii() and length.isdigit() else BITSTR_LEN
    return [JobView(job, rows.verdicts.get(job.id), now, bitstr_len=bitstr) for job in jobs]


def _explained(jobs: Sequence[Job], reader: Reader) -> dict[int, Why]:
    """The whole verdicts on the first of the jobs that wait, by record."""
    from gsched.model import JobState
    from gsched_cli.why import MOST_JOBS, Unexplained, verdicts

    waiting = [job for job in jobs if job.state is JobState.PENDING][:MOST_JOBS]
    found: dict[int, Why] = {}
    for job in dict.fromkeys(job.id for job in waiting):
        record = next(one for one in waiting if one.id == job)
        text = f"{record.het_job_id}+{record.het_offset}" if record.het_job_id else str(job)
        try:
            found[job] = verdicts(reader, [text])[0]
        except Unexplained:
            # Of the records more is known than of their reasons.
            break
    return found


def _as_asked(job: Job, wanted: Sequence[tuple[int, int]]) -> list[Job]:
    """A record that stands for several tasks of an array: the tasks that were named, each as one
    record, unless the whole was asked for."""
    together = _together(job)
    ids = (job.id, job.array_job_id, job.het_job_id)
    tasks = [task for number, task in wanted if number in ids]
    if not together or not all(task >= 0 for task in tasks):
        return [job]
    import msgspec

    return [
        msgspec.structs.replace(job, array_task_id=task)
        for task in dict.fromkeys(tasks)
        if task in together
    ]


def _together(job: Job) -> TaskSet | tuple[int, ...]:
    """The tasks that a record of several stands for."""
    if job.array_task_id >= 0 or not job.array_pending:
        return ()
    from gsched.taskset import TaskSet

    return TaskSet.parse(job.array_pending)


def _job_ids(text: str) -> list[tuple[int, int]]:
    found = []
    for item in text.split(","):
        head, underscore, tail = item.partition("_")
        head = head.partition("+")[0]
        task = tail if underscore else "0"
        if not (head.isascii() and head.isdigit() and len(head) < 11 and int(head)):
            raise Stop(1, "scontrol_print_job error: Invalid job id specified\n")
        if not (task.isascii() and task.isdigit() and len(task) < 11):
            raise Stop(1, "scontrol_print_job error: Invalid job id specified\n")
        found.append((int(head), int(task) if underscore else -1))
    return found


# ---- nodes, partitions, configuration --------------------------------------------------------


def _nodes(
    what: str | None,
    env: Mapping[str, str],
    reader: Reader,
    layout: Layout,
    streams: Streams,
    detail: int,
    future: bool,
) -> int:
    from gsched_cli.scontrol_node import node_lines

    config = cluster_config(reader, NAME)
    code = 0
    now = reader.now()
    for name, view in chosen_nodes(what, config, reader, future):
        if view is None:
            streams.stdout.write(f"Node {name} not found\n")
            code = 1
        else:
            layout.record(node_lines(view, config, env, now, detail))
    return code


def chosen_nodes(
    what: str | None, config: Config, reader: Reader, future: bool
) -> list[tuple[str, NodeView | None]]:
    """The nodes that are named, or all: names, and None where there is no such node. Raises
    Stop."""
    from gsched.hostlist import HostlistError, expand
    from gsched.wire.messages import NodeQuery
    from gsched_cli.nodeview import held_nodes, node_views

    rows = asking(lambda: reader.nodes(NodeQuery()), "slurm_load_node error:")
    named = what is not None
    kept = held_nodes(rows.reservations, reader.now())
    shown = node_views(config, rows.nodes, rows.use, future or named, kept, rows.planned)
    views = {view.name: view for view in shown}
    names: Iterable[str] = views
    if what is not None:
        try:
            names = expand(what)
        except HostlistError as problem:
            raise Stop(1, f"{NAME}: error: {problem}\n") from None
    return [(name, views.get(name)) for name in names]


def _reservations(
    what: str | None, env: Mapping[str, str], reader: Reader, layout: Layout, streams: Streams
) -> int:
    from gsched.wire.messages import NodeQuery
    from gsched_cli.scontrol_reservation import lines

    rows = asking(lambda: reader.nodes(NodeQuery()), "slurm_load_reservations error:")
    config = cluster_config(reader, NAME)
    found = sorted(rows.reservations, key=lambda each: (each.created, each.name))
    if what is None and not found:
        streams.stdout.write("No reservations in the system\n")
    if what is not None:
        found = [each for each in found if each.name == what]
        if not found:
            streams.stdout.write(f"Reservation {what} not found\n")
            return 1
    for each in found:
        layout.record(lines(each, config, env, reader.now()))
    return 0


def _partitions(
    what: str | None, reader: Reader, layout: Layout, streams: Streams, all_: bool
) -> int:
    from gsched_cli.scontrol_node import partition_lines

    config = cluster_config(reader, NAME)
    if what is None:
        for part in config.partitions.values():
            if all_ or not part.hidden:
                layout.record(partition_lines(part, config))
        return 0
    code = 0
    for name in what.split(","):
        found = config.partitions.get(name)
        if found is None:
            streams.stdout.write(f"Partition {name} not found\n")
            code = 1
        else:
            layout.record(partition_lines(found, config))
    return code


def _config(what: str | None, env: Mapping[str, str], reader: Reader, streams: Streams) -> int:
    from gsched_cli.scontrol_config import config_items
    from gsched_cli.text import timestamp

    status = asking(reader.status, "slurm_load_ctl_conf error:")
    config = cluster_config(reader, NAME)
    now = reader.now()
    items = config_items(config, status, env, now)
    out = streams.stdout
    if what is not None:
        items = [item for item in items if item[0].lower() == what.lower()]
    else:
        out.write(f"Configuration data as of {timestamp(int(now), env, now)}\n")
    for key, value in items:
        out.write(f"{key:<23} = {value}\n")
    if what is None:
        out.write("\n")
        ping(reader, streams)
    return 0


def ping(reader: Reader, streams: Streams) -> int:
    """`ping`: whether the controller answers; exit 1 if not."""
    from gsched.client import ControllerDown

    config = cluster_config(reader, NAME)
    host = config.slurmctld_host[0].name if config.slurmctld_host else "localhost"
    try:
        up = reader.status().controller_up
    except ControllerDown:
        up = False
    streams.stdout.write(f"Slurmctld(primary) at {host} is {'UP' if up else 'DOWN'}\n")
    if not up:
        stars = "*" * 41
        streams.stdout.write(f"{stars}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}\n")
    return 0 if up else 1


# ---- host lists ------------------------------------------------------------------------------


def hostnames(what: str | None, env: Mapping[str, str], streams: Streams) -> int:
    """`show hostnames`: one name a line; without a list, the job's own nodes."""
    from gsched.hostlist import HostlistError, expand

    text = what
    if text is None:
        text = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""
        if not text:
            error(streams, NAME, "host list is empty")
            return 0
    try:
        names = expand(text)
    except HostlistError as problem:
        # Slurm says so and ends well.
        if problem.detail:
            error(streams, NAME, problem.detail)
        streams.stderr.write(f"{problem}\n")
        return 0
    streams.stdout.writelines(f"{name}\n" for name in names)
    return 0


def hostlist(what: str | None, streams: Streams, ordered: bool) -> int:
    """`show hostlist`, `show hostlistsorted`: names, or a file of names, as one list."""
    from gsched.hostlist import HostlistError, compress, compress_sorted, expand

    if what is None:
        raise Stop(1, "invalid encode argument\n")
    text = what
    if text.startswith("/"):
        try:
            text = streams.files.read(text, 1 << 24).decode("utf-8", "surrogateescape")
        except OSError as problem:
            raise Stop(1, f"{NAME}: error: {what}: {os.strerror(problem.errno or 0)}\n") from None
    try:
        names = expand(text)
    except HostlistError as problem:
        if problem.detail:
            error(streams, NAME, problem.detail)
        raise Stop(1, f"{problem}\n") from None
    streams.stdout.write((compress_sorted(names) if ordered else compress(names)) + "\n")
    return 0
