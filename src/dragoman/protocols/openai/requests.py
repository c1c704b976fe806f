"""The body of `POST /responses`: its fields in the order in which they are checked. Pure.

Unknown fields are ignored, and null is the same as absent. Source: section 2.
"""

import re
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from dragoman.core.content import Json, JsonObject
from dragoman.core.input_checks import check_block_count
from dragoman.core.json_schema import check_schema
from dragoman.core.refusals import Invalid
from dragoman.protocols.kit.decoding import decode_json
from dragoman.protocols.kit.errors import InvalidJson, parse_validation_error
from dragoman.protocols.openai.errors import InvalidParameter

T = TypeVar("T")
MAX_ITEMS = 10_000
"""Of one request. Histories that come back may be long."""
MAX_TOOLS = 128
SCHEMA_BYTES = 64 * 1024
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FORMATS = ("text", "json_object", "json_schema")

# --- input items ------------------------------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="input_text", tag_field="type"):
    """Text. Other names of the same part are replaced before decoding."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="input_image", tag_field="type"):
    """An image."""

    image_url: str | None = None
    file_id: str | None = None


class FilePart(msgspec.Struct, frozen=True, tag="input_file", tag_field="type"):
    """A file."""

    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class RefusalPart(msgspec.Struct, frozen=True, tag="refusal", tag_field="type"):
    """What the agent said instead of an answer."""

    refusal: str


Part = TextPart | ImagePart | FilePart | RefusalPart


Role = Literal["user", "assistant", "system", "developer"]


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of any role."""

    role: Role
    content: str | tuple[Part, ...]
    id: str | None = None


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool of the application."""

    call_id: str
    name: str
    arguments: str = "{}"
    id: str | None = None


class FunctionCallOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What such a tool returned."""

    call_id: str
    output: str | tuple[Part, ...]
    id: str | None = None


class McpApprovalResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a call that waits for approval."""

    approval_request_id: str
    approve: bool
    reason: str | None = None
    id: str | None = None


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of what precedes the items after it."""

    encrypted_content: str
    id: str | None = None


