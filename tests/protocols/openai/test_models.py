"""OpenAI's API, section 1: models, paths and headers."""

import pytest

from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import AppServer


@requirement("openai:models:list", "openai:headers:out")
async def test_the_models_are_the_agents_and_do_not_change(alice: OpenAiClient) -> None:
    models = await alice.get("/models")
    assert models == await alice.get("/models/")
    assert models["object"] == "list"
    rehearsal = next(each for each in models["data"] if each["id"] == "rehearsal")
    assert rehearsal == {
        "id": "rehearsal",
        "object": "model",
        "created": rehearsal["created"],
        "owned_by": "dragoman",
        "name": "Rehearsal",
        "description": "Does what your message tells it to, without a model.",
    }
    assert isinstance(rehearsal["created"], int)
    assert "looking-glass" not in [each["id"] for each in models["data"]]


@requirement("openai:models:one")
async def test_one_model_is_found_by_its_name_or_alias(alice: OpenAiClient) -> None:
    assert (await alice.get("/models/mirror"))["id"] == "mirror"
    assert (await alice.get("/models/looking-glass"))["id"] == "mirror"
    assert await alice.refused("GET", "/models/a/b") == (404, "model_not_found", "")


@requirement("openai:paths:unknown")
@pytest.mark.parametrize(
    "path",
    ["/files", "/embeddings", "/responses/input_tokens", "/responses/compact/x", "/assistants"],
)
async def test_an_unknown_path_is_answered_in_the_form_of_every_error(alice: OpenAiClient, path: str) -> None:
    assert await alice.refused("POST", path, {}) == (404, "unknown_url", "")


@requirement("openai:paths:unknown")
async def test_a_known_path_with_another_method_is_405(alice: OpenAiClient) -> None:
    assert await alice.refused("PUT", "/models") == (405, "method_not_allowed", "")


@requirement("openai:auth:bearer")
async def test_a_key_comes_first_and_its_scope_counts(app_server: AppServer) -> None:
    nobody = OpenAiClient(app_server.connection)
    assert await nobody.refused("GET", "/nowhere") == (401, "invalid_api_key", "")
    reader = OpenAiClient(app_server.connection, app_server.key("alice_reads"))
    assert (await reader.get("/models"))["object"] == "list"
    assert await reader.refused("POST", "/responses", {"input": "hello"}) == (403, "insufficient_permissions", "")
