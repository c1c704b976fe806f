"""AG-UI's requests on the wire: what a client asks for, read as tolerantly as the protocol demands. Pure.

Unknown is not malformed: members, parts and roles that this version does not know are dropped and named in `dropped`,
for the log; snake_case spellings and the retired part `binary` are read as what they stand for. What is known and of
the wrong type is refused.
Source: specification of the face, B.2, B.3; the AG-UI 1.0 schema.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from dragoman.core.content import Json, JsonObject, is_too_deep
from dragoman.protocols.agui.content import Message, Shape
from dragoman.protocols.kit.faults import placed

MAJOR = 1
ID_LIMIT = 256
"""Characters of a thread's or a run's id."""

ROLES = frozenset({"user", "assistant", "tool", "system", "developer", "reasoning", "activity"})
PARTS = frozenset({"text", "image", "audio", "video", "document"})
SOURCES = frozenset({"data", "url", "file"})


class Malformed(Exception):
    """A body that is no JSON."""


class Misshapen(Exception):
    """A body that is JSON, but not of the expected shape. `path` names the field at fault."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class UnsupportedVersion(Exception):
    """A request in another major version of the protocol."""

    def __init__(self, version: str) -> None:
        super().__init__(f"protocol version {MAJOR}.x is spoken here, not {version[:20]!r}")


class Tool(Shape, frozen=True, kw_only=True):
    """A tool of the client's."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None


class ContextEntry(Shape, frozen=True, kw_only=True):
    """Something that the client lets the agent know."""

    description: str
    value: str


class ResumeEntry(Shape, frozen=True, kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunInput(Shape, frozen=True, kw_only=True):
    """The body of a run request. Without `protocol_version` it comes from a 0.x client."""

    thread_id: str
    run_id: str
    messages: tuple[Message, ...]
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Json | msgspec.UnsetType = msgspec.UNSET
    tools: tuple[Tool, ...] = ()
    context: tuple[ContextEntry, ...] = ()
    forwarded_props: Json = None
    resume: tuple[ResumeEntry, ...] = ()


class StopInput(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a stop request."""

    run_id: str | None = None


class Decoded(NamedTuple):
    """A request, and what of it was not understood."""

    run: RunInput
    dropped: tuple[str, ...]


def decode_run(body: bytes) -> Decoded:
    """Read the body of a run request.

    Raises:
        Malformed, Misshapen, UnsupportedVersion: it cannot be served.
    """
    run, dropped = _as_written(body) or _read(body)
    for name, value in (("threadId", run.thread_id), ("runId", run.run_id)):
        if not 1 <= len(value) <= ID_LIMIT:
            raise Misshapen(f"1 to {ID_LIMIT} characters were expected", name)
    _check_version(run.protocol_version)
    for name, each in (("state", run.state), ("forwardedProps", run.forwarded_props)):
        if is_too_deep(each):
            raise Misshapen("too many levels of lists and objects", name)
    return Decoded(run, dropped)


def decode_stop(body: bytes) -> StopInput:
    """Read the body of a stop request; an empty one names no run. Raises Malformed or Misshapen."""
    return _convert(_json(body), StopInput) if body.strip() else StopInput()


def _check_version(version: str | None) -> None:
    """Refuse other majors. What is no version at all is treated as a newer minor one, as the protocol wants it."""
    found = re.fullmatch(r"([0-9]{1,9})\.[0-9]{1,9}", version or "")
    if version is not None and found is not None and int(found[1]) != MAJOR:
        raise UnsupportedVersion(version)


# --- what is understood -----------------------------------------------------------------------------------------------


_RUN = msgspec.json.Decoder(RunInput)


def _as_written(body: bytes) -> Decoded | None:
    """A request that needs no reading of ours, as most do not; None where it may.

    The types refuse all that `_Reading` would change, but for two things: a null as the state, and names in snake_case,
    which they would take for unknown ones.
    """
    if b"_" in body or b"\\u005" in body:
        return None
    try:
        run = _RUN.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if run.state is None else Decoded(run, ())


def _read(body: bytes) -> Decoded:
    """Any request. Raises Malformed, Misshapen."""
    raw = _json(body)
    if not isinstance(raw, dict):
        raise Misshapen("an object was expected", "")
    reading = _Reading()
    run = _convert(reading.run(raw), RunInput)
    return Decoded(run, tuple(reading.dropped))


class _Reading:
    """Brings a request into the canonical spelling and leaves out what is not known."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def run(self, raw: JsonObject) -> JsonObject:
        run = _named(raw)
        _each(run, "messages", self._message)
        for name in ("tools", "context", "resume"):
            _each(run, name, _named)
        return run

    def _message(self, raw: JsonObject) -> JsonObject | None:
        message = _named(raw)
        role = message.get("role")
        if isinstance(role, str) and role not in ROLES:
            self.dropped.append(f"role {role[:40]}")
            return None
        if role != "activity":  # whose content is its own affair
            _each(message, "content", self._part)
        _each(message, "toolCalls", _call)
        return message

    def _part(self, raw: JsonObject) -> JsonObject | None:
        part = _named(raw)
        if part.get("type") == "binary":
            part = _media(part)
        kind = part.get("type")
        if isinstance(kind, str) and kind not in PARTS:
            self.dropped.append(f"part {kind[:40]}")
            return None
        source = part.get("source")
        if isinstance(source, dict):
            part["source"] = source = _named(source)
            if isinstance(source.get("type"), str) and source["type"] not in SOURCES:
                self.dropped.append(f"source {source['type'][:40]}")
                return None
        return part


def _media(part: JsonObject) -> JsonObject:
    """A part of the retired type `binary` as the part that stands for it now."""
    mime = part.get("mimeType", "application/octet-stream")
    if not isinstance(mime, str):
        raise Misshapen("a text was expected", "messages[].content[].mimeType")
    family = mime.partition("/")[0].lower()
    kind = family if family in ("image", "audio", "video") else "document"
    for name, source in (("data", "data"), ("url", "url"), ("id", "file")):
        if name in part:
            return {"type": kind, "source": {"type": source, "value": part[name], "mimeType": mime}}
    raise Misshapen("id, url or data was expected", "messages[].content[]")


def _call(raw: JsonObject) -> JsonObject:
    call = {"type": "function", **_named(raw)}
    if isinstance(call.get("function"), dict):
        call["function"] = _named(call["function"])
    return call


def _each(holder: JsonObject, name: str, read: Callable[[JsonObject], JsonObject | None]) -> None:
    """Read the objects of a list; what is no object stays, to be refused with its place."""
    members = holder.get(name)
    if isinstance(members, list):
        read_all = (read(each) if isinstance(each, dict) else each for each in members)
        holder[name] = [each for each in read_all if each is not None]


def _named(raw: Mapping[str, Json]) -> JsonObject:
    """An object of the protocol's with its names in camelCase, which wins over snake_case; a null reads as absent."""
    found: JsonObject = {}
    for name, value in raw.items():
        if value is None:
            continue
        if "_" in name:
            found.setdefault(_camel(name), value)
        else:
            found[name] = value
    return found


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(each[:1].upper() + each[1:] for each in rest)


# --- JSON -------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


def _json(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("the body is not JSON in UTF-8") from error


def _convert(value: Json, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Misshapen(*placed(str(error))) from error
