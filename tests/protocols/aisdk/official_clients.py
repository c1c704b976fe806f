"""The official AI SDK clients, in one Node process that answers lines of JSON (`clients/driver.mjs`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.asgi_client import DEADLINE_S
from tests.nodejs import NodeDriver, require_package, running_driver

Json = Any
Message = dict[str, Json]
Part = dict[str, Json]
Version = Literal["5.0", "5", "6.0", "6", "7"]

CLIENTS = Path(__file__).parent / "clients"


@dataclass
class Seen:
    """A client at rest: its messages, and what happened since it was last at rest."""

    messages: list[Message]
    status: str
    error: Json
    requests: list[Json]
    calls: list[str]
    """The tools for which `onToolCall` was called."""
    data: list[Part]
    finished: Json

    @property
    def last(self) -> Message:
        return self.messages[-1]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return "".join(part["text"] for part in self.last["parts"] if part["type"] == "text")

    def part(self, kind: str) -> Part:
        """The last part of a type."""
        return next(part for message in self.messages[::-1] for part in message["parts"][::-1] if part["type"] == kind)

    @property
    def statuses(self) -> list[int]:
        return [each["status"] for each in self.requests]


class OfficialChat:
    """One chat of one client."""

    def __init__(self, official: "OfficialClients", name: str) -> None:
        self._official = official
        self.name = name
        self._changed = asyncio.Event()
        self._text = ""

    def on_text(self, text: str) -> None:
        self._text = text
        self._changed.set()

    async def wait_for_text(self, text: str) -> None:
        """Wait until the last message has that text."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self._text:
                self._changed.clear()
                await self._changed.wait()

    async def do(self, what: str, **command: Json) -> Seen:
        """Do something, and wait until the client is at rest."""
        return Seen(**await self._official.send_command(what, chat=self.name, **command))

    def begin(self, what: str, **command: Json) -> "asyncio.Task[Seen]":
        """Do something without waiting for it."""
        return asyncio.create_task(self.do(what, **command))

    async def send(self, text: str | None = None, message_id: str | None = None) -> Seen:
        """`sendMessage`: a new message, an edit of one, or the request again."""
        message = None if text is None else {"text": text, **({} if message_id is None else {"messageId": message_id})}
        return await self.do("send", message=message)

    async def halt(self) -> bool:
        """Stop the run with `stopChat` of the package."""
        has_stopped: bool = await self._official.send_command("halt", chat=self.name)
        return has_stopped

    async def cut(self, after: int | None) -> None:
        """Break the connection of each response after so many bytes."""
        await self._official.send_command("cut", chat=self.name, after=after)


class OfficialClients(NodeDriver):
    """The process. Its chats have names."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._chats: dict[str, OfficialChat] = {}

    async def open(
        self,
        version: Version,
        url: str,
        key: str,
        *,
        chat: str,
        messages: list[Message] | None = None,
        headers: dict[str, str] | None = None,
        **options: Json,
    ) -> OfficialChat:
        """A new chat, as a page makes one. `url` is that of the server, `chat` the chat's id."""
        opened = OfficialChat(self, f"chat-{next(self.numbers)}")
        self._chats[opened.name] = opened
        await self.send_command(
            "open",
            chat=opened.name,
            version=version,
            api=f"{url}/ai-sdk/{options.pop('agent', 'rehearsal')}",
            chatId=chat,
            headers={"authorization": f"Bearer {key}", **(headers or {})},
            messages=messages,
            **options,
        )
        return opened

    async def check(self, version: Version, messages: list[Message]) -> list[str]:
        """The roles of a history as model messages, after the library has accepted it."""
        roles: list[str] = await self.send_command("check", version=version, messages=messages)
        return roles

    def on_event(self, said: Json) -> None:
        self._chats[said["chat"]].on_text(said["text"])


@asynccontextmanager
async def official_clients() -> AsyncIterator[OfficialClients]:
    """The process, from its start to its end."""
    require_package(CLIENTS, "ai6")
    async with running_driver(OfficialClients, CLIENTS) as official:
        yield official
