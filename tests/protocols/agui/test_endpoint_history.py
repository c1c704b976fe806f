"""What is new in a history that a client sends again, and what opens a branch. Source: B.9; shared rules, 13, 15."""

from typing import Any
from uuid import uuid4

import pytest

from tests.conversations import call, script
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, Reply, an_input
from tests.protocols.agui.endpoint_streams import PAINT, user
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any


@requirement("ag-ui-b:history:only-new")
async def test_a_client_may_send_only_what_is_new(endpoint: Endpoint) -> None:
    body = an_input("first")
    await endpoint.run(body)
    await endpoint.run({**body, "runId": "2", "messages": [user("second")]})
    reply = await endpoint.run({**body, "runId": "3", "messages": [user("recall")]})
    assert reply.text == "first | second"


@requirement("ag-ui-b:history:seeds")
async def test_a_new_thread_starts_with_the_history_that_its_client_sends(endpoint: Endpoint) -> None:
    before = [
        {"id": "s", "role": "system", "content": "Be kind."},
        user("first"),
        {"id": "a", "role": "assistant", "content": "and?"},
    ]
    body = an_input(messages=[*before, user("recall")])
    assert (await endpoint.run(body)).text == "first"
    again = await endpoint.run({**body, "runId": "next", "messages": [*body["messages"], user("recall")]})
    assert again.text == "first | recall"


@requirement("ag-ui-b:branch:edit")
async def test_a_new_text_for_the_newest_message_opens_a_branch(app_server: AppServer, endpoint: Endpoint) -> None:
    thread = str(uuid4())
    body = an_input(thread=thread, messages=[user("first", "u1")])
    await endpoint.run(body)
    second = [*body["messages"], user("second", "u2")]
    await endpoint.run({**body, "runId": "2", "messages": second})
    edited = [*body["messages"], user("edited", "u2")]
    assert (await endpoint.run({**body, "runId": "3", "messages": edited})).text == "You said: edited"
    said = [each["content"] for each in await endpoint.messages(thread)]
    assert said == ["first", "You said: first", "edited", "You said: edited"]
    reply = await AapClient(app_server.connection, app_server.key("alice")).get(f"/sessions/{thread}/history?type=full")
    assert len(reply.json["history"]["full"]) == 4
    older = [user("changed", "u1"), *edited[1:]]
    after = await endpoint.run({**body, "runId": "4", "messages": [*older, user("recall", "u3")]})
    assert after.text == "changed | edited"


@requirement("ag-ui-b:branch:edit")
async def test_the_only_message_is_edited_with_a_new_id_by_a_client_that_sends_all_it_shows(endpoint: Endpoint) -> None:
    complete, silent = {"x-message-history": "complete"}, dict[str, str]()
    edited = ["edited", "You said: edited"]
    added = ["first", "You said: first", *edited]
    for before, now, messages in ((complete, complete, edited), (silent, complete, edited), (silent, silent, added)):
        thread = str(uuid4())
        for text, headers in (("first", before), ("edited", now)):
            body = {**an_input(thread=thread, messages=[user(text, text)]), "runId": text}
            assert (await endpoint.run(body, headers=headers)).text == f"You said: {text}"
        assert [each["content"] for each in await endpoint.messages(thread)] == messages


@requirement("ag-ui-b:branch:edit")
async def test_a_refused_edit_leaves_the_thread_unchanged(endpoint: Endpoint) -> None:
    body = an_input(messages=[user("first", "u1")])
    await endpoint.run(body)
    before = await endpoint.messages(body["threadId"])
    edited = [user("x" * (1024 * 1024 + 1), "u1")]
    assert (await endpoint.run({**body, "runId": "2", "messages": edited})).status >= 400
    assert await endpoint.messages(body["threadId"]) == before


