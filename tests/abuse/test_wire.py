"""Bytes that no well-behaved client sends, over real sockets to the real application. Cases 1, 5, 11 to 13, 16 to 18,
26.
"""

import asyncio
import json
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from dragoman.asgi import http_connection
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN
from dragoman.server import runner
from tests.abuse.conftest import ServerMaker
from tests.abuse.raw_client import ListeningServer
from tests.protocols.aap.client import BASE, Session, script, user

Json = Any


async def turns_of(server: ListeningServer) -> tuple[Session, str]:
    session = await server.aap_client().create()
    return session, f"{BASE}{session.path}/turns"


def head(server: ListeningServer, path: str, *lines: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\n".encode() + server.lines("alice", "Content-Type: application/json", *lines)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


TURN = json.dumps({"messages": [user("hello")]}).encode()

# --- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_client_that_sends_all_before_it_reads_gets_the_error_too(socket_server: ListeningServer) -> None:
    _, path = await turns_of(socket_server)
    size = 8 * 1024 * 1024  # more than all buffers in between can take
    answer = await socket_server.send(
        head(socket_server, path, f"Content-Length: {size}") + b"\r\n", *[b"x" * 65_536] * (size // 65_536)
    )
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_body_over_the_limit_is_413_while_it_comes_and_the_connection_ends(
    socket_server: ListeningServer,
) -> None:
    session, path = await turns_of(socket_server)
    before = await session.state()
    too_much = [*[chunked(b"x" * 65_536)] * 16, chunked(b"x")]  # not more: a reset would discard the answer
    for request in (
        [head(socket_server, path, "Transfer-Encoding: chunked") + b"\r\n", *too_much],
        [head(socket_server, path, "Content-Length: 99999999999") + b"\r\n"],
    ):
        answer = await socket_server.send(*request)
        assert (answer.status, answer.code, answer.headers["connection"]) == (413, "body_too_large", "close")
    assert await session.state() == before
    assert await socket_server.assert_responsive()


async def test_a_chunked_body_of_single_bytes_is_read_whole(socket_server: ListeningServer) -> None:
    _, path = await turns_of(socket_server)
    parts = [TURN[place : place + 1] for place in range(len(TURN))]
    answer = await socket_server.send(
        head(socket_server, path, "Transfer-Encoding: chunked") + b"\r\n", chunked(*parts), b"0\r\n\r\n"
    )
    assert (answer.status, answer.json["stopReason"]) == (200, "end_turn")


@pytest.mark.parametrize("length", ["-1", "+5", "0x5", "5,5", "5 5", "9" * 40, "²", ""])
async def test_an_invalid_content_length_is_400_and_changes_nothing(
    socket_server: ListeningServer, length: str
) -> None:
    session, path = await turns_of(socket_server)
    before = await session.state()
    answer = await socket_server.send(head(socket_server, path, f"Content-Length: {length}") + b"\r\n" + TURN)
    assert answer.status == 400
    assert await session.state() == before
    assert await socket_server.assert_responsive()


async def test_a_too_small_content_length_is_400_and_the_rest_is_not_a_second_request(
    socket_server: ListeningServer,
) -> None:
    session, path = await turns_of(socket_server)
    before = await session.state()
    inner = socket_server.get(f"{BASE}{session.path}", method="DELETE")
    peer = await socket_server.peer()
    await peer.send(head(socket_server, path, "Content-Length: 5") + b"\r\n" + TURN + inner)
    assert (await peer.answer()).status == 400
    assert await session.state() == before


async def test_a_body_that_is_cut_off_changes_nothing(socket_server: ListeningServer) -> None:
    session, path = await turns_of(socket_server)
    before = await session.state()
    peer = await socket_server.peer()
    await peer.send(head(socket_server, path, f"Content-Length: {len(TURN) + 1}") + b"\r\n" + TURN)
    peer.writer.write_eof()
    assert await peer.wait_until_closed()
    assert await session.state() == before


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5", "X-Folded: a\r\n b"],
        ["Content-Length : 5"],
    ],
)
async def test_a_request_with_two_lengths_or_folded_lines_is_400_and_the_connection_ends(
    socket_server: ListeningServer, lines: list[str]
) -> None:
    session, path = await turns_of(socket_server)
    before = await session.state()
    peer = await socket_server.peer()
    await peer.send(
        head(socket_server, path, *lines) + b"\r\n" + chunked(TURN) + b"0\r\n\r\n" + socket_server.get("/healthz")
    )
    assert (await peer.answer()).status == 400
    assert await peer.wait_until_closed()
    assert await session.state() == before


