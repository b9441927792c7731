"""Licences from outside of the cluster, federations, and what is set on the cluster: as sacctmgr of
a real Slurm answered, and what it means for jobs."""

from __future__ import annotations

import msgspec
import pytest
from unit.ledger_support import CONF, Bench
from unit.test_manage import add, ask, no, ok, op

from gsched.ledger import Ledger
from gsched.model import JobState
from gsched.wire.messages import Refused


@pytest.fixture
def bench() -> Bench:
    return Bench(CONF + "Licenses=local:2\n")


def granted(bench: Bench) -> dict[str, int]:
    led = bench.led
    return led.book.licenses(led.config.licenses)


def name_of(bench: Bench) -> str:
    return bench.led.config.cluster_name


def given(bench: Bench, count: str = "50", allowed: str = "60") -> None:
    """60 per cent of 50: the cluster may use 30, as scontrol show licenses of a 22.05 has it."""
    ok(
        ask(
            bench,
            add(
                *("resource", "matlab"),
                SERVER="flex",
                CLUSTER=name_of(bench),
                count=count,
                type="license",
                percentallowed=allowed,
            ),
        )
    )


def test_the_cluster_may_use_its_part(bench: Bench) -> None:
    given(bench)
    assert granted(bench) == {"local": 2, "matlab@flex": 30}
    ok(ask(bench, op("modify", "resource", "matlab", count="20")))
    ok(ask(bench, op("modify", "resource", "matlab", CLUSTER=name_of(bench), percentallowed="20")))
    assert granted(bench)["matlab@flex"] == 4
    ok(ask(bench, op("delete", "resource", "matlab", CLUSTER=name_of(bench))))
    assert granted(bench) == {"local": 2}
    ok(ask(bench, op("delete", "resource", "matlab")))
    assert not bench.led.book.resources


def test_of_33_per_cent_of_10_there_are_3(bench: Bench) -> None:
    given(bench, "10", "33")
    assert granted(bench)["matlab@flex"] == 3


def test_jobs_take_them_and_wait_for_them(bench: Bench) -> None:
    given(bench, "10", "40")
    for text in ("matlab@flex:5", "matlab", "matlab@other"):
        refused = bench.submit(licenses=text)
        assert isinstance(refused, Refused)
        assert refused.message == "Invalid license specification"
    first, second = bench.job(licenses="matlab@flex:3"), bench.job(licenses="matlab@flex:3")
    bench.schedule()
    assert first.state == JobState.RUNNING and second.state == JobState.PENDING
    # Twice as many: at once there is room for the second.
    ok(ask(bench, op("modify", "resource", "matlab", count="20")))
    bench.schedule()
    assert second.state == JobState.RUNNING
    assert second.licenses_alloc == "matlab@flex:3"


def test_what_others_have_taken_is_not_there(bench: Bench) -> None:
    """10 in all, of which 4 are the cluster's and 6 others': once 9 are taken, and none by its
    jobs, 3 of its own are away."""
    given(bench, "10", "40")
    ok(ask(bench, op("modify", "resource", "matlab", lastconsumed="9")))
    assert bench.led.book.resources["matlab@flex"].deficit == 3
    two, one = bench.job(licenses="matlab@flex:2"), bench.job(licenses="matlab@flex:1")
    bench.schedule()
    assert two.state == JobState.PENDING and one.state == JobState.RUNNING
    ok(ask(bench, op("modify", "resource", "matlab", lastconsumed="0")))
    bench.schedule()
    assert two.state == JobState.RUNNING


def test_they_outlive_a_restart(bench: Bench) -> None:
    given(bench)
    records = [msgspec.convert(msgspec.to_builtins(one), type(one)) for one in _all(bench)]
    after = Ledger.load(
        *(bench.led.config, bench.led.meta, [], []),
        policy_records=records,
    )
    assert after.cluster.licenses_free("matlab@flex") == 30


