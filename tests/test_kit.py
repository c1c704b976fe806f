"""The protocol kit is enough for a whole protocol: streaming, resuming, errors and limits, in sixty lines."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from dragoman.engine.engine import Engine
from dragoman.protocols.kit.connection import PUSH_EXTENSION, while_connected
from dragoman.protocols.kit.errors import REQUEST_ERRORS, ErrorRow, ErrorTable
from dragoman.protocols.kit.router import Route, Router
from dragoman.server.protocols import PROTOCOLS, MountedProtocol, ServerContext
from tests import toy_protocol
from tests.asgi_client import Answer, Exchange
from tests.servers import AppServer, running_server

TOY = Path(toy_protocol.__file__)


def mount_toy(context: ServerContext) -> MountedProtocol:
    toy = toy_protocol.app(context.engine, context.access)
    return context.mount("/toy", toy, "toy", [])


@pytest.fixture
async def toy_server(tmp_path: Path) -> AsyncIterator[AppServer]:
    protocols = (*PROTOCOLS, mount_toy)
    limits = {"max_runs_per_user": 1, "max_streams_per_user": 1}
    async with running_server(tmp_path, protocols=protocols, rehearsal=True, **limits) as server:
        yield server


def headers(server: AppServer, **more: str) -> list[tuple[str, str]]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return [("authorization", f"Bearer {server.key('alice')}"), *named.items()]


def say(*steps: dict[str, Any]) -> bytes:
    return json.dumps({"text": json.dumps({"script": steps})}).encode()


async def post(server: AppServer, chat: str, body: bytes) -> Exchange:
    return await server.connection.open(
        "POST", f"/toy/{chat}", headers=headers(server, content_type="application/json"), body=body
    )


async def get(server: AppServer, chat: str, **more: str) -> Exchange:
    return await server.connection.open("GET", f"/toy/{chat}", headers=headers(server, **more))


def frames_of(body: bytes) -> list[tuple[str, str]]:
    return re.findall(r"id: (\S+)\ndata: (.*)\n\n", body.decode())


def error_of(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]


def test_the_toy_protocol_has_at_most_sixty_lines() -> None:
    assert len(TOY.read_text(encoding="utf-8").splitlines()) <= 60


async def test_an_answer_is_streamed_to_its_end(toy_server: AppServer) -> None:
    stream = await post(toy_server, "c1", say({"say": "Hello"}))
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "".join(text for _, text in frames_of(await stream.read())) == "Hello."


async def test_after_any_event_the_rest_is_exactly_the_rest(toy_server: AppServer) -> None:
    whole = frames_of(await (await post(toy_server, "c1", say(*({"say": each} for each in "abcde")))).read())
    assert len(whole) == 6
    for place, (event_id, _) in enumerate(whole):
        stream = await get(toy_server, "c1", last_event_id=event_id)
        rest = whole[place + 1 :]
        body = b"" if not rest else await asyncio.wait_for(read_until(stream, rest[-1][0]), 10)
        assert frames_of(body) == rest
        await stream.disconnect()


async def read_until(stream: Exchange, event_id: str) -> bytes:
    body = b""
    while f"id: {event_id}\n".encode() not in body:
        body += await stream.chunk() or b""
    return body


async def test_a_watching_stream_sees_the_runs_that_others_start_until_its_client_leaves(
    toy_server: AppServer,
) -> None:
    await (await post(toy_server, "c1", say({"say": "one"}))).read()
    watching = await get(toy_server, "c1")
    await (await post(toy_server, "c1", say({"say": "two"}))).read()
    body = b""
    while body.count(b"data: .") < 2:
        body += await watching.chunk() or b""
        if b"data: ." in body and watching.unread() == b"":
            break
    assert "one" in body.decode()
    await watching.disconnect()


async def test_errors_have_the_protocols_own_shape(toy_server: AppServer) -> None:
    request = toy_server.connection.request
    assert error_of(await request("GET", "/toy/c1/more", headers=headers(toy_server))) == (
        400,
        "there is nothing at this path; GET /openapi.json lists the paths of this server",
    )
    refused = await request("PUT", "/toy/c1", headers=headers(toy_server))
    assert (error_of(refused), refused.headers["allow"]) == ((400, "this path takes POST or GET"), "POST, GET")
    assert (await request("GET", "/toy/c1")).status == 401
    for body, message in (
        (b"{", "the body is not JSON: it ends within a value"),
        (b"[]", "Expected `object`, got `array`"),
    ):
        answer = await request(
            "POST", "/toy/c1", headers=headers(toy_server, content_type="application/json"), body=body
        )
        assert error_of(answer) == (400, message)
    large = await request(
        "POST", "/toy/c1", headers=headers(toy_server, content_type="application/json"), body=b"x" * 1001
    )
    assert (error_of(large), large.headers["connection"]) == ((400, "the body is larger than 1000 bytes"), "close")


async def test_a_fault_is_answered_with_a_reference_and_no_details(
    toy_server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret details")

    monkeypatch.setattr(Engine, "find_session", fail)
    answer = await toy_server.connection.request(
        "POST", "/toy/c1", headers=headers(toy_server, content_type="application/json"), body=b'{"text": "hello"}'
    )
    assert re.fullmatch(r"the server failed; reference [0-9a-f]{12}", error_of(answer)[1])


async def test_limits_hold_for_runs_and_streams(toy_server: AppServer) -> None:
    running = await post(toy_server, "c1", say({"say": "a"}, {"wait_ms": 600_000}))
    refused = await post(toy_server, "c2", say({"say": "b"}))
    assert (refused.status, "retry-after" in refused.headers) == (429, True)
    watching = await get(toy_server, "c1")
    assert (await get(toy_server, "c1")).status == 429
    await watching.disconnect()
    await watching.wait_until_released()
    again = await get(toy_server, "c1")
    assert again.status == 200
    for stream in (again, running):
        await stream.disconnect()


# --- the router -------------------------------------------------------------------------------------------------------


async def nothing(_: object) -> Any:
    raise AssertionError("routes are only found here")


ROUTER = Router(
    [
        Route("GET", "", nothing),
        Route("GET", "a/{x}", nothing),
        Route("POST", "a/{x}", nothing),
        Route("GET", "a/fixed", nothing),
        Route("GET", "{first}/files/{rest:path}", nothing),
        Route("DELETE", "{first}/files/{rest:path}", nothing),
        Route("GET", "{first}/files/{rest:path}/events", nothing),
    ]
)


@pytest.mark.parametrize(
    ("path", "route", "variables"),
    [
        ("/", "", {}),
        ("/a/1", "a/{x}", {"x": "1"}),
        ("/a/1/", "a/{x}", {"x": "1"}),
        ("/a/fixed", "a/fixed", {}),
        ("/b/files/x/y", "{first}/files/{rest:path}", {"first": "b", "rest": "x/y"}),
        ("/b/files/x/y/events", "{first}/files/{rest:path}/events", {"first": "b", "rest": "x/y"}),
        ("/a/files/z", "{first}/files/{rest:path}", {"first": "a", "rest": "z"}),
    ],
)
def test_a_path_finds_its_route_and_variables(path: str, route: str, variables: dict[str, str]) -> None:
    match = ROUTER.find(path, "GET")
    assert match is not None
    assert (match.routes["GET"].path, match.variables) == (route, variables)


@pytest.mark.parametrize("path", ["/a", "/a//", "/a/1/2", "/b/files", "/nothing"])
def test_a_path_without_a_route_is_not_found(path: str) -> None:
    assert ROUTER.find(path, "GET") is None


@pytest.mark.parametrize(("path", "rest"), [("/a/files/x/events", "x/events"), ("/a/files/x", "x")])
def test_a_value_of_several_parts_ends_where_the_method_has_a_route(path: str, rest: str) -> None:
    match = ROUTER.find(path, "DELETE")
    assert match is not None
    assert (match.routes["DELETE"].path, match.variables["rest"]) == ("{first}/files/{rest:path}", rest)


def test_an_error_is_answered_by_the_row_of_its_nearest_base() -> None:
    table = ErrorTable({Exception: ErrorRow(400, "any"), LookupError: ErrorRow(404, "lookup")})
    assert (table.to_response(KeyError("x")).code, table.to_response(ValueError("x")).code) == ("lookup", "any")
    with pytest.raises(KeyError):
        ErrorTable({}).to_response(REQUEST_ERRORS[0]())


async def test_costly_work_ends_when_its_client_leaves() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        with pytest.raises(ClientDisconnect):
            await while_connected(Request(scope, receive), work())

    exchange = Exchange([b""], None)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "extensions": {PUSH_EXTENSION: exchange}}
    exchange.task = asyncio.create_task(app(scope, exchange.receive, exchange.send))
    async with asyncio.timeout(60):
        await started.wait()
        await exchange.disconnect()
        await exchange.task
    assert ended.is_set()
