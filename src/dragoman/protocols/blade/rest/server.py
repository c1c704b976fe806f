"""What Blade's clients ask a server before anything else: version, configuration, who they are. Source: 5.1."""

from datetime import UTC, datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.refusals import AgentNotFound
from dragoman.engine.engine import Engine
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.rest.router import Route
from dragoman.protocols.kit.http import json_response, principal_of


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    level: str
    """The level of Blade that is served: clients of the same number fit."""
    oldest_client_level: str
    """The oldest client level."""
    server_version: str
    """The version of this server."""
    sharing_enabled: bool = True
    memory_enabled: bool = True


def routes(engine: Engine, server_info: ServerInfo) -> list[Route]:
    """What answers besides sessions, memories, keys and schedules."""
    door = _ServerHandlers(engine, server_info)
    return [
        Route("GET", "health", door.health, is_open=True),
        Route("GET", "version", door.version, is_open=True),
        Route("GET", "config", door.config, is_open=True),
        Route("GET", "config/models", door.models),
        Route("GET", "auth/me", door.me),
        Route("GET", "solutions", door.solutions),
        Route("GET", "solutions/{solution}/biz-roles", door.roles),
    ]


class _ServerHandlers:
    def __init__(self, engine: Engine, about: ServerInfo) -> None:
        self._engine = engine
        self._server_info = about

    async def health(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def version(self, _: Request) -> Response:
        server = {"name": "dragoman", "version": self._server_info.server_version}
        return json_response(
            {"version": self._server_info.level, "min_sdk": self._server_info.oldest_client_level, "server": server}
        )

    async def config(self, _: Request) -> Response:
        empty = dict.fromkeys(("sentryDsn", "posthogKey", "posthogHost", "asrProvider", "gisMapUrl", "bladeOsPath"), "")
        flags = {
            "asrEnabled": False,
            "publicSharingEnabled": self._server_info.sharing_enabled,
            "memoryEnabled": self._server_info.memory_enabled,
        }
        return json_response({**empty, **flags})

    async def models(self, _: Request) -> Response:
        """Agents choose their models themselves; the one name here stands for that."""
        choice = {"id": "default", "name": "default", "label": "default"}
        return json_response({"default": "default", "models": [choice], "baseUrl": ""})

    async def me(self, request: Request) -> Response:
        user = principal_of(request).user
        since = datetime(1970, 1, 1, tzinfo=UTC)  # users are known by their keys alone
        return json_response({"id": user, "username": user, "avatar_url": None, "created_at": since})

    async def solutions(self, _: Request) -> Response:
        return json_response({"items": [translate.solution_of(agent.spec) for agent in self._engine.agents.values()]})

    async def roles(self, request: Request) -> Response:
        name = request.path_params["solution"]
        if name not in self._engine.agents:
            raise AgentNotFound(name, self._engine.agents)
        return json_response({"solution_id": name, "user_id": principal_of(request).user, "items": []})
