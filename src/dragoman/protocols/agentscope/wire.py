"""The wire format of the Agent API: request bodies and how they are decoded, and the three event objects.

Pure: no server, no clock, no storage. Source: seed 004 (the schema) and the published package, whose clients decide
where the two differ. A declared field without a value is sent as `null`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import NO_PARAMETERS, ToolSpec
from dragoman.protocols.kit.decoding import check_depth, convert_value, decode_json_object
from dragoman.protocols.kit.errors import InvalidBody

Role = Literal["user", "assistant", "system", "tool"]
Name = Annotated[str, Meta(max_length=255)]
"""An id or a name that a client chooses."""
LIST_LIMIT = 10_000
"""Entries of a list in a request. The core's own limits are lower, but count what has been translated."""
Id = Annotated[str, Meta(min_length=1)]


# --- requests: undeclared fields are ignored -----------------------------------------------------------------------


class TextIn(msgspec.Struct, frozen=True, tag="text"):
    """Text."""

    text: str | None = None


class ImageIn(msgspec.Struct, frozen=True, tag="image"):
    """An image, as a URL or `data:` URI."""

    image_url: str | None = None


class DataIn(msgspec.Struct, frozen=True, tag="data"):
    """A JSON object; the payload of calls, outputs and answers."""

    data: JsonObject | None = None


class AudioIn(msgspec.Struct, frozen=True, tag="audio"):
    """Audio, as a URL, a `data:` URI or base64."""

    data: str | None = None
    format: str | None = None


class VideoIn(msgspec.Struct, frozen=True, tag="video"):
    """A video, as a URL or `data:` URI."""

    video_url: str | None = None


class FileIn(msgspec.Struct, frozen=True, tag="file"):
    """A file. The web client sends its name as `file_name`."""

    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    file_name: str | None = None
    file_data: str | None = None


class RefusalIn(msgspec.Struct, frozen=True, tag="refusal"):
    """The text of a model's refusal, in a history."""

    refusal: str | None = None


ContentIn = TextIn | ImageIn | DataIn | AudioIn | VideoIn | FileIn | RefusalIn


