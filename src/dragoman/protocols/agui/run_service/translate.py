"""The run service and the core, in both directions. Pure.

Its stream is AG-UI's own sequence of events, with the fields that this service adds riding on them. What it has no form
for is left out: plans, sub-agents' own doings, blocks that are no text, figures of cost (rulings, 16).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    CardUpdated,
    LoggedEvent,
    MessageClosed,
    RunQueued,
    RunStarted,
    RunStopped,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId
from dragoman.core.inputs import Answer, Decision, Result, StoredImage, Submit, UserInput
from dragoman.core.refusals import InvalidAnswer
from dragoman.core.session import SessionState
from dragoman.core.stream import Record
from dragoman.core.tools import ToolSpec
from dragoman.core.ui_schema import compile_card
from dragoman.protocols.agui import events as agui
from dragoman.protocols.agui import translate as agui_translate
from dragoman.protocols.agui.content import Cancelled, Interrupted, Outcome
from dragoman.protocols.agui.messages import metadata_of
from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.rules import client_time_of
from dragoman.protocols.agui.translate import VERSION, Translator

PROTOCOL = "runs"
FAILED_MESSAGE = "runtime execution failed"

MESSAGE_STATUS: Mapping[core.MessageStatus, str] = {
    "completed": "success",
    "interrupted": "partial_success",
    "cut": "partial_success",
    "failed": "failed",
}

# --- wire → core ------------------------------------------------------------------------------------------------------


def submit_from(body: wire.RunAgentInput, state: SessionState, path_of: Callable[[str], str]) -> Submit:
    """A run as the core takes it.

    Args:
        body: the request; its rules hold.
        state: the session as it is now.
        path_of: the object behind a signed link of ours.
    """
    props: core.JsonObject = {}
    if body.state is not None:
        props["state"] = body.state
    if body.context:
        props["context"] = [{"description": each.description, "value": each.value} for each in body.context]
    if (client_time := client_time_of(body)) is not None:
        props["client_time"] = client_time
    if body.parent_run_id is not None:
        props["parent_run_id"] = body.parent_run_id
    user = body.user
    content = (
        user.content
        if isinstance(user.content, str)
        else tuple(
            core.Text(part.text) if isinstance(part, wire.TextPart) else _stored_picture(part, path_of)
            for part in user.content
        )
    )
    return Submit(
        protocol=PROTOCOL,
        messages=(UserInput(content=content, client_id=user.id, name=user.name),),
        answers=tuple(results_from(body, state)),
        client_run_id=body.run_id,
        client_tools=tuple(
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in {tool.name: tool for tool in body.tools or ()}.values()
        ),
        metadata=props,
    )


def _stored_picture(part: wire.Part, path_of: Callable[[str], str]) -> StoredImage:
    picture = wire.picture_of(part)
    assert picture is not None, "what is no text is a picture"
    assert picture.url is not None, "the rules ask for it"
    return StoredImage(path_of(picture.url))


def results_from(body: wire.RunAgentInput, state: SessionState) -> Iterable[Result]:
    """The results that answer open calls of front-end tools, each once. Whatever else a client claims has no effect.

    While a run is active or queued nothing waits for an answer that this message could bring.
    """
    if is_busy(state):
        return
    given = {each.tool_call_id: each for each in reversed(body.messages) if isinstance(each, wire.ToolMessage)}
    for call in state.waiting_calls():
        message = given.get(call.call.call_id)
        if message is not None and call.kind == "client" and not call.parked:
            text = message.content or message.error or ""
            yield Result(call_id=call.call.call_id, content=text, is_error=bool(message.error))


def answers_from(body: wire.Answers) -> tuple[Answer, ...]:
    """Answers as the core takes them. Raises InvalidAnswer when one says nothing, or two things at once."""
    return tuple(_answer_from(answer, f"answers[{place}]") for place, answer in enumerate(body.answers))


def _answer_from(answer: wire.Answer, path: str) -> Answer:
    call_id = CallId(answer.call_id)
    chosen = {name: value for name in ("selections", "custom") if (value := getattr(answer, name)) is not None}
    if (answer.granted is not None) + (answer.result is not msgspec.UNSET) + bool(chosen) != 1:
        raise InvalidAnswer("an answer has granted, or result, or selections and custom", path=path)
    if answer.granted is not None:
        return Decision(call_id=call_id, granted=answer.granted, reason=answer.reason)
    if chosen:
        return Result(call_id=call_id, content=compact_json(chosen))
    return Result(
        call_id=call_id, content=answer.result if isinstance(answer.result, str) else compact_json(answer.result)
    )


def continued_metadata(metadata: core.JsonObject) -> core.JsonObject:
    """What a run that goes on keeps of the one that asked: the time, the state and the context, not its parent."""
    return {name: value for name, value in metadata.items() if name != "parent_run_id"}


# --- cards ------------------------------------------------------------------------------------------------------------


class CardTracker:
    """Which message a card belongs to: the one that is open when it is shown, else the run's next one with a text."""

    def __init__(self) -> None:
        self._card: core.Json = None

    def feed(self, logged: LoggedEvent) -> None:
        """Take the next event of the log."""
        match logged.event:
            case RunStarted():
                self._card = None
            case CardUpdated(card=card, loop=loop) if loop == ROOT:
                self._card = card

    def take_schema(self, locale: str) -> core.JsonObject | None:
        """The tree of the message whose text is complete now; what there was is used up."""
        card, self._card = self._card, None
        return None if card is None else compile_card(card, locale)


