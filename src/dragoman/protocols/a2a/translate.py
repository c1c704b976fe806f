"""Translation between A2A and the core: messages as input, a turn as a task. Pure.

A task is what a user's message began: its run, and all runs that brought answers to its calls. What the agent says is
an artifact, one for each step; a question is the message of a status. Tools, thinking and sub-agents do not show.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import answer_text, compact_json
from dragoman.core.content import Json, JsonObject, UserMessage
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    PlanUpdated,
    RunQueued,
    RunStarted,
    RunStopped,
    SessionSettings,
    StopReason,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId
from dragoman.core.input_checks import check_block_count
from dragoman.core.inputs import Answer, Decision, Result, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.question_text import question_text, repeat_question
from dragoman.core.session import SessionState, apply
from dragoman.core.stream import Piece, Record
from dragoman.protocols.a2a import wire
from dragoman.protocols.a2a.errors import ContentTypeNotSupported, InvalidParams
from dragoman.protocols.kit.decoding import convert_value
from dragoman.protocols.kit.media_types import media_type_of
from dragoman.protocols.kit.pending_calls import pending_members

PROTOCOL = "a2a"
TASK = "task"
"""The member of a run's metadata with the task that it continues, though it brings a message."""
OUTPUT_MODES = ("text/plain", "application/json", "image/png", "image/jpeg")
_READABLE_MODES = frozenset(
    {"", "text", "text/markdown", "*/*", *OUTPUT_MODES, *(f"{each.partition('/')[0]}/*" for each in OUTPUT_MODES)}
)
"""The modes that a client may accept: those above, kinds of them, and Markdown, in which models write their text."""
REPEATED_HISTORY = "application/vnd.ag2.history+json"
"""The media type of a part in which AG2's client repeats the whole conversation with every message."""

STATES: Mapping[StopReason, wire.State] = {
    "end_turn": "TASK_STATE_COMPLETED",
    "max_tokens": "TASK_STATE_COMPLETED",
    "refusal": "TASK_STATE_REJECTED",
    "tool_use": "TASK_STATE_INPUT_REQUIRED",
    "max_steps": "TASK_STATE_FAILED",
    "error": "TASK_STATE_FAILED",
    "interrupted": "TASK_STATE_FAILED",
    "cancelled": "TASK_STATE_CANCELED",
}
"""Shared rules, 24."""

# --- input ------------------------------------------------------------------------------------------------------------


def check_configuration(configuration: wire.Configuration) -> None:
    """Raise ContentTypeNotSupported if the client takes none of the forms that answers have."""
    modes = configuration.accepted_output_modes
    if modes and not any(each.partition(";")[0].strip().lower() in _READABLE_MODES for each in modes):
        raise ContentTypeNotSupported(f"the agent answers in {', '.join(OUTPUT_MODES)}")


def user_input(message: wire.Message) -> UserInput:
    """A message as input of the core. A repeated history is left out if the message names a context, which has it.

    Raises:
        InvalidParams: a part has no value, or several.
        ContentTypeNotSupported: a file has no media type, or is neither in the message nor at an https URL.
        LimitExceeded: there are too many parts.
    """
    check_block_count(message.parts, path="message.parts")
    blocks = [
        _block_of(part, f"message.parts[{index}]")
        for index, part in enumerate(message.parts)
        if not (index and message.context_id and part.media_type == REPEATED_HISTORY)
    ]
    is_text = len(blocks) == 1 and isinstance(blocks[0], core.Text)
    return UserInput(
        content=core.text_of(tuple(blocks)) if is_text else tuple(blocks),
        client_id=message.message_id,
        metadata=message.metadata or msgspec.UNSET,
    )


def _block_of(part: wire.Part, path: str) -> core.Text | core.Image | core.File:
    values = (part.text, part.raw, part.url, part.data)
    if sum(each is not msgspec.UNSET for each in values) != 1:
        raise InvalidParams("expected exactly one of text, raw, url and data", path)
    if part.text is not msgspec.UNSET:
        return core.Text(part.text)
    if part.data is not msgspec.UNSET:
        return core.Text(compact_json(_whole_numbers(part.data)))
    if not part.media_type:
        raise ContentTypeNotSupported(f"{path}: expected a mediaType such as image/png or application/pdf")
    url = str(part.url) if part.raw is msgspec.UNSET else f"data:{part.media_type};base64,{part.raw}"
    if not url.lower().startswith(("https://", "data:")):
        raise ContentTypeNotSupported(f"{path}: expected an https URL")
    return core.image_or_file(url, part.media_type, part.filename or None)