class ItemReference(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the caller's, by its id."""

    id: str


class OtherItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item that only an agent makes. It is recognised by its id."""

    id: str | None = None


InputItem = Message | FunctionCall | FunctionCallOutput | McpApprovalResponse | Compaction | ItemReference | OtherItem
_ITEMS: dict[str, Any] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "mcp_approval_response": McpApprovalResponse,
    "compaction": Compaction,
    "item_reference": ItemReference,
    **dict.fromkeys(
        (
            "reasoning",
            "mcp_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "web_search_call",
            "file_search_call",
            "computer_call",
            "code_interpreter_call",
            "image_generation_call",
            "custom_tool_call",
        ),
        OtherItem,
    ),
}
_ROLES = get_args(Role)
_TEXT_PARTS = ("text", "output_text", "summary_text")

# --- the other fields -------------------------------------------------------------------------------------------------


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the application executes."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of the model's reasoning."""

    effort: str | None = None
    summary: str | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of the answer's text."""

    format: JsonObject | None = None
    verbosity: str | None = None


Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class RunFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a request that its response repeats. They are stored with the run."""

    model: str | None = None
    previous_response_id: str | None = None
    conversation: Json = None
    store: bool = True
    background: bool = False
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: Json = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    text: TextOptions = TextOptions()
    metadata: Metadata = {}
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: str | None = None
    truncation: Literal["auto", "disabled"] | None = None


class CreateResponse(RunFields, frozen=True, kw_only=True):
    """The body of `POST /responses`."""

    input: Json = None
    instructions: str | None = None
    stream: bool = False
    stream_options: JsonObject | None = None
    prompt: Json = None
    context_management: Json = None


_IN_ORDER = (
    *("model", "input", "instructions", "previous_response_id", "conversation", "store"),
    *("stream", "stream_options", *RunFields.__struct_fields__, "prompt", "context_management"),
)
_PLACES = {name: place for place, name in enumerate(dict.fromkeys(_IN_ORDER))}
_TYPES = {field.name: field.type for field in msgspec.structs.fields(CreateResponse)}


class ParsedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its input decoded."""

    fields: CreateResponse
    items: tuple[InputItem, ...]


def decode_request(raw: bytes) -> ParsedResponse:
    """Read the body of `POST /responses`. Raises InvalidJson or InvalidParameter."""
    return parse_request(decode_object(raw))


def parse_request(body: JsonObject) -> ParsedResponse:
    """Read a body that is decoded. Raises InvalidParameter."""
    values: dict[str, Any] = {}
    items: tuple[InputItem, ...] = ()
    for name in sorted(_PLACES.keys() & {*body, "input"}, key=_PLACES.__getitem__):
        value = body.get(name)
        if value is None:
            if name == "input":
                raise InvalidParameter("missing_required_parameter", "this field is required", "input")
            continue
        if name == "input":
            items = parse_items(value)
        else:
            values[name] = _CHECKS.get(name, _convert_field)(name, value)
        if name == "conversation" and "previous_response_id" in values:
            raise InvalidParameter(
                "mutually_exclusive_parameters", "previous_response_id cannot be used together with it", name
            )
        if name == "stream_options" and not values.get("stream"):
            raise InvalidParameter("unsupported_parameter", "this needs stream: true", name)
    fields = CreateResponse(**values)
    _check_tool_choice(fields)
    return ParsedResponse(fields=fields, items=items)


def decode_object(raw: bytes) -> JsonObject:
    """Read a body that is a JSON object. Raises InvalidJson."""
    body = decode_json(raw)
    if not isinstance(body, dict):
        raise InvalidJson("expected a JSON object")
    return body


def convert(value: Json, kind: type[T] | Any, path: str) -> T:  # noqa: ANN401  # any type that msgspec knows
    """Convert a value of a body to a type. Raises InvalidParameter, whose code says what is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, inner = parse_validation_error(str(error))
        inner = inner.removesuffix("[...]")  # some key or value of an object
        where = f"{path}{'' if inner.startswith('[') or not inner else '.'}{inner}"
        raise InvalidParameter(_code_of(message, path), message, where) from error


def _code_of(message: str, path: str) -> str:
    if path == "metadata":
        return "invalid_metadata"
    if message == "this field is required":
        return "missing_required_parameter"
    if ">= " in message or "<= " in message:
        kind = "integer" if "`int`" in message else "decimal"
        if " length " in message:
            return f"{'array' if 'array' in message else 'string'}_above_max_length"
        return f"{kind}_{'below_min' if '>= ' in message else 'above_max'}_value"
    return "invalid_value" if message.startswith("Invalid ") else "invalid_type"


def _convert_field(name: str, value: Json) -> object:
    return convert(value, _TYPES[name], name)


# --- input ------------------------------------------------------------------------------------------------------------


def parse_items(value: Json, path: str = "input") -> tuple[InputItem, ...]:
    """Read a list of items; a text stands for one user message. Raises InvalidParameter, LimitExceeded."""
    if isinstance(value, str):
        value = [{"role": "user", "content": value}] if value else []
    if not isinstance(value, list):
        raise InvalidParameter("invalid_type", "expected a text or a list of items", path)
    if not value:
        raise InvalidParameter("empty_input", "expected at least one item", path)
    if len(value) > MAX_ITEMS:
        raise InvalidParameter("too_many_items", f"expected at most {MAX_ITEMS} items, got {len(value)}", path)
    return tuple(parse_item(each, f"{path}[{index}]") for index, each in enumerate(value))


def parse_item(value: Json, path: str) -> InputItem:
    """Read an item. Raises InvalidParameter, LimitExceeded."""
    if not isinstance(value, dict):
        raise InvalidParameter("invalid_type", "expected an object", path)
    if len(value) == 2 and value.get("role") in _ROLES and isinstance(text := value.get("content"), str):
        return Message(role=value["role"], content=text)  # long histories consist of these
    kind = value.get("type") or ("message" if "role" in value else "item_reference")
    decoded = _ITEMS.get(kind) if isinstance(kind, str) else None
    if decoded is None:
        raise InvalidParameter(
            "invalid_value", f"items of the type {str(kind)[:80]!r} are not known here", f"{path}.type"
        )
    if decoded is OtherItem:
        return OtherItem(id=value["id"] if isinstance(value.get("id"), str) else None)
    for name in ("content", "output"):
        if isinstance(parts := value.get(name), list):
            check_block_count(parts, path=f"{path}.{name}")
    plain = {key: _known_parts(each) for key, each in value.items() if each is not None}
    item: InputItem = convert(plain, decoded, path)
    known = item.content if isinstance(item, Message) else item.output if isinstance(item, FunctionCallOutput) else ()
    member = "content" if isinstance(item, Message) else "output"
    for index, part in enumerate(() if isinstance(known, str) else known):
        if isinstance(part, ImagePart | FilePart):
            _check_media(part, f"{path}.{member}[{index}]")
    return item


def _check_media(part: ImagePart | FilePart, path: str) -> None:
    """Check where an image or a file is. Raises InvalidParameter."""
    member, url = ("image_url", part.image_url) if isinstance(part, ImagePart) else ("file_url", part.file_url)
    if part.file_id is not None:
        way_out = "the image in image_url" if isinstance(part, ImagePart) else "the file in file_data"
        message = f"there are no uploaded files here; send {way_out}"
        raise InvalidParameter("unsupported_value", message, f"{path}.file_id")
    if url is not None and not url.lower().startswith(("https:", "data:")):
        raise InvalidParameter("invalid_value", "a URL must begin with https: or data:", f"{path}.{member}")


def _known_parts(value: Json) -> Json:
    """Content whose texts all have the same type: proxies use several."""
    if not isinstance(value, list):
        return value
    return [
        {"type": "input_text", "text": each.get("text")}
        if isinstance(each, dict) and each.get("type") in _TEXT_PARTS
        else each
        for each in value
    ]


# --- fields with rules of their own -----------------------------------------------------------------------------------


def _conversation(name: str, value: Json) -> str:
    found = value.get("id") if isinstance(value, dict) else value
    if not isinstance(found, str):
        raise InvalidParameter("invalid_type", "expected an id or an object with an id", name)
    return found


def _tools(name: str, value: Json) -> tuple[FunctionTool, ...]:
    if not isinstance(value, list):
        raise InvalidParameter("invalid_type", "expected a list", name)
    if len(value) > MAX_TOOLS:
        raise InvalidParameter("too_many_tools", f"expected at most {MAX_TOOLS} tools, got {len(value)}", name)
    tools: list[FunctionTool] = []
    for index, each in enumerate(value):
        path = f"{name}[{index}]"
        kind = each.get("type") if isinstance(each, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise InvalidParameter(
                "unsupported_tool", f"only tools of the type function are known, got {kind[:80]!r}", f"{path}.type"
            )
        if isinstance(each, dict) and "name" not in each and isinstance(each.get("function"), dict):
            message = "this is the form of Chat Completions: here the members of function stand in the tool itself"
            raise InvalidParameter("invalid_type", message, f"{path}.function")
        tool: FunctionTool = convert(each, FunctionTool, path)
        if _TOOL_NAME.fullmatch(tool.name) is None:
            raise InvalidParameter(
                "invalid_value", "a name must have 1 to 64 letters, digits, '_' or '-'", f"{path}.name"
            )
        if any(tool.name == other.name for other in tools):
            raise InvalidParameter("duplicate_tool", f"there are two tools named {tool.name!r}", f"{path}.name")
        tools.append(tool)
    return tuple(tools)


def _text(name: str, value: Json) -> TextOptions:
    text: TextOptions = convert(value, TextOptions, name)
    if text.format is None:
        return text
    kind, schema = text.format.get("type"), text.format.get("schema")
    if kind not in _FORMATS:
        raise InvalidParameter("invalid_value", f"expected one of {', '.join(_FORMATS)}", "text.format.type")
    if kind == "json_schema" and schema is not None:  # @ai-sdk/open-responses leaves it out for any JSON object
        if not (isinstance(schema, dict) and len(msgspec.json.encode(schema)) <= SCHEMA_BYTES):
            raise InvalidParameter(
                "invalid_schema", f"expected an object of at most {SCHEMA_BYTES} bytes", "text.format.schema"
            )
        try:
            check_schema(schema, "schema", unsupported=frozenset())  # `pattern` and the like are for the model alone
        except Invalid as error:
            raise InvalidParameter("invalid_schema", str(error), "text.format.schema") from error
    return text


def _unsupported(name: str, value: Json) -> object:  # one of _CHECKS
    raise InvalidParameter("unsupported_parameter", "this is not supported here", name)


def _check_tool_choice(fields: CreateResponse) -> None:
    """Check that a choice of tools names only tools of the request."""
    choice = fields.tool_choice
    if choice is None or choice in ("auto", "none", "required"):
        return
    named = choice.get("tools", [choice]) if isinstance(choice, dict) else None
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("function", "allowed_tools") or not isinstance(named, list):
        raise InvalidParameter("invalid_value", "this choice is not known here", "tool_choice")
    known = {tool.name for tool in fields.tools}
    for each in named:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name not in known:
            raise InvalidParameter("unknown_tool", f"tools has none named {str(name)[:80]!r}", "tool_choice")


_CHECKS = {
    "conversation": _conversation,
    "tools": _tools,
    "text": _text,
    "prompt": _unsupported,
    "context_management": _unsupported,
}
