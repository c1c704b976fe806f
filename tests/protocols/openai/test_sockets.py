"""OpenAI's API, Responses over WebSocket: what a connection answers, remembers, refuses, and what ends it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.engine.services.authentication import KeysAndTokens
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.openai import http
from dragoman.protocols.openai.handlers import OpenAiOptions
from dragoman.server.admin_socket import CreateKey, RevokeKey, send_request
from dragoman.server.app import Application
from dragoman.server.clock_and_ids import SystemClock
from tests.asgi_client import DEADLINE_S
from tests.protocols.openai.client import LONG, OpenAiClient, function, output, script
from tests.protocols.openai.stream import DONE, ENDS, Event, check, text_of
from tests.requirements import requirement
from tests.servers import AppServer, Listener, SocketServer, running_socket_server

Json = Any


class Socket:
    """A connection of a client."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, given: Json, **more: Json) -> None:
        """Ask for a response."""
        await self.send_text(json.dumps({"type": "response.create", "model": "rehearsal", "input": given, **more}))

    async def send_text(self, text: str) -> None:
        await self._connection.send(text)

    async def receive(self) -> Event:
        async with asyncio.timeout(DEADLINE_S):
            event: Event = json.loads(await self._connection.recv())
            return event

    async def end(self) -> Json:
        """Read the events of a response to the last; return it."""
        events = [await self.receive()]
        while events[-1]["type"] not in ENDS:
            events.append(await self.receive())
        return check([*events, {"type": DONE}])

    async def respond(self, given: Json, **more: Json) -> Json:
        await self.send(given, **more)
        return await self.end()

    async def begin(self, **more: Json) -> str:
        """Start a long response; return its id when the agent has said something."""
        await self.send(LONG, **more)
        event = await self.receive()
        response_id: str = event["response"]["id"]
        while event["type"] != "response.output_text.delta":
            event = await self.receive()
        return response_id

    async def refused(self) -> tuple[int, str, str]:
        """Read an error; return the status, the code and the field at fault."""
        event = await self.receive()
        assert event.keys() == {"type", "status", "error"}, event
        assert event["type"] == "error"
        assert event["error"].keys() == {"message", "type", "param", "code"}
        return event["status"], event["error"]["code"], event["error"]["param"]

    async def close_code(self) -> int:
        """Read until the server closes the connection; return the code."""
        with suppress(ConnectionClosed):
            while True:
                await self.receive()
        code = self._connection.close_code
        assert code is not None
        return code


@asynccontextmanager
async def opened(url: str, key: str | None, path: str = "/v1/responses", **headers: str) -> AsyncIterator[Socket]:
    """Open a connection."""
    lines = dict(headers) | ({} if key is None else {"Authorization": f"Bearer {key}"})
    async with connect(url.replace("http", "ws", 1) + path, additional_headers=lines, proxy=None) as connection:
        yield Socket(connection)


@pytest.fixture
async def socket(socket_server: SocketServer) -> AsyncIterator[Socket]:
    """A connection of alice's to the shared server."""
    async with opened(socket_server.connection.url, socket_server.key("alice")) as connection:
        yield connection


@pytest.fixture
def web(socket_server: SocketServer) -> OpenAiClient:
    """Alice's client of the same server over HTTP."""
    return OpenAiClient(socket_server.connection, socket_server.key("alice"))


async def status_after(client: OpenAiClient, response_id: str, *, until: str) -> str:
    """Poll a response until it has a status."""
    async with asyncio.timeout(DEADLINE_S):
        while (status := (await client.get(f"/responses/{response_id}"))["status"]) != until:
            pass
    return str(status)


@requirement("openai:websocket:turns")
async def test_a_connection_answers_message_by_message_with_the_events_of_streams(
    socket: Socket, web: OpenAiClient
) -> None:
    """`websocket-response` and `websocket-sequential-responses` of the compliance suite of Open Responses."""
    await socket.send("one", stream=True)
    await socket.send("two")  # waits for its turn
    one, two = await socket.end(), await socket.end()
    assert (text_of(one), text_of(two)) == ("You said: one", "You said: two")
    recalled = await socket.respond("recall", previous_response_id=one["id"])
    assert text_of(recalled) == "one"
    assert await web.get(f"/responses/{recalled['id']}") == recalled


@requirement("openai:websocket:unstored")
async def test_the_last_response_of_a_connection_can_be_continued_though_it_is_not_stored(
    socket: Socket, web: OpenAiClient, socket_server: SocketServer
) -> None:
    """`websocket-continuation` and `websocket-reconnect-store-false-recovery`."""
    one = await socket.respond("one", store=False)
    again = {"input": "recall", "previous_response_id": one["id"], "store": False}
    missing = (400, "previous_response_not_found", "previous_response_id")
    assert await web.refused("POST", "/responses", again) == missing
    async with opened(socket_server.connection.url, socket_server.key("alice")) as other:
        await other.send(**{"given": again.pop("input"), **again})
        assert await other.refused() == missing
        assert text_of(await other.respond("recovered")) == "You said: recovered"
    asked = await socket.respond(
        script({"call": {"name": "pick"}}, {"say": "{result}"}),
        tools=[function("pick")],
        previous_response_id=one["id"],
        store=False,
    )
    answer = output(asked["output"][0]["call_id"], "picked")
    done = await socket.respond([answer], previous_response_id=asked["id"], store=False)
    assert text_of(done) == "picked"
    recalled = await socket.respond("recall", previous_response_id=done["id"], store=False)
    assert text_of(recalled) == "one"
    await socket.send("recall", previous_response_id=done["id"], store=False)  # not the last one
    assert await socket.refused() == missing


