"""Blade ↔ core: what clients send as the core's input, and sessions as clients see them. Pure.

Turns and events are made in `projection`. Source: specification, sections 3.1, 4.1, 6.1, 8; rulings, 24.
"""

import binascii
import mimetypes
from collections.abc import Mapping

import msgspec

from dragoman.core import content as core
from dragoman.core import json_schema
from dragoman.core.content import JsonObject
from dragoman.core.events import Mode, SettingsChange, StopReason
from dragoman.core.inputs import Answer, Choice, Decision, Submit, UserInput
from dragoman.core.recording import RecordedTurn
from dragoman.core.refusals import Invalid, InvalidAnswer, LimitExceeded
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import FALLBACK_TITLE_LENGTH, SessionState
from dragoman.core.tools import AgentSpec, ToolGrant
from dragoman.protocols.blade.projection import blocks
from dragoman.protocols.blade.projection.chat import ANSWER_TEXT, replay_state_of
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.sessions import check_env, optional_text

PROTOCOL = "blade"
MAX_PARTS_BYTES = 10 * 1024 * 1024
"""Decoded bytes of all parts of a message."""
EMPTY_ANSWER_MESSAGE = "the answer chooses one of the options, or says something in words"

STATUS_AFTER_STOP: Mapping[StopReason, chat.SessionStatus] = {
    "end_turn": "completed",
    "tool_use": "interrupted",  # what it waited for was stopped, or left behind
    "max_tokens": "completed",
    "refusal": "completed",
    "max_steps": "completed",
    "cancelled": "interrupted",
    "error": "failed",
    "interrupted": "interrupted",
}
"""A session's status after its last run, when nothing waits in it."""


def status_of(state: SessionState) -> chat.SessionStatus:
    """A session's status."""
    match state.status():
        case "running":
            return "running"
        case "waiting":
            return "waiting_for_input"
        case "idle":
            return "created" if state.last_stop is None else STATUS_AFTER_STOP[state.last_stop]


def session_of(state: SessionState, default_agent: str) -> chat.Session:
    """A session as it stands in lists."""
    return chat.Session(**_session_fields(state, default_agent))


def detail_of(
    state: SessionState, spec: AgentSpec | None, default_agent: str, *, is_owner: bool = True
) -> chat.SessionDetail:
    """A session by itself."""
    settings = state.settings
    env: dict[str, str] | msgspec.UnsetType = settings.env if is_owner else msgspec.UNSET
    return chat.SessionDetail(
        **_session_fields(state, default_agent),
        solution=None if spec is None else solution_of(spec),
        session_setup=chat.SessionSetup(settings.mode, disabled_tools(state, spec)),
        viewer_role="owner" if is_owner else "viewer",
        env=env,
    )


def _session_fields(state: SessionState, default_agent: str) -> JsonObject:
    settings = state.settings
    return {
        "id": chat.public_session_id(state.session_id),
        "intent": state.title(),
        "status": status_of(state),
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "user_id": state.owner,
        "solution_id": None if state.agent == default_agent else state.agent,
        "biz_role_id": settings.variant,
        "model": settings.model,
        "shared": settings.shared,
        "is_pinned": settings.pinned,
        "memory_enabled": settings.memory_enabled is True,
        "is_persistent": settings.persistent,
        "replay_state": replay_state_of(state),
    }


def solution_of(spec: AgentSpec) -> JsonObject:
    """An agent as a solution."""
    return {
        "id": spec.name,
        "name": spec.title or spec.name,
        "version": spec.version,
        "description": spec.description or "",
        "layout_type": "chat",
        "initial_message": "",
        "data": {},
        "roles": [],
    }


def disabled_tools(state: SessionState, spec: AgentSpec | None) -> list[str]:
    """The agent's tools that the session has not switched on."""
    tools = state.settings.tools
    if spec is None or tools == "all":
        return []
    on = {grant.name for grant in tools or ()}
    return [tool.spec.name for tool in spec.exposed() if tool.spec.name not in on]


def tools_without(spec: AgentSpec, disabled: tuple[str, ...]) -> tuple[ToolGrant, ...] | None:
    """The tools of a new session some of whose agent's tools are switched off; None when none is.

    A name that the agent has no tool of is ignored: clients send one list to every agent.
    """
    off = {tool.spec.name for tool in spec.exposed()}.intersection(disabled)
    if not off:
        return None
    return tuple(
        ToolGrant(tool.spec.name, trust=not tool.policy.needs_approval)
        for tool in spec.exposed()
        if tool.spec.name not in off
    )


# --- chat:send --------------------------------------------------------------------------------------------------------


