"""An AG-UI server on the protocol's Python SDK that behaves as LangGraph's: it stores messages by their IDs,
answers of models that do not stream come in a snapshot only, and a run ends with the graph's own interrupts.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import uvicorn
from ag_ui import core
from ag_ui.encoder import EventEncoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.servers import Listener

PAYMENTS = ({"amount": 5}, {"amount": 6})
PATHS = ("/outcome", "/custom", "/", "/slash/")
APPROVAL = {"action_requests": [{"name": "pay", "args": each} for each in PAYMENTS], "review_configs": []}
WHOLE = "pay in one piece"
"""Lets the model send each call in one piece: LangGraph's server leaves out the arguments, but in its snapshot."""
INTERRUPTS: dict[str, Any] = {
    "pay": APPROVAL,
    WHOLE: APPROVAL,
    "ask": {"question": "Which?", "options": ["tea", "mate"]},
}


class GraphServer:
    """The server, and what it has seen. `/outcome` reports interrupts in the run's outcome, `/custom` in an event."""

    url: str

    def __init__(self) -> None:
        self.resumed: list[Any] = []
        """The values that the graph was resumed with."""
        self._threads: dict[str, dict[str, core.Message]] = {}
        self._ids = map(str, count())

    def _play(self, given: core.RunAgentInput, *, is_custom: bool) -> Iterator[core.BaseEvent]:
        thread = self._threads.setdefault(given.thread_id, {})
        yield core.RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
        for message in given.messages:
            thread.setdefault(message.id, message)
        asked = [str(each.content) for each in thread.values() if isinstance(each, core.UserMessage)]
        value: Any = None
        resume = (given.forwarded_props or {}).get("command") or {}
        if given.resume:
            resume = {"resume": given.resume[0].payload}
        if resume:
            self.resumed.append(resume["resume"])
            self._answer(thread, json.dumps(resume["resume"]))
        elif asked[-1] == "recall":
            self._answer(thread, " | ".join(asked))
        elif asked[-1] == "stream":
            answer = self._answer(thread, "one two")
            yield core.TextMessageStartEvent(message_id=answer, role="assistant")
            for delta in ("one ", "two"):
                yield core.TextMessageContentEvent(message_id=answer, delta=delta)
            yield core.TextMessageEndEvent(message_id=answer)
        elif asked[-1] in INTERRUPTS:
            value = INTERRUPTS[asked[-1]]
            for index, each in enumerate(PAYMENTS if value is APPROVAL else ()):
                call_id = f"pay-{given.run_id}-{index}"
                yield core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name="pay")
                if asked[-1] != WHOLE:
                    yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=json.dumps(each))
                yield core.ToolCallEndEvent(tool_call_id=call_id)
                function = core.FunctionCall(name="pay", arguments=json.dumps(each))
                call = core.ToolCall(id=call_id, function=function)
                thread[call_id] = core.AssistantMessage(id=call_id, role="assistant", tool_calls=[call])
        else:
            self._answer(thread, "Done.")
        yield core.MessagesSnapshotEvent(messages=[*thread.values()])
        outcome = None
        if value is not None and is_custom:
            yield core.CustomEvent(name="on_interrupt", value=json.dumps(value))
        elif value is not None:
            details = {"id": "i-1", "reason": "langgraph:interrupt", "metadata": {"langgraph": {"raw": value}}}
            outcome = {"type": "interrupt", "interrupts": [details]}
        yield core.RunFinishedEvent.model_validate(
            {"thread_id": given.thread_id, "run_id": given.run_id, "outcome": outcome}
        )

    def _answer(self, thread: dict[str, core.Message], text: str) -> str:
        message_id = f"answer-{next(self._ids)}"
        thread[message_id] = core.AssistantMessage(id=message_id, role="assistant", content=text)
        return message_id

    async def _serve(self, request: Request) -> StreamingResponse:
        given = core.RunAgentInput.model_validate_json(await request.body())
        encoder = EventEncoder(accept=request.headers.get("accept", ""))
        events = self._play(given, is_custom=request.url.path == "/custom")
        return StreamingResponse(map(encoder.encode, events), media_type=encoder.get_content_type())

    def app(self) -> Starlette:
        return Starlette(routes=[Route(path, self._serve, methods=["POST"]) for path in PATHS])


@asynccontextmanager
async def running_graph_server() -> AsyncIterator[GraphServer]:
    """Run the server."""
    server = GraphServer()
    listener = Listener(uvicorn.Config(server.app(), port=0, log_config=None, timeout_graceful_shutdown=1))
    server.url = (await listener.start()).url
    try:
        yield server
    finally:
        await listener.stop()
