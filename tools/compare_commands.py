#!/usr/bin/env python3
"""Compares what gsched's commands and a real Slurm's answer to the same random command lines.

    compare_commands.py 1-20              seeds 1 to 20, one after the other
    compare_commands.py 7 --count 100     as many commands of seed 7
    compare_commands.py 7 --all           with those that are answered alike

For each seed both clusters get the same jobs (MIX in command_draw.py), then the same commands of
users and administrators in the same order: queries, changes, submissions, with values that mean
something and values that do not. Standard output, standard error and exit code are compared when
ids, times and the like have become marks.

The real Slurm is that of $PEER_DIR (default /tmp/peer-commands), made by
$GSCHED_SHARED/peer/slurm-up and brought up where it is down; gsched's cluster is a throw-away one
of the same shape. It runs as root only.

What is known to differ stands, with its reason, in tools/commands_expected.toml. Exit code 0: no
other difference; 1: there are; 2: could not compare.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import compare_policies
from command_draw import MIX, Command, draw
from compare_policies import Problem, Side, both, seeds
from golden_text import Marks, Record, normal

EXPECTED = Path(__file__).resolve().parent / "commands_expected.toml"
#: what slurm-up makes of accounts and QOS, as far as commands name it
POLICY = (
    "add account research",
    "add account prod",
    "add user root account=research,prod defaultaccount=research",
    "add user nobody account=research",
    "add qos low priority=1",
    "add qos high priority=100 preempt=low,normal",
    "add qos capped MaxTRESPerUser=gres/gpu=4 MaxSubmitJobsPerUser=3 MaxWall=2:00:00",
    "modify qos normal set priority=10",
    "modify account research set qos=normal,low,high,capped",
    "modify account prod set qos=normal,low,high,capped",
)
#: brings nodes and partitions back to what they were
REPAIR = (
    *(f"update NodeName=node{n} State=RESUME" for n in range(1, 5)),
    "update NodeName=node[1-2] Features=h100,rackA Gres=gpu:h100:8 Weight=1 Comment= Extra=",
    "update NodeName=node[3-4] Features=h100,rackB Gres=gpu:h100:8 Weight=1 Comment= Extra=",
    "update PartitionName=debug State=UP MaxTime=30 DefaultTime=10 Nodes=node1 Hidden=NO "
    "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL PriorityTier=1 PriorityJobFactor=10 "
    "MaxNodes=UNLIMITED MinNodes=0 OverSubscribe=NO RootOnly=NO",
    "update PartitionName=gpu State=UP MaxTime=7-0 DefaultTime=1:00:00 Nodes=node[1-4] Default=YES "
    "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Hidden=NO PriorityTier=1 PriorityJobFactor=1 "
    "MaxNodes=UNLIMITED MinNodes=0 OverSubscribe=NO RootOnly=NO",
)
SETTLE_S = 90.0
#: words whose values vary from run to run beside those of golden_text
VARYING = (
    (r"\b(SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|LastSchedEval|BootTime|LastBusyTime|"
     r"SlurmdStartTime)=[\w:.-]+( Scheduler=\S+)?", r"\1=<time>"),
    (r"\b(RunTime|TimeLeft|CurrentWatts|AveWatts|JobSize|SluId)=\S+", r"\1=<n>"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?\b|<a time of Slurm's>", "<time>"),
    (r"\b[A-Z][a-z]{2} \d\d \d\d:\d\d\b", "<time>"),
    (r"/usr/bin/(?=s\w+: )", ""),
    (r"(start at <time>) a using", r"\1 using"),
    (r"slurm_suspend error: Invalid", "slurm_suspend error:Invalid"),
    (r"slurm-wlm 22\.05\.\d+", "<version>"),
    (r"/tmp/(?:peer|gsched)[-.][\w.-]*", "<dir>"),
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A known difference: patterns, and why. `command` must match somewhere; `slurm` and `gsched`
    must match a line each that the other does not have, or be empty."""

    command: re.Pattern[str]
    slurm: re.Pattern[str]
    gsched: re.Pattern[str]
    reason: str


