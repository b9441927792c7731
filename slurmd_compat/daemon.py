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
from gsched.wire.messages import (
    BadMessage,
    ConfigFiles,
    FetchConfig,
    Reread,
    ToNode,
    decode,
    encode,
)
from gsched.wire.sockets import dial_controller
from slurmd_compat.agent import (
    Absent,
    Action,
    AdoptStep,
    Agent,
    CleanUp,
    Ended,
    Failed,
    HookDone,
    Input,
    JournalDel,
    JournalFailed,
    JournalPut,
    Key,
    KillStep,
    Linked,
    Log,
    Lost,
    NotifyStep,
    PutIdentity,
    Record,
    Released,
    RunHook,
    SendRegister,
    SendReport,
    SetStepLimit,
    SignalStep,
    SpawnStep,
    Started,
    Tick,
    WriteJob,
)
from slurmd_compat.configless import NEEDS, renew
from slurmd_compat.grants import Grants
from slurmd_compat.hooks import Command, Hooks, login_command, scripts
from slurmd_compat.inventory import HealthWatch, Inventory, boot_id, cpu_load, memory_mb
from slurmd_compat.journal import Journal
from slurmd_compat.launcher import (
    Launcher,
    LaunchError,
    Step,
    kill_strays,
    kill_word,
    user_entry,
)
from slurmd_compat.leftovers import end_unknown

#: ms for which an end waits for the release that usually follows at once: one report for both
LINGER_MS = 10
#: ms between tries to send where there is no link: the first, and the most
RESEND_MS = 200
RESEND_MAX_MS = 5000
#: ms between looks at a supervisor that has begun but does not answer yet, and how often
ADOPT_MS = 50
ADOPT_TRIES = 100
#: ms within which the news of a link is older than a message that went over it
LINK_NEWS_MS = 200
#: ms between tries to get the controller's files
FETCH_MS = 5000
#: messages taken in one turn
BATCH = 64
#: ms for which load and free memory are good
LOAD_MS = 5000


