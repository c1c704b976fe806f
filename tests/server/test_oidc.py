"""Tokens of an identity provider over every protocol, beside API keys, and what happens when the provider is down."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import socketio.exceptions  # type: ignore[import-untyped]  # the library is not annotated
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dragoman.server import app
from dragoman.settings import SettingsError
from tests.asgi_client import Answer, AsgiClient
from tests.conversations import script
from tests.identity.provider import AUDIENCE, Provider, running_provider
from tests.protocols.aap.client import AapClient, Session
from tests.protocols.blade.client import RestClient, SocketClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.servers import SocketLine, SocketServer, running_server, running_socket_server, settings_for


class Served(NamedTuple):
    """A server and the provider whose tokens it accepts."""

    server: SocketServer
    provider: Provider

    @property
    def url(self) -> str:
        return url_of(self.server)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with (
        running_provider() as provider,
        running_socket_server(
            tmp_path_factory.mktemp("oidc"),
            oidc_issuer=provider.url,
            oidc_audience=[AUDIENCE],
            oidc_leeway_s=0,
        ) as server,
    ):
        yield Served(server, provider)


PATHS = (
    ("GET", "/aap/v3/sessions"),
    ("POST", "/ag-ui/rehearsal"),
    ("GET", "/api/v1/agent/threads"),
    ("POST", "/process"),
    ("GET", "/v1/models"),
    ("POST", "/mcp"),
    ("GET", "/ai-sdk/chats"),
    ("POST", "/a2a/rehearsal"),
    ("GET", "/api/sessions"),
)
"""An address of each protocol."""


async def ask(connection: SocketLine | AsgiClient, method: str, path: str, token: str) -> Answer:
    headers = [("authorization", f"Bearer {token}"), ("content-type", "application/json")]
    stream = await connection.open(method, path, headers=headers, body=b"{}" if method == "POST" else b"")
    return Answer(stream.status, dict(stream.headers), await stream.read())


# --- every protocol ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_protocol_accepts_tokens_and_keys_and_refuses_bad_tokens_as_it_refuses_bad_keys(
    served: Served, method: str, path: str
) -> None:
    line, provider = served.server.connection, served.provider
    with_key = await ask(line, method, path, served.server.key("alice"))
    with_token = await ask(line, method, path, provider.token())
    assert with_token.status == with_key.status
    assert with_token.status not in (401, 403, 503)
    wrong_key = await ask(line, method, path, "sk-dragoman-wrong")
    wrong_token = await ask(line, method, path, provider.token(aud="another"))
    assert wrong_token.status == wrong_key.status == 401
    assert wrong_token.headers["content-type"] == wrong_key.headers["content-type"]
    challenge = wrong_token.headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    assert 'error="invalid_token", error_description="the token is meant for another audience' in challenge
    assert 'error="' not in wrong_key.headers["www-authenticate"], "as before"
    lacking = await ask(line, method, path, provider.token(scope="openid"))
    assert lacking.status == 403
    assert b"oidc_scope_map" in lacking.body


async def test_without_the_providers_keys_tokens_are_a_503_everywhere_and_keys_work(tmp_path: Path) -> None:
    async with running_server(tmp_path, oidc_issuer="http://127.0.0.1:1", oidc_audience=[AUDIENCE]) as server:
        token = Provider().token(iss="http://127.0.0.1:1")
        for method, path in PATHS:
            down = await ask(server.connection, method, path, token)
            assert (down.status, down.headers["retry-after"]) == (503, "5"), path
            assert b"use an API key" in down.body
            assert "www-authenticate" not in down.headers
            with_key = await ask(server.connection, method, path, server.key("alice"))
            assert with_key.status not in (401, 403, 503), path


async def test_the_server_itself_takes_tokens_for_its_metrics(tmp_path: Path, served: Served) -> None:
    settings = {"oidc_issuer": served.provider.url, "oidc_audience": [AUDIENCE], "public_metrics": False}
    async with running_server(tmp_path, **settings) as server:
        admin, user = served.provider.token(scope="dragoman:admin"), served.provider.token()
        assert (await ask(server.connection, "GET", "/metrics", admin)).status == 200
        assert (await ask(server.connection, "GET", "/metrics", user)).status == 403
        expired = await ask(server.connection, "GET", "/metrics", served.provider.token(exp=1000))
        assert expired.status == 401
        assert 'error="invalid_token"' in expired.headers["www-authenticate"]


async def test_a_server_without_a_provider_takes_no_tokens(tmp_path: Path, served: Served) -> None:
    async with running_server(tmp_path) as server:
        assert (await ask(server.connection, "GET", "/aap/v3/sessions", served.provider.token())).status == 401


async def test_a_key_and_a_token_of_one_user_show_the_same_sessions(served: Served) -> None:
    with_token = AapClient(served.server.connection, served.provider.token(sub="alice"))
    session = await with_token.create()
    listed = (await AapClient(served.server.connection, served.server.key("alice")).get("/sessions")).json["sessions"]
    assert session.id in str(listed)
    stranger = AapClient(served.server.connection, served.provider.token(sub="mallory"))
    assert (await stranger.get(f"/sessions/{session.id}")).status == 404


async def test_wrong_tokens_count_as_wrong_keys_and_expired_ones_do_not(tmp_path: Path, served: Served) -> None:
    settings = {"oidc_issuer": served.provider.url, "oidc_audience": [AUDIENCE], "wrong_keys_per_minute": 2}
    async with running_server(tmp_path, **settings) as server:
        good = served.provider.token()
        expired, forged = served.provider.token(exp=1000), good[:-8] + "AAAAAAAA"

        async def status(token: str) -> int:
            return (await ask(server.connection, "GET", "/aap/v3/sessions", token)).status

        assert [await status(expired) for _ in range(5)] == [401] * 5
        assert [await status(forged) for _ in range(3)] == [401, 401, 429]
        assert await status(good) == 200


# --- streams and sockets ----------------------------------------------------------------------------------------------


async def test_streams_and_sockets_end_when_their_token_expires_and_runs_continue(
    tmp_path: Path, served: Served
) -> None:
    """The server's clock stands still, so that only the end of a stream takes the second that the token has left."""
    provider = served.provider
    settings = {"oidc_issuer": provider.url, "oidc_audience": [AUDIENCE], "oidc_leeway_s": 0, "manual_clock": True}
    async with running_socket_server(tmp_path, **settings) as server:
        token = provider.token(sub="alice", exp=server.app_server.clock.now().timestamp() + 1)
        session = await AapClient(server.connection, token).create()
        async with socket_client(url_of(server), token) as tab:
            stream = await session.open(script({"say": "one"}, {"wait_ms": 600_000}))
            await stream.read_to_end()
            await tab.is_disconnected.wait()
        again = Session(AapClient(server.connection, server.key("alice")), session.id)
        assert (await again.info())["_meta"]["status"] == "running"
        await again.client.post(f"/sessions/{session.id}/stop", {})


