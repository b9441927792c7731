#!/usr/bin/env python3
"""Compares what gsched and a real Slurm decide under random policies.

    compare_policies.py 1-100        seeds 1 to 100, one after the other
    compare_policies.py 7 --all      seed 7, with every job's outcome

Each seed draws accounts, QOS, users and limits, and 10 to 20 jobs (policy_draw.py). The same
commands of sacctmgr and the same submissions are given to both, in the same order. When nothing is
undecided any more, each job is compared: accepted or refused (text and exit code), state, reason;
of an array how many of its tasks are where. Some seeds have jobs that come later and preempt: they
are compared, and how many jobs have made way for them.

The real Slurm is that of $PEER_DIR (default /tmp/peer-policies), made by
$GSCHED_SHARED/peer/slurm-up and brought up where it is down; gsched's cluster is a throw-away one
of the same shape. Users that are missing are made with useradd: this runs as root only.

Differences that are known stand, with their reason, in tools/policies_expected.toml. Exit code 0:
no other ones; 1: there are; 2: could not compare.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from policy_draw import USERS, Draw, Submission, draw
from policy_judge import (
    MADEWAY,
    Known,
    Outcome,
    Problem,
    Seen,
    judge,
    load_expected,
    stands,
)

from gsched.cpuset import parse_cpu_list
from gsched.hostlist import expand

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent

T = TypeVar("T")
#: priorities that do not move with time; short intervals, so that a decision is there soon, and a
#: backfill that comes to the last job on a slow machine, too
WEIGHTS = ("PriorityWeightAge=0", "PriorityWeightFairshare=0", "PriorityWeightJobSize=0")
PASSES = "batch_sched_delay=1,sched_interval=2,bf_interval=2,bf_continue,bf_max_time=60"
LICENSES = "Licenses=matlab:4,ansys:4"
OURS = (
    LICENSES,
    "AccountingStorageEnforce=associations,limits,qos",
    "PriorityType=priority/multifactor",
    "PriorityWeightQOS=2000",
    "PriorityWeightPartition=1000",
    *WEIGHTS,
)
NODES = "node[1-4]"
#: the QOS that slurm-up has made, as far as they say what priorities mean
BASE = (("modify", "qos", "normal", "set", "Priority=10"), ("add", "qos", "high", "Priority=100"))
#: what runs until the comparison is made
WORK = "sleep 900"
#: seconds until what waits must have a reason
SETTLE_S = 60.0
POLL_S = 0.15
#: seconds for which nothing changes once jobs have made way
QUIET_S = 5.0
#: rounds of both of Slurm's schedulers without a change after which nothing is waited for
ROUNDS = 3
#: jobs of a seed that are left out for known differences, at most
MOST_LEFT_OUT = 6
#: reasons from before the nodes came back, or none yet
UNDECIDED = re.compile(r"PENDING (None$|None,|$|,|ReqNodeNotAvail|Nodes required for job are)")
#: states that count as started
STARTED = ("RUNNING", "CONFIGURING", "COMPLETING", "COMPLETED", "FAILED")


class Side:
    """One of the two clusters."""

    def __init__(self, name: str, conf: str, bin_dir: Path) -> None:
        self.name, self.conf, self.bin = name, conf, bin_dir
        self.ids: list[str] = []
        #: of each submission the job's id
        self.numbers: list[str] = []

    def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as a user."""
        who = pwd.getpwnam(user)
        # Nothing of the caller's environment gives options to the commands.
        env = {"SLURM_CONF": self.conf, "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": who.pw_dir}
        env |= {"USER": user, "LOGNAME": user, "TZ": os.environ.get("TZ", "UTC")}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env=env,
            cwd="/tmp",
            capture_output=True,
            text=True,
            timeout=60,
            user=who.pw_uid,
            group=who.pw_gid,
            extra_groups=[],
        )

    def manage(self, words: tuple[str, ...]) -> str:
        """One command of sacctmgr; "" or what it says if it fails."""
        ran = self.run("root", "sacctmgr", "-i", *words)
        return (ran.stderr.strip() or ran.stdout.strip()) if ran.returncode else ""

    def nodes(self, state: str) -> None:
        """Drains or resumes all nodes."""
        words = ("update", f"NodeName={NODES}", f"State={state}", "Reason=policies")
        ran = self.run("root", "scontrol", *(words if state == "drain" else words[:-1]))
        if ran.returncode:
            raise Problem(f"{self.name}: scontrol update: {ran.stderr.strip()}")

    def submit(self, job: Submission) -> Outcome | str:
        """The job's id, or how it was refused."""
        # A job that was refused cannot be waited for: there is none such.
        options = [re.sub(r"\{(\d+)\}", lambda m: self.numbers[int(m[1])], o) for o in job.options]
        ran = self.run(job.user, "sbatch", *options, "-o/dev/null", "--wrap", WORK)
        found = re.search(r"Submitted batch job (\d+)", ran.stdout)
        self.numbers.append(found[1] if found else "99999999")
        if found:
            self.ids.append(found[1])
            return found[1]
        # 26.05 says "warning" where older ones say "Warning".
        ran.stderr = ran.stderr.replace("sbatch: Warning:", "sbatch: warning:")
        return Outcome(refusal=f"exit {ran.returncode}: {' / '.join(ran.stderr.splitlines())}")

    def partition(self, name: str, qos: str) -> str:
        """Gives a partition its QOS; "" or what is said if that fails."""
        ran = self.run("root", "scontrol", "update", f"PartitionName={name}", f"QOS={qos}")
        return ran.stderr.strip() if ran.returncode else ""

    def reserve(self, words: tuple[str, ...]) -> str:
        """Makes an advance reservation; "" or what is said if that fails."""
        name, *rest = words
        ran = self.run(
            "root", "scontrol", "create", "reservation", f"ReservationName={name}", *rest
        )
        return ran.stderr.strip() if ran.returncode else ""

    def states(self) -> dict[str, Outcome]:
        """Job id -> state and reason, of all jobs; of an array how many tasks are in each."""
        ran = self.run("root", "squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r")
        tasks: dict[str, Counter[Outcome]] = {}
        arrays = set()
        for line in ran.stdout.splitlines():
            number, state, reason = line.split("|", 2)
            number, _, task = number.partition("_")
            if task:
                arrays.add(number)
            started = state in STARTED
            one = Outcome("", "RUNNING" if started else state, "" if started else reason)
            tasks.setdefault(number, Counter())[one] += 1
        return {
            number: _together(counts) if number in arrays else next(iter(counts))
            for number, counts in tasks.items()
        }

    def places(self) -> dict[str, str]:
        """Job id -> what its running tasks have on which node: "node1 CPUs MB GPUs"."""
        ran = self.run("root", "scontrol", "-d", "-o", "show", "job")
        found: dict[str, list[str]] = {}
        for line in ran.stdout.splitlines():
            if "JobState=RUNNING" not in line:
                continue
            number = re.search(r"ArrayJobId=(\d+)", line) or re.search(r"JobId=(\d+)", line)
            assert number is not None
            for nodes, cpus, memory, gres in re.findall(
                r" Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", line
            ):
                gpus = re.search(r":(\d+)\(", gres)
                has = f"{len(parse_cpu_list(cpus))} {memory} {gpus[1] if gpus else 0}"
                found.setdefault(number[1], []).extend(f"{n} {has}" for n in expand(nodes))
        return {number: "; ".join(sorted(parts)) for number, parts in found.items()}

    def causes(self, number: str) -> set[str]:
        """Of gsched: all limits that hold a job. Slurm tells one."""
        ran = self.run("root", "gsched", "why", "--json", number)
        return set(re.findall(r'"detail": ?"(\w+)"', ran.stdout))

    def made_way(self, before: dict[str, Outcome]) -> int:
        """How many of the jobs that ran do not run any more, and not because time was up."""
        now = self.states()
        ran = [one for one in self.ids if one in before and before[one].state == "RUNNING"]
        still = ("RUNNING", "TIMEOUT")
        return sum(one not in now or now[one].state not in still for one in ran)

    def spent(self) -> bool:
        """Whether the time of a job is up: limits of jobs are longer than a comparison takes, so
        the minutes of its group are used up."""
        now = self.states()
        return any("TIMEOUT" in str(now[one]) for one in self.ids if one in now)

    def cycles(self) -> tuple[int, int]:
        """How often Slurm's main and backfill schedulers have run."""
        found = re.findall(r"Total cycles: (\d+)", self.run("root", "sdiag").stdout)
        return int(found[0]), int(found[1])

    def settled(self, quiet_s: float = 0.0) -> dict[str, Outcome]:
        """The states once nothing is undecided: every job has a reason, and another look (on
        Slurm: after both schedulers have run again) shows the same. What Slurm's schedulers have
        left undecided for some rounds stays so. `quiet_s`: nothing changes for so long (jobs make
        way for others)."""
        slurm = (self.bin / "sdiag").exists()
        end = time.monotonic() + SETTLE_S
        since = mark = self.cycles() if slurm else (0, 0)
        before: dict[str, Outcome] = {}
        alike, last = 0, time.monotonic()
        while time.monotonic() < end:
            now = self.states()
            mine = [now[one] for one in self.ids if one in now]
            waiting = [one for one in map(str, mine) if "PENDING" in one]
            decided = not any(UNDECIDED.search(one) for one in waiting)
            same = now == before
            last = last if same else time.monotonic()
            alike = alike + 1 if decided and same else 0
            before = now
            done = alike >= 3
            if slurm and waiting:
                main, backfill = self.cycles()
                if not same:
                    since = main, backfill
                done = done and main >= mark[0] + 2 and backfill >= mark[1] + 1
                done |= main >= since[0] + ROUNDS and backfill >= since[1] + ROUNDS
            if done and time.monotonic() >= last + quiet_s:
                break
            time.sleep(POLL_S)
        return before

    def clear(self, made: Draw) -> None:
        """Cancels the jobs and takes the policy away."""
        if self.ids:
            self.run("root", "scancel", *self.ids)
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            ran = self.run("root", "squeue", "-h", "-o", "%i")
            if not set(ran.stdout.split()) & set(self.ids):
                break
            time.sleep(POLL_S)
        self.ids, self.numbers = [], []
        if made.reservation:
            self.run("root", "scontrol", "delete", f"ReservationName={made.reservation[0]}")
        for name in made.partitions:
            self.partition(name, "")
        for words in made.cleanup:
            said = self.manage(words)
            while "Job(s) active" in said and time.monotonic() < end:
                # slurmdbd hears of their ends later than squeue.
                time.sleep(POLL_S)
                said = self.manage(words)
            # What an earlier command took along is gone already.
            if said and "Nothing deleted" not in said:
                raise Problem(f"{self.name}: sacctmgr {shlex.join(words)}: {said}")


