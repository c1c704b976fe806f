"""OpenAI's API, section 4.3: what the tool loops of official clients send and read beside the answers."""

from typing import Any

import pytest

from tests.protocols.openai.client import OpenAiClient, call, function, output, script
from tests.protocols.openai.stream import text_of
from tests.requirements import requirement

Json = Any
PICK = script({"calls": [{"name": "pick"}, {"name": "pick"}]}, {"say": "{results}"})


@requirement("openai:session:answers", "openai:session:previous", "openai:session:conversation")
@pytest.mark.parametrize("named", ["conversation", "previous_response_id"])
async def test_a_tool_loop_may_resend_its_turn_with_the_answers(alice: OpenAiClient, named: str) -> None:
    """As that of the AI SDK, which names the same conversation or response at every step."""
    draft = await alice.post("/conversations", {"items": [{"role": "user", "content": "zero"}]})
    one = await alice.respond("one", conversation=draft["id"])
    where = {named: draft["id"] if named == "conversation" else one["id"]}
    two_steps = script(call("pick", n=1), call("pick", n=2), {"say": "got {result}"})
    turn: list[Json] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": two_steps}]
    tools = [function("pick")]
    asked = await alice.respond(turn, tools=tools, **where)
    for answer in ("A", "B"):
        (made,) = asked["output"]
        turn += [made] if named == "previous_response_id" else []
        turn.append(output(made["call_id"], answer))
        asked = await alice.respond(turn, tools=tools, **where)
    assert text_of(asked) == "got B"
    items = (await alice.get(f"/conversations/{draft['id']}/items?order=asc"))["data"]
    kinds = [each.get("role", each["type"]) for each in items[3:]]
    assert kinds == ["system", "user", *["function_call", "function_call_output"] * 2, "assistant"]
    again = {"input": turn, **where}
    assert (await alice.refused("POST", "/responses", again))[1] == "no_pending_call", "nothing is new"


@requirement("openai:session:answers")
async def test_a_new_message_before_an_answer_is_not_taken_for_a_resent_one(alice: OpenAiClient) -> None:
    asked = await alice.respond(PICK, tools=[function("pick")])
    first, second = (output(each["call_id"], "it") for each in asked["output"])
    late = {"role": "user", "content": "recall"}
    done = await alice.respond([first, late, second], previous_response_id=asked["id"])
    sent = (await alice.get(f"/responses/{done['id']}/input_items?order=asc"))["data"]
    assert [each["type"] for each in sent] == ["function_call_output", "function_call_output", "message"]


@requirement("openai:conversations:items", "openai:responses:input-items")
async def test_the_items_of_results_have_their_pictures(alice: OpenAiClient) -> None:
    """Also a large one: the Agents SDK reads them, and sends them to its model again."""
    asked = await alice.respond(script(call("pick", n=1)), tools=[function("pick")])
    (made,) = asked["output"]
    parts = [
        {"type": "input_text", "text": "seen"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{'A' * 100_000}"},
    ]
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": parts}
    answered = await alice.respond([result], previous_response_id=asked["id"])
    draft = await alice.post("/conversations", {"items": [{**made, "call_id": "c"}, {**result, "call_id": "c"}]})
    for path in (f"/responses/{answered['id']}/input_items", f"/conversations/{draft['id']}/items"):
        (item,) = (await alice.get(f"{path}?limit=1"))["data"]
        shown = [{name: each[name] for name in part} for part, each in zip(parts, item["output"], strict=True)]
        assert shown == parts, path
