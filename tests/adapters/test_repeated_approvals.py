"""One approval runs a tool of a framework once, also if its client repeats it after a crash."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman.core.answers import INTERRUPTED_RESULT
from tests.adapters.scenes import FRAMEWORKS, CallOf, Framework
from tests.adapters.scripted_agents import Effects, build
from tests.asgi_client import DEADLINE_S
from tests.engine.world import PauseGate
from tests.protocols.aap.client import AapClient, Session, grant
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.requirements import requirement
from tests.servers import running_socket_server


@requirement("faults:41:approvals")
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_approval_repeated_after_a_crash_does_not_run_the_tool_again(
    framework: Framework, tmp_path: Path
) -> None:
    effects = Effects({"pay": [[CallOf("pay", {"amount": 5})], ["Let us see."]]})
    stuck_at = effects.calls_wait_at["pay 5"] = PauseGate()
    agent, thread = build(framework, effects, on_restart={"pay": "ask"}), str(uuid4())
    async with running_socket_server(tmp_path, agents=[agent], rehearsal=False) as server:
        client = Endpoint(server.connection, server.key("alice"), agent=agent.spec.name)
        asked = await client.run(an_input("pay", thread=thread))
        (interrupt,) = asked.events[-1]["outcome"]["interrupts"]
        session = Session(AapClient(server.connection, server.key("alice")), thread)
        approving = asyncio.create_task(session.post([grant(interrupt["id"])]))
        async with asyncio.timeout(DEADLINE_S):
            await stuck_at.entered.wait()
        await server.restart()
        approving.cancel()
        await asyncio.wait([approving])
        stuck_at.opened.set()
        session = Session(AapClient(server.connection, server.key("alice")), thread)
        watched = await session.watch("0")
        await watched.read_to_end()
        await session.post([grant(interrupt["id"])])
        assert effects.ran == {"pay 5": 1}
        *_, result, answer = await session.history()
    assert (result["role"], result["content"]) == ("tool", INTERRUPTED_RESULT)
    assert [block["text"] for block in answer["content"] if block["type"] == "text"] == ["Let us see."]
