"""Draws a policy and a mix of jobs from a seed, for compare_policies.py.

The policy is a list of sacctmgr's commands (accounts, QOS, users, with limits of every kind that is
checked when a job is submitted or started), and now and then a partition's QOS and who preempts
whom; a job, or an array, is a user and options of sbatch. The same seed gives the same draw on
every machine. Limits are drawn near what the jobs ask for on a cluster of four nodes with 16 CPUs,
64,000 MB and eight GPUs each, so that about half of the jobs meet one. Seeds past 1000 draw more
kinds of requests besides (draw_more): features, several partitions, holds, dependencies, licences,
an advance reservation, tasks and GPUs in other forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

#: the last seed that draws what is drawn by all
MORE = 1000
#: users that must exist on the machine
USERS = ("wren", "lark", "finch")


@dataclass(frozen=True)
class Submission:
    """One job: who submits it, and sbatch's options."""

    user: str
    options: tuple[str, ...]


@dataclass
class Draw:
    """What one seed gives; `setup` and `cleanup` are sacctmgr's words, one command each."""

    seed: int
    setup: list[tuple[str, ...]] = field(default_factory=list)
    cleanup: list[tuple[str, ...]] = field(default_factory=list)
    jobs: list[Submission] = field(default_factory=list)
    #: partition -> its QOS, "" as before
    partitions: dict[str, str] = field(default_factory=dict)
    #: submitted once the others are decided: jobs of a QOS that preempts
    late: list[Submission] = field(default_factory=list)
    #: scontrol's words for an advance reservation; its name comes first
    reservation: tuple[str, ...] = ()


def draw(seed: int) -> Draw:
    """The policy and jobs of a seed."""
    rng = Random(f"policies {seed}")
    made = Draw(seed)
    qos = _draw_qos(rng, made)
    accounts = _draw_accounts(rng, made, qos)
    homes = _draw_users(rng, made, accounts)
    made.cleanup.append(("delete", "user", f"name={','.join(homes)}"))
    made.cleanup += [("delete", "account", f"name={name}") for name in reversed(accounts)]
    made.cleanup.append(("delete", "qos", f"name={','.join([*qos, f'p{seed}qp'])}"))
    for _ in range(rng.randint(10, 20)):
        made.jobs.append(_draw_job(rng, homes, accounts, qos))
    if rng.random() < 0.25:
        # A QOS of the jobs, or one that is the partition's alone.
        made.partitions[rng.choice(("gpu", "debug"))] = rng.choice([*qos, f"p{seed}qp"])
    if rng.random() < 0.3:
        _draw_preemption(rng, made, homes, qos)
    if seed > MORE:
        draw_more(Random(f"more {seed}"), made)
    return made


def draw_more(rng: Random, made: Draw) -> None:
    """More kinds of requests, on top of the jobs that were drawn."""
    if rng.random() < 0.5:
        name = f"p{made.seed}r"
        what = rng.choice(("Nodes=node4", "Nodes=node[3-4]", "NodeCnt=1 PartitionName=gpu"))
        words = ["StartTime=now", "Duration=600", *what.split(), f"Users={rng.choice(USERS)}"]
        made.reservation = (name, *words)
    for number, job in enumerate(made.jobs):
        options = list(job.options)
        for chance, choices in MORE_OPTIONS:
            if rng.random() < chance:
                options += rng.choice(choices).split()
        if made.reservation and rng.random() < 0.25:
            options.append(f"--reservation={made.reservation[0]}")
        if number and rng.random() < 0.1:
            # Of an earlier job: its id stands in for its number.
            kind = rng.choice(("after", "afterany", "afterok", "afternotok"))
            options.append(f"-d{kind}:{{{rng.randrange(number)}}}")
        made.jobs[number] = Submission(job.user, tuple(options))


def _draw_preemption(rng: Random, made: Draw, homes: dict[str, list[str]], qos: list[str]) -> None:
    """A QOS that preempts the others, and a few jobs in it that come last and want whole nodes."""
    name = f"p{made.seed}qx"
    mode = rng.choice(("cancel", "requeue"))
    for one in (*qos, "normal"):
        made.setup.append(("modify", "qos", one, "set", f"PreemptMode={mode}"))
    words = ["Priority=1000", f"Preempt={','.join((*qos, 'normal'))}"]
    words += _some(rng, QOS_LIMITS, rng.randint(0, 1))
    made.setup.append(("add", "qos", name, *words))
    user = rng.choice(list(homes))
    for account in homes[user]:
        made.setup.append(("modify", "account", account, "set", f"QOS+={name}"))
    made.cleanup.append(("modify", "qos", "normal", "set", "PreemptMode=cluster"))
    made.cleanup.append(("delete", "qos", f"name={name}"))
    for _ in range(rng.randint(1, 2)):
        options = [f"-N{rng.choice((1, 2))}", "--exclusive", "-t30", f"-q{name}"]
        options.append(f"-A{rng.choice(homes[user])}")
        made.late.append(Submission(user, tuple(options)))


