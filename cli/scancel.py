"""scancel: ends jobs or sends them a signal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.stop import UNREACHABLE, Stop, asking, own_cluster

if TYPE_CHECKING:
    from gsched.model.job import Job
    from gsched.wire.messages import CancelJobs

NAME = "scancel"

USAGE = """\
Usage: scancel [-A account] [--batch] [--ctld] [--full] [--interactive] [-n job_name]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]
"""

HELP = """\
Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]]...
Which jobs, beside the ids (all that is said must be true of a job):
  -A, --account=NAME        of this account
  -M, --clusters=LIST       of this cluster
      --me                  of the caller
  -n, --name=NAME           with this name
  -p, --partition=NAME      in this partition
  -q, --qos=NAME            of this quality of service
  -R, --reservation=NAME    with this reservation
  -t, --state=STATE         in this state: PENDING, RUNNING or SUSPENDED
  -u, --user=NAME           of this user
  -w, --nodelist=HOSTS      on one of these nodes
      --wckey=KEY           with this workload key
What to do:
      --admin-comment=TEXT  taken, without effect (as --sibling=CLUSTER)
  -b, --batch               signal the script's shell alone
  -c, --cron                allow jobs of scrontab
      --ctld                by way of the controller (always done)
  -f, --full                signal the script and all steps
  -H, --hurry               no stage out
  -i, --interactive         ask for every job
  -s, --signal=SIGNAL       name or number; default: end the job
How much to say:
  -Q, --quiet               nothing about jobs that have ended
  -v, --verbose             each job
  -V, --version             the version
      --help  --usage       this, or less
