"""sacctmgr: what transcripts of an older release do not have."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from unit.policy_support import LedgerReader, peer

from gsched.wire.report import EventRow, ReportRows, ResvRow, RunawayRow, TransactionRow

#: 2026-11-29T13:47:42 UTC
T0 = 1795960062


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_golden_listings() -> None:
    """Golden 035 of 26.05."""
    made = peer()
    assert made.do("show qos -P") == (
        "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|"
        "UsageFactor|GrpTRES|GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|"
        "MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|"
        "MaxTRESRunMinsPA|MaxTRESRunMinsPU|MaxJobsPA|MaxSubmitPA|MinTRES\n"
        "normal|10|00:00:00|||cluster|||1.000000|||||||||||||||||||\n"
        "low|0|00:00:00|||requeue|||1.000000|||||||||||||||||||\n"
        "high|100|00:00:00|low,normal||cluster|||1.000000|||||||||||||||||||\n"
        "capped|10|00:00:00|||cluster|||1.000000||||||||||02:00:00|gres/gpu=4||3||||||\n"
    )
    every = "|||||||||||||capped,high,low,normal|normal|\n"
    assert made.do("show assoc -P") == (
        "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|"
        "GrpTRESMins|MaxJobs|MaxTRES|MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|"
        "GrpTRESRunMins\n"
        f"peer|root|||1{every}"
        f"peer|root|root||1{every}"
        f"peer|prod|||40{every}"
        f"peer|prod|bob||1{every}"
        f"peer|prod|root||1{every}"
        f"peer|research|||60{every}"
        f"peer|research|alice||1{every}"
        f"peer|research|bob||1{every}"
        f"peer|research|nobody||1{every}"
        f"peer|research|root||1{every}"
    )
    assert made.do("-n show tres") == (
        "     cpu                      1 \n"
        "     mem                      2 \n"
        "  energy                      3 \n"
        "    node                      4 \n"
        " billing                      5 \n"
        "      fs            disk      6 \n"
        "    vmem                      7 \n"
        "   pages                      8 \n"
        "    gres             gpu   1001 \n"
        "    gres        gpu:h100   1002 \n"
        "    gres          gpumem   1003 \n"
        "    gres         gpuutil   1004 \n"
    )


def test_golden_changes() -> None:
    """Golden 028 and 043 of 26.05."""
    made = peer()
    assert made.do("-i modify account where name=prod set GrpTRES=gres/gpu=2") == (
        " Modified account associations...\n  C = peer       A = prod of root\n"
    )
    assert made.do("-i modify user where name=alice set MaxJobs=1") == (
        " Modified user associations...\n  C = peer       A = research             U = alice    \n"
    )
    made.user, made.uid = "alice", 1000
    assert made.ask("-i add user eve account=research") == (
        "",
        " error: Problem adding user associations: Access/permission denied (Only "
        "admins/operators/coordinators can add accounts)\n",
        1,
    )


def test_guarantees_are_an_extension() -> None:
    made = peer()
    guarantee = "grptresguarantee=gres/gpu=8,gres/gpu:h100=4"
    made.do(f"-i modify account prod set {guarantee} guaranteeunit=gpu")
    made.do("-i modify account prod set grptresborrow=gres/gpu=16 grptreslend=gres/gpu=2")
    assert made.do(
        "-P list assoc account=prod user='' "
        "format=account,grptresguarantee,grptresborrow,grptreslend,guaranteeunit,user"
    ).splitlines()[:2] == [
        "Account|GrpTRESGuarantee|GrpTRESBorrow|GrpTRESLend|GuaranteeUnit|User",
        "prod|gres/gpu=8,gres/gpu:h100=4|gres/gpu=16|gres/gpu=2|gpu|",
    ]


def test_units_of_guarantees_that_are_not_there_are_refused() -> None:
    out, err, code = peer().ask("-i modify account prod set guaranteeunit=rack")
    assert code == 1 and "(rack): gpu, node or island is expected" in out + err


def test_a_guarantee_that_cannot_be_kept_is_refused() -> None:
    """32 GPUs in all."""
    made = peer()
    made.do("-i modify account prod set grptresguarantee=gres/gpu=20")
    out, err, code = made.ask("-i modify account research set grptresguarantee=gres/gpu=13")
    assert code == 1
    assert "gres/gpu=33 is guaranteed in all, the cluster has 32" in out + err
    made.do("-i modify account research set grptresguarantee=gres/gpu=12")
    out, err, code = made.ask("-i modify account root set grptresguarantee=gres/gpu=30")
    assert code == 1 and "more than its own" in out + err


def test_json() -> None:
    made = peer()
    made.do("-i modify account prod set maxjobs=3 grptres=gres/gpu=2")
    data = json.loads(made.do("--json show assoc account=prod"))
    assert [row["user"] for row in data["associations"]] == ["", "bob", "root"]
    first = data["associations"][0]
    assert first["max"]["jobs"]["active"] == {"set": True, "infinite": False, "number": 3}
    assert first["max"]["tres"]["total"] == [
        {"type": "gres", "name": "gpu", "id": 1001, "count": 2}
    ]
    assert first["parent_account"] == "root"
    assert data["meta"]["slurm"]["release"] == "26.05.0"
    users = json.loads(made.do("--json show user name=root"))["users"]
    assert users[0]["administrator_level"] == ["Administrator"]
    names = [row["name"] for row in json.loads(made.do("--json show qos"))["qos"]]
    assert names == ["normal", "low", "high", "capped"]
    for entity in ("account", "tres", "wckey", "cluster"):
        assert json.loads(made.do(f"--json show {entity}"))["errors"] == []


def test_yaml() -> None:
    made = peer()
    rows = json.loads(made.do("--json show tres name=gpu"))["TRES"]
    assert [(row["type"], row["name"], row["id"]) for row in rows] == [("gres", "gpu", 1001)]
    text = made.do("--yaml show tres name=gpu")
    assert text.startswith("%YAML 1.1\n--- !!map\n!!str TRES: !!seq\n- !!map\n  !!str type: !!str")


def test_dialogue_from_a_file() -> None:
    made = peer()
    out, err, code = made.ask(
        "", "add account optics\ny\nlist account name=optics format=account\n!!\nquit\n"
    )
    assert out.count("    optics \n") == 2
    assert out.endswith("sacctmgr: quit\n")
    assert (err, code) == ("", 0)
    out, err, code = made.ask("-i", "nonsense\nreadonly\nadd account foo\n")
    assert err == "invalid keyword: nonsense\nCan't run this command in readonly mode.\n"
    assert code == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("add federation", " Need name of federation to add.\n"),
        (
            "--yaml=v0.0.1 list qos",
            "sacctmgr: error: application/x-yaml output not supported by v0.0.1\n",
        ),
        ("-i add account x description='a\tb'", "sacctmgr: error: Invalid value for Description\n"),
        ("-i modify account prod set grpjobs+=3", "sacctmgr: error: GrpJobs takes = alone\n"),
    ],
)
def test_what_is_refused(line: str, said: str) -> None:
    _, err, code = peer().ask(line)
    assert err.startswith(said)
    assert code == 1


def test_problems() -> None:
    made = LedgerReader()
    made.do("-i add account physics")
    made.do("-i add user no-such-user-here account=physics")
    made.do("-i add account chem")
    assert made.do("-n -P list problem") == (
        "peer|chem||Account has no users\npeer|physics|no-such-user-here|User does not have a uid\n"
    )


def test_events_transactions_and_reservations() -> None:
    made = peer()
    made.clock = T0
    made.report_rows["events"] = ReportRows(
        [
            EventRow("", T0 - 90000, 0, "", "", -1, "node[1-4]", "cpu=64"),
            EventRow("node2", T0 - 60, 0, "DRAINED", "broken", 0, "", "cpu=16"),
            EventRow("node3", T0 - 600, T0 - 300, "DOWN*", "no answer", 0, "", "cpu=16"),
        ]
    )
    # As a real Slurm wrote the first two.
    assert made.do("-P list events format=cluster,nodename,state,reason,user,end") == (
        "Cluster|NodeName|State|Reason|User|TimeEnd\n"
        "peer|||Cluster Registered TRES||Unknown\n"
        "peer|node2|DRAINED|broken|root(0)|Unknown\n"
        "peer|node3|DOWN*|no answer|root(0)|2026-11-29T13:42:42\n"
    )
    assert made.do("-n -P list events condflags=open states=drained format=nodename") == "node2\n"
    # From midnight of yesterday on, or all.
    assert made.reports[0].start == 1795910400 - 86400
    made.do("list events all_time nodes=node[2-3]")
    assert made.reports[-1].start == 0
    assert made.reports[-1].only == {"nodes": ["node2", "node3"]}
    assert made.do("list events").splitlines()[0] == (
        "   Cluster NodeName                  TimeStart             TimeEnd  State "
        "                        Reason       User "
    )
    made.report_rows["transactions"] = ReportRows(
        [TransactionRow(T0, "root", "Add QOS", "low", "description='low'")]
    )
    assert made.do("list transactions actor=root") == (
        "               Time               Action      Actor                Where                 "
        "Info \n"
        "------------------- -------------------- ---------- -------------------- "
        "-------------------- \n"
        "2026-11-29T13:47:42              Add QOS       root                  low    "
        "description='low' \n"
    )
    made.report_rows["reservations"] = ReportRows(
        [
            ResvRow(
                *("course", 7, T0 - 3600, T0 + 3600, "", "node1", "", {"cpu": 16, "node": 1}),
                {"cpu": 16 * 600},
            )
        ]
    )
    assert made.do("-n -P list reservation format=name,id,tres,unusedwall") == (
        "course|7|cpu=16,node=1|3000.000000\n"
    )
    made.report_rows["runaway"] = ReportRows(
        [RunawayRow(9, 0, "lost", "gpu", "prod", "bob", "RUNNING", T0, T0, 0)]
    )
    made.report_rows["mend"] = ReportRows([])
    assert made.do("-i -n -P list runaway").splitlines()[1:] == [
        "9|lost|gpu|peer|RUNNING|2026-11-29T13:47:42|2026-11-29T13:47:42|Unknown"
    ]
    made.report_rows["events"] = ReportRows([], warning="the database cannot be reached")
    assert made.ask("-n list events")[1] == "sacctmgr: error: the database cannot be reached\n"


def test_the_tree_is_indented() -> None:
    """As 22.05: from the first that is shown; a width of one's own is kept."""
    made = peer()
    assert made.do("list assoc tree account=research format=account,user") == (
        "Account                    User \n"
        "-------------------- ---------- \n"
        "research                        \n"
        " research                 alice \n"
        " research                   bob \n"
        " research                nobody \n"
        " research                  root \n"
    )
    assert made.do("-P -n list assoc tree format=account,user").splitlines()[:4] == [
        "root|",
        " root|root",
        " prod|",
        "  prod|bob",
    ]
    line = made.do("-n list assoc tree user=alice format=account%12,user")
    assert line == "    research      alice \n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("wolimits format=account,qos,defaultqos,share", "research|||1"),
        ("woplimits format=account,qos,defaultqos,share", "research|||1"),
        ("wopinfo format=account,parentid,parentname", "research|0|"),
        ("woplimits", "peer|research|alice|"),
        ("wolimits", "peer|research|alice|"),
    ],
)
def test_what_is_left_out(options: str, line: str) -> None:
    """As 22.05 answered for alice in research, who has nothing of her own."""
    assert peer().do(f"-nP list assoc user=alice {options}") == f"{line}\n"


