"""All other providers, through the `direct` interface of Pydantic AI.

Importing this module is fast. The library takes more than a second, so it is imported in a thread when a model starts.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from dragoman.models.optional_dependencies import MissingOptionalDependency, require
from dragoman.ports.models import ModelEvent, ModelFailed, ModelRequest, ModelUnavailable

if TYPE_CHECKING:
    from types import ModuleType

    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers import Provider

API_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
}
"""Environment variables of the providers that need no package beyond the extra; the first one that is set is used.
Other providers of Pydantic AI also work once their package is installed; they find their keys themselves."""


class ProviderModel:
    """A model of any provider that Pydantic AI supports.

    `start` imports the library and creates the client. A call before `start` does that first.

    Args:
        name: `provider:model`, as in Pydantic AI.
        env: environment variables that hold API keys.
        model_factory: creates the Pydantic AI model, if it is not to be inferred from the name.

    Raises:
        MissingOptionalDependency: Pydantic AI is not installed.
    """

    def __init__(
        self, name: str, env: Mapping[str, str], model_factory: "Callable[[], TheirModel] | None" = None
    ) -> None:
        require("pydantic_ai", "models", f"the model {name}")
        self.name = name
        self._provider = name.partition(":")[0]
        self.context_window: int | None = None
        self._secrets = [value for key, value in env.items() if key.endswith(("_KEY", "_TOKEN")) and len(value) >= 8]
        self._env = env
        self._model_factory = model_factory or self._infer_model
        self._lifecycle_lock = asyncio.Lock()
        self._exit_stack = AsyncExitStack()
        self._model: TheirModel | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Import the library and create the client. Returns immediately if that is done.

        Raises:
            ModelFailed: the provider does not exist, or its key or package is missing.
        """
        async with self._lifecycle_lock:
            if self._is_closed:
                raise ModelUnavailable(f"the model {self.name} has been closed")
            if self._model is None:
                model = await asyncio.to_thread(self._create_model)
                self._model = await self._exit_stack.enter_async_context(model)
                self.context_window = model.profile.get("context_window")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model, and stream its answer."""
        await self.start()
        assert self._model is not None
        wire = _wire_module()
        from pydantic_ai.direct import model_request_stream  # imported by `start`

        try:
            async with model_request_stream(
                self._model,
                wire.to_provider_messages(request, self._provider),
                model_settings=wire.to_provider_settings(request),
                model_request_parameters=wire.to_provider_parameters(request),
                instrument=False,
            ) as events:
                async for event in events:
                    if (delta := wire.to_model_event(event)) is not None:
                        yield delta
                for last in wire.to_final_events(events.get(), self._provider):
                    yield last
        except wire.PROVIDER_ERRORS as error:
            raise self._redact_secrets(wire.to_model_error(error)) from error
        except ModelFailed as error:
            raise self._redact_secrets(error) from None

    async def aclose(self) -> None:
        """Close the connections. Calls that are still streaming fail."""
        self._is_closed = True
        async with self._lifecycle_lock:
            self._model = None
            await self._exit_stack.aclose()

    def _create_model(self) -> "TheirModel":
        """Create the client. Runs in a thread, because it imports the library."""
        wire = _wire_module()
        try:
            return self._model_factory()
        except ImportError as error:  # a provider whose own package is not part of the extra
            raise MissingOptionalDependency(f"the model {self.name} needs another package: {error}") from error
        except (*wire.PROVIDER_ERRORS, ValueError) as error:
            raise self._redact_secrets(ModelFailed(f"the model {self.name} cannot be used: {error}")) from error

    def _infer_model(self) -> "TheirModel":
        from pydantic_ai.models import infer_model

        return infer_model(self.name, provider_factory=self._create_provider)

    def _create_provider(self, provider: str) -> "Provider[Any]":
        from pydantic_ai.providers import infer_provider, infer_provider_class

        key = api_key_for(provider, self._env)
        if key is None:
            return infer_provider(provider)
        provider_class = infer_provider_class(provider)
        assert "api_key" in inspect.signature(provider_class).parameters
        return provider_class(api_key=key)  # type: ignore[call-arg]  # the base class declares no constructor

    def _redact_secrets(self, error: ModelFailed) -> ModelFailed:
        text = str(error)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        error.args = (text,)
        return error


def api_key_for(provider: str, env: Mapping[str, str]) -> str | None:
    """The API key for a provider listed in `API_KEY_VARIABLES`; None if there is none."""
    return next((env[name] for name in API_KEY_VARIABLES.get(provider, ()) if env.get(name)), None)


def _wire_module() -> "ModuleType":
    from dragoman.models import providers_wire

    return providers_wire
