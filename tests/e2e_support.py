"""A real cluster for the tests of tests/e2e: brought up, driven and taken down as a user would."""

from __future__ import annotations

import functools
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from waiting import PATIENCE, SLOW, until

from gsched.client import Client
from gsched.local.cluster import Cluster as OnDisk
from gsched.model import Job
from gsched.wire.messages import JobQuery

BIN = Path(sys.executable).parent
TEST_USER = "gschedtest"


@functools.cache
def prefix(user: str) -> tuple[str, ...] | None:
    """Words in front of a command that make it run as `user`; None where that is impossible.

    Where the installation lies below a folder that only root may enter, the commands keep the right
    to read it (CAP_DAC_READ_SEARCH); who they are is the user's all the same.
    """
    who = pwd.getpwnam(user)
    change = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"]
    keep = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    # Through a shell: what setpriv itself executes is still found with root's rights.
    probe = ["sh", "-c", f"'{BIN}/gsched' --version; exit $?"]
    for words in (change, [*change, *keep]):
        done = subprocess.run([*words, *probe], cwd="/", capture_output=True, check=False)
        if done.returncode == 0:
            return tuple(words)
    return None


class LocalCluster:
    """A cluster made by `gsched up`, in a directory of its own."""

    def __init__(
        self, *options: str, user: str | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.user = user
        #: variables for `gsched up` alone
        self.up_env = env
        base = Path(tempfile.mkdtemp(prefix="gsched-e2e-"))
        base.chmod(0o755)
        if user is not None:
            os.chown(base, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        self.base = base
        self.dir = base / "c"
        #: where jobs write: open to every user
        self.work = base / "work"
        self.work.mkdir()
        self.work.chmod(0o1777)
        self.options = options

    # ---- the command gsched

    def gsched(
        self, *words: str, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        argv = [str(BIN / "gsched"), *words, "--dir", str(self.dir)]
        return self.run(argv, check=check, env=env)

    def up(self) -> str:
        words = ["up", "-v", "--timeout", f"{60 * SLOW:g}", *self.options]
        return self.gsched(*words, env=self.up_env).stdout

    def __enter__(self) -> LocalCluster:
        try:
            self.up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes the cluster down and removes it; fails if that does not work."""
        try:
            if (self.dir / "etc/slurm.conf").exists():
                self.gsched("down", "--purge")
        finally:
            shutil.rmtree(self.base, ignore_errors=True)

    def logs(self, lines: int = 15) -> str:
        """The end of every log, for the report of a failed test."""
        parts = []
        # What a daemon logs stands in its .out as well.
        for path in sorted((self.dir / "log").glob("*.out")):
            text = path.read_text(errors="replace").splitlines()[-lines:]
            if text:
                parts.append(f"--- {path.name}\n" + "\n".join(text))
        return "\n".join(parts)

    # ---- Slurm's commands

    def env(self, user: str | None = None) -> dict[str, str]:
        who = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
        return {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "SLURM_CONF": str(self.dir / "etc/slurm.conf"),
            "HOME": who.pw_dir,
            "USER": who.pw_name,
            "LOGNAME": who.pw_name,
            "LANG": "C.UTF-8",
        }

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        check: bool = True,
        stdin: str = "",
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 90,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command with the cluster's environment, as `user` where that is another one."""
        user = user or self.user
        words = list(argv)
        if user is not None and os.getuid() == 0 and user != "root":
            words = [*(prefix(user) or ()), *words]
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd or self.work,
            env={**self.env(user), **(env or {})},
            timeout=timeout * SLOW,
            check=False,
        )
        if check:
            assert done.returncode == 0, (
                f"{argv} exited {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
            )
        return done

    def sbatch(self, *words: str, script: str | None = None, user: str | None = None) -> int:
        """Submits (a script through standard input, or words with --wrap) and gives the job id."""
        done = self.run(["sbatch", *words], stdin=script or "", user=user)
        found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
        assert found, done.stdout
        return int(found.group(1))

    # ---- typed requests

    @property
    def on_disk(self) -> OnDisk:
        return OnDisk.load(self.dir)

    @property
    def socket(self) -> str:
        return str(self.dir / "run/frontend.sock")

    def job(self, job_id: int) -> Job:
        with Client(self.socket) as client:
            rows = client.jobs(JobQuery(ids=[job_id]))
        assert len(rows.jobs) == 1, f"job {job_id} is not known"
        return rows.jobs[0]

    def ended(self, job_id: int, patience: float = PATIENCE) -> Job:
        """The job's record once it has ended and nothing of it is left on a node."""

        def done() -> Job | None:
            job = self.job(job_id)
            return job if job.finished and not job.completing else None

        try:
            job = until(f"end of job {job_id}", done, patience)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.job(job_id)}\n{self.logs()}") from None
        assert isinstance(job, Job)
        return job

    def output(self, job_id: int) -> str:
        return (self.work / f"slurm-{job_id}.out").read_text()
