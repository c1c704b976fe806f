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
from dragoman.protocols.agui.content import Message, WireStruct
from dragoman.protocols.kit.faults import parse_validation_error

MAJOR_VERSION = 1
ID_LIMIT = 256
"""Characters of a thread's or a run's id."""

ROLES = frozenset({"user", "assistant", "tool", "system", "developer", "reasoning", "activity"})
PARTS = frozenset({"text", "image", "audio", "video", "document"})
SOURCES = frozenset({"data", "url", "file"})


class InvalidJson(Exception):
    """A body that is no JSON."""


class InvalidBody(Exception):
    """A body that is JSON, but not of the expected shape. `path` names the field at fault."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class UnsupportedVersion(Exception):
    """A request in another major version of the protocol."""

    def __init__(self, version: str) -> None:
        super().__init__(f"protocol version {MAJOR_VERSION}.x is spoken here, not {version[:20]!r}")


class Tool(WireStruct, frozen=True, kw_only=True):
    """A tool of the client's."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None


class ContextEntry(WireStruct, frozen=True, kw_only=True):
    """Something that the client lets the agent know."""

    description: str
    value: str


class ResumeEntry(WireStruct, frozen=True, kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunInput(WireStruct, frozen=True, kw_only=True):
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


class StopInput(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a stop request."""

    run_id: str | None = None


class DecodedRun(NamedTuple):
    """A request, and what of it was not understood."""

    run: RunInput
    dropped: tuple[str, ...]


def decode_run(body: bytes) -> DecodedRun:
    """Read the body of a run request.

    Raises:
        Malformed, Misshapen, UnsupportedVersion: it cannot be served.
    """
    run, dropped = _decode_canonical(body) or _decode_tolerant(body)
    for name, value in (("threadId", run.thread_id), ("runId", run.run_id)):
        if not 1 <= len(value) <= ID_LIMIT:
            raise InvalidBody(f"1 to {ID_LIMIT} characters were expected", name)
    _check_version(run.protocol_version)
    for name, each in (("state", run.state), ("forwardedProps", run.forwarded_props)):
        if is_too_deep(each):
            raise InvalidBody("too many levels of lists and objects", name)
    return DecodedRun(run, dropped)


def decode_stop(body: bytes) -> StopInput:
    """Read the body of a stop request; an empty one names no run. Raises Malformed or Misshapen."""
    return _convert(_json(body), StopInput) if body.strip() else StopInput()


def _check_version(version: str | None) -> None:
    """Refuse other majors. What is no version at all is treated as a newer minor one, as the protocol wants it."""
    found = re.fullmatch(r"([0-9]{1,9})\.[0-9]{1,9}", version or "")
    if version is not None and found is not None and int(found[1]) != MAJOR_VERSION:
        raise UnsupportedVersion(version)


# --- what is understood -----------------------------------------------------------------------------------------------


_RUN = msgspec.json.Decoder(RunInput)


def _decode_canonical(body: bytes) -> DecodedRun | None:
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
    return None if run.state is None else DecodedRun(run, ())


def _decode_tolerant(body: bytes) -> DecodedRun:
    """Any request. Raises Malformed, Misshapen."""
    raw = _json(body)
    if not isinstance(raw, dict):
        raise InvalidBody("an object was expected", "")
    reading = _Normalizer()
    run = _convert(reading.run(raw), RunInput)
    return DecodedRun(run, tuple(reading.dropped))


class _Normalizer:
    """Brings a request into the canonical spelling and leaves out what is not known."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def run(self, raw: JsonObject) -> JsonObject:
        run = _camel_case_names(raw)
        _map_items(run, "messages", self._message)
        for name in ("tools", "context", "resume"):
            _map_items(run, name, _camel_case_names)
        return run

    def _message(self, raw: JsonObject) -> JsonObject | None:
        message = _camel_case_names(raw)
        role = message.get("role")
        if isinstance(role, str) and role not in ROLES:
            self.dropped.append(f"role {role[:40]}")
            return None
        if role != "activity":  # whose content is its own affair
            _map_items(message, "content", self._part)
        _map_items(message, "toolCalls", _normalize_call)
        return message

    def _part(self, raw: JsonObject) -> JsonObject | None:
        part = _camel_case_names(raw)
        if part.get("type") == "binary":
            part = _upgrade_binary_part(part)
        kind = part.get("type")
        if isinstance(kind, str) and kind not in PARTS:
            self.dropped.append(f"part {kind[:40]}")
            return None
        source = part.get("source")
        if isinstance(source, dict):
            part["source"] = source = _camel_case_names(source)
            if isinstance(source.get("type"), str) and source["type"] not in SOURCES:
                self.dropped.append(f"source {source['type'][:40]}")
                return None
        return part


def _upgrade_binary_part(part: JsonObject) -> JsonObject:
    """A part of the retired type `binary` as the part that stands for it now."""
    mime = part.get("mimeType", "application/octet-stream")
    if not isinstance(mime, str):
        raise InvalidBody("a text was expected", "messages[].content[].mimeType")
    family = mime.partition("/")[0].lower()
    kind = family if family in ("image", "audio", "video") else "document"
    for name, source in (("data", "data"), ("url", "url"), ("id", "file")):
        if name in part:
            return {"type": kind, "source": {"type": source, "value": part[name], "mimeType": mime}}
    raise InvalidBody("id, url or data was expected", "messages[].content[]")


def _normalize_call(raw: JsonObject) -> JsonObject:
    call = {"type": "function", **_camel_case_names(raw)}
    if isinstance(call.get("function"), dict):
        call["function"] = _camel_case_names(call["function"])
    return call


def _map_items(holder: JsonObject, name: str, read: Callable[[JsonObject], JsonObject | None]) -> None:
    """Read the objects of a list; what is no object stays, to be refused with its place."""
    members = holder.get(name)
    if isinstance(members, list):
        read_all = (read(each) if isinstance(each, dict) else each for each in members)
        holder[name] = [each for each in read_all if each is not None]


def _camel_case_names(raw: Mapping[str, Json]) -> JsonObject:
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
        raise InvalidJson("the body is not JSON in UTF-8") from error


def _convert(value: Json, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(*parse_validation_error(str(error))) from error
