"""What an application does with the official clients, 1.0 and 0.x: specification, B.14, 1."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.conversations import call, calls, script
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import VERSIONS, Agent, OfficialClients, Version, check, user
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
PAINT = {"name": "paint", "description": "Paint in a colour.", "parameters": {"type": "object"}}
HANG = {"wait_ms": 600_000}
PAINT_BLUE = script(call("paint", colour="blue"), {"say": "Painted: {result}"})
STAMP = script(call("stamp", text="x"), {"say": "Then: {result}"})

both = pytest.mark.parametrize("version", VERSIONS)


class ClientFactory:
    """Opens clients of one version on the shared server."""

    def __init__(self, official: OfficialClients, server: SocketServer, version: Version) -> None:
        self.official = official
        self.server = server
        self.version = version
        self.endpoint = Endpoint(server.connection, server.key("alice"))

    async def open(
        self, thread: str | None = None, *, route: str = "", agent: str = "rehearsal", **more: Json
    ) -> Agent:
        url = f"{self.server.connection.url}/ag-ui/{agent}{route}"
        key = self.server.key("alice")
        return await self.official.open(self.version, url, thread=thread or str(uuid4()), key=key, **more)


@pytest.fixture
def client_factory(agui_clients: OfficialClients, socket_server: SocketServer, version: Version) -> ClientFactory:
    return ClientFactory(agui_clients, socket_server, version)


@both
@requirement("ag-ui-b:text:one-message", "ag-ui-b:clients:no-warnings")
async def test_a_text_becomes_one_message_in_the_client(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    ran = check(await agent.send_and_run("hello"))
    assert ran.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    (message,) = ran.new_messages
    assert message == {"id": message["id"], "role": "assistant", "content": "Hello! I am the rehearsal agent."}


@both
@requirement("ag-ui-b:text:streamed")
async def test_text_arrives_while_the_run_is_active(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    await agent.say(user(script({"say": "one "}, {"say": "two"}, HANG)))
    running = agent.begin()
    await agent.wait_for_text("one two")
    assert not running.done()
    await agent.abort()
    await running


@both
@requirement("ag-ui-b:tools:front-end")
async def test_a_front_end_tool_is_run_by_the_client_and_its_result_continues_the_run(
    client_factory: ClientFactory,
) -> None:
    agent = await client_factory.open()
    paused = check(await agent.send_and_run(PAINT_BLUE, tools=[PAINT]))
    assert paused.types == ["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    (message,) = paused.new_messages
    (paint,) = message["toolCalls"]
    assert paint == {
        "id": paint["id"],
        "type": "function",
        "function": {"name": "paint", "arguments": '{"colour":"blue"}'},
    }
    assert paused.finished is not None
    expected = {"type": "success", "pendingToolCallIds": [paint["id"]]} if client_factory.version == "1" else None
    assert paused.finished.get("outcome") == expected
    await agent.say({"id": "result-1", "role": "tool", "toolCallId": paint["id"], "content": "it is blue"})
    answered = check(await agent.run(tools=[PAINT]))
    assert answered.text == "Painted: it is blue"
    assert "TOOL_CALL_RESULT" not in answered.types


@both
@requirement("ag-ui-b:tools:declined")
async def test_a_declined_front_end_tool_is_an_answer(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    paused = check(await agent.send_and_run(PAINT_BLUE, tools=[PAINT]))
    call_id = paused.new_messages[0]["toolCalls"][0]["id"]
    declined = {"id": "no", "role": "tool", "toolCallId": call_id, "content": "", "error": "the user declined"}
    await agent.say(declined)
    assert check(await agent.run(tools=[PAINT])).text == "Painted: the user declined"


@both
@requirement("ag-ui-b:history:once")
async def test_the_model_sees_the_messages_of_two_runs_exactly_once(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    check(await agent.send_and_run("first"))
    check(await agent.send_and_run("second"))
    assert check(await agent.send_and_run("recall")).text == "first | second"
    stored = await client_factory.endpoint.messages(agent.thread)
    said = [each["content"] for each in stored]
    assert said == ["first", "You said: first", "second", "You said: second", "recall", "first | second"]


@both
@requirement("ag-ui-b:threads:parallel")
async def test_three_threads_run_concurrently_without_mixing(client_factory: ClientFactory) -> None:
    agents = [await client_factory.open() for _ in range(3)]
    running = []
    for number, agent in enumerate(agents):
        await agent.say(user(script({"say": f"thread {number}"}, HANG)))
        running.append(agent.begin())
    for number, agent in enumerate(agents):
        await agent.wait_for_text(f"thread {number}")
    assert not any(each.done() for each in running)  # all three are in the middle
    for agent in agents:
        await agent.abort()
    for number, ran in enumerate(await asyncio.gather(*running)):
        assert ran.text == f"thread {number}"


@both
@requirement("ag-ui-b:disconnect:cancels", "ag-ui-b:disconnect:next-at-once")
async def test_an_aborted_run_is_cancelled_and_the_next_message_is_answered_at_once(
    client_factory: ClientFactory,
) -> None:
    agent = await client_factory.open()
    await agent.say(user(script({"say": "never "}, HANG, {"say": "ending"})))
    running = agent.begin()
    await agent.wait_for_text("never ")
    await agent.abort()
    await agent.say(user("hello", "after"))
    ran, _ = await asyncio.gather(agent.run(), running)
    assert check(ran).text == "Hello! I am the rehearsal agent."
    stored = await client_factory.endpoint.messages(agent.thread)
    assert [each["content"] for each in stored][1:] == ["never ", "hello", "Hello! I am the rehearsal agent."]
    assert stored[1]["metadata"] == {"dragoman": {"interrupted": True}}


@both
@requirement("ag-ui-b:errors:run-error")
async def test_after_a_failure_the_next_message_is_answered(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    failed = check(await agent.send_and_run(script({"say": "half"}, {"fail": "internal details"})))
    assert failed.run_error is not None
    assert (failed.run_error["message"], failed.run_error["code"]) == ("The agent failed", "agent_error")
    assert check(await agent.send_and_run("hello")).text == "Hello! I am the rehearsal agent."


@both
@requirement("ag-ui-b:branch:regenerate")
async def test_a_client_that_removes_an_answer_gets_a_new_one(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    check(await agent.send_and_run("first"))
    before = check(await agent.send_and_run("second")).messages
    await agent.show(*before[:-1])
    again = check(await agent.run())
    assert again.text == "You said: second"
    assert await client_factory.endpoint.messages(agent.thread) == again.messages
    assert again.messages[-1]["id"] != before[-1]["id"]


@both
@requirement("ag-ui-b:branch:edit")
@pytest.mark.parametrize("new_id", ["u1", "u9"])
async def test_a_client_that_edits_a_message_gets_an_answer_to_it(client_factory: ClientFactory, new_id: str) -> None:
    agent = await client_factory.open()
    check(await agent.send_and_run("opening", "u0"))
    check(await agent.send_and_run("first", "u1"))
    before = check(await agent.send_and_run("second", "u2")).messages
    await agent.show(*before[:2], user("edited", new_id))
    assert check(await agent.run()).text == "You said: edited"
    ran = check(await agent.send_and_run("recall"))
    assert ran.text == "opening | edited"
    assert await client_factory.endpoint.messages(agent.thread) == ran.messages
    await agent.show(*before)  # back to the other branch
    assert check(await agent.send_and_run("recall")).text == "opening | first | second"


@both
@requirement("ag-ui-b:branch:retry")
async def test_a_client_that_still_shows_the_words_of_a_failed_run_can_retry(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    check(await agent.send_and_run("first"))
    failed = check(await agent.send_and_run(script({"say": "half"}, {"fail": "internal details"})))
    assert failed.messages[-1]["content"] == "half"
    for _ in range(2):
        again = check(await agent.run())
        assert again.run_error is not None
        assert again.text == "half"
    assert check(await agent.send_and_run("recall")).text == "first"


@both
@requirement("ag-ui-b:branch:retry")
async def test_a_client_that_stopped_a_run_can_ask_again(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    await agent.say(user(script({"say": "never "}, {"wait_ms": 2_000}, {"say": "ending"})))
    running = agent.begin()
    await agent.wait_for_text("never ")
    await agent.abort()
    await running
    assert check(await agent.run()).text == "never ending"


@both
@requirement("ag-ui-b:branch:retry", "ag-ui-b:hydrate:failed")
@pytest.mark.parametrize("text", [STAMP, PAINT_BLUE])
async def test_a_client_that_returns_asks_again_what_was_stopped_while_it_waited(
    client_factory: ClientFactory, text: str
) -> None:
    first = await client_factory.open()
    check(await first.send_and_run(text, tools=[PAINT]))
    await client_factory.endpoint.request("POST", f"rehearsal/stop/{first.thread}", {})
    second = await client_factory.open(first.thread)
    hydrated = check(await second.run())
    assert hydrated.finished is not None
    assert hydrated.finished["metadata"] == {"dragoman": {"stopReason": "cancelled"}}
    again = check(await second.run(tools=[PAINT]))
    assert "TOOL_CALL_START" in again.types
    assert [each["role"] for each in again.messages] == ["user", "assistant"]  # the one that was stopped is gone


@both
@requirement("ag-ui-b:branch:join")
async def test_a_client_that_retries_while_its_run_continues_joins_it(client_factory: ClientFactory) -> None:
    agent = await client_factory.open(headers={"x-run-on-disconnect": "continue"})
    await agent.say(user(script({"say": "so far "}, {"wait_ms": 2_000}, {"say": "and on"})))
    running = agent.begin()
    await agent.wait_for_text("so far ")
    await agent.abort()
    await running
    joined = check(await agent.run())
    assert joined.types[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert [each["content"] for each in joined.messages][1:] == ["so far and on"]
    assert await client_factory.endpoint.messages(agent.thread) == joined.messages


@both
@requirement("ag-ui-b:interrupts:approve", "ag-ui-b:interrupts:shape")
async def test_an_approved_tool_runs_and_its_result_is_reported_for_the_first_call(
    client_factory: ClientFactory,
) -> None:
    agent = await client_factory.open()
    paused = check(await agent.send_and_run(STAMP))
    (interrupt,) = paused.interrupts
    call_id = paused.new_messages[0]["toolCalls"][0]["id"]
    assert interrupt == {
        "id": call_id,
        "reason": "tool_call",
        "message": "Allow the call of stamp?",
        "toolCallId": call_id,
        "responseSchema": {
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"},
                "reason": {"type": "string"},
                "remember": {"type": "boolean"},
                "editedArgs": {"type": "object"},
            },
            "required": ["approved"],
        },
    }
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    answered = check(await agent.run(resume=[entry]))
    assert answered.types[:2] == ["RUN_STARTED", "TOOL_CALL_RESULT"]
    assert (answered.events[1]["toolCallId"], answered.events[1]["content"]) == (call_id, "stamped x")
    assert answered.text == "Then: stamped x"
    assert answered.interrupts == []


@both
@requirement("ag-ui-b:interrupts:cancel")
async def test_a_cancelled_interrupt_reports_to_the_model_that_it_was_declined(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    (interrupt,) = check(await agent.send_and_run(STAMP)).interrupts
    ran = check(await agent.run(resume=[{"interruptId": interrupt["id"], "status": "cancelled"}]))
    assert ran.text == "Then: Tool call denied"


@both
@requirement("ag-ui-b:interrupts:client-refuses")
async def test_a_client_refuses_locally_to_run_over_an_open_interrupt(client_factory: ClientFactory) -> None:
    """Which is why the server's own refusal is tested on the raw wire."""
    agent = await client_factory.open()
    check(await agent.send_and_run(STAMP))
    ran = await agent.send_and_run("never mind")
    assert ran.refused is not None
    assert "not addressed by resume" in ran.refused["message"]


