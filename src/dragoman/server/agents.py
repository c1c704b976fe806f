"""Loads a server's agents, binds them to their models, and starts them."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import structlog

from dragoman.agents.base import ModelResolver
from dragoman.core.agent import Agent
from dragoman.engine.instrumentation.counted_model import CountedModel
from dragoman.models.optional_dependencies import (
    INSTALL_HINTS,
    is_embedded_model_installed,
)
from dragoman.models.registry import ManagedModel, ModelNameError, default_model, resolve
from dragoman.models.retrying import NamedModel, RetryingModel
from dragoman.ports.environment import Clock
from dragoman.ports.models import Model, ModelEvent, ModelFailed, ModelRequest
from dragoman.settings import Settings, SettingsError

STARTS_FILE = "rehearsal-starts.jsonl"

log = structlog.get_logger(__name__)


class TolerantModel:
    """A model that need not be usable (setting `models_required`): then its calls fail with the reason.

    Args:
        name: the model's name, for the log.
        model: the model, or why there is none.
    """

    def __init__(self, name: str, model: ManagedModel | Exception) -> None:
        self._name = name
        self._model = model

    def __getattr__(self, name: str) -> object:
        """What the model accepts, if it says so (`Model`)."""
        return getattr(self._model, name)

    @property
    def context_window(self) -> int | None:
        """The model's context window."""
        return None if isinstance(self._model, Exception) else self._model.context_window

    async def start(self) -> None:
        """Start the model, if there is one."""
        try:
            if not isinstance(self._model, Exception):
                await self._model.start()
        except ModelFailed as error:
            self._model = error
        if isinstance(self._model, Exception):
            log.warning("model cannot be used", model=self._name, reason=str(self._model))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model. Raises ModelFailed."""
        if isinstance(self._model, Exception):
            raise ModelFailed(str(self._model))
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Release all resources."""
        if not isinstance(self._model, Exception):
            await self._model.aclose()


