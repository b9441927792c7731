"""sacctmgr's changes of the database, with what a real Slurm (22.05.8) said to the same words."""

from __future__ import annotations

import msgspec
import pytest
from unit.policy_support import LedgerReader, peer

from gsched.client import RequestRefused
from gsched.model.acct import AcctJob
from gsched.model.policy import Account, Assoc
from gsched.wire.messages import AcctQuery, AcctRows, Refused
from gsched.wire.report import ReportQuery, ReportRows, RunawayRow, TransactionRow

#: 2026-11-30T13:14:20 UTC
T0 = 1796044460
NO_ENTITY = 'No valid entity in archive command\nInput line must include, "Dump", or "load"\n'


class _Peer(LedgerReader):
    """With attempts that accounting knows."""

    rows: list[AcctJob]

    def accounting(self, query: AcctQuery) -> AcctRows:
        from gsched.accounting.choose import Choice

        choice = Choice(query)
        return AcctRows(1, [row for row in self.rows if choice.takes(row)], [], False)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> _Peer:
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()
    found = peer()
    found.__class__ = _Peer
    assert isinstance(found, _Peer)
    found.rows = [_job(1), _job(2), _job(14), _job(14, 1), _job(19, end_time=0, state="RUNNING")]
    found.report_rows["change"] = ReportRows(
        [RunawayRow(n, tries, "", "", "", "", "", T0, T0, T0) for n, tries in ((1, 0), (14, 1))]
    )
    for kind in ("mend", "archive", "load"):
        found.report_rows[kind] = ReportRows([])
    return found


def _job(number: int, restarts: int = 0, **fields: object) -> AcctJob:
    base: dict[str, object] = {"submit": T0, "eligible": T0, "start": T0 + 1, "end_time": T0 + 1}
    return AcctJob(number, restarts, T0, number, 0, **(base | {"state": "FAILED"} | fields))  # type: ignore[arg-type]


def test_modify_job(made: _Peer) -> None:
    made.clock = T0 + 60
    assert made.do("-i modify job where jobid=1 set comment=hi derivedexitcode=5:3") == (
        " Modified jobs...\n  1 submitted at 2026-11-30T13:14:20\n"
    )
    assert made.reports[-1] == ReportQuery(
        "change", only={"ids": ["/1/0"], "comment": ["hi"], "derived_wstatus": ["5"]}
    )
    # Of a job that ran twice, the last time; derivedexitstring is the comment.
    made.do("-i modify job jobid=14 set derivedexitstring=x AdminComment=y newwckey=z")
    assert made.reports[-1].only == {
        "ids": ["/14/1"],
        "comment": ["x"],
        "admin_comment": ["y"],
        "wckey": ["z"],
    }


def test_modify_job_asks(made: _Peer) -> None:
    made.clock = T0 + 60
    line = "modify job where jobid=1 set comment=asked"
    out, err, code = made.ask(line, "n\n")
    assert out == (
        " Modified jobs...\n  1 submitted at 2026-11-30T13:14:20\n"
        "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n"
        " Changes Discarded\n"
    )
    assert (err, code, made.reports) == ("", 0, [])
    made.ask(line, "y\n")
    assert made.reports[-1].only["comment"] == ["asked"]


@pytest.mark.parametrize(
    ("line", "out", "err"),
    [
        ("modify job", "", " You didn't give me anything to set\n"),
        ("modify job where jobid=1", "", " You didn't give me anything to set\n"),
        (
            "modify job 2 set derivedexitcode=5",
            "",
            " Unknown condition: 2\n Use keyword 'set' to modify value\n",
        ),
        (
            "modify job where foo=1 set comment=x",
            "",
            " Unknown condition: foo=1\n Use keyword 'set' to modify value\n",
        ),
        (
            "modify job where jobid=1 set foo=x",
            " Unknown option: foo=x\n Use keyword 'where' to modify condition\n",
            " You didn't give me anything to set\n",
        ),
        (
            "modify job where jobid=2 set derivedexitcode=abc",
            "",
            "sacctmgr: error: Invalid value for DerivedExitCode (abc)\n"
            " You didn't give me anything to set\n",
        ),
        (
            "modify job where jobid=abc set comment=x",
            "",
            "sacctmgr: fatal: Bad job/step specified: abc\n",
        ),
        (
            "modify job where endtime=foo set comment=x",
            "",
            "Invalid time specification (pos=0): foo\n",
        ),
        ("modify job where jobid=99 set comment=x", "", " Nothing modified\n"),
        ("modify job where jobid=19 set comment=x", "", " Nothing modified\n"),
        ("modify job where cluster=foo set comment=x", "", " Nothing modified\n"),
        ("archive", "", NO_ENTITY),
        ("archive foo", "", NO_ENTITY),
        ("archive dump foo=1", "", " Unknown condition: foo=1\n"),
        (
            "archive dump PurgeJobAfter=xx",
            "",
            "sacctmgr: error: Invalid purge string 'xx'\n",
        ),
        ("archive load foo=/x", "", " Unknown option: foo=/x\n"),
        (
            "clear",
            "",
            'No valid entity in list command\nInput line must include "Stats"\n',
        ),
        ("reconfigure foo", "", "too many arguments for reconfigure keyword\n"),
    ],
)
def test_refusals(made: _Peer, line: str, out: str, err: str) -> None:
    assert made.ask(f"-i {line}") == (out, err, 1)
    assert made.reports == []