@both
@requirement("ag-ui-b:hydrate:snapshot")
async def test_a_client_that_returns_gets_the_whole_thread(client_factory: ClientFactory) -> None:
    first = await client_factory.open()
    plan = {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}}
    text = script({"think": "hm"}, plan, {"say": "so "}, calls(("add", {"a": 1, "b": 2})), {"say": "{result}"})
    ran = check(await first.send_and_run(text))
    second = await client_factory.open(first.thread)
    hydrated = check(await second.run())
    assert hydrated.types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    roles = [each["role"] for each in hydrated.messages]
    assert sorted(roles) == ["activity", "assistant", "assistant", "reasoning", "tool", "user"]
    assert {each["id"]: each for each in hydrated.messages} == {each["id"]: each for each in ran.messages}


@both
@requirement("ag-ui-b:hydrate:interrupts")
async def test_a_client_that_returns_can_answer_open_interrupts(client_factory: ClientFactory) -> None:
    first = await client_factory.open()
    ran = check(await first.send_and_run(STAMP))
    second = await client_factory.open(first.thread)
    hydrated = check(await second.run())
    assert hydrated.interrupts == ran.interrupts
    entry = {"interruptId": ran.interrupts[0]["id"], "status": "resolved", "payload": {"approved": True}}
    assert check(await second.run(resume=[entry])).text == "Then: stamped x"