def answers_of(message: wire.Message) -> tuple[Answer, ...]:
    """The answers to calls that a message brings in its data parts; none if it is a message for the agent.

    Raises:
        InvalidBody, InvalidParams: an answer has another shape, or the message brings something else as well.
    """
    found: list[Answer] = []
    for place, part in enumerate(message.parts):
        if isinstance(part.data, dict) and isinstance(part.data.get("answers"), list):
            path = f"message.parts[{place}].data"
            answers = convert_value(part.data, wire.Answers, path).answers
            found += [_answer_from(each, f"{path}.answers[{index}]") for index, each in enumerate(answers)]
    if found and not all(isinstance(part.data, dict) and "answers" in part.data for part in message.parts):
        raise InvalidParams("a message with answers has no other parts", "message.parts")
    return tuple(found)


def _answer_from(answer: wire.Answer, path: str) -> Answer:
    call_id = CallId(answer.call_id)
    choice = {name: value for name in ("selections", "custom") if (value := getattr(answer, name)) is not None}
    if (answer.granted is not None) + (answer.result is not msgspec.UNSET) + bool(choice) != 1:
        raise InvalidParams(
            "an answer must have granted, or result, or selections and custom, and only one of these", path
        )
    if answer.granted is not None:
        return Decision(call_id=call_id, granted=answer.granted, reason=answer.reason)
    value = _whole_numbers(choice or answer.result)
    return Result(call_id=call_id, content=value if isinstance(value, str) else compact_json(value))