def locale_of(metadata: Mapping[str, core.Json]) -> str:
    """The locale of a run's answers: the profile's when it began."""
    locale = metadata.get("locale")
    return locale if isinstance(locale, str) else "en"


# --- the stream -------------------------------------------------------------------------------------------------------

_OMITTED_EVENTS = (agui.Custom, agui.ActivitySnapshot, agui.SubagentStarted, agui.SubagentFinished, agui.SubagentError)


class StreamEvent(NamedTuple):
    """An event as it goes out."""

    id: wire.EventId
    type: str
    body: core.JsonObject

    def encode_frame(self) -> bytes:
        """It as a server-sent event, LF alone."""
        data = msgspec.json.encode(self.body)
        return b"id: %d-%d\nevent: %b\ndata: %b\n\n" % (*self.id, self.type.encode(), data)


class CallInfo(NamedTuple):
    """A call, as later events speak of it."""

    message_id: MessageId
    name: str
    arguments: core.JsonObject


Calls = Mapping[CallId, CallInfo]


class OpenCallFinder:
    """Finds the calls that a run left to be answered, reading the log backwards from where the next one begins."""

    def __init__(self) -> None:
        self.calls: dict[CallId, CallInfo] = {}

    def feed(self, page: Sequence[LoggedEvent]) -> bool:
        """Take the events just before those so far; whether all of the run is there that could have left some."""
        for logged in reversed(page):
            match logged.event:
                case RunStarted():
                    return True
                case RunStopped(run_id=run_id, reason="end_turn") if run_id == logged.run_id:
                    return True
                case CallOpened(loop="root") as opened:
                    self.calls[opened.call.call_id] = _call_info(opened)
        return False


def _call_info(opened: CallOpened) -> CallInfo:
    return CallInfo(opened.message_id, opened.call.name, opened.call.input)


