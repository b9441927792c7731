"""Runs PrologSlurmctld and EpilogSlurmctld beside the controller's loop: before the nodes of an
allocation are asked to prepare it, and once it has been given back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gsched.config import Config
from gsched.environment import array_variables, repeats, usable_cpus
from gsched.hostlist import compress
from gsched.ledger import HookEnded
from gsched.model import Job
from gsched.rawtext import to_bytes

#: programs that may run at once (a thread each, that only waits); the others wait
WORKERS = 64

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class _Run:
    """One program, or several, for one attempt."""

    job: Job
    epilog: bool


def environment(job: Job, config: Config, *, epilog: bool) -> dict[str, str]:
    """What the program is told of the job (Slurm's prolog and epilog guide); nothing of the
    user's own environment."""
    status = job.wstatus
    env = {
        "PATH": _PATH,
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_CONF": config.path,
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_CPUS_PER_NODE": repeats(usable_cpus(job, share, config) for share in job.alloc),
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_GROUP": job.group,
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_JOB_NODELIST": compress([part.node for part in job.alloc]),
        "SLURM_JOB_NUM_NODES": str(len(job.alloc)),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_RESTART_COUNT": str(job.restarts),
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_WORK_DIR": job.spec.work_dir,
        "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld" if epilog else "prolog_slurmctld",
    }
    if epilog:
        env |= {
            "SLURM_JOB_DERIVED_EC": str(job.derived_wstatus),
            "SLURM_JOB_EXIT_CODE": str(status),
            "SLURM_JOB_EXIT_CODE2": f"{status >> 8 & 0xFF}:{status & 0x7F}",
        }
    for name, value in (
        *array_variables(job).items(),
        ("SLURM_JOB_ACCOUNT", job.spec.account),
        ("SLURM_JOB_COMMENT", job.spec.comment),
        ("SLURM_JOB_CONSTRAINTS", job.spec.shape.features),
        ("SLURM_JOB_RESERVATION", job.spec.reservation),
    ):
        if value:
            env[name] = value
    return {name: value for name, value in env.items() if "\0" not in value}


class Hooks:
    """Runs the programs in threads of their own. Those of one job run one after the other, in the
    order in which they were handed over: the epilog of an attempt never overtakes its prolog."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._waiting: deque[_Run] = deque()
        #: jobs a program of which runs
        self._busy: set[int] = set()
        self._ended: deque[HookEnded] = deque()
        self._ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def fd(self) -> int:
        """Becomes readable when a program has ended."""
        return self._ready

    def take(self) -> list[HookEnded]:
        """What has ended since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._ready)
        with self._lock:
            ended = list(self._ended)
            self._ended.clear()
        return ended

    def run(self, prologs: Sequence[Job], epilogs: Sequence[Job]) -> None:
        """Hands over jobs (images that nobody changes); never waits."""
        with self._lock:
            self._waiting.extend(_Run(job, False) for job in prologs)
            self._waiting.extend(_Run(job, True) for job in epilogs)
        self._start()

    def _start(self) -> None:
        with self._lock:
            later: deque[_Run] = deque()
            while self._waiting and len(self._busy) < WORKERS:
                run = self._waiting.popleft()
                if run.job.id in self._busy:
                    later.append(run)
                    continue
                self._busy.add(run.job.id)
                threading.Thread(target=self._work, args=(run,), name="hook", daemon=True).start()
            self._waiting.extendleft(reversed(later))

    def _work(self, run: _Run) -> None:
        config, errors = self.config, []
        for program in config.epilog_slurmctld if run.epilog else config.prolog_slurmctld:
            name = "EpilogSlurmctld" if run.epilog else "PrologSlurmctld"
            try:
                error = _one(program, run, config)
            except (OSError, ValueError, subprocess.SubprocessError) as problem:
                error = f"could not be run: {problem}"
            if error:
                errors.append(f"{name} {program} {error}")
                if not run.epilog:
                    break
        with self._lock:
            self._busy.discard(run.job.id)
            self._ended.append(
                HookEnded(run.job.id, run.job.attempt, run.epilog, "; ".join(errors))
            )
        os.eventfd_write(self._ready, 1)
        self._start()


def _packed(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {to_bytes(name): to_bytes(value) for name, value in env.items()}


def _one(program: str, run: _Run, config: Config) -> str:
    """What went wrong; "" nothing."""
    process = subprocess.Popen(
        [program],
        env=_packed(environment(run.job, config, epilog=run.epilog)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    limit = config.prolog_epilog_timeout or None
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was killed after {limit} s (PrologEpilogTimeout)"
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with {status}" if status else ""
