"""The official AG-UI clients, in one Node process that answers lines of JSON (`clients/driver.mjs`).

A client's own console is recorded in `OfficialClients.console`, and should stay empty.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.asgi_client import DEADLINE_S
from tests.nodejs import NodeDriver, require_package, running_driver

Json = Any
Event = dict[str, Json]
Message = dict[str, Json]
Version = Literal["1", "0"]
"""1.0.0, and the last 0.x, which CopilotKit pins."""
VERSIONS: tuple[Version, ...] = ("1", "0")

CLIENTS = Path(__file__).parent / "clients"


@dataclass
class RunResult:
    """The outcome of `runAgent`, and the state of the client after it."""

    events: list[Event]
    messages: list[Message]
    new_messages: list[Message]
    state: Json
    interrupts: list[Json]
    finished: Event | None
    run_error: Event | None
    failed: str | None
    refused: Json

    @property
    def text(self) -> str:
        """All text received."""
        return "".join(each["delta"] for each in self.events if each["type"] == "TEXT_MESSAGE_CONTENT")

    @property
    def types(self) -> list[str]:
        """The types of all events, in order."""
        return [each["type"] for each in self.events]


def check(ran: RunResult) -> RunResult:
    """The run and all its events were accepted, and the client received its end."""
    assert ran.refused is None, ran.refused
    assert ran.failed is None, ran.failed
    assert ran.events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR"), ran.types
    return ran


class Agent:
    """One `HttpAgent`."""

    def __init__(self, official: "OfficialClients", name: str, version: Version, thread: str) -> None:
        self.official = official
        self.thread = thread
        self.name = name
        self.version = version
        self._event_received: asyncio.Queue[Event] = asyncio.Queue()
        self._events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self._events.append(event)
        self._event_received.put_nowait(event)

    async def say(self, *messages: Message) -> None:
        """Add messages to the client."""
        await self.official.send_command("say", agent=self.name, messages=list(messages))

    async def show(self, *messages: Message) -> None:
        """Replace the client's messages."""
        await self.official.send_command("show", agent=self.name, messages=list(messages))

    def begin(self, **parameters: Json) -> "asyncio.Task[RunResult]":
        """Call `runAgent` and come back at once."""
        self._events = []
        self._event_received = asyncio.Queue()
        return asyncio.create_task(self._run(self._events, parameters))

    async def run(self, **parameters: Json) -> RunResult:
        """Call `runAgent` and wait until it comes back."""
        return await self.begin(**parameters)

    async def send_and_run(self, text: Json, message_id: str | None = None, **parameters: Json) -> RunResult:
        """Say something as a user and run."""
        await self.say(user(text, message_id))
        return await self.run(**parameters)

    async def until(self, kind: str) -> Event:
        """Wait for the next event of that type in the run that has begun."""
        async with asyncio.timeout(DEADLINE_S):
            while (event := await self._event_received.get())["type"] != kind:
                pass
            return event

    async def wait_for_text(self, text: str) -> None:
        """Wait until that text has arrived."""
        said = ""
        while text not in said:
            said += (await self.until("TEXT_MESSAGE_CONTENT"))["delta"]

    async def connect(self) -> Json:
        """Call `connectAgent` and wait until it comes back. Returns the client's messages and state."""
        return await self.official.send_command("connect", agent=self.name)

    async def abort(self) -> None:
        """Do what an application's stop button does."""
        await self.official.send_command("abort", agent=self.name)

    async def _run(self, events: list[Event], parameters: Json) -> RunResult:
        result = await self.official.send_command("run", agent=self.name, parameters=parameters)
        return RunResult(
            events=events,
            messages=result["messages"],
            new_messages=result["newMessages"],
            state=result["state"],
            interrupts=result["interrupts"],
            finished=result["finished"],
            run_error=result["runError"],
            failed=result["failed"],
            refused=result["refused"],
        )


_ids = itertools.count(1)


def user(text: Json, message_id: str | None = None) -> Message:
    return {"id": message_id or f"user-{next(_ids)}", "role": "user", "content": text}


class OfficialClients(NodeDriver):
    """The process. Its clients have names."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._agents: dict[str, Agent] = {}

    async def open(
        self,
        version: Version,
        url: str,
        *,
        thread: str,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        messages: list[Message] | None = None,
        state: Json = None,
        module: str | None = None,
    ) -> Agent:
        """A new `HttpAgent`, as an application makes one; or the `DragomanAgent` of a module."""
        agent = Agent(self, f"agent-{next(self.numbers)}", version, thread)
        self._agents[agent.name] = agent
        sent = {**({} if key is None else {"authorization": f"Bearer {key}"}), **(headers or {})}
        await self.send_command(
            "open",
            agent=agent.name,
            version=version,
            url=url,
            threadId=thread,
            headers=sent,
            messages=messages,
            state=state,
            module=module,
        )
        return agent

    def on_event(self, said: Json) -> None:
        self._agents[said["agent"]].on_event(said["event"])


@asynccontextmanager
async def official_clients(folder: Path = CLIENTS) -> AsyncIterator[OfficialClients]:
    """The process, from its start to its end."""
    require_package(CLIENTS, "ag-ui-1")
    require_package(folder)
    async with running_driver(OfficialClients, folder) as official:
        yield official
