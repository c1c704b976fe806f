"""Messages and content of the core in the form of AG-UI. Pure.

Source: specification of AG-UI, B.3, B.5, B.9; shared rules, 12 to 16.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallOutcome,
    CallSettled,
    CardUpdated,
    LoggedEvent,
    MessageAdded,
    MessageOpened,
    PlanUpdated,
)
from dragoman.core.history import Assembler
from dragoman.core.ids import ROOT, LoopId, MessageId, forking_call
from dragoman.core.stream import Cursor
from dragoman.core.ui_schema import compile_card
from dragoman.protocols.agui import content as agui_content
from dragoman.protocols.agui.events import Custom

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
    """The id of a thinking block, which is a separate message in AG-UI."""
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


STATUS_METADATA: Mapping[core.MessageStatus, core.JsonObject] = {
    "interrupted": metadata_of(interrupted=True),
    "cut": metadata_of(interrupted=True, cut=True),
    "failed": metadata_of(failed=True),
}
"""The metadata of a message that is not complete. The step of a cut one is repeated as another message."""


# --- content ----------------------------------------------------------------------------------------------------------

FILE_PARTS: Mapping[Literal["audio", "video", "file"], type[agui_content.FilePart]] = {
    "audio": agui_content.AudioPart,
    "video": agui_content.VideoPart,
    "file": agui_content.DocumentPart,
}


def content_to_wire(content: str | tuple[core.InputBlock, ...]) -> agui_content.Content:
    """Content as clients see it: text as a string, media as parts."""
    return content if isinstance(content, str) else tuple(map(_part_of, content))


def _part_of(block: core.InputBlock) -> agui_content.Part:
    match block:
        case core.Text(text=text):
            return agui_content.TextPart(text=text)
        case core.Data(data=data):
            return agui_content.TextPart(text=compact_json(data))
        case core.Image(url=url):
            return agui_content.ImagePart(source=_source(url, None))
        case core.File(url=url, media=media, media_type=media_type):
            return FILE_PARTS[media](source=_source(url, media_type))


def _source(url: str, media_type: str | None) -> agui_content.Source:
    """The source of a file: its bytes for a base64 `data:` URI, else its URL."""
    uri = core.parse_data_uri(url)
    if uri is None:
        return agui_content.UrlSource(value=url, mime_type=media_type)
    mime_type = uri.media_type or media_type or "application/octet-stream"
    return agui_content.DataSource(value=uri.data, mime_type=mime_type)


def fit_content(content: agui_content.Content, remaining_bytes: int = FRAME_BYTES) -> agui_content.Content:
    """Content without the files that do not fit into that many bytes."""
    if isinstance(content, str):
        return content
    parts: list[agui_content.Part] = []
    for part in content:
        size = 0 if isinstance(part, agui_content.TextPart) else len(part.source.value)
        parts.append(part if size <= remaining_bytes else agui_content.TextPart(text=OMITTED_FILE_TEXT))
        remaining_bytes -= size if size <= remaining_bytes else 0
    return tuple(parts)


def fit_newest_messages(messages: Sequence[agui_content.Message]) -> tuple[agui_content.Message, ...]:
    """The newest messages that fit into one frame. Old files are dropped first, then old messages.

    An answer that is too long is cut, because a snapshot without messages would empty a client's page.
    """
    remaining = FRAME_BYTES
    fitting: list[agui_content.Message] = []
    for message in reversed(messages):
        if isinstance(message, agui_content.UserMessage | agui_content.ToolMessage):
            message = msgspec.structs.replace(message, content=fit_content(message.content, remaining))
        size = len(msgspec.json.encode(message))
        text = message.content if isinstance(message, agui_content.AssistantMessage) else None
        if size > remaining and text is not None and len(text) > CUT_TEXT_LIMIT:
            cut = f"{text[:CUT_TEXT_LIMIT]} [cut: {len(text) - CUT_TEXT_LIMIT} more characters]"
            message = msgspec.structs.replace(message, content=cut)
            size = len(msgspec.json.encode(message))
        remaining -= size
        if remaining < 0:
            break
        fitting.append(message)
    return tuple(reversed(fitting))


def block_event(closed: BlockClosed, at: int) -> Custom:
    """An image, file or data block of an answer (shared rules, 16). `at` is the event's timestamp."""
    value: core.JsonObject = {"messageId": closed.message_id, "index": closed.index}
    match closed.block:
        case core.Image(url=url):
            value |= {"type": "image", **_url_members(url)}
        case core.File(url=url, media=media, media_type=media_type, name=name):
            named = {key: each for key, each in (("mimeType", media_type), ("name", name)) if each}
            value |= {"type": media, **named, **_url_members(url)}
        case core.Data(data=data):
            value |= {"type": "data", "data": data}
        case block:
            raise AssertionError(f"text, thinking and calls have their own events, got {block!r}")
    return Custom(timestamp=at, name="dragoman.block", value=value, subagent_run_id=subagent_run_id(closed.loop))


