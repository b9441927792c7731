"""Changes of sacctmgr in the ledger: all or nothing, who may, what is refused."""

from __future__ import annotations

import itertools
import json

import pytest
from unit.ledger_support import CONF, Bench

from gsched.ledger import Write
from gsched.model.policy import Assoc
from gsched.wire.messages import Call, Done, Refused, Reply
from gsched.wire.policy import ManagePolicy, PolicyOp

_IDS = itertools.count(1)


def ask(bench: Bench, *ops: PolicyOp, user: str = "root", uid: int = 0, dry: bool = False) -> Reply:
    request = b"m%d" % next(_IDS)
    out = bench.apply(Write(Call(request, ManagePolicy(list(ops), dry), uid, uid, 1, [], user)))
    return dict(out.answers)[request]


def add(entity: str, *names: str, **more: str) -> PolicyOp:
    return op("add", entity, *names, **more)


def op(verb: str, entity: str, *names: str, **more: str) -> PolicyOp:
    """Words in capitals are conditions, others settings; "__" before = is an operator."""
    where = {"name": list(names)} if names else {}
    settings = []
    for key, text in more.items():
        if key.isupper():
            where[key.lower()] = text.split(",")
        else:
            name, _, sign = key.partition("__")
            settings.append((name, {"": "=", "add": "+=", "cut": "-="}[sign], text))
    return PolicyOp(verb, entity, where, settings)


def ok(reply: Reply) -> dict[str, list[list[str]]]:
    assert isinstance(reply, Done), reply
    return dict(json.loads(reply.data))


def no(reply: Reply) -> str:
    assert isinstance(reply, Refused), reply
    return reply.message


@pytest.fixture
def bench() -> Bench:
    made = Bench(CONF)
    ok(
        ask(
            made,
            add("qos", "low"),
            add("qos", "high", preempt="low", priority="100"),
            op("modify", "account", "root", qos__add="low,high"),
            add("account", "physics", fairshare="60", maxjobs="10"),
            add("account", "optics", parent="physics"),
            add("account", "laser", parent="optics"),
            add("account", "chem"),
            add("user", "kim", "lee", ACCOUNT="optics"),
            add("user", "pat", ACCOUNT="chem,physics"),
        )
    )
    return made


def assoc(bench: Bench, account: str, user: str = "", partition: str = "") -> Assoc:
    found = bench.led.book.exact(account, user, partition)
    assert found is not None
    return found


def test_what_is_made(bench: Bench) -> None:
    book = bench.led.book
    assert [one.account for one in book.chain(assoc(bench, "laser"))] == [
        *("laser", "optics", "physics", "root")
    ]
    assert assoc(bench, "physics").shares == 60
    assert book.effective(assoc(bench, "optics", "kim")).max_jobs == 10
    assert book.default_account("kim") == "optics"
    assert book.default_account("pat") == "chem"
    assert book.accounts["optics"].organization == "physics"
    assert book.accounts["chem"].organization == "chem"


def test_a_refusal_in_the_middle_changes_nothing(bench: Bench) -> None:
    before = list(bench.led.book.records())
    version = bench.led.book.version
    said = no(
        ask(
            bench,
            add("account", "bio"),
            op("modify", "user", "kim", newname="sam"),
            op("delete", "account", "laser"),
            op("modify", "account", "chem", parent="laser"),
        )
    )
    assert said == " Parent Account laser doesn't exist.\n"
    assert list(map(repr, sorted(bench.led.book.records(), key=repr))) == sorted(map(repr, before))
    assert bench.led.book.version == version
    assert bench.led.book.exact("optics", "kim") is not None


def test_dry_changes_nothing_and_tells_all(bench: Bench) -> None:
    said = ok(ask(bench, op("modify", "account", "laser", parent="physics"), dry=True))
    assert said == {"associations modified": [["laser", "optics", "", ""]]}
    assert assoc(bench, "laser").parent == "optics"


