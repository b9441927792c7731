"""sdiag: what the controller has done, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from gsched.model.statistics import Cycles, Served, Statistics
from gsched.wire.messages import Diagnose, Refused
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.stop import UNREACHABLE, Stop, own_cluster

NAME = "sdiag"
USAGE = "Usage: sdiag [-M cluster] [-aritT]\n"
HELP = """Usage: sdiag [OPTIONS]
  -a, --all              all statistics (the default)
  -r, --reset            begin anew; for administrators
  -M, --cluster=NAME     of this cluster: there is no other
  -i, --sort-by-id       messages by their number
  -t, --sort-by-time     messages by their time in all
  -T, --sort-by-time2    messages by their time on average
      --json             as JSON
      --yaml             as YAML
  -V, --version          the version
      --help, --usage    this text, the short one
"""
_NO, _MAYBE, _YES = Arg.NO, Arg.MAYBE, Arg.YES
_SHORT = "ahirM:tTV"
_LONG: dict[str, tuple[Arg, str]] = {
    "all": (_NO, "a"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "help": (_NO, "h"),
    "json": (_MAYBE, "json"),
    "no-trunc": (_NO, "no-trunc"),
    "reset": (_NO, "r"),
    "sort-by-id": (_NO, "i"),
    "sort-by-time": (_NO, "t"),
    "sort-by-time2": (_NO, "T"),
    "usage": (_NO, "usage"),
    "version": (_NO, "V"),
    "yaml": (_MAYBE, "yaml"),
}
#: messages of ours -> the names and numbers of Slurm's that ask for the same; others by their own
#: names, without a number
RPCS: dict[str, tuple[str, int]] = {
    "SubmitJob": ("REQUEST_SUBMIT_BATCH_JOB", 4003),
    "CancelJobs": ("REQUEST_KILL_JOB", 5032),
    "UpdateJob": ("REQUEST_UPDATE_JOB", 3001),
    "UpdateNode": ("REQUEST_UPDATE_NODE", 3002),
    "UpdatePartition": ("REQUEST_UPDATE_PARTITION", 3005),
    "UpdateReservation": ("REQUEST_CREATE_RESERVATION", 3006),
    "Ping": ("REQUEST_PING", 1008),
    "Reconfigure": ("REQUEST_RECONFIGURE", 1003),
    "Shutdown": ("REQUEST_SHUTDOWN", 1005),
    "Register": ("MESSAGE_NODE_REGISTRATION_STATUS", 1002),
    "ManagePolicy": ("ACCOUNTING_UPDATE_MSG", 10001),
}
_ERROR = "slurm_get_statistics: "
_LATENCY_CALLS = 1000


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        given, _ = getopt_long.parse(argv, _SHORT, _LONG)
        return _run([(key, value or "") for key, value in given], argv, env, streams, reader)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _run(
    given: Sequence[tuple[str, str]],
    argv: Sequence[str],
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
) -> int:
    keys = [key for key, _ in given]
    out = streams.stdout
    for key, value in given:
        if key == "V":
            out.write(version_line())
            return 0
        if key in ("h", "usage"):
            out.write(HELP if key == "h" else USAGE)
            return 0
        if key == "M":
            own_cluster(value, reader, NAME, _ERROR, streams)
    if "r" in keys:
        _asked(reader, Diagnose(reset=True))
        out.write("Reset scheduling statistics\n")
        return 0
    found = msgspec.json.decode(_asked(reader, Diagnose()), type=Statistics)
    for form in ("json", "yaml"):
        if form in keys:
            from gsched_cli.dump import Asked, asked

            kind = asked(form, dict(given)[form] or None, NAME)
            dump = Asked(kind, NAME, argv, env, reader)
            out.write(dump.document(statistics=_tree(found)))
            return 0
    order = next((key for key in reversed(keys) if key in _ORDERS), "")
    out.write("".join(f"{line}\n" for line in report(found, _ORDERS[order], _latency())))
    return 0


def _asked(reader: Reader, question: Diagnose) -> str:
    from gsched.client import ControllerDown

    try:
        reply = reader.call(question)
    except ControllerDown:
        raise Stop(1, f"{_ERROR}{UNREACHABLE}\n") from None
    if isinstance(reply, Refused):
        raise Stop(1, f"{_ERROR}{reply.message}\n")
    return reply.data


def _latency() -> int:
    """Microseconds of so many looks at the clock."""
    began = time.perf_counter_ns()
    for _ in range(_LATENCY_CALLS):
        time.time()
    return (time.perf_counter_ns() - began) // 1000


# ---- the report ------------------------------------------------------------------------------

Row = tuple[str, int, Served]

_ORDERS: dict[str, Callable[[Row], Any]] = {
    "": lambda row: (-row[2].count, row[1], row[0]),
    "i": lambda row: (row[1], row[0]),
    "t": lambda row: (-row[2].spent, row[1], row[0]),
    "T": lambda row: (-_mean(row[2].spent, row[2].count), row[1], row[0]),
}


def _mean(total: int, count: int) -> int:
    return total // count if count else 0


def _when(seconds: int) -> str:
    if not seconds:
        return "N/A"
    return f"{time.strftime('%a %b %d %H:%M:%S %Y', time.localtime(seconds))} ({seconds})"


def rows(found: Statistics) -> Iterable[Row]:
    """The messages by Slurm's names and numbers."""
    for name, served in found.messages.items():
        yield *RPCS.get(name, (name, 0)), served


