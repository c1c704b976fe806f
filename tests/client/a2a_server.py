"""The A2A server of the official SDK, with any executor. Below `/old` its card is one of an agent that speaks 0.3."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.servers import Listener


async def old_card(request: Request) -> JSONResponse:
    """The card of an agent that speaks 0.3 alone."""
    capabilities = {"streaming": True}
    address = {"url": "http://elsewhere.example/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
    return JSONResponse({"name": "scripted", "version": "1", "capabilities": capabilities, **address})


@asynccontextmanager
async def running_a2a_server(executor: AgentExecutor) -> AsyncIterator[str]:
    """Run the server, which knows no keys. Yields its address."""
    card = AgentCard(
        name="scripted",
        description="does what it reads",
        version="1",
        supported_interfaces=[
            AgentInterface(url="http://elsewhere.example/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="talk", description="talks", tags=["talk"])],
    )
    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)]
    app: Any = Starlette(routes=[*routes, Route("/old/.well-known/agent-card.json", old_card)])
    listener = Listener(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    connection = await listener.start()
    try:
        yield connection.url
    finally:
        await listener.stop()
        await handler.aclose()  # its tasks go on after the clients have left
