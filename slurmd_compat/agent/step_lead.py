"""A step on the node that leads it: launched, gathered from all its nodes, told to its client.

The sentences and exit codes are srun's own. What the client is told goes over its control
connection (docs/design.md, section 7).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gsched.environment import repeats
from gsched.model import Job
from gsched.model.job import Usage
from gsched.model.step import COPY_STEPS, Step, StepState
from gsched.wire.steps import FollowStep, LaunchStep, StepKnown, StepShare, StopStep, TaskEnd
from slurmd_compat.agent import step_text
from slurmd_compat.agent.step_follow import Followers
from slurmd_compat.agent.step_share import Shares
from slurmd_compat.agent.step_spoken import KILL, TERM, Client, Spoken
from slurmd_compat.agent.step_words import (
    GONE,
    AttachClient,
    LeadRecord,
    PutLead,
    SendMail,
    StepAction,
    StepKey,
)

#: ms for which ends of tasks are gathered into one line; what the tasks and their supervisor have
#: said last goes other ways, and is on the client's screen by then
TEXT_MS = 20
#: ms for which they are gathered while other tasks run on
GATHER_MS = 100
#: ms between repeated words to a node that has not answered: the first, and the most
REPEAT_MS = 1_000
REPEAT_MAX_MS = 10_000
#: ms after the order to end it at which a node without a word is given up: where a node is known
#: to have failed, and beyond KillWait otherwise
SILENT_MS = 4_000
GIVE_UP_MS = 30_000


@dataclass(frozen=True)
class Rules:
    """What the cluster's configuration says of steps."""

    kill_wait: int = 30
    #: seconds; 0 without end
    wait_time: int = 0
    kill_on_bad_exit: bool = False
    #: InactiveLimit, seconds; 0 none
    inactive_limit: int = 0


@dataclass
class Place:
    """One node of a step as the leading node sees it."""

    started: set[int]
    over: bool = False
    #: it has said something of the step
    heard: bool = False
    #: since the step is to end
    heard_stop: bool = False
    error: str = ""
    repeat_at: int = -1
    wait: int = REPEAT_MS


