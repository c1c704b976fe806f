"""OpenAI's items: what the client sends, and the messages and open calls that a list of items holds. Pure."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from dragoman.client.codec import SessionHandle, TurnInput, UserInput
from dragoman.client.decoding import parse_arguments
from dragoman.client.errors import Unsupported
from dragoman.client.events import (
    Allow,
    Answer,
    Block,
    Choice,
    Deny,
    Image,
    Message,
    Notice,
    Pending,
    Permission,
    Problem,
    Question,
    Result,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.client.pending import choice_to_json, classify_open_call, question_arguments
from dragoman.core.answers import denied_result
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION

_IMAGE = re.compile(r"!\[image\]\((https?://[^\s()]+)\)")
CANCELLED = "Tool call cancelled: a new user message arrived"
"""The result of a call that a message of the user closes, for servers that require one."""


def parse_part(text: str) -> Text | Image:
    """A part of an answer. A part that is nothing but a picture in Markdown is how the API shows an image."""
    match = _IMAGE.fullmatch(text)
    return Text(text=text) if match is None else Image(url=match[1])


# --- input ------------------------------------------------------------------------------------------------------------


def to_input_items(handle: SessionHandle, turn_input: TurnInput, *, closes_calls: bool) -> list[JsonObject]:
    """The items of a turn. `closes_calls`: a message also answers the calls that wait, which the server would miss."""
    if not isinstance(turn_input, UserInput):
        permissions = {each.call_id for each in handle.pending if isinstance(each, Permission)}
        return [_to_answer_item(each, is_permission=each.call_id in permissions) for each in turn_input]
    message = {"type": "message", "role": "user", "content": _to_parts(turn_input.text, turn_input.images)}
    if not closes_calls:
        return [message]
    return [*(_to_closing_item(each) for each in handle.pending), message]


def to_seed_items(messages: Iterable[Message]) -> list[JsonObject]:
    """A history as input items. Reasoning and what a crash cut off stay out."""
    items: list[JsonObject] = []
    for message in messages:
        if message.cut:
            continue
        texts = "".join(each.text for each in message.blocks if isinstance(each, Text))
        images = [each.url for each in message.blocks if isinstance(each, Image)]
        if message.role in ("user", "system") and (texts or images):
            items.append({"type": "message", "role": message.role, "content": _to_parts(texts, images)})
        elif message.role == "assistant" and texts:
            part = {"type": "output_text", "text": texts, "annotations": []}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        for block in message.blocks:
            match block:
                case ToolCall(id=call_id, name=name, arguments=arguments):
                    items.append(_to_call_item(call_id, name, arguments))
                case Question(call_id=call_id, questions=questions):
                    items.append(_to_call_item(call_id, ASK_USER_QUESTION, question_arguments(questions)))
                case ToolResult(call_id=call_id, text=text, images=urls):
                    items.append(_to_output_item(call_id, text, urls))
    return items


def _to_call_item(call_id: str, name: str, arguments: JsonObject) -> JsonObject:
    encoded = msgspec.json.encode(arguments).decode()
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": encoded}


def _to_closing_item(pending: Pending) -> JsonObject:
    if isinstance(pending, Permission):
        return _to_approval_item(pending.call_id, approve=False, reason=CANCELLED)
    return _to_output_item(pending.call_id, CANCELLED)


def _to_answer_item(answer: Answer, *, is_permission: bool) -> JsonObject:
    match answer:
        case Allow(always=True):
            raise Unsupported("OpenAI's API cannot always allow a tool; AG-UI and Blade can, for the same session")
        case Allow(call_id=call_id):
            return _to_approval_item(call_id, approve=True)
        case Deny(call_id=call_id, reason=reason) if is_permission:
            return _to_approval_item(call_id, approve=False, reason=reason)
        case Deny(call_id=call_id, reason=reason):
            return _to_output_item(call_id, denied_result(reason or None))
        case Choice(call_id=call_id):
            return _to_output_item(call_id, msgspec.json.encode(choice_to_json(answer)).decode())
        case Result(call_id=call_id, text=text, images=images):
            return _to_output_item(call_id, text, images)


def _to_approval_item(request_id: str, *, approve: bool, reason: str = "") -> JsonObject:
    item: JsonObject = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve}
    return {**item, "reason": reason} if reason else item


def _to_output_item(call_id: str, text: str, images: Sequence[str] = ()) -> JsonObject:
    output = _to_parts(text, images) if images else text
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _to_parts(text: str, images: Sequence[str]) -> list[JsonObject]:
    parts: list[JsonObject] = [{"type": "input_image", "image_url": url, "detail": "auto"} for url in images]
    return [{"type": "input_text", "text": text}, *parts] if text or not parts else parts


# --- output -----------------------------------------------------------------------------------------------------------


def to_call(item: JsonObject) -> ToolCall | Question:
    """The call in an item. A call that waits for approval has the ID of the request for it."""
    name, arguments = str(item.get("name")), parse_arguments(item.get("arguments"))
    call_id = str(item.get("approval_request_id") or item.get("call_id") or item.get("id"))
    if name == ASK_USER_QUESTION:
        request = classify_open_call(call_id, name, arguments, ())
        assert isinstance(request, Question), "it is called like one"
        return request
    return ToolCall(id=call_id, name=name, arguments=arguments)


def to_pending(item: JsonObject) -> Pending:
    """What a call that the client has to answer waits for."""
    call_id = str(item.get("call_id") or item.get("id"))
    name, arguments = str(item.get("name")), parse_arguments(item.get("arguments"))
    if item.get("type") == "mcp_approval_request":
        return Permission(call_id=call_id, name=name, arguments=arguments, is_repeat=item.get("repeat") is True)
    return classify_open_call(call_id, name, arguments, () if name == ASK_USER_QUESTION else (name,))


def to_result(item: JsonObject) -> ToolResult | None:
    """The result of a call that the server executed; None if it has none, because the run ended before."""
    if item.get("status") in ("in_progress", "calling", "incomplete"):
        return None
    call_id, error = str(item.get("approval_request_id") or item.get("id")), item.get("error")
    text = item.get("output")
    if error is not None:
        text = error.get("content") if isinstance(error, dict) else error
    if not isinstance(text, str):
        text = "" if text is None else msgspec.json.encode(text).decode()
    return ToolResult(call_id=call_id, name=str(item.get("name")), text=text)


def to_problem(error: Json) -> Problem:
    """Why a response failed, in any of the forms of the API's errors."""
    fields = error if isinstance(error, dict) else {"message": error}
    return Problem(str(fields.get("code") or ""), str(fields.get("message") or "the response failed"))


