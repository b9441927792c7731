"""Mail to users about their jobs: which events, and Slurm's words for them.

Nothing is sent here: the outcome carries what is to be sent once it is durable.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gsched import patterns
from gsched.admission import RECIPIENTS
from gsched.environment import array_indices, repeats
from gsched.hostlist import compress
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.model.mailtype import MailType

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

_WORDS: dict[int, str] = {
    MailType.BEGIN: "Began",
    MailType.END: "Ended",
    MailType.FAIL: "Failed",
    MailType.REQUEUE: "Requeued",
    MailType.TIME_LIMIT: "Reached time limit",
    MailType.TIME_LIMIT_90: "Reached 90% of time limit",
    MailType.TIME_LIMIT_80: "Reached 80% of time limit",
    MailType.TIME_LIMIT_50: "Reached 50% of time limit",
    MailType.INVALID_DEPEND: "Invalid dependency",
}
_SHARES: dict[int, float] = {
    MailType.TIME_LIMIT_50: 0.5,
    MailType.TIME_LIMIT_80: 0.8,
    MailType.TIME_LIMIT_90: 0.9,
}

#: ends that Slurm tells as a failure
_FAILURES = frozenset(
    {
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
    }
)


@dataclass(frozen=True)
class Mail:
    """One message: arguments and environment of the mail program."""

    recipient: str
    subject: str
    variables: dict[str, str] = field(default_factory=dict)


def begun(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The job has started (or the first task of its array)."""
    if not job.spec.mail_type:
        return
    _arm(led, job, out)
    first = not any(each.start_time for each in _array(led, job) if each is not job)
    if first or not _summary(job):
        _send(led, job, MailType.BEGIN, now, out)


