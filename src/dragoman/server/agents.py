"""The agents of a server: found, given their models, started, checked, and closed again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from dragoman.core.agent import Agent
from dragoman.engine.instrumentation.counted_model import CountedModel
from dragoman.models.registry import ManagedModel, default_model, resolve
from dragoman.ports.environment import Clock
from dragoman.ports.models import Model
from dragoman.settings import Settings, SettingsError

STARTS_FILE = "rehearsal-starts.jsonl"

log = structlog.get_logger(__name__)


class ModelPool:
    """The models that agents name, each made once."""

    def __init__(self, environ: Mapping[str, str], progress: Callable[[str], None]) -> None:
        self._environ = environ
        self._progress = progress
        self._models: dict[str, ManagedModel] = {}
        self._selection_reasons: dict[str, str] = {}

    def default_name(self, configured: str | None) -> str:
        """The model for agents that name none: the one that is wanted, else what the environment has a key for."""
        name, why = (configured, "it is the setting default_model") if configured else default_model(self._environ)
        self._selection_reasons[name] = why
        return name

    def get(self, name: str) -> Model:
        """The model of that name; it is started later. Raises ModelNameError and MissingExtra."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = resolve(name, self._environ, self._progress)
            log.info(
                "model chosen",
                model=_loggable_name(name),
                because=self._selection_reasons.get(name, "an agent names it"),
            )
        return CountedModel(model, _loggable_name(name))

    async def start(self) -> None:
        """Start all that were named. Raises ModelFailed."""
        for model in self._models.values():
            await model.start()

    async def close(self) -> None:
        """Close all."""
        for model in self._models.values():
            await model.aclose()


async def prepare_agents(
    settings: Settings,
    extra_agents: Sequence[Agent],
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    clock: Clock,
    stack: AsyncExitStack,
) -> tuple[dict[str, Agent], str]:
    """Make a server's agents ready to play.

    Args:
        settings: which files to load, whether to rehearse, the default agent and model.
        given: agents besides those.
        environ: where models find their providers' keys.
        progress: told what is done while a model starts.
        clock: the rehearsal's.
        stack: closes what was opened.

    Returns:
        The agents by name, in the order in which they are listed, and the default one's name.

    Raises:
        LoadError, Misdeclared, StartFailed, ModelNameError, MissingExtra, ModelFailed, SettingsError: with a message
            for the person at the terminal.
    """
    from dragoman.agents import serving

    agents = [*extra_agents, *_load_agents(settings.agents)]
    if settings.rehearsal:
        agents += _rehearsal_agents(settings.folder, clock)
    if not agents:
        agents = [_default_assistant()]
    models = ModelPool(environ, progress)
    stack.push_async_callback(models.close)
    serving.bind(agents, models.get, models.default_name(settings.default_model))
    await models.start()
    stack.push_async_callback(serving.close, agents)
    await serving.start(agents)
    serving.check(agents)
    by_name = {agent.spec.name: agent for agent in agents}
    default = settings.default_agent or agents[0].spec.name
    names = {alias for agent in agents for alias in (agent.spec.name, *agent.spec.aliases)}
    if default not in names:
        raise SettingsError(f"setting default_agent: no agent {default!r} is served, but {', '.join(by_name)}")
    return by_name, default


def _load_agents(files: Sequence[str]) -> list[Agent]:
    if not files:
        return []
    from dragoman.agents.loading import load

    return [agent for file in files for agent in load(file)]


def _rehearsal_agents(folder: Path, clock: Clock) -> list[Agent]:
    from dragoman.agents.rehearsal.agent import rehearsal, rehearsal_bare
    from dragoman.agents.rehearsal.tools import StartLogFile

    starts = StartLogFile(folder / STARTS_FILE)
    return [rehearsal(starts, clock.now), rehearsal_bare(starts, clock.now)]


def _default_assistant() -> Agent:
    from dragoman.agents.model import Agent as ModelAgent

    return ModelAgent(
        "assistant", title="Assistant", instructions="You are a helpful assistant.", client_tools=True, history=True
    )


def _loggable_name(model: str) -> str:
    """A model's name without an address, which may hold a password."""
    return model.partition("@")[0]
