"""Turns and how they grow: each change of a turn is one patch, and folding the patches gives the turn. Pure.

Nothing is changed here without its patch, so that `turn:end` says what the patches said (specification, section 7, G1).
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json, object_with_meta, questions_of
from dragoman.core.blob_ref import blob_ref_for, parse_blob_ref
from dragoman.core.content import Json, JsonObject
from dragoman.core.events import CallOutcome
from dragoman.core.ids import CallId
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.core.uploads import upload_type
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import Attachment, Block, CallStatus, QuestionRef, ToolCall, Turn

FULL_CONTENT_MAX_CHARS = 4096
"""Characters up to which a growing block is repeated whole with every patch."""
FULL_CONTENT_EVERY_PATCHES = 16
"""Of a longer one, every so many patches."""
MAX_CARD_BYTES = 256 * 1024
PERMISSION_OPTIONS = ("Allow once", "Allow for this session", "Deny")
"""The options of a permission request, in their order."""
UNPARSED_ARGUMENTS = "_unreadable"
"""The argument under which the core keeps arguments that were no JSON object."""

PatchContent = tuple[str, JsonObject]
"""A patch's type and data."""


class TurnBuilder:
    """A turn that is not over. `patches` counts those that it was sent with."""

    def __init__(self, turn: Turn, started_at: datetime, seq: int) -> None:
        self.turn = turn
        self.started_at = started_at
        self.first_seq = seq
        self.rewind_seq: int | None = None
        """Of what a user said: the event before which the conversation ends when it goes back there."""
        self.patch_count = 0
        self.patches_at_last_end = -1
        """How many patches there were when the turn's end was sent last."""
        self.patches_at_last_sync = 0
        """How many there were when the turn was sent whole last, as it grew."""
        self.is_step_closed = False
        """Whether the model step is over; the turn is when its calls have their results too."""
        self.final_status: chat.TurnStatus = "completed"
        self.awaits_run_end = False
        """Whether the run's end decides how the turn ends."""
        self.open_calls: dict[CallId, ToolCall] = {}
        """Those without a result."""
        self._block_index = -1
        self._block_position = 0
        self._deltas: list[str] = []
        self._char_count = 0
        self._delta_count = 0

    # --- blocks -----------------------------------------------------------------------------------------------------

    def append_text(self, index: int, kind: str, text: str) -> PatchContent:
        """Add words to the step's block of that index."""
        turn = self.turn
        if index != self._block_index:
            self.join_text()
            self._block_index, self._block_position, self._deltas, self._char_count, self._delta_count = (
                index,
                len(turn.blocks),
                [],
                0,
                0,
            )
            turn.blocks.append(Block(kind, ""))
        self._deltas.append(text)
        self._char_count += len(text)
        self._delta_count += 1
        data: JsonObject = {"type": kind, "block_index": self._block_position, "text_delta": text}
        if self._char_count <= FULL_CONTENT_MAX_CHARS or self._delta_count % FULL_CONTENT_EVERY_PATCHES == 0:
            data["content"] = self.join_text()
        return "add_content", data

    def join_text(self) -> str:
        """Put the words of the growing block together; gives its text so far."""
        if not self._deltas:
            return ""
        text = self._deltas[0] if len(self._deltas) == 1 else "".join(self._deltas)
        self._deltas = [text]
        self.turn.blocks[self._block_position].content = text
        return text

    def has_text_of(self, index: int) -> bool:
        """Whether words of the step's block of that index came already."""
        return index == self._block_index

    def add_block(self, block: Block) -> PatchContent:
        """Add a whole block."""
        self.turn.blocks.append(block)
        data: JsonObject = {
            "type": block.type,
            "block_index": len(self.turn.blocks) - 1,
            "content": block.content,
            "tool_call_id": block.tool_call_id,
            "tool_name": block.tool_name,
            "display_name": block.display_name,
        }
        if block.attachment is not msgspec.UNSET:
            data["attachment"] = block.attachment
        return "add_content", data

    # --- calls ------------------------------------------------------------------------------------------------------

    def add_call(self, call: ToolCall, arguments: Json) -> PatchContent:
        """Add a call, and the block that declares it."""
        self.turn.tool_calls.append(call)
        self.turn.blocks.append(Block("tool_use", arguments, call.id, call.tool_name, call.display_name))
        return "add_tool_call", {
            "id": call.id,
            "tool_name": call.tool_name,
            "display_name": call.display_name,
            "arguments": call.arguments,
            "status": call.status,
        }

    def add_result(self, call: ToolCall, status: CallStatus, result: Json, duration_ms: int) -> PatchContent:
        """Give a call its result, with a block."""
        call.status, call.result, call.duration_ms, call.pending_question_ref = status, result, duration_ms, None
        self.turn.blocks.append(Block("tool_result", result, call.id, call.tool_name, call.display_name))
        return "tool_result", {
            "tool_call_id": call.id,
            "result": result,
            "status": status,
            "duration_ms": duration_ms,
        }

    def set_call_status(self, call: ToolCall, status: CallStatus, ref: QuestionRef | None = None) -> PatchContent:
        """Change a call's status."""
        call.status, call.pending_question_ref = status, ref
        return "set_tool_status", {"tool_call_id": call.id, "status": status, "pending_question_ref": ref}

    def set_status(self, status: chat.TurnStatus) -> PatchContent:
        """Change the turn's status while it goes on."""
        self.turn.status = status
        return "set_status", {"status": status}

    # --- ends -------------------------------------------------------------------------------------------------------

    @property
    def is_checkpoint(self) -> bool:
        """Whether the conversation can go back to before this turn."""
        return self.rewind_seq is not None

    def is_complete(self) -> bool:
        """Whether nothing of the turn is still to come."""
        return self.is_step_closed and not self.open_calls and not self.awaits_run_end

    def update_duration(self, at: datetime) -> None:
        """Note how long the turn has taken until now."""
        self.join_text()
        self.turn.duration_ms = ms_between(self.started_at, at)