def test_a_repeated_request_is_carried_out_once(bench: Bench) -> None:
    call = Call(b"again", ManagePolicy([add("account", "bio")]), 0, 0, 1, [], "root")
    first = bench.apply(Write(call)).answers
    assert bench.apply(Write(call)).answers == first
    assert isinstance(first[0][1], Done)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (op("modify", "account", "physics", parent="laser"), "is below 'physics'"),
        (op("modify", "account", "root", parent="chem"), "The root account has no parent"),
        (op("modify", "account", "chem", grpjobs="-5"), "Invalid value for GrpJobs (-5)"),
        (op("modify", "account", "chem", grpjobs="99999999999"), "Invalid value for GrpJobs"),
        (op("modify", "account", "chem", grptres="cpu=x"), "Invalid value for GrpTRES (cpu=x)"),
        (op("modify", "account", "chem", grptres="cpu=-3"), "Invalid value for GrpTRES (cpu=-3)"),
        (op("modify", "account", "chem", grptres="foo=3"), "no TRES known by type foo"),
        (op("modify", "account", "chem", grptres="gres/gpu:v9=3"), "no TRES known by type gres"),
        (op("modify", "account", "chem", grptres="cpu"), "no TRES id found for cpu"),
        (op("modify", "account", "chem", maxwall="abc"), " Bad MaxWall time format: maxwall=abc"),
        (op("modify", "account", "chem", qos="nosuch"), "You gave a bad qos 'nosuch'. Valid QOS's"),
        (op("modify", "account", "chem", defaultqos="nosuch"), "bad default qos 'nosuch'"),
        (op("modify", "account", "chem", defaultqos="low", qos="high"), "access to their default"),
        (op("modify", "account", "chem", nosuch="3"), "Unknown option: nosuch=3"),
        (op("modify", "account", "chem"), "didn't give me anything to set"),
        (op("modify", "account", "nosuch", grpjobs="3"), " Nothing modified\n"),
        (op("modify", "account", COLOUR="red", grpjobs="3"), "Unknown condition"),
        (op("modify", "qos", "low", preempt="high"), "QOS Preemption loop detected"),
        (op("modify", "qos", "low", preempt="low"), "QOS Preemption loop detected"),
        (op("modify", "qos", "low", flags="nosuch"), "Unknown QOS flag used in"),
        (op("modify", "qos", "low", preemptmode="nosuch"), "Bad Preempt Mode given"),
        (op("modify", "qos", "low", usagefactor="-3"), "Invalid value for UsageFactor (-3)"),
        (op("modify", "user", "kim", defaultaccount="chem"), "aren't associated with new default"),
        (op("modify", "user", "kim", newname="lee"), "User 'lee' exists already"),
        (op("modify", "user", "kim", "lee", newname="sam"), "Can only change one at a time"),
        (op("modify", "user", "kim", rawusage="0"), "An account must be specified"),
        (op("modify", "user", "kim", ACCOUNT="optics", rawusage="5"), "can be set to 0 alone"),
        (op("modify", "user", "kim", grptresguarantee="gres/gpu=4"), "on accounts, not on users"),
        (op("delete", "account", "root"), "not allowed to remove the root account"),
        (op("delete", "account", "physics"), "have accounts below them"),
        (op("delete", "account"), "No conditions given"),
        (op("delete", "user"), "No conditions given"),
        (op("delete", "qos", "normal"), "that of all jobs that name none"),
        (op("delete", "qos", "nosuch"), " Nothing deleted\n"),
        (
            add("account", "new", parent="nosuch"),
            "'nosuch' doesn't exist on cluster",
        ),
        (add("account", "chem"), " Nothing new added.\n"),
        (add("account", "a b"), "Invalid name of account"),
        (add("account"), " Need name of account to add."),
        (add("user", "kim"), " Need name of account to add user to."),
        (add("user", "kim", ACCOUNT="nosuch"), "This account 'nosuch' doesn't exist."),
        (add("user", "kim", ACCOUNT="optics"), " Nothing new added.\n"),
        (add("user", "kim", ACCOUNT="chem", PARTITION="nosuch"), "Invalid partition name"),
        (add("coordinator", "nosuch", ACCOUNT="chem"), "non-existent user 'nosuch'"),
        (add("coordinator", "kim", ACCOUNT="nosuch"), "non-existent account 'nosuch'"),
        (op("delete", "coordinator", "kim", ACCOUNT="chem"), " Nothing removed\n"),
        (add("cluster", "other"), "accounting of cluster peer alone"),
        (op("paint", "account", "chem"), "not supported here"),
    ],
)
def test_refusals(bench: Bench, change: PolicyOp, said: str) -> None:
    before = sorted(map(repr, bench.led.book.records()))
    assert said in no(ask(bench, change))
    assert sorted(map(repr, bench.led.book.records())) == before


