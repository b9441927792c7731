"""`scontrol show assoc_mgr`: limits of users, associations and QOS, with what is in use of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gsched import tres
from gsched.model import Job, JobState, Verdict
from gsched.model.policy import SHARES_PARENT, Assoc, Qos, Tres
from gsched.policy import Book
from gsched.policy.fairshare import Standing
from gsched.taskset import TaskSet
from gsched.wire.messages import JobQuery
from gsched_cli import sacctmgr_fields, sacctmgr_list
from gsched_cli.fields_job import accrue_time
from gsched_cli.jobview import JobView
from gsched_cli.process import uid_of
from gsched_cli.sacctmgr_fields import AssocRow
from gsched_cli.sacctmgr_table import Look
from gsched_cli.standing import measured
from gsched_cli.stop import Stop, asking, cluster_config

if TYPE_CHECKING:
    from gsched_cli.common import Reader, Streams

NAME = "scontrol"
_FLAGS = ("assoc", "qos", "users")
_FINAL = (JobState.RUNNING, JobState.SUSPENDED)


class _Sum:
    """What the jobs of one association, QOS, user or account use."""

    def __init__(self) -> None:
        self.running = 0
        self.submitted = 0
        #: waiting jobs that grow older
        self.accruing = 0
        self.tres: dict[str, int] = {}
        #: TRES-seconds that running jobs may still use
        self.left: dict[str, float] = {}

    def add(self, job: Job, counts: Tres, left: int, *, accrues: bool) -> None:
        runs = job.state in _FINAL
        tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
        self.submitted += tasks
        if not runs:
            self.accruing += tasks if accrues else 0
            return
        self.running += 1
        for name, count in counts.items():
            self.tres[name] = self.tres.get(name, 0) + count
            self.left[name] = self.left.get(name, 0) + count * left


class _Sums:
    """All of them. Cost: the depth of the tree for each job that has not ended."""

    def __init__(
        self, book: Book, jobs: Iterable[Job], verdicts: Mapping[int, Verdict], now: float
    ) -> None:
        self._of: dict[tuple[str, object], _Sum] = {}
        for job in jobs:
            if job.finished:
                continue
            counts = tres.allocated(job) if job.state in _FINAL else {}
            left = max(0, job.end_time - int(now)) if job.time_limit else 0
            accrues = accrue_time(JobView(job, verdicts.get(job.id), now)) > 0
            places: list[tuple[str, object]] = [
                ("qos", job.spec.qos),
                ("qos user", (job.spec.qos, job.user)),
                ("qos account", (job.spec.qos, job.spec.account)),
            ]
            own = book.assocs.get(job.assoc_id)
            if own is not None:
                places += [("assoc", one.id) for one in book.chain(own)]
            for place in places:
                self._of.setdefault(place, _Sum()).add(job, counts, left, accrues=accrues)

    def of(self, kind: str, what: object) -> _Sum:
        return self._of.get((kind, what)) or _Sum()

    def under(self, kind: str, qos: str) -> list[tuple[str, _Sum]]:
        """Users or accounts that have jobs in a QOS, by name."""
        found = []
        for (each, what), one in self._of.items():
            if each == kind and isinstance(what, tuple) and what[0] == qos:
                found.append((what[1], one))
        return sorted(found, key=lambda pair: pair[0])


class _Asked(NamedTuple):
    flags: set[str]
    users: set[str] | None
    accounts: set[str] | None
    qos: set[str] | None


def _asked(words: Sequence[str]) -> _Asked:
    """`flags=`, `users=`, `accounts=`, `qos=`. Stop."""
    flags: set[str] = set()
    lists: dict[str, set[str]] = {}
    for word in words:
        key, sign, value = word.partition("=")
        low = key.lower()
        items = {one.strip().lower() for one in value.split(",") if one.strip()}
        if sign and len(low) >= 1 and "flags".startswith(low):
            for item in items:
                found = [flag for flag in _FLAGS if flag.startswith(item) or flag + "s" == item]
                if not found:
                    raise Stop(
                        1,
                        f"invalid flag '{item}', valid options are 'Assoc, QOS, and/or Users'\n",
                    )
                flags.add(found[0])
            continue
        name = next(
            (one for one in ("users", "accounts", "qos") if sign and low and one.startswith(low)),
            "",
        )
        if not name:
            raise Stop(1, f"invalid entity: {word} for keyword:show assoc_mgr\n")
        lists.setdefault(name, set()).update(items)
    return _Asked(flags or set(_FLAGS), lists.get("users"), lists.get("accounts"), lists.get("qos"))


class _Writer:
    def __init__(self, reader: Reader, streams: Streams, one_line: bool) -> None:
        config = cluster_config(reader, NAME)
        self.now = reader.now()
        found = measured(reader, config, f"{NAME}: error:")
        jobs = asking(lambda: reader.jobs(JobQuery()), f"{NAME}: error:")
        self.book, self.meter, self.standing = found.book, found.meter, found.standing
        self.sums = _Sums(self.book, jobs.jobs, jobs.verdicts, self.now)
        self.known = tres.tracked(config)
        self.cluster = config.cluster_name
        self.state = sacctmgr_list.State(self.book, config, Look())
        self._out = streams.stdout
        self._one_line = one_line

    def head(self, text: str) -> None:
        self._out.write(f"{text}\n" if self._one_line else f"\n{text}\n\n")

    def record(self, lines: Sequence[str], indent: str = "    ") -> None:
        if self._one_line:
            self._out.write(" ".join(line.strip() for line in lines) + "\n")
        else:
            self._out.write(("\n" + indent).join(lines) + "\n")

    def section(self, name: str, what: str, records: Iterable[Sequence[str]]) -> None:
        """Records below their heading; one sentence where there are none."""
        found = list(records)
        self.head(f"{name} Records" if found else f"No {what} currently cached in Slurm.")
        for lines in found:
            self.record(lines)

    def grp(self, limits: Tres, use: Callable[[str], float]) -> str:
        """ "cpu=20(1),mem=N(2000)": each TRES that the cluster counts."""
        names = [*self.known, *(name for name in limits if name not in self.known)]
        return ",".join(f"{name}={limits.get(name, 'N')}({int(use(name))})" for name in names)

    def plain(self, limits: Tres) -> str:
        return tres.text(limits, self.known, convert=False)

    # ---- records --------------------------------------------------------------------------------

    def users(self, asked: _Asked) -> None:
        self.section("User", "users", self._users(asked))

    def _users(self, asked: _Asked) -> Iterator[list[str]]:
        for name, user in sorted(self.book.users.items()):
            if asked.users is not None and name.lower() not in asked.users:
                continue
            uid = uid_of(name)
            yield [
                f"UserName={name}({-1 if uid is None else uid}) "
                f"DefAccount={user.default_account} DefWckey={user.default_wckey} "
                f"AdminLevel={user.admin_level}"
            ]

    def associations(self, asked: _Asked) -> None:
        self.section("Association", "associations", self._assocs(asked))

    def _assocs(self, asked: _Asked) -> Iterator[list[str]]:
        for assoc, _ in sacctmgr_list.ordered(self.book):
            if asked.accounts is not None and assoc.account not in asked.accounts:
                continue
            if assoc.user and asked.users is not None and assoc.user.lower() not in asked.users:
                continue
            yield self._assoc(assoc)

    def _assoc(self, assoc: Assoc) -> list[str]:
        book, whole = self.book, self.book.effective(assoc)
        sums = self.sums.of("assoc", assoc.id)
        used = self.meter.used(assoc.id, self.now)
        standing = self.standing.get(assoc.id) or Standing(assoc, 0, 0)
        # As sshare: of accounts only the classic factor is known.
        factor = standing.factor
        row = AssocRow(assoc, whole, book, self.cluster, self.known)
        siblings = self._siblings(assoc)
        level = sum(one.shares for one in siblings if one.shares != SHARES_PARENT)
        share = "parent" if assoc.shares == SHARES_PARENT else str(assoc.shares)
        norm = assoc.shares / level if level and assoc.parent + assoc.user else 0.0
        user = ""
        if assoc.user:
            uid = uid_of(assoc.user)
            user = f"{assoc.user}({-1 if uid is None else uid})"
        above = book.parent(assoc) if assoc.is_account else None
        parent = f"{above.account}({above.id})" if above is not None else ""
        default = bool(assoc.user) and book.default_account(assoc.user) == assoc.account
        return [
            f"ClusterName={self.cluster} Account={assoc.account} UserName={user} "
            f"Partition={assoc.partition} Priority={whole.priority or 0} ID={assoc.id}",
            f"SharesRaw/Norm/Level/Factor={share}/{max(0.0, norm):.2f}/{level}/{factor:.2f}",
            f"UsageRaw/Norm/Efctv={standing.raw_usage:.2f}/{standing.norm_usage:.2f}/"
            f"{standing.effective:.2f}",
            f"ParentAccount={parent} Lineage={sacctmgr_fields.lineage(row)} "
            f"DefAssoc={'Yes' if default else 'No'}",
            f"GrpJobs={_n(whole.grp_jobs)}({sums.running}) "
            f"GrpJobsAccrue={_n(whole.grp_jobs_accrue)}({sums.accruing})",
            f"GrpSubmitJobs={_n(whole.grp_submit_jobs)}({sums.submitted}) "
            f"GrpWall={_n(whole.grp_wall)}({used.wall / 60:.2f})",
            f"GrpTRES={self.grp(whole.grp_tres, lambda name: sums.tres.get(name, 0))}",
            f"GrpTRESMins={self.grp(whole.grp_tres_mins, lambda n: used.tres.get(n, 0.0) / 60)}",
            "GrpTRESRunMins="
            + self.grp(whole.grp_tres_run_mins, lambda name: sums.left.get(name, 0.0) / 60),
            f"MaxJobs={_with(whole.max_jobs, sums.running)} "
            f"MaxJobsAccrue={_text(whole.max_jobs_accrue)} "
            f"MaxSubmitJobs={_with(whole.max_submit_jobs, sums.submitted)} "
            f"MaxWallPJ={_text(whole.max_wall)}",
            f"MaxTRESPJ={self.plain(whole.max_tres_per_job)}",
            f"MaxTRESPN={self.plain(whole.max_tres_per_node)}",
            f"MaxTRESMinsPJ={self.plain(whole.max_tres_mins_per_job)}",
            f"MinPrioThresh={_text(whole.min_prio_thresh)}",
        ]

    def _siblings(self, assoc: Assoc) -> list[Assoc]:
        above = self.book.parent(assoc)
        if above is None or above.id == assoc.id:
            return [assoc]
        return self.book.below(above.account)

    def qos(self, asked: _Asked) -> None:
        known = sorted(self.book.qos.values(), key=lambda qos: qos.id)
        shown = [one for one in known if asked.qos is None or one.name in asked.qos]
        self.section("QOS", "QOS", map(self._qos, shown))

    def _qos(self, one: Qos) -> list[str]:
        sums = self.sums.of("qos", one.name)
        used = self.meter.used(one.name, self.now)
        lines = [
            f"QOS={one.name}({one.id})",
            f"UsageRaw={used.tres.get('billing', 0.0):.6f}",
            f"GrpJobs={_n(one.grp_jobs)}({sums.running}) "
            f"GrpJobsAccrue={_n(one.grp_jobs_accrue)}({sums.accruing}) "
            f"GrpSubmitJobs={_n(one.grp_submit_jobs)}({sums.submitted}) "
            f"GrpWall={_n(one.grp_wall)}({used.wall / 60:.2f})",
            f"GrpTRES={self.grp(one.grp_tres, lambda name: sums.tres.get(name, 0))}",
            f"GrpTRESMins={self.grp(one.grp_tres_mins, lambda n: used.tres.get(n, 0.0) / 60)}",
            "GrpTRESRunMins="
            + self.grp(one.grp_tres_run_mins, lambda name: sums.left.get(name, 0.0) / 60),
            f"MaxWallPJ={_text(one.max_wall)}",
            f"MaxTRESPJ={self.plain(one.max_tres_per_job)}",
            f"MaxTRESPN={self.plain(one.max_tres_per_node)}",
            f"MaxTRESMinsPJ={self.plain(one.max_tres_mins_per_job)}",
            f"MinPrioThresh={_text(one.min_prio_thresh)}",
            f"MinTRESPJ={self.plain(one.min_tres_per_job)}",
            f"PreemptMode={_mode(one)}",
            f"Priority={one.priority}",
            "Account Limits",
        ]
        lines += self._each("qos account", one, "PA") or ["    No Accounts"]
        lines.append("User Limits")
        return lines + (self._each("qos user", one, "PU") or ["    No Users"])

    def _each(self, kind: str, one: Qos, end: str) -> list[str]:
        by_user = end == "PU"
        jobs = one.max_jobs_pu if by_user else one.max_jobs_pa
        accrue = one.max_jobs_accrue_pu if by_user else one.max_jobs_accrue_pa
        submit = one.max_submit_jobs_pu if by_user else one.max_submit_jobs_pa
        limits = one.max_tres_pu if by_user else one.max_tres_pa
        lines = []
        for name, sums in self.sums.under(kind, one.name):
            counts = self.grp(limits, lambda each, sums=sums: sums.tres.get(each, 0))  # type: ignore[misc]
            lines += [
                f"  {name}",
                f"    MaxJobs{end}={_n(jobs)}({sums.running}) "
                f"MaxJobsAccrue{end}={_n(accrue)}({sums.accruing}) "
                f"MaxSubmitJobs{end}={_n(submit)}({sums.submitted})",
                f"    MaxTRES{end}={counts}",
            ]
        return lines


def _mode(one: Qos) -> str:
    """The cluster's own is none of the QOS's."""
    return "OFF" if one.preempt_mode == "cluster" else one.preempt_mode.upper()


def _n(limit: int | None) -> str:
    return "N" if limit is None else str(limit)


def _text(limit: int | None) -> str:
    return "" if limit is None else str(limit)


def _with(limit: int | None, use: int) -> str:
    return "" if limit is None else f"{limit}({use})"


def show_assoc_mgr(
    words: Sequence[str], reader: Reader, streams: Streams, *, one_line: bool = False
) -> int:
    """The records that are asked for; all where none are. The exit code."""
    asked = _asked(words)
    writer = _Writer(reader, streams, one_line)
    streams.stdout.write("Current Association Manager state\n")
    if "users" in asked.flags:
        writer.users(asked)
    if "assoc" in asked.flags:
        writer.associations(asked)
    if "qos" in asked.flags:
        writer.qos(asked)
    return 0
