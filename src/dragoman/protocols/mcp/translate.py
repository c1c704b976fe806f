"""Translation between MCP and the core: agents as tools, arguments as input, a turn as a result. Pure.

A call is a turn: the run that a user's message began, with all runs that only brought answers to its calls. What a
result has no place for is left out: thinking, tool calls, sub-agents, plans, cards (shared rules, 16).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal
from urllib.parse import quote

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.content import Json, JsonObject
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    MessageAdded,
    RunStarted,
    RunStopped,
    StopReason,
)
from dragoman.core.history import Assembler, is_empty
from dragoman.core.ids import ROOT, RunId, SessionId
from dragoman.core.inputs import UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.question_text import question_text, repeat_question
from dragoman.core.refusals import FileUnsupported, Invalid, UnknownOption
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import AgentSpec, SecretOption, SelectOption
from dragoman.protocols.kit.media_types import media_type_of
from dragoman.protocols.kit.pending_calls import pending_members
from dragoman.protocols.mcp import wire

PROTOCOL = "mcp"
SAID_CHARS = 200
"""How much of what the agent said last a progress message shows."""
FILE_LIMIT = 1024 * 1024
"""Bytes of an image or another file in a result."""
POLL_INTERVAL_MS = 2000
"""How often a client asks for a task."""
MARKDOWN_LIMIT = 1024 * 1024
"""Characters of a conversation that is read as a resource."""
INSTRUCTIONS = (
    "Each tool is an agent. Pass the session_id of a result on to continue its conversation; "
    "an empty message waits for what is still running."
)
_CONTINUE = (
    "Continue a conversation by passing the session_id of an earlier result. "
    "An empty message waits for what is still running."
)

STATUSES: Mapping[StopReason, wire.Status] = {
    "end_turn": "completed",
    "max_tokens": "completed",
    "refusal": "completed",
    "tool_use": "input_required",
    "max_steps": "failed",
    "error": "failed",
    "interrupted": "failed",
    "cancelled": "cancelled",
}
"""Shared rules, 24."""

# --- agents as tools --------------------------------------------------------------------------------------------------


def takes_files(spec: AgentSpec) -> bool:
    """Whether images or other files can be sent to an agent. What it does not take of them, the core refuses."""
    return spec.capabilities.image_data or spec.capabilities.image_http or spec.capabilities.files


def tool_of(spec: AgentSpec) -> JsonObject:
    """An agent as a tool. Secret options are left out: arguments stand in the transcripts of hosts."""
    properties: JsonObject = {
        "message": {"type": "string", "description": "What to say to the agent; empty to wait for a running answer."},
        "session_id": {"type": "string", "description": "The session_id of an earlier result, to continue it."},
    }
    if takes_files(spec):
        properties["files"] = {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "mime_type": {"type": "string"},
                    "data": {"type": "string", "description": "Base64"},
                    "url": {"type": "string", "description": "An https URL, in place of data"},
                },
                "required": ["mime_type"],
            },
        }
    options = {each.name: _option_schema(each) for each in spec.options if not isinstance(each, SecretOption)}
    if options:
        properties["options"] = {"type": "object", "properties": options}
    tool: JsonObject = {
        "name": spec.name,
        "description": f"{spec.description}\n\n{_CONTINUE}" if spec.description else _CONTINUE,
        "inputSchema": {"type": "object", "properties": properties, "required": ["message"]},
        "outputSchema": wire.OUTPUT_SCHEMA,
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": any(tool.policy.needs_approval for tool in spec.tools),
            "idempotentHint": False,
            "openWorldHint": True,
        },
    }
    return {**tool, "title": spec.title} if spec.title else tool


def _option_schema(option: Json) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    if isinstance(option, SelectOption):
        schema["enum"] = list(option.options)
    if option.default:
        schema["default"] = option.default
    texts = {"title": option.title, "description": option.description}
    return schema | {name: text for name, text in texts.items() if text}


def user_input(arguments: wire.Arguments, spec: AgentSpec) -> UserInput:
    """The message of a call.

    Raises:
        FileUnsupported: the agent takes no files.
        UnknownOption: an option is secret.
        Invalid: a file has neither data nor an https URL, or both.
    """
    for name in arguments.options:
        if isinstance(spec.option(name), SecretOption):
            public = [each.name for each in spec.options if not isinstance(each, SecretOption)]
            raise UnknownOption(name, public)
    if not arguments.files:
        return UserInput(content=arguments.message)
    if not takes_files(spec):
        raise FileUnsupported(f"agent {spec.name!r} takes no files")
    files = [_file_of(each, f"files[{index}]") for index, each in enumerate(arguments.files)]
    return UserInput(content=(core.Text(arguments.message), *files))


def _file_of(file: wire.FileArgument, path: str) -> core.Image | core.File:
    if bool(file.data) == bool(file.url):
        raise Invalid("a file must have either data or url", path=path)
    if file.url and not file.url.lower().startswith("https://"):
        raise Invalid("the URL of a file must begin with https://", path=path)
    return core.image_or_file(
        file.url or f"data:{file.mime_type};base64,{file.data}", file.mime_type, file.name or None
    )


# --- a turn as a result -----------------------------------------------------------------------------------------------


class TurnSummary:
    """A turn, folded from its records from the first one on.

    running ──run stops, calls wait──► asking ──a run brings answers──► running ──run stops──► over
                                       asking ──a new message, or its calls are cancelled──► over

    It begins before the start of the run that the user's message began.
    """

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self.phase: Literal["running", "asking", "over"] = "running"
        self.active: RunId | None = None
        """The run that is executed."""
        self.last_run = run_id
        """The turn's newest run."""
        self.stopped: RunStopped | None = None
        """The end of the turn's last run; None in `over` if a newer message ended the turn."""
        self.usage = core.Usage()
        self.texts: list[str] = []
        self.files: list[core.Image | core.File] = []
        self.data: list[JsonObject] = []
        self.said = ""
        """What the agent said last: in its newest message with words."""
        self._is_said = False
        """Whether that message is closed. After a crash, another one repeats its words."""
        self.called = ""
        """The tool that it called since."""
        self.began_at: datetime | None = None
        self.changed_at: datetime | None = None
        self._assembler = Assembler()

    def feed(self, record: Record) -> None:
        """Take the next record. What follows the turn is ignored."""
        if self.is_over:
            return
        if type(record) is Piece:
            if record.loop == ROOT and record.kind == "text":
                self.said = ("" if self._is_said else self.said) + record.text
                self.said, self.called, self._is_said = self.said[-SAID_CHARS:], "", False
            return
        self.began_at, self.changed_at = self.began_at or record.at, record.at
        message = self._assembler.feed(record)
        if isinstance(message, core.AssistantMessage) and message.loop == ROOT:
            self._is_said = True
            self._add(message)
        match record.event:
            case RunStarted(run_id=run_id, inputs=inputs):
                self.active, self.last_run, self.phase = run_id, run_id, "running"
                if inputs and run_id != self.run_id:
                    self._end(None)
            case MessageAdded(message=core.UserMessage(loop="root")) if record.run_id not in (None, self.run_id):
                self._end(None)
            case CallOpened(loop="root", call=call):
                self.called = call.name
            case CallSettled(outcome="cancelled") if self.phase == "asking":
                self._end(None)
            case RunStopped(run_id=run_id) as stopped if run_id == self.active:
                self.usage += stopped.usage
                self.active = None
                if stopped.reason == "tool_use":
                    self.phase = "asking"
                else:
                    self._end(stopped)

    def _end(self, stopped: RunStopped | None) -> None:
        self.phase, self.stopped, self.active = "over", stopped, None

    def _add(self, message: core.AssistantMessage) -> None:
        if message.status == "cut":  # another message repeats it
            return
        if text := core.text_of(message.content):
            self.texts.append(text)
        for block in () if isinstance(message.content, str) else message.content:
            if isinstance(block, core.Image | core.File):
                self.files.append(block)
            elif isinstance(block, core.Data):
                self.data.append(block.data)

    @property
    def is_over(self) -> bool:
        """Whether the turn is over."""
        return self.phase == "over"

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn was stopped, or a newer message ended it."""
        return self.is_over and (self.stopped is None or self.stopped.reason == "cancelled")

    @property
    def progress(self) -> str:
        """What a progress message shows."""
        return f"{self.called}…" if self.called else self.said


def turn_result(
    turn: TurnSummary,
    session_id: SessionId,
    *,
    pending: Sequence[OpenCall] = (),
    approve_at: str = "",
    has_links: bool = True,
) -> JsonObject:
    """The result of a call.

    Args:
        turn: the turn so far: one that runs is `working`.
        session_id: its session.
        pending: what waits, of a turn that asks.
        approve_at: the address of the console, if it is known.
        has_links: whether the client knows content of the type `resource_link`.
    """
    status: wire.Status = "working" if turn.phase == "running" else "input_required"
    error: wire.CallError | None = None
    if turn.phase == "over":
        status = "cancelled" if turn.stopped is None else STATUSES[turn.stopped.reason]
        if turn.stopped is not None and status == "failed":
            code = turn.stopped.code or turn.stopped.reason
            error = wire.CallError(code=code, message=turn.stopped.message or "The run failed")
    calls = tuple(wire.PendingCall(**pending_members(each)) for each in pending)
    structured = wire.StructuredResult(
        session_id=session_id,
        run_id=turn.run_id,
        status=status,
        text="\n\n".join(turn.texts),
        pending=calls,
        data=tuple(turn.data),
        stop_reason=None if turn.stopped is None else turn.stopped.reason,
        error=error,
        usage=wire.CallUsage(input_tokens=turn.usage.input_tokens, output_tokens=turn.usage.output_tokens),
    )
    blocks = [_file_block(each, has_links) for each in turn.files]
    blocks += [_text_block(compact_json(each)) for each in turn.data]
    if status == "input_required":
        blocks.append(_text_block(_how_to_answer(calls, approve_at)))
    elif status == "working":
        blocks.append(_text_block("The agent is still working. Call again with this session_id and an empty message."))
    elif error is not None:
        blocks.append(_text_block(f"The agent failed: {error.message} ({error.code})"))
    elif status == "cancelled":
        blocks.append(_text_block("The run was cancelled."))
    return _call_result(structured, blocks)


def task_of(turn: TurnSummary, status: str) -> JsonObject:
    """A turn as a task."""
    return {
        "taskId": turn.run_id,
        "status": status,
        "createdAt": turn.began_at,
        "lastUpdatedAt": turn.changed_at,
        "ttlMs": None,
        "pollIntervalMs": POLL_INTERVAL_MS,
    }


def refused_result(code: str, message: str, session_id: str = "") -> JsonObject:
    """The result of a call that was refused: one sentence that a model can act on."""
    error = wire.CallError(code=code, message=message)
    structured = wire.StructuredResult(session_id=session_id, status="failed", text="", error=error)
    return _call_result(structured, [_text_block(message)])


def _call_result(structured: wire.StructuredResult, blocks: Sequence[JsonObject]) -> JsonObject:
    texts = [_text_block(structured.text)] if structured.text else []
    handle: list[JsonObject] = []
    if structured.session_id:
        handle.append(
            {**_text_block(f"session_id: {structured.session_id}"), "annotations": {"audience": ["assistant"]}}
        )
    return {
        "content": [*texts, *blocks, *handle],
        "structuredContent": structured,
        "isError": structured.status == "failed",
    }


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _file_block(block: core.Image | core.File, has_links: bool) -> JsonObject:
    found, name = core.parse_data_uri(block.url), block.name or "file"
    if found is None:
        if has_links and block.url.startswith("https://"):
            return {"type": "resource_link", "uri": block.url, "name": name}
        return _text_block(block.url)
    media_type, size = media_type_of(block), len(found.data) * 3 // 4
    if size > FILE_LIMIT:
        return _text_block(f"[{name} {media_type}, {size} bytes: see the conversation]")
    kind = media_type.partition("/")[0].lower()
    if kind in ("image", "audio"):
        return {"type": kind, "data": found.data, "mimeType": media_type}
    uri = f"file:///{quote(name)}"  # tells hosts its name; there is nothing to read
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": found.data}}


def _how_to_answer(calls: Iterable[wire.PendingCall], approve_at: str) -> str:
    sentences = []
    for call in calls:
        if call.kind == "question":
            sentences.append(f"The agent asks: {question_text(call.input)}\n\nAnswer with the next message.")
        elif call.kind == "approval":
            where = f"in the console ({approve_at})" if approve_at else "in the console or another client"
            sentences += [repeat_question(call.name)] if call.repeat else []
            sentences.append(
                f"{call.name} needs the approval of a person, with the arguments {compact_json(call.input)}. "
                f"Approve it {where}, then call again with this session_id and an empty message."
            )
        else:
            sentences.append(f"{call.name} has to be executed by the application that provides it.")
    return "\n".join(sentences)


# --- conversations as resources ---------------------------------------------------------------------------------------


ENDINGS: dict[core.MessageStatus, str] = {
    "completed": "",
    "interrupted": "*(stopped before its end)*",
    "failed": "*(failed before its end)*",
    "cut": "*(cut off by a restart of the server; the next message repeats it)*",
}


def markdown_of(messages: Iterable[core.Message]) -> str:
    """A conversation as Markdown: texts, the names of calls, and which answers have no end. The oldest of a long one
    is left out.
    """
    paragraphs = []
    for message in messages:
        if is_empty(message) or not isinstance(message, core.UserMessage | core.AssistantMessage):
            continue
        role = "user" if isinstance(message, core.UserMessage) else "assistant"
        lines = [core.text_of(message.content)]
        if isinstance(message, core.AssistantMessage):
            lines += [*(f"*called {call.name}*" for call in message.calls()), ENDINGS[message.status]]
        shown = "\n\n".join(filter(None, lines))
        if shown:
            paragraphs.append(f"**{role}**\n\n{shown}\n")
    text = "\n".join(paragraphs)
    if len(text) <= MARKDOWN_LIMIT:
        return text
    return f"*The beginning, {len(text) - MARKDOWN_LIMIT} characters, is left out.*\n\n{text[-MARKDOWN_LIMIT:]}"
