"""The tools of the rehearsal agent, and the table in which the slow one notes that it was started."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Annotated, Generic, Protocol, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from dragoman.core.agent import RunnableTool, ToolContext, ToolFailed
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ServerTool, ToolPolicy, ToolSpec

MAX_SLEEP_S = 86_400


class StartLog(Protocol):
    """Counts how often something was started, also by servers that died since."""

    def append(self, tag: str) -> None:
        """Note a start. It is durable on return; blocks meanwhile."""

    def count(self, tag: str) -> int:
        """How many were noted with that tag. May block."""


class StartLogFile:
    """`Starts` in a file of JSON lines. May be called from any thread, and a crash in mid-line loses that line only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def append(self, tag: str) -> None:
        """See `Starts.append`."""
        line = msgspec.json.encode(tag) + b"\n"
        with self._lock:
            is_new = not self._path.exists()
            with self._path.open("a+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a crash cut the last line
                        line = b"\n" + line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                self._sync_folder()

    def count(self, tag: str) -> int:
        """See `Starts.count`."""
        line = msgspec.json.encode(tag)
        with self._lock:
            try:
                return self._path.read_bytes().split(b"\n").count(line)
            except FileNotFoundError:
                return 0

    def _sync_folder(self) -> None:
        """Make the file's name as durable as what stands in it."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# --- what the tools take ----------------------------------------------------------------------------------------------


class _AddArguments(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: int


class _LookupArguments(msgspec.Struct, forbid_unknown_fields=True):
    q: str


class _TextArguments(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class _ClockArguments(msgspec.Struct, forbid_unknown_fields=True):
    timezone: str | None = None


class _SlowArguments(msgspec.Struct, forbid_unknown_fields=True):
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SLEEP_S)]
    tag: str = ""


class _NoArguments(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _CardArguments(msgspec.Struct, forbid_unknown_fields=True):
    title: str


class _HighlightArguments(msgspec.Struct, forbid_unknown_fields=True):
    city: str


Arguments = TypeVar("Arguments", bound=msgspec.Struct)


class _Tool(Generic[Arguments]):
    """A tool that is a function of its arguments, as a struct."""

    def __init__(
        self,
        name: str,
        description: str,
        arguments_type: type[Arguments],
        function: Callable[[Arguments, ToolContext], Awaitable[Json]],
        policy: ToolPolicy,
    ) -> None:
        spec = ToolSpec(name=name, description=description, parameters=_schema(arguments_type))
        self.declaration = ServerTool(spec=spec, policy=policy)
        self._arguments_type = arguments_type
        self._function = function

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """See `RunnableTool.run`."""
        try:
            taken = msgspec.convert(arguments, self._arguments_type)
        except msgspec.ValidationError as error:
            raise ToolFailed(str(error)) from error
        return await self._function(taken, context)


def _schema(arguments_type: type[msgspec.Struct]) -> JsonObject:
    """The JSON Schema of a tool's arguments, without references and without a title."""
    (schema,) = msgspec.json.schema_components([arguments_type])[1].values()
    return {name: value for name, value in schema.items() if name != "title"}


async def _add(arguments: _AddArguments, context: ToolContext) -> str:
    return str(arguments.a + arguments.b)


async def _lookup(arguments: _LookupArguments, context: ToolContext) -> str:
    return f"looked up {arguments.q}"


async def _stamp(arguments: _TextArguments, context: ToolContext) -> str:
    return f"stamped {arguments.text}"


async def _whisper(arguments: _TextArguments, context: ToolContext) -> str:
    return f"whispered {arguments.text}"


async def _boom(arguments: _NoArguments, context: ToolContext) -> str:
    raise RuntimeError("boom")


async def _card(arguments: _CardArguments, context: ToolContext) -> JsonObject:
    ui = {"target": "inline", "resourceHTML": f"<h1>{escape(arguments.title)}</h1>", "height": 120}
    return {"title": arguments.title, "_meta": {"ui": ui}}


async def _highlight(arguments: _HighlightArguments, context: ToolContext) -> JsonObject:
    bridge = {"action": "map.highlight", "payload": {"cityIds": [arguments.city]}}
    return {"highlighted": arguments.city, "_meta": {"bridge": bridge}}


def tools(starts: StartLog, now: Callable[[], datetime], *, are_exposed: bool) -> tuple[RunnableTool, ...]:
    """The tools, in the order in which they are declared. `whisper` is hidden in any case."""

    async def clock(arguments: _ClockArguments, context: ToolContext) -> str:
        name = arguments.timezone or context.time_zone
        try:
            zone = ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:  # unknown, no such path, the name of a folder of zones
            raise ToolFailed(f"there is no time zone {name!r}: an IANA name such as Europe/Berlin is needed") from error
        return now().astimezone(zone).isoformat(timespec="seconds")

    async def slow(arguments: _SlowArguments, context: ToolContext) -> str:
        await asyncio.to_thread(starts.append, arguments.tag)
        await asyncio.sleep(arguments.seconds)
        return f"done {arguments.tag}".rstrip()

    # All but the slow one have no effects, so that they may run again after a crash.
    shown = ToolPolicy(exposed=are_exposed, on_restart="repeat")
    looks = ToolPolicy(exposed=are_exposed, on_restart="repeat", reads_only=True)
    asking = ToolPolicy(exposed=are_exposed, on_restart="repeat", needs_approval=True)
    once = ToolPolicy(exposed=are_exposed, on_restart="fail", timeout_s=MAX_SLEEP_S + 60)
    hidden = ToolPolicy(exposed=False, on_restart="repeat")
    return (
        _Tool("add", "Add two integers.", _AddArguments, _add, looks),
        _Tool("lookup", "Look something up.", _LookupArguments, _lookup, looks),
        _Tool("stamp", "Stamp a text.", _TextArguments, _stamp, asking),
        _Tool("clock", "Tell the time in an IANA time zone, or in the user's.", _ClockArguments, clock, looks),
        _Tool("slow", "Sleep for some seconds.", _SlowArguments, slow, once),
        _Tool("boom", "Fail.", _NoArguments, _boom, shown),
        _Tool("card", "Show a card.", _CardArguments, _card, shown),
        _Tool("highlight", "Highlight a city on the map.", _HighlightArguments, _highlight, shown),
        _Tool("whisper", "Whisper a text.", _TextArguments, _whisper, hidden),
    )