async def test_blades_socket_takes_tokens(served: Served) -> None:
    async with socket_client(served.url, served.provider.token(sub="bob")) as tab:
        session = await RestClient(served.url, served.provider.token(sub="bob")).session()
        await tab.send(session, "hello")


@pytest.mark.parametrize("change", [{"aud": "another"}, {"exp": 1000}, {"scope": "openid"}])
async def test_blades_socket_refuses_bad_tokens(served: Served, change: dict[str, Any]) -> None:
    tab = SocketClient(served.url, served.provider.token(**change))
    with pytest.raises(socketio.exceptions.ConnectionError):
        await tab.connect()


async def test_openais_websocket_takes_tokens(served: Served) -> None:
    address = served.url.replace("http:", "ws:") + "/v1/responses"
    async with connect(address, additional_headers={"Authorization": f"Bearer {served.provider.token()}"}):
        pass
    with pytest.raises(InvalidStatus) as refused:
        async with connect(address, additional_headers={"Authorization": f"Bearer {served.provider.token(exp=1)}"}):
            pass
    assert refused.value.response.status_code == 401
    assert 'error="invalid_token"' in refused.value.response.headers["www-authenticate"]


async def test_a_token_in_an_address_is_refused_as_a_key_is(served: Served) -> None:
    token = served.provider.token()
    for query in (f"access_token={token}", f"token={token}", f"anything={token}"):
        answer = await ask(served.server.connection, "GET", f"/aap/v3/sessions?{query}", token)
        assert answer.status == 400
        assert b"because URLs are logged" in answer.body
    with_code = await ask(served.server.connection, "GET", f"/aap/v3/sessions?code={token}&state=x", token)
    assert with_code.status == 200, "a provider may use tokens as codes, which are valid once"


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"oidc_audience": []}, "setting oidc_audience: needed with oidc_issuer"),
        ({"oidc_issuer": "http://login.example.org"}, "expected an https:// URL"),
        ({"oidc_issuer": "login.example.org"}, "expected an https:// URL"),
        ({"oidc_jwks_url": "http://10.0.0.1/keys"}, "setting oidc_jwks_url"),
        ({"oidc_algorithms": ["RS256", "HS256"]}, "got HS256"),
        ({"oidc_algorithms": ["none"]}, "got none"),
        ({"oidc_scope_map": ["staff=owner"]}, "one of the scopes read, use, admin, got 'staff=owner'"),
        ({"oidc_scope_map": ["staff"]}, "got 'staff'"),
        ({"auth": False}, "tokens need auth"),
    ],
)
async def test_a_server_that_would_accept_anybodys_tokens_does_not_start(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = {"oidc_issuer": "https://login.example.org", "oidc_audience": ["dragoman"], **changes}
    with pytest.raises(SettingsError) as refused:
        async with app.build(settings_for(tmp_path, **settings)).running():
            pass
    assert message in str(refused.value)
