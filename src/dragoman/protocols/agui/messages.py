"""Messages of the core → messages of AG-UI, and back where a client's are taken up. Pure.

Source: specification of the face, B.3, B.5, B.9; rulings, 12 to 16.
"""

from collections.abc import Sequence

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
)
from dragoman.core.ids import ROOT, LoopId, MessageId, forking_call
from dragoman.protocols.agui import content as wire

METADATA_KEY = "dragoman"
"""The key of our own remarks in `metadata`."""
FRAME_BYTES = 8 * 1024 * 1024
"""Of the content of one event: official clients refuse a frame of more than 10 MiB."""
CUT_TEXT_LIMIT = FRAME_BYTES // 8
"""Characters that are shown of an answer which fits into no frame: as JSON, one is at most six bytes."""
OMITTED_FILE_TEXT = "[a file that is too large to be shown here]"
"""What stands in the place of a file that does not fit."""

# --- names ------------------------------------------------------------------------------------------------------------


def reasoning_id(message_id: MessageId, index: int) -> str:
    """The id of a thinking block, which AG-UI has as a message of its own."""
    return f"{message_id}:thinking:{index}"


def activity_id(run_id: str, loop: LoopId) -> str:
    """The id of a run's plan: a changed plan replaces the one before."""
    return f"{run_id}:plan" if loop == ROOT else f"{run_id}:plan:{subagent_of(loop)}"


def subagent_of(loop: LoopId) -> str:
    """The `subagentRunId` of a sub-agent's loop: the id of the call that started it."""
    return forking_call(loop) or loop


def metadata_of(**values: core.Json) -> core.JsonObject:
    """Our remarks as an object for `metadata`, in camelCase."""
    return {METADATA_KEY: {_camel(name): value for name, value in values.items()}}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


# --- content ----------------------------------------------------------------------------------------------------------


def content_to_wire(content: str | tuple[core.InputBlock, ...]) -> wire.Content:
    """A content as it is shown: text as text, media as parts."""
    return content if isinstance(content, str) else tuple(map(part_of, content))


def fit_content(content: wire.Content, remaining_bytes: int = FRAME_BYTES) -> wire.Content:
    """A content without the files that do not fit into so many bytes."""
    if isinstance(content, str):
        return content
    parts: list[wire.Part] = []
    for part in content:
        size = 0 if isinstance(part, wire.TextPart) else len(part.source.value)
        parts.append(part if size <= remaining_bytes else wire.TextPart(text=OMITTED_FILE_TEXT))
        remaining_bytes -= size if size <= remaining_bytes else 0
    return tuple(parts)


def fit_newest_messages(messages: Sequence[wire.Message]) -> tuple[wire.Message, ...]:
    """The newest messages that fit into one frame. Old files go first, then old messages.

    Of a long answer that does not fit the beginning is shown: a snapshot without messages would empty a client's page.
    """
    left = FRAME_BYTES
    found: list[wire.Message] = []
    for message in reversed(messages):
        if isinstance(message, wire.UserMessage | wire.ToolMessage):
            message = msgspec.structs.replace(message, content=fit_content(message.content, left))
        size = len(msgspec.json.encode(message))
        if (
            size > left
            and isinstance(message, wire.AssistantMessage)
            and len(words := message.content or "") > CUT_TEXT_LIMIT
        ):
            shown = f"{words[:CUT_TEXT_LIMIT]} [cut: {len(words) - CUT_TEXT_LIMIT} more characters]"
            message = msgspec.structs.replace(message, content=shown)
            size = len(msgspec.json.encode(message))
        left -= size
        if left < 0:
            break
        found.append(message)
    return tuple(reversed(found))


def part_of(block: core.InputBlock) -> wire.Part:
    """A block as a part."""
    match block:
        case core.Text(text=text):
            return wire.TextPart(text=text)
        case core.Data(data=data):
            return wire.TextPart(text=compact_json(data))
        case core.Image(url=url):
            return wire.ImagePart(source=source_of(url, None))
        case core.File(url=url, media="audio", media_type=media_type):
            return wire.AudioPart(source=source_of(url, media_type))
        case core.File(url=url, media="video", media_type=media_type):
            return wire.VideoPart(source=source_of(url, media_type))
        case core.File(url=url, media_type=media_type):
            return wire.DocumentPart(source=source_of(url, media_type))


def source_of(url: str, media_type: str | None) -> wire.Source:
    """Where a file's bytes are: in a `data:` URI's case, here."""
    head, comma, value = url.partition(",")
    if not url.startswith("data:") or not comma or not head.endswith(";base64"):
        return wire.UrlSource(value=url, mime_type=media_type)
    declared = head.removeprefix("data:").partition(";")[0]
    return wire.DataSource(value=value, mime_type=declared or media_type or "application/octet-stream")


def block_value(closed: BlockClosed) -> core.JsonObject:
    """An image or data block of an answer, as the value of CUSTOM `dragoman.block` (rulings, 16)."""
    block = closed.block
    value: core.JsonObject = {"messageId": closed.message_id, "index": closed.index}
    match block:
        case core.Image(url=url):
            return {**value, "type": "image", **_address(url)}
        case core.File(url=url, media=media, media_type=media_type, name=name):
            about = {"mimeType": media_type, "name": name}
            return {**value, "type": media, **_address(url), **{key: each for key, each in about.items() if each}}
        case core.Data(data=data):
            return {**value, "type": "data", "data": data}
        case _:
            raise AssertionError(f"text, thinking and calls have events of their own, got {block!r}")


def _address(url: str) -> core.JsonObject:
    return {"url": url} if len(url) <= FRAME_BYTES else {"leftOut": OMITTED_FILE_TEXT}


