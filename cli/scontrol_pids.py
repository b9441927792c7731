"""scontrol listpids: the processes of the steps on this host, or on one of several nodes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.model.step import step_name, step_number
from gsched.wire.messages import JobQuery
from gsched_cli.common import Reader, Streams, error
from gsched_cli.stop import Stop, asking

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.wire.steps import Pids

NAME = "scontrol"
ROW = "{:<8} {:<8} {:<8} {:<7} {:<8}\n"
HEADER = "PID      JOBID    STEPID   LOCALID GLOBALID\n"


def list_pids(rest: Sequence[str], env: Mapping[str, str], reader: Reader, streams: Streams) -> int:
    """`scontrol listpids [JOBID[.STEP]] [NODE]`; returns the exit code."""
    # It is about the host that it runs on.
    streams.files.own()
    asked = rest[0] if rest else "*"
    job, _, step = asked.partition(".")
    if asked != "*" and not (job.isascii() and job.isdecimal() and len(job) < 11):
        raise Stop(1, f'"{asked}" does not look like a jobid\n')
    number = step_number(step) if "." in asked else None
    if "." in asked and number is None:
        # Slurm shows none, and says no error by its exit code.
        streams.stderr.write(f'"{asked}" does not look like a stepid\n')
        streams.stdout.write(HEADER)
        return 0
    named = rest[1] if len(rest) > 1 else ""
    config = reader.config()
    found = _asked(named or _own_node(config, env), config, streams)
    there = found.steps if found is not None else []
    shown = [
        one
        for one in there
        if asked == "*" or (one.job_id == int(job) and number in (None, one.step))
    ]
    if not shown:
        raise Stop(1, _nothing(asked, number is not None, bool(there), named or "(null)"))
    streams.stdout.write(HEADER)
    for one in shown:
        for pid, *numbers in one.pids:
            words = ["-" if n < 0 else n for n in numbers]
            streams.stdout.write(ROW.format(pid, one.job_id, step_name(one.step), *words))
    return 0


def _nothing(asked: str, step: bool, others: bool, node: str) -> str:
    """Slurm's sentences where there is nothing to show; `others`: of other jobs there is."""
    if asked == "*":
        return "No job steps exist on this node.\n"
    if step:
        return f"StepId={asked} does not exist on node {node}.\n"
    if others:
        return f"There are no steps for job {asked} on node {node}.\n"
    return f"JobId={asked} does not exist on node {node}.\n"


def _own_node(config: Config, env: Mapping[str, str]) -> str:
    """The node that this host is, or of several the one whose job this runs in; else the host's
    name."""
    if env.get("SLURMD_NODENAME", "") in config.nodes:
        return env["SLURMD_NODENAME"]
    host = os.uname().nodename.partition(".")[0]
    of_host = [name for name, node in config.nodes.items() if node.hostname == host]
    return of_host[0] if len(of_host) == 1 else host


def _asked(node: str, config: Config, streams: Streams) -> Pids | None:
    """What the node's daemon says; None, and an error is told, where there is none here."""
    from gsched.wire.steps import ListPids, Pids
    from gsched.wire.usertext import encode
    from gsched_cli import reach

    try:
        answer = reach.told(reach.agent_socket(config, node), encode(ListPids()), None)
    except OSError:
        known = config.nodes.get(node)
        spool = config.slurmd_spool_dir
        place = known.expand(spool) if known else spool.replace("%n", node).replace("%h", node)
        error(streams, NAME, f"Domain socket directory {place}: No such file or directory")
        return None
    return answer if isinstance(answer, Pids) else None


def pid_info(rest: Sequence[str], env: Mapping[str, str], reader: Reader, streams: Streams) -> int:
    """`scontrol pidinfo PID`: the job that a process of this host belongs to, and when it ends."""
    if not rest:
        raise Stop(1, "missing argument for keyword:pidinfo\n")
    streams.files.own()
    job_id = 0
    if rest[0].isascii() and rest[0].isdecimal() and len(rest[0]) < 11:
        config = reader.config()
        found = _asked(_own_node(config, env), config, streams)
        steps = found.steps if found is not None else []
        jobs = {pid: one.job_id for one in steps for pid, *_ in one.pids}
        job_id = next((jobs[pid] for pid in _ancestry(int(rest[0])) if pid in jobs), 0)
    if not job_id:
        raise Stop(1, "Failed to locate job for requested pid\n")
    rows = asking(lambda: reader.jobs(JobQuery(ids=[job_id])), "slurm_get_end_time error:")
    job = next((one for one in rows.jobs if one.id == job_id), None)
    if job is None:
        raise Stop(1, "slurm_get_end_time error: Invalid job id specified\n")
    if not job.time_limit:
        streams.stdout.write(f"Slurm JobId={job_id} has no time limit\n")
        return 0
    end = job.start_time + job.time_limit
    streams.stdout.write(
        f"Slurm JobId={job_id} ends at {time.ctime(end)}\n"
        f"Job remaining time is {max(0, end - int(reader.now()))} seconds\n"
    )
    return 0


def _ancestry(pid: int) -> Iterator[int]:
    """A process and those above it, up to the first of all."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        yield pid
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # The name, between the last pair of brackets, may hold anything.
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