@requirement("ag-ui-b:branch:edit")
async def test_an_error_in_the_history_of_a_new_thread_names_the_message_that_has_it(endpoint: Endpoint) -> None:
    thought = {"id": "r1", "role": "reasoning", "content": "Hm."}
    answer = {"id": "a1", "role": "assistant", "content": "Yes."}
    past = [user("hello", "u1"), thought, answer, user("x" * 1_100_000, "u2"), {**answer, "id": "a2"}]
    refused = await endpoint.run(an_input(messages=[*past, user("now", "u3")]))
    assert (refused.status, refused.json["path"]) == (400, "messages[3]")


@requirement("ag-ui-b:branch:regenerate")
async def test_a_history_that_ends_in_a_known_message_gets_a_new_answer(endpoint: Endpoint) -> None:
    body = an_input(messages=[user("first", "u1")])
    await endpoint.run(body)
    second = {**body, "runId": "2", "messages": [*body["messages"], user("second", "u2")]}
    await endpoint.run(second)
    before = await endpoint.messages(body["threadId"])
    again = await endpoint.run({**second, "runId": "3"})
    assert again.text == "You said: second"
    after = await endpoint.messages(body["threadId"])
    assert [each["content"] for each in after] == [each["content"] for each in before]
    assert after[-1]["id"] != before[-1]["id"]
    await endpoint.run({**body, "runId": "4"})
    assert [each["content"] for each in await endpoint.messages(body["threadId"])] == ["first", "You said: first"]


@requirement("ag-ui-b:branch:shorter")
async def test_a_new_message_after_a_shorter_history_branches_there(endpoint: Endpoint) -> None:
    body = an_input(messages=[user("first", "u1")])
    await endpoint.run(body)
    await endpoint.run({**body, "runId": "2", "messages": [user("second", "u2")]})
    shown = (await endpoint.messages(body["threadId"]))[:2]
    reply = await endpoint.run({**body, "runId": "3", "messages": [*shown, user("recall", "u3")]})
    assert reply.text == "first"
    said = [each["content"] for each in await endpoint.messages(body["threadId"])]
    assert said == ["first", "You said: first", "recall", "first"]


@requirement("ag-ui-b:branch:sibling")
async def test_a_new_message_after_an_inactive_branch_continues_that_branch(endpoint: Endpoint) -> None:
    body = an_input(messages=[user("first", "u1")])
    await endpoint.run(body)
    await endpoint.run({**body, "runId": "2", "messages": [user("second", "u2")]})
    one = await endpoint.messages(body["threadId"])
    await endpoint.run({**body, "runId": "3", "messages": [*one[:2], user("other", "u3")]})
    back = await endpoint.run({**body, "runId": "4", "messages": [*one, user("recall", "u4")]})
    assert back.text == "first | second"
    assert [each["id"] for each in await endpoint.messages(body["threadId"])][:4] == [each["id"] for each in one]


@requirement("ag-ui-b:branch:sibling")
async def test_an_earlier_answer_to_the_same_message_is_its_own_branch(endpoint: Endpoint) -> None:
    body = an_input(messages=[user("first", "u1")])
    await endpoint.run(body)
    one = await endpoint.messages(body["threadId"])
    await endpoint.run({**body, "runId": "2"})
    back = await endpoint.run({**body, "runId": "3", "messages": [*one, user("recall", "u2")]})
    assert back.text == "first"
    assert [each["id"] for each in await endpoint.messages(body["threadId"])][:2] == [each["id"] for each in one]


