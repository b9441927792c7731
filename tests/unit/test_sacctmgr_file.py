"""sacctmgr's dump and load."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.policy_support import LedgerReader, peer

from gsched.model.policy import PolicyRecord
from gsched.wire.messages import Done
from gsched.wire.policy import ManagePolicy
from gsched_cli import sacctmgr_file

#: a file that a real Slurm 22.05 wrote
SLURMS = """\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
Cluster - 'peer':DefaultQOS='normal':Fairshare=2:MaxJobs=3:QOS='capped,high,low,normal'
Parent - 'root'
User - 'root':DefaultAccount='research':AdminLevel='Administrator':Fairshare=1
Account - 'big':Description='x':Organization='o':DefaultQOS='high':Fairshare=5:\
GrpTRESMins=cpu=5:GrpTRESRunMins=cpu=6:GrpTRES=cpu=4:GrpJobs=1:GrpJobsAccrue=2:GrpSubmitJobs=3:\
GrpWall=7:MaxTRESMinsPerJob=cpu=13:MaxTRESPerJob=cpu=11:MaxTRESPerNode=cpu=12:MaxJobs=3:\
MaxJobsAccrue=9:MaxSubmitJobs=10:MaxWallDurationPerJob=14:Priority=16:QOS='high,normal'
Account - 'prod':Description='prod':Organization='lab':DefaultQOS='normal':Fairshare=40:\
QOS='capped,high,low,normal'
Account - 'research':Description='research':Organization='lab':DefaultQOS='normal':Fairshare=60:\
QOS='capped,high,low,normal'
Parent - 'big'
User - 'kim':Partition='debug':DefaultAccount='big':Fairshare=1
User - 'kim':DefaultAccount='big':DefaultQOS='high':Fairshare=5:GrpTRES=cpu=4:GrpJobs=1:\
MaxTRESPerJob=cpu=11,mem=5G:MaxJobs=4:MaxWallDurationPerJob=14:Priority=16:QOS='high,normal'
Parent - 'prod'
User - 'bob':DefaultAccount='research':Fairshare=1
User - 'root':DefaultAccount='research':AdminLevel='Administrator':Fairshare=1
Parent - 'research'
User - 'alice':DefaultAccount='research':Fairshare=1
User - 'bob':DefaultAccount='research':Fairshare=1
User - 'nobody':DefaultAccount='research':Fairshare=1
User - 'root':DefaultAccount='research':AdminLevel='Administrator':Fairshare=1
"""


def test_a_file_of_slurms_is_loaded_and_written_again(tmp_path: Path) -> None:
    made = LedgerReader()
    for name in ("capped", "high", "low"):
        made.do(f"-i add qos {name}")
    path = tmp_path / "peer.cfg"
    path.write_text(SLURMS)
    made.do(f"-i load {path}")
    out = made.do(
        "-P list assoc format=account,user,partition,share,maxjobs,grpjobs,maxtres,maxwall,qos,"
        "defaultqos"
    )
    # As the real Slurm listed them, but in the order of 26.05.
    every = "capped,high,low,normal|normal"
    assert out == (
        "Account|User|Partition|Share|MaxJobs|GrpJobs|MaxTRES|MaxWall|QOS|Def QOS\n"
        f"root|||2|3||||{every}\n"
        f"root|root||1|3||||{every}\n"
        "big|||5|3|1|cpu=11|00:14:00|high,normal|high\n"
        "big|kim||5|4|1|cpu=11,mem=5G|00:14:00|high,normal|high\n"
        "big|kim|debug|1|3||cpu=11|00:14:00|high,normal|high\n"
        f"prod|||40|3||||{every}\n"
        f"prod|bob||1|3||||{every}\n"
        f"prod|root||1|3||||{every}\n"
        f"research|||60|3||||{every}\n"
        f"research|alice||1|3||||{every}\n"
        f"research|bob||1|3||||{every}\n"
        f"research|nobody||1|3||||{every}\n"
        f"research|root||1|3||||{every}\n"
    )
    made.do(f"dump peer file={tmp_path}/again.cfg")
    again = (tmp_path / "again.cfg").read_text().splitlines()
    assert [line for line in again if line.startswith("Account - 'prod'")] == [
        line for line in SLURMS.splitlines() if line.startswith("Account - 'prod'")
    ]
    # Loaded once more it changes nothing.
    said = made.do(f"-i load {path}")
    assert said == "For cluster peer\n Nothing new added.\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Parent - 'big2'\n", " line(1) You need to add this parent (big2) as a child before"),
        ("Account - 'a'\nnonsense\n", " Misformatted line(2): nonsense\n"),
        ("Account - 'a:Fairshare=1\n", " line(1) A quote is not closed\n"),
        ("Account - 'a':Fairshare\n", " Misformatted line(1)"),
        ("Account - 'a':Fairshare=-7\n", "Invalid value for Fairshare (-7)"),
        ("Account - 'a':QOS='nosuch'\n", "You gave a bad qos 'nosuch'"),
        ("Cluster - 'other'\n", "accounting of cluster peer alone"),
        ("Account - 'b'\nUser - 'kim':Nonsense=3\n", "Unknown option: Nonsense=3"),
    ],
)
def test_bad_files_change_nothing(tmp_path: Path, text: str, said: str) -> None:
    made = peer()
    before = sorted(map(repr, made.bench.led.book.records()))
    path = tmp_path / "bad.cfg"
    path.write_text(text)
    _, err, code = made.ask(f"-i load {path}")
    assert code == 1
    assert said in err
    assert sorted(map(repr, made.bench.led.book.records())) == before


def test_files_that_are_not_there(tmp_path: Path) -> None:
    made = peer()
    assert made.ask(f"-i load {tmp_path}/nosuch") == (
        "",
        f' Unable to read "{tmp_path}/nosuch": No such file or directory\n',
        1,
    )
    assert made.ask("dump other")[2] == 1
    made.uid, made.user = 1000, "mail"
    assert made.ask("dump peer file=/tmp/x")[1] == (
        " Your user does not have sufficient privileges to dump clusters.\n"
    )


# ---- whatever there is, a dump that is loaded gives it again ------------------------------------

_NAMES = st.sampled_from(["one", "two", "three", "four", "five"])
_COUNT = st.one_of(st.none(), st.integers(0, 2**31 - 1))
_TRES = st.dictionaries(
    st.sampled_from(["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:h100"]),
    st.integers(0, 10**9),
    max_size=3,
)


def _words(draw: st.DrawFn) -> str:
    words = []
    for key in ("grpjobs", "maxjobs", "grpsubmit", "maxsubmit", "priority", "minpriothreshold"):
        value = draw(_COUNT)
        if value is not None:
            words.append(f"{key}={value}")
    for key in ("grptres", "maxtres", "maxtrespernode", "grptresmins", "maxtresmins"):
        value = draw(_TRES)
        if value:
            words.append(f"{key}=" + ",".join(f"{k}={v}" for k, v in value.items()))
    if draw(st.booleans()):
        words.append(f"maxwall={draw(st.integers(0, 10**6))}")
    words.append("fairshare=" + draw(st.sampled_from(["parent", "1", "0", "77"])))
    return " ".join(words)


@st.composite
def clusters(draw: st.DrawFn) -> list[str]:
    lines = []
    for name in draw(st.lists(st.sampled_from(["q1", "q2", "q3"]), unique=True)):
        flags = draw(st.sampled_from(["", "flags=DenyOnLimit,NoDecay", "gracetime=90"]))
        factor = draw(st.sampled_from(["", "usagefactor=0.125 preemptexempttime=1:00:30"]))
        wall = draw(st.sampled_from(["", "maxwall=2-0 mintres=cpu=2 preempt=normal"]))
        lines.append(f"add qos {name} priority={draw(st.integers(0, 9))} {flags} {factor} {wall}")
    for name in draw(st.lists(_NAMES, unique=True, min_size=1)):
        parent = draw(_NAMES)
        text = draw(st.text("abc ~+,:=#äß", max_size=8)).strip()
        own = f'description="x{text}y"' if text else ""
        lines.append(f"add account {name} parent={parent} {own} {_words(draw)}")
        lines.append(f"add account {name} {_words(draw)}")
        lines.append(f"modify account {name} set grptresguarantee=gres/gpu=4")
    for user in draw(st.lists(st.sampled_from(["ann", "ben", "cat"]), unique=True)):
        for account in draw(st.lists(_NAMES, unique=True)):
            part = draw(st.sampled_from(["", "partition=gpu", "partition=gpu,debug"]))
            key = draw(st.sampled_from(["", "wckeys=k1,k2 defaultwckey=k2"]))
            lines.append(f"add user {user} account={account} {part} {key} {_words(draw)}")
            lines.append(f"modify user {user} set defaultaccount={account} qos+=q1 qos-=q2")
            lines.append(f"add coordinator names={user} accounts={account}")
    return lines


def _plain(record: PolicyRecord) -> str:
    """Without what a new record has of its own: its number, and when it was made."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    for name in ("id", "created"):
        fields.pop(name, None)
    if fields.get("qos"):
        fields["qos"] = sorted(fields["qos"])
    if fields.get("coordinator"):
        fields["coordinator"] = sorted(fields["coordinator"])
    if "preempt" in fields:
        fields["preempt"] = sorted(fields["preempt"])
    for name, value in fields.items():
        if isinstance(value, dict):
            fields[name] = sorted(value.items())
    return repr((type(record).__name__, fields))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_dump_that_is_loaded_is_what_was_dumped(lines: list[str]) -> None:
    made = LedgerReader()
    for line in lines:
        made.ask(f"-i {line}")
    book = made.bench.led.book
    text = "\n".join(sacctmgr_file.dump(book, "peer"))
    other = LedgerReader()
    loaded = sacctmgr_file.Loaded(text)
    reply = other.call(ManagePolicy(loaded.changes(), load=True))
    assert isinstance(reply, Done), (reply, text)
    mine = sorted(map(_plain, book.records()))
    theirs = sorted(map(_plain, other.bench.led.book.records()))
    assert theirs == mine, text
    assert list(sacctmgr_file.dump(other.bench.led.book, "peer")) == text.splitlines()


def test_loading_ones_own_dump_changes_nothing(tmp_path: Path) -> None:
    """Slurm 22.05 says so of its own; QOS that were set in another order than the file's too."""
    made = peer()
    made.do("-i modify account prod set qos=low,normal,high,capped")
    made.do("-i modify cluster peer set classification=capability")
    path = tmp_path / "own.cfg"
    made.do(f"dump peer file={path}")
    assert "Cluster - 'peer':Classification='Capability'" in path.read_text()
    assert made.do(f"-i load {path}") == "For cluster peer\n Nothing new added.\n"


def test_what_follows_a_text_that_ends_like_a_gpu_is_a_setting_of_its_own() -> None:
    line = "Account - 'bio':Description='has gres/gpu':Organization='life':GrpTRES=gres/gpu:h100=4"
    (account,) = sacctmgr_file.Loaded(line).changes()
    assert account.settings == [
        ("Description", "=", "has gres/gpu"),
        ("Organization", "=", "life"),
        ("GrpTRES", "=", "gres/gpu:h100=4"),
        ("parent", "=", "root"),
    ]