def pending_in(items: Iterable[JsonObject]) -> tuple[Pending, ...]:
    """The calls of a conversation's newest items, oldest first, that wait for the client."""
    pending: dict[str, Pending] = {}
    for item in items:
        match item.get("type"):
            case "function_call" | "mcp_approval_request":
                request = to_pending(item)
                pending[request.call_id] = request
            case "function_call_output":
                pending.pop(str(item.get("call_id")), None)
            case "mcp_approval_response" | "mcp_call":
                pending.pop(str(item.get("approval_request_id")), None)
    return tuple(pending.values())


def to_messages(items: Sequence[JsonObject]) -> tuple[Message, ...]:
    """The messages of a conversation's items, oldest first. Reasoning, text and calls of one step are one message."""
    history = _History()
    for item, following in zip(items, (*items[1:], {}), strict=True):
        history.add(item, following)
    history.end_step()
    return tuple(history.messages)


class _History:
    """Collects items into messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._blocks: list[Block] = []
        self._results: list[Message] = []
        self._first_id = ""
        self._names: dict[str, str] = {}

    def add(self, item: JsonObject, following: JsonObject) -> None:
        """Add an item; `following` is the one after it."""
        kind, item_id = item.get("type") or "message", str(item.get("id") or "")
        match kind:
            case "message" if item.get("role") != "assistant":
                self.end_step()
                role: Role = "user" if item.get("role") == "user" else "system"
                self.messages.append(Message(role=role, blocks=_to_blocks(item), id=item_id))
            case "message" | "reasoning":
                if self._results or any(not isinstance(each, Thinking) for each in self._blocks):
                    self.end_step()
                self._say(item_id, *_to_blocks(item))
                if item.get("status") == "incomplete":
                    self.end_step(interrupted=True, cut=_is_output(following))
            case "function_call" | "mcp_approval_request":
                self._call(item_id, item)
            case "function_call_output":
                call_id = str(item.get("call_id"))
                result = ToolResult(call_id=call_id, name=self._names.get(call_id, ""), text=_output_text(item))
                self._results.append(Message(role="tool", blocks=(result,), id=item_id))
            case "mcp_call":
                if not item.get("approval_request_id"):
                    self._call(item_id, item)
                if (done := to_result(item)) is not None:
                    self._results.append(Message(role="tool", blocks=(done,), id=item_id))
            case "mcp_approval_response":
                pass  # the call's result shows how it was decided
            case _:
                self._say(item_id, Notice(kind=str(kind), content=item))

    def end_step(self, *, interrupted: bool = False, cut: bool = False) -> None:
        """Add the messages of the step so far."""
        if self._blocks:
            said = tuple(self._blocks)
            self.messages.append(
                Message(role="assistant", blocks=said, id=self._first_id, interrupted=interrupted, cut=cut)
            )
        self.messages += self._results
        self._blocks, self._results = [], []

    def _call(self, item_id: str, item: JsonObject) -> None:
        call = to_call(item)
        if isinstance(call, ToolCall):
            self._names[call.id] = call.name
        else:
            self._names[call.call_id] = ASK_USER_QUESTION
        self._say(item_id, call)

    def _say(self, item_id: str, *blocks: Block) -> None:
        if self._results:
            self.end_step()
        if not self._blocks:
            self._first_id = item_id
        self._blocks += blocks


def _is_output(item: JsonObject) -> bool:
    """Whether the agent made an item, which then belongs to the same response as the one before it."""
    kind = item.get("type") or ("message" if item else "")
    if kind == "message":
        return item.get("role") == "assistant"
    return bool(kind) and kind not in ("function_call_output", "mcp_approval_response")


def _to_blocks(item: JsonObject) -> tuple[Block, ...]:
    """The texts and images of a message or of reasoning."""
    if item.get("type") == "reasoning":
        parts = item.get("summary") or item.get("content") or ()
        return tuple(Thinking(text=str(each.get("text") or "")) for each in parts)
    content = item.get("content")
    if isinstance(content, str):
        return (Text(text=content),)
    blocks: list[Block] = []
    for each in content or ():
        if each.get("image_url"):
            blocks.append(Image(url=str(each["image_url"])))
        elif each.get("type") == "output_text":
            blocks.append(parse_part(str(each.get("text") or "")))
        elif (text := each.get("text") or each.get("refusal")) is not None:
            blocks.append(Text(text=str(text)))
    return tuple(blocks)


def _output_text(item: JsonObject) -> str:
    output = item.get("output")
    if isinstance(output, str):
        return output
    return "".join(str(each.get("text") or "") for each in output or ())
