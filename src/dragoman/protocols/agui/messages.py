"""Messages and content of the core in the form of AG-UI. Pure.

Source: specification of AG-UI, B.3, B.5, B.9; shared rules, 12 to 16.
"""

from collections.abc import Sequence

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import BlockClosed, LoggedEvent, MessageClosed, MessageOpened, PlanUpdated
from dragoman.core.history import Assembler
from dragoman.core.ids import ROOT, LoopId, MessageId, forking_call
from dragoman.protocols.agui import content as wire

METADATA_KEY = "dragoman"
"""The key of this server's own members in `metadata`."""
FRAME_BYTES = 8 * 1024 * 1024
"""Limit for the content of one event: official clients refuse frames of more than 10 MiB."""
CUT_TEXT_LIMIT = FRAME_BYTES // 8
"""Characters shown of an answer that is too long for a frame. A character takes up to six bytes in JSON."""
OMITTED_FILE_TEXT = "[a file that is too large to be shown here]"
"""Replaces a file that does not fit into a frame."""

# --- ids and metadata -------------------------------------------------------------------------------------------------


def reasoning_id(message_id: MessageId, index: int) -> str:
    """The id of a thinking block, which is a message of its own in AG-UI."""
    return f"{message_id}:thinking:{index}"


def activity_id(run_id: str, loop: LoopId) -> str:
    """The id of a run's plan, so that an updated plan replaces the previous one."""
    return f"{run_id}:plan" if loop == ROOT else f"{run_id}:plan:{subagent_of(loop)}"


def subagent_of(loop: LoopId) -> str:
    """The `subagentRunId` of a sub-agent's loop: the id of the call that started it."""
    return forking_call(loop) or loop


def subagent_run_id(loop: LoopId | None) -> str | None:
    """The `subagentRunId` of what happens in a loop; None for the root loop."""
    return None if loop is None or loop == ROOT else subagent_of(loop)


def metadata_of(**values: core.Json) -> core.JsonObject:
    """The `metadata` of an event or message with this server's own members."""
    return {METADATA_KEY: values}


# --- content ----------------------------------------------------------------------------------------------------------

FILE_PARTS: dict[str, type[wire.AudioPart | wire.VideoPart | wire.DocumentPart]] = {
    "audio": wire.AudioPart,
    "video": wire.VideoPart,
    "file": wire.DocumentPart,
}


def content_to_wire(content: str | tuple[core.InputBlock, ...]) -> wire.Content:
    """Content as clients see it: text as a string, media as parts."""
    return content if isinstance(content, str) else tuple(map(part_of, content))


def part_of(block: core.InputBlock) -> wire.Part:
    """A block as a content part."""
    match block:
        case core.Text(text=text):
            return wire.TextPart(text=text)
        case core.Data(data=data):
            return wire.TextPart(text=compact_json(data))
        case core.Image(url=url):
            return wire.ImagePart(source=_source(url, None))
        case core.File(url=url, media=media, media_type=media_type):
            return FILE_PARTS[media](source=_source(url, media_type))


def _source(url: str, media_type: str | None) -> wire.Source:
    """The source of a file: its bytes for a base64 `data:` URI, else its URL."""
    head, comma, value = url.partition(",")
    if not url.startswith("data:") or not comma or not head.endswith(";base64"):
        return wire.UrlSource(value=url, mime_type=media_type)
    declared = head.removeprefix("data:").partition(";")[0]
    return wire.DataSource(value=value, mime_type=declared or media_type or "application/octet-stream")


def fit_content(content: wire.Content, remaining_bytes: int = FRAME_BYTES) -> wire.Content:
    """Content without the files that do not fit into that many bytes."""
    if isinstance(content, str):
        return content
    parts: list[wire.Part] = []
    for part in content:
        size = 0 if isinstance(part, wire.TextPart) else len(part.source.value)
        parts.append(part if size <= remaining_bytes else wire.TextPart(text=OMITTED_FILE_TEXT))
        remaining_bytes -= size if size <= remaining_bytes else 0
    return tuple(parts)


def fit_newest_messages(messages: Sequence[wire.Message]) -> tuple[wire.Message, ...]:
    """The newest messages that fit into one frame. Old files are dropped first, then old messages.

    An answer that is too long is cut, because a snapshot without messages would empty a client's page.
    """
    remaining = FRAME_BYTES
    fitting: list[wire.Message] = []
    for message in reversed(messages):
        if isinstance(message, wire.UserMessage | wire.ToolMessage):
            message = msgspec.structs.replace(message, content=fit_content(message.content, remaining))
        size = len(msgspec.json.encode(message))
        text = message.content if isinstance(message, wire.AssistantMessage) else None
        if size > remaining and text is not None and len(text) > CUT_TEXT_LIMIT:
            cut = f"{text[:CUT_TEXT_LIMIT]} [cut: {len(text) - CUT_TEXT_LIMIT} more characters]"
            message = msgspec.structs.replace(message, content=cut)
            size = len(msgspec.json.encode(message))
        remaining -= size
        if remaining < 0:
            break
        fitting.append(message)
    return tuple(reversed(fitting))