async def test_a_hundred_kilobytes_of_headers_are_400(socket_server: ListeningServer) -> None:
    peer = await socket_server.peer()
    lines = "".join(f"X-{place}: {'y' * 90}\r\n" for place in range(1000)).encode()
    try:
        await peer.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n")
        assert (await peer.answer()).status == 400
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the server closed the connection while the test was sending, which may discard the answer
    assert await socket_server.assert_responsive()


async def test_a_body_hidden_behind_an_upgrade_is_not_a_second_request(socket_server: ListeningServer) -> None:
    session, _ = await turns_of(socket_server)
    inner = socket_server.get(f"{BASE}{session.path}", method="DELETE")
    lines = ["Connection: Upgrade", "Upgrade: websocket", f"Content-Length: {len(inner)}"]
    answer = await socket_server.send(head(socket_server, "/healthz", *lines) + b"\r\n" + inner)
    assert answer.status in (400, 405)
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_a_trailer_is_not_a_header(socket_server: ListeningServer) -> None:
    lines = socket_server.lines("alice").split(b"Authorization:")
    request = b"GET /usage HTTP/1.1\r\n" + lines[0] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    answer = await socket_server.send(request + b"Authorization:" + lines[1] + b"\r\n")
    assert answer.status == 401


async def test_spaces_around_a_value_do_not_belong_to_it(socket_server: ListeningServer) -> None:
    """RFC 9110, section 5.5. MCP compares these values with those of the body."""
    meta = "io.modelcontextprotocol/"
    params = {"_meta": {f"{meta}protocolVersion": "2026-07-28", f"{meta}clientCapabilities": {}}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    headers = ("MCP-Protocol-Version:\t2026-07-28 ", "Mcp-Method:  tools/list \t ")
    answer = await socket_server.send(socket_server.post("/mcp", body, "alice", *headers))
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("endless", [b"0\r\nX-A: ", b"0\r\n", b"1;extension="])
async def test_what_follows_a_body_is_bounded(socket_server: ListeningServer, endless: bytes) -> None:
    _, path = await turns_of(socket_server)
    line = b"a:\r\n" if endless.endswith(b"\n") else b"aaaa"
    too_much = line * (8 * http_connection.MAX_HEAD_BYTES // len(line))  # the server reads less at once
    begin = head(socket_server, path, "Transfer-Encoding: chunked") + b"\r\n" + chunked(TURN) + endless
    peer = await socket_server.peer()
    with suppress(ConnectionError):  # the server closes before it has read everything, which may discard the answer
        await peer.send(begin, too_much)
        assert b"too large" in await peer.read_to_end()
    assert await socket_server.assert_responsive()


# --- methods, versions, targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "GET http://127.0.0.1/aap/v3/meta HTTP/1.1",
        "GET https://evil.example/aap/v3/meta HTTP/1.1",
        "GET aap/v3/meta HTTP/1.1",
        "CONNECT 127.0.0.1:80 HTTP/1.1",
        "GET /aap/v3/meta HTTP/9.9",
        "get /aap/v3/meta HTTP/1.1",
        "GET /aap/v3/meta\tHTTP/1.1",
    ],
)
async def test_an_invalid_request_line_is_400(socket_server: ListeningServer, line: str) -> None:
    answer = await socket_server.send(line.encode() + b"\r\n" + socket_server.lines() + b"\r\n")
    assert answer.status == 400


@pytest.mark.parametrize("lines", ["Host: a\r\nHost: b\r\n", "Host: x/?\r\n", "", "Host: a b\r\n", "Host: a@b\r\n"])
async def test_a_request_without_exactly_one_valid_host_is_400(socket_server: ListeningServer, lines: str) -> None:
    key = f"Authorization: Bearer {socket_server.keys['alice']}\r\n\r\n"
    answer = await socket_server.send(f"GET {BASE}/meta HTTP/1.1\r\n{lines}{key}".encode())
    assert answer.status == 400


async def test_http_1_0_is_answered_and_the_connection_ends(socket_server: ListeningServer) -> None:
    session, path = await turns_of(socket_server)
    body = json.dumps({"messages": [user("hello")], "stream": "delta"}).encode()
    lines = socket_server.lines("alice", f"Content-Length: {len(body)}")
    answer = await socket_server.send(f"POST {path} HTTP/1.0\r\n".encode() + lines + b"\r\n" + body)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in answer.headers, "HTTP/1.0 knows no chunks"
    assert answer.body.startswith(b"id: 1\nevent: turn_start\n")
    assert answer.body.endswith(b"}\n\n")
    assert b"event: turn_stop" in answer.body
    assert (await session.history())[-1]["role"] == "assistant"


