"""No server makes the client connect to another one, by a redirect or by an address in what it says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import msgspec
import pytest

from dragoman.client import AsyncClient, ClientError, Timeouts
from dragoman.client.transports import ClientProtocol

TIMEOUTS = Timeouts(connect_s=5, idle_s=5, reconnect_s=0.2)


class SlyServer:
    """Redirects each request to another server, after valid answers to those that come first."""

    def __init__(self, answers: dict[str, object], target: str) -> None:
        self.paths: list[str] = []
        self._answers = answers
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.paths.append(path)
        answer = self._answers.get(path)
        if answer is None:
            scheme = "ws" if path.startswith("/socket.io") else "http"
            head, body = f"307 Temporary Redirect\r\nLocation: {scheme}://{self._target}{path}", b""
        else:
            head, body = "200 OK\r\nContent-Type: application/json", msgspec.json.encode(answer)
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def listening(serve: object) -> AsyncIterator[str]:
    """Yields `HOST:PORT`."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # type: ignore[arg-type]  # any function of the two
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("protocol", get_args(ClientProtocol))
async def test_no_redirect_is_followed_and_no_other_address_is_connected_to(protocol: ClientProtocol) -> None:
    connections: list[object] = []

    async def internal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(reader)
        writer.close()

    async with listening(internal) as target:
        card = {
            "name": "sly",
            "capabilities": {"streaming": True},
            "supportedInterfaces": [
                {"url": f"http://{target}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
        }
        session = {"session_id": "ses_1", "sessionId": "s-1", "id": "conv_1", "version": 3, "data": []}
        meta = {"version": 3, "agents": [{"name": "sly", "version": "1"}]}
        answers: dict[str, object] = {
            "/.well-known/agent-card.json": card,
            "/api/sessions": session,
            "/aap/v3/sessions": session,
            "/aap/v3/meta": meta,
            "/v1/models": session,
            "/v1/conversations": session,
        }
        sly = SlyServer(answers, target)
        async with (
            listening(sly.serve) as address,
            AsyncClient(f"http://{address}", key="sk-1", protocol=protocol, timeouts=TIMEOUTS) as client,
        ):
            with pytest.raises(ClientError):
                await (await client.create("" if protocol == "a2a" else "sly")).ask("hello")
        assert [path for path in sly.paths if path not in answers], "nothing was redirected"
    assert connections == []
