"""The requests of the standard endpoint, decoded as tolerantly as the protocol demands. Pure.

Unknown members, parts and roles are dropped, and named in `dropped` for the log. snake_case spellings and the retired
part `binary` are converted. A known member of the wrong type is refused.
Source: specification of AG-UI, B.2, B.3; the AG-UI 1.0 schema.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.agui.content import Message, WireStruct
from dragoman.protocols.kit.decoding import (
    check_depth,
    check_number_of_values,
    convert_value,
    decode_json,
    decode_json_object,
)
from dragoman.protocols.kit.errors import InvalidBody, RequestError

MAJOR_VERSION = 1
_VERSION = re.compile(r"([0-9]{1,9})\.[0-9]{1,9}")
ID_LIMIT = 256
"""Characters of a thread id or run id."""
MESSAGE_LIMIT = 10_000
"""Of one request. Clients resend whole threads."""

ROLES = frozenset({"user", "assistant", "tool", "system", "developer", "reasoning", "activity"})
PARTS = frozenset({"text", "image", "audio", "video", "document"})
SOURCES = frozenset({"data", "url", "file"})


class UnsupportedVersion(RequestError):
    """The request is in another major version of the protocol."""


class Tool(WireStruct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None


class ContextEntry(WireStruct, frozen=True, kw_only=True):
    """Context from the application for the agent."""

    description: str
    value: str


class ResumeEntry(WireStruct, frozen=True, kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunInput(WireStruct, frozen=True, kw_only=True):
    """The body of a run request. Clients of version 0.x send no `protocol_version`."""

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
    """A request, and what was dropped from it."""

    run: RunInput
    dropped: tuple[str, ...]


def decode_run(body: bytes) -> DecodedRun:
    """Decode the body of a run request. Raises InvalidJson, InvalidBody, LimitExceeded or UnsupportedVersion."""
    check_number_of_values(body)
    run, dropped = decode_canonical(body) or decode_tolerant(body)
    for name, value in (("threadId", run.thread_id), ("runId", run.run_id)):
        if not 1 <= len(value) <= ID_LIMIT:
            raise InvalidBody(f"expected 1 to {ID_LIMIT} characters", name)
    if len(run.messages) > MESSAGE_LIMIT:
        raise InvalidBody(f"expected at most {MESSAGE_LIMIT} messages, got {len(run.messages)}", "messages")
    _check_version(run.protocol_version)
    for name, each in (("state", run.state), ("forwardedProps", run.forwarded_props)):
        check_depth(each, name)
    return DecodedRun(run, dropped)


def decode_stop(body: bytes) -> StopInput:
    """Decode the body of a stop request; an empty body names no run. Raises InvalidJson or InvalidBody."""
    return convert_value(decode_json(body), StopInput) if body.strip() else StopInput()


def _check_version(version: str | None) -> None:
    """Refuse other major versions. Text that is not a version counts as a newer minor one, as the protocol demands."""
    if version is None:
        return
    match = _VERSION.fullmatch(version)
    if match is not None and int(match[1]) != MAJOR_VERSION:
        raise UnsupportedVersion(f"this server speaks protocol version {MAJOR_VERSION}.x, not {version[:20]!r}")


# --- normalizing ------------------------------------------------------------------------------------------------------


_RUN = msgspec.json.Decoder(RunInput)
_SNAKE_CASE_NAME = re.compile(rb'_(?:[^"\\_]++|\\.)*+"\s*:')
"""An underscore in a name, as opposed to one in a text."""
_MAX_SEARCHED_BYTES = 128 * 1024
"""Searching for names costs up to 0.2 µs per byte. In longer bodies any underscore counts as one in a name."""


def decode_canonical(body: bytes) -> DecodedRun | None:
    """Decode a request that is spelled canonically, as most are; None if it may not be.

    The types refuse everything that `_Normalizer` would change, except a null state, and names in snake_case, which
    they would ignore as unknown.
    """
    if b"\\u005" in body:
        return None
    if b"_" in body and (len(body) > _MAX_SEARCHED_BYTES or _SNAKE_CASE_NAME.search(body) is not None):
        return None
    try:
        run = _RUN.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if run.state is None else DecodedRun(run, ())


def decode_tolerant(body: bytes) -> DecodedRun:
    """Decode any request. Raises InvalidJson or InvalidBody."""
    normalizer = _Normalizer()
    run = convert_value(normalizer.run(decode_json_object(body)), RunInput)
    return DecodedRun(run, tuple(normalizer.dropped))


class _Normalizer:
    """Rewrites a request in the canonical spelling, without what is not known."""

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
        if role != "activity":  # an activity's content is opaque
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
        if kind != "text" and isinstance(source, dict):  # of a text it is an unknown member
            part["source"] = source = _camel_case_names(source)
            if isinstance(source.get("type"), str) and source["type"] not in SOURCES:
                self.dropped.append(f"source {source['type'][:40]}")
                return None
        return part


def _upgrade_binary_part(part: JsonObject) -> JsonObject:
    """The part that replaces one of the retired type `binary`."""
    mime = part.get("mimeType", "application/octet-stream")
    if not isinstance(mime, str):
        raise InvalidBody("expected a string", "messages[].content[].mimeType")
    family = mime.partition("/")[0].lower()
    kind = family if family in ("image", "audio", "video") else "document"
    for name, source in (("data", "data"), ("url", "url"), ("id", "file")):
        if name in part:
            return {"type": kind, "source": {"type": source, "value": part[name], "mimeType": mime}}
    raise InvalidBody("expected id, url or data", "messages[].content[]")


def _normalize_call(raw: JsonObject) -> JsonObject:
    call = {"type": "function", **_camel_case_names(raw)}
    if isinstance(call.get("function"), dict):
        call["function"] = _camel_case_names(call["function"])
    return call


def _map_items(holder: JsonObject, name: str, normalize: Callable[[JsonObject], JsonObject | None]) -> None:
    """Normalize the objects of a list. Other items stay, so that decoding refuses them with their place."""
    items = holder.get(name)
    if isinstance(items, list):
        normalized = (normalize(each) if isinstance(each, dict) else each for each in items)
        holder[name] = [each for each in normalized if each is not None]


def _camel_case_names(raw: Mapping[str, Json]) -> JsonObject:
    """An object with its names in camelCase, which wins over snake_case, and without nulls."""
    present = {name: value for name, value in raw.items() if value is not None}
    renamed = {camel_case(name): value for name, value in present.items() if "_" in name}
    return renamed | {name: value for name, value in present.items() if "_" not in name}


def camel_case(name: str) -> str:
    """A snake_case name in camelCase."""
    head, *rest = name.split("_")
    return head + "".join(each[:1].upper() + each[1:] for each in rest)
