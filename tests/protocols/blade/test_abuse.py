"""Whatever is sent: it is refused with reason, it never breaks the server, and it costs others nothing."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import httpx2
import msgspec
import pytest
from socketio.exceptions import ConnectionError as Refused  # type: ignore[import-untyped]  # the library is not annotated
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from dragoman.protocols.blade.socket import unauthenticated
from dragoman.protocols.blade.socket.server import SocketServer
from dragoman.protocols.blade.socket.socketio_server import MAX_CONNECT_PACKET_CHARS
from dragoman.server.runner import MAX_WEBSOCKET_MESSAGE_BYTES
from tests.protocols.blade.client import RestClient, SocketClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import running_socket_server

Json = Any
EVENTS = ("session:subscribe", "session:unsubscribe", "chat:send", "chat:stop", "chat:compact")
FIELDS: dict[str, list[Json]] = {
    "session_id": ["SESSION", "sess_x", "", 1, None, [], "\x00", "x" * 10_000],
    "message": ["", "hello", [], [{"type": "text", "text": "x"}], [{"type": "image_url"}], {}, 7, None],
    "mode": ["planning", "x", 1, None],
    "askuser_answer": [{}, {"tool_call_id": ""}, {"tool_call_id": "tc_x", "selections": {"0": ["a"]}}, [], 1],
    "model": ["m", 1, None],
    "headless": [True, "yes", None],
    "output_schema": [{}, {"type": "object"}, [], {"$ref": "#"}, {"anyOf": [{"$ref": "#"}] * 3}],
    "whatif": [{"from_step": 0}, {"from_step": -1}, {}, {"from_step": 10**20}],
    "runtime_env": [{"A": "1"}, {"A": 1}, []],
    "after_sequence": [0, -5, 10**12, 1.5, "1"],
    "resume": [True, 1, None],
    "event_format": ["raw", "x", None],
    "chat_run_id": ["chat_x", 1, None],
}
PATHS = (
    ("POST", "sessions"),
    ("PATCH", "sessions/SESSION"),
    ("PUT", "sessions/SESSION/env"),
    ("PATCH", "sessions/SESSION/pin"),
    ("PATCH", "sessions/SESSION/sharing"),
    ("PATCH", "sessions/SESSION/memory"),
    ("POST", "sessions/SESSION/rewind"),
    ("POST", "sessions/SESSION/checkout"),
    ("POST", "sessions/SESSION/switch-branch"),
    ("POST", "sessions/tokenize/prompt"),
    ("POST", "sessions/tokenize/messages"),
)
BODIES = (b"", b"{", b"[]", b"7", b"null", b'"x"', b"\xff", b"[" * 50_000, b'{"intent":"\\ud800"}', b'{"prompt":1e999}')


@requirement("blade:abuse:events")
async def test_any_payload_of_an_event_is_acknowledged_and_breaks_nothing(alice: RestClient) -> None:
    chance = Random(7)
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as client_socket:
        for _ in range(300):
            payload: Json = {name: chance.choice(values) for name, values in FIELDS.items() if chance.random() < 0.4}
            if chance.random() < 0.6:
                payload["session_id"] = "SESSION"
            payload = {name: session if value == "SESSION" else value for name, value in payload.items()}
            if chance.random() < 0.1:
                payload = chance.choice([None, [], 7, "x", [payload]])
            reply = await client_socket.call(chance.choice(EVENTS), payload)
            assert reply.get("code") != "internal", payload
            await client_socket.call("chat:stop", {"session_id": session})
        assert (await client_socket.send(await alice.session(), "hello"))[-1][0] == "chat:end"


@requirement("blade:abuse:bodies")
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_any_body_is_answered_below_500(alice: RestClient, method: str, path: str) -> None:
    path = path.replace("SESSION", await alice.session())
    for body in BODIES:
        reply = await alice.request(method, path, raw=body)
        assert reply.status < 500, (body[:20], reply)
        if reply.status >= 400:
            assert isinstance(reply.body["detail"], str)


@requirement("blade:abuse:frames")
async def test_frames_that_are_no_socket_io_disturb_nobody(alice: RestClient) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    frames = [
        "",
        "9",
        "4",
        "49",
        "42",
        "42{}",
        '42["chat:send"',
        "42[7]",
        "42[]",
        "451-",
        "40",
        "x" * 1000,
        "42" + "[" * 50_000,
    ]
    for frame in frames:
        async with connect(url) as ws:
            await ws.recv()
            await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
            await ws.send(frame)
    async with socket_client(alice.url, alice.key) as client_socket:
        assert (await client_socket.send(await alice.session(), "hello"))[-1][0] == "chat:end"


@requirement("blade:abuse:frames")
@pytest.mark.parametrize("frame", ["9", "\x00", "x", "7x", "", "\U0001f375"])
async def test_a_frame_that_is_no_packet_ends_its_connection_without_a_line_of_the_log(
    alice: RestClient, caplog: pytest.LogCaptureFixture, frame: str
) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with connect(url) as ws, asyncio.timeout(60):
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        with pytest.raises(ConnectionClosed):
            await first_answer_to(ws, frame)
    async with httpx2.AsyncClient(base_url=alice.url, timeout=60) as http:
        polling = "/socket.io/?EIO=4&transport=polling"
        sid = msgspec.json.decode((await http.get(polling)).text[1:])["sid"]
        if frame.isascii() and frame:
            assert (await http.post(f"{polling}&sid={sid}", content=frame)).status_code == 400
    assert caplog.records == []


@requirement("blade:abuse:frames")
async def test_an_event_without_its_binary_part_is_rejected_and_those_after_it_are_handled(alice: RestClient) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    message = "the event came without its binary part"
    async with connect(url) as ws, asyncio.timeout(60):
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        await ws.send(b"no event awaits this part")
        await ws.send('451-5["chat:send",{"_placeholder":true,"num":0}]')
        announced = await first_answer_to(ws, '426["nothing:known",{}]')
        assert announced == '42["system:error",{"code":"bad_request","message":"%s"}]' % message  # noqa: UP031  # braces
        assert (await first_answer_to(ws)).startswith('435[{"status":"error","code":"bad_request"')
        assert (await first_answer_to(ws)).startswith("436[")
        await ws.send('451-7["chat:send",{"session_id":{"_placeholder":true,"num":0}}]')
        await ws.send(b"part")
        assert (await first_answer_to(ws)).startswith('42["system:error"')
        assert (await first_answer_to(ws)).startswith("437[")


@requirement("blade:abuse:frames")
@pytest.mark.parametrize(
    ("declared", "parts"),
    [(10**9, [b"small"]), (3, [bytes(9 * 1024 * 1024)] * 2)],
    ids=["too many", "too large together"],
)
async def test_binary_parts_beyond_the_limits_are_dropped(alice: RestClient, declared: int, parts: list[bytes]) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with connect(url, compression=None) as ws, asyncio.timeout(60):
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        await ws.send(f'45{declared}-5["chat:send",{{"_placeholder":true,"num":0}}]')
        for part in parts:
            await ws.send(part)
        assert "too many or too large binary parts" in await first_answer_to(ws)
        assert (await first_answer_to(ws)).startswith('435[{"status":"error","code":"bad_request"')
        assert (await first_answer_to(ws, '426["nothing:known",{}]')).startswith("436[")


@requirement("blade:abuse:frames")
@pytest.mark.parametrize("name", ["{}", "[]", "null", "1"])
async def test_an_event_whose_name_is_no_text_is_dropped_without_a_line_of_the_log(
    alice: RestClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with connect(url) as ws, asyncio.timeout(60):
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        await ws.send(f"42[{name}]")
        assert (await first_answer_to(ws, '426["nothing:known",{}]')).startswith("436[")
    assert caplog.records == []


@requirement("blade:abuse:frames")
async def test_a_message_over_the_limit_closes_its_own_connection_alone(alice: RestClient) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with (
        socket_client(alice.url, alice.key) as client_socket,
        connect(url, compression=None) as ws,
        asyncio.timeout(60),
    ):
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        with pytest.raises(ConnectionClosed) as closed:
            await first_answer_to(ws, "4" * (MAX_WEBSOCKET_MESSAGE_BYTES + 1))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
        assert (await client_socket.send(await alice.session(), "hello"))[-1][0] == "chat:end"


async def first_answer_to(ws: ClientConnection, *frames: str) -> str:
    """Send frames and return the first answer. Changes of the sessions of other tests are skipped."""
    for frame in frames:
        await ws.send(frame)
    async with asyncio.timeout(60):
        while (received := str(await ws.recv())).startswith('42["session:updated"'):
            pass
        return received


@requirement("blade:abuse:events")
@pytest.mark.parametrize("name", ["connect", "disconnect", "connect_error", "*"])
async def test_clients_call_no_handlers_of_the_librarys_own(alice: RestClient, name: str) -> None:
    async with socket_client(alice.url, alice.key) as client_socket:
        reply = await client_socket.sio.call(name, {"token": alice.key}, timeout=60)
        assert reply == {"status": "error", "code": "bad_request", "message": f"there is no event {name!r}"}
        assert (await client_socket.send(await alice.session(), "hello"))[-1][0] == "chat:end"


@requirement("blade:abuse:events")
async def test_an_event_that_is_no_json_is_acknowledged_and_announced(alice: RestClient) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with connect(url) as ws:
        await ws.recv()
        await first_answer_to(ws, '40{"token":"%s"}' % alice.key)  # noqa: UP031  # braces
        announced = await first_answer_to(ws, '427["chat:send",{"session_id":}]')
        assert announced == '42["system:error",{"code":"bad_request","message":"the event is not JSON"}]'
        assert (
            await first_answer_to(ws)
            == '437[{"status":"error","code":"bad_request","message":"the event is not JSON"}]'
        )


@requirement("blade:abuse:half-open")
async def test_who_shows_no_key_is_not_read_at_length(alice: RestClient) -> None:
    url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
    async with connect(url) as ws:
        await ws.recv()
        with pytest.raises(ConnectionClosed):
            await first_answer_to(ws, '40{"token":"%s"}' % ("x" * 16_384))


@requirement("blade:abuse:half-open")
async def test_connections_without_a_key_are_limited_and_the_newest_can_still_show_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "MAX_UNAUTHENTICATED", 3)
    polling = "/socket.io/?EIO=4&transport=polling"
    async with running_socket_server(tmp_path) as server:
        url = url_of(server)
        async with (
            socket_client(url, server.key("alice")) as client_socket,
            httpx2.AsyncClient(base_url=url, timeout=60) as http,
        ):
            sids = [msgspec.json.decode((await http.get(polling)).text[1:])["sid"] for _ in range(10)]
            connect_packet = '40{"token":"%s"}' % server.key("alice")  # noqa: UP031  # braces
            statuses = [(await http.post(f"{polling}&sid={sid}", content=connect_packet)).status_code for sid in sids]
            assert statuses == [400] * 7 + [200] * 3
            rest = RestClient(url, server.key("alice"))
            assert (await client_socket.send(await rest.session(), "hello"))[-1][0] == "chat:end"


@requirement("blade:abuse:half-open")
async def test_a_connection_that_shows_no_key_is_closed_and_one_that_did_is_not(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = SocketServer.__init__.__kwdefaults__
    assert defaults is not None, "it has keyword defaults"
    monkeypatch.setitem(defaults, "connect_timeout_s", 0.2)
    async with running_socket_server(tmp_path) as app_server:
        url = url_of(app_server)
        address = url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
        async with socket_client(url, app_server.key("alice")) as client_socket, connect(address) as silent:
            async with asyncio.timeout(60):
                async for _ in silent:
                    pass
            assert (await client_socket.send(await RestClient(url, app_server.key("alice")).session(), "hello"))[-1][
                0
            ] == "chat:end"


@requirement("blade:abuse:half-open")
async def test_polled_packets_are_read_up_to_a_limit_and_what_is_none_is_no_line_of_the_log(
    alice: RestClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with httpx2.AsyncClient(base_url=alice.url, timeout=60) as http:
        polling = "/socket.io/?EIO=4&transport=polling"

        async def opened(packet: bytes | None = None) -> str:
            path = f"{polling}&sid={msgspec.json.decode((await http.get(polling)).text[1:])['sid']}"
            if packet is not None:
                assert (await http.post(path, content=packet)).text == "OK"
            return path

        async def without_a_length() -> AsyncIterator[bytes]:
            yield b"4" * MAX_CONNECT_PACKET_CHARS
            yield b"4"

        known = await opened(b"40" + msgspec.json.encode({"token": alice.key}))
        for path, content, status in (
            (await opened(), b"4" * (MAX_CONNECT_PACKET_CHARS + 1), 413),
            (await opened(), without_a_length(), 413),
            (await opened(), b"\x1f\x8b", 400),
            (await opened(), b"", 200),
            (f"{polling}&sid=x%0A%1B[31m", b"4", 400),
        ):
            assert (await http.post(path, content=content)).status_code == status
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        head = f"POST {known} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_WEBSOCKET_MESSAGE_BYTES + 1}\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()
        assert (await http.get(known)).text.startswith("40{")
    assert caplog.records == []


@requirement("blade:abuse:shares")
async def test_connections_count_against_their_owners_share(tmp_path: Any) -> None:
    async with running_socket_server(tmp_path, max_streams_per_user=2) as app_server:
        url, key = url_of(app_server), app_server.key("alice")
        async with socket_client(url, key), socket_client(url, key):
            third = SocketClient(url, key)
            with pytest.raises(Refused):
                await third.connect()
            await third.leave()
            async with socket_client(url, app_server.key("bob")):
                pass
        async with asyncio.timeout(60), socket_client(url, key):
            pass