class RunEvents:
    """Turns the records of one run into events. The same records give the same events under the same ids."""

    def __init__(self, run_id: RunId, thread_id: str, calls: Calls) -> None:
        """Begin.

        Args:
            run_id: the run.
            thread_id: its thread.
            calls: those that the run before left open: this one may tell their results.
        """
        self._run_id = run_id
        self._events = Translator(run_id, thread_id=thread_id)
        self._run_fields: core.JsonObject = {"threadId": thread_id, "runId": run_id}
        self._work_fields = self._run_fields
        """What events of the agent's work carry: in a stage, that too."""
        self._cards = CardTracker()
        self._locale = "en"
        self._texts: dict[str, list[str]] = {}
        self.calls = dict(calls)
        """Those that are open."""
        self._event_id = wire.START_EVENT_ID
        self._was_stopped_in_queue = False
        """Whether the run ended before its turn came."""

    @property
    def is_over(self) -> bool:
        """Whether the last event was the run's end."""
        return self._events.is_over or self._was_stopped_in_queue

    def feed(self, record: Record) -> list[StreamEvent]:
        """The events of a record, in order."""
        if isinstance(record, LoggedEvent):
            self._event_id = wire.EventId(record.seq, -1)
            self._observe(record)
        shown = [each for each in self._events.feed(record) if _is_included(each)] or self._stopped_before_start(record)
        sent: list[StreamEvent] = []
        for event in shown:
            self._event_id = self._event_id._replace(ordinal=self._event_id.ordinal + 1)
            body = self._body(event, record)
            if isinstance(event, agui.ToolCallEnd):  # the part before it was the last of the arguments
                sent[-1].body["args"] = self.calls[CallId(event.tool_call_id)].arguments
            sent.append(StreamEvent(self._event_id, body["type"], body))
        if isinstance(record, LoggedEvent) and isinstance(record.event, CallSettled):
            self.calls.pop(record.event.result.call_id, None)
        return sent

    def _stopped_before_start(self, record: Record) -> list[agui.Event]:
        """A run that was stopped while it waited for its turn: it begins and ends at once."""
        stopped = record.event if isinstance(record, LoggedEvent) else None
        if not isinstance(stopped, RunStopped) or stopped.run_id != self._run_id or self._events.is_over:
            return []
        self._was_stopped_in_queue = True
        names = {"thread_id": self._run_fields["threadId"], "run_id": self._run_fields["runId"]}
        return [agui.RunStarted(**names, protocol_version=VERSION), agui.RunFinished(**names, outcome=Cancelled())]

    def _observe(self, logged: LoggedEvent) -> None:
        self._cards.feed(logged)
        match logged.event:
            case RunStarted(run_id=run_id) | RunQueued(run_id=run_id) as run if run_id == self._run_id:
                self._run_fields["runId"] = run.client_run_id or run.run_id
                self._locale = locale_of(run.metadata)
            case CallOpened(loop="root") as opened:
                self.calls[opened.call.call_id] = _call_info(opened)

    def _body(self, event: agui.Event, record: Record) -> core.JsonObject:
        """An event with the fields that this service adds."""
        match event:
            case agui.TextMessageContent(message_id=message_id, delta=delta):
                self._texts[message_id].append(delta)
                return {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": delta, **self._work_fields}
            case agui.TextMessageStart(message_id=message_id):
                self._texts[message_id] = []
                return {**_to_builtins(event), **self._work_fields}
            case agui.TextMessageEnd(message_id=message_id):
                return {**_to_builtins(event), **self._work_fields, **self._answer_fields(message_id, record)}
            case agui.ToolCallStart(tool_call_id=call_id):
                return {**_to_builtins(event), **self._work_fields, "messageId": self.calls[CallId(call_id)].message_id}
            case agui.ToolCallArgs(tool_call_id=call_id) | agui.ToolCallEnd(tool_call_id=call_id):
                return {**_to_builtins(event), **self._work_fields, **self._call_fields(call_id)}
            case agui.ToolCallResult():
                return {**_to_builtins(event), **self._work_fields, **self._result_fields(record)}
            case agui.StepStarted(step_name=stage):
                self._work_fields = {**self._run_fields, "stage": stage}
                return {**_to_builtins(event), **self._run_fields}
            case agui.StepFinished():
                self._work_fields = self._run_fields
                return {**_to_builtins(event), **self._run_fields}
            case agui.RunStarted():
                return {**_to_builtins(event), **self._warning_fields(record)}
            case agui.RunFinished():
                return _to_builtins(
                    msgspec.structs.replace(event, usage=None, outcome=_outcome_without_subagents(event))
                )
            case agui.RunError():
                return {
                    **_to_builtins(msgspec.structs.replace(event, usage=None)),
                    **self._run_fields,
                    **_failure_fields(record),
                }
            case _:
                return {**_to_builtins(event), **self._work_fields}

    def _answer_fields(self, message_id: str, record: Record) -> core.JsonObject:
        closed = record.event if isinstance(record, LoggedEvent) else None
        schema = self._cards.take_schema(self._locale)
        return {
            "role": "assistant",
            "status": MESSAGE_STATUS[closed.status] if isinstance(closed, MessageClosed) else "success",
            "answer": "".join(self._texts.pop(message_id)),
            "key_points": [],
            **({} if schema is None else {"ui_schema": schema}),
        }

    def _call_fields(self, call_id: str) -> core.JsonObject:
        call = self.calls[CallId(call_id)]
        return {"messageId": call.message_id, "toolCallName": call.name}

    def _result_fields(self, record: Record) -> core.JsonObject:
        assert isinstance(record, LoggedEvent), "a result is an event of the log"
        assert isinstance(record.event, CallSettled), "a result is told when its call is settled"
        outcome, result = record.event.outcome, record.event.result
        text = core.text_of(result.content)
        call = self.calls.get(result.call_id)
        return {
            "content": text,
            "tool_name": result.name,
            "tool_call_id": result.call_id,
            **({} if call is None else {"tool_call_args": call.arguments}),
            "status": "success" if outcome == "done" else "failure",
            "result": text,
            **({} if outcome == "done" else {"error": text}),
        }

    def _warning_fields(self, record: Record) -> core.JsonObject:
        assert isinstance(record, LoggedEvent), "a run's start is an event of the log"
        dropped = record.event.dropped_tools if isinstance(record.event, RunStarted) else ()
        return {"metadata": metadata_of(droppedTools=dropped)} if dropped else {}


def _is_included(event: agui.Event) -> bool:
    return not isinstance(event, _OMITTED_EVENTS) and getattr(event, "subagent_run_id", None) is None


def _to_builtins(event: agui.Event) -> core.JsonObject:
    built: core.JsonObject = msgspec.to_builtins(event)
    return built


def _outcome_without_subagents(event: agui.RunFinished) -> Outcome:
    """The outcome without a word of sub-agents, of which this stream tells nothing."""
    if not isinstance(event.outcome, Interrupted):
        return event.outcome
    interrupts = [msgspec.structs.replace(each, subagent_run_id=None) for each in event.outcome.interrupts]
    return Interrupted(interrupts=tuple(interrupts))


def _failure_fields(record: Record) -> core.JsonObject:
    assert isinstance(record, LoggedEvent), "a run's end is an event of the log"
    message = record.event.message if isinstance(record.event, RunStopped) else None
    return {"message": FAILED_MESSAGE if message in (None, agui_translate.FAILED_MESSAGE) else message}


class ThreadEvents:
    """The events of a thread's runs, one after the other, or of one of them alone, behind a position."""

    def __init__(
        self,
        thread_id: str,
        *,
        only_run_id: RunId | None = None,
        after: wire.EventId = wire.START_EVENT_ID,
        calls: Calls,
    ) -> None:
        self._thread_id = thread_id
        self._only_run_id = only_run_id
        self._after = after
        self._calls = calls
        """What was left open where reading begins."""
        self._run = None if only_run_id is None else RunEvents(only_run_id, thread_id, calls)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come: the one run has ended."""
        return self._only_run_id is not None and self._run is not None and self._run.is_over

    @property
    def is_open(self) -> bool:
        """Whether a run is being told."""
        return self._run is not None and not self._run.is_over

    def feed(self, record: Record) -> list[StreamEvent]:
        """The events of a record that lie behind the position, in order."""
        started = record.event if isinstance(record, LoggedEvent) else None
        if isinstance(started, RunStarted) and self._only_run_id is None:
            calls = self._calls if self._run is None else self._run.calls
            self._run = RunEvents(started.run_id, self._thread_id, calls)
        if self._run is None or self._run.is_over:
            return []
        return [sent for sent in self._run.feed(record) if sent.id > self._after]


def active_run_start(events: Sequence[LoggedEvent]) -> int | None:
    """Where, in a stretch of the log, the run began that is under way at its end; 0 when none is.

    None when the stretch does not reach back far enough to tell.
    """
    for logged in reversed(events):
        match logged.event:
            case RunStarted():
                return logged.seq
            case RunStopped(run_id=run_id) if run_id == logged.run_id:
                return 0
    return None