def block_value(closed: BlockClosed) -> core.JsonObject:
    """An image, file or data block of an answer, as the value of CUSTOM `dragoman.block` (shared rules, 16)."""
    value: core.JsonObject = {"messageId": closed.message_id, "index": closed.index}
    match closed.block:
        case core.Image(url=url):
            value["type"] = "image"
        case core.File(url=url, media=media, media_type=media_type, name=name):
            value["type"] = media
            value |= {key: each for key, each in (("mimeType", media_type), ("name", name)) if each}
        case core.Data(data=data):
            return {**value, "type": "data", "data": data}
        case block:
            raise AssertionError(f"text, thinking and calls have events of their own, got {block!r}")
    return {**value, **({"url": url} if len(url) <= FRAME_BYTES else {"leftOut": OMITTED_FILE_TEXT})}


def plan_content(plan: PlanUpdated) -> core.JsonObject:
    """A plan as the content of an activity."""
    return {"status": plan.status, "steps": [{"title": each.title, "status": each.status} for each in plan.steps]}


def tool_call(call: core.Call) -> wire.ToolCall:
    """A call as a member of an assistant message."""
    function = wire.FunctionCall(name=call.name, arguments=compact_json(call.input))
    return wire.ToolCall(id=call.call_id, type="function", function=function)


# --- the whole thread -------------------------------------------------------------------------------------------------


class Transcript:
    """The messages of a thread, as a client has them that received all of its streams."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._messages: list[wire.Message] = []
        self._reasoning: dict[LoopId, list[wire.Message]] = {}
        """The finished reasoning of the step that each loop has open."""
        self._ids: set[str] = set()
        self._plans: dict[str, int] = {}
        """Where in the list each plan is."""

    def feed(self, logged: LoggedEvent) -> None:
        """Add the next event."""
        match logged.event:
            case MessageOpened(loop=loop):
                self._reasoning[loop] = []
            case BlockClosed(loop=loop, block=core.Thinking() as thinking) as closed if loop in self._reasoning:
                self._reasoning[loop] += _reasoning(closed.message_id, closed.index, thinking, loop)
            case MessageClosed(loop=loop):
                self._reasoning.pop(loop, None)
            case PlanUpdated() as plan:
                self._set_plan(activity_id(logged.run_id or "", plan.loop), plan)
        match self._assembler.feed(logged):
            case core.UserMessage(content=content, client_id=client_id, name=name) as message:
                own = client_id if client_id is not None and client_id not in self._ids else message.id
                self._ids.add(own)
                self._messages.append(wire.UserMessage(id=own, content=content_to_wire(content), name=name))
            case core.SystemMessage(origin="seed") as message:  # others are not shown (shared rules, 14)
                self._messages.append(wire.SystemMessage(id=message.id, content=message.content))
            case core.AssistantMessage() as message:
                self._messages += _step_messages(message)
            case core.ToolMessage() as message:
                self._messages.append(_tool_message(message))

    def messages(self) -> tuple[wire.Message, ...]:
        """All finished messages that fit into one event. Reasoning is finished before the step that it belongs to."""
        reasoning = (message for step in self._reasoning.values() for message in step)
        return fit_newest_messages([*self._messages, *reasoning])

    def _set_plan(self, own: str, plan: PlanUpdated) -> None:
        message = wire.ActivityMessage(
            id=own, activity_type="PLAN", content=plan_content(plan), subagent_run_id=subagent_run_id(plan.loop)
        )
        if own in self._plans:
            self._messages[self._plans[own]] = message
        else:
            self._plans[own] = len(self._messages)
            self._messages.append(message)


def _step_messages(step: core.AssistantMessage) -> list[wire.Message]:
    """A model step: its reasoning, and one message with its text and calls, in the order in which they began.

    Blocks that have no form in a message are left out.
    """
    blocks = (core.Text(step.content),) if isinstance(step.content, str) else step.content
    own = wire.AssistantMessage(
        id=step.id,
        content=core.text_of(step.content) or None,
        tool_calls=tuple(tool_call(block) for block in blocks if isinstance(block, core.Call)) or None,
        subagent_run_id=subagent_run_id(step.loop),
        metadata=metadata_of(interrupted=True) if step.status in ("cut", "interrupted") else None,
    )
    messages: list[wire.Message] = []
    for index, block in enumerate(blocks):
        if isinstance(block, core.Thinking):
            messages += _reasoning(step.id, index, block, step.loop)
        elif own not in messages and (isinstance(block, core.Call) or (isinstance(block, core.Text) and block.text)):
            messages.append(own)
    return messages


def _reasoning(message_id: MessageId, index: int, thinking: core.Thinking, loop: LoopId) -> list[wire.Message]:
    own = reasoning_id(message_id, index)
    message = wire.ReasoningMessage(id=own, content=thinking.text, subagent_run_id=subagent_run_id(loop))
    return [message] if thinking.text else []


def _tool_message(result: core.ToolMessage) -> wire.ToolMessage:
    return wire.ToolMessage(
        id=result.id,
        content=content_to_wire(result.content),
        tool_call_id=result.call_id,
        error=core.text_of(result.content) if result.is_error else None,
        subagent_run_id=subagent_run_id(result.loop),
    )