"""

_NO, _YES = Arg.NO, Arg.YES
_SHORT = "A:bcfHiM:n:p:Qq:R:s:t:u:vVw:"
_LONG: dict[str, tuple[Arg, str]] = {
    "account": (_YES, "A"),
    "admin-comment": (_YES, "ignored"),
    "batch": (_NO, "b"),
    "clusters": (_YES, "M"),
    "cron": (_NO, "c"),
    "ctld": (_NO, "ignored"),
    "full": (_NO, "f"),
    "help": (_NO, "help"),
    "hurry": (_NO, "H"),
    "interactive": (_NO, "i"),
    "jobname": (_YES, "n"),
    "me": (_NO, "me"),
    "name": (_YES, "n"),
    "nodelist": (_YES, "w"),
    "partition": (_YES, "p"),
    "qos": (_YES, "q"),
    "quiet": (_NO, "Q"),
    "reservation": (_YES, "R"),
    "sibling": (_YES, "ignored"),
    "signal": (_YES, "s"),
    "state": (_YES, "t"),
    "usage": (_NO, "usage"),
    "user": (_YES, "u"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "wckey": (_YES, "wckey"),
}
_ENV = {
    "SCANCEL_ACCOUNT": "A",
    "SCANCEL_BATCH": "b",
    "SCANCEL_FULL": "f",
    "SCANCEL_HURRY": "H",
    "SCANCEL_INTERACTIVE": "i",
    "SCANCEL_NAME": "n",
    "SCANCEL_PARTITION": "p",
    "SCANCEL_QOS": "q",
    "SCANCEL_STATE": "t",
    "SCANCEL_USER": "u",
    "SCANCEL_VERBOSE": "v",
    "SCANCEL_WCKEY": "wckey",
}
#: options that are switched on by any value of their variable but these
_OFF = frozenset({"0", "f", "n", "false", "no"})

_ID = re.compile(
    r"\+?0*([1-9][0-9]{0,9})(_(?:[0-9]+|\*|\[[0-9,:%-]+\])?)?(\+[0-9]+)?(?:\.([0-9]{1,9}))?\Z",
    re.ASCII,
)
_STATES = {"PENDING": 0, "PD": 0, "RUNNING": 1, "R": 1, "SUSPENDED": 2, "S": 2}
SIGKILL = 9

UNKNOWN_JOB = "Invalid job id specified"
ENDED_JOB = "Job/step already completing or completed"
#: sentence -> Slurm's error number, whose low byte is the exit code
_NUMBERS = {
    UNREACHABLE: 1800,
    "Access/permission denied": 2002,
    "Invalid user id": 2010,
    "Job is pending execution": 2013,
    UNKNOWN_JOB: 2017,
    "Requested operation is presently disabled": 2056,
    "Operation not permitted on individual component of heterogeneous job": 2108,
}


class _Wanted:
    """What the options and operands ask for."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        #: ids that name a step
        self.steps: list[tuple[str, int]] = []
        self.verbose = 0
        self.quiet = False
        self.interactive = False
        self.batch = False
        self.full = False
        self.hurry = False
        self.signal = 0
        #: fields of CancelJobs that narrow the choice
        self.filters: dict[str, str | int | list[str]] = {}


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code: 0 also for jobs that are unknown or have ended."""
    try:
        wanted = _options(argv, env, streams, reader)
        return _carry_out(wanted, streams, reader)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


# ---- options ---------------------------------------------------------------------------------


def _options(
    argv: Sequence[str], env: Mapping[str, str], streams: Streams, reader: Reader
) -> _Wanted:
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = _Wanted()
    keys = {key for key, _ in given}
    for variable, key in _ENV.items():
        value = env.get(variable, "")
        takes_value = key == "wckey" or f"{key}:" in _SHORT
        if value and key not in keys and (takes_value or value.lower() not in _OFF):
            _apply(wanted, key, value, streams, reader)
    for key, text in given:
        _apply(wanted, key, text or "", streams, reader)
    for operand in operands:
        _add_ids(wanted, operand)
    if not (wanted.ids or wanted.steps or wanted.filters):
        raise Stop(1, f"{NAME}: error: No job identification provided\n")
    return wanted


_FILTERS = {
    "A": "account",
    "n": "name",
    "p": "partition",
    "q": "qos",
    "R": "reservation",
    "wckey": "wckey",
}
_SWITCHES = {"b": "batch", "f": "full", "H": "hurry", "i": "interactive", "Q": "quiet"}


def _apply(wanted: _Wanted, key: str, text: str, streams: Streams, reader: Reader) -> None:
    if key in _FILTERS:
        wanted.filters[_FILTERS[key]] = text
    elif key in _SWITCHES:
        setattr(wanted, _SWITCHES[key], True)
    elif key == "v":
        wanted.verbose += 1
    elif key == "me":
        wanted.filters["user"] = reader.uid
    elif key == "u":
        wanted.filters["user"] = _uid(text)
    elif key == "t":
        state = _STATES.get(text.upper())
        if state is None:
            raise Stop(
                1,
                f"Invalid job state specified: {text}\n"
                "Valid job states are PENDING, RUNNING, and SUSPENDED\n",
            )
        wanted.filters["state"] = state
    elif key == "w":
        wanted.filters["nodelist"] = _nodes(text)
    elif key == "M":
        own_cluster(text, reader, NAME, f"{NAME}: error:", streams)
    elif key == "s":
        wanted.signal = _signal(text)
    elif key in ("V", "help", "usage"):
        streams.stdout.write({"V": version_line(), "help": HELP, "usage": USAGE}[key])
        raise Stop(0)


def _add_ids(wanted: _Wanted, operand: str) -> None:
    # Commas inside brackets belong to the list of tasks.
    for text in re.split(r",(?![^\[]*\])", operand):
        found = _ID.match(text)
        if not found:
            raise Stop(1, f"{NAME}: error: Invalid job id {text}\n")
        job, tasks, component, step = found.groups()
        if tasks in ("_", "_*"):
            # All tasks: the array itself.
            tasks = ""
        name = f"{job}{tasks or ''}{component or ''}"
        if step is None:
            wanted.ids.append(name)
        else:
            wanted.steps.append((name, int(step)))


def _uid(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text)
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError, UnicodeEncodeError):
        raise Stop(1, f"{NAME}: error: Invalid user name: {text}\n") from None


def _nodes(text: str) -> list[str]:
    from gsched.hostlist import HostlistError, expand

    try:
        return expand(text)
    except HostlistError as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None


def _signal(text: str) -> int:
    """A signal's number from its name (with or without SIG, any case) or number."""
    if text.isascii() and text.isdigit():
        number = int(text[:4])
        if 0 < number < 128:
            return number
    else:
        import signal

        name = text.upper()
        found = signal.Signals.__members__.get(name if name[:3] == "SIG" else f"SIG{name}")
        if found is not None:
            return int(found)
    raise Stop(1, f"Unknown job signal: {text}\n")


