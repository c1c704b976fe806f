"""Models by name: which adapter a name means, and which model is the default. Light: adapters are imported when named.

embedded                            SmolLM2-135M in a process beside the server; embedded:PATH.gguf for other weights
openai:NAME                         OpenAI, or the server at OPENAI_BASE_URL
ollama:NAME                         Ollama on this machine, or at OLLAMA_HOST
openai-compatible:NAME@URL          any other server, such as vLLM or llama.cpp
PROVIDER:NAME                       every provider of Pydantic AI
"""

import os.path
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

from dragoman.models.optional_dependencies import is_installed
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
"""The small current model of each provider, by the key that is looked for, in this order."""

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
"""What often stands before a colon: a word that only looks like one of these is taken for a slip."""

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
"""Context windows of OpenAI's models, by the beginning of the name; the first that fits."""


class ModelNameError(ValueError):
    """A model's name has no form that is known; the message says which there are."""


class ManagedModel(Protocol):
    """A `Model` with a life: started before its first call, or by it, and closed after its last."""

    @property
    def context_window(self) -> int | None:
        """See `Model`."""

    async def start(self) -> None:
        """Load, import or connect what the model needs.

        Raises:
            ModelFailed: it cannot be used; the message says why.
        """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model`."""

    async def aclose(self) -> None:
        """Give up everything; calls that still stream fail."""


def resolve(name: str, env: Mapping[str, str], progress: Callable[[str], None] | None = None) -> ManagedModel:
    """Make the model that a name means. It is not started, and nothing is connected.

    Args:
        name: see the module.
        env: the process's environment, where keys and addresses are looked for.
        progress: told what happens while a model starts that takes its time.

    Raises:
        ModelNameError: the name has no known form, or a part of it is wrong.
        MissingExtra: the packages for it are not installed.
    """
    kind, _, rest = name.partition(":")
    if not all((kind, rest)) and name != "embedded":
        raise ModelNameError(f"a model such as embedded, openai:NAME or PROVIDER:NAME expected, got {name!r}")
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
                meant = get_close_matches(kind, KNOWN_PROVIDERS, 1, 0.8)
                if meant and kind not in KNOWN_PROVIDERS:
                    raise ModelNameError(f"there is no provider {kind!r}; did you mean {meant[0]!r}?")
                from dragoman.models.providers import ProviderModel

                return ProviderModel(name, env)
    except ValueError as error:
        raise ModelNameError(f"{kind} model: {error}") from error  # no name: it may hold a password by mistake


def default_model(env: Mapping[str, str]) -> tuple[str, str]:
    """The model for agents that name none, and the reason in words.

    It is the first provider's whose key is in the environment and whose packages are installed, and the embedded one
    if there is none. A key that does not count is told in the reason.
    """
    unused: list[str] = []
    for key, name in DEFAULT_MODELS:
        if not env.get(key):
            continue
        if name.startswith("openai:") or is_installed("pydantic_ai"):
            return name, f"{key} is set"
        unused.append(key)
    if unused:
        return "embedded", f"{', '.join(unused)} is set, but the extra `models` is not installed"
    return "embedded", "no provider's key is set"


def _embedded(rest: str, progress: Callable[[str], None] | None) -> ManagedModel:
    from dragoman.models.embedded import EmbeddedModel

    if rest in {"", "smollm2"}:
        return EmbeddedModel(progress=progress)
    if not rest.endswith(".gguf"):
        raise ModelNameError(f"smollm2 or the path of a .gguf file expected, got {rest!r}")
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
        raise ModelNameError("NAME@URL expected, such as qwen3@http://127.0.0.1:8080/v1")
    api_key = env.get("OPENAI_COMPATIBLE_API_KEY", "").strip()
    return OpenAIModel(parts[1], base_url=parts[2], api_key=api_key or None)