# ---- one seed ----------------------------------------------------------------------------------


def _together(counts: Counter[Outcome]) -> Outcome:
    """The tasks of an array as one outcome."""
    parts = sorted(f"{n}x {one}".strip() for one, n in counts.items())
    return Outcome(state="ARRAY", reason=", ".join(parts))


def begin(side: Side, made: Draw) -> Seen:
    """What sacctmgr said to each command, and what became of each job."""
    said = [side.manage(words) for words in made.setup]
    said += [side.partition(name, qos) for name, qos in made.partitions.items()]
    if made.reservation:
        said.append(side.reserve(made.reservation))
    # All jobs are there before the first is considered: what starts depends on their order alone.
    side.nodes("drain")
    taken = [side.submit(job) for job in made.jobs]
    side.nodes("resume")
    states, places = side.settled(), side.places()
    return Seen(said, *became(taken, states, places), states)


def go_on(side: Side, made: Draw, seen: Seen) -> Seen:
    """The same, once some have come late: how many jobs have made way, and what became of those."""
    late = [side.submit(job) for job in made.late]
    after = side.settled(QUIET_S)
    way = Outcome(state=MADEWAY, reason=str(side.made_way(seen.states)))
    ids, found, places = became(late, after, {})
    return Seen([], ["", *ids], [way, *found], ["", *places], after)


