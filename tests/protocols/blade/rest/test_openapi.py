"""The server's OpenAPI document describes Blade's endpoints."""

from tests.protocols.blade.client import RestClient
from tests.requirements import requirement


@requirement("blade:rest:described", "blade:server:described")
async def test_every_endpoint_is_described_with_its_input_and_its_answer(alice: RestClient) -> None:
    paths = (await alice.document())["paths"]
    ours = [each for methods in paths.values() for each in methods.values() if each.get("tags") == ["Blade"]]
    assert len(ours) == 61
    rewind = paths["/api/sessions/{session}/rewind"]["post"]
    assert rewind["summary"] == "Go back to before a user message"
    assert rewind["requestBody"]["content"]["application/json"] == {
        "schema": {"$ref": "#/components/schemas/CheckpointRequest"},
        "example": {"checkpoint_id": "cp_4"},
    }
    assert rewind["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/RewindResult"
    }
    assert paths["/api/share/{token}"]["get"]["security"] == []