@dataclass
class Desk:
    """One side with the jobs that were made there."""

    side: Side
    jobs: dict[str, str] = field(default_factory=dict)
    marks: Marks = field(default_factory=lambda: Marks(os.uname().nodename))

    def words(self, words: tuple[str, ...]) -> list[str]:
        def number(found: re.Match[str]) -> str:
            return self.jobs.get(found[1], "7777777")

        return [re.sub(r"\{(\w+)\}", number, word) for word in words]

    def learn(self, name: str, number: str) -> None:
        self.jobs[name] = number
        self.marks.jobs[number] = f"<{name}>"

    def submit(self, name: str, options: tuple[str, ...], wrap: str) -> None:
        words = ("sbatch", "--parsable", "-J", name, "-o/dev/null", *options, "--wrap", wrap)
        ran = self.side.run("root", *self.words(words))
        if ran.returncode:
            raise Problem(f"{self.side.name}: {name} was refused: {ran.stderr.strip()}")
        self.learn(name, ran.stdout.strip())

    def states(self) -> dict[str, str]:
        ran = self.side.run("root", "squeue", "-h", "-t", "all", "-o", "%A|%T")
        return dict(line.split("|") for line in ran.stdout.splitlines())

    def begin(self) -> None:
        """Submits MIX; what waits comes when the others have what they need."""
        wanted = {"run": "RUNNING", "two": "RUNNING", "whole": "RUNNING"}
        wanted |= {"done": "COMPLETED", "failed": "FAILED"}
        for name in wanted:
            self.submit(name, *MIX[name])
        end = time.monotonic() + SETTLE_S
        while True:
            states = self.states()
            found = {name: states.get(self.jobs[name], "") for name in wanted}
            if found == wanted:
                break
            if time.monotonic() > end:
                raise Problem(f"{self.side.name}: its first jobs are not as meant: {found}")
            time.sleep(0.2)
        for name in [one for one in MIX if one not in wanted]:
            self.submit(name, *MIX[name])

    def ask(self, command: Command, number: int) -> list[str]:
        """The answer, as lines that can be compared."""
        try:
            ran = self.side.run(command.user, *self.words(command.words))
            out, err, code = ran.stdout, ran.stderr, str(ran.returncode)
        except subprocess.TimeoutExpired:
            return ["no end within a minute"]
        for one in re.findall(r"(?:Submitted batch job|job allocation) (\d+)", out + err):
            self.learn(f"made{number}", one)
        record = Record("squeue-commands", 0, shlex.join(command.words), out, err, code)
        lines = normal(record, self.marks)
        return [self.masked(line) for line in lines]

    def masked(self, line: str) -> str:
        for pattern, new in VARYING:
            line = re.sub(pattern, new, line)
        # Columns differ in width where a mark stands for what was longer on one side.
        return re.sub(r" +", " ", line).rstrip()

    def end(self) -> None:
        self.side.run("root", "scancel", "-u", "root")
        self.side.run("root", "scancel", "-u", "nobody")
        for line in REPAIR:
            self.side.run("root", "scontrol", *line.split())
        end = time.monotonic() + SETTLE_S
        while self.side.run("root", "squeue", "-h").stdout and time.monotonic() < end:
            time.sleep(0.2)
        self.jobs.clear()


def differences(theirs: list[str], ours: list[str]) -> tuple[list[str], list[str]]:
    """Lines that only one side has; order does not count."""
    left, right = Counter(theirs), Counter(ours)
    return list((left - right).elements()), list((right - left).elements())


def judge(text: str, theirs: list[str], ours: list[str], known: list[Known]) -> str:
    """equal, known or different."""
    left, right = differences(theirs, ours)
    for one in known:
        if not one.command.search(text) or not (left or right):
            continue
        hit_left = [line for line in left if one.slurm.pattern and one.slurm.search(line)]
        hit_right = [line for line in right if one.gsched.pattern and one.gsched.search(line)]
        wants = (bool(one.slurm.pattern), bool(one.gsched.pattern))
        if (not wants[0] or hit_left) and (not wants[1] or hit_right):
            left = [line for line in left if line not in hit_left]
            right = [line for line in right if line not in hit_right]
            if not left and not right:
                return "known"
    return "different" if left or right else "equal"