def became(
    taken: list[Outcome | str], states: dict[str, Outcome], places: dict[str, str]
) -> tuple[list[str], list[Outcome], list[str]]:
    """Of each job its id ("": it was refused), what became of it, and where it runs."""
    gone = Outcome(state="GONE")
    ids = ["" if isinstance(one, Outcome) else one for one in taken]
    found = [one if isinstance(one, Outcome) else states.get(one, gone) for one in taken]
    return ids, found, [places.get(one, "") for one in ids]


def observe(made: Draw, slurm: Side, gsched: Side) -> tuple[Seen, Seen]:
    """What both decide. gsched is asked for all limits that hold a job where its reason differs."""
    stages = [both(lambda side: begin(side, made), slurm, gsched)]
    limits(gsched, *stages[0])
    if made.late:
        first = dict(zip((slurm, gsched), stages[0], strict=True))
        stages.append(both(lambda side: go_on(side, made, first[side]), slurm, gsched))
        limits(gsched, *stages[1])
    theirs, ours = stages[0]
    for one, more in (*zip((theirs, ours), stages[1], strict=True),) if made.late else ():
        one.ids += more.ids
        one.found += more.found
        one.places += more.places
        one.holds |= {len(made.jobs) + number: held for number, held in more.holds.items()}
    theirs.spent, ours.spent = slurm.spent(), gsched.spent()
    return theirs, ours


