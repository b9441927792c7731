"""Database servers for tests: own instances of PostgreSQL and MariaDB on Unix sockets in
directories of their own, run by an unprivileged user."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

#: users that a server may run as where the tests run as root (neither runs as root itself)
USERS = ("gschedtest", "nobody")
KINDS = ("postgresql", "mariadb")


class Missing(Exception):
    """There is no such server here; the text says why."""


class Server:
    """A server of its own; `url` makes an empty database in it."""

    def __init__(self) -> None:
        self.user = self._unprivileged()
        self.dir = Path(tempfile.mkdtemp(prefix="gsched-db-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._names = (f"t{n}" for n in itertools.count(1))
        if self.user:
            shutil.chown(self.dir, self.user)
        self.dir.chmod(0o755)
        try:
            self.install()
            self.start()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _unprivileged() -> str:
        if os.getuid():
            return ""
        for name in USERS:
            try:
                pwd.getpwnam(name)
            except KeyError:
                continue
            return name
        raise Missing("no unprivileged user to run a database server as")

    def words(self, *command: str) -> list[str]:
        return [*(["setpriv", *self._become()] if self.user else []), *command]

    def _become(self) -> list[str]:
        entry = pwd.getpwnam(self.user)
        return [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]

    def run(self, *command: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            self.words(*command), cwd=self.dir, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def launch(self, *command: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "LC_ALL": "C.UTF-8"}
        end = time.monotonic() + 60
        self.process = None
        while not self.answers():
            if time.monotonic() > end:
                raise RuntimeError(f"{command[0]}: {(self.dir / 'log').read_text()[-2000:]}")
            # What a killed server left behind may hold its memory for a while: then the next one
            # ends at once.
            if self.process is None or self.process.poll() is not None:
                with open(self.dir / "log", "ab") as log:
                    self.process = subprocess.Popen(
                        self.words(*command), cwd=self.dir, env=env, stdout=log, stderr=log
                    )
            time.sleep(0.05)

    def answers(self) -> bool:
        import sqlalchemy as sa

        engine = sa.create_engine(self.address(self.first))
        try:
            engine.connect().close()
        except sa.exc.SQLAlchemyError:
            return False
        finally:
            engine.dispose()
        return True

    def url(self) -> str:
        """URL of a database that was made for the caller."""
        import sqlalchemy as sa

        name = next(self._names)
        engine = sa.create_engine(self.address(self.first), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self.address(name)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self._signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self._signal(self.stop_signal)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    #: a database that is always there, and what ends the server at once but in order
    first = ""
    stop_signal: int = signal.SIGTERM

    def install(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def address(self, database: str) -> str:
        raise NotImplementedError


class PostgreSQL(Server):
    first = "postgres"
    stop_signal = signal.SIGINT

    def __init__(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        path = found[-1] if found else shutil.which("postgres")
        if path is None:
            raise Missing("no PostgreSQL server (package postgresql)")
        pytest.importorskip("psycopg", reason="no driver for PostgreSQL (extra postgresql)")
        self.bin = Path(path).parent
        super().__init__()

    def install(self) -> None:
        options = ("-A", "trust", "-U", "gsched", "-E", "UTF8", "--no-locale", "-N")
        self.run(str(self.bin / "initdb"), "-D", str(self.dir / "data"), *options)

    def start(self) -> None:
        # Killing the server's first process leaves others behind, which end once they notice.
        (self.dir / "data/postmaster.pid").unlink(missing_ok=True)
        options = ("-k", str(self.dir), "-c", "listen_addresses=", "-c", "shared_buffers=32MB")
        self.launch(str(self.bin / "postgres"), "-D", str(self.dir / "data"), *options)

    def address(self, database: str) -> str:
        return f"postgresql+psycopg://gsched@/{database}?host={self.dir}"


class MariaDB(Server):
    first = "mysql"

    def __init__(self) -> None:
        paths = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"
        self.bin = shutil.which("mariadbd", path=paths) or ""
        self.maker = shutil.which("mariadb-install-db", path=paths) or ""
        if not self.bin or not self.maker:
            raise Missing("no MariaDB server (package mariadb-server)")
        pytest.importorskip("pymysql", reason="no driver for MariaDB (extra mysql)")
        super().__init__()

    def install(self) -> None:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db")
        self.run(self.maker, "--no-defaults", f"--datadir={self.dir}/data", *options)

    def start(self) -> None:
        paths = (f"--datadir={self.dir}/data", f"--socket={self.dir}/socket")
        options = ("--skip-networking", f"--pid-file={self.dir}/pid", "--innodb-log-file-size=32M")
        self.launch(self.bin, "--no-defaults", *paths, *options)

    def address(self, database: str) -> str:
        return f"mysql+pymysql://root@localhost/{database}?unix_socket={self.dir}/socket"


class Servers:
    """Those of one run of the tests; each is started when it is first asked for."""

    def __init__(self) -> None:
        self._running: dict[str, Server] = {}
        self._missing: dict[str, str] = {}

    def of(self, kind: str) -> Server:
        """Skips the test where there is none."""
        if kind in self._missing:
            pytest.skip(self._missing[kind])
        if kind not in self._running:
            try:
                self._running[kind] = own_server(kind)
            except Missing as why:
                self._missing[kind] = str(why)
                pytest.skip(str(why))
        return self._running[kind]

    def close(self) -> None:
        for server in self._running.values():
            server.close()


def own_server(kind: str) -> Server:
    """A server that only the caller uses, who closes it. Raises Missing."""
    return PostgreSQL() if kind == "postgresql" else MariaDB()
