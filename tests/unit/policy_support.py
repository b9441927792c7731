"""sacctmgr against a ledger of its own, in one process; and transcripts of a real Slurm's."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unit.ledger_support import CONF, Bench
from views_support import FakeReader, invoke

from gsched.ledger import Write
from gsched.model.policy import Used
from gsched.wire.messages import Call, Reply
from gsched.wire.messages import Write as AnyWrite
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched.wire.report import ReportQuery, ReportRows
from gsched_cli.sacctmgr import run

PEER = CONF + "AccountingStorageTRES=gres/gpu,gres/gpu:h100\nAccountingStorageEnforce=qos\n"
#: what slurm-up sets before anything else
FIRST = """
-i add account research Description=research Organization=lab Fairshare=60
-i add account prod Description=prod Organization=lab Fairshare=40
-i modify qos normal set Priority=10
-i add qos low Priority=0 PreemptMode=requeue
-i add qos high Priority=100 Preempt=low,normal
-i add user root Account=research DefaultAccount=research
-i modify user root set DefaultAccount=research
-i add user alice Account=research DefaultAccount=research
-i add user bob Account=research DefaultAccount=research
-i add user nobody Account=research DefaultAccount=research
-i add user bob Account=prod
-i add user root Account=prod
-i add qos capped Priority=10 MaxTRESPerUser=gres/gpu=4 MaxSubmitJobsPerUser=3 MaxWall=02:00:00
-i modify account where name=root set qos=normal,low,high,capped DefaultQOS=normal
-i modify account where name=research set qos=normal,low,high,capped DefaultQOS=normal
-i modify account where name=prod set qos=normal,low,high,capped DefaultQOS=normal
"""


class LedgerReader(FakeReader):
    """A reader whose writes a ledger carries out, as whoever asks."""

    def __init__(self, conf: str = PEER, user: str = "root") -> None:
        super().__init__()
        self.bench = Bench(conf)
        self.conf = self.bench.config
        self.clock = self.bench.now
        self.user = user
        self._ids = itertools.count(1)

    def policy(self, query: PolicyQuery) -> PolicyRows:
        led = self.bench.led
        used: dict[str, Used] = {}
        return PolicyRows(1, list(led.book.records()), used)

    def call(self, write: AnyWrite, request_id: bytes | None = None) -> Reply:
        request = b"r%d" % next(self._ids)
        uid = 0 if self.user == "root" else 1000
        out = self.bench.apply(Write(Call(request, write, uid, uid, 1, [], self.user)))
        return dict(out.answers)[request]

    def report(self, query: ReportQuery) -> ReportRows:
        self.reports.append(query)
        return self.report_rows.get(query.kind, ReportRows([]))

    def ask(self, line: str, stdin: str = "") -> tuple[str, str, int]:
        """One command line of sacctmgr, without its name."""
        return invoke(run, shlex.split(line), self, stdin=stdin)

    def do(self, line: str) -> str:
        """The same, which must go well."""
        out, err, code = self.ask(line)
        assert code == 0, (line, out, err)
        return out


def peer() -> LedgerReader:
    """The accounts of the real Slurm that the transcripts are of."""
    made = LedgerReader()
    for line in FIRST.strip().splitlines():
        made.ask(line)
    return made


@dataclass
class Command:
    line: str
    out: str
    err: str
    code: int
    user: str = "root"
    stdin: str = ""


_BLOCK = re.compile(
    r"^\$ (?P<line>.*?)\n--- stdout\n(?P<out>.*?)--- stderr\n(?P<err>.*?)--- exit (?P<code>\d+)\n",
    re.S | re.M,
)


def transcript(path: Path) -> Iterator[Command]:
    """Its commands in order."""
    for match in _BLOCK.finditer(path.read_text()):
        line, user, stdin = match["line"], "root", ""
        as_user = re.match(r"\[as (\w+)\] (.*)", line, re.S)
        if as_user:
            user, line = as_user[1], as_user[2]
        fed = re.match(r"(.*) <<< '(.*)'\Z", line, re.S)
        if fed:
            line, stdin = fed[1], fed[2].encode().decode("unicode_escape")
        yield Command(line, match["out"], match["err"], int(match["code"]), user, stdin)