def _draw_qos(rng: Random, made: Draw) -> list[str]:
    names = [f"p{made.seed}q{number}" for number in range(rng.randint(1, 3))]
    for name in names:
        words = [f"Priority={rng.choice((0, 10, 100))}"]
        words += _some(rng, QOS_LIMITS, rng.randint(1, 3))
        flags = [flag for flag, odds in QOS_FLAGS if rng.random() < odds]
        if flags:
            words.append(f"Flags={','.join(flags)}")
        made.setup.append(("add", "qos", name, *words))
    words = _some(rng, QOS_LIMITS, rng.randint(1, 2))
    flags = [flag for flag, odds in QOS_FLAGS if rng.random() < odds]
    if flags:
        words.append(f"Flags={','.join(flags)}")
    made.setup.append(("add", "qos", f"p{made.seed}qp", *words))
    return names


def _draw_accounts(rng: Random, made: Draw, qos: list[str]) -> list[str]:
    names: list[str] = []
    for number in range(rng.randint(2, 4)):
        name = f"p{made.seed}a{number}"
        words = [f"Parent={rng.choice(names)}"] if names and rng.random() < 0.5 else []
        if rng.random() < 0.6:
            words += _some(rng, [*GRP_LIMITS, *MAX_LIMITS], rng.randint(1, 2))
        words.append(f"QOS=normal,{','.join(rng.sample(qos, rng.randint(1, len(qos))))}")
        made.setup.append(("add", "account", name, *words))
        names.append(name)
    return names