# ---- carrying out ----------------------------------------------------------------------------


def _carry_out(wanted: _Wanted, streams: Streams, reader: Reader) -> int:
    code = _steps(wanted, streams, reader) if wanted.steps else 0
    ids = wanted.ids
    if not ids and not wanted.filters:
        return code
    if wanted.interactive or (wanted.verbose and not ids):
        ids = _confirmed(wanted, streams, reader)
        if not ids:
            return code
    if wanted.verbose:
        _announce(wanted, ids, streams)
    return _send(_request(wanted, ids), ids, wanted, streams, reader) or code


def _steps(wanted: _Wanted, streams: Streams, reader: Reader) -> int:
    """Ends the steps that are named, or signals them."""
    from gsched.client import ControllerDown
    from gsched.wire.messages import CancelJobs, Refused

    steps = wanted.steps
    if wanted.interactive:
        steps = [step for step in steps if _agreed_step(step, streams, reader)]
    for job, step in steps if wanted.verbose else ():
        if wanted.signal in (0, SIGKILL):
            text = f"Terminating step {job}.{step}"
        else:
            text = f"Signal {wanted.signal} to step {job}.{step}"
        streams.stderr.write(f"{NAME}: {text}\n")
    code = 0
    if not steps:
        return code
    try:
        _known(steps, reader)
        reply = reader.call(CancelJobs([], wanted.signal, steps=steps))
    except ControllerDown:
        for job, _ in steps:
            code = _report(streams, f"job step id {job}", UNREACHABLE)
        return code
    if isinstance(reply, Refused):
        raise Stop(1, f"{NAME}: error: {reply.message}\n")
    for what, sentence in reply.errors:
        number = _NUMBERS.get(sentence, 1) & 0xFF
        if not wanted.quiet or sentence not in (UNKNOWN_JOB, ENDED_JOB):
            number = _report(streams, f"job {what.replace('step ', 'step id ', 1)}", sentence)
        code = number
    return code


def _known(steps: Sequence[tuple[str, int]], reader: Reader) -> None:
    """Sees to it that the controller knows of steps that have just begun."""
    from gsched.wire.messages import JobQuery
    from gsched_cli.stepview import tell_now

    ids = {int(re.split("[_+]", job)[0]) for job, _ in steps}
    tell_now(reader, reader.jobs(JobQuery(ids=sorted(ids), active_only=True)).jobs)


def _agreed_step(step: tuple[str, int], streams: Streams, reader: Reader) -> bool:
    """-i: asks whether the step is meant; one that does not run is not asked for."""
    from gsched_cli.stepview import load_steps

    job = int(re.split("[_+]", step[0])[0])
    for view in load_steps(reader, "slurm_load_jobs error:", job_ids=[job]):
        if view.id_text == f"{step[0]}.{step[1]}":
            name, partition = view.job.spec.name, view.job.partition
            return _asked(
                f"Cancel step_id={view.id_text} name={name} partition={partition} [y/n]? ", streams
            )
    return True