def report(found: Statistics, order: Callable[[Row], Any], latency: int) -> list[str]:
    """The lines of the report. What has no counterpart here is left at zero threads and queues:
    the controller is one loop."""
    passes, plans, jobs = found.passes, found.plans, found.jobs
    rule = "*" * 55
    lines = [
        rule,
        f"sdiag output at {_when(found.now)}",
        f"Data since      {_when(found.since)}",
        rule,
        "Server thread count:  1",
        "RPC queue enabled:    0",
        "Agent queue size:     0",
        f"Agent count:          {found.agents}",
        "Agent thread count:   0",
        f"DBD Agent queue size: {found.facts}",
        "",
        f"Jobs submitted: {jobs.submitted}",
        f"Jobs started:   {jobs.started}",
        f"Jobs completed: {jobs.completed}",
        f"Jobs canceled:  {jobs.canceled}",
        f"Jobs failed:    {jobs.failed}",
        "",
        f"Job states ts:  {_when(found.now)}",
        f"Jobs pending:   {found.pending}",
        f"Jobs running:   {found.running}",
        "",
        "Main schedule statistics (microseconds):",
        *_cycles(passes, found),
        "",
        "Main scheduler exit:",
        f"\tEnd of job queue:{found.complete:3}",
        f"\tHit sched_max_job_start: {found.stopped}",
        "",
        "Backfilling stats",
        f"\tTotal backfilled jobs (since last slurm start): {found.backfilled_ever}",
        f"\tTotal backfilled jobs (since last stats cycle start): {found.backfilled}",
        f"\tTotal backfilled heterogeneous job components: {found.backfilled_het}",
        f"\tTotal cycles: {plans.count}",
        f"\tLast cycle when: {_when(plans.last_at)}",
        f"\tLast cycle: {plans.last}",
        f"\tMax cycle:  {plans.longest}",
        f"\tMean cycle: {_mean(plans.total, plans.count)}",
        f"\tLast depth cycle: {plans.last_depth}",
        f"\tDepth Mean: {_mean(plans.depth, plans.count)}",
        f"\tLast queue length: {plans.last_length}",
        f"\tQueue length mean: {_mean(plans.length, plans.count)}",
        "",
        f"Latency for {_LATENCY_CALLS} calls to gettimeofday(): {latency} microseconds",
        "",
        "Remote Procedure Call statistics by message type",
        *(
            _served(name, number, 39, 5, one)
            for name, number, one in sorted(rows(found), key=order)
        ),
        "",
        "Remote Procedure Call statistics by user",
        *by_user(found),
        "",
        "Pending RPC statistics",
        "\tNo pending RPCs",
    ]
    return lines


