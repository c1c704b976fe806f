"""Requests of the run service → input of the core, and records of the core → events of the run service. Pure.

The stream is the AG-UI event sequence with additional fields. What the service has no form for is left out: plans, the
events of sub-agents (except for calls about which a person decides), blocks that are not text, and token counts (shared
rules, 16).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.answers import compact_json
from dragoman.core.cards import CardTracker
from dragoman.core.events import CallOpened, CallSettled, LoggedEvent, MessageClosed, RunQueued, RunStarted, RunStopped
from dragoman.core.history_days import HistoryEntry
from dragoman.core.ids import ROOT, CallId, RunId
from dragoman.core.inputs import Answer, Decision, Result, StoredImage, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import InvalidAnswer
from dragoman.core.run_metadata import ContextEntry, RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.stream import Record
from dragoman.core.uploads import UPLOAD_SCHEME, mime_type_of
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui import translate as agui_translate
from dragoman.protocols.agui.content import Cancelled, Interrupted, Outcome, TextPart
from dragoman.protocols.agui.messages import STATUS_METADATA, metadata_of
from dragoman.protocols.agui.request_mapping import tools_of, with_error
from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.rules import client_time_of
from dragoman.protocols.agui.translate import VERSION, Translator, failure_of

PROTOCOL = "runs"
FAILED_MESSAGE = "runtime execution failed"

INCOMPLETE_STATUS: Mapping[core.MessageStatus, Literal["partial_success", "failed"]] = {
    "interrupted": "partial_success",
    "cut": "partial_success",
    "failed": "failed",
}

# --- requests ---------------------------------------------------------------------------------------------------------


def submit_from(body: wire.RunAgentInput, state: SessionState, path_of: Callable[[str], str]) -> Submit:
    """The input of a run, after its rules have been checked. `path_of`: the object behind a signed link."""
    user = body.user
    parts = user.content
    content = parts if isinstance(parts, str) else tuple(_input_block(part, path_of) for part in parts)
    return Submit(
        protocol=PROTOCOL,
        messages=(UserInput(content=content, client_id=user.id, name=user.name),),
        answers=tuple(results_from(body, state)),
        client_run_id=body.run_id,
        client_tools=tools_of(body.tools or ()),
        metadata=RunMetadata(
            state=msgspec.UNSET if body.state is None else body.state,
            context=tuple(ContextEntry(each.description, each.value) for each in body.context or ()),
            client_time=client_time_of(body),
            protocol={} if body.parent_run_id is None else {"parent_run_id": body.parent_run_id},
        ),
    )


def _input_block(part: wire.Part, path_of: Callable[[str], str]) -> core.Text | StoredImage:
    if isinstance(part, TextPart):
        return core.Text(part.text)
    url = wire.image_of(part).url
    assert url is not None, "the rules demand it"
    return StoredImage(path_of(url))


def results_from(body: wire.RunAgentInput, state: SessionState) -> Iterable[Result]:
    """The results of front-end tools that answer open calls, each once; other messages have no effect.

    While a run is active or queued, no call waits that this request could answer.
    """
    if is_busy(state):
        return
    results = {each.tool_call_id: each for each in reversed(body.messages) if isinstance(each, wire.ToolMessage)}
    for call in state.waiting_calls():
        message = results.get(call.call.call_id)
        if message is not None and call.waits_for == "client":
            content = with_error(message.content, message.error)
            yield Result(call_id=call.call.call_id, content=content, is_error=bool(message.error))


def answers_from(body: wire.Answers, state: SessionState) -> tuple[Answer, ...]:
    """Answers as input of the core. Raises InvalidAnswer if one says nothing, or two things at once."""
    calls = state.answerable_calls()
    return tuple(
        _answer_from(answer, calls.get(CallId(answer.call_id)), f"answers[{index}]")
        for index, answer in enumerate(body.answers)
    )


def _answer_from(answer: wire.Answer, call: OpenCall | None, path: str) -> Answer:
    call_id = CallId(answer.call_id)
    choice = {name: value for name in ("selections", "custom") if (value := getattr(answer, name)) is not None}
    has_result = answer.result is not msgspec.UNSET or answer.error is not None
    if (answer.granted is not None) + has_result + bool(choice) != 1:
        message = "an answer must have granted, or result or error, or selections and custom, and only one of these"
        raise InvalidAnswer(message, path=path)
    if answer.granted is not None:
        return Decision(call_id=call_id, granted=answer.granted, reason=answer.reason)
    is_client_tool = call is not None and call.waits_for == "client"
    if choice and is_client_tool:
        raise InvalidAnswer(f"tool call {call_id!r} asks no question: it takes a result or an error", path=path)
    if answer.error is not None and not is_client_tool:
        raise InvalidAnswer(f"tool call {call_id!r} is not a front-end tool's: it takes no error", path=path)
    has_error_only = answer.error is not None and answer.result in (msgspec.UNSET, None)
    value = choice or ("" if has_error_only else answer.result)
    content = with_error(value if isinstance(value, str) else compact_json(value), answer.error)
    return Result(call_id=call_id, content=content, is_error=answer.error is not None)


def submit_answers(answers: tuple[Answer, ...], asking: RunStarted | None) -> Submit:
    """Answers to the calls of a run, as input of the run that continues.

    It keeps the metadata of that run, except for its parent, and for its state, which may have been replaced since.
    """
    if asking is None:
        return Submit(protocol=PROTOCOL, answers=answers)
    stored = {name: value for name, value in asking.metadata.protocol.items() if name != "parent_run_id"}
    return Submit(
        protocol=PROTOCOL,
        answers=answers,
        client_tools=asking.client_tools,
        parameters=asking.parameters,
        metadata=msgspec.structs.replace(asking.metadata, protocol=stored, state=msgspec.UNSET),
    )


# --- the history -----------------------------------------------------------------------------------------------------


def history_message(entry: HistoryEntry, link: Callable[[str], str]) -> wire.HistoryMessage:
    """A message as the history shows it. `link` makes a link to an uploaded object from its path."""
    at, content = entry.logged.at, entry.message.content
    if isinstance(entry.message, core.AssistantMessage):
        status = entry.message.status
        return wire.HistoryAssistant(
            id=entry.message.id,
            seq=entry.ordinal,
            content=core.text_of(content),
            ui_schema=entry.schema,
            timestamp=at,
            status=INCOMPLETE_STATUS.get(status, msgspec.UNSET),
            metadata=STATUS_METADATA.get(status, msgspec.UNSET),
        )
    blocks = core.blocks_of(content)
    return wire.HistoryUser(
        id=entry.message.client_id or entry.message.id,
        seq=entry.ordinal,
        content="\n".join(block.text for block in blocks if isinstance(block, core.Text)),
        attachments=tuple(_attachment(block.url, link) for block in blocks if isinstance(block, core.Image)),
        timestamp=at,
    )


def thread_info(state: SessionState) -> wire.ThreadInfo:
    """A session as a thread in a list."""
    return wire.ThreadInfo(
        thread_id=state.session_id,
        title=state.title(),
        agent_type=state.agent,
        status=state.status(),
        created_at=state.created_at,
        updated_at=state.updated_at,
    )


def run_status(started: RunStarted | RunQueued, stopped: RunStopped | None, state: SessionState) -> wire.RunStatus:
    """What became of a run: `started` when it began or was queued, `stopped` if it has ended."""
    reason = None if stopped is None else stopped.reason
    failure = None if stopped is None else failure_of(stopped)
    is_waiting = state.last_run == started.run_id and any(True for _ in state.waiting_calls())
    status: wire.Status
    match reason:
        case None:
            status = "running" if isinstance(started, RunStarted) else "queued"
        case "tool_use" if is_waiting:
            status = "waiting"
        case "cancelled":
            status = "cancelled"
        case _:
            status = "completed" if failure is None else "failed"
    return wire.RunStatus(
        task_id=started.run_id,
        thread_id=state.session_id,
        run_id=started.client_run_id or started.run_id,
        status=status,
        stop_reason=reason,
        error=None if failure is None else wire.RunFailure(code=failure.code, message=_failure_text(failure.message)),
    )


def _failure_text(message: str) -> str:
    return FAILED_MESSAGE if message == agui_translate.FAILED_MESSAGE else message


def _attachment(url: str, link: Callable[[str], str]) -> wire.Attachment:
    if url.startswith(UPLOAD_SCHEME):
        path = url.removeprefix(UPLOAD_SCHEME)
        return wire.Attachment(mime_type=mime_type_of(path), url=link(path))
    declared = url.removeprefix("data:").partition(";")[0] if url.startswith("data:image/") else "image/*"
    return wire.Attachment(mime_type=declared, url=url)


# --- the stream -------------------------------------------------------------------------------------------------------

_OMITTED_EVENTS = get_args(agui_events.Custom | agui_events.ActivitySnapshot | agui_events.SubagentEvent)


class StreamEvent(NamedTuple):
    """An event of the stream."""

    id: wire.EventId
    body: core.JsonObject


Calls = Mapping[CallId, CallOpened]


def is_shown(opened: CallOpened) -> bool:
    """Whether clients see a call: one of the conversation, or one of a sub-agent about which a person decides."""
    return opened.loop == ROOT or opened.kind in ("permission", "question")


class RunEvents:
    """Turns the records of one run into events. The same records give the same events with the same ids.

    It begins before the run's first record. The results of `calls`, which are open there, may come in this run. Those
    of calls that the run's message closed precede the run, and are sent after its RUN_STARTED.

    Args:
        run_id: the run; None: the next one that starts.
        thread_id: its thread.
        calls: the open calls.
    """

    def __init__(self, run_id: RunId | None, thread_id: str, calls: Calls) -> None:
        self._run_id = run_id
        self._events = Translator(run_id, thread_id=thread_id, shows_blocks=False)
        self._run_fields: core.JsonObject = {"threadId": thread_id, "runId": run_id}
        self._work_fields = self._run_fields
        """The fields of the agent's own events: those of the run, and its stage while it is in one."""
        self._cards = CardTracker()
        self._texts: dict[str, list[str]] = {}
        self.calls = dict(calls)
        """The open calls."""
        self._settled: dict[CallId, CallSettled] = {}
        """The results that have not been sent."""
        self._has_begun = False
        self._event_id = wire.START_EVENT_ID
        self._was_stopped_in_queue = False

    @property
    def is_over(self) -> bool:
        """Whether the last event ended the run."""
        return self._events.is_over or self._was_stopped_in_queue

    def feed(self, record: Record) -> list[StreamEvent]:
        """The events of a record, in order."""
        if isinstance(record, LoggedEvent):
            self._event_id = wire.EventId(record.seq, -1)
            self._cards.feed(record)
            match record.event:
                case RunStarted(run_id=run_id) | RunQueued(run_id=run_id) as run if self._run_id in (None, run_id):
                    self._run_fields["runId"] = run.client_run_id or run.run_id
                    if isinstance(run, RunStarted):
                        self._run_id, self._has_begun = run_id, True
                case CallSettled() as settled:
                    self._settled[settled.result.call_id] = settled
                case CallOpened() as opened if is_shown(opened):
                    self.calls[opened.call.call_id] = opened
        shown = [each for each in map(self._shown, self._events.feed(record)) if each] or self._stopped_in_queue(record)
        sent: list[StreamEvent] = []
        for event in shown:
            self._event_id = self._event_id._replace(ordinal=self._event_id.ordinal + 1)
            body = self._body(event, record)
            if isinstance(event, agui_events.ToolCallEnd):  # the event before it has the last part of the arguments
                sent[-1].body["args"] = self.calls[CallId(event.tool_call_id)].call.input
            sent.append(StreamEvent(self._event_id, body))
        if self._has_begun and self._settled:
            for call_id in self._settled:
                self.calls.pop(call_id, None)
            self._settled.clear()
        return sent

    def _shown(self, event: agui_events.Event) -> agui_events.Event | None:
        """The event as this stream shows it; None if it does not. Of sub-agents it shows the calls of `is_shown`."""
        if isinstance(event, _OMITTED_EVENTS):
            return None
        if getattr(event, "subagent_run_id", None) is None:
            return event
        if isinstance(event, agui_events.ToolEvent) and event.tool_call_id in self.calls:
            return msgspec.structs.replace(event, subagent_run_id=None)
        return None

    def _stopped_in_queue(self, record: Record) -> list[agui_events.Event]:
        """The events of a run that was stopped while it was queued: it starts and ends at once."""
        stopped = record.event if isinstance(record, LoggedEvent) else None
        if not isinstance(stopped, RunStopped) or stopped.run_id != self._run_id or self._events.is_over:
            return []
        self._was_stopped_in_queue = True
        names = {"thread_id": self._run_fields["threadId"], "run_id": self._run_fields["runId"]}
        return [
            agui_events.RunStarted(**names, protocol_version=VERSION),
            agui_events.RunFinished(**names, outcome=Cancelled()),
        ]

    def _body(self, event: agui_events.Event, record: Record) -> core.JsonObject:
        logged = record.event if isinstance(record, LoggedEvent) else None
        match event:
            case agui_events.TextMessageContent(message_id=message_id, delta=delta):
                self._texts[message_id].append(delta)
                return {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": delta, **self._work_fields}
            case agui_events.RunStarted():
                dropped = logged.dropped_tools if isinstance(logged, RunStarted) else ()
                metadata = {"metadata": metadata_of(droppedTools=dropped)} if dropped else {}
                return {**msgspec.to_builtins(event), **metadata}
            case agui_events.RunFinished(outcome=outcome):
                shown = msgspec.structs.replace(event, usage=None, outcome=_without_subagents(outcome))
                return {**msgspec.to_builtins(shown)}
            case agui_events.RunError(message=message):
                error = msgspec.structs.replace(event, usage=None, message=_failure_text(message))
                return {**msgspec.to_builtins(error), **self._run_fields}
            case agui_events.StepStarted(step_name=stage) | agui_events.StepFinished(step_name=stage):
                entered = {"stage": stage} if isinstance(event, agui_events.StepStarted) else {}
                self._work_fields = {**self._run_fields, **entered}
                return {**msgspec.to_builtins(event), **self._run_fields}
        body = {**msgspec.to_builtins(event), **self._work_fields}
        match event:
            case agui_events.TextMessageStart(message_id=message_id):
                self._texts[message_id] = []
            case agui_events.TextMessageEnd(message_id=message_id):
                status = (
                    INCOMPLETE_STATUS.get(logged.status, "success") if isinstance(logged, MessageClosed) else "success"
                )
                body |= {"role": "assistant", "status": status, "answer": "".join(self._texts.pop(message_id))}
                body["key_points"] = []
                if (schema := self._cards.take_schema()) is not None:
                    body["ui_schema"] = schema
            case agui_events.ToolCallStart(tool_call_id=call_id):
                body["messageId"] = self.calls[CallId(call_id)].message_id
            case agui_events.ToolCallArgs(tool_call_id=call_id) | agui_events.ToolCallEnd(tool_call_id=call_id):
                call = self.calls[CallId(call_id)]
                body |= {"messageId": call.message_id, "toolCallName": call.call.name}
            case agui_events.ToolCallResult(tool_call_id=call_id):
                body |= self._result_fields(self._settled[CallId(call_id)])
        return body

    def _result_fields(self, settled: CallSettled) -> core.JsonObject:
        result, is_done = settled.result, settled.outcome == "done"
        text, call = core.text_of(result.content), self.calls.get(result.call_id)
        return {
            "content": text,
            "tool_name": result.name,
            "tool_call_id": result.call_id,
            **({} if call is None else {"tool_call_args": call.call.input}),
            "status": "success" if is_done else "failure",
            "result": text,
            **({} if is_done else {"error": text}),
        }


def _without_subagents(outcome: Outcome | None) -> Outcome | None:
    """An outcome without references to sub-agents, which this stream does not show."""
    if not isinstance(outcome, Interrupted):
        return outcome
    interrupts = (msgspec.structs.replace(each, subagent_run_id=None) for each in outcome.interrupts)
    return Interrupted(interrupts=tuple(interrupts))