def _whole_numbers(value: Json) -> Json:
    """A value with `1.0` as `1`: clients on protobuf have no integers."""
    if isinstance(value, dict):
        return {key: _whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


# --- a turn as a task -------------------------------------------------------------------------------------------------


Update = wire.StatusUpdate | wire.ArtifactUpdate


class _Step:
    """What the agent says in one step: text as far as it has come, and other parts."""

    def __init__(self) -> None:
        self.texts: dict[int, list[str]] = {}
        self.others: dict[int, tuple[wire.Part, ...]] = {}
        self.unsent: list[wire.Part] = []
        """The parts that were not streamed."""
        self.is_streamed = False
        self.is_closed = False
        self.is_cut = False

    def parts(self) -> tuple[wire.Part, ...]:
        """What has been sent: parts that are not streamed follow at the end of the step."""
        found = {index: (text_part("".join(pieces)),) for index, pieces in self.texts.items()}
        others = self.others if self.is_closed else {}
        return tuple(part for _, parts in sorted({**found, **others}.items()) for part in parts)


class TaskFold:
    """A task, folded from the records of its session, from the start of its run on or from where that was queued.

    queued ──its run starts──► running ──it stops, calls wait──► asking ──a run brings answers──► running
                               running ──it stops──► over       asking ──its calls are closed──► over
    """

    def __init__(self, task_id: RunId, session: SessionState) -> None:
        self.task_id = task_id
        self.context_id = session.name or session.session_id
        self.phase: Literal["queued", "running", "asking", "over"] = "queued"
        self.last_run = task_id
        """The task's newest run."""
        self.is_continuation = False
        """Whether the run continues another task, so that this is none."""
        self.status = wire.TaskStatus(state="TASK_STATE_SUBMITTED", timestamp=_timestamp(session.created_at))
        self.changed_at = session.created_at
        """When the task got its status."""
        self._messages: dict[str, wire.Message] = {}
        self._has_input = False
        self._steps: dict[MessageId, _Step] = {}
        self._plan: PlanUpdated | None = None
        self._usage = core.Usage()
        self._metadata: JsonObject = {}
        self._calls = SessionState(
            session_id=session.session_id,
            owner=session.owner,
            agent=session.agent,
            created_at=session.created_at,
            updated_at=session.created_at,
            settings=SessionSettings(),
        )
        """The task's events, folded as the session's are, to know which calls wait."""
        self._is_closing = False
        """Whether the calls were closed by a run that is about to start."""
        self._takes_messages = False
        """Whether messages of the newest run belong to the task."""
        self._answered: set[CallId] = set()
        """Calls that were answered, and whose results come next."""

    @property
    def is_over(self) -> bool:
        """Whether nothing can happen to the task any more."""
        return self.phase == "over"

    @property
    def is_task(self) -> bool:
        """Whether a user's message began this, and not only answers to another task."""
        return self._has_input and not self.is_continuation

    def waiting(self) -> list[OpenCall]:
        """The calls that wait, of a task that asks."""
        return list(self._calls.waiting_calls()) if self.phase == "asking" else []

    def task(self, *, history_length: int | None = None, with_artifacts: bool = True) -> wire.Task:
        """The task as it is now, with the newest `history_length` messages."""
        history = tuple(self._messages.values())
        if history_length is not None:
            history = history[max(0, len(history) - history_length) :]
        return wire.Task(
            id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=tuple(self._artifacts()) if with_artifacts else (),
            history=history,
            metadata=self._metadata,
        )

    def _artifacts(self) -> Iterable[wire.Artifact]:
        for message_id, step in self._steps.items():
            if step.is_streamed or step.is_closed:
                yield _artifact(message_id, step.parts(), is_cut=step.is_cut)
        if self._plan is not None:
            parts = (_data_part(self._plan.content()),)
            yield wire.Artifact(artifact_id=f"{self.task_id}-plan", name="plan", parts=parts)

    def feed(self, record: Record) -> Update | None:
        """Take the next record; what it changes for readers, if anything. What belongs to other tasks is ignored.

        Text comes in pieces, for which this returns nothing: see `feed_piece`.
        """
        if type(record) is Piece:
            self.feed_piece(record)
            return None
        match self.phase:
            case "queued":
                return self._feed_queued(record)
            case "running":
                return self._feed_running(record)
            case "asking":
                return self._feed_asking(record)
            case "over":
                return None

    def feed_piece(self, piece: Piece) -> bool | None:
        """Take a piece of text. Returns whether its artifact had begun; None if the piece does not show."""
        if piece.kind != "text" or piece.loop != ROOT or self.phase != "running":
            return None
        step = self._steps.get(piece.message_id)
        if step is None:
            step = self._steps[piece.message_id] = _Step()
        has_begun, step.is_streamed = step.is_streamed, True
        texts = step.texts.get(piece.index)
        if texts is None:
            step.texts[piece.index] = [piece.text]
        else:
            texts.append(piece.text)
        return has_begun

    # --- phases ---------------------------------------------------------------------------------------------------

    def _feed_queued(self, logged: LoggedEvent) -> Update | None:
        match logged.event:
            case RunQueued(run_id=run_id, inputs=inputs) if run_id == self.task_id:
                for message in inputs:
                    self._add_message(message)
                return self._set_state("TASK_STATE_SUBMITTED", logged)
            case RunStarted(run_id=run_id) as started if run_id == self.task_id:
                self.is_continuation = TASK in started.metadata.protocol
                return self._start(started, logged)
            case RunStopped(run_id=run_id, reason=reason) if run_id == self.task_id:
                return self._stop("cancelled" if reason == "tool_use" else reason, logged)
            case _:
                return None

    def _start(self, started: RunStarted, logged: LoggedEvent) -> Update:
        self._track(logged)
        if self.status.message is not msgspec.UNSET:  # the question is part of the conversation now
            self._messages[self.status.message.message_id] = self.status.message
        self.phase, self.last_run, self._metadata, self._is_closing = "running", started.run_id, {}, False
        self._takes_messages = self.task_id in (started.run_id, started.metadata.protocol.get(TASK))
        for message in started.inputs:  # they enter the history when the answers that came with them have their results
            self._add_message(message)
        return self._set_state("TASK_STATE_WORKING", logged)

    def _feed_running(self, logged: LoggedEvent) -> Update | None:
        self._track(logged)
        match logged.event:
            case BlockClosed(loop="root") as closed:
                self._close_block(closed)
            case MessageClosed(loop="root") as closed:
                return self._close_step(closed)
            case MessageAdded(message=UserMessage(loop="root") as message) if logged.run_id == self.last_run:
                if not self._takes_messages:
                    return self._stop("cancelled", logged)  # a run that answered, and said something new as well
                self._add_message(message)
            case AnswerGiven() | CallSettled():
                self._add_answer(logged)
            case PlanUpdated(loop="root") as plan:
                self._plan = plan
            case RunStopped(run_id=run_id) as stopped if run_id == self.last_run:
                self._usage += stopped.usage
                return self._stop(stopped.reason, logged, stopped)
            case _:
                pass
        return None

    def _feed_asking(self, logged: LoggedEvent) -> Update | None:
        match logged.event:
            case RunStarted() as started:
                brings_message = self._is_closing or bool(started.inputs)
                if brings_message and started.metadata.protocol.get(TASK) != self.task_id:
                    return self._stop("cancelled", logged)
                return self._start(started, logged)
            case CallSettled(outcome="cancelled") if logged.run_id is None:
                return self._stop("cancelled", logged)
            case CallSettled(outcome="cancelled"):
                self._is_closing = True
            case AnswerGiven():  # some calls still wait
                self._track(logged)
                self._add_answer(logged)
                return self._ask(logged)
            case CallSettled():
                self._add_answer(logged)
            case _:
                pass
        self._track(logged)
        return None

    def _stop(self, reason: StopReason, logged: LoggedEvent, stopped: RunStopped | None = None) -> Update:
        usage = {"inputTokens": self._usage.input_tokens, "outputTokens": self._usage.output_tokens}
        self._metadata = {"usage": usage, "stopReason": reason}
        if reason == "tool_use":
            self.phase = "asking"
            return self._ask(logged)
        self.phase = "over"
        state = STATES[reason]
        if state != "TASK_STATE_FAILED" or stopped is None:
            return self._set_state(state, logged)
        self._metadata["code"] = stopped.code or reason
        return self._set_state(state, logged, (text_part(stopped.message or "The run failed"),))

    def _ask(self, logged: LoggedEvent) -> Update:
        calls = [wire.PendingCall(**pending_members(each)) for each in self.waiting()]
        needs_approval = any(each.kind == "approval" for each in calls)
        text = "\n\n".join(map(_how_to_answer, calls)) or "The agent waits."
        pending = {"pending": msgspec.to_builtins(calls)}
        state: wire.State = "TASK_STATE_AUTH_REQUIRED" if needs_approval else "TASK_STATE_INPUT_REQUIRED"
        return self._set_state(state, logged, (text_part(text), _data_part(pending)))

    def _set_state(self, state: wire.State, logged: LoggedEvent, said: tuple[wire.Part, ...] = ()) -> Update:
        message = self._message_of(logged, "ROLE_AGENT", said) if said else msgspec.UNSET
        self.status = wire.TaskStatus(state=state, timestamp=_timestamp(logged.at), message=message)
        self.changed_at = logged.at
        return wire.StatusUpdate(
            task_id=self.task_id, context_id=self.context_id, status=self.status, metadata=self._metadata
        )

    def _track(self, logged: LoggedEvent) -> None:
        if isinstance(logged.event, BlockClosed | MessageAdded):
            return  # they concern no call
        self._calls.seq = logged.seq - 1  # events of other tasks, and those that no client sees, were left out
        with suppress(KeyError):  # answers to calls of an earlier task
            apply(self._calls, logged)

    # --- content --------------------------------------------------------------------------------------------------

    def _message_of(
        self, logged: LoggedEvent, role: Literal["ROLE_USER", "ROLE_AGENT"], parts: tuple[wire.Part, ...]
    ) -> wire.Message:
        return wire.Message(
            message_id=f"{self.last_run}-{logged.seq}",
            role=role,
            parts=parts,
            context_id=self.context_id,
            task_id=self.task_id,
        )

    def _add_message(self, message: UserMessage) -> None:
        self._has_input = True
        if message.id in self._messages:  # it was queued, and enters the history now
            return
        content = (core.Text(message.content),) if isinstance(message.content, str) else message.content
        parts = tuple(part for block in content for part in _parts_of(block))
        self._messages[message.id] = wire.Message(
            message_id=message.client_id or message.id,
            role="ROLE_USER",
            parts=parts or (text_part(""),),
            context_id=self.context_id,
            task_id=self.task_id,
            metadata=message.metadata if isinstance(message.metadata, dict) else {},
        )

    def _add_answer(self, logged: LoggedEvent) -> None:
        """Add what a user or an application answered, as a message of the user."""
        answer: JsonObject = {}
        match logged.event:
            case AnswerGiven(call_id=call_id, granted=granted) as given if call_id in self._calls.calls:
                if given.result is not None:
                    answer = {"callId": call_id, "result": answer_text(given.result)}
                elif granted and not is_approval(self._calls.calls[call_id]):
                    self._answered.add(call_id)
                else:
                    answer = {"callId": call_id, "granted": granted}
                    answer |= {"reason": given.reason} if given.reason else {}
            case CallSettled(result=result) if result.call_id in self._answered:
                self._answered.discard(result.call_id)
                answer = {"callId": result.call_id, "result": answer_text(result)}
            case _:
                pass
        if answer:
            message = self._message_of(logged, "ROLE_USER", (_data_part({"answers": [answer]}),))
            self._messages[message.message_id] = message

    def _close_block(self, closed: BlockClosed) -> None:
        parts = _parts_of(closed.block)
        step = self._steps.get(closed.message_id)
        if not parts or (step is not None and closed.index in step.texts):
            return  # it has no form here, or is text that was streamed
        if step is None:
            step = self._steps[closed.message_id] = _Step()
        step.others[closed.index] = parts
        step.unsent += parts

    def _close_step(self, closed: MessageClosed) -> Update | None:
        step = self._steps.get(closed.message_id)
        if step is None:
            return None
        step.is_closed, step.is_cut = True, closed.status == "cut"
        return wire.ArtifactUpdate(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=_artifact(closed.message_id, tuple(step.unsent), is_cut=step.is_cut),
            append=step.is_streamed and not step.is_cut,
            last_chunk=True,
        )


def _artifact(message_id: str, parts: tuple[wire.Part, ...], *, is_cut: bool) -> wire.Artifact:
    """A step as an artifact. One that a crash cut off is empty: a later one repeats it, and clients join all texts."""
    metadata = {"interrupted": True} if is_cut else {}
    shown = () if is_cut else parts
    return wire.Artifact(artifact_id=message_id, name="answer", parts=shown or (text_part(""),), metadata=metadata)


def text_part(text: str) -> wire.Part:
    """A part with text."""
    return wire.Part(text=text, media_type="text/plain")


def _data_part(data: JsonObject) -> wire.Part:
    return wire.Part(data=data, media_type="application/json")


def _parts_of(block: core.Block) -> tuple[wire.Part, ...]:
    """A block as parts; none if it has no form here, or is empty."""
    match block:
        case core.Text(text=text):
            return (text_part(text),) if text else ()
        case core.Data(data=data):
            return (_data_part(data),)
        case core.Image(url=url) | core.File(url=url):
            found, media_type, name = core.parse_data_uri(url), media_type_of(block), block.name or ""
            if found is not None:
                return (wire.Part(raw=found.data, media_type=media_type, filename=name),)
            return (wire.Part(url=url, media_type=media_type, filename=name),) if url else ()
        case _:
            return ()


def is_approval(call: OpenCall) -> bool:
    """Whether a call waits for approval."""
    return call.waits_for == "permission"


def _how_to_answer(call: wire.PendingCall) -> str:
    if call.kind == "question":
        return question_text(call.input)
    what = f"{call.name} with {compact_json(call.input)}"
    if call.repeat:
        return f"{repeat_question(call.name)} Approval is needed to run {what} again"
    return f"Approval is needed to run {what}" if call.kind == "approval" else f"The application has to run {what}"


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
