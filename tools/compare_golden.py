#!/usr/bin/env python3
"""Compares what gsched's commands answer with golden transcripts of a real Slurm.

    compare_golden.py [THEME ...]            a throw-away cluster, every theme or those named
    compare_golden.py --from DIR [THEME ...] a recording made earlier (--keep DIR)
    compare_golden.py --write-docs           write the known differences into docs/compatibility.md

The commands are those of the environment that this script runs in (or of PATH). The transcripts and
the program that records them are in $GSCHED_SHARED/golden (default ../shared). Some cases run as
alice and bob; as root they are made with useradd where they are missing.

Every difference must be named in tools/golden_expected.toml, with its reason: then the exit code is
0, otherwise 1 (2: could not compare).
"""

from __future__ import annotations

import argparse
import difflib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import golden_text as text

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
EXPECTED = TOOLS / "golden_expected.toml"
DOCS = ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- written by tools/compare_golden.py --write-docs -->"
END = "<!-- end of what tools/compare_golden.py wrote -->"

#: commands that are there; others of Slurm's are stubs, so that no other installation answers
OURS = (
    *("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "slurmctld", "slurmd"),
    *("srun", "salloc", "sattach", "sbcast", "sstat", "sacctmgr", "sprio", "sreport", "sshare"),
)
ABSENT = ("strigger", "sdiag", "smap", "sview", "scrontab", "sgather")
USES_ABSENT = re.compile(rf"(?<![\w./-])(?:{'|'.join(ABSENT)})(?![\w=.-])")

#: themes of the commands that are there
THEMES = (
    *("sbatch-basic", "sbatch-parsable", "sbatch-wrap", "sbatch-bad-options"),
    *("sbatch-script-errors", "sbatch-limits-reached", "sbatch-array", "sbatch-dependency"),
    *("sbatch-test-only", "sbatch-hold-begin-priority", "sbatch-env-export", "sbatch-gpu-options"),
    *("sbatch-tasks-nodes", "sbatch-time-formats", "sbatch-output-patterns", "sbatch-wait"),
    *("sbatch-help-usage", "env-batch", "env-array", "env-het", "squeue-views", "squeue-format"),
    *("squeue-json", "squeue-reasons", "squeue-reasons-2", "scancel", "exit-codes", "time-limit"),
    *("scontrol-show", "scontrol-update", "sinfo-views", "sacct-views", "requeue", "permissions"),
    *("env-srun-task", "env-srun-alone", "env-salloc", "sstat", "srun-outside", "srun-inside"),
    *("srun-signals", "salloc", "sbcast-sattach-strigger-misc"),
    *("many-sbatch-directives", "options-and-fields"),
)
#: accounts, users and QOS of the recordings, as options of sacctmgr
ACCOUNTS = (
    "add account research Description=research Organization=lab Fairshare=60",
    "add account prod Description=prod Organization=lab Fairshare=40",
    "modify qos normal set Priority=10",
    "add qos low Priority=0 PreemptMode=requeue",
    "add qos high Priority=100 Preempt=low,normal",
    *(
        f"add user {name} Account=research DefaultAccount=research"
        for name in ("root", "alice", "bob", "nobody")
    ),
    "add user bob Account=prod",
    "add user root Account=prod",
    "modify user root set DefaultAccount=research",
    # The account that `gsched up` makes for everybody.
    "delete user root Account=users",
    "delete account users",
    "add qos capped Priority=10 MaxTRESPerUser=gres/gpu=4 MaxSubmitJobsPerUser=3 MaxWall=02:00:00",
    *(
        f"modify account where name={name} set qos=normal,low,high,capped DefaultQOS=normal"
        for name in ("root", "research", "prod")
    ),
)
#: the number of alice in the transcripts
ALICE = "1001"
FIRST_ID = 501
#: makes the script that later themes submit
FIRST = "sbatch-basic"
#: the theme that capture.py has no case for
LISTS = "options-and-fields"
#: these look at the queue that the one before left
TOGETHER = ("squeue-views", "squeue-format", "squeue-json", "squeue-reasons")


#: lines of a difference that are shown
MOST = 80


class Problem(Exception):
    """The comparison cannot be made; the text is one sentence."""


@dataclass(frozen=True)
class Entry:
    """One known difference.

    kind "skip": the command is not compared. "change": `lines` (a pattern) in the golden text reads
    `becomes` here. "differs": lines that match `lines` may be there or not; without it, anything.
    "order": the same lines in another order.
    """

    kind: str
    theme: re.Pattern[str]
    command: re.Pattern[str]
    reason: str
    section: str
    lines: re.Pattern[str] | None = None
    becomes: str = ""

    def concerns(self, theme: str, *commands: str) -> bool:
        """`commands`: the command as it was given, and with marks for the ids in it."""
        return bool(self.theme.fullmatch(theme)) and any(map(self.command.search, commands))


@dataclass
class Outcome:
    """What became of one command: equal, known, different or skipped."""

    verdict: str
    command: str
    diff: list[str] = field(default_factory=list)
    entries: set[int] = field(default_factory=set)


def load_expected(path: Path = EXPECTED) -> list[Entry]:
    """The list of known differences; Problem for an entry that cannot be understood."""
    entries = []
    for raw in tomllib.loads(path.read_text())["entry"]:
        unknown = set(raw) - {"kind", "theme", "command", "reason", "lines", "becomes", "section"}
        if unknown or raw.get("kind") not in ("skip", "change", "differs", "order"):
            raise Problem(f"{path.name}: an entry is not understood: {raw}")
        if raw["kind"] == "change" and "lines" not in raw:
            raise Problem(f"{path.name}: a change needs lines: {raw}")
        entries.append(
            Entry(
                raw["kind"],
                re.compile(raw.get("theme", ".*")),
                re.compile(raw.get("command", "")),
                raw["reason"],
                raw["section"],
                re.compile(raw["lines"]) if "lines" in raw else None,
                raw.get("becomes", ""),
            )
        )
    return entries


def compare(
    golden: text.Record,
    ours: text.Record,
    marks: tuple[text.Marks, text.Marks],
    expected: list[Entry],
) -> Outcome:
    """The outcome of one command."""
    command = text.command(golden, marks[0])
    mine = [
        (number, entry)
        for number, entry in enumerate(expected)
        if entry.concerns(golden.theme, golden.command, command)
    ]
    if USES_ABSENT.search(golden.command):
        return Outcome("skipped", command)
    for number, entry in mine:
        if entry.kind == "skip":
            return Outcome("skipped", command, entries={number})
    if re.search(r" (--help\w*|--usage|help)$", golden.command):
        # Wording is not compared, only what is listed. An option more is no difference: Slurm's own
        # texts leave some out. A name may be cut short.
        names = listed(ours.stdout + ours.stderr)
        left = [*sorted(listed(golden.stdout + golden.stderr)), f"exit {golden.exit}"]
        both = [one for one in left[:-1] if any(name.startswith(one) for name in names)]
        right = [*both, f"exit {ours.exit}"]
    else:
        left, right = text.normal(golden, marks[0]), text.normal(ours, marks[1])
    if left == right:
        return Outcome("equal", command)
    used: set[int] = set()
    for number, entry in mine:
        if entry.kind == "change" and entry.lines is not None:
            changed = [entry.lines.sub(entry.becomes, line) for line in left]
            # An entry that does not bring the texts nearer is none of this command's.
            if changed != left and distance(changed, right) < distance(left, right):
                left = changed
                used.add(number)
    for number, entry in mine:
        if entry.kind == "order" and left != right:
            left, right = [*sorted(left[:-1]), left[-1]], [*sorted(right[:-1]), right[-1]]
            used.add(number)
    diff = list(difflib.unified_diff(left, right, "slurm", "gsched", n=1, lineterm=""))
    open_lines = 0
    for line in diff[2:]:
        if line[0] not in "+-":
            continue
        for number, entry in mine:
            if entry.kind == "differs" and (not entry.lines or entry.lines.search(line[1:])):
                used.add(number)
                break
        else:
            open_lines += 1
    return Outcome("different" if open_lines else "known", command, diff, used)


def distance(left: list[str], right: list[str]) -> int:
    """How many lines two answers do not share, and how much of those differs."""
    one, other = Counter(left), Counter(right)
    only_left, only_right = list((one - other).elements()), list((other - one).elements())
    apart = sum(
        round(100_000 * (1 - difflib.SequenceMatcher(None, a, b).ratio()))
        for a, b in zip(only_left[:200], only_right[:200], strict=False)
    )
    return 100_000 * abs(len(only_left) - len(only_right)) + apart


def listed(help_text: str) -> set[str]:
    """What a help text lists: its options by their long names; the words of a list of fields."""
    options = set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*\w", help_text))
    return options or set(re.findall(r"\S+", help_text))


def compare_all(
    golden: Path, recorded: Path, expected: list[Entry], names: list[str]
) -> dict[str, list[Outcome]]:
    """Theme -> outcomes of its commands, for the themes that were recorded."""
    theirs, ours = text.themes(golden), text.themes(recorded)
    marks = (
        text.Marks("vm", ALICE),
        text.Marks(os.uname().nodename.split(".")[0], uid_of("alice")),
    )
    results: dict[str, list[Outcome]] = {}
    for theme, records in ours.items():
        if theme not in theirs:
            raise Problem(f"there is no golden transcript of {theme} in {golden}")
        if len(theirs[theme]) != len(records):
            raise Problem(
                f"{theme}: {len(records)} commands were recorded, the golden transcript has "
                f"{len(theirs[theme])}: it is of other cases"
            )
        outcomes = []
        for number, (left, right) in enumerate(zip(theirs[theme], records, strict=True)):
            label = f"{left.number}.{number}"
            for side, record in zip(marks, (left, right), strict=True):
                side.learn(label, text.submitted(record))
            outcomes.append(compare(left, right, marks, expected))
        if theme in names:
            results[theme] = outcomes
    return results


# ---- recording ---------------------------------------------------------------------------------


@contextmanager
def command_path() -> Iterator[Path]:
    """A directory with the commands that are there, and stubs (exit 127) for those that are not."""
    here = Path(sys.executable).parent
    found = {
        name: str(here / name) if (here / name).exists() else shutil.which(name) for name in OURS
    }
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise Problem(f"{', '.join(missing)} cannot be found: install gsched first")
    with tempfile.TemporaryDirectory(prefix="gsched-golden.") as name:
        directory = Path(name)
        directory.chmod(0o755)
        for one, path in found.items():
            (directory / one).symlink_to(str(path))
        for one in ABSENT:
            stub = directory / one
            stub.write_text(f'#!/bin/sh\necho "{one}: not here yet" >&2\nexit 127\n')
            stub.chmod(0o755)
        yield directory


@contextmanager
def throw_away_cluster() -> Iterator[str]:
    """A simulated cluster of the golden transcripts' shape; gives its SLURM_CONF."""
    here = Path(sys.executable).parent / "gsched"
    gsched = str(here) if here.exists() else shutil.which("gsched")
    if gsched is None:
        raise Problem("gsched cannot be found: install it first")
    base = Path(tempfile.mkdtemp(prefix="gsched-golden-cluster."))
    base.chmod(0o755)
    try:
        # Ids as long as those of the transcripts: columns are cut at the same places.
        shape = ["--simulate", "peer", "--set", f"FirstJobId={FIRST_ID}"]
        shape += ["--set", "AccountingStorageEnforce=associations,limits,qos"]
        subprocess.run([gsched, "up", "-q", "--dir", str(base / "c"), *shape], check=True)
        slurm_conf = str(base / "c" / "etc" / "slurm.conf")
        add_accounts(slurm_conf)
        yield slurm_conf
    except subprocess.CalledProcessError as error:
        raise Problem(f"the cluster does not come up (exit code {error.returncode})") from None
    finally:
        subprocess.run([gsched, "down", "--purge", "--dir", str(base / "c")], capture_output=True)
        shutil.rmtree(base, ignore_errors=True)


def add_accounts(slurm_conf: str) -> None:
    """The accounts of the recordings."""
    sacctmgr = shutil.which("sacctmgr")
    if sacctmgr is None:
        raise Problem("sacctmgr cannot be found: install gsched first")
    for words in ACCOUNTS:
        ran = subprocess.run(
            [sacctmgr, "-i", *words.split()],
            env={**os.environ, "SLURM_CONF": slurm_conf},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise Problem(f"sacctmgr {words}: {ran.stderr.strip() or ran.stdout.strip()}")


def uid_of(name: str) -> str:
    """The number of a user as text; "" if there is no such user."""
    try:
        return str(pwd.getpwnam(name).pw_uid)
    except KeyError:
        return ""


def make_users() -> None:
    """alice and bob, as whom some cases run."""
    for name in ("alice", "bob"):
        if not uid_of(name):
            if os.geteuid() != 0:
                raise Problem(f"there is no user {name}, and only root can make one")
            print(f"making the user {name}", file=sys.stderr)
            subprocess.run(["useradd", "-m", name], check=True)


def record(shared: Path, slurm_conf: str, out: Path, names: list[str]) -> None:
    """Records the themes into `out` on the cluster of `slurm_conf`, which must be idle."""
    wanted = {FIRST, *names} - {LISTS}
    if wanted & set(TOGETHER):
        wanted |= set(TOGETHER[: max(TOGETHER.index(w) for w in wanted & set(TOGETHER)) + 1])
    with command_path() as path:
        env = {**os.environ, "SLURM_CONF": slurm_conf, "PEER_PATH": str(path)}
        subprocess.run(
            [sys.executable, str(shared / "golden" / "capture.py"), str(out), *sorted(wanted)],
            env=env,
            check=True,
            stdout=sys.stderr,
        )
        if LISTS in names:
            record_lists(shared, out, env)


def record_lists(shared: Path, out: Path, env: dict[str, str]) -> None:
    """The theme that is no case of capture.py: what each command lists of its options."""
    (file,) = (shared / "golden" / "26.05").glob(f"[0-9]*-{LISTS}.txt")
    env = {**env, "PATH": f"{env['PEER_PATH']}:{os.environ['PATH']}"}
    parts = []
    for one in text.parse(LISTS, file.read_text()):
        ran = subprocess.run(
            ["bash", "-c", one.command], env=env, capture_output=True, text=True, timeout=60
        )
        answer = f"--- stdout\n{ran.stdout}--- stderr\n{ran.stderr}--- exit {ran.returncode}"
        parts.append(f"$ {one.command}\n{answer}\n\n")
    (out / file.name).write_text("".join(parts))


# ---- documentation -----------------------------------------------------------------------------


def rendered(entries: list[Entry]) -> str:
    """The known differences as a list for docs/compatibility.md: each reason once, by section."""
    sections: dict[str, list[str]] = {}
    for entry in entries:
        reasons = sections.setdefault(entry.section, [])
        if entry.reason not in reasons:
            reasons.append(entry.reason)
    parts = [BEGIN]
    for section, reasons in sections.items():
        parts.append(f"\n### {section}\n")
        parts += [f"* {reason}" for reason in reasons]
    return "\n".join([*parts, "", END])


def with_section(page: str, entries: list[Entry]) -> str:
    """The page with what stands between the marks written anew."""
    if BEGIN not in page or END not in page:
        raise Problem(f"{DOCS.name} has no marks to write between")
    before, rest = page.split(BEGIN, 1)
    return before + rendered(entries) + rest.split(END, 1)[1]


# ---- the command -------------------------------------------------------------------------------


def report(results: dict[str, list[Outcome]], entries: list[Entry], everything: bool) -> bool:
    """Prints the outcomes; whether no difference is unknown."""
    total: Counter[str] = Counter()
    used: set[int] = set()
    for theme, outcomes in results.items():
        for outcome in outcomes:
            used |= outcome.entries
            if outcome.verdict == "different" or (everything and outcome.verdict == "known"):
                print(f"\n{theme} ({outcome.verdict}): $ {outcome.command}")
                print("\n".join(outcome.diff[:MOST]))
                if len(outcome.diff) > MOST:
                    print(f"... and {len(outcome.diff) - MOST} lines more")
    print(f"\n{'theme':28}{'equal':>8}{'known':>8}{'different':>11}{'not compared':>14}")
    for theme, outcomes in results.items():
        counts = Counter(outcome.verdict for outcome in outcomes)
        total += counts
        print(_row(theme, counts))
    print(_row("all", total))
    if set(results) == set(THEMES):
        for number in sorted(set(range(len(entries))) - used):
            entry = entries[number]
            print(
                f"note: nothing needs {entry.kind} {entry.theme.pattern} "
                f"{entry.command.pattern!r} {entry.lines.pattern if entry.lines else ''!r}"
            )
    return total["different"] == 0


def _row(name: str, counts: Counter[str]) -> str:
    return (
        f"{name:28}{counts['equal']:8}{counts['known']:8}{counts['different']:11}"
        f"{counts['skipped']:14}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "themes", nargs="*", metavar="THEME", help="themes, or parts of their names"
    )
    parser.add_argument("--from", dest="recorded", type=Path, metavar="DIR", help="a recording")
    parser.add_argument("--cluster", metavar="SLURM_CONF", help="an idle cluster of your own")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recording here")
    parser.add_argument("--all", action="store_true", help="show the known differences too")
    parser.add_argument("--write-docs", action="store_true", help=f"write {DOCS.name} and stop")
    options = parser.parse_args()
    # Ended by a signal, it still takes its cluster down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        expected = load_expected()
        if options.write_docs:
            DOCS.write_text(with_section(DOCS.read_text(), expected))
            return 0
        shared = Path(os.environ.get("GSCHED_SHARED", ROOT.parent / "shared")).resolve()
        golden = shared / "golden" / "26.05"
        if not golden.is_dir():
            raise Problem(f"there are no transcripts in {golden}: set GSCHED_SHARED")
        names = [
            theme
            for theme in THEMES
            if not options.themes or any(part in theme for part in options.themes)
        ]
        if not names:
            raise Problem(f"no theme is called {options.themes[0]}")
        with tempfile.TemporaryDirectory(prefix="gsched-golden-out.") as scratch:
            out = options.recorded or options.keep or Path(scratch)
            if options.recorded is None:
                make_users()
                if options.cluster:
                    record(shared, options.cluster, out, names)
                else:
                    with throw_away_cluster() as slurm_conf:
                        record(shared, slurm_conf, out, names)
            results = compare_all(golden, out, expected, names)
        return 0 if report(results, expected, options.all) else 1
    except (Problem, OSError, subprocess.CalledProcessError) as error:
        print(f"compare_golden: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