def compare_seed(
    seed: int, count: int, sides: tuple[Side, Side], known: list[Known], everything: bool
) -> Counter[str]:
    """Compares one seed and prints what differs; counts by verdict."""
    desks = (Desk(sides[0]), Desk(sides[1]))
    counts: Counter[str] = Counter()
    by_side = {desk.side.name: desk for desk in desks}

    def each(side: Side) -> list[list[str]]:
        desk = by_side[side.name]
        desk.begin()
        return [desk.ask(command, n) for n, command in enumerate(commands)]

    commands = draw(seed, count)
    try:
        theirs, ours = both(each, *sides)
    finally:
        both(lambda side: by_side[side.name].end(), *sides)
    for number, (command, left, right) in enumerate(zip(commands, theirs, ours, strict=True)):
        text = shlex.join(command.words)
        verdict = judge(text, left, right, known)
        counts[verdict] += 1
        if verdict != "different" and not everything:
            continue
        print(f"{seed}.{number} ({verdict}) {command.user}$ {text}")
        if verdict == "equal":
            print("\n".join(f"      {line}" for line in left))
            continue
        for sign, lines in zip("-+", differences(left, right), strict=True):
            print("\n".join(f"    {sign} {line}" for line in lines[:12]))
    sys.stdout.flush()
    return counts


def load_expected(path: Path = EXPECTED) -> list[Known]:
    """The known differences; Problem for an entry that cannot be understood."""
    known = []
    for raw in tomllib.loads(path.read_text()).get("entry", []) if path.exists() else []:
        if "reason" not in raw or set(raw) - {"command", "slurm", "gsched", "reason"}:
            raise Problem(f"{path.name}: an entry is not understood: {raw}")
        patterns = [re.compile(raw.get(key, "")) for key in ("command", "slurm", "gsched")]
        known.append(Known(*patterns, raw["reason"]))
    return known


@contextmanager
def our_cluster() -> Iterator[Side]:
    """A throw-away cluster of gsched's with the accounts of the real one."""
    with compare_policies.our_cluster() as side:
        for line in POLICY:
            side.manage(tuple(line.split()))
        yield side


def real_slurm() -> Side:
    """The real Slurm, brought up where it is down."""
    shared = Path(os.environ.get("GSCHED_SHARED", compare_policies.ROOT.parent / "shared"))
    up = shared.resolve() / "peer" / "slurm-up"
    if not up.exists():
        raise Problem(f"there is no {up}: set GSCHED_SHARED")
    base = os.environ.get("PEER_DIR", "/tmp/peer-commands")
    env = {**os.environ, "PEER_DIR": base, "PEER_PORT": os.environ.get("PEER_PORT", "18700")}
    subprocess.run([str(up)], env=env, check=True, stdout=subprocess.DEVNULL)
    return Side("slurm", f"{base}/etc/slurm.conf", Path("/usr/bin"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", type=seeds, help="3, 1-20 or 1,5-7")
    parser.add_argument("--count", type=int, default=60, help="commands of a seed (default 60)")
    parser.add_argument("--all", action="store_true", help="show every command and its answer")
    options = parser.parse_args()
    # Ended by a signal, it still takes its cluster down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        if os.geteuid() != 0:
            raise Problem("this must run as root: it asks as several users")
        known = load_expected()
        slurm = real_slurm()
        total: Counter[str] = Counter()
        with our_cluster() as gsched:
            for seed in options.seeds:
                total += compare_seed(seed, options.count, (slurm, gsched), known, options.all)
        print(
            f"{len(options.seeds)} seeds, {sum(total.values())} commands: {total['equal']} equal, "
            f"{total['known']} known, {total['different']} different"
        )
        return 1 if total["different"] else 0
    except (Problem, OSError, subprocess.SubprocessError) as error:
        print(f"compare_commands: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
