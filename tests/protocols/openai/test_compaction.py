"""OpenAI's API: conversations are compacted, and continue in new sessions."""

from typing import Any

import pytest

from dragoman import Agent
from dragoman.testing import Scripted, call
from tests.protocols.openai.client import OpenAiClient, function, output, script
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any


def said(compacted: Json) -> list[str]:
    """The user's messages of a compacted conversation."""
    return [each["content"][0]["text"] for each in compacted["output"] if each["type"] == "message"]


async def compact(alice: OpenAiClient, **fields: Json) -> Json:
    return await alice.post("/responses/compact", {"model": "rehearsal", **fields})


@requirement("openai:compact:up-to", "openai:compact:continues")
async def test_a_response_is_compacted_with_what_precedes_it_in_its_branch(alice: OpenAiClient) -> None:
    first = await alice.respond("one")
    second = await alice.respond("two", previous_response_id=first["id"])
    branch = await alice.respond("three", previous_response_id=first["id"])
    assert said(await compact(alice, previous_response_id=first["id"])) == ["one"]
    assert said(await compact(alice, previous_response_id=second["id"])) == ["one", "two"], "its branch is hidden"
    compacted = await compact(alice, previous_response_id=branch["id"], input="and four")
    assert said(compacted) == ["one", "three", "and four"]
    summary = compacted["output"][-1]["encrypted_content"]
    assert all(text in summary for text in ("one", "three", "and four"))
    assert "two" not in summary
    continued = await alice.respond([*compacted["output"], {"role": "user", "content": "recall"}])
    assert continued["output"][0]["content"][0]["text"] == "one | three | and four"
    items = (await alice.get(f"/responses/{branch['id']}/input_items"))["data"]
    assert [each["content"][0]["text"] for each in items] == ["three"], "what was compacted is unchanged"


@requirement("openai:compact:up-to")
@pytest.mark.parametrize(
    ("answers", "result"), [([], "no result yet"), ([output("call_pay", "paid 5")], "paid 5")], ids=["open", "answered"]
)
async def test_the_call_that_a_response_ends_with_is_part_of_the_summary(
    open_app_server: AppServerFactory, answers: Json, result: str
) -> None:
    model = Scripted([call("pay", amount=5), "They want to pay."], context_window=10_000)
    async with open_app_server(agents=[Agent("clerk", model=model, client_tools=True)], default_agent=None) as server:
        alice = OpenAiClient(server.connection, server.key("alice"))
        asked = await alice.respond("Pay 5.", model="clerk", tools=[function("pay")])
        sent = [{**each, "call_id": asked["output"][0]["call_id"]} for each in answers]
        compacted = await compact(alice, model="clerk", previous_response_id=asked["id"], input=sent or None)
        assert compacted["output"][-1]["encrypted_content"].endswith("They want to pay.")
    (read,) = model.read()
    summarized = ["User: Pay 5.", 'Assistant: [calls pay with {"amount":5}]', f"Result of pay: {result}"]
    assert read.removeprefix("user: ").split("\n")[:3] == summarized


@requirement("openai:compact:up-to")
async def test_an_open_call_of_a_sent_history_is_part_of_the_summary(open_app_server: AppServerFactory) -> None:
    model = Scripted(["They want to pay."], context_window=10_000)
    history = [
        {"role": "user", "content": "Pay 5."},
        {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": '{"amount":5}'},
    ]
    async with open_app_server(agents=[Agent("clerk", model=model)], default_agent=None) as server:
        await compact(OpenAiClient(server.connection, server.key("alice")), model="clerk", input=history)
    assert 'Assistant: [calls pay with {"amount":5}]\nResult of pay: no result yet' in model.read()[0]


@requirement("openai:compact:refused")
async def test_what_cannot_be_compacted_is_refused(alice: OpenAiClient, app_server: AppServer) -> None:
    async def refused(client: OpenAiClient = alice, **fields: Json) -> tuple[int, str, str]:
        return await client.refused("POST", "/responses/compact", {"model": "rehearsal", "input": "x", **fields})

    assert await refused(model=None) == (400, "missing_required_parameter", "model")
    assert await refused(model=7) == (400, "invalid_type", "model")
    assert await refused(model="nobody") == (404, "model_not_found", "model")
    assert await refused(model="mirror") == (400, "unsupported_value", "model")
    assert await refused(input=None) == (400, "missing_required_parameter", "input")
    assert await refused(input=[{"type": "nonsense"}]) == (400, "invalid_value", "input[0].type")
    assert await refused(input=[{"type": "compaction"}]) == (
        400,
        "missing_required_parameter",
        "input[0].encrypted_content",
    )
    first = await alice.respond("one")
    bob = OpenAiClient(app_server.connection, app_server.key("bob"))
    for client, response_id in ((bob, first["id"]), (alice, "resp_x"), (alice, f"resp_{'0' * 32}")):
        where = (400, "previous_response_not_found", "previous_response_id")
        assert await refused(client, previous_response_id=response_id) == where
    running = await alice.respond(script({"wait_ms": 600_000}), background=True)
    assert await refused(previous_response_id=running["id"]) == (409, "conversation_busy", "")
    await alice.post(f"/responses/{running['id']}/cancel", {})


@requirement("openai:paths:unknown")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_it_is_no_response(alice: OpenAiClient, method: str) -> None:
    assert await alice.refused(method, "/responses/compact") == (405, "method_not_allowed", "")