def test_limits_are_set_and_taken_away(bench: Bench) -> None:
    ok(
        ask(
            bench,
            op(
                "modify",
                "account",
                "chem",
                grptres="cpu=10,gres/gpu:h100=4,mem=2G",
                maxwall="1-12:00:30",
                maxjobs="7",
                fairshare="parent",
                maxtresperjob="node=2",
                grptresguarantee="gres/gpu=4",
                guaranteeunit="gpu",
            ),
        )
    )
    one = assoc(bench, "chem")
    assert one.grp_tres == {"cpu": 10, "gres/gpu:h100": 4, "mem": 2048}
    # Minutes, rounded up.
    assert (one.max_wall, one.max_jobs, one.shares) == (36 * 60 + 1, 7, -1)
    assert (one.max_tres_per_job, one.guarantee) == ({"node": 2}, {"gres/gpu": 4})
    assert one.guarantee_unit == ""
    cleared = {"grptres": "cpu=-1", "maxwall": "-1", "maxjobs": "-1", "fairshare": "-1"}
    ok(ask(bench, op("modify", "account", "chem", **cleared)))
    one = assoc(bench, "chem")
    assert one.grp_tres == {"gres/gpu:h100": 4, "mem": 2048}
    assert (one.max_wall, one.max_jobs, one.shares) == (None, None, 1)


def test_lists_of_qos_follow_the_parent(bench: Bench) -> None:
    book = bench.led.book
    kim = lambda: book.allowed_qos(assoc(bench, "optics", "kim"))  # noqa: E731
    assert sorted(kim()) == ["high", "low", "normal"]
    ok(ask(bench, op("modify", "user", "kim", qos__cut="high")))
    assert sorted(kim()) == ["low", "normal"]
    ok(ask(bench, add("qos", "night"), op("modify", "account", "root", qos__add="night")))
    assert sorted(kim()) == ["low", "night", "normal"]
    ok(ask(bench, op("modify", "account", "physics", qos="low")))
    assert kim() == ("low",)
    ok(ask(bench, op("modify", "user", "kim", qos__add="high")))
    assert sorted(kim()) == ["high", "low"]
    ok(ask(bench, op("modify", "user", "kim", qos=""), op("modify", "account", "physics", qos="")))
    assert sorted(kim()) == ["high", "low", "night", "normal"]


def test_a_deleted_qos_is_gone_from_every_list(bench: Bench) -> None:
    ok(ask(bench, op("modify", "user", "kim", qos="low,high")))
    ok(ask(bench, op("delete", "qos", "low")))
    assert bench.led.book.qos["high"].preempt == ()
    assert assoc(bench, "optics", "kim").qos == ("high",)
    assert assoc(bench, "root").qos == ("normal", "high")
    ok(ask(bench, op("modify", "user", "kim", defaultqos="high")))
    assert "have these as their Default QOS" in no(ask(bench, op("delete", "qos", "high")))


def test_numbers_are_never_used_twice(bench: Bench) -> None:
    old = assoc(bench, "laser").id
    last = max(bench.led.book.assocs)
    ok(ask(bench, op("delete", "user", "pat"), op("delete", "account", "laser")))
    ok(ask(bench, add("account", "laser"), add("qos", "x")))
    assert assoc(bench, "laser").id == last + 1 > old


def test_users_leave(bench: Bench) -> None:
    said = ok(ask(bench, op("delete", "user", "pat", ACCOUNT="chem")))
    assert said == {"associations deleted": [["chem", "", "pat", ""]]}
    assert bench.led.book.default_account("pat") == "physics"
    said = ok(ask(bench, op("delete", "user", "pat", ACCOUNT="physics")))
    assert said["users without associations"] == [["pat"]]
    assert "pat" not in bench.led.book.users


