"""All other providers, through Pydantic AI's `direct` interface: its providers, our loop.

This module is light; the library takes more than a second to import: that happens in a thread when a model starts.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from dragoman.models.optional_dependencies import MissingExtra, demand
from dragoman.ports import ModelEvent, ModelFailed, ModelRequest, ModelUnavailable

if TYPE_CHECKING:
    from types import ModuleType

    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers import Provider

KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
}
"""The environment variables of the providers that work with the extra alone, the first one set counts. Other providers
of Pydantic AI work too, with the package that each needs; they look for their keys themselves."""


class ProviderModel:
    """A model of any provider that Pydantic AI knows.

    `start()` imports the library and makes the client; a call before that does it first.

    Args:
        name: `provider:model`, as Pydantic AI writes it.
        env: where API keys are looked for.
        make: makes Pydantic AI's model instead, for those that have no name.

    Raises:
        MissingExtra: Pydantic AI is not installed.
    """

    def __init__(self, name: str, env: Mapping[str, str], make: "Callable[[], TheirModel] | None" = None) -> None:
        demand("pydantic_ai", "models", f"the model {name}")
        self.name = name
        self.context_window: int | None = None
        self._secrets = [value for key, value in env.items() if key.endswith(("_KEY", "_TOKEN")) and len(value) >= 8]
        self._env = env
        self._make = make or self._by_name
        self._starting = asyncio.Lock()
        self._running = AsyncExitStack()
        self._model: TheirModel | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Import the library and make the client; at once if that is done.

        Raises:
            ModelFailed: there is no such provider, or its key or package is missing.
        """
        async with self._starting:
            if self._is_closed:
                raise ModelUnavailable(f"the model {self.name} was closed")
            if self._model is None:
                model = await asyncio.to_thread(self._made)
                self._model = await self._running.enter_async_context(model)
                self.context_window = model.profile.get("context_window")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model`."""
        await self.start()
        assert self._model is not None
        wire = _wire()
        from pydantic_ai.direct import model_request_stream  # imported by `start`

        try:
            async with model_request_stream(
                self._model,
                wire.their_messages(request),
                model_settings=wire.their_settings(request),
                model_request_parameters=wire.their_parameters(request),
                instrument=False,
            ) as events:
                async for event in events:
                    if (delta := wire.our_delta(event)) is not None:
                        yield delta
                for last in wire.our_end(events.get()):
                    yield last
        except wire.FAILURES as error:
            raise self._without_secrets(wire.our_failure(error)) from error
        except ModelFailed as error:
            raise self._without_secrets(error) from None

    async def aclose(self) -> None:
        """Close the connections; calls that still stream fail."""
        self._is_closed = True
        async with self._starting:
            self._model = None
            await self._running.aclose()

    def _made(self) -> "TheirModel":
        """Runs in a thread."""
        wire = _wire()
        try:
            return self._make()
        except ImportError as error:  # a provider whose own package is not part of the extra
            raise MissingExtra(f"the model {self.name} needs another package: {error}") from error
        except (*wire.FAILURES, ValueError) as error:
            raise self._without_secrets(ModelFailed(f"the model {self.name} cannot be used: {error}")) from error

    def _by_name(self) -> "TheirModel":
        from pydantic_ai.models import infer_model

        return infer_model(self.name, provider_factory=self._provider)

    def _provider(self, provider: str) -> "Provider[Any]":
        from pydantic_ai.providers import infer_provider, infer_provider_class

        key = key_of(provider, self._env)
        if key is None:
            return infer_provider(provider)
        made = infer_provider_class(provider)
        assert "api_key" in inspect.signature(made).parameters
        return made(api_key=key)  # type: ignore[call-arg]  # the base class declares no constructor

    def _without_secrets(self, error: ModelFailed) -> ModelFailed:
        text = str(error)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        error.args = (text,)
        return error


def key_of(provider: str, env: Mapping[str, str]) -> str | None:
    """The API key for a provider of `KEYS`."""
    return next((env[name] for name in KEYS.get(provider, ()) if env.get(name)), None)


def _wire() -> "ModuleType":
    from dragoman.models import providers_wire

    return providers_wire
