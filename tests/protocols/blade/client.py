"""Blade's test client: REST over httpx2, events over the library's own Socket.IO client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import msgspec
import socketio  # type: ignore[import-untyped]  # the library is not annotated

from tests.asgi_client import DEADLINE_S

Json = Any
Event = tuple[str, dict[str, Json]]


class RestAnswer(NamedTuple):
    """An answer over REST."""

    status: int
    body: Json


class RestClient:
    """Somebody with a key, over REST."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key

    async def request(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> RestAnswer:
        """Ask for a path below `/api`."""
        content = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        async with httpx2.AsyncClient(base_url=self.url, timeout=DEADLINE_S, verify=False) as http:
            answer = await http.request(method, f"/api/{path}", content=content, headers=headers)
        return RestAnswer(answer.status_code, msgspec.json.decode(answer.content) if answer.content else None)

    async def get(self, path: str) -> Json:
        """Get the JSON at a path."""
        reply = await self.request("GET", path)
        assert reply.status == 200, reply
        return reply.body

    async def document(self) -> Json:
        """The server's OpenAPI document."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=DEADLINE_S, verify=False) as http:
            return (await http.get("/openapi.json")).json()

    async def session(self, **body: Json) -> str:
        """A new session's id."""
        reply = await self.request("POST", "sessions", body)
        assert reply.status == 200, reply
        return str(reply.body["session_id"])

    async def messages(self, session: str) -> list[dict[str, Json]]:
        """A session's turns."""
        result = await self.get(f"sessions/{session}/messages")
        assert isinstance(result, list)
        return result


class SocketClient:
    """One connection, and what came over it."""

    def __init__(self, url: str, key: Json, transports: list[str] | None = None) -> None:
        self.events: list[Event] = []
        self.is_disconnected = asyncio.Event()
        self._url = url
        self._key = key
        self._transports = transports or ["websocket"]
        self._event_received = asyncio.Condition()
        self._read_position = 0
        self.sio = socketio.AsyncClient(reconnection=False)
        self.sio.on("*", self._on_event)
        self.sio.on("disconnect", self._on_disconnect)

    async def connect(self) -> None:
        await self.sio.connect(
            self._url, auth={"token": self._key}, transports=self._transports, wait_timeout=DEADLINE_S
        )

    async def leave(self) -> None:
        await self.sio.disconnect()

    @property
    def transport(self) -> asyncio.Transport:
        """What the socket is written to. Its library gives no other way to it."""
        transport: asyncio.Transport = self.sio.eio.ws._response.connection.transport
        return transport

    async def cut(self) -> None:
        """Cut the TCP connection, as a network does."""
        self.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            await self.is_disconnected.wait()

    async def call(self, name: str, payload: Json) -> dict[str, Json]:
        """Send an event, and wait for its acknowledgement."""
        result = await self.sio.call(name, payload, timeout=DEADLINE_S)
        assert isinstance(result, dict), result
        return result

    async def emit(self, name: str, payload: Json) -> None:
        """Send an event without waiting."""
        await self.sio.emit(name, payload)

    async def until(self, wanted: Callable[[str, dict[str, Json]], bool] | str) -> list[Event]:
        """The events since the last call, up to and including the wanted one.

        News for lists are left out unless they are wanted: those of other tests' sessions come at any time.
        """
        is_it = (lambda name, _: name == wanted) if isinstance(wanted, str) else wanted
        place = self._read_position
        async with asyncio.timeout(DEADLINE_S), self._event_received:
            while True:
                while place < len(self.events):
                    place += 1
                    if is_it(*self.events[place - 1]):
                        result, self._read_position = self.events[self._read_position : place], place
                        return result if callable(wanted) else [each for each in result if not is_list_update(*each)]
                await self._event_received.wait()

    async def send(self, session: str, message: Json, **fields: Json) -> list[Event]:
        """Chat, and give all events of the chat."""
        reply = await self.call("chat:send", {"session_id": session, "message": message, **fields})
        assert reply["status"] == "ok", reply
        return await self.until("chat:end")

    async def _on_event(self, name: str, payload: dict[str, Json]) -> None:
        async with self._event_received:
            self.events.append((name, payload))
            self._event_received.notify_all()

    def _on_disconnect(self, *_: object) -> None:
        self.is_disconnected.set()


@asynccontextmanager
async def socket_client(url: str, key: Json, transports: list[str] | None = None) -> AsyncIterator[SocketClient]:
    """A connection, from its beginning to its end."""
    opened = SocketClient(url, key, transports)
    await opened.connect()
    try:
        yield opened
    finally:
        await opened.leave()


def is_list_update(name: str, payload: dict[str, Json]) -> bool:
    """Whether an event is about a session that the socket does not follow."""
    return name == "session:updated" and "stream_sequence" not in payload


def kinds(events: list[Event]) -> list[str]:
    """The events' names, patches with their type."""
    return [f"{name} {payload['patch_type']}" if name == "turn:patch" else name for name, payload in events]


def flat(events: list[Event]) -> list[Event]:
    """Events without their batches, as a plain socket gets them."""
    result: list[Event] = []
    for name, payload in events:
        if name == "turn:events":
            result += [(item["type"], item["payload"]) for item in payload["events"]]
        else:
            result.append((name, payload))
    return result