def test_a_new_name_takes_all_along(bench: Bench) -> None:
    ok(
        ask(
            bench,
            PolicyOp(
                "add",
                "user",
                {"name": ["kim"], "wckey": ["thesis"]},
                [("defaultwckey", "=", "thesis")],
            ),
            add("coordinator", "kim", ACCOUNT="optics"),
        )
    )
    number = assoc(bench, "optics", "kim").id
    ok(ask(bench, op("modify", "user", "kim", newname="sam")))
    book = bench.led.book
    assert assoc(bench, "optics", "sam").id == number
    assert book.users["sam"].default_wckey == "thesis"
    assert {key.user for key in book.wckeys.values()} == {"sam"}
    assert book.is_coordinator("sam", "laser")
    assert "kim" not in book.users


def test_usage_is_forgotten(bench: Bench) -> None:
    ok(ask(bench, op("modify", "account", "physics", rawusage="0")))
    ids = {one.id for one in bench.led.book.subtree("physics")}
    assert set(bench.led.book.used) == ids
    assert all(used.since == bench.now for used in bench.led.book.used.values())
    assert "Only admins" in no(
        ask(bench, op("modify", "account", "chem", rawusage="0"), user="kim", uid=9)
    )


# ---- rights -------------------------------------------------------------------------------------


@pytest.fixture
def led_by_kim(bench: Bench) -> Bench:
    """kim coordinates physics; pat is an operator, lee an administrator."""
    ok(
        ask(
            bench,
            add("coordinator", "kim", ACCOUNT="physics"),
            op("modify", "user", "pat", adminlevel="operator"),
            op("modify", "user", "lee", adminlevel="admin"),
            add("user", "ned", ACCOUNT="chem"),
        )
    )
    return bench


@pytest.mark.parametrize(
    ("user", "change", "allowed"),
    [
        # As the coordinator of physics, an operator and a user were answered by a real Slurm.
        ("kim", add("user", "new", ACCOUNT="physics"), True),
        ("kim", add("user", "new", ACCOUNT="optics"), True),
        ("kim", add("user", "new", ACCOUNT="chem"), False),
        ("kim", op("modify", "user", "kim", ACCOUNT="optics", maxjobs="5"), True),
        ("kim", op("modify", "user", "ned", ACCOUNT="chem", maxjobs="5"), False),
        ("kim", op("modify", "account", "physics", maxjobs="5"), False),
        ("kim", op("modify", "account", "optics", maxjobs="5"), True),
        ("kim", op("modify", "account", "chem", maxjobs="5"), False),
        ("kim", add("account", "sub", parent="physics"), True),
        ("kim", add("account", "sub", parent="chem"), False),
        ("kim", add("account", "sub"), False),
        ("kim", add("qos", "foo"), False),
        ("kim", op("modify", "qos", "normal", priority="3"), False),
        ("kim", op("delete", "qos", "low"), False),
        ("kim", add("coordinator", "lee", ACCOUNT="physics"), True),
        ("kim", add("coordinator", "lee", ACCOUNT="chem"), False),
        ("kim", op("modify", "user", "lee", adminlevel="admin"), False),
        ("kim", op("modify", "user", "kim", defaultaccount="optics"), True),
        ("kim", op("modify", "user", "kim", fairshare="1000"), True),
        ("kim", op("modify", "user", "kim", qos__add="high"), True),
        ("kim", op("delete", "user", "kim", ACCOUNT="optics"), True),
        ("kim", op("delete", "user", "ned"), False),
        ("kim", op("delete", "account", "laser"), False),
        ("kim", op("modify", "user", "kim", maxjobs="11"), False),
        ("kim", op("modify", "account", "optics", parent="chem"), False),
        ("kim", op("modify", "account", "laser", parent="physics"), True),
        ("kim", op("modify", "account", "laser", grptresguarantee="gres/gpu=4"), False),
        ("ned", add("account", "mine"), False),
        ("ned", add("user", "new", ACCOUNT="chem"), False),
        ("ned", op("modify", "account", "chem", maxjobs="5"), False),
        ("ned", op("modify", "user", "ned", maxjobs="5"), False),
        ("ned", op("modify", "user", "ned", defaultaccount="chem"), True),
        ("ned", op("modify", "user", "ned", adminlevel="admin"), False),
        ("ned", op("delete", "account", "chem"), False),
        ("ned", op("delete", "user", "kim"), False),
        ("ned", add("coordinator", "ned", ACCOUNT="chem"), False),
        ("ned", op("delete", "coordinator", "kim", ACCOUNT="physics"), False),
        ("ned", add("cluster", "foo"), False),
        ("pat", add("account", "byop"), True),
        ("pat", op("delete", "account", "laser"), True),
        ("pat", op("modify", "account", "chem", grptresguarantee="gres/gpu=4"), True),
        ("pat", op("modify", "qos", "normal", priority="4"), False),
        ("pat", add("qos", "byop"), False),
        ("pat", op("delete", "qos", "low"), False),
        ("pat", op("modify", "user", "kim", adminlevel="operator"), False),
        ("pat", op("modify", "user", "pat", adminlevel="admin"), False),
        ("pat", op("modify", "account", "chem", rawusage="0"), False),
        ("lee", add("qos", "fine"), True),
        ("lee", op("modify", "user", "kim", adminlevel="operator"), True),
        ("", op("modify", "account", "chem", maxjobs="5"), False),
    ],
)
def test_who_may(led_by_kim: Bench, user: str, change: PolicyOp, allowed: bool) -> None:
    reply = ask(led_by_kim, change, user=user, uid=1234)
    assert isinstance(reply, Done) == allowed, reply
    if isinstance(reply, Refused):
        # Each refusal names the rule.
        assert "Access/permission denied" in reply.message
        rules = ("(Only ", "(Coord", "(A coord", "super user", "nothing else")
        assert any(rule in reply.message for rule in rules), reply


