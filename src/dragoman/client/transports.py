"""Which protocol has which transport."""

from typing import Literal, get_args
from urllib.parse import urlsplit

from dragoman.client.a2a import A2aCodec
from dragoman.client.a2a_transport import A2aTransport
from dragoman.client.aap import AapCodec
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.agui import AguiCodec
from dragoman.client.blade import BASE, BladeCodec
from dragoman.client.blade_transport import BladeTransport
from dragoman.client.codec import Codec
from dragoman.client.connection import ServerConnection, Timeouts
from dragoman.client.errors import ClientError
from dragoman.client.http_transport import HttpTransport
from dragoman.client.openai import OpenAiCodec
from dragoman.client.openai_chat import OpenAiChatCodec
from dragoman.client.openai_transport import OpenAiTransport
from dragoman.client.run_service import RunServiceCodec
from dragoman.client.run_service_transport import RunServiceTransport
from dragoman.client.transport import Transport

ClientProtocol = Literal["aap", "ag-ui", "agentscope", "blade", "openai", "openai-chat", "a2a", "run-service"]


def create_transport(
    protocol: ClientProtocol, url: str, key: str | None, timeouts: Timeouts, *, is_endpoint: bool = False
) -> Transport:
    """Create the transport for a protocol. Raises ClientError if the URL or the protocol's name is invalid.

    Args:
        protocol: what the server speaks.
        url: its address.
        key: sent as a bearer token.
        timeouts: time limits.
        is_endpoint: whether an AG-UI address without a path is an agent's endpoint, not that of a Dragoman server.
    """
    expected = f"expected an address such as http://127.0.0.1:8000, got {url!r}"
    try:
        address = urlsplit(url)
    except ValueError as error:  # such as a bracket that is not closed
        raise ClientError(expected) from error
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ClientError(expected)
    origin, path = f"{address.scheme}://{address.netloc}", address.path.rstrip("/")
    codec: Codec
    match protocol:
        case "aap":
            codec = AapCodec(path) if path else AapCodec()
        case "ag-ui":
            codec = AguiCodec(address.path if path else "/" * is_endpoint)
        case "agentscope":
            codec = AgentScopeCodec(path) if path else AgentScopeCodec()
        case "blade":
            rest = BladeCodec(f"{path}/api" if path else BASE)
            return BladeTransport(ServerConnection(origin, key, rest, timeouts), rest, origin + path, key)
        case "openai":
            responses = OpenAiCodec(path) if path else OpenAiCodec()
            return OpenAiTransport(ServerConnection(origin, key, responses, timeouts), responses)
        case "openai-chat":
            codec = OpenAiChatCodec(path) if path else OpenAiChatCodec()
        case "a2a":
            agents = A2aCodec(path)
            return A2aTransport(ServerConnection(origin, key, agents, timeouts), agents)
        case "run-service":
            service = RunServiceCodec(path) if path else RunServiceCodec()
            return RunServiceTransport(ServerConnection(origin, key, service, timeouts), service)
        case _:
            raise ClientError(f"expected a protocol ({', '.join(get_args(ClientProtocol))}), got {protocol!r}")
    return HttpTransport(ServerConnection(origin, key, codec, timeouts), codec)