def ms_between(begun: datetime, ended: datetime) -> int:
    """Whole milliseconds from one time to another, none when the clock went back."""
    return max(0, round((ended - begun).total_seconds() * 1000))


# --- what users said ------------------------------------------------------------------------------------------------


def user_blocks(message: core.UserMessage, attachments: Iterator[Attachment]) -> list[Block]:
    """A user's message. What is no text becomes a note of one line (specification, 3.3).

    Args:
        message: as the log has it, which holds a name in place of large contents.
        noted: what the door noted about its attachments, in order.
    """
    if isinstance(message.content, str):
        return [Block("text", message.content)]
    return [_input_block(block, attachments) for block in message.content]


def _input_block(block: core.InputBlock, attachments: Iterator[Attachment]) -> Block:
    if isinstance(block, core.Text):
        return Block("text", block.text)
    attachment = next(attachments, None) or attachment_of(block)
    return Block("text", attachment_note(attachment), attachment=attachment)


def attachment_of(block: core.Image | core.File | core.Data) -> Attachment:
    """What is known of an attachment from itself."""
    if isinstance(block, core.Data):
        return Attachment("data", None, "application/json", len(msgspec.json.encode(block.data)))
    name = block.name if isinstance(block, core.File) else None
    declared = block.media_type if isinstance(block, core.File) else None
    kind = "image" if isinstance(block, core.Image) else block.media
    kept = blob_ref_for(block.url) if block.url.startswith("data:") else parse_blob_ref(block.url)
    if kept is not None:
        return Attachment(kind, name, kept.media_type or declared, kept.size_bytes)
    return Attachment(kind, name, declared or upload_type(block.url), 0)


def attachment_note(attachment: Attachment) -> str:
    """The line that stands for an attachment, such as `[image image/png 48 KB]`."""
    words = [attachment.kind, attachment.name or attachment.media_type or ""]
    size = f"{max(1, round(attachment.size / 1024))} KB" if attachment.size else ""
    return f"[{' '.join(word for word in (*words, size) if word)}]"


# --- calls and results ----------------------------------------------------------------------------------------------


def arguments_of(call: core.Call) -> tuple[str, Json]:
    """A call's arguments: as text, and as the block that declares the call has them."""
    if call.input.keys() == {UNPARSED_ARGUMENTS} and isinstance(call.input[UNPARSED_ARGUMENTS], str):
        return call.input[UNPARSED_ARGUMENTS], {"_raw": call.input[UNPARSED_ARGUMENTS]}
    return compact_json(call.input), call.input


