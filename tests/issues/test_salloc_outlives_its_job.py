"""The shell of a cancelled salloc ended long after the job was forgotten, and salloc then waited
for half a minute for an answer that its node no longer gave.
"""

from __future__ import annotations

import pytest
from agent_world import World

from gsched.model.step import Callback
from gsched.wire.steps import Interactive


@pytest.mark.parametrize("wstatus, code", [(0, 0), (3 << 8, 3)])
def test_its_shell_is_answered_when_the_job_is_forgotten(wstatus: int, code: int) -> None:
    world = World(2, interactive=Interactive(Callback("h", 1, bytes(32))))
    world.run()
    client = world.clients[1]
    world.kill()
    world.advance(1000)
    world.forget()
    world.advance(60_000)
    assert client.errors[-1] == "salloc: Job allocation 7 has been revoked."
    assert client.codes == []
    world.say(client, "Z", wstatus.to_bytes(4, "big"))
    assert client.codes == [code]
    assert client.gone
