"""What running steps use now (sstat): each node looks at its own tasks, the leading one sums up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gsched.model.step import BATCH_STEP
from gsched.wire.codec import encode
from gsched.wire.nodes import StepMail
from gsched.wire.steps import (
    FromAgent,
    NotTaken,
    PassOn,
    StatSteps,
    StepUse,
    Usages,
)
from slurmd_compat.agent import Record
from slurmd_compat.agent.step_words import Source
from slurmd_compat.usage import Processes, Use

#: ms for which the answers of other nodes are waited for, and the processes seen are good
PATIENCE_MS = 3_000
FRESH_MS = 500
#: numbers of questions to other nodes begin here: the agent counts its own from 1
FIRST_TOKEN = 1 << 40
#: most questions that wait for other nodes
MOST_ASKED = 256


@dataclass(frozen=True)
class Looked:
    """A step's share here."""

    step: int
    name: str
    ntasks: int
    #: nodes of the whole step
    nodes: list[str]
    #: task -> pid
    pids: dict[int, int]


@dataclass
class _Asked:
    source: Source
    until: int
    uses: list[StepUse]
    missing: set[str] = field(default_factory=set)


class StepStats:
    """`look(record)`: the shares here; `leads(record)`: whether this node leads the job, and
    `others(record)` its further nodes that run steps."""

    def __init__(
        self,
        node: str,
        find: Callable[[int], Record | None],
        look: Callable[[Record], Iterable[Looked]],
        others: Callable[[Record], set[str]],
        answer: Callable[[Source, FromAgent], None],
        post: Callable[[Any], None],
        clock: Callable[[], int],
    ) -> None:
        self._node = node
        self._find = find
        self._look = look
        self._others = others
        self._answer = answer
        self._post = post
        self._clock = clock
        self._tokens = itertools.count(FIRST_TOKEN)
        self._asked: dict[int, _Asked] = {}
        self._seen: tuple[int, Processes] | None = None

    def ask(self, source: Source, uid: int, gid: int, question: StatSteps) -> None:
        """A client's question, or one that a node of the job has passed on."""
        record = self._find(question.job_id)
        if record is None:
            text = f"error: couldn't get steps for JobId={question.job_id}"
            self._answer(source, NotTaken(text, "ESLURM_INVALID_JOB_ID", unknown=True))
            return
        if uid not in (0, record.launch.job.uid):
            text = f"error: couldn't get steps for JobId={question.job_id}"
            self._answer(source, NotTaken(text, "ESLURM_ACCESS_DENIED"))
            return
        leads = record.launch.batch
        if not leads and source.kind != "node":
            self._pass_on(source, record, {""}, uid, gid, question, [])
            return
        uses = self._uses(record, question)
        others = self._others(record) if leads else set()
        if source.kind == "node":
            others.discard(source.node)
        if others:
            self._pass_on(source, record, others, uid, gid, question, uses)
        else:
            self._answer(source, Usages(uses))

    def _pass_on(
        self,
        source: Source,
        record: Record,
        nodes: set[str],
        uid: int,
        gid: int,
        question: StatSteps,
        uses: list[StepUse],
    ) -> None:
        if len(self._asked) >= MOST_ASKED:
            self._answer(source, Usages(uses))
            return
        token = next(self._tokens)
        self._asked[token] = _Asked(source, self._clock() + PATIENCE_MS, uses, set(nodes))
        job = record.launch.job
        lead = next((part for part in record.launch.components if not part.het_offset), job)
        word = encode(PassOn(token, uid, gid, encode(question)))
        for node in nodes:
            self._post(StepMail(lead.id, lead.attempt, node, word))

    def passed_back(self, node: str, token: int, answer: FromAgent) -> bool:
        """The answer of another node; False: not to a question of ours."""
        asked = self._asked.get(token)
        if asked is None:
            return token >= FIRST_TOKEN
        if "" in asked.missing:
            del self._asked[token]
            self._answer(asked.source, answer)
            return True
        if node in asked.missing:
            asked.missing.discard(node)
            if isinstance(answer, Usages):
                asked.uses = summed([*asked.uses, *answer.steps])
        if not asked.missing:
            del self._asked[token]
            self._answer(asked.source, Usages(asked.uses))
        return True

    def deadline(self) -> int | None:
        return min((asked.until for asked in self._asked.values()), default=None)

    def on_time(self, now: int) -> None:
        """Who has not answered is left out."""
        for token, asked in list(self._asked.items()):
            if now >= asked.until:
                del self._asked[token]
                self._answer(asked.source, Usages(asked.uses))

    def processes(self) -> Processes:
        """Those of this host, as they were FRESH_MS ago at most: any user may ask, and a look at
        all of them takes long."""
        now = self._clock()
        if self._seen is None or now - self._seen[0] > FRESH_MS:
            self._seen = (now, Processes())
        return self._seen[1]

    def _uses(self, record: Record, question: StatSteps) -> list[StepUse]:
        seen = self.processes()
        found = []
        for looked in self._look(record):
            if question.steps and looked.step not in question.steps:
                continue
            tasks = {task: seen.use(pid) for task, pid in looked.pids.items()}
            found.append(use_of(looked, tasks, self._node, pids=question.pids))
        return sorted(found, key=lambda use: (use.step != BATCH_STEP, use.step))