def test_archive(made: _Peer) -> None:
    made.do("-i archive dump Directory=/var/arch Jobs Events PurgeJobAfter=12hours Suspend")
    assert made.reports[-1] == ReportQuery(
        "archive",
        only={
            "archivedir": ["/var/arch"],
            "archivejobs": ["yes"],
            "archiveevents": ["yes"],
            "purgejobafter": ["12hours"],
        },
    )
    before = len(made.reports)
    out, _, code = made.ask("archive dump", "n\n")
    assert out == (
        "This may result in loss of accounting database records (if Purge* options enabled).\n"
        "Are you sure you want to continue? (You have 30 seconds to decide)\n(N/y): \n"
    )
    assert (code, len(made.reports)) == (1, before)
    made.do("archive load file=/var/arch/jobs.gz")
    assert made.reports[-1] == ReportQuery("load", only={"file": ["/var/arch/jobs.gz"]})


def test_who_may_not(made: _Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, query: ReportQuery) -> ReportRows:
        raise RequestRefused(Refused(b"", "Access/permission denied", "ESLURM_ACCESS_DENIED"))

    monkeypatch.setattr(_Peer, "report", refuse, raising=False)
    assert made.ask("-i archive dump") == (
        "",
        "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
        " Problem dumping archive: Access/permission denied\n",
        1,
    )


def test_runaway_jobs(made: _Peer) -> None:
    made.report_rows["runaway"] = ReportRows(
        [
            RunawayRow(900, 0, "a2", "gpu", "prod", "root", "RUNNING", T0, T0 + 1, 0),
            RunawayRow(901, 2, "a2", "gpu", "prod", "root", "PENDING", T0, 0, 0),
        ]
    )
    out, err, code = made.ask("show runaway", "n\n")
    assert out == (
        "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and "
        "no end time in the database\n"
        "ID                 Name  Partition    Cluster      State          TimeSubmit           "
        "TimeStart             TimeEnd \n"
        "------------ ---------- ---------- ---------- ---------- ------------------- "
        "------------------- ------------------- \n"
        "900                  a2        gpu       peer    RUNNING 2026-11-30T13:14:20 "
        "2026-11-30T13:14:21             Unknown \n"
        "901                  a2        gpu       peer    PENDING 2026-11-30T13:14:20 "
        "            Unknown             Unknown \n"
        "\nWould you like to fix these runaway jobs?\n(This will set the end time for each job to "
        "the latest out of the start, eligible, or submit times, and set the state to completed.\n"
        "Once corrected, this will trigger the rollup to reroll usage from before the earliest "
        "submit time of all the runaway jobs.)\n\n (You have 30 seconds to decide)\n(N/y): \n"
        " Changes Discarded\n"
    )
    assert (err, code) == ("", 0)
    out = made.do("-i -n show runaway format=id%5,state")
    assert out.splitlines()[1:] == ["  900 RUNNI+ ", "  901 PENDI+ "]
    assert made.reports[-1] == ReportQuery("mend", only={"ids": ["/900/0", "/901/2"]})


def test_with_deleted(made: _Peer) -> None:
    def gone(kind: str, name: str, record: msgspec.Struct) -> TransactionRow:
        return TransactionRow(T0, name, kind, "", msgspec.json.encode(record).decode())

    made.report_rows["deleted"] = ReportRows(
        [
            gone("account", "x1", Account("x1", "x1", "x1")),
            gone("assoc", "908", Assoc(908, "x1", "", parent="root")),
            gone("assoc", "911", Assoc(911, "x1", "root")),
        ]
    )
    assert "x1" not in made.do("-P -n show account")
    assert "x1|x1|x1\n" in made.do("-P -n show account withdeleted")
    lines = made.do("-P -n show assoc withdeleted format=account,user,id").splitlines()
    assert {"x1||908", "x1|root|911"} < set(lines)
