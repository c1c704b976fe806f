"""Messages and content of the core in the form of AG-UI. Pure.

Source: specification of AG-UI, B.3, B.5, B.9; shared rules, 12 to 16.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter

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
    MessageClosed,
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

FILE_PARTS: dict[str, type[agui_content.AudioPart | agui_content.VideoPart | agui_content.DocumentPart]] = {
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


class _OpenStep:
    """A step that a loop has open: its finished reasoning, and where its message begins."""

    __slots__ = ("begin", "has_text", "reasoning")

    def __init__(self) -> None:
        self.reasoning: list[tuple[Cursor, agui_content.Message]] = []
        self.begin: Cursor | None = None
        self.has_text = False
        """Whether its message has a text, which is empty if there is only something beside it."""

    def close_block(self, closed: BlockClosed, seq: int) -> None:
        """Add a block other than a call."""
        place = Cursor(closed.cuts[0].after, closed.cuts[0].first) if closed.cuts else Cursor(seq)
        if isinstance(closed.block, core.Thinking):
            messages = _reasoning(closed.message_id, closed.index, closed.block, closed.loop)
            self.reasoning += [(place, each) for each in messages]
        elif closed.block != core.Text(""):
            self.begin_message(place)

    def begin_message(self, place: Cursor, *, has_text: bool = True) -> None:
        """Note that the message begins there, unless it has begun before."""
        self.begin = place if self.begin is None else min(self.begin, place)
        self.has_text = self.has_text or has_text


class Transcript:
    """What a client has of a thread that received all of its streams: messages, and the events that it keeps beside."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._messages: list[tuple[Cursor, agui_content.Message]] = []
        """With the places at which they began; results have those of their calls, as clients place them."""
        self._call_places: dict[str, Cursor] = {}
        self._steps: dict[LoopId, _OpenStep] = {}
        self._shown: list[Custom] = []
        """The cards, images, files and data of answers."""
        self._ids: set[str] = set()
        self._plans: dict[str, int] = {}
        """Where plans are among the messages."""

    def feed(self, logged: LoggedEvent) -> None:
        """Add the next event."""
        step: _OpenStep | None = None
        match logged.event:
            case MessageOpened(loop=loop):
                self._steps[loop] = _OpenStep()
            case BlockClosed(loop=loop, block=block) as closed if loop in self._steps:
                self._steps[loop].close_block(closed, logged.seq)
                if not isinstance(block, core.Text | core.Thinking):
                    self._shown.append(block_event(closed, milliseconds(logged.at)))
            case CallOpened(loop=loop) if loop in self._steps:
                self._steps[loop].begin_message(Cursor(logged.seq), has_text=False)
            case MessageClosed(loop=loop, status=status) if loop in self._steps:
                step = self._steps.pop(loop)
                if status == "cut" and step.reasoning:
                    step.begin_message(Cursor(logged.seq))
            case PlanUpdated() as plan:
                self._set_plan(activity_id(logged.run_id or "", plan.loop), plan, logged.seq)
            case CardUpdated() as update:
                self._add_card(update, logged)
        message = self._assembler.feed(logged)
        if isinstance(message, core.AssistantMessage):
            self._add_step(message, step, logged)
        elif isinstance(message, core.ToolMessage):
            self._add_result(message, logged)
        elif message is not None:
            self._add_input(message, Cursor(logged.seq))

    def messages(self) -> tuple[agui_content.Message, ...]:
        """All finished messages that fit into one event. Reasoning is finished before the step that it belongs to."""
        reasoning = (each for step in self._steps.values() for each in step.reasoning)
        placed = sorted([*self._messages, *reasoning], key=itemgetter(0))
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

    def _add_card(self, update: CardUpdated, logged: LoggedEvent) -> None:
        card = card_event(update, milliseconds(logged.at))
        if card is not None:
            self._shown.append(card)
            if update.loop in self._steps:
                self._steps[update.loop].begin_message(Cursor(logged.seq))

    def _add_step(self, message: core.AssistantMessage, step: _OpenStep | None, logged: LoggedEvent) -> None:
        """Add a model step, or a seed that is one."""
        if step is None:
            self._shown += _blocks_of_seed(message, milliseconds(logged.at))
            placed = [(Cursor(logged.seq, index), each) for index, each in enumerate(_step_messages(message))]
        else:
            placed = step.reasoning
            if step.begin is not None:
                placed.append((step.begin, _assistant_message(message, has_text=step.has_text)))
        self._messages += placed
        for place, each in placed:
            if isinstance(each, agui_content.AssistantMessage):
                self._call_places |= {call.id: place for call in each.tool_calls or ()}

    def _add_input(self, message: core.UserMessage | core.SystemMessage, place: Cursor) -> None:
        if isinstance(message, core.UserMessage):
            client_id = message.client_id
            message_id = client_id if client_id is not None and client_id not in self._ids else message.id
            self._ids.add(message_id)
            content = content_to_wire(message.content)
            self._messages.append((place, agui_content.UserMessage(id=message_id, content=content, name=message.name)))
        elif message.origin == "seed":  # others are not shown (shared rules, 14)
            self._messages.append((place, agui_content.SystemMessage(id=message.id, content=message.content)))

    def _add_result(self, result: core.ToolMessage, logged: LoggedEvent) -> None:
        outcome = logged.event.outcome if isinstance(logged.event, CallSettled) else "done"
        place = self._call_places.get(result.call_id, Cursor(logged.seq))
        self._messages.append((place, _tool_message(result, outcome)))

    def _set_plan(self, plan_id: str, plan: PlanUpdated, seq: int) -> None:
        message = agui_content.ActivityMessage(
            id=plan_id, activity_type="PLAN", content=plan.content(), subagent_run_id=subagent_run_id(plan.loop)
        )
        if (index := self._plans.get(plan_id)) is not None:
            self._messages[index] = (self._messages[index][0], message)
        else:
            self._plans[plan_id] = len(self._messages)
            self._messages.append((Cursor(seq), message))


