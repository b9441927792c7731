"""The shell around the agent: one loop over the link to the controller, supervisors and hooks.

Everything is decided by the agent; here its actions are carried out and what comes of them is fed
back. One thread; nothing in the loop waits for anything a user or a site's script controls.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from gsched.config import Config, ConfigError, load_config
from gsched.environment import wants_login
from gsched.model import Phase
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.nodes import ConfigFiles, FetchConfig, Reread, ToNode
from gsched.wire.sockets import dial_controller
from slurmd_compat.agent import (
    Action,
    AdoptStep,
    Agent,
    CleanUp,
    DropNotice,
    HookDone,
    Input,
    JournalDel,
    JournalFailed,
    JournalPut,
    Key,
    KillStep,
    Linked,
    Log,
    Marked,
    NotifyStep,
    PutIdentity,
    Record,
    RunHook,
    SendRegister,
    SendReport,
    SetStepLimit,
    SignalStep,
    SpawnStep,
    Tick,
    WriteJob,
    WriteNotice,
)
from slurmd_compat.agent.step_words import AdoptShare, SpawnShare, StepAction, StepInput
from slurmd_compat.configless import NEEDS, renew
from slurmd_compat.grants import Grants
from slurmd_compat.health_checks import HealthChecks
from slurmd_compat.hooks import Command, Hooks, login_command, scripts
from slurmd_compat.inventory import HealthWatch, Inventory, boot_id, cpu_load, memory_mb
from slurmd_compat.journal import Journal
from slurmd_compat.launcher import Launcher, user_entry
from slurmd_compat.leftovers import end_unknown
from slurmd_compat.links import is_alive
from slurmd_compat.notices import Notices
from slurmd_compat.removal import remove_later, sweep
from slurmd_compat.scripts import Scripts
from slurmd_compat.step_service import StepService, now_ms

#: of hooks that are no attempt's
NO_KEY = Key(0, 0, "")
#: ms for which an end waits for the release that usually follows at once: one report for both
LINGER_MS = 10
#: ms between tries to send where there is no link: the first, and the most
RESEND_MS = 200
RESEND_MAX_MS = 5000
#: ms within which the news of a link is older than a message that went over it
LINK_NEWS_MS = 200
#: ms between tries to get the controller's files
FETCH_MS = 5000
#: messages taken in one turn
BATCH = 64
#: ms for which load and free memory are good
LOAD_MS = 5000


class Daemon:
    """One node. `run` returns after `stop`; jobs go on without it."""

    def __init__(
        self,
        config: Config,
        node: str,
        spool: Path,
        keys_dir: str,
        log: Any,
        *,
        stepd_path: str = "",
        children: Iterable[int] = (),
        configless: bool = False,
    ) -> None:
        """Opens the journal (SpoolBusy, OSError), the GPUs, the link (KeyProblem)."""
        self.config = config
        self.node = node
        self.log = log
        #: the files are the controller's: fetched anew whenever they are to be read again
        self._configless = configless
        #: when to ask for them (again); 0: nothing is wanted
        self._fetch_at = 0
        self.journal = Journal(spool)
        self.inventory = Inventory(config, config.nodes[node])
        self.inventory.claim()
        for problem in [*self.journal.problems, *self.inventory.problems]:
            log.error(problem)
        self.grants = Grants(config, node, str(spool), self.inventory, log)
        self.launcher = Launcher(config, node, spool, self.grants.grant, stepd_path)
        self.agent = Agent(
            node,
            boot_id(),
            f"{os.getpid()}-{time.time_ns():x}",
            config,
            prolog=bool(config.prolog),
            epilog=bool(config.epilog),
        )
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self.hooks = Hooks(lambda fd: self.watch(fd, self._hook_ended), self.unwatch)
        self.checks = HealthChecks(config, node, self._busy_cpus, self._check_health, log)
        self._todo: deque[Input | StepInput] = deque()
        self.scripts = Scripts(
            config,
            node,
            self.launcher,
            self.grants,
            self.watch,
            self.unwatch,
            self._todo.append,
            self._record,
            self._linger,
            now_ms,
            log,
        )
        self.scripts.links.zombies += children
        self.steps = StepService(
            config,
            node,
            self.launcher,
            self.grants,
            self.journal,
            self,
            self._todo.append,
            self._record,
            self._post,
            self.agent.steps.find,
            self.agent.steps.others,
            self._script_pid,
            lambda: list(self.agent.steps.records.values()),
            log,
        )
        self.notices = Notices(spool, lambda *what: self._todo.append(Marked(*what)), log)
        self.watch(self.notices.fd, self.notices.read)
        self._want_report = False
        self._want_register = False
        self._hold_until = 0
        self._send_after = 0
        self._resend = RESEND_MS
        #: when a registration was last handed over
        self._registered_at = -LINK_NEWS_MS
        self._stopping = False
        #: set when the daemon ends only to be started anew with it
        self.next_config: Config | None = None
        self._load = (-LOAD_MS, -1, -1)
        #: malformed messages
        self.bad = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.watch(self._wake_read, self._woken)
        self.health = HealthWatch(self.inventory, self._wake)
        self._link(keys_dir)

    def _link(self, keys_dir: str) -> None:
        host = self.config.slurmctld_host[0]
        self._context = zmq.Context(io_threads=1)
        self._dealer = dial_controller(
            self._context,
            host.addr,
            self.config.slurmctld_port,
            keys_dir,
            node=self.node,
            events=zmq.EVENT_HANDSHAKE_SUCCEEDED,
        )
        self._monitor = self._dealer.get_monitor_socket()
        self.watch(int(self._dealer.get(zmq.FD)), _nothing)
        self.watch(int(self._monitor.get(zmq.FD)), _nothing)

    # -- descriptors

    def watch(self, fd: int, handler: Callable[[int], None], *, write: bool = False) -> None:
        """Calls `handler(fd)` in the loop when there is something to read; with `write` also when
        there is room to write."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLOUT if write else select.EPOLLIN)

    def watch_more(self, fd: int, *, write: bool) -> None:
        """Changes whether room to write is waited for."""
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if write else select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    def _woken(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            os.read(fd, 4096)
        self._want_report = True

    # -- the loop

    def start(self) -> None:
        """Takes up what the journal holds."""
        records = self.journal.records()
        known = {self.launcher.directory(record.key) for record in records}
        for sentence in end_unknown(self.launcher.spool, known, self.node, self.config.path):
            self.log.error(sentence)
        for path in self.launcher.orphans(record.key for record in records):
            self._remove_orphan(path)
        sweep(self.launcher.spool)
        self.grants.sweep(record.key for record in records)
        self._perform(
            self.agent.restore(
                self.journal.identity,
                records,
                now_ms(),
                self.journal.leads(),
                self.journal.shares(),
                self.journal.waits(),
            )
        )
        self._drain()
        if records:
            self.log.info(f"{len(records)} attempts taken up from the journal")

    def run(self) -> None:
        """The loop, until `stop`."""
        self.start()
        while not self._stopping:
            self.turn(self._timeout_ms())
        self.close()

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def reread(self) -> None:
        """Reads the configuration again. If it is good the daemon ends with `next_config` set, to
        be started anew with it: supervisors are adopted as after any restart. Without files of its
        own it asks the controller for them first."""
        if self._configless:
            self._fetch_at = now_ms()
            self._wake()
            return
        self._read_again()

    def _files_came(self, message: ConfigFiles) -> None:
        if not self._fetch_at:
            return
        self._fetch_at = 0
        folder = Path(self.config.path).parent
        problem = message.refused or renew(message.data, self.node, folder)
        if problem:
            self.log.error(f"the configuration stays as it was: {problem}")
        else:
            self._read_again()

    def _read_again(self) -> None:
        try:
            config = load_config(self.config.path, needs=NEEDS)
        except (ConfigError, OSError) as error:
            self.log.error(f"the configuration stays as it was: {error}")
            return
        if self.node not in config.nodes:
            self.log.warning(f"{self.node} is not in the new configuration: nothing changes here")
            return
        self.next_config = config
        self.stop()

    def orphaned(self) -> list[int]:
        """Supervisors of this process whose exit status nobody has read yet."""
        return [*self.scripts.links.children(), *self.steps.children()]

    def close(self) -> None:
        """Lets go of everything; supervisors and jobs stay."""
        self.health.stop()
        self.scripts.links.close()
        self.steps.close()
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)
        self._dealer.close(linger=100)
        self._context.term()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self.grants.close()
        self.inventory.close()
        self.journal.close()
        self.notices.close()

    def turn(self, timeout_ms: int) -> None:
        """Waits for up to `timeout_ms` for something to happen, and deals with it."""
        for fd, _ in self._epoll.poll(timeout_ms / 1000 if timeout_ms >= 0 else None):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(fd)
        self._receive()
        self._on_time(now_ms())
        self._drain()
        self._send(now_ms())

    def _timeout_ms(self) -> int:
        now = now_ms()
        # ZeroMQ's descriptor speaks only once: what came while we sent is asked for.
        if _readable(self._dealer) or _readable(self._monitor):
            return 0
        at = self.agent.wake_at()
        marks = (self.hooks.deadline(), self.scripts.vigil.deadline(), self.steps.deadline())
        for mark in (*marks, self.checks.deadline()):
            if mark is not None:
                at = min(at, mark)
        if self._want_report or self._want_register:
            at = min(at, max(self._hold_until, self._send_after))
        if self._fetch_at:
            at = min(at, self._fetch_at)
        return max(0, at - now)

    def _on_time(self, now: int) -> None:
        if self._fetch_at and now >= self._fetch_at:
            self._fetch_at = now + FETCH_MS
            with contextlib.suppress(zmq.ZMQError):
                self._dealer.send(encode(FetchConfig(self.node)), zmq.NOBLOCK)
        self.grants.on_time()
        if now >= self.agent.wake_at():
            self._todo.append(Tick())
        deadline = self.hooks.deadline()
        if deadline is not None and now >= deadline:
            for done in self.hooks.on_time(now):
                self._hook_over(done)
        self.scripts.vigil.on_time(now)
        self.steps.on_time(now)
        self.checks.on_time(now)

    def _busy_cpus(self) -> int:
        """CPUs that attempts hold here."""
        return sum(
            record.launch.job.alloc[record.launch.node_index].cpus
            for record in self.agent.held()
            if record.phase < Phase.RELEASED
        )

    def _check_health(self, command: Command) -> None:
        self._hook_over(self.hooks.start(NO_KEY, "health", [command], now_ms()))

    # -- the controller

    def _receive(self) -> None:
        while _readable(self._monitor):
            recv_monitor_message(self._monitor)
            # The registration may have gone out before the news of the link it went over.
            if self.agent.session or now_ms() - self._registered_at > LINK_NEWS_MS:
                self._send_after = 0
                self._todo.append(Linked())
        for _ in range(BATCH):
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message: Any = decode(ToNode, frames[-1])
            except BadMessage as error:
                self.bad += 1
                self.log.error(f"a message of the controller was not understood: {error}")
                continue
            if isinstance(message, Reread):
                if message.epoch >= self.agent.epoch:
                    self.reread()
                continue
            if isinstance(message, ConfigFiles):
                self._files_came(message)
                continue
            if not self.steps.incoming(message):
                self._todo.append(message)
            self._drain()

    def _post(self, message: Any) -> None:
        """A word to the controller that may be lost."""
        if self.agent.session:
            with contextlib.suppress(zmq.ZMQError):
                self._dealer.send(encode(message), zmq.NOBLOCK)

    def _record(self, key: Key) -> Record | None:
        return next((record for record in self.agent.held() if record.key == key), None)

    def _script_pid(self, key: Key) -> int:
        """The process of a script that runs here; 0 none."""
        link = self.scripts.links.held.get(key)
        return link.status.pid if link is not None and link.status.wstatus is None else 0

    def _linger(self, hold: bool) -> None:
        self._hold_until = now_ms() + LINGER_MS if hold else 0

    def _send(self, now: int) -> None:
        if not (self._want_report or self._want_register):
            return
        if now < self._send_after or (now < self._hold_until and not self._want_register):
            return
        if self._want_register:
            message: Any = self.agent.register_message(self.inventory.facts(), now)
        elif not self.agent.session:
            self._want_report = False
            return
        else:
            load, free = self._machine(now)
            message = self.agent.report_message(now, load, free)
            message.gpu_faults = dict(self.health.faults)
        try:
            self._dealer.send(encode(message), zmq.NOBLOCK)
        except zmq.ZMQError:
            if self._want_register:
                # It goes out when the link stands (Linked) or at the agent's next try.
                self._want_register = False
            self._send_after = now + self._resend
            self._resend = min(2 * self._resend, RESEND_MAX_MS)
            return
        self._resend = RESEND_MS
        if self._want_register:
            self._want_register = False
            self._registered_at = now
        else:
            self._want_report = False

    def _machine(self, now: int) -> tuple[int, int]:
        if now - self._load[0] >= LOAD_MS:
            self._load = (now, cpu_load(), memory_mb()[1])
        return self._load[1], self._load[2]

    # -- inputs and actions

    def _drain(self) -> None:
        while self._todo:
            item = self._todo.popleft()
            self._perform(self.agent.apply(item, now_ms()))

    def _perform(self, actions: list[Action | StepAction]) -> None:
        dead: set[Key] = set()
        for number, action in enumerate(actions):
            if dead and getattr(action, "key", None) in dead:
                continue
            if isinstance(action, JournalPut):
                self._put(action, actions[number + 1 :], dead)
            elif isinstance(action, WriteJob):
                try:
                    self.launcher.write_job(action.key, action.launch)
                except OSError as error:
                    dead.add(action.key)
                    text = f"could not write the job's directory: {error.strerror or error}"
                    self._todo.append(JournalFailed(action.key, text))
            else:
                mine = _CARRY_OUT.get(type(action))
                if mine is not None:
                    mine(self, action)
                elif not isinstance(action, Action):
                    self.steps.carry_out(action)

    def _put(self, action: JournalPut, rest: list[Action | StepAction], dead: set[Key]) -> None:
        try:
            self.journal.put(action.record)
        except OSError as error:
            must = action.key not in self.journal or any(
                isinstance(later, SpawnStep) and later.key == action.key for later in rest
            )
            text = f"could not write the journal: {error.strerror or error}"
            self.log.error(f"{action.record.title}: {text}")
            if must:
                dead.add(action.key)
                self._todo.append(JournalFailed(action.key, text))

    def _journal_del(self, action: JournalDel) -> None:
        try:
            self.journal.delete(action.key)
        except OSError as error:
            # It will be reported once more after a restart, and forgotten then.
            self.log.error(f"could not write the journal: {error.strerror or error}")

    def _put_identity(self, action: PutIdentity) -> None:
        try:
            self.journal.put_identity(action.identity)
        except OSError as error:
            self.log.error(f"could not write the journal: {error.strerror or error}")

    def _run_hook(self, action: RunHook) -> None:
        config, record = self.config, action.record
        if action.which == "unkillable":
            if config.unkillable_step_program:
                self._run_unkillable(action)
            return
        patterns = config.prolog if action.which == "prolog" else config.epilog
        env = self.grants.hook_environment(action.key, record.launch, action.which)
        if action.which == "epilog" and record.wstatus >= 0:
            # Known where the script ran.
            env["SLURM_JOB_EXIT_CODE"] = str(record.wstatus)
            env["SLURM_JOB_EXIT_CODE2"] = f"{record.wstatus >> 8 & 0xFF}:{record.wstatus & 0x7F}"
        timeout = config.prolog_epilog_timeout
        commands = [Command([path], env, timeout) for path in scripts(patterns)]
        spec = record.launch.job.spec
        if (
            action.which == "prolog"
            and record.launch.batch
            and (spec.get_user_env or wants_login(spec.export))
        ):
            entry = user_entry(record.launch.job.uid)
            if entry is not None:
                login = self.launcher.login_file(action.key)
                commands.append(login_command(entry.pw_name, login))
        self._hook_over(self.hooks.start(action.key, action.which, commands, now_ms()))

    def _hook_ended(self, fd: int) -> None:
        self._hook_over(self.hooks.ended(fd, now_ms()))

    def _run_unkillable(self, action: RunHook) -> None:
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_JOB_ID": str(action.key.job_id),
            "SLURM_STEP_ID": str(action.step & 0xFFFFFFFF),
        }
        command = Command([self.config.unkillable_step_program], env)
        self._hook_over(self.hooks.start(action.key, "unkillable", [command], now_ms()))

    def _hook_over(self, done: HookDone | None) -> None:
        if done is None:
            return
        if done.which == "health":
            self.checks.done(done.error, now_ms())
        elif done.which == "unkillable":
            if done.error:
                self.log.error(done.error)
        else:
            self._todo.append(done)

    def _clean_up(self, action: CleanUp) -> None:
        self.notices.forget(action.key)
        self.scripts.clean_up(action)
        self.grants.release(action.key, action.record.launch)
        self.launcher.remove(action.key)

    def _log_action(self, action: Log) -> None:
        getattr(self.log, action.level)(action.text)

    def _register(self, action: SendRegister) -> None:
        self._want_register = True
        self._send_after = 0

    def _report(self, action: SendReport) -> None:
        self._want_report = True

    def _remove_orphan(self, path: Path) -> None:
        """A directory that no attempt owns: of one that never came into the journal, or that is
        forgotten already. It holds no living supervisor, or it is left alone."""
        from slurmd_compat.stepd import read_status

        status = read_status(path)
        if status is not None and not status.released and is_alive(status.stepd_pid):
            self.log.error(f"{path} belongs to no known attempt, but its supervisor lives")
            return
        remove_later(path, self.launcher.spool)


