"""The state that an agent and its applications share: it belongs to the thread, and nobody erases it by silence."""

import copy
import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.protocols.agui.state_patch import delta_of
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.official_clients import VERSIONS, OfficialClients, Version, check
from tests.protocols.agui.run_service import RunServiceClient
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, SocketServer

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


@requirement("ag-ui-b:state:delta", "ag-ui-b:clients:no-warnings")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_change_of_a_large_state_is_a_delta_that_clients_apply(
    agui_clients: OfficialClients, socket_server: SocketServer, version: Version
) -> None:
    url, key, thread = f"{socket_server.connection.url}/ag-ui/editing", socket_server.key("alice"), str(uuid4())
    agent = await agui_clients.open(version, url, thread=thread, key=key)
    ran = check(await agent.send_and_run("go"))
    states = [each for each in ran.events if each["type"].startswith("STATE_")]
    assert [each["type"] for each in states] == ["STATE_SNAPSHOT", "STATE_DELTA", "STATE_SNAPSHOT"]
    assert sorted(states[1]["delta"], key=str) == [
        {"op": "add", "path": "/new", "value": None},
        {"op": "add", "path": "/rows/-", "value": {"text": "new"}},
        {"op": "remove", "path": "/old"},
        {"op": "replace", "path": "/a~1b~0c", "value": True},
        {"op": "replace", "path": "/rows/2/done", "value": True},
    ]
    back = await agui_clients.open(version, url, thread=thread, key=key)
    assert check(await back.run()).state == ran.state


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4),
    max_leaves=12,
)


@requirement("ag-ui-b:state:delta")
@given(JSON, JSON)
def test_a_delta_gives_the_new_state(old: Json, new: Json) -> None:
    padding = "x" * 2000  # so that a delta is smaller than the state
    delta = delta_of({"padding": padding, "state": old}, {"padding": padding, "state": new})
    assert delta is not None
    state = {"padding": padding, "state": old}
    for operation in delta:
        apply(state, operation)
    assert json.dumps(state, sort_keys=True) == json.dumps({"padding": padding, "state": new}, sort_keys=True)


def apply(state: Json, operation: Json) -> None:
    """Apply an operation to a state, in place."""
    *above, last = [each.replace("~1", "/").replace("~0", "~") for each in operation["path"].split("/")[1:]]
    target = copy.deepcopy(operation.get("value"))
    for name in above:
        state = state[int(name)] if isinstance(state, list) else state[name]
    if operation["op"] == "remove":
        del state[last]
    elif last == "-":
        state.append(target)
    else:
        state[int(last) if isinstance(state, list) else last] = target