def _blocks_of_seed(seed: core.AssistantMessage, at: int) -> list[Custom]:
    return [
        block_event(BlockClosed(message_id=seed.id, index=index, block=block, loop=seed.loop), at)
        for index, block in enumerate(core.blocks_of(seed.content))
        if not isinstance(block, core.Text | core.Thinking | core.Call)
    ]


def _step_messages(step: core.AssistantMessage) -> list[agui_content.Message]:
    """A whole model step: its reasoning, and one message with the rest, in the order in which they began."""
    blocks = core.blocks_of(step.content)
    messages: list[agui_content.Message] = []
    answer = _assistant_message(step, has_text=any(not isinstance(each, core.Call | core.Thinking) for each in blocks))
    for index, block in enumerate(blocks):
        if isinstance(block, core.Thinking):
            messages += _reasoning(step.id, index, block, step.loop)
        elif answer not in messages and block != core.Text(""):
            messages.append(answer)
    return messages


def _assistant_message(step: core.AssistantMessage, *, has_text: bool) -> agui_content.AssistantMessage:
    return agui_content.AssistantMessage(
        id=step.id,
        content=core.text_of(step.content) if has_text else None,
        tool_calls=tuple(map(tool_call, step.calls())) or None,
        subagent_run_id=subagent_run_id(step.loop),
        metadata=STATUS_METADATA.get(step.status),
    )


def _reasoning(message_id: MessageId, index: int, thinking: core.Thinking, loop: LoopId) -> list[agui_content.Message]:
    own_id = reasoning_id(message_id, index)
    message = agui_content.ReasoningMessage(id=own_id, content=thinking.text, subagent_run_id=subagent_run_id(loop))
    return [message] if thinking.text else []


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
