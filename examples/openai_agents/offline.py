"""The support desk of `support_desk.py` with a model that needs no key: it follows a few rules.

dragoman serve examples/openai_agents/offline.py
"""

import json
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

from agents import Model, ModelResponse, TResponseInputItem, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)
from support_desk import billing, shipping, triage  # type: ignore[import-not-found]


class RuleModel(Model):
    """Hands off refunds, finds the order, refunds it, and says what happened."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        *args: object,
        **kwargs: object,
    ) -> ModelResponse:
        return ModelResponse(output=[next_item(input)], usage=Usage(), response_id=None)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        *args: object,
        **kwargs: object,
    ) -> AsyncIterator[ResponseStreamEvent]:
        async for event in stream(next_item(input)):
            yield event


async def stream(*items: ResponseFunctionToolCall | ResponseOutputMessage) -> AsyncIterator[ResponseStreamEvent]:
    """The events of a response: words one by one, and at the end all its items."""
    for item in items:
        if isinstance(item, ResponseOutputMessage):
            for part in item.content:
                for word in part.text.split(" ") if isinstance(part, ResponseOutputText) else ():
                    yield ResponseTextDeltaEvent(
                        type="response.output_text.delta",
                        delta=f"{word} ",
                        item_id=item.id,
                        content_index=0,
                        output_index=0,
                        sequence_number=0,
                        logprobs=[],
                    )
    response = Response(
        id="response",
        created_at=0,
        model="rules",
        object="response",
        output=list(items),
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
    )
    yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def next_item(given: str | list[TResponseInputItem]) -> ResponseFunctionToolCall | ResponseOutputMessage:
    """What the model says or calls next."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else cast(list[dict[str, Any]], given)
    start = max(place for place, item in enumerate(items) if item.get("role") == "user")
    text = str(items[start]["content"]).lower()
    outputs = [str(item["output"]) for item in items[start:] if item.get("type") == "function_call_output"]
    if "refund" not in text:
        return message("I can help with refunds. Which order is it?")
    if not any("Billing agent" in str(item.get("output")) for item in items):
        return call("transfer_to_billing_agent", {})
    order = next((word.strip(".,?!").upper() for word in text.split() if word[1:].strip(".,?!").isdigit()), "A17")
    if not any(output.startswith("Order ") for output in outputs):
        return call("find_order", {"order_id": order})
    if outputs[-1].startswith("Order "):
        return call("refund", {"order_id": order, "amount": 59})
    return message(outputs[-1])


def call(name: str, arguments: dict[str, Any]) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", call_id=f"call_{uuid4().hex}", name=name, arguments=json.dumps(arguments)
    )


def message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="message", type="message", role="assistant", status="completed", content=[part])


for _agent in (triage, billing, shipping):
    _agent.model = RuleModel()
