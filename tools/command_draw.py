"""Draws command lines of users and administrators, for compare_commands.py.

The words stand in command_words.toml. There, and in what is drawn, `{name}` is the id of the job
that is called so in MIX, or was made by an earlier command.
"""

from __future__ import annotations

import random
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: the jobs that are there at the beginning: name -> options of sbatch, what it runs. They occupy
#: named nodes, so that what starts does not depend on anybody's order.
MIX: dict[str, tuple[tuple[str, ...], str]] = {
    name: (tuple(options.split()), runs)
    for name, options, runs in (
        ("run", "-w node1 --gres=gpu:2 -t 60 -n 2 --comment=note", "sleep 900"),
        ("two", "-w node[2-3] -N2 --ntasks-per-node=2 --mem=4G -t 2:00:00", "sleep 900"),
        ("whole", "-w node4 --exclusive -t 1-0 --mem=0", "sleep 900"),
        ("done", "-w node1 -t 5", "true"),
        ("failed", "-w node1 -t 5 --no-requeue", "exit 3"),
        ("waits", "-N4 --exclusive -t 30", "true"),
        ("held", "-H -t 10 -n 4 --gpus-per-task=1 -C rackA", "true"),
        ("later", "--begin=2031-01-01T00:00:00 -t 10 -p debug", "true"),
        ("after", "-d afterok:{run} -t 10 -A research", "true"),
        ("array", "-a 1-9:2%1 -H -t 10 -c 2", "true"),
    )
}
WORDS: dict[str, Any] = tomllib.loads(
    (Path(__file__).resolve().parent / "command_words.toml").read_text()
)


@dataclass(frozen=True)
class Command:
    """One command line: who gives it, and its words."""

    user: str
    words: tuple[str, ...]


class _Pen:
    """Draws one command of a kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def some(self, pool: list[str], most: int) -> list[str]:
        return self.rng.sample(pool, self.rng.randint(1, most))

    def job(self) -> str:
        return self.rng.choice(WORDS["jobs" if self.rng.random() < 0.7 else "no_jobs"])

    def filled(self, text: str) -> str:
        lists = {
            "any job": self.job,
            "node": lambda: self.rng.choice(WORDS["nodes"]),
            "partition": lambda: self.rng.choice(WORDS["partitions"]),
            "user": lambda: self.rng.choice(WORDS["users"]),
        }
        return re.sub(r"\{(any job|node|partition|user)\}", lambda one: lists[one[1]](), text)

    def line(self, kind: str) -> list[str]:
        """One of the lines of a list, as words."""
        return [self.filled(word) for word in shlex.split(self.rng.choice(WORDS[kind]))]

    def options(self, kind: str, most: int, but: tuple[str, ...] = ()) -> list[str]:
        table: dict[str, list[str]] = WORDS[kind]
        words = []
        for name in self.some([one for one in table if one not in but], most):
            if not table[name]:
                words.append(name)
                continue
            value = self.filled(self.rng.choice(table[name]))
            words += [f"{name}={value}"] if name.startswith("--") else [name, value]
        return words

    def format(self, kind: str) -> list[str]:
        """-o with letters, -O with fields, or none."""
        which = self.rng.random()
        if which < 0.35:
            size = ("", "8", ".10", ".3", "20")
            letters = self.some(WORDS[f"{kind}_letters"], 4)
            return ["-o", "|".join(f"%{self.rng.choice(size)}{one}" for one in letters)]
        if which < 0.75:
            size = ("", "", ":10", ":.12", ":|", ":5 ")
            fields = self.some(WORDS[f"{kind}_fields"], 4)
            return ["-O", ",".join(one + self.rng.choice(size) for one in fields)]
        return []

    def squeue(self) -> list[str]:
        return ["squeue", *self.options("squeue", 3), *self.format("squeue")]

    def sinfo(self) -> list[str]:
        return ["sinfo", *self.options("sinfo", 3), *self.format("sinfo")]

    def sacct(self) -> list[str]:
        words = self.options("sacct", 3)
        if self.rng.random() < 0.6:
            size = ("", "", "%10", "%-8", "%x")
            fields = self.some(WORDS["sacct_fields"], 5)
            words += ["-o", ",".join(one + self.rng.choice(size) for one in fields)]
        return ["sacct", *words]

    def show(self) -> list[str]:
        return [
            "scontrol",
            *self.rng.choice(([], ["-a"], ["-o"], ["-Q"])),
            "show",
            *self.line("show"),
        ]

    def update(self) -> list[str]:
        kind = self.rng.random()
        start = ["scontrol", "update"]
        if kind < 0.6:
            name = self.rng.choice(("JobId", "jobid", "job", "JobId", "JobId", "JobName"))
            keys: dict[str, list[str]] = WORDS["update"]
            said = [f"{key}={self.rng.choice(keys[key])}" for key in self.some(list(keys), 2)]
            return [*start, f"{name}={self.job()}", *said]
        if kind < 0.8:
            return [*start, self.filled("NodeName={node}"), *self.line("node_updates")]
        if kind < 0.96:
            return [
                *start,
                self.filled("PartitionName={partition}"),
                *self.line("partition_updates"),
            ]
        return [*start, *self.line("other_updates")]

    def act(self) -> list[str]:
        words = self.line("verbs")
        if self.rng.random() < 0.08:
            words = words[:1]
        return ["scontrol", *words, *(["more"] if self.rng.random() < 0.08 else [])]

    def scancel(self) -> list[str]:
        # Nothing that takes all jobs away.
        ids = [self.rng.choice(WORDS["no_jobs_to_cancel"]) for _ in range(self.rng.randint(0, 2))]
        words = self.options("scancel", 2) if self.rng.random() < 0.8 else []
        return ["scancel", *words, *(ids or ["99999999"] if "--me" in words else ids)]

    def sbatch(self) -> list[str]:
        how = "--test-only" if self.rng.random() < 0.15 else "-H"
        return ["sbatch", how, *self.options("sbatch", 3), "--wrap", "true"]

    def srun(self) -> list[str]:
        of_sbatch = ("-a", "--requeue", "--no-requeue", "--wait-all-nodes")
        words = self.options("sbatch", 2, of_sbatch)
        if self.rng.random() < 0.5:
            return ["srun", *words, "--test-only", "true"]
        return ["salloc", *words, "--immediate=1", "-N4", "--exclusive", "true"]

    def rest(self) -> list[str]:
        return self.line("rest")


def draw(seed: int, count: int) -> list[Command]:
    """The commands of one seed, in order."""
    rng = random.Random(seed)
    pen = _Pen(rng)
    kinds: dict[Callable[[], list[str]], int] = {
        pen.squeue: 20,
        pen.sinfo: 12,
        pen.sacct: 14,
        pen.show: 10,
        pen.update: 20,
        pen.act: 14,
        pen.scancel: 8,
        pen.sbatch: 22,
        pen.srun: 8,
        pen.rest: 8,
    }
    found = []
    for _ in range(count):
        (kind,) = rng.choices(list(kinds), weights=list(kinds.values()))
        user = "nobody" if rng.random() < 0.12 else "root"
        found.append(Command(user, tuple(kind())))
    return found
