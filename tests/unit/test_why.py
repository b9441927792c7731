"""Why a job waits, in constructed situations: the cause, the counts, the start, and that what is
suggested instead starts indeed (`Waits` submits every suggestion in a world of its own)."""

from __future__ import annotations

from unit.why_support import Waits, World


def test_gpus_fragmented_over_nodes() -> None:
    """Each node has three free GPUs: twelve in all, but nowhere four."""

    def build() -> World:
        world = World()
        for _ in range(4):
            world.started("--gres=gpu:5", "--time=2:00:00", "--mem=1000")
        return world

    w = Waits(build, "--gres=gpu:4", "--time=1:00:00")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert (w.place.nodes, w.place.needed, w.place.suited) == (4, 1, 0)
    assert w.counts == {("gpus", False): (4, 4)}
    assert (w.place.gpus, w.place.gpus_wanted, w.place.gpus_free) == (4, 4, 12)
    assert w.start == ("planned", 7200)
    assert w.options == {"--gres=gpu:3"}
