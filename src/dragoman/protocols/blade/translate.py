"""Translates what Blade's clients send into the core's input, and sessions into Blade's form. Pure.

Turns and events are made in `projection`. Source: specification, sections 3.1, 4.1, 6.1, 8; shared rules, 24.
"""

import binascii
import mimetypes

import msgspec

from dragoman.core import content as core
from dragoman.core import json_schema
from dragoman.core.content import JsonObject
from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Answer, Choice, Decision, Submit, UserInput
from dragoman.core.recording import RecordedTurn
from dragoman.core.refusals import Invalid, InvalidAnswer, LimitExceeded
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.text_checks import check_variables
from dragoman.core.titles import title_from
from dragoman.core.tools import AgentSpec, disabled_tools
from dragoman.protocols.blade.projection import blocks
from dragoman.protocols.blade.projection.chats import CHAT_OUTCOMES, replay_state_of
from dragoman.protocols.blade.projection.emitter import ANSWER_TEXT
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.sessions import optional_text

PROTOCOL = "blade"
MAX_PARTS_BYTES = 10 * 1024 * 1024
"""The limit for all parts of a message, decoded."""
EMPTY_ANSWER_MESSAGE = "the answer must choose one of the options or contain text"


def status_of(state: SessionState) -> chat.SessionStatus:
    """Return a session's status."""
    match state.status():
        case "running":
            return "running"
        case "waiting":
            return "waiting_for_input"
        case "idle":
            if state.last_stop is None:  # a session with messages was imported, or began with a history
                return "completed" if state.message_count else "created"
            # After `tool_use`, the calls that the run waited for were stopped or abandoned.
            return "interrupted" if state.last_stop == "tool_use" else CHAT_OUTCOMES[state.last_stop].status


def session_of(state: SessionState) -> chat.Session:
    """Return a session as it appears in lists."""
    settings = state.settings
    return chat.Session(
        id=chat.public_session_id(state.session_id),
        intent=state.title(),
        status=status_of(state),
        created_at=state.created_at,
        updated_at=state.updated_at,
        user_id=state.owner,
        solution_id=state.agent,
        biz_role_id=settings.variant,
        model=settings.model,
        shared=settings.shared,
        is_pinned=settings.pinned,
        memory_enabled=settings.memory_enabled is True,
        is_persistent=settings.persistent,
        replay_state=replay_state_of(state),
    )


def detail_of(state: SessionState, spec: AgentSpec | None, *, is_owner: bool = True) -> chat.SessionDetail:
    """Return a session with its details; `spec` is that of its agent, if it is served here."""
    disabled = [] if spec is None else disabled_tools(state.settings.tools, spec)
    return chat.SessionDetail(
        **msgspec.structs.asdict(session_of(state)),
        solution=None if spec is None else solution_of(spec),
        session_setup=chat.SessionSetup(state.settings.mode, disabled),
        viewer_role="owner" if is_owner else "viewer",
        env=state.settings.env if is_owner else msgspec.UNSET,
    )


def solution_of(spec: AgentSpec) -> JsonObject:
    """Return an agent as a solution."""
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


# --- chat:send --------------------------------------------------------------------------------------------------------


def submit_of(send: chat.ChatSend, state: SessionState) -> Submit:
    """Return a `chat:send` as the core's input.

    Raises:
        Invalid: a part, the schema or the answer is invalid.
        LimitExceeded: the parts are too large.
    """
    content, attachments = content_of(send)
    text = core.text_of(content)
    if send.whatif is not None and send.askuser_answer is not None:
        raise Invalid("cannot be combined with askuser_answer", path="whatif")
    answers = (answer_of(send.askuser_answer, state),) if send.askuser_answer is not None else ()
    if send.output_schema is not None:
        json_schema.check_schema(send.output_schema)
    check_variables(send.runtime_env, "runtime_env")
    model = optional_text(send.model, "model")
    protocol: JsonObject = {}
    if answers and content and isinstance(content, str):
        protocol[ANSWER_TEXT] = content
    if attachments:
        protocol["attachments"] = msgspec.to_builtins(attachments)
    if send.whatif is not None and send.whatif.deprecate_entry_ids:
        protocol["deprecate"] = list(send.whatif.deprecate_entry_ids)
    is_headless = send.headless or send.output_schema is not None
    metadata = RunMetadata(
        headless=is_headless,
        output_schema=send.output_schema,
        mode="executing" if is_headless and send.mode is None and state.settings.mode != "executing" else None,
        model=model,
        env={**state.settings.env, **(send.runtime_env or {})},
        protocol=protocol,
    )
    change = SettingsChange(
        title=None if state.title() else title_from(text) or None,
        model=model if model != state.settings.model else None,
        mode=send.mode if send.mode != state.settings.mode else None,
    )
    messages = (UserInput(content=content),) if content or send.whatif is not None else ()
    return Submit(protocol=PROTOCOL, messages=messages, answers=answers, change=change, metadata=metadata)