def limits(gsched: Side, theirs: Seen, ours: Seen) -> None:
    """Asks for the limits that hold a job, where both sides tell different ones."""
    for number, (left, right) in enumerate(zip(theirs.found, ours.found, strict=True)):
        if left != right and "PENDING" in str(left) and "PENDING" in str(right):
            ours.holds[number] = gsched.causes(ours.ids[number])


def both(what: Callable[[Side], T], slurm: Side, gsched: Side) -> tuple[T, T]:
    """The same on both sides at once: mostly they wait."""
    with ThreadPoolExecutor(2) as pool:
        left, right = pool.submit(what, slurm), pool.submit(what, gsched)
    return left.result(), right.result()


def compare_seed(
    seed: int, slurm: Side, gsched: Side, known: list[Known], everything: bool
) -> Counter[str]:
    """Compares one seed and prints what differs; counts by verdict. Where a job is known to run, or
    to be taken, on one side alone, others may differ for that: it is left out, and the seed
    compared again."""
    made = draw(seed)
    left_out = 0
    while True:
        found = compare_once(made, slurm, gsched, known, everything)
        if not found.counts["different"] or not found.apart or left_out >= MOST_LEFT_OUT:
            break
        left_out += len(found.apart)
        made.jobs = [job for number, job in enumerate(made.jobs) if number not in found.apart]
    found.counts["left out"] += left_out
    if found.text:
        print(f"seed {seed}:\n{found.text}", flush=True)
    return +found.counts


@dataclass
class Found:
    """What came of one comparison."""

    counts: Counter[str]
    #: jobs that are known to run, or to be taken, on one side alone
    apart: set[int]
    text: str = ""


def compare_once(
    made: Draw, slurm: Side, gsched: Side, known: list[Known], everything: bool
) -> Found:
    """Compares one draw."""
    try:
        theirs, ours = observe(made, slurm, gsched)
    finally:
        both(lambda side: side.clear(made), slurm, gsched)
    counts: Counter[str] = Counter()
    apart = set()
    lines = []
    commands = [*made.setup, *((f"partition {n} QOS={qos}",) for n, qos in made.partitions.items())]
    commands += [made.reservation] if made.reservation else []
    for words, slurm_said, we_said in zip(commands, theirs.said, ours.said, strict=True):
        if bool(slurm_said) != bool(we_said):
            counts["setup"] += 1
            lines.append(
                f"  sacctmgr {shlex.join(words)}\n    slurm  {slurm_said}\n    gsched {we_said}"
            )
    jobs = list(made.jobs)
    if made.late:
        jobs += [Submission("how many", ("made", "way")), *made.late]
    judged = judge(jobs, theirs, ours, known)
    each = zip(jobs, theirs.found, ours.found, judged, strict=True)
    for number, (job, left, right, (verdict, why)) in enumerate(each):
        counts[verdict] += 1
        has, had = theirs.places[number], ours.places[number]
        if has and had:
            counts["on the same nodes" if has == had else "on others"] += 1
        if verdict == "known" and number < len(made.jobs) and stands(left) != stands(right):
            apart.add(number)
        if verdict == "different" or everything:
            lines.append(
                f"  job {number} ({verdict}) {job.user}: sbatch {shlex.join(job.options)}\n"
                f"    slurm  {left} {theirs.places[number]}\n"
                f"    gsched {right} {ours.places[number]}" + (f"\n    {why}" if why else "")
            )
    if not (counts["different"] or counts["setup"] or everything):
        return Found(counts, apart)
    lines.append("  with:")
    lines += [f"    sacctmgr -i {shlex.join(command)}" for command in made.setup]
    for name, qos in made.partitions.items():
        lines.append(f"    scontrol update PartitionName={name} QOS={qos}")
    if made.reservation:
        name, *rest = made.reservation
        lines.append(f"    scontrol create reservation ReservationName={name} {' '.join(rest)}")
    for number, (job, one) in enumerate(zip(jobs, theirs.found, strict=True)):
        words = (*job.options, "--wrap", WORK)
        lines.append(f"    {number}: {job.user}: sbatch {shlex.join(words)}  # {one}")
    return Found(counts, apart, "\n".join(lines))


