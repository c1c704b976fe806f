"""A2A 1.0 on the wire: requests, tasks and what streams consist of, and JSON-RPC's envelopes. Pure.

Members that are null, or unknown, count as absent. Version 0.3 has other names for the same (`versions.py`).
Source: the A2A specification 1.0 and its `a2a.proto`.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.kit.decoding import check_depth, convert_value, decode_body, without_nulls
from dragoman.protocols.kit.errors import InvalidBody, parse_validation_error
from dragoman.protocols.kit.json_rpc import RequestId
from dragoman.protocols.kit.pending_calls import PendingKind

T = TypeVar("T")
State = Literal[
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]
OPEN_STATES: frozenset[State] = frozenset({"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"})
"""States in which the agent has something to do; streams end in any other."""
ANSWERS = "urn:dragoman:a2a:answers:1"
"""The extension by which calls that wait are shown and answered, as data parts."""
MAX_PAGE_SIZE = 100

Name = Annotated[str, msgspec.Meta(max_length=255)]
Length = Annotated[int, msgspec.Meta(ge=0)]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of everything with camelCase names. A member with its default is not written."""


# --- content ----------------------------------------------------------------------------------------------------------


class Part(_Wire, frozen=True, kw_only=True):
    """A part of a message or an artifact: exactly one of `text`, `raw` (base64), `url` and `data`."""

    text: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    data: Json = UNSET
    media_type: str = ""
    filename: str = ""
    metadata: JsonObject = {}


class Message(_Wire, frozen=True, kw_only=True):
    """A message of the user or the agent."""

    message_id: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    role: Literal["ROLE_USER", "ROLE_AGENT"]
    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1, max_length=1000)]
    context_id: Name = ""
    task_id: Name = ""
    reference_task_ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()
    extensions: tuple[str, ...] = ()
    metadata: JsonObject = {}


class Artifact(_Wire, frozen=True, kw_only=True):
    """What an agent has said in one step."""

    artifact_id: str
    name: str
    parts: tuple[Part, ...]
    metadata: JsonObject = {}


class TaskStatus(_Wire, frozen=True, kw_only=True):
    """The state of a task. The message says what is asked, or why it failed."""

    state: State
    timestamp: str
    message: Message | UnsetType = UNSET


class Task(_Wire, frozen=True, kw_only=True):
    """What a user's message began."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: JsonObject = {}


class StatusUpdate(_Wire, frozen=True, kw_only=True):
    """A task has another state."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: JsonObject = {}


class ArtifactUpdate(_Wire, frozen=True, kw_only=True):
    """More of an artifact. It is appended, or begins the artifact."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool
    last_chunk: bool


class SendMessageResponse(_Wire, frozen=True, kw_only=True):
    """The answer to a message."""

    task: Task


class TaskPage(_Wire, frozen=True, kw_only=True):
    """A page of tasks, newest status first."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class PendingCall(_Wire, frozen=True, kw_only=True):
    """A call that waits for somebody."""

    call_id: str
    kind: PendingKind
    name: str
    input: JsonObject
    repeat: bool = False
    """The call may have run already (shared rules, 20)."""


# --- requests ---------------------------------------------------------------------------------------------------------


class Configuration(_Wire, frozen=True, kw_only=True):
    """How a message is answered."""

    return_immediately: bool = False
    history_length: Length | None = None
    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: Json = UNSET


class SendMessageRequest(_Wire, frozen=True, kw_only=True):
    """A message to an agent."""

    message: Message
    configuration: Configuration = Configuration()
    metadata: JsonObject = {}
    tenant: str = ""


class TaskRequest(_Wire, frozen=True, kw_only=True):
    """Names a task: to get it, cancel it, or subscribe to it."""

    id: str
    history_length: Length | None = None
    tenant: str = ""


class ListTasksRequest(_Wire, frozen=True, kw_only=True):
    """Which tasks to list."""

    context_id: str = ""
    status: State | Literal["", "TASK_STATE_UNSPECIFIED"] = ""
    status_timestamp_after: datetime | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 50
    page_token: str = ""
    history_length: Length | None = None
    include_artifacts: bool = False
    tenant: str = ""


class Answer(_Wire, frozen=True, kw_only=True):
    """The answer to a call that waits (shared rules, 22)."""

    call_id: str
    granted: bool | None = None
    reason: str | None = None
    result: Json = UNSET
    selections: Json = None
    custom: Json = None


class Answers(_Wire, frozen=True, kw_only=True):
    """The value of a data part that answers."""

    answers: Annotated[tuple[Answer, ...], msgspec.Meta(min_length=1, max_length=1000)]


def convert_request(value: Json, kind: type[T], *, is_query: bool = False) -> T:
    """Convert the parameters of a method. Those of a query are all strings. Raises InvalidBody."""
    check_depth(value)
    value = without_nulls(value, opaque=("data", "metadata"))
    if not is_query:
        return convert_value(value, kind)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidBody(*parse_validation_error(str(error))) from error


# --- envelopes --------------------------------------------------------------------------------------------------------


class Request(msgspec.Struct, kw_only=True):
    """A JSON-RPC request. Without an id it is a notification, which is not answered."""

    jsonrpc: Literal["2.0"]
    method: str
    id: RequestId | UnsetType | None = UNSET
    params: Any = UNSET


class HttpError(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why a request over HTTP+JSON failed."""

    code: int
    status: str
    message: str
    details: tuple[JsonObject, ...] = ()


class HttpErrorBody(msgspec.Struct, kw_only=True):
    """The body of an error over HTTP+JSON."""

    error: HttpError


_REQUEST = msgspec.json.Decoder(Request)


def decode_request(body: bytes) -> Request:
    """Decode the body of a JSON-RPC request. Raises InvalidJson and InvalidBody."""
    return decode_body(_REQUEST, body)
