"""The tools of the rehearsal agent, and the file in which the slow tool records its starts."""

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Annotated, Protocol
from zoneinfo import ZoneInfo

import msgspec

from dragoman.agents.tool import tool
from dragoman.core.agent import RunnableTool, ToolContext, ToolFailed
from dragoman.core.content import JsonObject

MAX_SLEEP_S = 86_400


class StartLog(Protocol):
    """Counts starts by tag, across server crashes."""

    def append(self, tag: str) -> None:
        """Record a start. It is durable when this returns. Blocks."""

    def count(self, tag: str) -> int:
        """The number of starts recorded with that tag. May block."""


class StartLogFile:
    """A `StartLog` in a file of JSON lines. Thread-safe. A crash while a line is written loses only that line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def append(self, tag: str) -> None:
        """Record a start. It is durable when this returns. Blocks."""
        line = msgspec.json.encode(tag) + b"\n"
        with self._lock:
            is_new = not self._path.exists()
            with self._path.open("a+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a crash truncated the last line
                        line = b"\n" + line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if is_new:  # make the directory entry durable too
                folder = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def count(self, tag: str) -> int:
        """The number of starts recorded with that tag. May block."""
        line = msgspec.json.encode(tag)
        with self._lock:
            try:
                return self._path.read_bytes().split(b"\n").count(line)
            except FileNotFoundError:
                return 0


async def add(a: int, b: int) -> str:
    """Add two integers."""
    return str(a + b)


async def lookup(q: str) -> str:
    """Look something up."""
    return f"looked up {q}"


async def stamp(text: str) -> str:
    """Stamp a text."""
    return f"stamped {text}"


async def whisper(text: str) -> str:
    """Whisper a text."""
    return f"whispered {text}"


async def boom() -> str:
    """Fail."""
    raise RuntimeError("boom")


async def card(title: str) -> JsonObject:
    """Show a card."""
    ui = {"target": "inline", "resourceHTML": f"<h1>{escape(title)}</h1>", "height": 120}
    return {"title": title, "_meta": {"ui": ui}}


async def highlight(city: str) -> JsonObject:
    """Highlight a city on the map."""
    bridge = {"action": "map.highlight", "payload": {"cityIds": [city]}}
    return {"highlighted": city, "_meta": {"bridge": bridge}}


async def calendar_write(context: ToolContext, title: str, starts_at: datetime, event_timezone: str) -> JsonObject:
    """Write a calendar entry. Its start is the local time in the event's zone."""
    zone = ZoneInfo(context.time_zone)
    local = starts_at.replace(tzinfo=zone) if starts_at.tzinfo is None else starts_at.astimezone(zone)
    return {"title": title, "starts_at": local.isoformat(timespec="seconds"), "event_timezone": event_timezone}


def tools(starts: StartLog, now: Callable[[], datetime], *, are_exposed: bool) -> tuple[RunnableTool, ...]:
    """The tools in the order of their declaration. `whisper` and `calendar_write` are always hidden."""

    async def clock(context: ToolContext, event_timezone: str | None = None, timezone: str | None = None) -> str:
        """Tell the time in an IANA time zone, or in the user's."""
        name = event_timezone or timezone or context.time_zone
        try:
            zone = ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:  # unknown, not a relative path, or a folder of time zones
            raise ToolFailed(f"unknown time zone {name!r}; expected an IANA name such as Europe/Berlin") from error
        return now().astimezone(zone).isoformat(timespec="seconds")

    async def slow(seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SLEEP_S)], tag: str = "") -> str:
        """Sleep for some seconds."""
        await asyncio.to_thread(starts.append, tag)
        await asyncio.sleep(seconds)
        return f"done {tag}".rstrip()

    # Every tool but `slow` is free of side effects and may be repeated after a crash.
    return (
        tool(exposed=are_exposed, idempotent=True, reads_only=True)(add),
        tool(exposed=are_exposed, idempotent=True, reads_only=True)(lookup),
        tool(exposed=are_exposed, idempotent=True, needs_approval=True)(stamp),
        tool(exposed=are_exposed, idempotent=True, reads_only=True)(clock),
        tool(exposed=are_exposed, timeout_s=MAX_SLEEP_S + 60)(slow),
        tool(exposed=are_exposed, idempotent=True)(boom),
        tool(exposed=are_exposed, idempotent=True)(card),
        tool(exposed=are_exposed, idempotent=True)(highlight),
        tool(exposed=False, idempotent=True)(whisper),
        tool(exposed=False, idempotent=True)(calendar_write),
    )