class ReplayMismatch(Exception):
    """The message sent in a replay differs from the recorded one. `facts`: what the client gets to decide by."""

    def __init__(self, session_id: str, expected: str, received: str) -> None:
        super().__init__("the recorded message differs: send again with a replay_decision")
        self.facts = {"session_id": session_id, "expected": expected, "received": received}


def submit_of_replay(send: chat.ChatSend, state: SessionState, turn: RecordedTurn | None) -> Submit:
    """Return a `chat:send` to a replay as the core's input: the next recorded turn, with its text or the user's.

    Raises:
        Invalid: the recording is over, or cannot be played with these options.
        ReplayMismatch: the texts differ, and the client has not decided which one to play.
    """
    if turn is None:
        raise Invalid("the recording is over: set the replay's status to autonomous to continue")
    if send.whatif is not None or send.output_schema is not None:
        raise Invalid("a replay takes neither whatif nor output_schema")
    submit = submit_of(msgspec.structs.replace(send, mode=state.settings.mode, model=None), state)
    if send.replay_decision == "keep_replay":
        return msgspec.structs.replace(
            submit, messages=tuple(UserInput(content=message.content) for message in turn.user_messages)
        )
    received = core.text_of(content_of(send)[0])
    if send.replay_decision is None and received.strip() != turn.text.strip():
        raise ReplayMismatch(chat.public_session_id(state.session_id), turn.text, received)
    return submit


def content_of(send: chat.ChatSend) -> tuple[str | tuple[core.InputBlock, ...], list[chat.Attachment]]:
    """Return a message's content and the descriptions of its attachments. Parts that are all blank do not count.

    Raises:
        Invalid: a part is invalid.
        LimitExceeded: the parts are too large.
    """
    quoted = () if send.whatif is None else send.whatif.quotes or ()
    quotes = "".join(f"> {line}\n" for quote in quoted for line in quote.text.splitlines())
    if isinstance(send.message, str):
        return (f"{quotes}\n{send.message}" if quotes else send.message), []
    content: list[core.InputBlock] = [core.Text(quotes)] if quotes else []
    attachments: list[chat.Attachment] = []
    left = MAX_PARTS_BYTES
    for index, part in enumerate(send.message):
        if isinstance(part, chat.TextPart):
            content.append(core.Text(part.text))
            continue
        block = _media_block(part, f"message[{index}]")
        attachment = blocks.attachment_of(block)
        left -= attachment.size
        if left < 0:
            raise LimitExceeded("a message's parts", MAX_PARTS_BYTES, path="message")
        content.append(block)
        attachments.append(attachment)
    if all(isinstance(block, core.Text) and not block.text.strip() for block in content):
        return "", []
    return tuple(content), attachments


def _media_block(part: chat.ImagePart | chat.FilePart, path: str) -> core.Image | core.File:
    if isinstance(part, chat.ImagePart):
        return core.Image(part.image_url.url)
    try:
        binascii.a2b_base64(part.data, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("a file's data must be base64", path=f"{path}.data") from error
    media_type = mimetypes.guess_type(part.name)[0] or "application/octet-stream"
    return core.File(f"data:{media_type};base64,{part.data}", "file", media_type, part.name)


def answer_of(answer: chat.AskUserAnswer, state: SessionState) -> Answer:
    """Return an answer as the core takes it. A permission request is a question with three options (section 8.3).

    Raises:
        InvalidAnswer: it chooses nothing, or an option that does not exist.
    """
    call_id = chat.parse_call_id(answer.tool_call_id)
    call = state.answerable_calls().get(call_id)
    selections, custom_texts = answer.selections or {}, answer.custom or {}
    if call is None or call.waits_for != "permission":
        return Choice(call_id=call_id, selections=selections, custom=custom_texts)
    call_id = call.call.call_id  # the id above it names it too (section 8.4)
    chosen = selections.get("0", [])
    custom = custom_texts.get("0") or None
    if len(chosen) > 1 or any(not 0 <= each < len(blocks.PERMISSION_OPTIONS) for each in chosen):
        raise InvalidAnswer(
            f"the question takes one of {len(blocks.PERMISSION_OPTIONS)} options, got {str(chosen)[:80]}"
        )
    if not chosen and custom is None:
        raise InvalidAnswer(EMPTY_ANSWER_MESSAGE)
    is_granted = bool(chosen) and chosen[0] < 2
    return Decision(call_id=call_id, granted=is_granted, reason=custom, remember=bool(chosen) and chosen[0] == 1)
