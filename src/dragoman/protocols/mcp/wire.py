"""JSON-RPC and MCP on the wire: envelopes, the arguments and the result of a call, capabilities. Pure.

Source: the revisions 2025-06-18, 2025-11-25 and 2026-07-28 of the Model Context Protocol.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.core.principal import Principal
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.json_rpc import RequestId
from dragoman.protocols.kit.pending_calls import PendingKind

NEW_VERSION = "2026-07-28"
OLD_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The versions with `initialize` and sessions, newest first."""
VERSIONS = (NEW_VERSION, *OLD_VERSIONS)

RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022

META = "io.modelcontextprotocol/"
"""Prefix of the protocol's own keys in `_meta`."""
TASKS = "io.modelcontextprotocol/tasks"
"""The extension for tasks."""

Status = Literal["completed", "input_required", "working", "failed", "cancelled"]


class Client(NamedTuple):
    """Who sends a request: the version that it speaks, what it can do, and its session in the old versions."""

    version: str
    has_forms: bool = False
    has_tasks: bool = False
    session: str = ""

    @property
    def is_new(self) -> bool:
        """Whether requests are self-contained, without a session."""
        return self.version == NEW_VERSION


class MethodRequest(NamedTuple):
    """A request of a method.

    Attributes:
        principal: who asks.
        client: with what client.
        agent: the agent of the path, if it has one.
        id: the request's id.
        params: its parameters.
        progress_token: the client's token for progress, if it wants any.
    """

    principal: Principal
    client: Client
    agent: str | None
    id: RequestId
    params: JsonObject
    progress_token: RequestId | None = None


class Message(msgspec.Struct, kw_only=True):
    """A JSON-RPC message: a request, a notification (no id), or the response to a request of ours (no method)."""

    jsonrpc: Literal["2.0"]
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class FileArgument(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file of a message: base64 data or an https URL."""

    mime_type: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.+-]{1,64}/[A-Za-z0-9.+-]{1,64}$")]
    name: str | None = None
    data: str | None = None
    url: str | None = None


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    message: str
    session_id: str = ""
    files: Annotated[tuple[FileArgument, ...], msgspec.Meta(max_length=1000)] = ()
    options: Annotated[dict[str, str], msgspec.Meta(max_length=1000)] = {}


class PendingCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call that waits for an answer."""

    call_id: str
    kind: PendingKind
    name: str
    input: JsonObject
    repeat: bool = False
    """The call may have run already (shared rules, 20)."""


class CallError(msgspec.Struct, kw_only=True):
    """Why a call was refused, or its run failed."""

    code: str
    message: str


class CallUsage(msgspec.Struct, kw_only=True):
    """The tokens that the agent's models used."""

    input_tokens: int = 0
    output_tokens: int = 0


class StructuredResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The `structuredContent` of a call's result. `run_id` is the run that the user's message began."""

    session_id: str
    status: Status
    text: str
    run_id: str | None = None
    pending: tuple[PendingCall, ...] = ()
    data: tuple[JsonObject, ...] = ()
    stop_reason: str | None = None
    error: CallError | None = None
    usage: CallUsage | None = None


def _plain_schema(value: Json) -> Json:
    """A schema without references and nulls, as every host reads it."""
    if isinstance(value, list):
        return [_plain_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _plain_schema(_SCHEMAS[value["$ref"].rpartition("/")[2]])
    if "anyOf" in value:
        kept = [each for each in value["anyOf"] if each != {"type": "null"}]
        if len(kept) == 1:
            return _plain_schema(kept[0])
    return {key: _plain_schema(each) for key, each in value.items() if key not in ("title", "default", "description")}


_SCHEMAS: dict[str, Json] = msgspec.json.schema_components([StructuredResult], ref_template="#/{name}")[1]
OUTPUT_SCHEMA: JsonObject = _plain_schema({"$ref": "#/StructuredResult"})
"""The `outputSchema` of every tool."""


class ElicitResult(msgspec.Struct, kw_only=True):
    """What a user did with a form."""

    action: str
    content: dict[str, Json] | None = None


_MESSAGE = msgspec.json.Decoder(Message)


def decode_message(body: bytes) -> Message:
    """Decode the body of a POST. Raises InvalidJson and InvalidBody."""
    return decode_body(_MESSAGE, body)


def accepts_forms(capabilities: Json) -> bool:
    """Whether a client shows forms to its user: it declares `elicitation`, empty or with `form`."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and (not elicitation or "form" in elicitation)