class Lead(Spoken):
    """One step. `finished(lead, now)` is called once nothing of it is left anywhere."""

    def __init__(
        self,
        record: LeadRecord,
        node: str,
        rules: Rules,
        emit: Callable[[StepAction], None],
        shares: Shares,
        components: list[Job],
        finished: Callable[[Lead, int], None],
    ) -> None:
        super().__init__(record, emit)
        self.node = node
        self.rules = rules
        self._shares = shares
        self._components = components
        self._finished = finished
        self.places = [Place(set()) for _ in record.step.nodes]
        #: places that have not answered yet, or not with their end
        self._repeats: set[int] = set()
        #: places whose end is not in the journal yet, and when it is to be
        self._unknown: set[int] = set()
        #: nodes of whose failure the client has heard
        self._lost: set[str] = set()
        self._put_at = -1
        #: node -> its places, once they are wanted
        self._by_node: dict[str, list[int]] = {}
        self._followers = Followers(self._follow)
        self.ends: dict[int, TaskEnd] = {}
        #: ends that the client has not been told of, by node
        self._pending: list[tuple[int, TaskEnd]] = []
        self._flush_at = -1
        self._first_end = -1
        #: "Job step aborted" was said
        self._aborted = False
        self._stop_at = -1
        #: the controller has the end in its store
        self.kept = not self.counted

    # -- what it is

    @property
    def user(self) -> int:
        return self._components[0].uid

    @property
    def key(self) -> StepKey:
        return self.record.key

    @property
    def counted(self) -> bool:
        """Whether it is one of the job's steps, and not a copy of a file, which speaks for itself
        and which the controller never hears of."""
        return self.key.step > COPY_STEPS

    @property
    def step(self) -> Step:
        return self.record.step

    def _wait_s(self) -> int:
        wait = self.record.spec.wait
        return self.rules.wait_time if wait is None else wait

    def _kill_on_bad_exit(self) -> bool:
        asked = self.record.spec.kill_on_bad_exit
        return self.rules.kill_on_bad_exit if asked is None else asked

    # -- what is known of its end

    @property
    def told(self) -> bool:
        """Every client that could be told of the end was, and has gone."""
        return not any(client.alive for client in self.clients)

    def tidy(self) -> None:
        """A record of which only the number counts takes the place of the whole one."""
        record = self.record
        if self.over and self.kept and self.told and not record.told:
            record.told = True
            small = copy.copy(record)
            small.environment = b""
            small.ends = []
            small.task_cpus = []
            small.task_gpus = []
            small.spec = type(record.spec)(record.spec.job_id)
            self._emit(PutLead(record.key, small))

    def mark_kept(self, ended: bool) -> None:
        """The controller has it in its store as it was told."""
        if self.over and ended:
            self.kept = True
            self.tidy()

    # -- launching

    def _say_launch(self) -> None:
        """What srun -v says of its nodes."""
        step = self.step
        names = ",".join(f"`{share.node}'" for share in step.nodes)
        counts = repeats(share.alloc.cpus for share in step.nodes)
        counts = ",".join(c if "(" in c else f"{c}(x1)" for c in counts.split(","))
        self.say(f"jobid {step.job_id}: nodes({len(step.nodes)}):{names}, cpu counts: {counts}")
        self.say(f"CpuBindType={self.record.spec.cpu_bind or '(null type)'}")
        for share in step.nodes:
            tasks = step_text.ranges(share.tasks)
            self.say(
                f"launching {self.name} on host {share.node}, {len(share.tasks)} tasks: {tasks}"
            )

    def launch(self, now: int) -> None:
        """To all its nodes; its record (`put`) comes before."""
        if self.record.spec.verbose and self.counted:
            self._say_launch()
        for index, share in enumerate(self.step.nodes):
            if share.node == self.node:
                share_key = self.share_key(index)
                self._shares.launch(share_key, self.launch_word(index), "", self.key, now)
            else:
                self._send_launch(index, now)

    def launch_word(self, index: int) -> LaunchStep:
        record = self.record
        return LaunchStep(
            record.step,
            record.spec.of_part(record.step.nodes[index].part),
            index,
            record.callback,
            record.environment,
            record.task_cpus[index] if record.task_cpus else [],
            record.task_gpus[index] if record.task_gpus else [],
            self._components if len(self._components) > 1 else [],
        )

    def share_key(self, index: int) -> StepKey:
        """Under which the node of that place holds its share: its own component's."""
        offset = self.step.nodes[index].het_offset
        if not offset or offset >= len(self._components):
            return self.key
        job = self._components[offset]
        return StepKey(job.id, job.attempt, self.key.cluster, self.key.step)

    def _send_launch(self, index: int, now: int) -> None:
        self._mail(index, self.launch_word(index), now)

    def _mail(self, index: int, mail: LaunchStep | StopStep, now: int) -> None:
        place = self.places[index]
        self._repeats.add(index)
        place.repeat_at = now + place.wait
        place.wait = min(2 * place.wait, REPEAT_MAX_MS)
        node = self.step.nodes[index].node
        self._emit(SendMail(self.key.job_id, self.key.attempt, node, mail))

    def put(self) -> None:
        """Its record as it is now, to the journal; then nodes may forget what is in it."""
        self._put_at = -1
        self._emit(PutLead(self.key, copy.copy(self.record)))
        unknown, self._unknown = self._unknown, set()
        for index in sorted(unknown):
            self._confirm(index)

    # -- words of its nodes

    def heard(self, index: int, word: StepShare, now: int) -> None:
        """Another node says all that it knows of its share."""
        if index >= len(self.places):
            return
        place = self.places[index]
        place.heard = True
        self._followers.heard(index, word.followed)
        if self.stopping:
            place.heard_stop = True
        elif place.repeat_at >= 0:
            place.repeat_at = -1
            self._repeats.discard(index)
        if not place.over and not self.over:
            for task in word.started:
                self.task_started(index, task, now)
            for end in word.ended:
                self.task_ended(index, end, now)
            if word.released:
                self.share_over(index, word.error, now)
        if word.released and index not in self._unknown:
            self._confirm(index)

    def _confirm(self, index: int) -> None:
        """Tells a node that the end of its share is in the journal: of all its shares, where
        components of a heterogeneous job meet on it."""
        node = self.step.nodes[index].node
        if not self._by_node:
            for i, part in enumerate(self.step.nodes):
                self._by_node.setdefault(part.node, []).append(i)
        if all(self.places[i].over and i not in self._unknown for i in self._by_node[node]):
            known = StepKnown(self.step.id)
            self._emit(SendMail(self.key.job_id, self.key.attempt, node, known))

    def task_started(self, index: int, task: int, now: int) -> None:
        started = self.places[index].started
        if task in started:
            return
        started.add(task)
        share = self.step.nodes[index]
        if self.record.spec.verbose and len(started) == len(share.tasks):
            self.say(f"Node {share.node}, {len(started)} tasks started")

    def task_ended(self, index: int, end: TaskEnd, now: int) -> None:
        if end.task in self.ends or self.over:
            return
        self.ends[end.task] = end
        if end.task not in self.record.said:
            self._pending.append((index, end))
            if self._flush_at < 0:
                self._flush_at = now + GATHER_MS
            if self._all_ended():
                self._flush_at = min(self._flush_at, now + TEXT_MS)
        if self._first_end < 0:
            self._first_end = now

    def _unsaid(self) -> bool:
        """Whether there is something to say of ends."""
        return self.record.spec.verbose > 0 or any(end.wstatus for _, end in self._pending)

    def flush(self, now: int) -> None:
        """Says how tasks have ended."""
        unsaid = self._unsaid()
        pending, self._pending, self._flush_at = self._pending, [], -1
        if not unsaid:
            return
        bad = [end.task for _, end in pending if end.wstatus]
        if not self._mute and self.counted:
            by_node: dict[int, list[TaskEnd]] = {}
            for index, end in pending:
                by_node.setdefault(index, []).append(end)
            for index, ends in by_node.items():
                node = self.step.nodes[index].node
                named = self.name if self.record.spec.verbose else ""
                for line in step_text.task_ends(node, ends, named):
                    self.say(line)
        if not bad:
            return
        self.record.said = [*self.record.said, *bad]
        if not self._all_ended():
            self.put()
        if self._kill_on_bad_exit() and not self.stopping and not self._all_ended():
            self.say(f"Terminating {self.name}", info=True)
            self.stop("task_failure", 0, now)

    def _all_ended(self) -> bool:
        return len(self.ends) >= self.step.ntasks

    def share_over(self, index: int, error: str, now: int) -> None:
        """Nothing of the step is left on that node."""
        place = self.places[index]
        if place.over or self.over:
            return
        place.over = True
        place.error = error
        place.repeat_at = -1
        self._repeats.discard(index)
        mine = [self.ends[task] for task in self.step.nodes[index].tasks if task in self.ends]
        self.record.over.append(index)
        self.record.ends += mine
        if not self._own(index):
            # Many nodes end at once: one record for all of them.
            self._unknown.add(index)
            if self._put_at < 0:
                self._put_at = now + GATHER_MS
        if error and not self.stopping:
            if error == step_text.NO_IO:
                for task in self.step.nodes[index].tasks:
                    self.say(f"error: task {task} launch failed: {error}")
            elif not mine and not place.started:
                node = self.step.nodes[index].node
                self.say(f"error: Task launch for {self.name} failed on node {node}: {error}")
                self.say(f"error: Application launch failed: {error}")
            else:
                self.node_lost(self.step.nodes[index].node)
        if self._all_over():
            if self._pending and self._unsaid() and not self._mute:
                # The end follows the words about it (tick).
                return
            self._end(now)
        elif error and not self.stopping and not self.record.spec.no_kill:
            self.abort("node", KILL, now)

    # -- the end

    def abort(self, cause: str, signum: int, now: int) -> None:
        """Ends it and says so, as srun does when it is told from outside."""
        if self.over:
            return
        self.say_abort()
        self.stop(cause, signum, now)

    def say_abort(self) -> None:
        if not self._aborted:
            self._aborted = True
            wait = self.rules.kill_wait + 2
            self.say(
                f"Job step aborted: Waiting up to {wait} seconds for job step to finish.",
                info=True,
            )

    def stop(self, cause: str, signum: int, now: int) -> None:
        """Ends its tasks: `signum` KILL at once, else TERM, KillWait, KILL. Repeated until they
        have."""
        record = self.record
        if self.over or (record.stop and (record.stop_signal == KILL or signum != KILL)):
            return
        if not record.stop:
            record.stop = cause
            self._stop_at = now
        record.stop_signal = signum
        self.put()
        for index, place in enumerate(self.places):
            if place.over:
                continue
            place.heard_stop = False
            place.wait = REPEAT_MS
            if self.step.nodes[index].node == self.node:
                self._shares.stop(self.share_key(index), signum, record.stop, now)
            else:
                self._mail(index, StopStep(self.step.id, signum, record.stop), now)

    def signal(self, signum: int, now: int) -> None:
        """A plain signal to all its tasks."""
        for index, place in enumerate(self.places):
            if place.over:
                continue
            if self.step.nodes[index].node == self.node:
                self._shares.stop(self.share_key(index), signum, "", now)
            else:
                word = StopStep(self.step.id, signum)
                node = self.step.nodes[index].node
                self._emit(SendMail(self.key.job_id, self.key.attempt, node, word))

    def _end(self, now: int) -> None:
        record, step = self.record, self.step
        worst = 0
        for end in self.ends.values():
            worst = max(worst, end.wstatus, key=step_text.rank)
        code = step_text.exit_code(worst)
        failed = [place.error for place in self.places if place.error]
        if failed and not code:
            code = 1
            worst = 1 << 8
        step.wstatus = worst
        step.state = self._state(worst, bool(failed), now)
        self._usage()
        record.exit_code = code
        record.ended_ms = now
        record.environment = b""
        quiet = self._aborted or self._mute or not self.counted
        if worst & 0x7F in (KILL, TERM) and not quiet:
            self.say(f"Force Terminated {self.name}", info=True)
        self.put()
        # What else is to be written comes before the client hears of the end.
        self._finished(self, now)
        for client in self.clients:
            self._exit(client)
        self.tidy()

    def node_lost(self, node: str) -> None:
        """One of its nodes is gone; said once."""
        if node not in self._lost and any(place.node == node for place in self.step.nodes):
            self._lost.add(node)
            self.say(f"error: Node failure on {node}")

    def _state(self, worst: int, failed: bool, now: int) -> StepState:
        stop = self.record.stop
        if any(end.cause == "oom" for end in self.ends.values()):
            return StepState.OUT_OF_MEMORY
        if stop == "timeout":
            # The job's limit cancels its steps, as in Slurm; their own is another matter.
            return StepState.TIMEOUT if self._outran(now) else StepState.CANCELLED
        lost = self.ends or any(place.error == GONE for place in self.places)
        if stop == "node" or (failed and not stop and lost):
            return StepState.NODE_FAIL
        if stop in ("", "task_failure"):
            if not worst:
                return StepState.COMPLETED
            return StepState.CANCELLED if worst & 0x7F else StepState.FAILED
        return StepState.CANCELLED

    def _outran(self, now: int) -> bool:
        """Whether it was stopped for a limit of its own."""
        limit = 0 if self.record.of_job else self.record.spec.time_limit
        until = now if self._stop_at < 0 else self._stop_at
        return bool(limit) and until >= self.record.started_ms + 1000 * (limit or 0)

    def _usage(self) -> None:
        """What all tasks used, and who used most memory."""
        step = self.step
        ends = list(self.ends.values())
        if not ends:
            return
        most = max(ends, key=lambda end: end.max_rss_kb)
        step.usage = Usage(
            sum(end.user_ms for end in ends),
            sum(end.system_ms for end in ends),
            most.max_rss_kb,
        )
        step.max_rss_task = most.task
        step.ave_rss_kb = sum(end.max_rss_kb for end in ends) // len(ends)
        for share in step.nodes:
            if most.task in share.tasks:
                step.max_rss_node = share.node

    def say_status(self) -> None:
        started = set().union(*(place.started for place in self.places))
        for line in step_text.status(self.name, self.step.ntasks, started, self.ends):
            self.say(line, info=True)

    # -- time

    def _limit_at(self) -> int:
        limit = self.record.spec.time_limit
        return self.record.started_ms + 1000 * limit if limit and not self.stopping else -1

    def _wait_at(self) -> int:
        wait = self._wait_s()
        if not wait or self._first_end < 0 or self.stopping or self._all_ended():
            return -1
        return self._first_end + 1000 * wait

    def _give_up_at(self) -> int:
        if self._stop_at < 0:
            return -1
        grace = SILENT_MS if self.record.stop == "node" else GIVE_UP_MS
        if self.record.stop != "node":
            grace += 1000 * self.rules.kill_wait
        return self._stop_at + grace

    def wake_at(self) -> int:
        """Monotonic ms at which something is due; -1 nothing."""
        if self.over:
            return -1
        marks = [self._flush_at, self._limit_at(), self._wait_at(), self._put_at]
        marks.append(self._followers.wake_at())
        for index in self._repeats:
            marks.append(self.places[index].repeat_at)
            if not self.places[index].heard_stop:
                marks.append(self._give_up_at())
        return min((mark for mark in marks if mark >= 0), default=-1)

    def _all_over(self) -> bool:
        return len(self.record.over) >= len(self.places)

    def _own(self, index: int) -> bool:
        return self.step.nodes[index].node == self.node

    def tick(self, now: int) -> None:
        if self.over:
            return
        if 0 <= self._flush_at <= now:
            self.flush(now)
            if self._all_over():
                self._end(now)
                return
        if 0 <= self._put_at <= now:
            self.put()
        if 0 <= self._limit_at() <= now:
            self.abort("timeout", 0, now)
        if 0 <= self._wait_at() <= now:
            self.say(f"First task exited {self._wait_s()}s ago", info=True)
            self.say_status()
            self.say(f"Terminating {self.name}", info=True)
            self.abort("cancelled", KILL, now)
        self._followers.tick(now, lambda index: self.over or self.places[index].over)
        for index in list(self._repeats):
            place = self.places[index]
            if place.over or self.over:
                continue
            if 0 <= place.repeat_at <= now:
                if self.stopping:
                    record = self.record
                    word = StopStep(self.step.id, record.stop_signal, record.stop)
                    self._mail(index, word, now)
                else:
                    self._send_launch(index, now)
            if self.stopping and not place.heard_stop and 0 <= self._give_up_at() <= now:
                self.node_lost(self.step.nodes[index].node)
                self.share_over(index, "no word from the node", now)

    # -- restarts

    def restore(self, rebooted: bool, now: int) -> None:
        """After a restart of the daemon: what was over stays so, the rest is asked after."""
        record = self.record
        self.ends = {end.task: end for end in record.ends}
        for index in record.over:
            self.places[index].over = True
        if self.over:
            return
        if rebooted:
            record.stop = record.stop or "node"
        if record.stop:
            self._stop_at = now
            self._aborted = True
        for index, place in enumerate(self.places):
            if place.over:
                continue
            if self._own(index):
                if rebooted:
                    place.over = True
                    place.error = "the node was rebooted"
                    record.over = [*record.over, index]
                else:
                    self._shares.adopt_own(self.share_key(index), self.launch_word(index), self.key)
                    if record.stop:
                        self._shares.stop(
                            self.share_key(index), record.stop_signal, record.stop, now
                        )
            elif record.stop:
                self._mail(index, StopStep(self.step.id, record.stop_signal, record.stop), now)
            else:
                self._send_launch(index, now)
        if self._all_over():
            self._end(now)

    def attach(self, client: Client, task: int, stdin: bool, now: int) -> None:
        """One more client: told as the first, and connected to the nodes of what it wants."""
        wanted = [
            index
            for index, share in enumerate(self.step.nodes)
            if not self.places[index].over and (task < 0 or task in share.tasks)
        ]
        self.join(client, call=True, nodes=len(wanted))
        for index in wanted:
            callback = client.callback
            if self._own(index):
                key = self.share_key(index)
                self._emit(AttachClient(key, callback, index, task, stdin))
            else:
                word = FollowStep(self.step.id, index, callback, task, stdin)
                self._followers.ask(client, word, now)

    def _follow(self, index: int, word: FollowStep) -> None:
        node = self.step.nodes[index].node
        self._emit(SendMail(self.key.job_id, self.key.attempt, node, word))

    @property
    def weight(self) -> int:
        """About how many bytes a word of it to the controller has."""
        step = self.step
        nodes = sum(120 + 5 * len(share.tasks) for share in step.nodes)
        return 300 + len(step.submit_line) + len(step.name) + len(step.cwd) + nodes

    def report(self, now: int) -> Step:
        """What the controller is told of it; times are ages in ms."""
        return msgspec.structs.replace(
            self.step,
            start_time=max(0, now - self.record.started_ms),
            end_time=max(0, now - self.record.ended_ms) if self.over else 0,
        )