def _url_members(url: str) -> core.JsonObject:
    return {"url": url} if len(url) <= FRAME_BYTES else {"leftOut": OMITTED_FILE_TEXT}


def card_event(update: CardUpdated, at: int) -> Custom | None:
    """A card of an answer, with the id of its message. None if it is not valid."""
    schema, message_id = compile_card(update.card), update.message_id
    if schema is None:
        return None
    return Custom(
        timestamp=at,
        name="dragoman.ui_schema",
        value=schema,
        subagent_run_id=subagent_run_id(update.loop),
        metadata=None if message_id is None else metadata_of(messageId=message_id),
    )


def milliseconds(at: datetime) -> int:
    """A time as the timestamp of an event."""
    return int(at.timestamp() * 1000)


def tool_call(call: core.Call) -> agui_content.ToolCall:
    """A call as a member of an assistant message."""
    function = agui_content.FunctionCall(name=call.name, arguments=compact_json(call.input))
    return agui_content.ToolCall(id=call.call_id, type="function", function=function)


# --- the whole thread -------------------------------------------------------------------------------------------------


class _Step:
    """A model step: its blocks, calls and cards so far, each with the place where it began."""

    __slots__ = ("loop", "message_id", "parts")

    def __init__(self, message_id: MessageId, loop: LoopId) -> None:
        self.message_id = message_id
        self.loop = loop
        self.parts: list[tuple[Cursor, int, core.Block | CardUpdated]] = []
        """With their indices in the message; that of a card is not used."""

    def messages(self, answer: core.AssistantMessage | None, end: Cursor) -> list[tuple[Cursor, agui_content.Message]]:
        """Its reasoning and, if it has ended, its message, each with the place where it began.

        The message of a step with text or cards has a text, which may be empty. That of a cut step with reasoning has
        one, too: it says that the step was cut.
        """
        placed: list[tuple[Cursor, agui_content.Message]] = []
        begins: list[Cursor] = []
        has_text = False
        for place, index, part in self.parts:
            if isinstance(part, core.Thinking):
                if part.text:
                    message_id, tag = reasoning_id(self.message_id, index), subagent_run_id(self.loop)
                    message = agui_content.ReasoningMessage(id=message_id, content=part.text, subagent_run_id=tag)
                    placed.append((place, message))
            elif part != core.Text(""):
                begins.append(place)
                has_text = has_text or not isinstance(part, core.Call)
        if answer is not None and answer.status == "cut" and placed:
            begins.append(end)
            has_text = True
        if answer is not None and begins:
            placed.append((min(begins), _assistant_message(answer, has_text=has_text)))
        return placed