@requirement("openai:websocket:unstored", "openai:websocket:errors")
async def test_an_error_and_the_end_of_a_connection_delete_what_it_kept(
    web: OpenAiClient, socket_server: SocketServer
) -> None:
    """`websocket-previous-response-not-found` and `websocket-failed-continuation-evicts-cache`."""
    async with opened(socket_server.connection.url, socket_server.key("alice")) as socket:
        one = await socket.respond("one", store=False)
        await socket.send([output("call_1", "x")], previous_response_id=one["id"], store=False)
        assert await socket.refused() == (400, "no_pending_call", "input[0].call_id")
        await socket.send("recall", previous_response_id=one["id"], store=False)
        assert (await socket.refused())[1] == "previous_response_not_found"
        two = await socket.respond("two", store=False)
    for response in (one, two):
        named = {"input": [{"type": "item_reference", "id": response["output"][0]["id"]}]}
        async with asyncio.timeout(DEADLINE_S):
            while (await web.refused("POST", "/responses", named))[1] != "item_not_found":
                pass


@requirement("openai:websocket:errors")
async def test_a_wrong_message_gets_an_error_and_the_connection_continues(socket: Socket) -> None:
    for text, refused in (
        ("{", (400, "invalid_json", "")),
        ("[]", (400, "invalid_json", "")),
        ("{}", (400, "invalid_value", "type")),
        ('{"type": "response.create"}', (400, "missing_required_parameter", "input")),
        ('{"type": "response.create", "input": "a", "model": "nobody"}', (404, "model_not_found", "model")),
        ('{"type": "response.create", "input": "a", "top_p": 2}', (400, "decimal_above_max_value", "top_p")),
        ('{"type": "response.create", "input": [], "generate": false}', (400, "unsupported_parameter", "generate")),
    ):
        await socket.send_text(text)
        assert await socket.refused() == refused
    assert text_of(await socket.respond("still here")) == "You said: still here"


@requirement("openai:websocket:errors")
async def test_a_connection_is_refused_as_a_request_is(
    socket_server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    url, key = socket_server.connection.url, socket_server.key
    for path, secret, refused in (
        ("/v1/responses", None, (401, "invalid_api_key")),
        ("/v1/responses", key("alice_reads"), (403, "insufficient_permissions")),
        ("/v1/models", key("alice"), (404, "unknown_url")),
    ):
        with pytest.raises(InvalidStatus) as failure:
            async with opened(url, secret, path):
                pass
        response = failure.value.response
        assert (response.status_code, json.loads(response.body)["error"]["code"]) == refused
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [], "who is refused is no error"


@requirement("openai:websocket:errors")
async def test_each_message_counts_against_the_limits_of_requests(tmp_path: Path) -> None:
    async with (
        running_socket_server(tmp_path, requests_per_minute=2, body_bytes=1024) as server,
        opened(server.connection.url, server.key("alice")) as socket,
    ):
        await socket.send("x" * 1024)
        assert await socket.refused() == (413, "request_too_large", "")
        await socket.send("one")
        assert await socket.refused() == (429, "rate_limit_exceeded", "")


@requirement("openai:websocket:close")
async def test_closing_a_connection_stops_its_response_unless_it_is_to_continue(
    web: OpenAiClient, socket_server: SocketServer
) -> None:
    url, key = socket_server.connection.url, socket_server.key("alice")
    async with opened(url, key) as socket:
        stopped = await socket.begin()
    async with opened(url, key) as socket:
        background = await socket.begin(background=True)
    async with opened(url, key, **{"X-Dragoman-On-Disconnect": "continue"}) as socket:
        kept = await socket.begin()
    assert await status_after(web, stopped, until="cancelled") == "cancelled"
    for each in (background, kept):
        assert (await web.get(f"/responses/{each}"))["status"] == "in_progress"
        assert (await web.post(f"/responses/{each}/cancel", {}))["status"] == "cancelled"


@requirement("openai:websocket:close")
async def test_a_connection_with_too_many_waiting_messages_is_closed(socket_server: SocketServer) -> None:
    async with opened(socket_server.connection.url, socket_server.key("alice")) as socket:
        await socket.begin()
        for _ in range(17):
            await socket.send("more")
        assert await socket.close_code() == 1013


@requirement("openai:websocket:close")
async def test_a_revoked_key_ends_its_connections_and_their_responses_continue(
    web: OpenAiClient, socket_server: SocketServer
) -> None:
    folder = socket_server.app_server.folder
    created = await asyncio.to_thread(send_request, folder, CreateKey(name="short", user="alice", scopes=["use"]))
    async with opened(socket_server.connection.url, created.secret) as socket:
        response_id = await socket.begin()
        await asyncio.to_thread(send_request, folder, RevokeKey(which="short"))
        assert await socket.close_code() == 1008
    assert (await web.get(f"/responses/{response_id}"))["status"] == "in_progress"
    await web.post(f"/responses/{response_id}/cancel", {})


@requirement("openai:websocket:limit")
async def test_a_connection_ends_with_an_error_at_its_time_limit(app_server: AppServer) -> None:
    server = app_server.connection.app
    assert isinstance(server, Application)
    keys = KeysAndTokens(server.keys, SystemClock())
    access = AccessControl(keys, keys.authenticate, lambda _: lambda: None, server.memory)
    options = OpenAiOptions(socket_limit_s=0)
    app = http.app(server.engine, access, options, server.expired_sessions)
    listener = Listener(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    url = (await listener.start()).url
    try:
        async with opened(url, app_server.key("alice"), "/responses") as socket:
            assert await socket.refused() == (400, "websocket_connection_limit_reached", "")
            assert await socket.close_code() == 1000
    finally:
        await listener.stop()
