"""What is equal of the outcomes of jobs on two clusters, what is known to differ, and what does
otherwise: the judgement of compare_policies.py. Pure, but for the list of known differences."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from policy_draw import Submission

EXPECTED = Path(__file__).resolve().parent / "policies_expected.toml"
#: stands for the number of jobs that have made way
MADEWAY = "MADEWAY"
#: what an entry of the known differences may ask of the other jobs, in the order in which it is
#: looked at: nothing; that one waits for room, so that others start by the plan alone; that the
#: minutes of a group were used up in the meantime; that the two clusters are full otherwise
WHEN = ("", "ahead", "spent", "places")


class Problem(Exception):
    """The comparison cannot be made; the text is one sentence."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job: `refusal` is "exit code: text", "" for one that was taken."""

    refusal: str = ""
    state: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return self.refusal or f"{self.state} {self.reason}"


@dataclass(frozen=True)
class Known:
    """A known difference: patterns that both outcomes match whole, and why."""

    slurm: re.Pattern[str]
    gsched: re.Pattern[str]
    reason: str
    #: what is found in the options of the job
    job: re.Pattern[str]
    #: what must be so of the other jobs, of WHEN
    when: str


@dataclass
class Seen:
    """One side: what sacctmgr said to each command; of each job its id, what became of it, and
    what it has on which nodes if it runs."""

    said: list[str]
    ids: list[str]
    found: list[Outcome]
    places: list[str]
    #: of all jobs, by id
    states: dict[str, Outcome] = field(default_factory=dict)
    #: of those that wait all limits that hold them, where that was asked for
    holds: dict[int, set[str]] = field(default_factory=dict)
    #: whether jobs have ended because the minutes of a group were used up
    spent: bool = False


def running(one: Outcome) -> int:
    """How many of a job, or of its tasks, run."""
    if one.state == "ARRAY":
        return sum(int(n) for n in re.findall(r"(\d+)x RUNNING", one.reason))
    return int(one.state == "RUNNING")


def judge(
    jobs: list[Submission], slurm: Seen, gsched: Seen, known: list[Known]
) -> list[tuple[str, str]]:
    """Of each job: equal, known, another or different, and of a known one why. Of several limits
    that hold a job (in gsched's eyes) one is told: "another". What is known of a job only because
    of others is looked at once it is known of these (WHEN)."""
    found = [
        _alone(left, right, gsched.holds.get(number, set()))
        for number, (left, right) in enumerate(zip(slurm.found, gsched.found, strict=True))
    ]
    for when in WHEN:
        if not _so(when, slurm, gsched, found):
            continue
        for number, (verdict, _) in enumerate(found):
            left, right = slurm.found[number], gsched.found[number]
            if verdict != "different" or (when == "ahead" and running(left) > running(right)):
                continue
            options = " ".join(jobs[number].options)
            for one in known:
                if one.when == when and one.job.search(options):
                    if one.slurm.fullmatch(str(left)) and one.gsched.fullmatch(str(right)):
                        found[number] = "known", one.reason
                        break
    return found


def _alone(left: Outcome, right: Outcome, holds: set[str]) -> tuple[str, str]:
    """Of one job by itself."""
    if left == right:
        return "equal", ""
    words = [re.fullmatch(r"(?:ARRAY \d+x )?PENDING (\w+)", str(one)) for one in (left, right)]
    if all(words) and words[0] is not None and words[0][1] in holds:
        return "another", ""
    if left.state == right.state == MADEWAY and int(right.reason) < int(left.reason):
        return "known", "Those go that cost least (docs/preemption.md): never more than with Slurm."
    return "different", ""


def _so(when: str, slurm: Seen, gsched: Seen, found: list[tuple[str, str]]) -> bool:
    """Whether the other jobs are such that an entry may hold."""
    if when == "ahead":
        return any(
            re.search("PENDING (Resources|Priority)", str(one))
            for one in (*slurm.found, *gsched.found)
        )
    if when == "spent":
        return slurm.spent or gsched.spent
    if when == "places":
        for number, (left, right) in enumerate(zip(slurm.found, gsched.found, strict=True)):
            if slurm.places[number] != gsched.places[number] and running(left) and running(right):
                return True
            if found[number][0] == "known" and stands(left) != stands(right):
                return True
        return False
    return True


def stands(one: Outcome) -> str:
    """What matters of a job to others: refused, running, or waiting."""
    if one.refusal:
        return "refused"
    return "RUNNING" if "RUNNING" in f"{one.state} {one.reason}" else "waiting"


def load_expected(path: Path = EXPECTED) -> list[Known]:
    """The known differences; Problem for an entry that cannot be understood."""
    known = []
    for raw in tomllib.loads(path.read_text()).get("entry", []):
        when = raw.get("when", "")
        if set(raw) - {"job", "when"} != {"slurm", "gsched", "reason"} or when not in WHEN:
            raise Problem(f"{path.name}: an entry is not understood: {raw}")
        slurm, gsched, job = (re.compile(raw.get(key, "")) for key in ("slurm", "gsched", "job"))
        known.append(Known(slurm, gsched, raw["reason"], job, when))
    return known
