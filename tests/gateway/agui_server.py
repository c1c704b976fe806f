"""An AG-UI server of another author: Pydantic AI's, with a model that plays scripts. It keeps no history."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.servers import Listener

REFUSALS = {
    "Bearer talkative": JSONResponse({"error": "x" * 5000}, 400),
    "Bearer nested": JSONResponse({"error": {"message": "a message has at most 1 MB"}}, 413),
    "Bearer fastapi": JSONResponse({"detail": [{"msg": "Field required"}]}, 422),
    "Bearer failing": HTMLResponse("<html><h1>Internal Server Error</h1></html>", 500),
    "Bearer overloaded": PlainTextResponse("no healthy upstream", 503),
}
"""The answers to requests with these keys."""


class AguiServer:
    """The server, and what it has seen."""

    url: str

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        """The bodies of the requests."""
        self.headers: list[dict[str, str]] = []
        self.payments: list[int] = []
        self.speaks = asyncio.Event()
        """Lets an answer that has begun go on."""
        self.cancelled = asyncio.Event()
        """Set when the model's stream was cancelled, because its client left."""
        self._agent = Agent(FunctionModel(stream_function=self._answer), output_type=[str, DeferredToolRequests])
        self._agent.tool_plain(self.forecast)
        self._agent.tool_plain(requires_approval=True)(self.pay)

    async def forecast(self, city: str) -> str:
        return f"sun in {city}"

    async def pay(self, amount: int) -> str:
        self.payments.append(amount)
        return f"paid {amount}"

    async def _answer(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
        prompts = [
            str(part.content)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ]
        last = max(
            index
            for index, message in enumerate(messages)
            if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)
        )
        results = [
            part.model_response_str()
            for message in messages[last:]
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        said = [message for message in messages[last:] if isinstance(message, ModelResponse)]
        word, _, rest = prompts[-1].partition(" ")
        if said:
            yield f"So: {', '.join(results)}."
        elif word == "forecast":
            yield "Let me look. "
            for place, city in enumerate(rest.split()):
                yield {
                    place + 1: DeltaToolCall(
                        name="forecast", json_args=f'{{"city": "{city}"}}', tool_call_id=f"call_{city}"
                    )
                }
        elif word == "pay":
            yield {0: DeltaToolCall(name="pay", json_args=f'{{"amount": {rest}}}', tool_call_id=f"pay_{rest}")}
        elif word == "paint":
            yield {0: DeltaToolCall(name="paint", json_args="{}", tool_call_id="paint_1")}
        elif word == "think":
            yield {0: DeltaThinkingPart(content="Hmm.")}
            yield "Thought."
        elif word == "recall":
            yield " | ".join(prompts)
        elif word == "fail":
            yield "I will "
            raise RuntimeError("the model is broken")
        elif word == "wait":
            yield "one "
            try:
                await self.speaks.wait()
            except BaseException:
                self.cancelled.set()
                raise
            yield "two"
        else:
            yield f"You said: {prompts[-1]}"

    async def _serve(self, request: Request) -> Response:
        if request.headers.get("authorization") == "Bearer wrong":
            return PlainTextResponse("incorrect key: wro**", 401)
        if request.headers.get("authorization") in REFUSALS:
            return REFUSALS[request.headers["authorization"]]
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        return await AGUIAdapter.dispatch_request(request, agent=self._agent)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/agent", self._serve, methods=["POST"]),
                Route("/moved", lambda request: RedirectResponse("/agent", 307), methods=["POST"]),
            ]
        )


@asynccontextmanager
async def running_agui_server() -> AsyncIterator[AguiServer]:
    """Run the server."""
    server = AguiServer()
    listener = Listener(uvicorn.Config(server.app(), port=0, log_config=None, timeout_graceful_shutdown=1))
    connection = await listener.start()
    server.url = f"{connection.url}/agent"
    try:
        yield server
    finally:
        await listener.stop()
