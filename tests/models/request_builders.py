"""Builders of requests, and functions that collect the events of a call, for the tests of models."""

import asyncio
from contextlib import aclosing
from typing import Any

from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage, UserMessage
from dragoman.core.ids import CallId, MessageId
from dragoman.core.tools import ToolSpec
from dragoman.ports.models import Model, ModelEvent, ModelFailed, ModelRequest

TIMEOUT_S = 60.0

ADD = ToolSpec(
    name="add",
    description="Add two integers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def user(content: Any, **more: Any) -> UserMessage:
    return UserMessage(id=MessageId("u"), content=content, **more)


def assistant(*content: Any, **more: Any) -> AssistantMessage:
    if len(content) == 1 and isinstance(content[0], str):
        return AssistantMessage(id=MessageId("a"), content=content[0], **more)
    return AssistantMessage(id=MessageId("a"), content=tuple(content), **more)


def call(call_id: str, name: str = "add", **arguments: Any) -> Call:
    return Call(call_id=CallId(call_id), name=name, input=arguments)


def result(call_id: str, content: Any, name: str = "add", **more: Any) -> ToolMessage:
    return ToolMessage(id=MessageId("t"), call_id=CallId(call_id), name=name, content=content, **more)


def a_request(*messages: Message | str, **more: Any) -> ModelRequest:
    spoken = [user(message) if isinstance(message, str) else message for message in messages or ("Hello",)]
    return ModelRequest(model="tested", messages=spoken, **more)


async def events_of(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """All events of one call."""
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in model.stream(request)]


async def events_until(model: Model, request: ModelRequest, count: int) -> list[ModelEvent]:
    """The first events of a call, which is then abandoned."""
    events: list[ModelEvent] = []
    async with asyncio.timeout(TIMEOUT_S), aclosing(model.stream(request)) as stream:
        async for event in stream:
            events.append(event)
            if len(events) == count:
                break
    return events


async def events_and_failure(model: Model, request: ModelRequest) -> tuple[list[ModelEvent], ModelFailed | None]:
    """The events of a call that fails, and its error."""
    events: list[ModelEvent] = []
    try:
        async with asyncio.timeout(TIMEOUT_S):
            async for event in model.stream(request):
                events.append(event)  # noqa: PERF401  # events before an error count
    except ModelFailed as failed:
        return events, failed
    return events, None
