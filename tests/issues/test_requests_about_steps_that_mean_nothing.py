"""One user's request with a port of 99999 ended the daemon of the node, and from the journal every
one after it; so did numbers below zero, and three thousand million tasks.

Any field of a request, whatever stands in it, is answered or refused, and what is taken can be
turned into the orders of supervisors.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from agent_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_support import config, job

from gsched.layout import Busy, StepRefused, plan_step
from gsched.model.step import Callback, Step, StepSpec
from gsched.multiprog import MultiProgError, multi_prog
from gsched.wire.steps import AttachStep, CreateStep, Interactive, LaunchStep, NotTaken, Taken
from slurmd_compat.agent.step_fit import unfit
from slurmd_compat.agent.step_words import Ask, Source
from slurmd_compat.failure import LaunchError
from slurmd_compat.launcher import Grant
from slurmd_compat.stepd import encode_spec
from slurmd_compat.tasks import step_order

GOOD = Callback("127.0.0.1", 4000, bytes(32))


def ask(world: World, message: CreateStep | AttachStep) -> Any:
    world.answers.clear()
    world.feed("n1", Ask(Source("local", 1), 1000, 1000, message))
    (answer,) = world.answers
    return answer


@pytest.fixture(scope="module")
def world() -> World:
    made = World(1)
    made.run()
    return made


@pytest.mark.parametrize(
    "callback",
    [
        Callback("127.0.0.1", 99999, bytes(32)),
        Callback("127.0.0.1", -5, bytes(32)),
        Callback("", 4000, bytes(32)),
        Callback("a\0b", 4000, bytes(32)),
        # A supervisor's commands are lines.
        Callback("h\nlimit 0\n", 4000, bytes(32)),
        Callback("h 4000", 4000, bytes(32)),
        Callback("a" * 100_000, 4000, bytes(32)),
        Callback("127.0.0.1", 4000, b""),
        Callback("127.0.0.1", 4000, bytes(33)),
    ],
)
def test_a_client_that_cannot_be_called(world: World, callback: Callback) -> None:
    for message in (
        CreateStep(b"1", StepSpec(7, argv=["true"]), callback),
        AttachStep(b"1", 7, 0, callback),
    ):
        answer = ask(world, message)
        assert isinstance(answer, NotTaken)
        assert answer.message.startswith("error: Unable to create step for job 7: Invalid callback")


def test_a_client_on_ipv6_can_be_called(world: World) -> None:
    message = CreateStep(b"v6", StepSpec(7, argv=["true"]), Callback("fe80::1%eth0", 1, bytes(32)))
    assert isinstance(ask(world, message), Taken)


@pytest.mark.parametrize(
    "said",
    [
        *({name: -1} for name in ("ntasks", "cpus_per_task", "min_nodes", "gpus_total", "umask")),
        *({name: -2} for name in ("mem_per_cpu", "mem_per_node", "time_limit", "wait")),
        {"ntasks": 1 << 40, "overcommit": True},
        {"relative": -7},
        {"stdin_task": -3},
        {"umask": 1 << 60},
        {"argv": ["a\0b"]},
        {"name": "n" * 5000},
        {"submit_line": "n" * (2 << 20)},
        {"het_group": [0, 0]},
        {"rlimits": {"NOFILE": -7}},
        {"origin": "batch"},
        {"parts": [StepSpec(7, ntasks=-4)]},
        {"parts": [StepSpec(7, parts=[StepSpec(7)])]},
    ],
)
def test_what_cannot_be_meant_is_refused(world: World, said: dict[str, Any]) -> None:
    answer = ask(world, CreateStep(b"2", StepSpec(7, **{"argv": ["true"], **said}), GOOD))
    assert isinstance(answer, NotTaken)
    assert answer.code == "EINVAL"


def test_more_tasks_than_a_node_may_have_are_refused_as_slurm_does(world: World) -> None:
    # Slurm 22.05: srun -N1 -O -n 600 true
    spec = StepSpec(7, argv=["true"], ntasks=600, overcommit=True, overlap=True)
    answer = ask(world, CreateStep(b"3", spec, GOOD))
    sentence = "error: Unable to create step for job 7: Task count specification invalid"
    assert isinstance(answer, NotTaken)
    assert answer.message == sentence


def test_a_long_id_of_a_request_is_refused(world: World) -> None:
    spec = StepSpec(7, argv=["true"], overlap=True)
    assert isinstance(ask(world, CreateStep(bytes(65), spec, GOOD)), NotTaken)


def test_an_interactive_job_that_means_nothing_just_fails() -> None:
    wire = Interactive(Callback("127.0.0.1", 99999, bytes(32)), StepSpec(0, argv=["true"]))
    world = World(1, interactive=wire)
    world.run()
    world.advance(1000)
    assert not world.clients


def _anything(kind: Any) -> st.SearchStrategy[Any]:
    numbers = st.integers(-1, (1 << 31) - 1) | st.integers(0, 600) | st.integers(0, 8)
    texts = st.text(max_size=12) | st.sampled_from(
        ["plane=0", "plane=-1", "arbitrary", "cyclic:fcyclic", "map_cpu:-1", "mask_cpu:0xZZ",
         "map_cpu:99999999999999999999", "single:0", "per_task:-1", "map_gpu:70", "mask_gpu:0x",
         "gres/gpu:x:-1,cpu=-4", "0-99999999 true", "0 true\n1 %t %o '", "%99t%N", "pmix", "pmi2",
         "nomultithread", "ldoms", "rank_ldom", "NONE,A=b,=", "verbose,none", "*1 x"]
    )  # fmt: skip
    return {
        int: numbers,
        int | None: st.none() | numbers,
        str: texts,
        bool: st.booleans(),
        bool | None: st.none() | st.booleans(),
        list[str]: st.lists(texts, max_size=4),
        list[int]: st.lists(numbers, max_size=4),
        dict[str, int]: st.dictionaries(texts, numbers, max_size=3),
    }[kind]


_KINDS = {f.name: f.type for f in msgspec.structs.fields(StepSpec) if f.name != "parts"}
SPECS = st.lists(st.sampled_from(sorted(_KINDS)), max_size=5).flatmap(
    lambda names: st.fixed_dictionaries({name: _anything(_KINDS[name]) for name in names})
)


@settings(max_examples=300, deadline=None)
@given(said=SPECS, environment=st.binary(max_size=30))
def test_whatever_is_asked_is_answered_and_can_be_ordered(
    said: dict[str, Any], environment: bytes
) -> None:
    spec = StepSpec(**{"job_id": 7, "argv": ["true"], **said})
    if unfit(spec):
        return
    where, setup = job(4, 4, gpus=3), config("TaskPlugin=task/affinity")
    where.spec.name, where.user = "in.sh", "root"
    try:
        planned = plan_step(spec, where, [], setup)
    except (Busy, StepRefused):
        return
    assert 0 < planned.ntasks <= 512 * len(planned.nodes)
    step = Step(7, 1, 0, ntasks=planned.ntasks, nodes=planned.nodes)
    for index, share in enumerate(planned.nodes):
        launch = LaunchStep(
            step, spec, index, GOOD, environment, planned.task_cpus[index], planned.task_gpus[index]
        )
        try:
            items = step_order(
                launch, where, setup, share.node, Grant(),
                owner=(1000, 1000), groups="", rlimits=[],
            )  # fmt: skip
            encode_spec(items)
        except (LaunchError, ValueError):
            continue


def test_a_fault_of_the_rules_is_one_request_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    world.run()

    def broken(*_: Any) -> Any:
        raise IndexError("what nobody had thought of")

    monkeypatch.setattr(world.leader.steps, "plan", broken)
    answer = ask(world, CreateStep(b"9", StepSpec(7, argv=["true"]), GOOD))
    assert isinstance(answer, NotTaken)
    assert answer.message.startswith("error: Unable to create step for job 7: ")


def test_a_number_of_a_gpu_that_there_is_not_takes_no_memory() -> None:
    # A task on each node gets the first GPU there, as where any number has no GPU.
    spec = StepSpec(7, argv=["true"], gpu_bind="map_gpu:20000000000000", gpus_total=2, ntasks=2)
    assert plan_step(spec, job(4, 4, gpus=3), [], config()).task_gpus == [[1], [1]]


@pytest.mark.parametrize("text", ["0," * 400_000 + "0 true", "0 x " + "a%t" * 300_000])
def test_a_long_multi_prog_file_takes_no_seconds(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(MultiProgError):
        multi_prog(text, 2, "file", ())
    assert time.process_time() - begun < 2  # It took 9 s and 5 s: 0.1 s


def test_programs_of_tasks_elsewhere_are_not_made() -> None:
    text = "* x " + "a%t" * 300_000
    assert multi_prog(text, 500_000, "file", ()) == []
    (argv,) = multi_prog(text, 500_000, "file", [77])
    assert argv == ["x", "a77" * 300_000]
    with pytest.raises(MultiProgError, match="Argument list too long"):
        multi_prog(text, 512, "file")
