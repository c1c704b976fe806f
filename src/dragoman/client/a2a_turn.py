"""Decodes A2A's tasks and their event streams. Pure.

What was emitted of each artifact is remembered, also beyond a turn, because a stream begins with the whole task.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman.client.a2a_rpc import Rpc, RpcAnswer
from dragoman.client.codec import Request, SessionHandle
from dragoman.client.decoding import decode_json
from dragoman.client.errors import InvalidResponse, Unreachable
from dragoman.client.events import (
    ClientCall,
    Ended,
    Event,
    Image,
    Notice,
    Pending,
    Permission,
    Problem,
    Question,
    QuestionItem,
    StopReason,
    Text,
    Thinking,
    Usage,
)
from dragoman.client.pending import parse_question
from dragoman.client.sse import Frame, FrameReader
from dragoman.client.steps import NewestSteps
from dragoman.core.content import Json, JsonObject

ENDS: Mapping[str, StopReason] = {
    "TASK_STATE_COMPLETED": "end_turn",
    "TASK_STATE_FAILED": "error",
    "TASK_STATE_CANCELED": "cancelled",
    "TASK_STATE_REJECTED": "refusal",
}
"""Stop reasons by the state of a task that is over."""
WAITING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")
_STOP_REASONS: Mapping[str, StopReason] = {
    "max_tokens": "max_tokens",
    "max_steps": "max_steps",
    "interrupted": "interrupted",
}
"""Reasons in the metadata of a task's end that say more than its state."""


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a message or an artifact."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Json = None
    media_type: str | None = None
    metadata: JsonObject | None = None

    @property
    def is_thought(self) -> bool:
        """Whether Google's ADK marks the text as reasoning."""
        return (self.metadata or {}).get("adk_thought") is True


def text_of(parts: Iterable[Part], *, thoughts: bool = False) -> str:
    """The text of parts, or their reasoning."""
    return "".join(each.text or "" for each in parts if each.is_thought == thoughts)


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the user or the agent."""

    parts: tuple[Part, ...] = ()
    role: str = ""
    message_id: str = ""
    task_id: str = ""
    context_id: str = ""

    @property
    def text(self) -> str:
        """The text of all parts."""
        return text_of(self.parts)


class Artifact(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the answer."""

    artifact_id: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    metadata: JsonObject | None = None


class Status(msgspec.Struct, frozen=True):
    """The state of a task."""

    state: str = ""
    message: Message | None = None
    timestamp: str = ""


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """A task."""

    id: str
    context_id: str = ""
    status: Status = Status()
    artifacts: tuple[Artifact, ...] | None = None
    history: tuple[Message, ...] | None = None
    metadata: JsonObject | None = None