class MessageIn(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a request. A string as `content` is one text."""

    type: str | None = None
    role: Role | None = None
    id: Name | None = None
    content: str | Annotated[tuple[ContentIn, ...], Meta(max_length=LIST_LIMIT)] | None = None

    @property
    def kind(self) -> str:
        """The message's type; `message` by default."""
        return self.type or "message"


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /process`."""

    input: Annotated[tuple[MessageIn, ...], Meta(min_length=1, max_length=LIST_LIMIT)]
    stream: bool = True
    model: Name | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    n: Annotated[int, Meta(ge=1, le=5)] | None = 1
    seed: int | None = None
    tools: Annotated[tuple[JsonObject, ...], Meta(max_length=LIST_LIMIT)] | None = None
    session_id: Name | None = None
    user_id: Name | None = None
    id: Name | None = None
    response_id: Name | None = None
    heartbeat: bool = False

    @property
    def client_response_id(self) -> str | None:
        """The response id that the client chose: `id` takes precedence over `response_id`."""
        return self.id or self.response_id or None


class TaskRequest(AgentRequest, frozen=True, kw_only=True):
    """The body of `POST /process/task`. `timeout` is in seconds."""

    timeout: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /stop`. Clients may send a whole request; only these two fields are read."""

    session_id: str | None = None
    response_id: str | None = None


class CallData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a call: `arguments` is a JSON text, or the object itself."""

    call_id: Id
    name: Id
    arguments: str | JsonObject


class OutputData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a call's output. Some clients send a structured result as it is."""

    call_id: Id
    output: Json


class ApprovalData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an answer to an approval request."""

    approval_request_id: Id
    approve: bool
    reason: str | None = None


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    name: Id
    description: str | None = None
    parameters: JsonObject


class _ToolParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool's JSON Schema must look like, unless it is empty."""

    type: Literal["object"]
    properties: JsonObject = {}
    required: tuple[str, ...] | None = None


# --- answers ------------------------------------------------------------------------------------------------------


class Error(msgspec.Struct, frozen=True):
    """Why a request, a message or a response failed."""

    code: str
    message: str


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of all three event objects. `sequence_number` is null in an object inside another one."""

    sequence_number: int | None = None
    object: str
    status: str
    error: Error | None = None


class Content(_Event, frozen=True, kw_only=True):
    """A part of a message. `index` counts from 0."""

    object: Literal["content"] = "content"
    type: str
    index: int
    delta: bool = False
    msg_id: str


class TextContent(Content, frozen=True, kw_only=True):
    """Text: the next part of it if `delta` is set, otherwise all of it."""

    type: Literal["text"] = "text"
    text: str


class ImageContent(Content, frozen=True, kw_only=True):
    """An image."""

    type: Literal["image"] = "image"
    image_url: str


class DataContent(Content, frozen=True, kw_only=True):
    """A JSON object."""

    type: Literal["data"] = "data"
    data: JsonObject


class AudioContent(Content, frozen=True, kw_only=True):
    """Audio."""

    type: Literal["audio"] = "audio"
    data: str
    format: str | None = None


class VideoContent(Content, frozen=True, kw_only=True):
    """A video."""

    type: Literal["video"] = "video"
    video_url: str


class FileContent(Content, frozen=True, kw_only=True):
    """A file."""

    type: Literal["file"] = "file"
    file_url: str
    file_id: str | None = None
    filename: str | None = None
    file_data: str | None = None


class Message(_Event, frozen=True, kw_only=True):
    """A message. `content` is null while the message is open. `code` and `message` say why it failed."""

    object: Literal["message"] = "message"
    id: str
    type: str
    role: Role | None = "assistant"
    content: tuple[Content, ...] | None = None
    code: str | None = None
    message: str | None = None
    usage: dict[str, int] | None = None
    metadata: JsonObject | None = None


class AgentResponse(_Event, frozen=True, kw_only=True):
    """A run. `output` is null until the run ends, then complete. `model` is an extension: the agent that answers.

    The statuses `rejected` and `incomplete` are never sent: the web client does not treat either as an end.
    """

    object: Literal["response"] = "response"
    id: str
    created_at: int
    completed_at: int | None = None
    output: tuple[Message, ...] | None = None
    usage: dict[str, int] | None = None
    session_id: str
    model: str


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /stop`. `canceled` is false if nothing was running."""

    status: Literal["ok"] = "ok"
    canceled: bool


class TaskSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /process/task`. `response_id` and `session_id` are an extension, to follow the task by."""

    task_id: str
    status: Literal["submitted"] = "submitted"
    queue: str
    message: str
    response_id: str
    session_id: str


class TaskState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a task. `result` is the terminal response, or a text if the task itself could not finish."""

    task_id: str
    status: Literal["pending", "running", "finished", "error"]
    result: AgentResponse | str | None = msgspec.field()
    started_at: float | None = None


# --- decoding -----------------------------------------------------------------------------------------------------


R = TypeVar("R", bound=AgentRequest)
_DELIVERY_FIELDS = frozenset({"stream", "heartbeat", "id", "response_id"})
"""Request fields that change how the answer is delivered, but not what it is."""
_VOLATILE_MESSAGE_FIELDS = frozenset({"id", "status", "sequence_number"})
"""Message fields that may change when a client builds the same request again."""


class ParsedRequest(NamedTuple):
    """A valid request. `tools` are by their paths in the body; `fields` is the whole body as it was sent."""

    request: AgentRequest
    tools: Mapping[str, ToolSpec]
    fields: JsonObject
    timeout_s: float | None = None

    def extra_fields(self) -> JsonObject:
        """The fields that the protocol does not declare. They are passed to the agent."""
        return {name: value for name, value in self.fields.items() if name not in self.request.__struct_fields__}

    def canonical_bytes(self) -> bytes:
        """The request in a form that is equal for equal requests, whatever their ids and delivery."""
        fields = {name: value for name, value in self.fields.items() if name not in _DELIVERY_FIELDS}
        fields["input"] = [
            {name: value for name, value in message.items() if name not in _VOLATILE_MESSAGE_FIELDS}
            for message in fields["input"]
        ]
        return msgspec.json.encode(fields, order="sorted")


def decode_request(body: bytes) -> ParsedRequest:
    """Decode the body of `POST /process`. Raises InvalidJson or InvalidBody."""
    return _parse_request(AgentRequest, body)


def decode_task(body: bytes) -> ParsedRequest:
    """Decode the body of `POST /process/task`. Raises InvalidJson or InvalidBody."""
    parsed = _parse_request(TaskRequest, body)
    assert isinstance(parsed.request, TaskRequest)
    return parsed._replace(timeout_s=parsed.request.timeout)


def decode_stop(body: bytes) -> StopRequest:
    """Decode the body of `POST /stop`. Raises InvalidJson or InvalidBody."""
    stop = convert_value(decode_json_object(body), StopRequest)
    if not stop.session_id and not stop.response_id:
        raise InvalidBody("session_id or response_id is required", "session_id")
    return stop


def _parse_request(kind: type[R], body: bytes) -> ParsedRequest:
    fields = decode_json_object(body)
    request = convert_value(fields, kind)
    for index, message in enumerate(request.input):
        if message.content is None and message.kind not in ("error", "heartbeat"):
            raise InvalidBody("this field is required", f"input[{index}].content")
    tools = dict(_parse_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ()))
    parsed = ParsedRequest(request, tools, fields)
    check_depth(parsed.extra_fields())
    return parsed


def _parse_tool(tool: JsonObject, path: str) -> tuple[str, ToolSpec]:
    """Parse a tool in the nested or in the flat form; return its path too. Only functions are supported (2.2)."""
    if tool.get("type") not in (None, "function"):
        raise InvalidBody("only tools of type 'function' are supported", f"{path}.type")
    if tool.get("function") is not None:
        tool, path = tool["function"], f"{path}.function"
    parsed = convert_value(tool, FunctionTool, path)
    parameters = parsed.parameters or NO_PARAMETERS
    convert_value(parameters, _ToolParameters, f"{path}.parameters")
    return path, ToolSpec(name=parsed.name, description=parsed.description or "", parameters=parameters)
