"""sprio as a real Slurm 22.05 answered; headers of the long report as 26.05 has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.policy_support import transcript
from unit.test_multifactor import PEER, peer
from views_support import FakeReader, invoke

from gsched.config import parse_config
from gsched.model import FairShares, Hold, Job, JobSpec, Shape
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched_cli.sprio import run

NOW = 1_796_000_000.0
AGED = int(NOW) - 44


class Reader(FakeReader):
    def policy(self, query: PolicyQuery) -> PolicyRows:
        return PolicyRows(1, self.policy_records, {}, FairShares(NOW, {6: 1 / 7, 9: 5 / 7}))


def waiting(number: int, assoc: int, qos: str = "normal", **more: object) -> Job:
    spec = {key: more.pop(key) for key in ("nice", "priority", "partitions") if key in more}
    own = JobSpec(
        shape=Shape(mem_per_cpu=2000, **more.pop("shape", {})),  # type: ignore[arg-type]
        account="research" if assoc == 6 else "prod",
        qos=qos,
        **spec,  # type: ignore[arg-type]
    )
    user, uid = ("akira", 1001) if assoc == 6 else ("bao", 1002)
    return Job(
        *(number, uid, uid, user, user, own),
        partition="gpu",
        assoc_id=assoc,
        priority=1,
        time_limit=3600,
        submit_time=AGED,
        eligible_time=AGED,
        **more,  # type: ignore[arg-type]
    )


def reader(conf: str = PEER) -> Reader:
    made = Reader(clock=NOW, conf=parse_config({"slurm.conf": conf}))
    book = peer()._book
    made.policy_records = list(book.records())
    made.job_list = [
        waiting(16, 6, shape={"ntasks": 2}),
        waiting(6, 6, shape={"min_nodes": 2, "ntasks": 32}),
        waiting(7, 6, shape={"min_nodes": 4, "nodes_set": True, "exclusive": 1}),
        waiting(17, 6, held=Hold.USER),
        waiting(36, 9, priority=4242),
        waiting(33, 9, shape={"ntasks": 2}, partitions=("gpu", "debug")),
    ]
    made.job_list[5].eligible_time = int(NOW)
    return made


#: of 22.05, with the weights of the recordings
SHORT, NORM = (one.out for one in transcript(Path(__file__).with_name("recorded_sprio.txt")))


def test_the_short_report() -> None:
    assert invoke(run, [], reader()) == (SHORT, "", 0)


def test_normalised() -> None:
    assert invoke(run, ["-n", "-j", "6,7"], reader()) == (NORM, "", 0)


def test_weights() -> None:
    out, _, _ = invoke(run, ["-w"], reader())
    assert out.splitlines()[1] == (
        "        Weights                               1       1000        500      10000"
        "       1000       1000       2000 cpu=1000,mem=2000,gr"
    )
    out, _, _ = invoke(run, ["-w", "-n"], reader())
    assert out.splitlines()[1] == (
        "        Weights                      1000       500        10000      1000       1000"
        "       2000                           "
    )


def test_the_long_report_has_the_columns_of_26_05() -> None:
    out, _, _ = invoke(run, ["-l"], reader())
    assert out.splitlines()[0] == (
        "          JOBID PARTITION     USER  ACCOUNT   PRIORITY       SITE        AGE      ASSOC"
        "  FAIRSHARE    JOBSIZE  PARTITION    QOSNAME        QOS        NICE                 TRES"
    )


def test_columns_without_a_weight_are_left_out() -> None:
    conf = PEER.replace("PriorityWeightAssoc=500\n", "")
    conf = "".join(line for line in conf.splitlines(True) if "WeightTRES" not in line)
    out, _, _ = invoke(run, [], reader(conf))
    assert out.splitlines()[0] == (
        "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE"
        "  PARTITION        QOS"
    )


def test_a_users_jobs() -> None:
    out, _, _ = invoke(run, ["-u", "akira", "-h", "-S", "-i"], reader())
    assert [line.split()[0] for line in out.splitlines()] == ["16", "7", "6"]
    assert out.splitlines()[0].split()[2] == "akira"


def test_a_user_that_there_is_not() -> None:
    """As 22.05: it is said, and nothing is listed."""
    said = ("", "sprio: error: Invalid user: nosuch-user\n\n", 0)
    assert invoke(run, ["-u", "nosuch-user", "-h"], reader()) == said


def test_partitions() -> None:
    out, _, _ = invoke(run, ["-p", "debug", "-h", "-o", "%i %r"], reader())
    assert out == "33 debug\n"


def test_the_fraction_is_of_the_sum() -> None:
    """%y of job 16: 1931.77 of 2^32; a priority that was set is shown as it is."""
    out, _, _ = invoke(run, ["-h", "-j", "16,36", "-o", "%y"], reader())
    first, second = map(float, out.split())
    assert first == pytest.approx(0.00000044977468, abs=3e-12)
    assert second == 4242.0


def test_errors() -> None:
    assert invoke(run, ["-j", "999"], reader()) == (
        "Unable to find jobs matching user/id(s) specified\n",
        "",
        0,
    )
    out, err, code = invoke(run, ["-S", "x"], reader())
    assert (err, code) == ("sprio: error: Invalid sort specification: x\n", 1)
    out, err, code = invoke(run, ["-X"], reader())
    assert (out, code) == ("", 1)
    assert err == "sprio: invalid option -- 'X'\nTry \"sprio --help\" for more information\n"
