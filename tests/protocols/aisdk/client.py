"""A plain client of the AI SDK protocol for tests: what leaves the server, to the byte, with each stream checked."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.asgi_client import Stream
from tests.protocols.aap.client import Connection

Json = Any
Chunk = dict[str, Json]
Headers = dict[str, str]


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.headers.get("x-dragoman-error", "")

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks of a complete stream."""
        assert self.status == 200, self
        assert self.headers["content-type"].startswith("text/event-stream")
        return parse(self.body)[1]

    @property
    def text(self) -> str:
        return "".join(chunk["delta"] for chunk in self.chunks if chunk["type"] == "text-delta")

    @property
    def types(self) -> list[str]:
        return [chunk["type"] for chunk in self.chunks]


def parse(raw: bytes, *, is_complete: bool = True) -> tuple[list[int], list[Chunk]]:
    """The indexes and the chunks of a stream. Comments are left out."""
    assert b"\r" not in raw
    blocks = [block for block in raw.decode().split("\n\n")[:-1] if not block.startswith(":")]
    if is_complete:
        assert blocks.pop() == "data: [DONE]", raw[-200:]
    indexes, chunks = [], []
    for block in blocks:
        own, data = block.split("\n")
        indexes.append(int(own.removeprefix("id: ")))
        chunks.append(json.loads(data.removeprefix("data: ")))
        assert None not in chunks[-1].values(), "clients refuse null"
    return indexes, chunks


def user(text: str, message_id: str) -> Json:
    """A message of the user."""
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


class Pages:
    """The protocol as the holder of one key sees it."""

    def __init__(self, connection: Connection, key: str | None, agent: str = "rehearsal") -> None:
        self.connection = connection
        self._key = key
        self._agent = agent

    async def open(self, method: str, path: str, body: Json = None, headers: Headers | None = None) -> Stream:
        """Send a request; `path` follows the agent's name."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = {"content-type": "application/json"} if content else {}
        if self._key is not None:
            lines["authorization"] = f"Bearer {self._key}"
        return await self.connection.open(
            method, f"/ai-sdk/{self._agent}{path}", headers=list((lines | (headers or {})).items()), body=content
        )

    async def request(self, method: str, path: str, body: Json = None, headers: Headers | None = None) -> Reply:
        """Send a request, and read the whole answer."""
        stream = await self.open(method, path, body, headers)
        return Reply(stream.status, stream.headers, await stream.read())

    async def post(self, chat: str | None, *messages: Json, headers: Headers | None = None, **members: Json) -> Reply:
        """Send messages into a chat, and read the whole answer."""
        body = {"messages": list(messages), **members, **({} if chat is None else {"id": chat})}
        return await self.request("POST", "", body, headers)

    async def history(self, chat: str, query: str = "", headers: Headers | None = None) -> list[Json]:
        """The messages of a chat."""
        reply = await self.request("GET", f"/{quote(chat, safe='')}/messages{query}", headers=headers)
        assert reply.status == 200, reply
        messages: list[Json] = reply.json
        return messages