# ---- jobs ---------------------------------------------------------------------------------------


def test_what_jobs_use_is_kept_and_what_they_lose_is_told() -> None:
    made = Bench("AccountingStorageEnforce=associations,qos\n" + CONF)
    ok(
        ask(
            made,
            add("qos", "low"),
            op("modify", "account", "root", qos__add="low"),
            add("account", "physics"),
            add("user", "user", ACCOUNT="physics"),
        )
    )
    running = made.job()
    made.schedule()
    assert running.alloc
    assert "Job(s) active, cancel job(s)" in no(ask(made, op("delete", "account", "physics")))
    assert "Job(s) active, cancel job(s)" in no(ask(made, op("delete", "user", "user")))
    waiting = made.job(qos="low", hold=False, begin=int(made.now) + 20)
    ok(ask(made, op("delete", "qos", "low")))
    assert waiting.reason == "InvalidQOS"
    assert made.verdict(waiting) == "InvalidQOS"
    made.now += 30
    made.tick()
    made.schedule()
    assert not waiting.alloc
    ok(ask(made, add("qos", "low")))
    assert waiting.reason == ""
    made.schedule()
    assert waiting.alloc


def test_changed_limits_act_at_once() -> None:
    made = Bench("AccountingStorageEnforce=limits\n" + CONF)
    ok(ask(made, add("account", "physics"), add("user", "user", ACCOUNT="physics")))
    ok(ask(made, op("modify", "account", "physics", grpjobs="1")))
    first, second = made.job(), made.job()
    made.schedule()
    assert first.alloc
    assert not second.alloc
    assert made.verdict(second) == "AssocGrpJobsLimit"
    ok(ask(made, op("modify", "account", "physics", grpjobs="2"), dry=True))
    made.schedule()
    assert not second.alloc
    assert "Nothing modified" in no(ask(made, op("modify", "account", "x", grpjobs="9")))
    ok(ask(made, op("modify", "account", "physics", grpjobs="2")))
    made.schedule()
    assert second.alloc


def test_a_user_gets_his_limits_and_his_new_name_in_one_command(bench: Bench) -> None:
    ok(ask(bench, op("modify", "user", "kim", newname="sam", maxjobs="5")))
    assert assoc(bench, "optics", "sam").max_jobs == 5


def test_an_operator_comes_to_no_administrators_rights_by_a_name(bench: Bench) -> None:
    ok(ask(bench, op("modify", "user", "kim", adminlevel="Administrator")))
    ok(ask(bench, op("modify", "user", "lee", adminlevel="Operator")))
    answer = ask(bench, op("modify", "user", "kim", newname="sam"), user="lee", uid=1001)
    assert "Access/permission denied" in no(answer)
    assert "sam" not in bench.led.book.users
    ok(ask(bench, op("modify", "user", "pat", newname="sam"), user="lee", uid=1001))
