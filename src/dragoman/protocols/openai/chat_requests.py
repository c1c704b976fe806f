"""Reads the body of `POST /chat/completions` as a request to Responses: the same fields, with messages as items. Pure.

Instructions are those of the run, wherever they stand among the messages: clients send them with every request.
Source: section 6.1.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.core.content import Json, JsonObject, text_of
from dragoman.protocols.openai import inputs, requests
from dragoman.protocols.openai.chat_wire import ChatRequest
from dragoman.protocols.openai.errors import InvalidParameter
from dragoman.protocols.openai.requests import CreateResponse, InputItem, convert, decode_object, parse_request

_SAME = (
    "model", "store", "stream", "parallel_tool_calls", "temperature", "top_p", "presence_penalty", "frequency_penalty",
    "metadata", "user", "safety_identifier",
)  # fmt: skip
_REFUSED = ("functions", "function_call", "audio")
_TYPES = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}
_PLACES = (
    (re.compile(r"tools\[(\d+)\]\.(?!type)"), r"tools[\1].function."),
    (re.compile(r"text\.format\.schema"), "response_format.json_schema.schema"),
    (re.compile(r"text\.format"), "response_format"),
    (re.compile(r"text\.verbosity"), "verbosity"),
    (re.compile(r"reasoning\.effort"), "reasoning_effort"),
)
"""The names in this body of fields of Responses."""
_ITEM = re.compile(r"input\[(\d+)\]")


class ParsedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A request.

    Args:
        fields: as those of a request to Responses.
        items: the messages without instructions.
        places: the path of each item in the body.
        parameters: model parameters that Responses does not have.
        include_usage: whether the stream ends with the usage.
        tool_results: the ids of the calls that the last messages answer.
    """

    fields: CreateResponse
    items: tuple[InputItem, ...]
    places: tuple[str, ...]
    parameters: JsonObject
    include_usage: bool
    tool_results: tuple[str, ...]

    def place(self, path: str) -> str:
        """The place in this body of what has this path in a request to Responses."""
        return _place(path, self.places, self.fields.max_output_tokens)


def decode_chat(raw: bytes) -> ParsedChat:
    """Read the body of `POST /chat/completions`. Raises InvalidJson or InvalidParameter."""
    body = {name: value for name, value in decode_object(raw).items() if value is not None}
    for name in ("model", "messages"):
        if name not in body:
            raise InvalidParameter("missing_required_parameter", "this field is required", name)
    instructions, items, places = _items(body["messages"])
    if instructions and not items:  # OpenAI's models answer them, too
        items, places = [{"role": "user", "content": instructions.pop()}], [f"messages[{len(body['messages']) - 1}]"]
    _refuse_unsupported(body)
    limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    options = body.get("stream_options")
    flat: JsonObject = {
        **{name: body[name] for name in _SAME if name in body},
        "store": body.get("store", False),
        "input": items,
        "instructions": "\n\n".join(instructions) or None,
        "stream_options": options,
        "tools": None if "tools" not in body else _each(body["tools"], _flat_tool),
        "tool_choice": _flat_choice(body.get("tool_choice")),
        "max_output_tokens": body.get(limit),
        "reasoning": {"effort": body["reasoning_effort"]} if "reasoning_effort" in body else None,
        "text": {"format": _flat_format(body.get("response_format")), "verbosity": body.get("verbosity")},
    }
    try:
        parsed = parse_request(flat)
    except InvalidParameter as error:
        raise InvalidParameter(error.code, error.message, _place(error.path, places, limit)) from error
    last = [each.call_id for each in parsed.items if isinstance(each, requests.FunctionCallOutput)]
    count = next(
        (index for index, each in enumerate(reversed(parsed.items)) if not _is_output(each)), len(parsed.items)
    )
    return ParsedChat(
        fields=parsed.fields,
        items=parsed.items,
        places=tuple(places),
        parameters={name: convert(body[name], _TYPES[name], name) for name in ("stop", "seed") if name in body},
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        tool_results=tuple(last[len(last) - count :]),
    )


def _is_output(item: InputItem) -> bool:
    return isinstance(item, requests.FunctionCallOutput)