def _request(wanted: _Wanted, ids: list[str]) -> CancelJobs:
    from gsched.wire.messages import CancelJobs

    number = wanted.signal
    target = "all"
    if wanted.full:
        number = number or SIGKILL
    elif wanted.batch:
        target = "batch"
        number = number or SIGKILL
    elif number not in (0, SIGKILL):
        target = "steps"
    return CancelJobs(
        ids,
        number,
        target,
        hurry=wanted.hurry,
        **wanted.filters,  # type: ignore[arg-type]
    )


def _send(
    request: CancelJobs, ids: list[str], wanted: _Wanted, streams: Streams, reader: Reader
) -> int:
    from gsched.client import ControllerDown
    from gsched.wire.messages import Refused

    code = 0
    try:
        reply = reader.call(request)
    except ControllerDown:
        if not ids:
            raise Stop(1, f"slurm_load_jobs error: {UNREACHABLE}\n") from None
        for job in ids:
            code = _report(streams, f"job id {job}", UNREACHABLE)
        return code
    if isinstance(reply, Refused):
        raise Stop(1, f"{NAME}: error: {reply.message}\n")
    for note in reply.notes:
        streams.stderr.write(f"{NAME}: {note}\n")
    for job, sentence in reply.errors:
        if sentence in (UNKNOWN_JOB, ENDED_JOB):
            if wanted.verbose and not wanted.quiet:
                _report(streams, f"job id {job}", sentence)
        else:
            code = _report(streams, f"job id {job}", sentence)
    return code


def _report(streams: Streams, what: str, sentence: str) -> int:
    error(streams, NAME, f"Kill job error on {what}: {sentence}")
    return _NUMBERS.get(sentence, 1) & 0xFF


def _announce(wanted: _Wanted, ids: list[str], streams: Streams) -> None:
    for job in ids:
        if wanted.signal in (0, SIGKILL) and not wanted.batch:
            text = f"Terminating job {job}"
        elif wanted.batch and not wanted.full:
            text = f"Signal {wanted.signal or SIGKILL} to batch job {job}"
        else:
            text = f"Signal {wanted.signal or SIGKILL} to job {job}"
        streams.stderr.write(f"{NAME}: {text}\n")


def _confirmed(wanted: _Wanted, streams: Streams, reader: Reader) -> list[str]:
    """The ids of the jobs that the filters choose and, with -i, the user agrees to."""
    from gsched.wire.messages import JobQuery

    rows = asking(lambda: reader.jobs(JobQuery(active_only=True)), "slurm_load_jobs error:")
    chosen = []
    for job in rows.jobs:
        if wanted.ids and str(job.id) not in wanted.ids:
            continue
        if job.finished or not _matches(job, wanted):
            continue
        # Other users' jobs are passed over unless they were named.
        if not wanted.ids and reader.uid not in (0, job.uid):
            continue
        if not wanted.interactive or _agreed(job, streams):
            chosen.append(str(job.id))
    return chosen


def _matches(job: Job, wanted: _Wanted) -> bool:
    spec = job.spec
    values: dict[str, object] = {
        "account": spec.account,
        "name": spec.name,
        "partition": job.partition,
        "qos": spec.qos,
        "reservation": spec.reservation,
        "wckey": spec.wckey,
        "user": job.uid,
        "state": int(job.state),
    }
    nodes = wanted.filters.get("nodelist")
    if isinstance(nodes, list) and not any(share.node in nodes for share in job.alloc):
        return False
    return all(values[name] == value for name, value in wanted.filters.items() if name in values)


def _agreed(job: Job, streams: Streams) -> bool:
    question = f"Cancel job_id={job.id} name={job.spec.name} partition={job.partition} [y/n]? "
    return _asked(question, streams)


def _asked(question: str, streams: Streams) -> bool:
    streams.files.own()
    while True:
        streams.stdout.write(question)
        streams.stdout.flush()
        line = streams.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no") or not line:
            return False


if __name__ == "__main__":
    main()