async def test_head_answers_as_get_without_a_body_and_ends_where_a_stream_would_begin(
    socket_server: ListeningServer,
) -> None:
    session, _ = await turns_of(socket_server)
    peer = await socket_server.peer()
    for path in (f"{BASE}/meta", f"{BASE}{session.path}", f"{BASE}{session.path}/events"):
        await peer.send(socket_server.get(path, method="HEAD"))
        assert (await peer.answer(is_to_head=True)).status == 200
    await peer.send(socket_server.get(f"{BASE}/meta"))
    assert (await peer.answer()).json["version"] == 3


async def test_options_without_a_preflight_is_405_and_reveals_nothing(socket_server: ListeningServer) -> None:
    answer = await socket_server.send(socket_server.get(f"{BASE}/sessions", method="OPTIONS"))
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert (await socket_server.send(socket_server.get(f"{BASE}/sessions", None, method="OPTIONS"))).status == 401


PATHS = [
    "//aap/v3/meta",
    "/aap/v3//meta",
    "/aap/v3/meta/",
    "/aap/v3/meta//",
    "/aap%2Fv3%2Fmeta",
    "/aap/v3/%6Deta",
    "/aap/v3/../v3/meta",
    "/aap/v3/./meta",
    "/aap/v3/meta%0A",
    "/aap/v3/meta%00",
    "/aap/v3/meta;x",
    "/AAP/V3/META",
    "/aap/v3/meta?a=b#c",
    "/healthz/../aap/v3/meta",
    "/healthz%2F..%2Faap%2Fv3%2Fmeta",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_spelling_of_a_path_bypasses_the_key(socket_server: ListeningServer, path: str) -> None:
    answers = [await socket_server.send(socket_server.get(path, name)) for name in (None, "alice")]
    assert answers[0].status in (400, 401, 404)
    assert answers[1].status in (200, 400, 404)
    assert b"rehearsal" not in answers[0].body


async def test_a_thousand_pipelined_requests_are_answered_in_order(socket_server: ListeningServer) -> None:
    peer = await socket_server.peer()
    await peer.send(socket_server.get("/healthz") * 999 + socket_server.get(f"{BASE}/meta"))
    statuses = [(await peer.answer()).status for _ in range(1000)]
    assert statuses == [200] * 1000


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_thousand_wrong_keys_are_429_after_the_first_and_the_right_one_still_works(
    open_socket_server: ServerMaker,
) -> None:
    async with open_socket_server(wrong_keys_per_minute=10) as server:
        peer = await server.peer()
        statuses = []
        for number in range(1000):
            line = f"Authorization: Bearer sk-dragoman-{number:043}"
            await peer.send(server.get(f"{BASE}/meta", None, line))
            statuses.append((await peer.answer()).status)
        assert statuses[:10] == [401] * 10
        assert set(statuses[10:]) <= {401, 429}
        assert statuses.count(429) > 900
        assert (await server.send(server.get(f"{BASE}/meta"))).status == 200


async def test_a_key_in_the_url_is_400_and_not_repeated(socket_server: ListeningServer) -> None:
    for query in (f"api_key={socket_server.keys['alice']}", f"x={socket_server.keys['alice']}"):
        answer = await socket_server.send(socket_server.get(f"{BASE}/meta?{query}", None))
        assert answer.status == 400
        assert socket_server.keys["alice"].encode() not in answer.body


async def test_a_stream_whose_key_is_revoked_ends_whole_within_five_seconds(open_socket_server: ServerMaker) -> None:
    async with open_socket_server() as server:
        session = await server.aap_client("alice_phone").create()
        peer = await server.peer()
        body = {"messages": [user(script({"say": "a"}, {"wait_ms": 60_000}))], "stream": "delta"}
        await peer.send(server.post(f"{BASE}{session.path}/turns", body, "alice_phone"))
        assert (await peer.head())[0] == 200
        said = b""
        while b"text_delta" not in said:
            said += await peer.chunk()
        async with asyncio.timeout(30):
            await server.app.keys.revoke("alice_phone")
            rest = b"".join([chunk async for chunk in peer.chunks()])
        assert b"turn_stop" not in said + rest
        assert (said + rest).endswith(b"\n\n")
        assert (await server.send(server.get(f"{BASE}/meta", "alice_phone"))).status == 401
        assert (await session.as_client(server.aap_client()).info())["_meta"]["status"] == "running"


async def test_a_client_that_does_not_read_is_cut_off_when_its_key_is_revoked(
    open_socket_server: ServerMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_socket_server() as server:
        session = await server.aap_client().create()
        peer = await server.peer(receive_buffer=4096)
        text = script({"emit": {"count": 2000, "text": "x" * 5000}}, {"say": "all"}, {"wait_ms": 600_000})
        body = {"messages": [user(text)], "stream": "delta"}
        await peer.send(server.post(f"{BASE}{session.path}/turns", body, "alice_phone"))
        assert (await peer.head())[0] == 200
        watching = await session.watch("0", "?stream=message")
        await watching.until("text")
        is_open = STREAMS_OPEN.labels(protocol="aap")
        assert is_open.value == 2
        await server.app.keys.revoke("alice_phone")
        async with asyncio.timeout(60):
            while is_open.value == 2:
                await server.send(server.get("/healthz"))
        sent = await peer.read_to_end()
        assert not sent.endswith(b"\n\n\r\n"), "what the server still had for the client is dropped"
    assert "request failed" not in capsys.readouterr().out


# --- slow and half-dead clients ---------------------------------------------------------------------------------------


async def test_a_client_that_half_closes_has_left_and_its_turn_continues(socket_server: ListeningServer) -> None:
    session, path = await turns_of(socket_server)
    peer = await socket_server.peer()
    await peer.send(socket_server.post(path, {"messages": [user(script({"wait_ms": 50}, {"say": "done"}))]}))
    peer.writer.write_eof()
    assert await peer.wait_until_closed()
    reading = await session.watch("0")
    await reading.until("turn_stop")
    assert (await session.history())[-1]["content"] == [{"type": "text", "text": "done"}]


async def test_slow_request_heads_lose_their_connections_and_others_are_served(
    open_socket_server: ServerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_TIMEOUT_S", 0.2)
    async with open_socket_server() as server:
        peers = [await server.peer() for _ in range(50)]
        for peer in peers:
            await peer.send(b"GET /healthz HTTP/1.1\r\nX: ")
        assert await server.assert_responsive()
        assert all(await asyncio.gather(*(peer.wait_until_closed() for peer in peers)))


async def test_a_client_that_is_idle_after_an_early_refusal_of_its_body_is_disconnected(
    open_socket_server: ServerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "KEEP_ALIVE_TIMEOUT_S", 0.3)
    async with open_socket_server() as server:
        whole, half = await server.peer(), await server.peer()
        for peer in (whole, half):
            await peer.send(head(server, f"{BASE}/nothing", "Content-Length: 10") + b"\r\n")
            assert (await peer.answer()).status == 404
        await whole.send(b"0123456789")
        await half.send(b"01234")
        assert await whole.wait_until_closed()
        assert await half.wait_until_closed()


async def test_a_reader_with_a_closed_window_blocks_neither_its_turn_nor_others(socket_server: ListeningServer) -> None:
    session, path = await turns_of(socket_server)
    peer = await socket_server.peer(receive_buffer=4096)
    body = {"messages": [user(script({"emit": {"count": 2000, "text": "x" * 5000}}))], "stream": "delta"}
    await peer.send(socket_server.post(path, body))
    watching = await session.watch("0", "?stream=message")
    await watching.until("turn_stop")
    other = await socket_server.aap_client().create()
    assert (await other.run("hello")).stop == "end_turn"
    assert len((await session.history())[-1]["content"][0]["text"]) == 10_000_000
    await peer.close()


POST_PATHS = (
    "/aap/v3/sessions",
    "/ag-ui/rehearsal",
    "/ai-sdk/rehearsal",
    "/api/v1/agent/runs",
    "/api/sessions",
    "/mcp",
    "/process",
    "/socket.io/?EIO=4",
    "/v1/chat/completions",
    "/v1/responses",
)


async def test_without_keys_no_protocol_takes_a_body_whose_type_is_not_declared(
    open_socket_server: ServerMaker,
) -> None:
    """A page of another origin could send it without a preflight request."""
    async with open_socket_server(auth=False) as server:
        for path, fields in product(POST_PATHS, ("Content-Length: 2", "Transfer-Encoding: chunked")):
            body = b"{}" if "Length" in fields else b"2\r\n{}\r\n0\r\n\r\n"
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n\r\n".encode()
            answer = await server.send(head + body)
            assert (answer.status, answer.code) == (415, "unsupported_media_type"), path
