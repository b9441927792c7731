"""What must hold of steps whatever comes in whatever order: lost and doubled mail, crashes of the
daemons between any two actions, clients that go. Nothing is held twice, every client hears one
exit code, every step ends and is told, and every number is used once."""

from __future__ import annotations

import random

from agent_world import World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gsched.model import Phase
from gsched.model.step import Callback, StepSpec
from gsched.wire.nodes import Signal
from gsched.wire.steps import Interactive

STATUSES = st.sampled_from([0, 0, 0, 1 << 8, 3 << 8, 9, 11, 15])


class StepMachine(RuleBasedStateMachine):
    @initialize(
        nodes=st.integers(1, 3),
        limit=st.sampled_from([0, 0, 120]),
        kind=st.sampled_from(["batch", "batch", "salloc", "srun"]),
    )
    def begin(self, nodes: int, limit: int, kind: str) -> None:
        callback = Callback("h", 9999, bytes(32))
        interactive = None
        if kind == "salloc":
            interactive = Interactive(callback)
        elif kind == "srun":
            interactive = Interactive(callback, StepSpec(0, argv=["a"], ntasks=nodes))
        self.kind = kind
        self.world = World(nodes, limit_s=limit, interactive=interactive)
        self.port = 0
        self.ending = False
        self.world.run()

    @rule(
        ntasks=st.integers(1, 6),
        spread=st.booleans(),
        exact=st.booleans(),
        overlap=st.booleans(),
        slow=st.booleans(),
        gpus=st.sampled_from([0, 0, 1]),
        immediate=st.sampled_from([-1, -1, 1]),
        kill=st.booleans(),
        wait=st.sampled_from([None, None, 5]),
        where=st.integers(0, 2),
    )
    def create(
        self,
        ntasks: int,
        spread: bool,
        exact: bool,
        overlap: bool,
        slow: bool,
        gpus: int,
        immediate: int,
        kill: bool,
        wait: int | None,
        where: int,
    ) -> None:
        world = self.world
        self.port += 1
        nodes = len(world.names) if spread else 0
        client = world.create(
            self.port,
            node=world.names[where % len(world.names)],
            ntasks=max(ntasks, nodes),
            min_nodes=nodes,
            exact=exact,
            overlap=overlap,
            gpus_per_node=gpus,
            gpus_set=bool(gpus),
            immediate=immediate,
            kill_on_bad_exit=kill,
            wait=wait,
        )
        client.slow = slow

    @rule(task=st.integers(0, 5), step=st.integers(0, 5), wstatus=STATUSES)
    def a_task_ends(self, task: int, step: int, wstatus: int) -> None:
        self.world.task_ends(task, wstatus, step)

    @rule()
    def they_obey(self) -> None:
        self.world.obey()

    @rule(seed=st.integers(0, 1 << 16), how=st.sampled_from(["lose", "double", "shuffle", "give"]))
    def mail(self, seed: int, how: str) -> None:
        rnd = random.Random(seed)
        post = self.world.post
        if not post:
            return
        if how == "lose":
            del post[rnd.randrange(len(post))]
        elif how == "double":
            post.append(post[rnd.randrange(len(post))])
        elif how == "shuffle":
            rnd.shuffle(post)
        else:
            _, to, item = post.pop(0)
            self.world.feed(to, item)

    @rule(seed=st.integers(0, 1 << 16), after=st.integers(0, 4))
    def mail_and_a_crash(self, seed: int, after: int) -> None:
        if self.world.post:
            _, to, item = self.world.post.pop(0)
            self.world.feed(to, item, crash_after=after)

    @rule(node=st.integers(0, 2))
    def crash(self, node: int) -> None:
        self.world.crash(self.world.names[node % len(self.world.names)])

    @rule(ms=st.sampled_from([5, 40, 700, 3000]), mail=st.booleans())
    def time(self, ms: int, mail: bool) -> None:
        self.world.advance(ms, mail=mail)

    @rule(which=st.integers(0, 30), signum=st.sampled_from([2, 2, 10, 15]))
    def client_signals(self, which: int, signum: int) -> None:
        known = [c for c in self.world.clients.values() if c.calls]
        if known:
            self.world.say(known[which % len(known)], "G", bytes([signum]))

    @rule(which=st.integers(0, 30))
    def client_goes(self, which: int) -> None:
        known = [c for c in self.world.clients.values() if c.calls]
        if known:
            self.world.leave(known[which % len(known)])

    @precondition(lambda self: self.kind == "salloc")
    @rule(status=STATUSES)
    def shell_ends(self, status: int) -> None:
        client = self.world.clients[9999]
        if client.calls:
            self.world.say(client, "Z", status.to_bytes(4, "big"))

    @rule(step=st.integers(0, 5), signum=st.sampled_from([0, 10]))
    def scancel_a_step(self, step: int, signum: int) -> None:
        self.world.order(self.world.names[0], Signal(0, 7, 1, signum, "all", step))

    @precondition(lambda self: self.kind == "batch" and not self.ending)
    @rule(wstatus=STATUSES)
    def script_ends(self, wstatus: int) -> None:
        self.ending = True
        self.world.script_ends(wstatus)

    @rule(keeping=st.booleans())
    def controller_keeps(self, keeping: bool) -> None:
        self.world.keeping = keeping

    @invariant()
    def one_exit_code_at_most(self) -> None:
        for client in self.world.clients.values():
            # One that lingers is told again by a daemon that was restarted.
            assert len(client.codes) <= 1 or (client.slow and len(set(client.codes)) == 1)

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        world.keeping = True
        world.advance(2000)
        world.kill()
        if self.kind == "batch" and not self.ending:
            world.script_ends(15)
        for _ in range(40):
            world.obey()
            world.advance(3000)
        for name in world.names:
            assert world.phase(name) == Phase.RELEASED, name
        living = [s for s in world.supervisors.values() if not s.released]
        assert not living
        led = {
            key.step
            for (kind, key) in world.journals[world.names[0]]
            if kind.__name__ == "LeadRecord"
        }
        for step in world.kept.values():
            assert not step.running
        assert led <= set(world.kept), "a step that was not told"
        spawned = {key.step for _, key, _ in world.past}
        assert spawned <= set(world.kept), "a step ran that the controller does not know"
        for client in world.clients.values():
            if client.heard and not client.letters.endswith("R"):
                assert len(set(client.codes)) == 1 or client.gone, client.heard
        world.forget()
        world.advance(100)
        for name in world.names:
            assert not world.journals[name], name
        for client in world.clients.values():
            world.leave(client)


StepMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSteps = StepMachine.TestCase