def _all(bench: Bench) -> list[object]:
    return list(bench.led.book.records())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (add("resource", "x"), " Need to designate a resource type to initially add 'x'.\n"),
        (
            add("resource", "x", type="license"),
            " Need to designate a resource count to initially add 'x'.\n",
        ),
        (add("resource", count="4"), " Need name of resource to add.\n"),
        (
            add("resource", "x", type="foo", count="5"),
            " Unknown resource type: 'foo'  Valid resources is License.\n",
        ),
        (
            add("resource", "x", type="license", count="5", CLUSTER="nope"),
            " This cluster 'nope' doesn't exist.\n        Contact your admin to add it to "
            "accounting.\n Need a valid cluster name to add a cluster resource.\n",
        ),
        (op("modify", "resource", "nope", count="20"), " Nothing modified\n"),
        (op("modify", "resource", "nope"), " You didn't give me anything to set\n"),
        (
            op("modify", "resource", "x", percentallowed="20"),
            'Can\'t change "percentallowed" without specifying a cluster.\n',
        ),
        (op("delete", "resource", "nope"), " Nothing deleted\n"),
        (op("delete", "resource"), " No conditions given to remove, not executing.\n"),
        (add("resource", "a:b", type="license", count="1"), None),
        (add("resource", "a", type="license", count="-5"), None),
        (add("resource", "a", type="license", count="99999999999"), None),
        (add("federation"), " Need name of federation to add.\n"),
        (
            add("federation", "f", clusters="nope"),
            " The cluster nope doesn't exist. Please add first.\n",
        ),
        (
            op("modify", "federation", "nope", clusters="nope"),
            " The federation nope doesn't exist.\n",
        ),
        (op("delete", "federation", "nope"), " Nothing deleted\n"),
        (op("modify", "cluster", federation="nope"), " The federation nope doesn't exist.\n"),
        (op("modify", "cluster", fedstate="foo"), "Invalid FedState foo.\n"),
    ],
)
def test_refusals_are_those_of_slurm(bench: Bench, wrong: object, sentence: str | None) -> None:
    said = no(ask(bench, wrong))  # type: ignore[arg-type]
    assert sentence is None or said == sentence
    assert not bench.led.book.resources and not bench.led.book.federations


def test_no_more_than_all_may_be_used(bench: Bench) -> None:
    given(bench)
    said = no(
        ask(bench, op("modify", "resource", "matlab", CLUSTER=name_of(bench), percentallowed="120"))
    )
    assert said.startswith("sacctmgr: error: You can not allocate more than 100% of a resource\n")
    assert granted(bench)["matlab@flex"] == 30
    said = no(
        ask(
            bench,
            op("modify", "resource", "matlab", CLUSTER=name_of(bench), count="50"),
        )
    )
    assert said == (
        'Can\'t change "count" on a cluster-based resource. Remove cluster selection.\n'
    )


def test_only_administrators_change_them(bench: Bench) -> None:
    given(bench)
    for one in (
        add("resource", "y", type="license", count="5"),
        op("modify", "resource", "matlab", count="5"),
        op("delete", "resource", "matlab"),
        add("federation", "f"),
        op("modify", "cluster", features="a"),
    ):
        assert "ermission denied" in no(ask(bench, one, user="alice", uid=1001))
    assert granted(bench)["matlab@flex"] == 30


def test_the_cluster_is_in_one_federation_at_most(bench: Bench) -> None:
    own = name_of(bench)
    ok(ask(bench, add("federation", "one")))
    ok(ask(bench, add("federation", "two", clusters=own)))
    assert bench.led.book.clusters[own].federation == "two"
    said = no(ask(bench, op("modify", "federation", "two", clusters=own)))
    assert said == f" The cluster {own} is already assigned to federation two\nNothing to change\n"
    ok(ask(bench, op("modify", "federation", "one", clusters__add=own)))
    assert bench.led.book.clusters[own].federation == "one"
    ok(ask(bench, op("modify", "cluster", features="a,b", fedstate="drain")))
    ok(ask(bench, op("modify", "cluster", features__add="c")))
    cluster = bench.led.book.clusters[own]
    assert (cluster.features, cluster.fed_state) == (("a", "b", "c"), "DRAIN")
    ok(ask(bench, op("delete", "federation", "one", "two")))
    assert bench.led.book.clusters[own].federation == ""