_CARRY_OUT: dict[type, Callable[[Daemon, Any], None]] = {
    JournalDel: Daemon._journal_del,
    PutIdentity: Daemon._put_identity,
    RunHook: Daemon._run_hook,
    SpawnStep: lambda daemon, action: daemon.notices.before(action, daemon.scripts.spawn),
    AdoptStep: lambda daemon, action: daemon.notices.before(action, daemon.scripts.adopt),
    SpawnShare: lambda daemon, action: daemon.notices.beside(action, daemon.steps.carry_out),
    AdoptShare: lambda daemon, action: daemon.notices.beside(action, daemon.steps.carry_out),
    WriteNotice: lambda daemon, action: daemon.notices.write(action),
    DropNotice: lambda daemon, action: daemon.notices.drop(action),
    KillStep: lambda daemon, action: daemon.scripts.kill(action),
    SignalStep: lambda daemon, action: daemon.scripts.signal(action),
    NotifyStep: lambda daemon, action: daemon.scripts.notify(action),
    SetStepLimit: lambda daemon, action: daemon.scripts.set_limit(action),
    CleanUp: Daemon._clean_up,
    SendRegister: Daemon._register,
    SendReport: Daemon._report,
    Log: Daemon._log_action,
}


def _readable(sock: zmq.Socket[bytes]) -> bool:
    return bool(int(sock.get(zmq.EVENTS)) & zmq.POLLIN)


def _nothing(fd: int) -> None:
    """The loop asks ZeroMQ itself in every turn."""