@requirement("ag-ui-b:branch:retry", "ag-ui-b:hydrate:failed")
@pytest.mark.parametrize("words", [[], [{"say": "half"}]])
async def test_a_message_whose_run_failed_can_be_retried(endpoint: Endpoint, words: list[Json]) -> None:
    body = an_input(script(*words, {"fail": "internal"}))
    assert (await endpoint.run(body)).types[-1] == "RUN_ERROR"
    hydrated = (await endpoint.hydrate(body["threadId"])).events
    assert hydrated[-1]["metadata"] == {"dragoman": {"stopReason": "error"}}
    for number in range(2):
        shown = await endpoint.messages(body["threadId"])
        again = await endpoint.run({**body, "runId": f"again {number}", "messages": shown})
        assert again.types[-1] == "RUN_ERROR"
    assert (await endpoint.run({**body, "runId": "alone"})).types[-1] == "RUN_ERROR"
    assert len(await endpoint.messages(body["threadId"])) == 1 + len(words)
    await endpoint.run({**body, "runId": "next", "messages": [*body["messages"], user("hello")]})
    assert "metadata" not in (await endpoint.hydrate(body["threadId"])).events[-1]


@requirement("ag-ui-b:branch:join")
async def test_a_retry_while_the_run_continues_joins_it(app_server: AppServer, endpoint: Endpoint) -> None:
    body = an_input(script({"say": "so far "}, {"wait_ms": 2_000}, {"say": "and on"}))
    stream = await endpoint.open("POST", endpoint.agent, body, headers={"x-run-on-disconnect": "continue"})
    received = b""
    while b"so far " not in received:
        received += await stream.chunk() or b""
    await stream.disconnect()
    joined = await endpoint.run({**body, "runId": "again"})
    assert joined.types[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert (joined.text, joined.types[-1]) == ("so far and on", "RUN_FINISHED")
    assert len(await endpoint.messages(body["threadId"])) == 2


@requirement("ag-ui-b:history:once")
async def test_resending_a_message_of_another_protocol_as_it_was_shown_is_not_an_edit(
    app_server: AppServer, endpoint: Endpoint
) -> None:
    thread = str(uuid4())
    aap = AapClient(app_server.connection, app_server.key("alice"))
    await endpoint.run(an_input("hello", thread=thread))
    blocks = [{"type": "text", "text": "look "}, {"type": "image", "url": "https://example.org/x.png"}]
    await aap.post(f"/sessions/{thread}/turns", {"messages": [{"role": "user", "content": blocks}]})
    messages = await endpoint.messages(thread)
    again = await endpoint.run(an_input(thread=thread, messages=messages))
    assert again.types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert again.events[1]["messages"] == messages
    twice = [user("only once", "u9"), user("only once", "u9")]
    await endpoint.run(an_input(thread=thread, messages=[*messages, *twice]))
    assert [each["content"] for each in await endpoint.messages(thread)].count("only once") == 1


@requirement("ag-ui-b:history:once")
async def test_a_history_resent_with_new_ids_is_stored_once(endpoint: Endpoint) -> None:
    """As clients send it that give their messages no ids of their own until they send them."""
    body = an_input("first")

    async def run(*messages: Json, **fields: Json) -> Reply:
        again = [{**each, "id": str(uuid4())} for each in messages]
        return await endpoint.run({**body, "runId": str(uuid4()), "messages": again, **fields})

    def said(reply: Reply) -> Json:
        return {"role": "assistant", "content": reply.text}

    first = [user("first"), said(await run(user("first")))]
    second = [*first, user("first"), said(await run(*first, user("first")))]
    assert (await run(*second, user("recall"))).text == "first | first"
    question = user(script(call("paint", colour="blue"), {"say": "Painted: {result}"}))
    (call_id,) = (await run(*second, question, tools=[PAINT])).events[-1]["outcome"]["pendingToolCallIds"]
    tool_call = {"type": "function", "id": call_id, "function": {"name": "paint", "arguments": "{}"}}
    answer = [
        {"role": "assistant", "toolCalls": [tool_call]},
        {"role": "tool", "toolCallId": call_id, "content": "blue"},
    ]
    assert (await run(*second, question, *answer, tools=[PAINT])).text == "Painted: blue"
    elsewhere = [user("said elsewhere"), {"role": "assistant", "content": "and answered there"}]
    assert (await run(*second, *elsewhere, user("recall"))).text == "first | first | said elsewhere"
