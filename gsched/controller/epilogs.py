"""Runs EpilogSlurmctld beside the controller's loop, once an allocation has been given back."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Sequence

from gsched.config import Config
from gsched.environment import array_variables
from gsched.hostlist import compress
from gsched.model import Job

#: programs that may run at once; the others wait
WORKERS = 4

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(job: Job, config: Config) -> dict[str, str]:
    """What the program is told of the job (Slurm's prolog and epilog guide); nothing of the
    user's own environment."""
    status = job.wstatus
    env = {
        "PATH": _PATH,
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_CONF": config.path,
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_DERIVED_EC": str(job.derived_wstatus),
        "SLURM_JOB_EXIT_CODE": str(status),
        "SLURM_JOB_EXIT_CODE2": f"{status >> 8 & 0xFF}:{status & 0x7F}",
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_GROUP": job.group,
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_JOB_NODELIST": compress([part.node for part in job.alloc]),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_RESTART_COUNT": str(job.restarts),
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_WORK_DIR": job.spec.work_dir,
        "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld",
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


class Epilogs:
    """A queue and its threads. A program that fails is only logged, as with Slurm."""

    def __init__(self, config: Config, complain: Callable[[str], object]) -> None:
        self.config = config
        self._complain = complain
        self._queue: queue.Queue[Job] = queue.Queue()
        self._threads: list[threading.Thread] = []

    def run(self, jobs: Sequence[Job]) -> None:
        """Hands over jobs (images that nobody changes) whose nodes are free; never waits."""
        if not self.config.epilog_slurmctld:
            return
        for job in jobs:
            self._queue.put(job)
        while len(self._threads) < min(WORKERS, self._queue.qsize()):
            thread = threading.Thread(target=self._work, name="epilog", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            for program in self.config.epilog_slurmctld:
                try:
                    self._one(program, job)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    self._complain(f"job {job.id}: EpilogSlurmctld {program}: {error}")

    def _one(self, program: str, job: Job) -> None:
        done = subprocess.run(
            [program],
            env=environment(job, self.config),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=self.config.prolog_epilog_timeout or None,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            self._complain(f"job {job.id}: EpilogSlurmctld {program} ended with {done.returncode}")
