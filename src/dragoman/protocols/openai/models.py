"""The agents as models."""

from starlette.requests import Request

from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.endpoints import endpoint
from dragoman.protocols.openai import wire
from dragoman.protocols.openai.handlers import OpenAiHandlers

CREATED = 1_767_225_600
"""`created` of every model: agents do not have a time, and clients expect one that does not change."""


class ModelHandlers(OpenAiHandlers):
    """The models."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @endpoint("GET", "/models")
    async def models(self, request: Request) -> wire.Models:
        """List the agents. Their aliases are not listed."""
        return wire.Models(data=tuple(_model(agent.spec) for agent in self._engine.agents.values()))

    @endpoint("GET", "/models/{model:path}")
    async def model(self, request: Request) -> wire.ModelInfo:
        """Get an agent."""
        return _model(self._engine.agent(request.path_params["model"]).spec)


def _model(spec: AgentSpec) -> wire.ModelInfo:
    return wire.ModelInfo(id=spec.name, created=CREATED, name=spec.title or spec.name, description=spec.description)
