"""MCP's authorization: hosts that have no key find the identity provider, and get a token there."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from dragoman.server import app
from dragoman.settings import SettingsError
from tests.asgi_client import DEADLINE_S
from tests.identity.node_provider import node_provider
from tests.identity.provider import Provider, running_provider
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server, settings_for

RESOURCE = "https://agents.example/base/mcp"
METADATA = "https://agents.example/.well-known/oauth-protected-resource/base/mcp"


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> AsyncIterator[SocketServer]:
    async with running_socket_server(
        tmp_path_factory.mktemp("mcp"),
        oidc_issuer=provider.url,
        mcp_authorization=True,
        public_url="https://agents.example/base",
    ) as running:
        yield running


@requirement("mcp:auth:metadata")
@pytest.mark.parametrize("path", ["", "/base/mcp", "/base/mcp/rehearsal"])
async def test_the_metadata_name_the_resource_the_provider_and_its_scopes(
    server: SocketServer, provider: Provider, path: str
) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.get(f"{server.connection.url}/.well-known/oauth-protected-resource{path}")
        assert answer.json() == {
            "resource": RESOURCE,
            "authorization_servers": [provider.url],
            "scopes_supported": ["dragoman:read", "dragoman:use"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Dragoman",
        }
        for other in ("/base", "/base/mcpx", "/other"):
            missing = await http.get(f"{server.connection.url}/.well-known/oauth-protected-resource{other}")
            assert missing.status_code == 404


@requirement("mcp:auth:challenge")
async def test_a_refused_host_learns_where_the_metadata_are(server: SocketServer, provider: Provider) -> None:
    async with httpx2.AsyncClient() as http:

        async def challenge(token: str | None) -> tuple[int, str]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = await http.post(f"{server.connection.url}/mcp", json={}, headers=headers)
            return answer.status_code, answer.headers["www-authenticate"]

        where = f'resource_metadata="{METADATA}", scope="dragoman:read dragoman:use"'
        assert await challenge(None) == (401, f'Bearer realm="dragoman", {where}')
        status, header = await challenge(provider.token(aud="https://other.example/mcp"))
        assert status == 401
        assert header.startswith(f'Bearer realm="dragoman", {where}, error="invalid_token"')
        lacking = await challenge(provider.token(aud=RESOURCE, scope="openid"))
        assert lacking == (403, f'Bearer realm="dragoman", error="insufficient_scope", {where}')


@requirement("mcp:auth:audience")
async def test_tokens_for_this_endpoint_are_accepted_and_no_others(server: SocketServer, provider: Provider) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    async with httpx2.AsyncClient() as http:
        for audience, status in ((RESOURCE, 200), ("https://agents.example", 401), (f"{RESOURCE}/", 401)):
            headers = {"Authorization": f"Bearer {provider.token(aud=audience)}"}
            answer = await http.post(f"{server.connection.url}/mcp", json=message, headers=headers)
            assert answer.status_code == status, audience


class Storage:
    """What the client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Follows the provider's pages, as somebody with a browser does."""

    CALLBACK = "http://127.0.0.1:1/callback"

    def __init__(self) -> None:
        self.answer: dict[str, list[str]] = {}

    async def visit(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=DEADLINE_S) as browser:
            response = await browser.get(url)
            for _ in range(20):
                if response.is_redirect:
                    url = urljoin(url, response.headers["location"])
                    if url.startswith(self.CALLBACK):
                        self.answer = parse_qs(urlsplit(url).query)
                        return
                    response = await browser.get(url)
                    continue
                form = re.search(r'action="([^"]+)"', response.text)
                prompt = re.search(r'name="prompt" value="(\w+)"', response.text)
                assert form is not None, response.text
                assert prompt is not None, response.text
                url = form[1]
                response = await browser.post(url, data={"prompt": prompt[1], "login": "ann", "password": "any"})
        raise AssertionError("the provider's pages do not end")

    async def come_back(self) -> AuthorizationCodeResult:
        (code,), (state,), (issuer,) = (self.answer[name] for name in ("code", "state", "iss"))
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)


class Proxy(httpx2.AsyncHTTPTransport):
    """Passes requests to the public address on to the server, as a proxy with TLS does."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._port = urlsplit(url).port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "agents.example":
            request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)


@requirement("mcp:auth:official-client")
async def test_the_official_client_registers_logs_in_and_calls_an_agent(tmp_path: Path) -> None:
    url = "https://agents.example/mcp"
    async with (
        node_provider() as issuer,
        running_socket_server(
            tmp_path, oidc_issuer=issuer, mcp_authorization=True, public_url="https://agents.example"
        ) as server,
    ):
        person, storage = Person(), Storage()
        host = OAuthClientMetadata.model_validate({"redirect_uris": [Person.CALLBACK], "application_type": "native"})
        auth = OAuthClientProvider(url, host, storage, person.visit, person.come_back)
        async with (
            httpx2.AsyncClient(auth=auth, transport=Proxy(server.connection.url), timeout=DEADLINE_S) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            result = await client.call_tool("rehearsal", {"message": "hello"})
        assert "rehearsal agent" in str(result.content)
        assert storage.tokens is not None
        assert storage.tokens.access_token.startswith("eyJ")


@requirement("mcp:auth:metadata")
@pytest.mark.parametrize(
    ("settings", "missing"),
    [({"public_url": "https://x.example"}, "oidc_issuer"), ({"oidc_issuer": "https://x.example"}, "public_url")],
)
async def test_the_setting_needs_a_provider_and_an_address(
    tmp_path: Path, settings: dict[str, str], missing: str
) -> None:
    with pytest.raises(SettingsError, match=f"mcp_authorization: needs {missing} too"):
        async with app.build(settings_for(tmp_path, mcp_authorization=True, **settings)).running():
            pass
