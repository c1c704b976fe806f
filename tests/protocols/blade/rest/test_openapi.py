"""The OpenAPI document describes Blade's endpoints."""

from dragoman.protocols.blade.rest.openapi import ROUTES
from dragoman.protocols.kit.openapi import document
from tests.protocols.blade.client import RestClient
from tests.requirements import requirement


@requirement("blade:rest:described", "blade:server:described")
def test_every_endpoint_is_described_with_its_input_and_its_answer() -> None:
    paths = document("t", "1", ROUTES)["paths"]
    assert sum(len(methods) for methods in paths.values()) == len(ROUTES) == 57
    rewind = paths["/sessions/{session}/rewind"]["post"]
    assert rewind["summary"] == "Go back to before a user message"
    assert rewind["requestBody"]["content"]["application/json"] == {
        "schema": {"$ref": "#/components/schemas/CheckpointRequest"},
        "example": {"checkpoint_id": "cp_4"},
    }
    assert rewind["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/RewindResult"
    }
    assert paths["/share/{token}"]["get"]["security"] == []


@requirement("blade:rest:described", "blade:server:described")
async def test_the_servers_document_has_them(alice: RestClient) -> None:
    document = await alice.document()
    assert {"/api/sessions", "/api/sessions/{session}/rewind", "/api/memories/{memory}"} <= set(document["paths"])
