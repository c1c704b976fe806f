"""An agent behind AG-UI, without any framework: `uvicorn agui_server:app --port 9000`."""

import json
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def answer(body: dict[str, object], user: str) -> AsyncIterator[str]:
    """Repeat what the user has said in this conversation."""

    def event(kind: str, **members: object) -> str:
        return f"data: {json.dumps({'type': kind, **members})}\n\n"

    ids = {"threadId": body["threadId"], "runId": body["runId"]}
    messages = body["messages"]
    assert isinstance(messages, list)
    said = [each["content"] for each in messages if each["role"] == "user"]
    yield event("RUN_STARTED", **ids)
    yield event("TEXT_MESSAGE_START", messageId=ids["runId"], role="assistant")
    for word in (f"{user} said: ", ", then ".join(said)):
        yield event("TEXT_MESSAGE_CONTENT", messageId=ids["runId"], delta=word)
    yield event("TEXT_MESSAGE_END", messageId=ids["runId"])
    yield event("RUN_FINISHED", **ids)


async def agent(request: Request) -> StreamingResponse:
    """The agent's endpoint."""
    events = answer(await request.json(), request.headers.get("x-user", "somebody"))
    return StreamingResponse(events, media_type="text/event-stream")


app = Starlette(routes=[Route("/agent", agent, methods=["POST"])])