class ModelPool:
    """The models that agents use; each is created once."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], progress: Callable[[str], None]) -> None:
        self._settings = settings
        self._environ = environ
        self._progress = progress
        self._models: dict[str, ManagedModel] = {}
        self._selection_reasons: dict[str, str] = {}

    def default_name(self, configured: str | None) -> str:
        """The model for agents that name none: the configured one, else one that the environment has a key for."""
        name, reason = (configured, "setting default_model") if configured else default_model(self._environ)
        self._selection_reasons[name] = reason
        return name

    def get(self, name: str) -> Model:
        """Return the model of that name, with its fallbacks; `start` starts it. Raises ModelNameError, ModelFailed."""
        settings = self._settings
        return RetryingModel(
            [self._get(each) for each in dict.fromkeys((name, *settings.fallback_models))],
            retries=settings.model_retries,
            max_delay_s=settings.model_retry_max_s,
            shows_errors=settings.shows_model_errors,
        )

    def _get(self, name: str) -> NamedModel:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = self._resolve(name)
            reason = self._selection_reasons.get(name, "named by an agent or in fallback_models")
            if name != "embedded" or "extra" in reason:  # which says so itself
                log.info("model chosen", model=_loggable_name(name), reason=reason)
        return NamedModel(_loggable_name(name), CountedModel(model, _loggable_name(name)))

    def _resolve(self, name: str) -> ManagedModel:
        if self._settings.models_required:
            return resolve(name, self._environ, self._progress)
        try:
            return TolerantModel(_loggable_name(name), resolve(name, self._environ, self._progress))
        except (ModelNameError, ModelFailed) as error:
            return TolerantModel(_loggable_name(name), error)

    async def start(self) -> None:
        """Start all models. Raises ModelFailed."""
        for model in self._models.values():
            await model.start()

    async def close(self) -> None:
        """Close all models."""
        for model in self._models.values():
            await model.aclose()


async def start_models(
    settings: Settings,
    agents: Sequence[Agent],
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    clock: Clock,
    stack: AsyncExitStack,
    resolve_model: ModelResolver | None = None,
) -> list[Agent]:
    """Choose a server's agents and start their models. Writes nothing to the data folder.

    Args:
        settings: whether to add the rehearsal agents, and the default model.
        agents: the agents to serve.
        environ: where models find their providers' keys.
        progress: called with a line of text during slow steps of a model's start.
        clock: the clock of the rehearsal agents.
        stack: closes the models.
        resolve_model: returns the model for a name; defaults to those that the settings and `environ` give.

    Returns:
        The agents, in the order in which they are listed.

    Raises:
        DeclarationError, ModelNameError, ModelFailed: with a message for the person at the terminal.
    """
    from dragoman.agents import serving

    agents = list(agents)
    if settings.rehearsal:
        agents += _rehearsal_agents(settings.folder, clock)
    models = ModelPool(settings, environ, progress)
    default_model_name = models.default_name(settings.default_model)
    if (
        not (agents or settings.default_model)
        and default_model_name == "embedded"
        and not is_embedded_model_installed()
    ):
        log.warning(
            "no model is installed, serving the rehearsal agent",
            hint=f"set a provider's key, such as OPENAI_API_KEY, or install a model: {INSTALL_HINTS['embedded']}",
        )
        agents = _rehearsal_agents(settings.folder, clock)
    if not agents:
        agents = [_default_assistant()]
    stack.push_async_callback(models.close)
    serving.link(agents)
    serving.bind(agents, resolve_model or models.get, default_model_name)
    await models.start()
    return agents


async def start_agents(
    settings: Settings,
    agents: Sequence[Agent],
    *,
    progress: Callable[[str], None],
    stack: AsyncExitStack,
    warns_about_unused_tools: bool = True,
) -> tuple[dict[str, Agent], str]:
    """Start a server's agents, whose models have been started.

    Args:
        settings: the default agent.
        agents: the agents to serve.
        progress: called with a line of text for each agent of a framework.
        stack: closes the agents.
        warns_about_unused_tools: log a warning about agents whose tools the embedded model will never call.

    Returns:
        The agents by name, in the order in which they are listed, and the name of the default one.

    Raises:
        DeclarationError, StartFailed, SettingsError: with a message for the person at the terminal.
    """
    from dragoman.agents import serving
    from dragoman.server.loading import Wrapper

    stack.push_async_callback(serving.close, agents)
    await serving.start(agents)
    serving.check(agents)
    unused = [each.spec.name for each in agents if each.spec.uses_embedded_model and each.spec.tools]
    if unused and warns_about_unused_tools and is_embedded_model_installed():  # else its absence was reported
        log.warning(
            "the embedded model never calls tools",
            agents=unused,
            hint="set a provider's key, such as OPENAI_API_KEY, or name a model: Agent(…, model=…)",
        )
    for agent in agents:
        if isinstance(agent, Wrapper):
            progress(f"{agent.spec.name}: {agent.describe()}")
    by_name = {agent.spec.name: agent for agent in agents}
    default = settings.default_agent or agents[0].spec.name
    names = {alias for agent in agents for alias in (agent.spec.name, *agent.spec.aliases)}
    if default not in names:
        raise SettingsError(f"setting default_agent: no agent {default!r}; available agents: {', '.join(by_name)}")
    return by_name, default


def load_agents(files: Sequence[str]) -> list[Agent]:
    """Load the agents of the setting `agents`. Raises LoadError."""
    if not files:
        return []
    from dragoman.server.loading import load_all

    return load_all(files)


def _rehearsal_agents(folder: Path, clock: Clock) -> list[Agent]:
    from dragoman.agents.rehearsal.agent import rehearsal, rehearsal_bare
    from dragoman.agents.rehearsal.tools import StartLogFile

    starts = StartLogFile(folder / STARTS_FILE)
    return [rehearsal(starts, clock.now), rehearsal_bare(starts, clock.now)]


def _default_assistant() -> Agent:
    from dragoman.agents.model import Agent as ModelAgent

    return ModelAgent(
        "assistant",
        title="Assistant",
        instructions="You are a helpful assistant.",
        starters=("What is the capital of France?", "Tell me a short story"),
        client_tools=True,
        history=True,
    )


def _loggable_name(model: str) -> str:
    """A model's name without its address, which may contain a password."""
    return model.partition("@")[0]
