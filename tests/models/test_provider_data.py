"""What a provider needs back with its answers is kept in the log, and returned to it alone."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from dragoman import Agent, tool
from dragoman.core.content import AssistantMessage, JsonObject, Text, Thinking
from dragoman.models.provider_data import parts_with_data, provider_data_of
from dragoman.models.providers import ProviderModel
from tests.models.request_builders import assistant, call
from tests.protocols.aap.client import Session
from tests.servers import running_server

LAST = theirs.ToolCallPart("add", {"a": 1}, tool_call_id="theirs", provider_name="google", provider_details={"x": 1})
PARTS: list[theirs.ModelResponsePart] = [
    theirs.ThinkingPart("Hm. ", id="rs_1", signature="c2ln", provider_name="openai"),
    theirs.ThinkingPart("", signature="hidden", provider_name="anthropic", id="redacted_thinking"),
    theirs.TextPart("Let me "),
    theirs.TextPart("see.", provider_name="google", provider_details={"thought_signature": "YWJj"}),
    LAST,
]
MESSAGE = assistant(Thinking("Hm. "), Text("Let me see."), call("ours", a=1))


def test_the_parts_of_an_answer_are_restored_from_the_log() -> None:
    message = with_data(provider_data_of("p", PARTS))
    restored = parts_with_data(message, "p")
    assert restored == [*PARTS[:4], dataclasses.replace(LAST, tool_call_id="ours")]


@pytest.mark.parametrize(
    "changed",
    [
        assistant(Thinking("Hm"), Text("Let me see."), call("ours", a=1)),
        assistant(Thinking("Hm. "), Text("Let me see. More"), call("ours", a=1)),
        assistant(Thinking("Hm. "), Text("Let me see.")),
        assistant(Thinking("Hm. "), Text("Let me see."), call("ours", a=1), call("second", a=2)),
    ],
)
def test_a_changed_message_has_no_data(changed: AssistantMessage) -> None:
    data = provider_data_of("p", PARTS)
    assert parts_with_data(with_data(data, changed), "p") is None


def test_another_provider_gets_nothing_and_ordinary_answers_have_nothing() -> None:
    assert parts_with_data(with_data(provider_data_of("p", PARTS)), "q") is None
    assert provider_data_of("p", [theirs.TextPart("x"), theirs.ToolCallPart("add", {})]) is None


@tool
async def add(a: int) -> int:
    """Add one."""
    return a + 1


async def test_signed_reasoning_is_returned_within_a_run_and_after_a_restart(tmp_path: Path) -> None:
    requests: list[list[theirs.ModelMessage]] = []

    async def answer(
        messages: list[theirs.ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaThinkingPart] | dict[int, DeltaToolCall]]:
        requests.append(messages)
        yield {0: DeltaThinkingPart(content="I think.")}
        yield {0: DeltaThinkingPart(signature=f"signature {len(requests)}")}
        if len(requests) == 1:
            yield {1: DeltaToolCall(name="add", json_args='{"a": 1}', tool_call_id="c")}
        else:
            yield "Two."

    def model() -> ProviderModel:
        return ProviderModel("function:f", {}, lambda: FunctionModel(stream_function=answer))

    agents = [Agent("signer", model=model(), tools=[tool(exposed=False)(add)], history=True)]
    async with running_server(tmp_path, agents=agents, rehearsal=False) as server:
        session = await server.aap_client("alice").create("signer")
        first = await session.run("one plus one?")
        assert (first.stop, first.text) == ("end_turn", "Two.")
        assert b"signature" not in first.raw
        await server.restart([Agent("signer", model=model(), tools=[tool(exposed=False)(add)], history=True)])
        again = Session(server.aap_client("alice"), session.id)
        await again.run("and again?")
        assert "signature" not in str(await again.history())
    thoughts = [
        [part.signature for message in messages for part in message.parts if isinstance(part, theirs.ThinkingPart)]
        for messages in requests
    ]
    assert thoughts == [[], ["signature 1"], ["signature 1", "signature 2"]]


def with_data(data: JsonObject | None, message: AssistantMessage = MESSAGE) -> AssistantMessage:
    assert data is not None
    return msgspec.structs.replace(message, provider_data=msgspec.json.decode(msgspec.json.encode(data)))
