"""An AG-UI server as the Python SDK's documentation builds one: a route of FastAPI. It keeps nothing."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from uuid import uuid4

from ag_ui import core
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.gateway.published_servers.program import COUNTED, pause, pay, serve

QUESTIONS: tuple[dict[str, Any], ...] = (
    {"reason": "input_required", "message": "Age?", "response_schema": {"type": "integer"}},
    {"reason": "team:feedback", "message": "Good?", "response_schema": {"type": "string", "enum": ["good", "bad"]}},
    {"reason": "input_required", "message": "Why?"},
)
app = FastAPI()


@app.post("/agent")
async def agent(given: core.RunAgentInput, request: Request) -> StreamingResponse:
    encoder = EventEncoder(accept=request.headers.get("accept", ""))

    async def encoded() -> AsyncIterator[str]:
        yield encoder.encode(core.RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id))
        try:
            async for event in answer(given):
                yield encoder.encode(event)
        except RuntimeError as error:
            yield encoder.encode(core.RunErrorEvent(message=str(error), code="broken"))

    return StreamingResponse(encoded(), media_type=encoder.get_content_type())


async def answer(given: core.RunAgentInput) -> AsyncIterator[core.BaseEvent]:
    """The events after the run's start."""
    prompts = [str(each.content) for each in given.messages if isinstance(each, core.UserMessage)]
    word, _, rest = prompts[-1].partition(" ")
    interrupts: list[core.Interrupt] = []
    for event in result_events(given, rest):
        yield event
    if word == "ask" and given.resume:
        pieces = [repr([(each.status, each.payload) for each in given.resume])]
    elif word == "ask":
        pieces, interrupts = [], [core.Interrupt(id=str(uuid4()), **each) for each in QUESTIONS]
    elif given.resume or isinstance(given.messages[-1], core.ToolMessage):
        pieces = ["So it ", "is."]
    elif word in ("forecast", "pay", "paint"):
        calls = list(calls_for(word, rest))
        for event in (event for each in calls for event in call_events(*each)):
            yield event
        if word == "pay":
            call_id = calls[0][0]
            interrupts = [core.Interrupt(id=str(uuid4()), reason="tool_call", tool_call_id=call_id, message="Pay?")]
        for call_id, _name, arguments in calls if word == "forecast" else ():
            content = f"sun in {arguments['city']}"
            yield core.ToolCallResultEvent(message_id=str(uuid4()), tool_call_id=call_id, content=content)
        pieces = ["So it ", "is."] if word == "forecast" else []
    elif word == "fail":
        raise RuntimeError("the agent is broken")
    else:
        pieces = {"count": COUNTED, "recall": [" | ".join(prompts)]}.get(word, ["Hello", " there."])
    async for event in text_events(pieces):
        yield event
    outcome = core.RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts) if interrupts else None
    yield core.RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome)


async def text_events(pieces: Sequence[str]) -> AsyncIterator[core.BaseEvent]:
    """A message in pieces, if there are any."""
    message_id = str(uuid4())
    if pieces:
        yield core.TextMessageStartEvent(message_id=message_id, role="assistant")
        for piece in pieces:
            yield core.TextMessageContentEvent(message_id=message_id, delta=piece)
            await pause()
        yield core.TextMessageEndEvent(message_id=message_id)


def result_events(given: core.RunAgentInput, rest: str) -> Iterator[core.BaseEvent]:
    """The result of a call that was allowed or denied."""
    for entry in given.resume or () if rest else ():
        is_allowed = entry.status == "resolved" and (entry.payload or {}).get("approved")
        calls = [
            call for each in given.messages if isinstance(each, core.AssistantMessage) for call in each.tool_calls or ()
        ]
        content = pay(int(rest)) if is_allowed else "denied"
        yield core.ToolCallResultEvent(message_id=str(uuid4()), tool_call_id=calls[-1].id, content=content)


def calls_for(word: str, rest: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The calls that a message asks for: their IDs, names and arguments."""
    for each in rest.split():
        key = {"forecast": "city", "pay": "amount", "paint": "colour"}[word]
        yield str(uuid4()), word, {key: int(each) if word == "pay" else each}


def call_events(call_id: str, name: str, arguments: dict[str, object]) -> Iterator[core.BaseEvent]:
    """A call, with its arguments in two pieces."""
    text = json.dumps(arguments)
    yield core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name)
    yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=text[:5])
    yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=text[5:])
    yield core.ToolCallEndEvent(tool_call_id=call_id)


if __name__ == "__main__":
    serve(app)
