"""Golden transcripts: reading them, and taking out of them what differs from run to run.

Ids, times, durations, pids, host names, versions, paths, priorities and the unique ids of jobs
become marks. A mark takes its space from the blanks beside it, so that the width of columns is
still compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: a command of a transcript, and the text of its three parts
RECORD = re.compile(
    r"^\$ (?P<command>.*?)\n--- stdout\n(?P<stdout>.*?)(?:--- stderr\n(?P<stderr>.*?))?"
    r"--- (?:exit |)(?P<exit>(?:timeout )?-?\d+s?)\n\n(?=\$ |# |\Z)",
    re.MULTILINE | re.DOTALL,
)

#: an output of this kind names a submitted job; several of them in the order of their submission
SUBMITTED = re.compile(r"^Submitted batch job (\d+)|^(\d+)(?=;\w+$|$)", re.MULTILINE)
NEVER_A_JOB = "99999999"

#: dates that the commands themselves name, and so must come back unchanged
NAMED_DATES = r"(?!2030-01-(?:20|01)|2001-01-01|2020-01-0|19)"

#: what is replaced in lines of text, in this order
PLAIN = (
    (r"\\/", "/"),
    (r"/tmp/golden-cwd\b", "CWD"),
    (r'"(microseconds|elapsed)": \d+', r'"\1": <n>'),
    (r'"micro": "\d+"', '"micro": <n>'),
    (r'allocating_node(": "|: !!str )[\w.-]+', r"allocating_node\1<host>"),
    (r"[^\s'\"]*/slurm_script", "<script>"),
    (r"\bPATH=(?:\(.*?\)|\S+)", "PATH=<path>"),
    (r"^_=/\S*/", "_=<path>/"),
    (r"HOME=\(home\)", "HOME=/root"),
    (r"\bslurm \d\d\.\d\d\.\d+\b|\b26\.05\.\d+\b", "<version>"),
    (NAMED_DATES + r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b(?:\.\d{3}\b)?", "<a time of Slurm's>"),
    (r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d\b", "<date>"),
    (r"\bPriority=[1-9]\d*", "Priority=<prio>"),
    (r"\b0\.\d{14}\b|\b42949\d{5}\b", "<prio>"),
    (r"\bOS=Linux \S+", "OS=Linux <release>"),
    (r"AllocNode:Sid=\S+", "AllocNode:Sid=<host>:<sid>"),
    (r"(?<=HetJobIdSet=)\d+-\d+", "<ids>"),
    (r"(?<=JOB_ID_HET_GROUP_)(\d)=\d+", r"\1=<id>"),
    (r"(?<=JOB_ID_PACK_GROUP_)(\d)=\d+", r"\1=<id>"),
    (r"(?<=-7-)\d+(?=-pat x)", "<id>"),
    (r"\b(CPULoad|FreeMem|Port|SecsPreSuspend)=[\d.]+", r"\1=<n>"),
    (r"\b(uid|gid|groups|UserId|GroupId)=(\w+)\(\d+\)", r"\1=\2"),
    (r"\b(uid|gid|groups)=\d+\((\w+)\)", r"\1=\2"),
    (r"\b(127\.0\.0\.1:)\d+\b", r"\1<port>"),
    (r"\bSLURM_TASK_PID=\d+", "SLURM_TASK_PID=<pid>"),
    (r"\b(SLURM_SRUN_COMM|SLURM_STEP_LAUNCHER)_PORT=\d+", r"\1_PORT=<port>"),
    # Of the machine: its memory.
    (r"^process +\d+$", "process <n>"),
    (r"\bs[0-9A-HJKMNP-TV-Z]{13}\b", "<sluid>"),
)
#: what is replaced in columns, whose width stays
COLUMNS = (
    (r"\b1[7-9]\d{8}\b", "<seconds>"),
    # Only what is shorter than three minutes: how long a job ran, and no limit.
    (r"(?<![T\d:-])00:0[0-2]:\d\d(?:\.\d+)?(?![\d:])", "<dur>"),
    (r"(?<![\d:-])[0-2]:\d\d(?![\d:])", "<dur>"),
    (r"\b\d\d:\d\d\.\d{3}\b", "<cpu>"),
)
#: a line of ps
PROCESS = re.compile(r" *\d+ +\d+ +\d+ +\d+ \S|<id> +\d")

#: where a number is the id of a job
ID_PLACES = (
    r"(?<=batch job )\d+",
    r"(?<=[Jj]ob )\d+",
    r"(?<=JOB )\d+|(?<=STEP )\d+(?=\.)|(?<=[Jj]ob allocation )\d+",
    r"(?<=job=)\d+|(?<=job id )\d+|(?<=step id )\d+|(?<=StepId=)\d+|(?<=step )\d+(?=\.)",
    r"(?<=Script for )\d+|(?<=used for )\d+",
    r"(?<=[Jj]ob[Ii]d=)\d+",
    r"(?<=[Jj]ob[Ii]d )\d+",
    r"(?<=JOB_ID=)\d+",
    r"(?<=JOBID=)\d+",
    r"(?<=HetJobId=)\d+",
    r"(?<=slurm-)\d+",
    r"(?<=\bafter:)\d+|(?<=\bafter[a-z]{2}:)\d+|(?<=\bafter[a-z]{3}:)\d+|(?<=\bafter[a-z]{4}:)\d+"
    r"|(?<=\bafter[a-z]{5}:)\d+|(?<=\bafter[a-z]{11}:)\d+",
    r"(?<=-%-)\d+(?=\.out)",
    r"(?<=\barr-)\d+|(?<=\bperm-)\d+|(?<=\bo-)\d+(?=-7)|(?<=\bo-<id>-7-)\d+",
    r'(?<="job_id": )\d+|(?<=job_id: )\d+|(?<=^      ")\d+(?="$)',
)
#: the same in the commands of a transcript
ID_ARGUMENTS = (
    r"(?<=-j )\d+(?:,\d+)*|(?<=afterok:)\d+",
    r"(?<=show job )\d+|(?<=batch_script )\d+|(?<=show step )\d+|(?<=listpids )\d+",
    r"(?<=wait_job )\d+|(?<=top )\d+|(?<=notify )\d+|(?<=sstat )\d+(?=$|\.)",
    r"(?<=job=)\d+|(?<=jobid=)\d+|(?<=perm-)\d+|(?<=slurm-)\d+",
    r"(?<=requeue )\d+|(?<=requeuehold )\d+|(?<=hold )\d+|(?<=release )\d+",
    r"(?<=suspend )\d+|(?<=resume )\d+|(?<=scancel )\d+|(?<=scancel -v )\d+",
    r"(?<=-s [A-Z]{3} )\d+|(?<=-s [A-Z]{4} )\d+|(?<=-s 0 )\d+",
)


@dataclass
class Record:
    """One command of a transcript and its answer."""

    #: the name of the file, and the number before it
    theme: str
    number: int
    command: str
    stdout: str
    stderr: str
    exit: str


def parse(theme: str, text: str, number: int = 0) -> list[Record]:
    """The commands of one transcript, in their order."""
    return [
        Record(
            theme, number, found["command"], found["stdout"], found["stderr"] or "", found["exit"]
        )
        for found in RECORD.finditer(text)
    ]


def themes(directory: Path) -> dict[str, list[Record]]:
    """Theme -> its commands, for every NNN-theme.txt in `directory`, in order of number."""
    found = {}
    for path in sorted(directory.glob("[0-9][0-9][0-9]-*.txt")):
        number, theme = path.stem.split("-", 1)
        found[theme] = parse(theme, path.read_text(errors="replace"), int(number))
    return found


@dataclass
class Marks:
    """What the marks of one recording stand for; one per recording, fed theme by theme."""

    host: str
    #: number of the user alice
    alice: str = ""
    #: id of a job -> the mark of the command that submitted it
    jobs: dict[str, str] = field(default_factory=dict)

    def learn(self, label: str, ids: list[str]) -> None:
        for number, one in enumerate(ids):
            self.jobs[one] = f"<{label}{'abcdefgh'[number % 8] if len(ids) > 1 else ''}>"

    def job(self, number: str) -> str:
        return number if number == NEVER_A_JOB else self.jobs.get(number, "<id>")

    def known(self, number: str) -> str:
        return "<alice>" if number == self.alice else self.jobs.get(number, number)

    def jobs_of(self, text: str) -> str:
        return ",".join(self.job(one) for one in text.split(","))


def submitted(record: Record) -> list[str]:
    """The ids of the jobs that a command submitted."""
    if "sbatch" not in record.command:
        return []
    return [first or second for first, second in SUBMITTED.findall(record.stdout)]


def swap(line: str, pattern: str, text: str | Callable[[str], str], once: bool = False) -> str:
    """Replaces each match in a line (or the first); blanks beside it make up for the width."""
    at = 0
    while found := re.compile(pattern).search(line, at):
        if found.start() == found.end():
            break
        new = text(found[0]) if callable(text) else text
        grown = len(new) - len(found[0])
        before, after = line[: found.start()], line[found.end() :]
        # A field is padded on one side: right-justified where two blanks (or the start) precede.
        word = after.split(" ", 1)[0]
        after = after[len(word) :]
        room_before = len(before) - len(before.rstrip(" "))
        room_after = len(after) - len(after.lstrip(" "))
        if room_after > 1 and room_before <= 1 and (before.strip() or not before):
            after = " " * max(1, room_after - grown) + after.lstrip(" ")
        elif room_before > 1 or (room_before == 1 and not before.strip()):
            before = before.rstrip(" ") + " " * max(1, room_before - grown)
        line = before + new + word + after
        at = len(before) + len(new)
        if once:
            break
    return line


def _line(line: str, marks: Marks, record: Record, listing: bool) -> str:
    for pattern, new in PLAIN:
        line = re.sub(pattern, new, line)
    line = re.sub(rf"(?<![\w.-]){re.escape(marks.host)}(?![\w.-])", "<host>", line)
    for pattern, new in COLUMNS:
        if record.theme != "sbatch-time-formats":
            line = swap(line, pattern, new)
    for place in ID_PLACES:
        line = re.sub(place, lambda found: marks.job(found[0]), line)
    if listing and re.match(r"\s*\d+(?=[_.+|;\s]|$)", line):
        line = swap(line, r"(?<!\S)\d+", marks.job, once=True)
    shows_jobs = "squeue" in record.command or "--json show job" in record.command
    if record.theme.startswith("squeue-") and shows_jobs:
        # Ids in other columns: those of the recordings have three digits or more.
        line = swap(line, r"(?<![\w<:.-])\d{3,}(?=[_x|\s]|$)", marks.known)
    if "jobidraw" in record.command or record.command.startswith("sacct -l"):
        line = swap(line, r"(?<=> )\d+(?=\.| )|(?<=\|)\d+(?=\.batch\||\|)", "<id>")
    return line


def normal(record: Record, marks: Marks) -> list[str]:
    """The answer of a command as lines to be compared: what varies from run to run is a mark."""
    asks = re.search(r"\b(squeue|sacct)\b|--parsable|arr-\*", record.command)
    listing = asks is not None and "wc -l" not in record.command
    lines = [_line(line, marks, record, listing) for line in record.stdout.splitlines()]
    if record.theme == "env-batch":
        # What else ran on the machine.
        lines = [line for line in lines if not PROCESS.match(line)]
    lines += ["stderr: " + _line(line, marks, record, False) for line in record.stderr.splitlines()]
    return [*lines, f"exit {record.exit}"]


def command(record: Record, marks: Marks) -> str:
    """The command with its job ids as marks."""
    text = record.command
    for place in ID_ARGUMENTS:
        text = re.sub(place, lambda found: marks.jobs_of(found[0]), text)
    return text