def _draw_users(rng: Random, made: Draw, accounts: list[str]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for user in USERS[: rng.randint(1, len(USERS))]:
        homes[user] = rng.sample(accounts, rng.randint(1, min(2, len(accounts))))
        for account in homes[user]:
            words = []
            if rng.random() < 0.4:
                words = _some(rng, [*GRP_LIMITS, *MAX_LIMITS], rng.randint(1, 2))
            made.setup.append(("add", "user", user, f"Account={account}", *words))
    return homes


def _draw_job(
    rng: Random, homes: dict[str, list[str]], accounts: list[str], qos: list[str]
) -> Submission:
    user = rng.choice(list(homes))
    options = []
    if rng.random() < 0.85:
        options.append(f"-n{rng.choice((1, 1, 2, 4, 8, 16, 20))}")
    if rng.random() < 0.3:
        options.append(f"-N{rng.choice((1, 2, 3, '1-2'))}")
    if rng.random() < 0.1:
        options.append(f"-c{rng.choice((2, 4))}")
    gpus = rng.random()
    if gpus < 0.4:
        options.append(f"--gpus={rng.choice((1, 1, 2, 4, 8))}")
    elif gpus < 0.5:
        options.append(f"--gpus-per-node={rng.choice((1, 2, 4))}")
    memory = rng.random()
    if memory < 0.5:
        options.append(f"--mem={rng.choice((1, 2, 8, 16, 30))}G")
    elif memory < 0.6:
        options.append(f"--mem-per-cpu={rng.choice((500, 1000, 3000))}")
    if rng.random() < 0.7:
        options.append(f"-t{rng.choice((10, 20, 30, 60, 120, 300, 1440))}")
    if rng.random() < 0.5:
        # Now and then an account that is none of the user's.
        options.append(f"-A{rng.choice(homes[user] if rng.random() < 0.9 else accounts)}")
    if rng.random() < 0.6:
        options.append(f"-q{rng.choice([*qos, *qos, 'normal'])}")
    if rng.random() < 0.15:
        options.append("-pdebug")
    if rng.random() < 0.1:
        options.append(f"-a0-{rng.randint(1, 4)}{rng.choice(('', '', '%1', '%2'))}")
    return Submission(user, tuple(options))


#: how often a job gets one of these options
MORE_OPTIONS = (
    (0.15, ("-Ch100", "-CrackA", "-CrackB", "-CrackA|rackB", "-CrackA&h100", "-Cnone")),
    (0.15, ("-pgpu,debug", "-pdebug,gpu")),
    (0.08, ("-H", "--priority=0")),
    (0.06, ("--begin=now+1hour",)),
    (0.06, ("--nice=10", "--nice=1000")),
    (0.06, ("-d singleton",)),
    (0.15, ("-Lmatlab", "-Lmatlab:2", "-Lansys:3", "-Lmatlab:5", "-Lmatlab,ansys:2")),
    (0.1, ("--exclusive", "--exclusive=user", "--oversubscribe", "--overcommit")),
    (0.1, ("--ntasks-per-node=2", "--ntasks-per-node=8", "--mincpus=4")),
    (0.1, ("--gpus-per-task=1", "--cpus-per-gpu=2", "--mem-per-gpu=4G", "--gres=gpu:h100:2")),
    (0.1, ("-wnode2", "-xnode[1-3]", "-xnode1", "-wnode[1-2]")),
    (0.05, ("--time-min=5", "--deadline=now+20minutes", "--tmp=1M", "--contiguous", "--mem=0")),
)


def _tres(rng: Random) -> str:
    """An amount that few or several jobs reach."""
    return rng.choice(
        [
            f"cpu={rng.choice((1, 2, 4, 8, 16, 24, 40))}",
            f"gres/gpu={rng.choice((0, 1, 2, 4, 8, 12))}",
            f"mem={rng.choice((2, 4, 10, 20, 40, 80))}G",
            f"node={rng.choice((1, 1, 2, 3))}",
            f"cpu={rng.choice((8, 16, 24))},gres/gpu={rng.choice((2, 4, 8))}",
        ]
    )


def _minutes(rng: Random) -> str:
    """An amount of TRES times minutes."""
    return rng.choice(
        [
            f"cpu={rng.choice((30, 60, 240, 960, 3000))}",
            f"gres/gpu={rng.choice((30, 60, 240, 960))}",
            f"node={rng.choice((30, 60, 240))}",
        ]
    )


#: a limit's name, and what is drawn for it
GRP_LIMITS = (
    ("GrpTRES", "tres"),
    ("GrpTRES", "tres"),
    ("GrpJobs", "count"),
    ("GrpSubmitJobs", "submit"),
    ("GrpTRESRunMins", "minutes"),
    ("GrpTRESMins", "minutes"),
    ("GrpWall", "wall"),
)
MAX_LIMITS = (
    ("MaxTRES", "tres"),
    ("MaxTRESPerNode", "tres"),
    ("MaxTRESMins", "minutes"),
    ("MaxJobs", "count"),
    ("MaxSubmitJobs", "submit"),
    ("MaxWall", "wall"),
)
QOS_LIMITS = (
    *GRP_LIMITS,
    ("MaxTRESPerJob", "tres"),
    ("MaxTRESPerNode", "tres"),
    ("MaxTRESMinsPerJob", "minutes"),
    ("MaxTRESPerUser", "tres"),
    ("MaxTRESPerUser", "tres"),
    ("MaxTRESPerAccount", "tres"),
    ("MaxJobsPerUser", "count"),
    ("MaxJobsPerAccount", "count"),
    ("MaxSubmitJobsPerUser", "submit"),
    ("MaxSubmitJobsPerAccount", "submit"),
    ("MaxWall", "wall"),
    ("MinTRESPerJob", "least"),
)
QOS_FLAGS = (("DenyOnLimit", 0.3), ("OverPartQOS", 0.05), ("PartitionTimeLimit", 0.05))


def _some(
    rng: Random, limits: list[tuple[str, str]] | tuple[tuple[str, str], ...], n: int
) -> list[str]:
    chosen: dict[str, str] = {}
    for name, kind in rng.sample(list(limits), n):
        chosen[name] = _amount(rng, kind)
    return [f"{name}={amount}" for name, amount in chosen.items()]


def _amount(rng: Random, kind: str) -> str:
    if kind == "tres":
        return _tres(rng)
    if kind == "minutes":
        return _minutes(rng)
    if kind == "count":
        return str(rng.choice((0, 1, 1, 2, 3)))
    if kind == "submit":
        return str(rng.choice((0, 1, 2, 4, 6)))
    if kind == "least":
        return rng.choice(("cpu=2", "cpu=4", "gres/gpu=1", "mem=4G"))
    return str(rng.choice((15, 30, 60, 180)))