# ---- the two clusters --------------------------------------------------------------------------


def make_users() -> None:
    """The users that submit."""
    if os.geteuid() != 0:
        raise Problem("this must run as root: it submits as several users")
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-m", name], check=True)


def real_slurm() -> Side:
    """The real Slurm, brought up where it is down."""
    shared = Path(os.environ.get("GSCHED_SHARED", ROOT.parent / "shared")).resolve()
    up = shared / "peer" / "slurm-up"
    if not up.exists():
        raise Problem(f"there is no {up}: set GSCHED_SHARED")
    base = os.environ.get("PEER_DIR", "/tmp/peer-policies")
    env = {**os.environ, "PEER_DIR": base, "PEER_PORT": os.environ.get("PEER_PORT", "18600")}
    words = [str(up), "--sched", PASSES]
    for one in (*WEIGHTS, LICENSES):
        words += ["--conf", one]
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    return Side("slurm", f"{base}/etc/slurm.conf", Path("/usr/bin"))


@contextmanager
def our_cluster() -> Iterator[Side]:
    """A throw-away cluster of gsched's of the same shape."""
    here = Path(sys.executable).parent
    gsched = here / "gsched"
    if not gsched.exists():
        raise Problem(
            f"there is no {gsched}: run this with the Python that gsched is installed for"
        )
    base = Path(tempfile.mkdtemp(prefix="gsched-policies."))
    base.chmod(0o755)
    try:
        sets = [word for one in OURS for word in ("--set", one)]
        words = [gsched, "up", "-q", "--dir", base / "c", "--simulate", "peer", *sets]
        subprocess.run([str(word) for word in words], check=True)
        side = Side("gsched", str(base / "c" / "etc" / "slurm.conf"), here)
        for command in BASE:
            said = side.manage(command)
            if said:
                raise Problem(f"{side.name}: sacctmgr {shlex.join(command)}: {said}")
        yield side
    finally:
        subprocess.run([gsched, "down", "--purge", "--dir", base / "c"], capture_output=True)
        shutil.rmtree(base, ignore_errors=True)


def seeds(text: str) -> list[int]:
    """ "3", "1-100" or "1,5-7"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", type=seeds, help="3, 1-100 or 1,5-7")
    parser.add_argument("--all", action="store_true", help="show every job's outcome")
    options = parser.parse_args()
    # Ended by a signal, it still takes its cluster down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        known = load_expected()
        make_users()
        slurm = real_slurm()
        total: Counter[str] = Counter()
        with our_cluster() as gsched:
            for seed in options.seeds:
                counts = compare_seed(seed, slurm, gsched, known, options.all)
                total += counts
                print(f"seed {seed}: {dict(counts)}", flush=True)
        jobs = sum(total[one] for one in ("equal", "another", "known", "different"))
        print(
            f"{len(options.seeds)} seeds, {jobs} jobs: {total['equal']} equal, {total['another']} "
            f"wait for another of the limits that hold them, "
            f"{total['known']} known, {total['different']} different; "
            f"{total['setup']} commands of sacctmgr different; of those that run on both "
            f"{total['on the same nodes']} on the same nodes, {total['on others']} on others"
        )
        return 1 if total["different"] or total["setup"] else 0
    except (Problem, OSError, subprocess.SubprocessError) as error:
        print(f"compare_policies: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