def use_of(looked: Looked, tasks: dict[int, Use], node: str, *, pids: bool) -> StepUse:
    """One node's tasks of a step together."""
    use = StepUse(looked.step, looked.name, len(tasks), looked.nodes)
    if not tasks:
        return use
    count = len(tasks)
    most = max(tasks, key=lambda task: (tasks[task].rss_kb, -task))
    largest = max(tasks, key=lambda task: (tasks[task].vm_kb, -task))
    least = min(tasks, key=lambda task: (tasks[task].cpu_ms, task))
    all_of = list(tasks.values())
    use.max_rss_kb, use.max_rss_node, use.max_rss_task = tasks[most].rss_kb, node, most
    use.max_vm_kb, use.max_vm_node, use.max_vm_task = tasks[largest].vm_kb, node, largest
    use.min_cpu_ms, use.min_cpu_node, use.min_cpu_task = tasks[least].cpu_ms, node, least
    use.ave_rss_kb = sum(one.rss_kb for one in all_of) // count
    use.ave_vm_kb = sum(one.vm_kb for one in all_of) // count
    use.ave_cpu_ms = sum(one.cpu_ms for one in all_of) // count
    use.pages_max = max(one.pages for one in all_of)
    use.pages_ave = sum(one.pages for one in all_of) // count
    use.read_max = max(one.read for one in all_of)
    use.read_ave = sum(one.read for one in all_of) // count
    use.write_max = max(one.write for one in all_of)
    use.write_ave = sum(one.write for one in all_of) // count
    if pids:
        use.pids = [pid for one in all_of for pid in one.pids]
    return use


#: fields with the most, whose node and task come along
_MOST = ("max_rss", "max_vm")
_MAXIMA = ("pages_max", "read_max", "write_max")
_AVERAGES = (
    *("ave_rss_kb", "ave_vm_kb", "ave_cpu_ms", "pages_ave", "read_ave"),
    "write_ave",
)


def summed(uses: Iterable[StepUse]) -> list[StepUse]:
    """Shares of the same steps on several nodes as one each."""
    found: dict[int, StepUse] = {}
    for use in uses:
        known = found.get(use.step)
        if known is None or not known.ntasks:
            found[use.step] = use
        elif use.ntasks:
            _add(known, use)
    return list(found.values())


def _add(known: StepUse, use: StepUse) -> None:
    total = known.ntasks + use.ntasks
    for name in _AVERAGES:
        value = getattr(known, name) * known.ntasks + getattr(use, name) * use.ntasks
        setattr(known, name, value // total)
    for name in _MAXIMA:
        setattr(known, name, max(getattr(known, name), getattr(use, name)))
    for name in _MOST:
        if getattr(use, f"{name}_kb") > getattr(known, f"{name}_kb"):
            for end in ("kb", "node", "task"):
                setattr(known, f"{name}_{end}", getattr(use, f"{name}_{end}"))
    if use.min_cpu_ms < known.min_cpu_ms:
        known.min_cpu_ms = use.min_cpu_ms
        known.min_cpu_node, known.min_cpu_task = use.min_cpu_node, use.min_cpu_task
    known.ntasks = total
    known.pids = [*known.pids, *use.pids]
