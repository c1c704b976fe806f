"""Resolve model names to adapters, and choose the default model. Adapters are imported only when they are needed.

embedded                            SmolLM2-135M in a child process; embedded:PATH.gguf for other weights
openai:NAME                         OpenAI, or the server at OPENAI_BASE_URL
ollama:NAME                         Ollama on this machine, or at OLLAMA_HOST
openai-compatible:NAME@URL          any other server, such as vLLM or llama.cpp
PROVIDER:NAME                       any provider of Pydantic AI
"""

import os.path
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

from dragoman.models.optional_dependencies import is_embedded_model_installed, is_installed
from dragoman.ports.models import ModelEvent, ModelRequest

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434"

DEFAULT_MODELS = (
    ("OPENAI_API_KEY", "openai:gpt-6-luna"),
    ("ANTHROPIC_API_KEY", "anthropic:claude-haiku-5-5"),
    ("GEMINI_API_KEY", "google:gemini-3.5-flash-lite"),
    ("GOOGLE_API_KEY", "google:gemini-3.5-flash-lite"),
    ("DEEPSEEK_API_KEY", "deepseek:deepseek-flash"),
    ("OPENROUTER_API_KEY", "openrouter:openai/gpt-6-luna"),
)
"""A small current model of each provider, by the environment variable of its key. The first key that is set counts."""

KNOWN_PROVIDERS = (
    "embedded",
    "openai",
    "openai-compatible",
    "ollama",
    "anthropic",
    "google",
    "deepseek",
    "openrouter",
    "mistral",
    "groq",
    "bedrock",
    "cohere",
    "huggingface",
    "azure",
)
"""Common providers. A name that is similar to one of these is reported as a typing error."""

_CONTEXT_WINDOWS = (
    ("gpt-6", 1_050_000),
    ("gpt-5.6", 1_050_000),
    ("gpt-5.4-", 400_000),
    ("gpt-5.4", 1_050_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
)
"""Context windows of OpenAI's models in tokens, by the beginning of the name. The first match counts."""


class ModelNameError(ValueError):
    """A model name is not valid. The message says what is expected."""


class ManagedModel(Protocol):
    """A `Model` with a lifecycle: it is started before or by its first call, and closed after its last."""

    @property
    def context_window(self) -> int | None:
        """The model's context window in tokens; None if it is not known."""

    async def start(self) -> None:
        """Load, import or connect what the model needs.

        Raises:
            ModelFailed: the model cannot be used; the message says why.
        """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model, and stream its answer."""

    async def aclose(self) -> None:
        """Release all resources. Calls that are still streaming fail."""


def resolve(name: str, env: Mapping[str, str], progress: Callable[[str], None] | None = None) -> ManagedModel:
    """Create the model for a name. It is not started, and nothing is connected.

    Args:
        name: one of the forms that the module lists.
        env: environment variables that hold keys and addresses.
        progress: called with a message at each stage of a slow start.

    Raises:
        ModelNameError: the name is not valid.
        MissingOptionalDependency: the packages for the model are not installed.
    """
    kind, _, rest = name.partition(":")
    if not all((kind, rest)) and name != "embedded":
        raise ModelNameError(f"expected a model such as embedded, openai:NAME or PROVIDER:NAME, got {name!r}")
    try:
        match kind:
            case "embedded":
                return _embedded(rest, progress)
            case "openai":
                return _openai(rest, env)
            case "ollama":
                return _ollama(rest, env)
            case "openai-compatible":
                return _compatible(rest, env)
            case _:
                similar = get_close_matches(kind, KNOWN_PROVIDERS, 1, 0.8)
                if similar and kind not in KNOWN_PROVIDERS:
                    raise ModelNameError(f"unknown provider {kind!r}; did you mean {similar[0]!r}?")
                from dragoman.models.providers import ProviderModel

                return ProviderModel(name, env)
    except ValueError as error:
        raise ModelNameError(f"{kind} model: {error}") from error  # without the name, which may contain a password


def default_model(env: Mapping[str, str]) -> tuple[str, str]:
    """The model for agents that specify none, and the reason for it as text.

    It is the model of the first provider whose key is set and whose packages are installed, or else the embedded model.
    The reason mentions keys that are set but cannot be used. If the embedded model is not installed either, it is the
    model of such a key, because its error says how to install what is missing.
    """
    unused: list[tuple[str, str]] = []
    for key, name in DEFAULT_MODELS:
        if not env.get(key):
            continue
        if name.startswith("openai:") or is_installed("pydantic_ai"):
            return name, f"{key} is set"
        unused.append((key, name))
    if not unused:
        return "embedded", "no provider's key is set"
    if not is_embedded_model_installed():
        return unused[0][1], f"{unused[0][0]} is set"
    return "embedded", f"{', '.join(key for key, _ in unused)} is set, but the extra `models` is not installed"


def _embedded(rest: str, progress: Callable[[str], None] | None) -> ManagedModel:
    from dragoman.models.embedded import EmbeddedModel

    if rest in {"", "smollm2"}:
        return EmbeddedModel(progress=progress)
    if not rest.endswith(".gguf"):
        raise ModelNameError(f"expected smollm2 or the path of a .gguf file, got {rest!r}")
    return EmbeddedModel(weights=Path(os.path.expanduser(rest)), progress=progress)


def _openai(rest: str, env: Mapping[str, str]) -> ManagedModel:
    from dragoman.models.openai import OpenAIModel
    from dragoman.models.openai_wire import Dialect

    base_url = env.get("OPENAI_BASE_URL") or OPENAI_URL
    api_key = env.get("OPENAI_API_KEY", "").strip()
    if base_url.rstrip("/") != OPENAI_URL:
        return OpenAIModel(rest, base_url=base_url, api_key=api_key or None)
    if not api_key:
        raise ModelNameError("OPENAI_API_KEY is not set")
    window = next((window for beginning, window in _CONTEXT_WINDOWS if rest.startswith(beginning)), None)
    dialect = Dialect(limit_name="max_completion_tokens", files=True)
    return OpenAIModel(rest, base_url=base_url, api_key=api_key, dialect=dialect, context_window=window)


def _ollama(rest: str, env: Mapping[str, str]) -> ManagedModel:
    from dragoman.models.openai import OpenAIModel

    host = env.get("OLLAMA_HOST") or OLLAMA_URL
    if "://" not in host:
        host = f"http://{host}" if ":" in host else f"http://{host}:11434"
    return OpenAIModel(rest, base_url=f"{host.rstrip('/')}/v1", api_key=env.get("OLLAMA_API_KEY"))


def _compatible(rest: str, env: Mapping[str, str]) -> ManagedModel:
    from dragoman.models.openai import OpenAIModel

    parts = re.fullmatch(r"(.+?)@(\w+://.*)", rest)
    if parts is None:
        raise ModelNameError("expected NAME@URL, such as qwen3@http://127.0.0.1:8080/v1")
    api_key = env.get("OPENAI_COMPATIBLE_API_KEY", "").strip()
    return OpenAIModel(parts[1], base_url=parts[2], api_key=api_key or None)