def test_resources_and_federations() -> None:
    """As 22.05 answered; columns are those of 26.05."""
    made = peer()
    assert made.do(
        "-i add resource name=matlab server=flex count=50 servertype=flexlm type=license "
        "cluster=peer percentallowed=60"
    ) == (
        " Adding Resource(s)\n  matlab@flex\n   Cluster - peer\t60%\n Settings\n"
        "  Name           = matlab\n  Server         = flex\n  Description    = matlab\n"
        "  ServerType     = flexlm\n  Count          = 50\n  Type           = License\n"
    )
    assert made.do("-nP list resource withclusters") == (
        "matlab|flex|License|50|0|60|flexlm|peer|60|\n"
    )
    assert made.do("-i modify resource where name=matlab set count=100") == (
        " Modified server resource ...\n  matlab@flex\n  Cluster - peer\t- matlab@flex\n"
    )
    assert made.do("-i delete resource name=matlab server=flex cluster=peer") == (
        " Deleting resource(s)...\n  Cluster - peer\t- matlab@flex\n"
    )
    assert made.do("-nP list resource withclusters") == ""
    assert made.do("-i delete resource name=matlab") == (
        " Deleting resource(s)...\n  matlab@flex\n"
    )
    assert made.do("-i add federation fed2 clusters=peer") == (
        " Adding Federation(s)\n  fed2\n Settings\n  Cluster       = peer\n"
    )
    assert made.do("-nP list federation") == "fed2|peer|1||ACTIVE\n"
    assert made.do("-i modify cluster peer set features=a,b fedstate=drain") == (
        " Setting\n  Feature       = a\n  Feature       = b\n  FedState       = DRAIN\n"
        " Modified cluster...\n  peer\n"
    )
    assert made.do("-nP list cluster withfed format=cluster,federation,id,features,fedstate") == (
        "peer|fed2|1|a,b|DRAIN\n"
    )
    assert made.do("-i modify federation fed2 set clusters-=peer") == (
        " Setting\n  Cluster      -= peer\n Modified federation...\n  fed2\n"
    )
    assert made.do("-i delete federation fed2") == " Deleting federations...\n  fed2\n"


@pytest.mark.parametrize(
    ("listing", "lines"),
    [
        ("account name=", 0),
        ("user name=", 0),
        ("qos name=", 0),
        ("assoc account=", 0),
        ("assoc cluster=", 0),
        ("assoc user=", 3),
        ("assoc partition=", 10),
        ("assoc qos=", 10),
    ],
)
def test_an_empty_condition_is_met_by_what_is_empty(listing: str, lines: int) -> None:
    """Numbers of lines of a 22.05 with the same accounts: a script whose variable is empty is not
    told of everybody."""
    assert len(peer().do(f"-nP list {listing}").splitlines()) == lines


def test_words_about_words() -> None:
    made = peer()
    assert made.ask("quit foo")[1] == "too many arguments for keyword:quit\n"
    assert made.ask("dump nope")[1] == " Cluster nope doesn't exist.\n"
    assert made.ask("load")[1] == " No filename given, specify one with file=''\n"
    assert made.ask("-i archive load")[1] == (
        "sacctmgr: error: Error with request.\n Problem loading archive file: Unspecified error\n"
    )
    assert made.ask("list event foo=1")[1] == " Unknown condition: foo=1\n"
