"""Version, configuration, models and agents: what Blade's clients ask first. Source: specification, section 5.1."""

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.principal import Principal
from dragoman.core.refusals import AgentNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.keys import KeyRing
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.rest.endpoints import BladeHandlers, endpoint


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a server reports about itself."""

    level: str
    """The level of Blade that is served; a client of the same number fits."""
    oldest_client_level: str
    server_version: str
    sharing_enabled: bool
    memory_enabled: bool
    """Whether sessions use memories if neither the client nor the agent says."""


class ServerHandlers(BladeHandlers):
    """Handlers of the server's own endpoints."""

    def __init__(self, engine: Engine, server_info: ServerInfo, key_ring: KeyRing) -> None:
        self.engine = engine
        self._server_info = server_info
        self._key_ring = key_ring
        self._started_at = engine.clock.now()

    @endpoint("GET", "/health", is_open=True)
    async def health(self) -> dict[str, str]:
        """Check that the server answers."""
        return {"status": "ok"}

    @endpoint("GET", "/version", is_open=True)
    async def version(self) -> JsonObject:
        """Get the level of Blade that is served."""
        info = self._server_info
        server = {"name": "dragoman", "version": info.server_version}
        return {"version": info.level, "min_sdk": info.oldest_client_level, "server": server}

    @endpoint("GET", "/config", is_open=True)
    async def config(self) -> JsonObject:
        """Get the features that are switched on."""
        empty = dict.fromkeys(("sentryDsn", "posthogKey", "posthogHost", "asrProvider", "gisMapUrl", "bladeOsPath"), "")
        return {
            **empty,
            "asrEnabled": False,
            "publicSharingEnabled": self._server_info.sharing_enabled,
            "memoryEnabled": self._server_info.memory_enabled,
        }

    @endpoint("GET", "/config/models")
    async def models(self) -> JsonObject:
        """List the models that a client can name."""
        # Agents choose their models themselves; the one name here stands for that choice.
        choice = {"id": "default", "name": "default", "label": "default"}
        return {"default": "default", "models": [choice], "baseUrl": ""}

    @endpoint("GET", "/auth/me")
    async def me(self, principal: Principal) -> JsonObject:
        """Get the owner of the key."""
        user = principal.user
        keys = self._key_ring.list_for_user(user)  # users are known by their keys alone
        since = min((key.created_at for key in keys), default=self._started_at)
        return {
            "id": user,
            "username": user,
            "avatar_url": None,
            "created_at": since,
            "scopes": sorted(principal.scopes),  # ours: what the console offers
        }

    @endpoint("GET", "/solutions")
    async def solutions(self) -> JsonObject:
        """List the agents that are served."""
        return {"items": [translate.solution_of(agent.spec) for agent in self.engine.agents.values()]}

    @endpoint("GET", "/solutions/{solution}/biz-roles")
    async def roles(self, principal: Principal, solution: str) -> JsonObject:
        """List the variants of an agent."""
        if solution not in self.engine.agents:
            raise AgentNotFound(solution, self.engine.agents)
        return {"solution_id": solution, "user_id": principal.user, "items": []}