def plan_content(plan: PlanUpdated) -> core.JsonObject:
    """A plan as the content of an activity."""
    return {"status": plan.status, "steps": [{"title": each.title, "status": each.status} for each in plan.steps]}


# --- the whole thread -------------------------------------------------------------------------------------------------


class _OpenStep:
    """A model step that is not closed yet."""

    def __init__(self, loop: LoopId) -> None:
        self.loop = loop
        self.parts: list[wire.Message] = []
        self.texts: list[str] = []
        self.calls: list[wire.ToolCall] = []
        self.message_index: int | None = None
        """Where among `parts` the assistant's own message stands: where its first words or its first call came."""


class Transcript:
    """The messages of a thread, event by event: what the client that saw all of its streams holds."""

    def __init__(self) -> None:
        self._messages: list[wire.Message] = []
        self._open: dict[LoopId, _OpenStep] = {}
        self._ids: set[str] = set()
        self._plans: dict[str, int] = {}

    def feed(self, logged: LoggedEvent) -> None:
        """Take the next event."""
        match logged.event:
            case MessageAdded(message=message):
                self._add_message(message)
            case MessageOpened(loop=loop):
                self._open[loop] = _OpenStep(loop)
            case BlockClosed(loop=loop) as closed if loop in self._open:
                self._add_block(self._open[loop], closed)
            case CallOpened(loop=loop, call=call) if loop in self._open:
                step = self._open[loop]
                step.message_index = len(step.parts) if step.message_index is None else step.message_index
                step.calls.append(tool_call(call))
            case MessageClosed(loop=loop) as closed if loop in self._open:
                self._messages += _step_messages(self._open.pop(loop), closed)
            case CallSettled() as settled:
                self._messages.append(_tool_message(settled))
            case PlanUpdated(loop=loop) as plan:
                self._set_plan(activity_id(logged.run_id or "", loop), plan)
            case _:
                pass

    def messages(self) -> tuple[wire.Message, ...]:
        """All messages that are complete, as far as they fit into one event.

        A thinking is complete before the step is that it belongs to.
        """
        thought = (part for step in self._open.values() for part in step.parts)
        return fit_newest_messages([*self._messages, *thought])

    def _add_message(self, message: core.Message) -> None:
        match message:
            case core.UserMessage(client_id=client_id, name=name):
                own = client_id if client_id is not None and client_id not in self._ids else message.id
                self._ids.add(own)
                self._messages.append(wire.UserMessage(id=own, content=content_to_wire(message.content), name=name))
            case core.SystemMessage(origin="seed"):
                self._messages.append(wire.SystemMessage(id=message.id, content=message.content))
            case core.AssistantMessage():
                blocks = (core.Text(message.content),) if isinstance(message.content, str) else message.content
                step = _OpenStep(message.loop)
                for index, block in enumerate(blocks):
                    if isinstance(block, core.Call):
                        step.message_index = len(step.parts) if step.message_index is None else step.message_index
                        step.calls.append(tool_call(block))
                    else:
                        self._add_block(step, BlockClosed(message_id=message.id, index=index, block=block))
                self._messages += _step_messages(step, MessageClosed(message_id=message.id, loop=message.loop))
            case core.ToolMessage():
                self._messages.append(_tool_message(CallSettled(outcome="done", result=message)))
            case _:
                pass  # other doors' notes (rulings, 14)

    def _add_block(self, step: _OpenStep, closed: BlockClosed) -> None:
        match closed.block:
            case core.Text(text=text) if text:
                step.message_index = len(step.parts) if step.message_index is None else step.message_index
                step.texts.append(text)
            case core.Thinking(text=text) if text:
                own = reasoning_id(closed.message_id, closed.index)
                step.parts.append(
                    wire.ReasoningMessage(id=own, content=text, subagent_run_id=_subagent_run_id(step.loop))
                )
            case _:
                pass  # what has no form in a message

    def _set_plan(self, own: str, plan: PlanUpdated) -> None:
        message = wire.ActivityMessage(
            id=own, activity_type="PLAN", content=plan_content(plan), subagent_run_id=_subagent_run_id(plan.loop)
        )
        if own in self._plans:
            self._messages[self._plans[own]] = message
        else:
            self._plans[own] = len(self._messages)
            self._messages.append(message)


def tool_call(call: core.Call) -> wire.ToolCall:
    """A call as a part of an assistant message."""
    return wire.ToolCall(
        id=call.call_id, type="function", function=wire.FunctionCall(name=call.name, arguments=compact_json(call.input))
    )


def _step_messages(step: _OpenStep, closed: MessageClosed) -> list[wire.Message]:
    """The messages of one model step: its thinkings, and what it said and called, in the order of their beginnings."""
    if step.message_index is None:
        return step.parts
    own = wire.AssistantMessage(
        id=closed.message_id,
        content="".join(step.texts) or None,
        tool_calls=tuple(step.calls) or None,
        subagent_run_id=_subagent_run_id(step.loop),
        metadata=metadata_of(interrupted=True) if closed.status in ("cut", "interrupted") else None,
    )
    return [*step.parts[: step.message_index], own, *step.parts[step.message_index :]]


def _tool_message(settled: CallSettled) -> wire.ToolMessage:
    result = settled.result
    return wire.ToolMessage(
        id=result.id,
        content=content_to_wire(result.content),
        tool_call_id=result.call_id,
        error=core.text_of(result.content) if result.is_error else None,
        subagent_run_id=_subagent_run_id(result.loop),
    )


def _subagent_run_id(loop: LoopId) -> str | None:
    return None if loop == ROOT else subagent_of(loop)