class _StatusUpdate(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    context_id: str = ""
    status: Status = Status()
    metadata: JsonObject | None = None


class _ArtifactUpdate(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    artifact: Artifact
    context_id: str = ""
    append: bool | None = False


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    """What a stream consists of; `SendMessage` answers with one of the first two."""

    task: Task | None = None
    message: Message | None = None
    status_update: _StatusUpdate | None = None
    artifact_update: _ArtifactUpdate | None = None


def pending_of(task_id: str, status: Status) -> tuple[Pending, ...]:
    """What a task waits for. Servers without Dragoman's extension say so in words alone, which a text answers."""
    if status.state not in WAITING:
        return ()
    message = status.message or Message()
    listed = [
        call
        for part in message.parts
        if isinstance(part.data, dict) and isinstance(part.data.get("pending"), list)
        for call in part.data["pending"]
    ]
    if not listed:
        return (Question(call_id=task_id, questions=(QuestionItem(question=message.text),)),)
    return tuple(map(_to_pending, listed))


def _to_pending(call: JsonObject) -> Pending:
    call_id, name, arguments = str(call.get("callId")), str(call.get("name")), call.get("input") or {}
    match call.get("kind"):
        case "question":
            return parse_question(call_id, arguments)
        case "client":
            return ClientCall(call_id=call_id, name=name, arguments=arguments)
    return Permission(call_id=call_id, name=name, arguments=arguments, is_repeat=call.get("repeat") is True)


def lengths_of(artifact: Artifact) -> dict[str, int]:
    """The lengths of an artifact's text and reasoning, by the keys of `SessionHandle.emitted_lengths`."""
    text, reasoning = (len(text_of(artifact.parts, thoughts=thoughts)) for thoughts in (False, True))
    return {artifact.artifact_id: text} | ({_reasoning_key(artifact): reasoning} if reasoning else {})


def _reasoning_key(artifact: Artifact) -> str:
    return f"{artifact.artifact_id} reasoning"


class A2aTurn:
    """A task's stream, up to its end or its next question.

    Dragoman servers number the events by their position in the log, and send what follows one. Other servers may send
    events that the task as they show it first has already, so that their tasks are read instead of followed: what is
    new is the text that an artifact has beyond what was emitted.

    Args:
        handle: the session.
        first_request: starts or continues the task; None for an existing one.
        rpc: the agent's interface.
        task_id: the existing task.
        can_follow: whether a stream begins where another one broke off.
    """

    def __init__(
        self,
        handle: SessionHandle,
        first_request: Request | None,
        rpc: Rpc,
        *,
        task_id: str = "",
        can_follow: bool,
    ) -> None:
        self.is_over = False
        self.task_id = task_id
        """The task, as soon as it is known."""
        self._handle = handle
        self._first_request = first_request
        self._rpc = rpc
        self._can_follow = can_follow
        self._last_event_id = ""
        self._said = ""
        """The newest message of a status."""
        self._cut: set[str] = set()
        """The artifacts that a crash cut off."""
        self._steps = NewestSteps()

    @property
    def request(self) -> Request:
        """The request that starts the turn or resumes it."""
        if not self.task_id:
            assert self._first_request is not None, "there is a request or a task"
            return self._first_request
        headers = {"Last-Event-ID": self._last_event_id} if self._last_event_id else {}
        return self._rpc.request("SubscribeToTask", {"id": self.task_id}, headers=headers)

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""
        return self._can_follow or not self.task_id

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a response that is not a stream. Raises Unreachable if it is a task that continues."""
        if body.lstrip()[:1] != b"{":
            return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]
        events = self._on_answer(body)
        if not self.is_over:
            raise Unreachable("the task continues")
        return events

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        events = self._on_answer(frame.data)
        self._last_event_id = frame.id or self._last_event_id
        return events

    def _on_answer(self, body: bytes) -> Sequence[Event]:
        answer = decode_json(body, RpcAnswer, "an answer over JSON-RPC")
        if answer.error is not None:
            raise answer.error.to_refusal(body)
        match self._rpc.result(answer, _Result, is_wrapped=True):
            case _Result(task=Task() as task):
                return self.feed_task(task)
            case _Result(status_update=_StatusUpdate() as update):
                self._identify(update.task_id, update.context_id)
                return self._on_status(update.status, update.metadata)
            case _Result(artifact_update=_ArtifactUpdate() as update):
                self._identify(update.task_id, update.context_id)
                return self._on_artifact(update.artifact, appends=bool(update.append))
            case _Result(message=Message() as message):
                self._identify(message.task_id, message.context_id)
                self.is_over = True
                return (*self._content(message.parts), Ended(reason="end_turn", run_id=message.task_id))
        raise InvalidResponse(f"expected a task, a message or an update, got {body[:200]!r}")

    def _identify(self, task_id: str, context_id: str) -> None:
        handle = self._handle
        if task_id != handle.last_response_id:
            handle.emitted_lengths = {}
        self.task_id = handle.run_id = handle.last_response_id = task_id
        handle.id = context_id or handle.id
        handle.pending = ()

    def feed_task(self, task: Task) -> Sequence[Event]:
        """Decode a task as it is. Returns what was not emitted before."""
        self._identify(task.id, task.context_id)
        events: list[Event] = []
        for artifact in task.artifacts or ():
            events += self._on_artifact(artifact, appends=False)
        return (*events, *self._on_status(task.status, task.metadata))

    def _on_artifact(self, artifact: Artifact, *, appends: bool) -> Sequence[Event]:
        key, lengths = artifact.artifact_id, self._handle.emitted_lengths
        is_new = key not in lengths or appends
        events: list[Event] = []
        for kind, of_kind in ((Thinking, _reasoning_key(artifact)), (Text, key)):
            emitted, text = lengths.get(of_kind, 0), text_of(artifact.parts, thoughts=kind is Thinking)
            new_text = text if appends else text[emitted:]
            if new_text or of_kind == key:
                lengths[of_kind] = emitted + len(new_text)
            if new_text:
                events += self._steps.add(key, kind(text=new_text))
        if is_new:
            events += self._content([each for each in artifact.parts if each.text is None], artifact.name)
        if (artifact.metadata or {}).get("interrupted") is True and key not in self._cut:
            self._cut.add(key)
            events += self._steps.cut(key, "")
        return events

    def _content(self, parts: Sequence[Part], name: str | None = None) -> Sequence[Event]:
        events: list[Event] = []
        for each in parts:
            if each.text:
                events.append(Thinking(text=each.text) if each.is_thought else Text(text=each.text))
            elif each.raw is not None and (each.media_type or "").startswith("image/"):
                events.append(Image(url=f"data:{each.media_type};base64,{each.raw}"))
            elif each.url is not None and (each.media_type or "image/").startswith("image/"):
                events.append(Image(url=each.url))
            elif each.data is not None:
                kind = "plan" if isinstance(each.data, dict) and "steps" in each.data and name == "plan" else "data"
                events.append(Notice(kind=kind, content=each.data))
            elif each.url is not None or each.raw is not None:
                events.append(Notice(kind="file", content=msgspec.to_builtins(each)))
        return events

    def _on_status(self, status: Status, metadata: JsonObject | None) -> Sequence[Event]:
        said = status.message.text if status.message is not None else ""
        if status.state not in ENDS and status.state not in WAITING:
            is_new, self._said = said != self._said, said
            return (Notice(kind="status", content=said),) if said and is_new else ()
        self.is_over = True
        details = metadata or {}
        pending = pending_of(self.task_id, status)
        reason: StopReason = "tool_use" if pending else ENDS[status.state]
        reason = _STOP_REASONS.get(str(details.get("stopReason")), reason)
        problem = Problem(str(details.get("code") or ""), said or "the task failed") if reason == "error" else None
        events: list[Event] = []
        if said and reason in ("end_turn", "refusal"):  # some agents answer in the status of the end
            events.append(Text(text=said))
        self._handle.pending = pending
        usage = details.get("usage")
        events += [each for each in pending if isinstance(each, Permission | Question)]
        return (
            *events,
            Ended(
                reason=reason,
                run_id=self.task_id,
                usage=_to_usage(usage) if isinstance(usage, dict) else None,
                problem=problem,
                pending=pending,
            ),
        )


def _to_usage(usage: JsonObject) -> Usage:
    return Usage(int(usage.get("inputTokens") or 0), int(usage.get("outputTokens") or 0))