def permission_call(call: core.Call) -> tuple[ToolCall, JsonObject]:
    """The question whether a call may run, as a call of its own (specification, 8.3)."""
    question: JsonObject = {
        "question": f"Allow {call.name}?",
        "header": "Permission",
        "options": [{"label": label} for label in PERMISSION_OPTIONS],
        "multiSelect": False,
    }
    arguments: JsonObject = {"questions": [question], "source_loop": None}
    asked = ToolCall(
        chat.permission_id(call.call_id),
        ASK_USER_QUESTION,
        ASK_USER_QUESTION,
        compact_json(arguments),
        "awaiting_answer",
    )
    return asked, arguments


def permission_answers(call: core.Call, label: str, reason: str | None) -> list[JsonObject]:
    """The answer to that question."""
    return [{"question": f"Allow {call.name}?", "labels": [label], "custom": reason}]


def outcome_status(outcome: CallOutcome) -> CallStatus:
    """A settled call's status."""
    return "done" if outcome == "done" else "cancelled" if outcome == "cancelled" else "error"


def result_value(result: core.ToolMessage) -> Json:
    """A tool's return value, `_meta` included, as far as the log has it."""
    if result.raw is not msgspec.UNSET:
        return result.raw
    content = result.content
    if isinstance(content, str):
        return content
    if all(isinstance(block, core.Text) for block in content):
        return core.text_of(content)
    return msgspec.to_builtins(content)


def answer_block(call_id: str, arguments: JsonObject, answers: list[JsonObject]) -> Block:
    """A user's answer, readable without its question."""
    selections: dict[str, list[int]] = {}
    custom: dict[str, str] = {}
    questions = questions_of(arguments).questions
    for place, answer in enumerate(answers):
        labels = [option.label for option in questions[place].options] if place < len(questions) else []
        chosen = [labels.index(label) for label in answer["labels"] if label in labels]
        if chosen:
            selections[str(place)] = chosen
        if answer["custom"]:
            custom[str(place)] = answer["custom"]
    content = {"tool_call_id": call_id, "selections": selections, "custom": custom, "answers": answers}
    return Block("ask_user_answer", content, call_id, ASK_USER_QUESTION, ASK_USER_QUESTION)


# --- _meta ----------------------------------------------------------------------------------------------------------


class InvalidMeta(msgspec.Struct, frozen=True):
    """A part of `_meta` that is not what it should be."""

    reason: str


def meta_blocks(value: Json, call: ToolCall) -> Iterator[Block | InvalidMeta]:
    """The page actions and cards in a tool's return value, in that order. Source: specification, section 14."""
    meta = meta_of(value)
    if (bridge := meta.get("bridge")) is not None:
        if isinstance(bridge, dict) and isinstance(bridge.get("action"), str):
            content = {"action": bridge["action"], "payload": bridge.get("payload")}
            yield Block("tool_bridge", content, call.id, call.tool_name, call.display_name)
        else:
            yield InvalidMeta("a bridge has an action, which is a text")
    if (card := meta.get("ui")) is not None:
        why = card_error(card)
        yield InvalidMeta(why) if why else Block("tool_ui", card, call.id, call.tool_name, call.display_name)


def meta_of(value: Json) -> JsonObject:
    """The `_meta` of a return value, which may also be the JSON text of an object."""
    value = object_with_meta(value)
    meta = value.get("_meta") if isinstance(value, dict) else None
    return meta if isinstance(meta, dict) else {}


def card_error(card: Json) -> str | None:
    """What is wrong with a card. One of another shape, such as a table's, passes unchecked."""
    if not isinstance(card, dict):
        return "a card is an object"
    html, uri = card.get("resourceHTML"), card.get("resourceUri")
    if html is None and uri is None and "type" in card:
        return None
    if (html is None) == (uri is None):
        return "a card has either resourceHTML or resourceUri"
    if html is not None and not (isinstance(html, str) and len(html.encode("utf-8", "replace")) <= MAX_CARD_BYTES):
        return f"a card's resourceHTML is a text of at most {MAX_CARD_BYTES} bytes"
    if uri is not None and not (isinstance(uri, str) and uri.startswith(("https://", "http://"))):
        return "a card's resourceUri is an http or https URL"
    if card.get("target", "inline") not in ("inline", "preview"):
        return "a card's target is inline or preview"
    height = card.get("height")
    if height is not None and (not isinstance(height, int) or isinstance(height, bool) or height <= 0):
        return "a card's height is a whole number of pixels"
    return None
