"""The Agent API on the wire: its requests and its three event objects, and how request bodies are read.

Pure: no server, no clock, no storage. Source: seed 004 (the schema) and the published package, whose clients decide
where the two differ. Fields that are declared and have no value are sent as `null`.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from dragoman.core.content import DEPTH_LIMIT, JsonObject, is_too_deep
from dragoman.protocols.kit.faults import parse_validation_error

ResponseStatus = Literal["created", "in_progress", "completed", "canceled", "failed"]
"""The statuses that we send. `rejected` and `incomplete` are never sent: the web client knows neither as an end."""
PollStatus = Literal["queued", "created", "in_progress", "completed", "canceled", "failed"]
Role = Literal["user", "assistant", "system", "tool"]
ID_LIMIT = 255
"""Characters of a client's own id or name."""
STOP_SEQUENCES_LIMIT = 4


# --- what comes in ------------------------------------------------------------------------------------------------


class _In(msgspec.Struct, frozen=True, kw_only=True):
    """What clients send: unknown fields are ignored here."""


class TextIn(_In, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Words."""

    text: str | None = None


class ImageIn(_In, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """A picture, by URL or `data:` URI."""

    image_url: str | None = None


class DataIn(_In, frozen=True, kw_only=True, tag="data", tag_field="type"):
    """An object; the payload of calls, outputs and answers."""

    data: JsonObject | None = None


class AudioIn(_In, frozen=True, kw_only=True, tag="audio", tag_field="type"):
    """Sound: a URL, a `data:` URI or base64."""

    data: str | None = None
    format: str | None = None


class VideoIn(_In, frozen=True, kw_only=True, tag="video", tag_field="type"):
    """A film, by URL or `data:` URI."""

    video_url: str | None = None


class FileIn(_In, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A file. The web client writes its name as `file_name`."""

    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    file_name: str | None = None
    file_data: str | None = None


class RefusalIn(_In, frozen=True, kw_only=True, tag="refusal", tag_field="type"):
    """Words with which a model refused, in a history."""

    refusal: str | None = None


ContentIn = TextIn | ImageIn | DataIn | AudioIn | VideoIn | FileIn | RefusalIn


class MessageIn(_In, frozen=True, kw_only=True):
    """A message of a request. A string as `content` is one text."""

    type: str | None = None
    role: Role | None = None
    id: str | None = None
    content: str | tuple[ContentIn, ...] | None = None

    @property
    def kind(self) -> str:
        """Its type; `message` when it names none."""
        return self.type or "message"


class AgentRequest(_In, frozen=True, kw_only=True):
    """The body of `POST /process`."""

    input: tuple[MessageIn, ...]
    stream: bool = True
    model: str | None = None
    top_p: float | None = None
    temperature: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    stop: str | tuple[str, ...] | None = None
    n: int | None = 1
    seed: int | None = None
    tools: tuple[JsonObject, ...] | None = None
    session_id: str | None = None
    user_id: str | None = None
    id: str | None = None
    response_id: str | None = None
    heartbeat: bool = False

    @property
    def client_response_id(self) -> str | None:
        """The response's id as the client chose it: `id` wins over `response_id`."""
        return self.id or self.response_id or None


class TaskRequest(AgentRequest, frozen=True, kw_only=True):
    """The body of `POST /process/task`. `timeout` is in seconds."""

    timeout: float | None = None


class StopRequest(_In, frozen=True, kw_only=True):
    """The body of `POST /stop`. Clients send a whole request; these two fields are read."""

    session_id: str | None = None
    response_id: str | None = None


class FunctionTool(_In, frozen=True, kw_only=True):
    """A tool of the application's."""

    name: str
    description: str | None = None
    parameters: JsonObject


# --- what goes out ------------------------------------------------------------------------------------------------


class Error(msgspec.Struct, frozen=True):
    """Why something failed."""

    code: str
    message: str


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """What the three event objects share. The number is that of the event; inside another object it is null."""

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
    """Words: a piece of them with `delta`, else all of them."""

    type: Literal["text"] = "text"
    text: str


class ImageContent(Content, frozen=True, kw_only=True):
    """A picture."""

    type: Literal["image"] = "image"
    image_url: str


class DataContent(Content, frozen=True, kw_only=True):
    """An object."""

    type: Literal["data"] = "data"
    data: JsonObject


class AudioContent(Content, frozen=True, kw_only=True):
    """Sound."""

    type: Literal["audio"] = "audio"
    data: str
    format: str | None = None


class VideoContent(Content, frozen=True, kw_only=True):
    """A film."""

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
    """A message. `content` is null while it is open. `code` and `message` tell why it failed."""

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
    """A run, as clients of this protocol see it. `output` is null until the end, then complete."""

    object: Literal["response"] = "response"
    id: str
    created_at: int
    completed_at: int | None = None
    output: tuple[Message, ...] | None = None
    usage: dict[str, int] | None = None
    session_id: str


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /stop`. `canceled` is false when nothing was running."""

    status: Literal["ok"] = "ok"
    canceled: bool


class TaskSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /process/task`. `response_id` and `session_id` are ours: the task can be followed by them."""

    task_id: str
    status: Literal["submitted"] = "submitted"
    queue: str
    message: str
    response_id: str
    session_id: str


class TaskState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task stands. `result` is the terminal response, or a text when the task itself could not end."""

    task_id: str
    status: Literal["pending", "running", "finished", "error"]
    result: AgentResponse | str | None = msgspec.field()
    started_at: float | None = None


# --- reading ------------------------------------------------------------------------------------------------------


class InvalidJson(Exception):
    """A body that is no JSON."""


class InvalidBody(Exception):
    """A body that is JSON, but breaks a rule of the protocol. `loc` names the place, as FastAPI's errors do."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.loc = ("body", *location_of(path))


class Rule(NamedTuple):
    """What a request has to hold, and the field at fault where it does not."""

    path: str
    holds: Callable[[AgentRequest], bool]
    message: str


def _between(name: str, low: float, high: float, message: str) -> Rule:
    def holds(request: AgentRequest) -> bool:
        value = getattr(request, name)
        return value is None or low <= value <= high

    return Rule(name, holds, message)


def _max_length(name: str) -> Rule:
    return Rule(
        name,
        lambda request: len(getattr(request, name) or "") <= ID_LIMIT,
        f"at most {ID_LIMIT} characters were expected",
    )


RULES = (  # checked from the first to the last; the first one broken is the answer
    Rule("input", lambda request: bool(request.input), "at least one message was expected"),
    Rule("top_p", lambda request: request.top_p is None or 0 < request.top_p <= 1, "0 < top_p <= 1 was expected"),
    _between("temperature", 0, 2, "0 <= temperature <= 2 was expected"),
    _between("frequency_penalty", -2, 2, "-2 <= frequency_penalty <= 2 was expected"),
    _between("presence_penalty", -2, 2, "-2 <= presence_penalty <= 2 was expected"),
    Rule(
        "max_tokens",
        lambda request: request.max_tokens is None or request.max_tokens > 0,
        "max_tokens > 0 was expected",
    ),
    Rule(
        "stop",
        lambda request: not isinstance(request.stop, tuple) or len(request.stop) <= STOP_SEQUENCES_LIMIT,
        f"at most {STOP_SEQUENCES_LIMIT} sequences were expected",
    ),
    _between("n", 1, 5, "1 <= n <= 5 was expected"),
    *map(_max_length, ("session_id", "user_id", "id", "response_id", "model")),
)

T = TypeVar("T")
R = TypeVar("R", bound=AgentRequest)
_PATH_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_DELIVERY_FIELDS = frozenset({"stream", "heartbeat", "id", "response_id"})
"""Fields that say how the answer is told, and not what is asked."""


class ParsedRequest(NamedTuple):
    """A request that holds all rules. `fields` is the whole body, as it came."""

    request: AgentRequest
    tools: tuple[FunctionTool, ...]
    fields: JsonObject
    timeout_s: float | None = None

    def extra_fields(self) -> JsonObject:
        """The fields that the protocol does not declare; they are the agent's."""
        return {name: value for name, value in self.fields.items() if name not in self.request.__struct_fields__}

    @property
    def tool_paths(self) -> tuple[str, ...]:
        """Where each tool stands: in the nested shape, or in the flat one."""
        given = enumerate(self.request.tools or ())
        return tuple(f"tools[{place}]{'' if tool.get('function') is None else '.function'}" for place, tool in given)

    def canonical_bytes(self) -> bytes:
        """What is asked, without what changes when a client builds the request again: ids and marks of messages."""
        asked = {name: value for name, value in self.fields.items() if name not in _DELIVERY_FIELDS}
        marks = ("id", "status", "sequence_number")
        asked["input"] = [{key: value for key, value in each.items() if key not in marks} for each in asked["input"]]
        return msgspec.json.encode(asked, order="sorted")


def decode_request(body: bytes) -> ParsedRequest:
    """Read the body of `POST /process`. Raises Malformed or Misshapen."""
    return _parse_request(AgentRequest, body)


def decode_task(body: bytes) -> ParsedRequest:
    """Read the body of `POST /process/task`. Raises Malformed or Misshapen."""
    asked = _parse_request(TaskRequest, body)
    assert isinstance(asked.request, TaskRequest), "its decoder made it"
    timeout_s = asked.request.timeout
    if timeout_s is not None and not 0 < timeout_s <= 1e9:
        raise InvalidBody("a number of seconds above 0 was expected", "timeout")
    return asked._replace(timeout_s=timeout_s)


def decode_stop(body: bytes) -> StopRequest:
    """Read the body of `POST /stop`. Raises Malformed or Misshapen."""
    stop = _convert(_decode(body), StopRequest)
    if not stop.session_id and not stop.response_id:
        raise InvalidBody("session_id or response_id was expected", "session_id")
    return stop


def _parse_request(kind: type[R], body: bytes) -> ParsedRequest:
    fields = _decode(body)
    request = _convert(fields, kind)
    for rule in RULES:
        if not rule.holds(request):
            raise InvalidBody(rule.message, rule.path)
    for place, message in enumerate(request.input):
        _check_message(message, f"input[{place}]")
    tools = tuple(_tool_of(tool, f"tools[{place}]") for place, tool in enumerate(request.tools or ()))
    asked = ParsedRequest(request, tools, fields)
    if is_too_deep(asked.extra_fields()):
        raise InvalidBody(f"at most {DEPTH_LIMIT} levels of lists and objects were expected")
    return asked


def _check_message(message: MessageIn, path: str) -> None:
    if len(message.id or "") > ID_LIMIT:
        raise InvalidBody(f"at most {ID_LIMIT} characters were expected", f"{path}.id")
    if message.content is None and message.kind not in ("error", "heartbeat"):
        raise InvalidBody("a message needs a content", f"{path}.content")


def _tool_of(tool: JsonObject, path: str) -> FunctionTool:
    """A tool, in the nested shape or in the flat one. Only functions are tools (section 2.2)."""
    if tool.get("type") not in (None, "function"):
        raise InvalidBody("only tools of type 'function' are taken", f"{path}.type")
    inner = tool.get("function")
    place = path if inner is None else f"{path}.function"
    try:
        found = msgspec.convert(tool if inner is None else inner, FunctionTool)
    except msgspec.ValidationError as error:
        raise InvalidBody(*parse_validation_error(str(error), place)) from error
    if not found.name:
        raise InvalidBody("a tool needs a name", f"{place}.name")
    schema, required = found.parameters, found.parameters.get("required")
    if schema.get("type") != "object":
        raise InvalidBody("parameters are a JSON Schema of type 'object'", f"{place}.parameters.type")
    if not isinstance(schema.get("properties", {}), dict):
        raise InvalidBody("an object was expected", f"{place}.parameters.properties")
    is_list = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if required is not None and not is_list:
        raise InvalidBody("a list of names, or null, was expected", f"{place}.parameters.required")
    return found


def _decode(body: bytes) -> JsonObject:
    """The whole of a body, so that what is no JSON is never taken for a wrong shape."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson("the body is not JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise InvalidBody("an object was expected")
    return value


def _convert(fields: JsonObject, kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(*parse_validation_error(str(error))) from error


def location_of(path: str) -> tuple[Any, ...]:
    """A path such as `input[0].content` as its steps."""
    return tuple(int(index) if index else name for index, name in _PATH_STEP.findall(path))