@both
@requirement("ag-ui-b:connect:joins", "ag-ui-b:connect:reopened")
async def test_a_second_client_joins_an_active_run_in_the_middle_of_a_text(client_factory: ClientFactory) -> None:
    first = await client_factory.open()
    await first.say(user("hello", "greeting"))
    check(await first.run())
    await first.say(user(script({"think": "hm"}, {"say": "so far "}, HANG), "long"))
    running = first.begin()
    await first.wait_for_text("so far ")
    second = await client_factory.open(first.thread, route="/connect")
    joining = second.begin()
    await second.wait_for_text("so far ")
    assert (await client_factory.endpoint.request("POST", f"rehearsal/stop/{first.thread}")).json == {"stopped": True}
    ran, joined = await running, check(await joining)
    assert joined.types == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED" if client_factory.version == "1" else "RUN_ERROR",
    ]
    said = {each["id"]: each.get("content") for each in joined.messages}
    assert said == {each["id"]: each.get("content") for each in ran.messages}


@both
@requirement("ag-ui-b:state:hydrated")
async def test_the_state_that_a_client_sent_last_is_returned_with_the_thread(client_factory: ClientFactory) -> None:
    first = await client_factory.open(state={"zoom": 3, "open": [None, "map"]})
    check(await first.send_and_run("hello"))
    second = await client_factory.open(first.thread)
    hydrated = check(await second.run())
    assert hydrated.types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert hydrated.state == {"zoom": 3, "open": [None, "map"]}