def _cycles(passes: Cycles, found: Statistics) -> list[str]:
    # Whole minutes, as Slurm counts them.
    minutes = max(1, (found.now - found.since) // 60)
    return [
        f"\tLast cycle:   {passes.last}",
        f"\tMax cycle:    {passes.longest}",
        f"\tTotal cycles: {passes.count}",
        f"\tMean cycle:   {_mean(passes.total, passes.count)}",
        f"\tMean depth cycle:  {_mean(passes.depth, passes.count)}",
        f"\tCycles per minute: {passes.count // minutes}",
        f"\tLast queue length: {passes.last_length}",
    ]


def _served(name: str, number: int, width: int, digits: int, one: Served) -> str:
    mean = _mean(one.spent, one.count)
    return (
        f"\t{name:<{width}} ({number:{digits}}) count:{one.count:<6} "
        f"ave_time:{mean:<6} total_time:{one.spent}"
    )


def by_message(found: Statistics, order: Callable[[Row], Any] | None = None) -> list[str]:
    """What each kind of message cost; Slurm's order: the most first."""
    known = sorted(rows(found), key=order or _ORDERS[""])
    return [_served(name, number, 39, 5, one) for name, number, one in known]


def by_user(found: Statistics) -> list[str]:
    """What each user's requests cost."""
    users = sorted(found.users.items(), key=lambda item: (-item[1].count, item[0]))
    return [_served(found.names.get(uid, str(uid)), uid, 15, 8, one) for uid, one in users]


# ---- JSON ------------------------------------------------------------------------------------


def _tree(found: Statistics) -> dict[str, object]:
    passes, plans, jobs = found.passes, found.plans, found.jobs
    return {
        "req_time": found.now,
        "req_time_start": found.since,
        "job_states_ts": found.now,
        "server_thread_count": 1,
        "agent_queue_size": 0,
        "agent_count": found.agents,
        "agent_thread_count": 0,
        "dbd_agent_queue_size": found.facts,
        "jobs_submitted": jobs.submitted,
        "jobs_started": jobs.started,
        "jobs_completed": jobs.completed,
        "jobs_canceled": jobs.canceled,
        "jobs_failed": jobs.failed,
        "jobs_pending": found.pending,
        "jobs_running": found.running,
        "schedule_cycle_last": passes.last,
        "schedule_cycle_max": passes.longest,
        "schedule_cycle_total": passes.count,
        "schedule_cycle_sum": passes.total,
        "schedule_cycle_mean": _mean(passes.total, passes.count),
        "schedule_cycle_mean_depth": _mean(passes.depth, passes.count),
        "schedule_cycle_depth": passes.depth,
        "schedule_queue_length": passes.last_length,
        "bf_backfilled_jobs": found.backfilled_ever,
        "bf_last_backfilled_jobs": found.backfilled,
        "bf_backfilled_het_jobs": found.backfilled_het,
        "bf_cycle_counter": plans.count,
        "bf_cycle_last": plans.last,
        "bf_cycle_max": plans.longest,
        "bf_cycle_sum": plans.total,
        "bf_cycle_mean": _mean(plans.total, plans.count),
        "bf_last_depth": plans.last_depth,
        "bf_depth_mean": _mean(plans.depth, plans.count),
        "bf_depth_sum": plans.depth,
        "bf_queue_len": plans.last_length,
        "bf_queue_len_mean": _mean(plans.length, plans.count),
        "bf_queue_len_sum": plans.length,
        "bf_when_last_cycle": plans.last_at,
        "bf_active": False,
        "rpcs_by_message_type": [
            {
                "message_type": name,
                "type_id": number,
                "count": one.count,
                "average_time": _mean(one.spent, one.count),
                "total_time": one.spent,
            }
            for name, number, one in sorted(rows(found), key=_ORDERS[""])
        ],
        "rpcs_by_user": [
            {
                "user": found.names.get(uid, str(uid)),
                "user_id": uid,
                "count": one.count,
                "average_time": _mean(one.spent, one.count),
                "total_time": one.spent,
            }
            for uid, one in sorted(found.users.items())
        ],
    }
