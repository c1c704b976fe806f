"""The state that an agent and its applications share: it belongs to the thread, and nobody erases it by silence."""

from typing import Any
from uuid import uuid4

import pytest

from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
UNSET = object()


def of_agent(name: str, server: AppServer) -> Endpoint:
    return Endpoint(server.connection, server.key("alice"), agent=name)


async def hydrated_state(endpoint: Endpoint, thread: str) -> Json:
    """The state that a client gets that comes back; `UNSET` without one."""
    events = (await endpoint.hydrate(thread)).events
    return next((each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"), UNSET)


@requirement("ag-ui-b:state:kept")
@pytest.mark.parametrize("sent", [{}, {"state": {}}, {"state": None}])
async def test_a_run_of_a_client_without_state_leaves_the_state_as_it_is(
    app_server: AppServer, sent: dict[str, Json]
) -> None:
    counting, thread = of_agent("counting", app_server), str(uuid4())
    await counting.run(an_input("one", thread=thread, state={"count": 5}))
    assert (await counting.run(an_input("two", thread=thread, **sent))).text == "8 9"
    assert await hydrated_state(counting, thread) == {"count": 9, "nothing": None}


@requirement("ag-ui-b:state:kept")
async def test_a_thread_that_never_had_a_state_has_none(endpoint: Endpoint) -> None:
    thread = str(uuid4())
    await endpoint.run(an_input("hello", thread=thread, state={}))
    assert await hydrated_state(endpoint, thread) is UNSET


@requirement("ag-ui-b:state:kept", "runs:state:shared")
async def test_every_protocol_continues_with_the_state_also_after_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        counting, thread = of_agent("counting", server), str(uuid4())
        runs = RunServiceClient(server.connection, server.key("alice"))
        props = {"agent_type": "counting"}
        await runs.play(thread, "one", forwardedProps=props, state={"count": 1})
        assert await hydrated_state(counting, thread) == {"count": 3, "nothing": None}
        await server.restart()
        counting, runs = of_agent("counting", server), RunServiceClient(server.connection, server.key("alice"))
        aap = AapClient(server.connection, server.key("alice"))
        await aap.post(f"/sessions/{thread}/turns", {"messages": [{"role": "user", "content": "two"}]})
        assert await hydrated_state(counting, thread) == {"count": 5, "nothing": None}
        await runs.play(thread, "three", "r-2", forwardedProps=props, state={})
        assert (await counting.run(an_input("four", thread=thread))).text == "8 9"


@requirement("ag-ui-b:state:kept", "runs:state:shared")
@pytest.mark.parametrize("state", [{}, {"count": 3}])
async def test_an_answer_continues_with_what_the_agent_shared_before_it_asked(
    app_server: AppServer, state: Json
) -> None:
    asking, thread = of_agent("asking", app_server), str(uuid4())
    runs = RunServiceClient(app_server.connection, app_server.key("alice"))
    props = {"agent_type": "asking"}
    before = state.get("count", 0)
    frames = await runs.play(thread, "one", forwardedProps=props, state=state)
    (question,) = frames[-1].event["outcome"]["interrupts"]
    answer = {"callId": question["id"], "custom": "yes"}
    accepted = (await runs.post(f"/runs/{thread}/answers", {"answers": [answer]})).json
    shared = [frame.event for frame in await runs.events(thread, accepted["taskId"])]
    assert [each["snapshot"] for each in shared if each["type"] == "STATE_SNAPSHOT"] == [{"count": before + 2}]
    question = (await asking.run(an_input("two", thread=thread, state={}))).events[-1]["outcome"]["interrupts"][0]
    assert await hydrated_state(asking, thread) == {"count": before + 3}
    resume = [{"interruptId": question["id"], "status": "resolved", "payload": "yes"}]
    resumed = await asking.run(an_input(thread=thread, messages=[], resume=resume, state={}))
    assert resumed.text == str(before + 4)
    assert await hydrated_state(asking, thread) == {"count": before + 4}
