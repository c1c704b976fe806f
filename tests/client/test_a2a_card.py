"""The interface that the client chooses from an agent's card."""

import msgspec
import pytest

from dragoman.client.a2a import Card
from dragoman.client.errors import Unsupported

GRPC = {"name": "old", "url": "https://host.example/grpc", "preferredTransport": "GRPC", "protocolVersion": "0.3.0"}


def test_an_agent_of_0_3_that_prefers_another_transport_is_called_over_json_rpc_if_it_offers_that() -> None:
    offered = [
        {"url": "https://host.example/rest", "transport": "HTTP+JSON"},
        {"url": "https://host.example/rpc", "transport": "JSONRPC"},
    ]
    card = msgspec.convert({**GRPC, "additionalInterfaces": offered}, Card)
    request = card.rpc.request("GetTask", {"id": "1"})
    assert (request.path, msgspec.json.decode(request.body or b"")["method"]) == ("/rpc", "tasks/get")


@pytest.mark.parametrize("additional", [{}, {"additionalInterfaces": None}])
def test_an_agent_without_json_rpc_is_refused_with_what_it_has(additional: dict[str, None]) -> None:
    card = msgspec.convert({**GRPC, **additional}, Card)
    with pytest.raises(Unsupported, match=r"'old' has GRPC 0\.3\.0"):
        _ = card.rpc