def ended(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The job (or the last task of its array) has ended and does not come back."""
    if not job.spec.mail_type:
        return
    if job.state == JobState.TIMEOUT:
        _send(led, job, MailType.TIME_LIMIT, now, out)
    if _summary(job):
        records = _array(led, job)
        if all(each.finished for each in records):
            failed = any(each.state in _FAILURES for each in records)
            _send(led, job, MailType.FAIL if failed else MailType.END, now, out)
        return
    _send(led, job, MailType.FAIL if job.state in _FAILURES else MailType.END, now, out)


def requeued(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The attempt is over, and the job is about to be queued again."""
    _send(led, job, MailType.REQUEUE, now, out)


def never(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """What the job waits for can never be fulfilled."""
    _send(led, job, MailType.INVALID_DEPEND, now, out)


def _arm(led: Ledger, job: Job, out: Outcome) -> None:
    if not job.time_limit:
        return
    for bit, share in _SHARES.items():
        if job.spec.mail_type & bit:
            when = job.start_time + int(share * job.time_limit)
            heapq.heappush(led.mail_times, (when, job.id, job.attempt, bit))
            out.wake(when)


def rearm(led: Ledger, job: Job) -> None:
    """After a restart: what of a running job's time is still to be told."""
    known = Outcome()
    if job.state == JobState.RUNNING and any(job.spec.mail_type & bit for bit in _SHARES):
        _arm(led, job, known)
        led.mail_times = [item for item in led.mail_times if item[0] > led.meta.last_now]
        heapq.heapify(led.mail_times)


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Shares of time limits that have passed. A limit that was changed meanwhile is told anew."""
    while led.mail_times and led.mail_times[0][0] <= now:
        _, job_id, attempt, bit = heapq.heappop(led.mail_times)
        job = led.jobs.get(job_id)
        if job is None or job.state != JobState.RUNNING or job.attempt != attempt:
            continue
        due = job.start_time + int(_SHARES[bit] * job.time_limit)
        if not job.time_limit:
            continue
        if due > now:
            heapq.heappush(led.mail_times, (due, job_id, attempt, bit))
        else:
            _send(led, job, bit, now, out)
    if led.mail_times:
        out.wake(led.mail_times[0][0])


def _summary(job: Job) -> bool:
    """Whether the array is told of as a whole."""
    return bool(job.array_job_id) and not job.spec.mail_type & MailType.ARRAY_TASKS


def _array(led: Ledger, job: Job) -> list[Job]:
    members = led.array_members.get(job.array_job_id, set())
    return [led.jobs[job_id] for job_id in sorted(members)]


def _send(led: Ledger, job: Job, bit: int, now: float, out: Outcome) -> None:
    if not job.spec.mail_type & bit or job.het_offset:
        return
    recipient = job.spec.mail_user or job.user
    domain = led.config.raw.get("maildomain", "")
    if domain and "@" not in recipient:
        recipient = f"{recipient}@{domain}"
    if RECIPIENTS.fullmatch(recipient) is None:
        out.log.append(("warning", f"job {job.id}: no mail to {recipient[:80]!r}"))
        return
    summary = _summary(job)
    text = _WORDS[bit]
    if summary and job.array_job_id:
        title = f"Array Summary Job_id={job.array_job_id}_* ({job.array_job_id})"
        end = _summary_end(_array(led, job)) if bit in (MailType.END, MailType.FAIL) else ""
    else:
        title = f"Job_id={job.id}"
        if job.array_job_id:
            title = f"Array Task Job_id={job.array_job_id}_{job.array_task_id} ({job.id})"
        end = _times(job, bit, now) + (_term(job) if bit in (MailType.END, MailType.FAIL) else "")
    subject = _printable(f"Slurm {title} Name={job.spec.name} {text}{end}")
    out.mails.append(Mail(recipient, subject, _variables(led, job, bit, now)))


def _printable(text: str) -> str:
    """One line, whatever the name of the job holds."""
    return "".join(char if char.isprintable() else " " for char in text)[:1000]


def _times(job: Job, bit: int, now: float) -> str:
    if bit == MailType.BEGIN:
        return f", Queued time {_clock(max(0, job.start_time - job.submit_time))}"
    if bit in (MailType.END, MailType.FAIL, MailType.REQUEUE):
        return f", Run time {_clock(_run_time(job, now))}"
    if bit != MailType.INVALID_DEPEND:
        return f", Run time {_clock(max(0, int(now) - job.start_time))}"
    return ""


def _run_time(job: Job, now: float) -> int:
    end = job.end_time if job.finished else int(now)
    return max(0, end - job.start_time) if job.start_time else 0


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _term(job: Job) -> str:
    """State and exit code; none for one that a signal ended."""
    if job.wstatus & 0x7F and job.state == JobState.FAILED:
        return f", {job.state.name}"
    return f", {job.state.name}, ExitCode {job.wstatus >> 8 & 0xFF}"


def _summary_end(records: list[Job]) -> str:
    states = {job.state for job in records}
    state = states.pop().name if len(states) == 1 else "Mixed"
    codes = [job.wstatus >> 8 & 0xFF for job in records]
    return f", {state}, ExitCode [{min(codes)}-{max(codes)}]"


def _variables(led: Ledger, job: Job, bit: int, now: float) -> dict[str, str]:
    """The environment of the mail program."""
    spec = job.spec
    names = [part.node for part in job.alloc]
    result = {
        "SLURM_CLUSTER_NAME": led.config.cluster_name,
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_GROUP": job.group,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_MAIL_TYPE": _WORDS[bit],
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_NODELIST": compress(names) if names else "(null)",
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_RESTART_COUNT": str(job.restarts),
        "SLURM_JOB_STATE": "PENDING" if bit == MailType.REQUEUE else job.state.name,
        "SLURM_JOB_STDIN": spec.std_in or "/dev/null",
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_WORK_DIR": spec.work_dir,
    }
    if job.alloc:
        result["SLURM_JOB_CPUS_PER_NODE"] = repeats(part.cpus for part in job.alloc)
        result["SLURM_JOB_NUM_NODES"] = str(len(job.alloc))
        stdout, stderr = patterns.batch_files(job, job.batch_host)[1:]
        result["SLURM_JOB_STDOUT"] = stdout
        if stderr and stderr != stdout:
            result["SLURM_JOB_STDERR"] = stderr
    if bit == MailType.BEGIN:
        result["SLURM_JOB_QUEUED_TIME"] = _clock(max(0, job.start_time - job.submit_time))
    elif bit in (MailType.END, MailType.FAIL, MailType.REQUEUE):
        result["SLURM_JOB_RUN_TIME"] = _clock(_run_time(job, now))
    if bit in (MailType.END, MailType.FAIL):
        code, signum = job.wstatus >> 8 & 0xFF, job.wstatus & 0x7F
        result |= {
            "SLURM_JOB_DERIVED_EC": str(job.derived_wstatus >> 8 & 0xFF),
            "SLURM_JOB_EXIT_CODE": str(job.wstatus),
            "SLURM_JOB_EXIT_CODE2": f"{code}:{signum}",
            "SLURM_JOB_EXIT_CODE_MAX": str(code),
        }
        if _summary(job):
            codes = [each.wstatus >> 8 & 0xFF for each in _array(led, job)]
            result["SLURM_JOB_EXIT_CODE_MAX"] = str(max(codes))
            result["SLURM_JOB_EXIT_CODE_MIN"] = str(min(codes))
    if job.array_job_id:
        indices = array_indices(spec.array) or [max(0, job.array_task_id)]
        result |= {
            "SLURM_ARRAY_JOB_ID": str(job.array_job_id),
            "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
            "SLURM_ARRAY_TASK_ID": str(job.array_task_id),
            "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
            "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        }
    return {name: _clean(value) for name, value in result.items()}


def _clean(value: str) -> str:
    return value.replace("\0", "")