def _place(path: str, places: Sequence[str], limit: object) -> str:
    match = _ITEM.match(path)
    if match is not None and int(match[1]) < len(places):
        rest = path[match.end() :].replace(".output", ".content").replace(".call_id", ".tool_call_id")
        return places[int(match[1])] + rest
    if path.startswith("input"):
        return "messages"
    if path == "max_output_tokens" and isinstance(limit, str):
        return limit
    for pattern, replacement in _PLACES:
        path = pattern.sub(replacement, path)
    return path


def _refuse_unsupported(body: JsonObject) -> None:
    for name in _REFUSED:
        if name in body:
            raise InvalidParameter("unsupported_parameter", "this is not supported here", name)
    if "audio" in convert(body.get("modalities", []), list[str], "modalities"):
        raise InvalidParameter("unsupported_parameter", "agents answer with text", "modalities")
    if convert(body.get("n", 1), int, "n") != 1:
        raise InvalidParameter("unsupported_value", "an agent acts, and cannot act several times", "n")


# --- messages ---------------------------------------------------------------------------------------------------------


def _items(messages: Json) -> tuple[list[str], list[JsonObject], list[str]]:
    """The instructions, and the other messages as items with their places."""
    if not isinstance(messages, list):
        raise InvalidParameter("invalid_type", "expected a list of messages", "messages")
    instructions: list[str] = []
    items: list[JsonObject] = []
    places: list[str] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, dict):
            raise InvalidParameter("invalid_type", "expected an object", path)
        role, content = message.get("role"), _parts(message.get("content"), path)
        found: list[JsonObject] = []
        match role:
            case "system" | "developer":
                instructions.append(_instruction(content, path))
            case "user":
                found = [{"role": "user", "content": content}]
            case "assistant":
                content = content or message.get("refusal")
                found = [{"role": "assistant", "content": content}] if content else []
                calls = message.get("tool_calls") or []
                if not isinstance(calls, list):
                    raise InvalidParameter("invalid_type", "expected a list of calls", f"{path}.tool_calls")
                found += map(_call, calls)
            case "tool":
                found = [
                    {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": content or ""}
                ]
            case _:
                raise InvalidParameter("invalid_value", f"the role {str(role)[:80]!r} is not known", f"{path}.role")
        items += found
        places += [path] * len(found)
    return instructions, items, places


def _instruction(content: Json, path: str) -> str:
    item = requests.parse_item({"role": "system", "content": content}, path)
    assert isinstance(item, requests.Message), "it has a role"
    return text_of(inputs.content_from(item.content, path))


def _parts(content: Json, path: str) -> Json:
    """The content with its parts as Responses has them."""
    if not isinstance(content, list):
        return content
    return [_part(each, f"{path}.content[{index}]") for index, each in enumerate(content)]


def _part(part: Json, path: str) -> Json:
    match part:
        case {"type": "image_url", "image_url": {"url": url}}:
            return {"type": "input_image", "image_url": url}
        case {"type": "image_url"}:
            raise InvalidParameter("invalid_type", "expected an object with a url", f"{path}.image_url")
        case {"type": "file", "file": dict() as file}:
            return {"type": "input_file", **{key: value for key, value in file.items() if value is not None}}
        case {"type": "input_audio"}:
            raise InvalidParameter("unsupported_value", "agents take no audio here", path)
        case _:
            return part


def _call(call: Json) -> Json:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments") or "{}",
    }


# --- tools and formats ------------------------------------------------------------------------------------------------


def _each(values: Json, change: Any) -> Any:  # noqa: ANN401  # JSON to JSON
    return [change(each) for each in values] if isinstance(values, list) else values


def _flat_tool(tool: Json) -> Json:
    if not isinstance(tool, dict) or tool.get("type", "function") != "function":
        return tool
    function = tool.get("function")
    return {"type": "function", **(function if isinstance(function, dict) else {})}


def _flat_choice(choice: Json) -> Json:
    match choice:
        case {"type": "function", "function": {"name": name}}:
            return {"type": "function", "name": name}
        case {"type": "allowed_tools", "allowed_tools": {"tools": tools, **rest}}:
            return {"type": "allowed_tools", **rest, "tools": _each(tools, _flat_choice)}
        case _:
            return choice


def _flat_format(wanted: Json) -> Json:
    match wanted:
        case {"type": "json_schema", "json_schema": dict() as schema}:
            return {"type": "json_schema", **schema}
        case _:
            return wanted