def submit_of(send: chat.ChatSend, state: SessionState) -> Submit:
    """What a `chat:send` asks of the core.

    Raises:
        Invalid: there is nothing to say, a part or the schema is wrong, the answer does not fit.
        LimitExceeded: the parts are too large.
    """
    content, attachments = content_of(send)
    words = core.text_of(content)
    if send.whatif is not None and send.askuser_answer is not None:
        raise Invalid("leaves the question that is answered behind", path="whatif")
    answers = (answer_of(send.askuser_answer, state),) if send.askuser_answer is not None else ()
    if send.output_schema is not None:
        json_schema.check_schema(send.output_schema)
    model = optional_text(send.model, "model")
    own: JsonObject = {}
    if answers and content and isinstance(content, str):
        own[ANSWER_TEXT] = content
    if attachments:
        own["attachments"] = msgspec.to_builtins(attachments)
    if send.whatif is not None and send.whatif.deprecate_entry_ids:
        own["deprecate"] = list(send.whatif.deprecate_entry_ids)
    metadata = RunMetadata(
        headless=send.headless or send.output_schema is not None,
        output_schema=send.output_schema,
        model=model,
        env={**state.settings.env, **check_env(send.runtime_env or {}, "runtime_env")},
        protocol=own,
    )
    mode: Mode | None = send.mode or ("executing" if send.headless else None)
    change = SettingsChange(
        title=None if state.title() else words[:FALLBACK_TITLE_LENGTH].strip() or None,
        model=model if model != state.settings.model else None,
        mode=mode if mode != state.settings.mode else None,
    )
    messages = (UserInput(content=content),) if content or send.whatif is not None else ()
    return Submit(protocol=PROTOCOL, messages=messages, answers=answers, change=change, metadata=metadata)


class ReplayMismatch(Exception):
    """Something else was recorded than what a client says in a replay."""

    def __init__(self, session_id: str, expected: str, received: str) -> None:
        super().__init__("the recording has another message here: send again, with a replay_decision")
        self.session_id = session_id
        self.expected = expected
        self.received = received


def submit_of_replay(send: chat.ChatSend, state: SessionState, turn: RecordedTurn | None) -> Submit:
    """What a `chat:send` asks of the core in a replay: its next turn, in the recorded words or the user's.

    Raises:
        Invalid: the recording is over, or cannot be played so.
        Mismatch: the user's words are others, and the client has not said which are to stand there.
    """
    if turn is None:
        raise Invalid("the recording is over: set the replay's status to autonomous to go on")
    if send.whatif is not None or send.output_schema is not None:
        raise Invalid("a replay takes neither whatif nor output_schema")
    asked = submit_of(msgspec.structs.replace(send, mode=state.settings.mode, model=None), state)
    if send.replay_decision == "keep_replay":
        return msgspec.structs.replace(
            asked, messages=tuple(UserInput(content=message.content) for message in turn.user_messages)
        )
    received = core.text_of(content_of(send)[0])
    if send.replay_decision is None and received.strip() != turn.text.strip():
        raise ReplayMismatch(chat.public_session_id(state.session_id), turn.text, received)
    return asked


def content_of(send: chat.ChatSend) -> tuple[str | tuple[core.InputBlock, ...], list[chat.Attachment]]:
    """A message's content, and what is to be noted of its attachments.

    Raises:
        Invalid, LimitExceeded: a part is wrong, or all are too large.
    """
    quotes = "" if send.whatif is None else "".join(map(format_quote, send.whatif.quotes or ()))
    if isinstance(send.message, str):
        return (f"{quotes}\n{send.message}" if quotes else send.message), []
    content: list[core.InputBlock] = [core.Text(quotes)] if quotes else []
    attachments: list[chat.Attachment] = []
    left = MAX_PARTS_BYTES
    for place, part in enumerate(send.message):
        if isinstance(part, chat.TextPart):
            content.append(core.Text(part.text))
            continue
        block = _media_block(part, f"message[{place}]")
        noted = blocks.attachment_of(block)
        left -= noted.size
        if left < 0:
            raise LimitExceeded("a message's parts", MAX_PARTS_BYTES, path="message")
        content.append(block)
        attachments.append(noted)
    return tuple(content), attachments


def _media_block(part: chat.ImagePart | chat.FilePart, path: str) -> core.Image | core.File:
    if isinstance(part, chat.ImagePart):
        return core.Image(part.image_url.url)
    try:
        binascii.a2b_base64(part.data, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("a file's data is base64", path=f"{path}.data") from error
    media_type = mimetypes.guess_type(part.name)[0] or "application/octet-stream"
    return core.File(f"data:{media_type};base64,{part.data}", "file", media_type, part.name)


def format_quote(quote: chat.Quote) -> str:
    """A quote as the model reads it: each of its lines is marked."""
    return "".join(f"> {line}\n" for line in quote.text.splitlines())


def answer_of(answer: chat.AskUserAnswer, state: SessionState) -> Answer:
    """An answer as the core takes it. A permission request is a question with three options (specification, 8.3).

    Raises:
        InvalidAnswer: it chooses nothing, or what is not there.
    """
    call_id = chat.parse_call_id(answer.tool_call_id)
    call = state.answerable_calls().get(call_id)
    selections, said = answer.selections or {}, answer.custom or {}
    if call is None or (call.kind != "permission" and not call.parked):
        return Choice(call_id=call_id, selections=selections, custom=said)
    chosen = selections.get("0", [])
    custom = said.get("0") or None
    if len(chosen) > 1 or any(not 0 <= each < len(blocks.PERMISSION_OPTIONS) for each in chosen):
        raise InvalidAnswer(
            f"the question takes one of {len(blocks.PERMISSION_OPTIONS)} options, got {str(chosen)[:80]}"
        )
    if not chosen and custom is None:
        raise InvalidAnswer(EMPTY_ANSWER_MESSAGE)
    is_granted = bool(chosen) and chosen[0] < 2
    return Decision(call_id=call_id, granted=is_granted, reason=custom, remember=bool(chosen) and chosen[0] == 1)