def now_ms() -> int:
    """Monotonic ms of this boot."""
    return time.monotonic_ns() // 1_000_000


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
            prolog=bool(config.prolog),
            epilog=bool(config.epilog),
        )
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self.hooks = Hooks(lambda fd: self.watch(fd, self._hook_ended), self.unwatch)
        self._steps: dict[Key, Step] = {}
        #: key -> (when to look again, looks left)
        self._waiting: dict[Key, tuple[int, int]] = {}
        #: key -> when a kill that has not worked is worth a word
        self._kill_at: dict[Key, int] = {}
        self._todo: deque[Input] = deque()
        #: supervisors of ours whose exit status nobody has read yet
        self._zombies: list[int] = list(children)
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

    def watch(self, fd: int, handler: Callable[[int], None]) -> None:
        """Calls `handler(fd)` in the loop when there is something to read."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

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
        self.grants.sweep(record.key for record in records)
        self._perform(self.agent.restore(self.journal.identity, records, now_ms()))
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
        return [*self._zombies, *(step.pid for step in self._steps.values() if step.pid)]

    def close(self) -> None:
        """Lets go of everything; supervisors and jobs stay."""
        self.health.stop()
        for step in self._steps.values():
            step.sock.close()
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
        for mark in (self.hooks.deadline(), *(when for when, _ in self._waiting.values())):
            if mark is not None:
                at = min(at, mark)
        if self._want_report or self._want_register:
            at = min(at, max(self._hold_until, self._send_after))
        for mark in self._kill_at.values():
            at = min(at, mark)
        if self._fetch_at:
            at = min(at, self._fetch_at)
        return max(0, at - now)

    def _on_time(self, now: int) -> None:
        if self._fetch_at and now >= self._fetch_at:
            self._fetch_at = now + FETCH_MS
            with contextlib.suppress(zmq.ZMQError):
                self._dealer.send(encode(FetchConfig(self.node)), zmq.NOBLOCK)
        if self._zombies:
            self._reap()
        self.grants.on_time()
        if now >= self.agent.wake_at():
            self._todo.append(Tick())
        deadline = self.hooks.deadline()
        if deadline is not None and now >= deadline:
            self.hooks.on_time(now)
        for key, (when, left) in list(self._waiting.items()):
            if now >= when:
                del self._waiting[key]
                self._adopt(key, left - 1)
        for key, when in list(self._kill_at.items()):
            if now >= when:
                del self._kill_at[key]
                self.log.error(
                    f"job {key.job_id}: processes are left "
                    f"{self.config.unkillable_step_timeout} s after SIGKILL"
                )

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
            self._todo.append(message)
            self._drain()

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

    def _perform(self, actions: list[Action]) -> None:
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
                _CARRY_OUT[type(action)](self, action)

    def _put(self, action: JournalPut, rest: list[Action], dead: set[Key]) -> None:
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
        patterns = config.prolog if action.which == "prolog" else config.epilog
        env = self.grants.hook_environment(action.key, record.launch, action.which)
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
        done = self.hooks.start(action.key, action.which, commands, now_ms())
        if done is not None:
            self._todo.append(done)

    def _hook_ended(self, fd: int) -> None:
        done: HookDone | None = self.hooks.ended(fd, now_ms())
        if done is not None:
            self._todo.append(done)

    def _spawn(self, action: SpawnStep) -> None:
        try:
            step = self.launcher.spawn(action.record)
        except LaunchError as error:
            self._todo.append(Failed(action.key, str(error)))
            return
        self._follow(step)

    def _adopt_step(self, action: AdoptStep) -> None:
        self.grants.restore(action.key, action.record.launch)
        self._adopt(action.key, ADOPT_TRIES)

    def _kill_step(self, action: KillStep) -> None:
        self._say(action.key, f"kill {kill_word(action.cause)}")
        grace = self.config.kill_wait + self.config.unkillable_step_timeout
        self._kill_at.setdefault(action.key, now_ms() + 1000 * grace)

    def _signal_step(self, action: SignalStep) -> None:
        if action.target == "steps":
            return  # what the script started by itself is no step
        target = "batch" if action.target == "batch" else "all"
        self._say(action.key, f"signal {action.signum} {target}")

    def _notify_step(self, action: NotifyStep) -> None:
        self._say(action.key, f"notify {action.text}")

    def _set_limit(self, action: SetStepLimit) -> None:
        self._say(action.key, f"limit {action.limit_s}")

    def _clean_up(self, action: CleanUp) -> None:
        step = self._steps.pop(action.key, None)
        if step is not None:
            self._drop(step)
        self._waiting.pop(action.key, None)
        self._kill_at.pop(action.key, None)
        self.grants.release(action.key, action.record.launch)
        self.launcher.remove(action.key)

    def _log_action(self, action: Log) -> None:
        getattr(self.log, action.level)(action.text)

    def _register(self, action: SendRegister) -> None:
        self._want_register = True
        self._send_after = 0

    def _report(self, action: SendReport) -> None:
        self._want_report = True

    # -- supervisors

    def _say(self, key: Key, command: str) -> None:
        step = self._steps.get(key)
        if step is not None:
            # A supervisor that is gone is noticed by the end of its link.
            with contextlib.suppress(OSError):
                step.sock.send(command.encode() + b"\n")

    def _follow(self, step: Step) -> None:
        self._steps[step.key] = step
        self.watch(step.sock.fileno(), lambda _: self._read(step))

    def _drop(self, step: Step) -> None:
        self.unwatch(step.sock.fileno())
        step.sock.close()
        if step.pid:
            self._zombies.append(step.pid)

    def _reap(self) -> None:
        """Takes note of supervisors of ours that have ended, whenever they do."""
        left = []
        for pid in self._zombies:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    left.append(pid)
        self._zombies = left

    def _read(self, step: Step) -> None:
        try:
            data = step.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone(step)
            return
        *lines, step.buffer = (step.buffer + data).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace")
            if not step.status.feed(line) and line.startswith("error"):
                self.log.error(f"job {step.key.job_id}: supervisor: {line[6:]}")
        self._tell(step)

    def _tell(self, step: Step) -> None:
        """Turns what is new in a supervisor's record into inputs."""
        status, key = step.status, step.key
        if status.pid and not step.told_started:
            step.told_started = True
            self._todo.append(Started(key))
        setup = status.failed[1] if status.failed and status.failed[1].startswith("setup") else ""
        if status.wstatus is not None and not step.told_ended and (not setup or status.released):
            step.told_ended = True
            if setup:
                self._todo.append(Failed(key, setup.partition(": ")[2]))
            else:
                cause = "" if status.cause == "none" else status.cause
                if not cause and self.grants.out_of_memory(key):
                    cause = "oom"
                self._todo.append(
                    Ended(
                        key,
                        status.wstatus,
                        cause,
                        status.elapsed_ms,
                        status.user_us // 1000,
                        status.system_us // 1000,
                        status.max_rss_kb,
                    )
                )
                self._hold_until = now_ms() + LINGER_MS
        if status.released:
            self._hold_until = 0
            self._todo.append(Released(key))

    def _gone(self, step: Step) -> None:
        """The link ended without `released`: another supervisor had begun, or this one died."""
        self._steps.pop(step.key, None)
        self._drop(step)
        if step.pid and self.launcher.left(step.key) is None:
            self._todo.append(Failed(step.key, "the supervisor could not be started"))
        else:
            self._adopt(step.key, ADOPT_TRIES)

    def _adopt(self, key: Key, tries: int) -> None:
        """Finds the supervisor of an attempt, or what it left."""
        record = next((r for r in self.agent.held() if r.key == key), None)
        if record is None:
            return
        step = self.launcher.adopt(key)
        if step is not None:
            self._follow(step)
            if record.launch.limit_s:
                self._say(key, f"limit {record.launch.limit_s}")
            if record.kill:
                self._kill_step(KillStep(key, record.kill))
            return
        left = self.launcher.left(key)
        if left is None:
            self._todo.append(Absent(key))
            return
        if not left.released and tries > 0 and _is_alive(left.stepd_pid):
            self._waiting[key] = (now_ms() + ADOPT_MS, tries)
            return
        dead = Step(key, _NO_SOCKET)
        dead.status = left
        self._tell(dead)
        if not left.released:
            self._lost(record)

    def _lost(self, record: Record) -> None:
        killed = self.grants.kill(record.key, record.launch) + kill_strays(
            record.job_id, self.node, self.config.path
        )
        self.log.error(
            f"{record.title}: its supervisor is gone"
            + (f"; {killed} processes were killed" if killed else "")
        )
        self._todo.append(Lost(record.key))

    def _remove_orphan(self, path: Path) -> None:
        """A directory that no attempt owns: of one that never came into the journal, or that is
        forgotten already. It holds no living supervisor, or it is left alone."""
        from slurmd_compat.stepd import read_status

        status = read_status(path)
        if status is not None and not status.released and _is_alive(status.stepd_pid):
            self.log.error(f"{path} belongs to no known attempt, but its supervisor lives")
            return
        import shutil

        shutil.rmtree(path, ignore_errors=True)


_NO_SOCKET: Any = None

_CARRY_OUT: dict[type, Callable[[Daemon, Any], None]] = {
    JournalDel: Daemon._journal_del,
    PutIdentity: Daemon._put_identity,
    RunHook: Daemon._run_hook,
    SpawnStep: Daemon._spawn,
    AdoptStep: Daemon._adopt_step,
    KillStep: Daemon._kill_step,
    SignalStep: Daemon._signal_step,
    NotifyStep: Daemon._notify_step,
    SetStepLimit: Daemon._set_limit,
    CleanUp: Daemon._clean_up,
    SendRegister: Daemon._register,
    SendReport: Daemon._report,
    Log: Daemon._log_action,
}


def _readable(sock: zmq.Socket[bytes]) -> bool:
    return bool(int(sock.get(zmq.EVENTS)) & zmq.POLLIN)


def _nothing(fd: int) -> None:
    """The loop asks ZeroMQ itself in every turn."""


def _is_alive(pid: int) -> bool:
    """Whether a living supervisor has this pid (a zombie is none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name == "stepd" and rest.split()[:1] not in (["Z"], ["X"])