@both
@requirement("ag-ui-b:transport:http-errors")
async def test_a_client_gets_status_and_body_of_a_refusal(client_factory: ClientFactory) -> None:
    agent = await client_factory.open(headers={"authorization": "Bearer sk-dragoman-wrong"})
    ran = await agent.send_and_run("hello")
    assert ran.refused is not None
    assert (ran.refused["status"], ran.refused["payload"]["code"]) == (401, "unauthorized")
    client_factory.official.console.clear()  # a client says there that its run failed


@both
@requirement("ag-ui-b:subagents:attributed")
async def test_events_of_a_sub_agent_carry_its_id(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    ran = check(
        await agent.send_and_run(
            script({"fork": {"description": "dig", "script": [{"say": "gold"}]}}, {"say": "found {result}"})
        )
    )
    (started,) = [each for each in ran.events if each["type"] == "SUBAGENT_STARTED"]
    own = started["subagentRunId"]
    assert [each["type"] for each in ran.events if each.get("subagentRunId") == own] == [
        "SUBAGENT_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "SUBAGENT_FINISHED",
    ]
    assert started["parentToolCallId"] == own
    assert [each["content"] for each in ran.messages if each.get("subagentRunId") == own] == ["gold"]
    assert ran.messages[-1]["content"] == "found gold"


@both
@requirement("ag-ui-b:subagents:suspended")
async def test_a_waiting_sub_agent_is_suspended_and_continues_with_the_answer(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    below = [{"say": "may I? "}, call("stamp", text="x"), {"say": "did: {result}"}]
    paused = check(
        await agent.send_and_run(script({"fork": {"description": "dig", "script": below}}, {"say": "found {result}"}))
    )
    (interrupt,) = paused.interrupts
    (suspended,) = [each for each in paused.events if each["type"] == "SUBAGENT_FINISHED"]
    assert interrupt["subagentRunId"] == suspended["subagentRunId"]
    assert suspended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    answered = check(await agent.run(resume=[entry]))
    assert [each["type"] for each in answered.events if "subagentRunId" in each] == [
        "SUBAGENT_STARTED",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "SUBAGENT_FINISHED",
    ]
    assert answered.messages[-1]["content"] == "found did: stamped x"
    hydrated = check(await (await client_factory.open(agent.thread)).run())
    assert {each["id"] for each in hydrated.messages} == {each["id"] for each in answered.messages}


@both
@requirement("ag-ui-b:connect:reopened")
@pytest.mark.parametrize(
    "steps",
    [
        [{"say": "before "}, {"think": "hm"}, HANG],
        [{"fork": {"description": "dig", "script": [{"say": "deep "}, {"think": "down"}, HANG]}}],
        [call("add", a=1, b=2), {"say": "and "}, call("slow", seconds=600)],
        [HANG],
    ],
)
async def test_a_joining_client_accepts_whatever_is_open(client_factory: ClientFactory, steps: list[Json]) -> None:
    first = await client_factory.open()
    await first.say(user(script(*steps)))
    running = first.begin()
    await first.until("RUN_STARTED")
    second = await client_factory.open(first.thread, route="/connect")
    joining = second.begin()
    await second.until("MESSAGES_SNAPSHOT")
    await client_factory.endpoint.request("POST", f"rehearsal/stop/{first.thread}")
    check(await running)
    joined = check(await joining)
    stored = await client_factory.endpoint.messages(first.thread)
    said = {each["id"]: each.get("content") for each in joined.messages}
    assert said == {each["id"]: each.get("content") for each in stored}


@both
@requirement("ag-ui-b:errors:deleted")
async def test_deleting_a_thread_ends_its_streams(client_factory: ClientFactory) -> None:
    agent = await client_factory.open()
    await agent.say(user(script({"say": "before "}, HANG)))
    running = agent.begin()
    await agent.wait_for_text("before ")
    aap = AapClient(client_factory.server.connection, client_factory.server.key("alice"))
    assert (await aap.request("DELETE", f"/sessions/{agent.thread}")).status == 204
    assert check(await running).events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    assert (await client_factory.endpoint.hydrate(agent.thread)).status == 404


@both
@requirement("ag-ui-b:state:shared")
async def test_a_state_changed_by_the_agent_reaches_the_client_and_is_sent_back(
    client_factory: ClientFactory,
) -> None:
    agent = await client_factory.open(agent="counting")
    first = check(await agent.send_and_run("count"))
    assert [each["snapshot"]["count"] for each in first.events if each["type"] == "STATE_SNAPSHOT"] == [1, 2]
    assert first.state == {"count": 2, "nothing": None}
    second = check(await agent.send_and_run("count"))
    assert (second.text, second.state["count"]) == ("3 4", 4)
    back = await client_factory.open(agent.thread, agent="counting")
    assert check(await back.run()).state == {"count": 4, "nothing": None}