class Transcript:
    """What a client has of a thread that received all of its streams: messages, and the events that it keeps beside."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._messages: list[tuple[Cursor, agui_content.Message]] = []
        """With the places at which they began; results have those of their calls, as clients place them."""
        self._call_places: dict[str, Cursor] = {}
        self._steps: dict[LoopId, _Step] = {}
        """The step that each loop has open."""
        self._shown: list[Custom] = []
        """The cards, images, files and data of answers."""
        self._ids: set[str] = set()
        self._plans: dict[str, tuple[Cursor, agui_content.Message]] = {}
        """The plans by their ids, as they are now, with the places at which they began."""

    def feed(self, logged: LoggedEvent) -> None:
        """Add the next event."""
        here = Cursor(logged.seq)
        match logged.event:
            case MessageOpened(loop=loop, message_id=message_id):
                self._steps[loop] = _Step(message_id, loop)
            case MessageAdded(message=core.AssistantMessage() as seed):
                self._steps[seed.loop] = _Step(seed.id, seed.loop)
                for index, block in enumerate(core.blocks_of(seed.content)):
                    closed = BlockClosed(message_id=seed.id, index=index, block=block, loop=seed.loop)
                    self._add_block(closed, Cursor(logged.seq, index), logged.at)
            case BlockClosed(loop=loop, cuts=cuts) as closed if loop in self._steps:
                self._add_block(closed, Cursor(cuts[0].after, cuts[0].first) if cuts else here, logged.at)
            case CallOpened(loop=loop, index=index, call=call) if loop in self._steps:
                self._steps[loop].parts.append((here, index, call))
            case PlanUpdated() as plan:
                self._set_plan(activity_id(logged.run_id or "", plan.loop), plan, here)
            case CardUpdated() as update if (card := card_event(update, milliseconds(logged.at))) is not None:
                self._shown.append(card)
                if update.loop in self._steps:
                    self._steps[update.loop].parts.append((here, -1, update))
        if (message := self._assembler.feed(logged)) is not None:
            self._add_message(message, logged)

    def messages(self) -> tuple[agui_content.Message, ...]:
        """All finished messages that fit into one event. Reasoning is finished before the step that it belongs to."""
        reasoning = (each for step in self._steps.values() for each in step.messages(None, Cursor(0)))
        placed = sorted([*self._messages, *self._plans.values(), *reasoning], key=itemgetter(0))
        return fit_newest_messages([message for _, message in placed])

    def shown_beside(self) -> list[Custom]:
        """The cards, images, files and data, in order: the newest that fit into the size of one event.

        The event of an older file says that it is left out; older cards and data are missing.
        """
        remaining = FRAME_BYTES
        fitting: list[Custom] = []
        for event in reversed(self._shown):
            size = len(msgspec.json.encode(event.value))
            if size <= remaining:
                remaining -= size
                fitting.append(event)
            elif "url" in event.value:
                without = {name: each for name, each in event.value.items() if name != "url"}
                fitting.append(msgspec.structs.replace(event, value={**without, "leftOut": OMITTED_FILE_TEXT}))
        return fitting[::-1]

    def _add_message(self, message: core.Message, logged: LoggedEvent) -> None:
        here = Cursor(logged.seq)
        match message:
            case core.AssistantMessage(loop=loop):
                placed = self._steps.pop(loop).messages(message, here)
                self._messages += placed
                self._call_places |= {call.call_id: placed[-1][0] for call in message.calls()}
            case core.ToolMessage(call_id=call_id):
                outcome = logged.event.outcome if isinstance(logged.event, CallSettled) else "done"
                place = self._call_places.get(call_id, here)
                self._messages.append((place, _tool_message(message, outcome)))
            case core.UserMessage(client_id=client_id):
                message_id = client_id if client_id is not None and client_id not in self._ids else message.id
                self._ids.add(message_id)
                content = content_to_wire(message.content)
                user = agui_content.UserMessage(id=message_id, content=content, name=message.name)
                self._messages.append((here, user))
            case core.SystemMessage(content=text, origin="seed"):  # others are not shown (shared rules, 14)
                self._messages.append((here, agui_content.SystemMessage(id=message.id, content=text)))

    def _add_block(self, closed: BlockClosed, place: Cursor, at: datetime) -> None:
        """Add a block to the open step of its loop."""
        self._steps[closed.loop].parts.append((place, closed.index, closed.block))
        if not isinstance(closed.block, core.Text | core.Thinking | core.Call):
            self._shown.append(block_event(closed, milliseconds(at)))

    def _set_plan(self, plan_id: str, plan: PlanUpdated, here: Cursor) -> None:
        message = agui_content.ActivityMessage(
            id=plan_id, activity_type="PLAN", content=plan.content(), subagent_run_id=subagent_run_id(plan.loop)
        )
        place, _ = self._plans.get(plan_id, (here, None))
        self._plans[plan_id] = (place, message)


def _assistant_message(step: core.AssistantMessage, *, has_text: bool) -> agui_content.AssistantMessage:
    return agui_content.AssistantMessage(
        id=step.id,
        content=core.text_of(step.content) if has_text else None,
        tool_calls=tuple(map(tool_call, step.calls())) or None,
        subagent_run_id=subagent_run_id(step.loop),
        metadata=STATUS_METADATA.get(step.status),
    )


def outcome_metadata(outcome: CallOutcome) -> core.JsonObject | None:
    """The metadata of a result that says how the call ended, if it did not succeed."""
    return None if outcome == "done" else metadata_of(outcome=outcome)


def _tool_message(result: core.ToolMessage, outcome: CallOutcome) -> agui_content.ToolMessage:
    return agui_content.ToolMessage(
        id=result.id,
        content=content_to_wire(result.content),
        tool_call_id=result.call_id,
        error=core.text_of(result.content) if result.is_error else None,
        subagent_run_id=subagent_run_id(result.loop),
        metadata=outcome_metadata(outcome),
    )
