"""Content blocks made of what the log holds: user input, arguments, results, answers, and tools' `_meta`. Pure."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json, object_with_meta, questions_of
from dragoman.core.blob_ref import blob_ref_for, parse_blob_ref
from dragoman.core.content import Json, JsonObject
from dragoman.core.open_calls import OpenCall
from dragoman.core.question_text import repeat_question
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.core.uploads import upload_type
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import Attachment, Block, ToolCall

MAX_CARD_BYTES = 256 * 1024
PERMISSION_OPTIONS = ("Allow once", "Allow for this session", "Deny")
"""The options of a permission request, in this order."""

# --- user input -------------------------------------------------------------------------------------------------------


def user_blocks(message: core.UserMessage, attachments: Iterator[Attachment], path: str) -> list[Block]:
    """Return a user's message as blocks; whatever is not text becomes a note of one line (specification, 3.3).

    Args:
        message: the message as the log holds it, with references in place of large contents.
        attachments: what the run's metadata says about its attachments, in order.
        path: where the contents can be read, without the index of the block.
    """
    if isinstance(message.content, str):
        return [Block("text", message.content)]
    return [
        Block("text", block.text)
        if isinstance(block, core.Text)
        else attachment_block(block, f"{path}-{index}", next(attachments, None))
        for index, block in enumerate(message.content)
    ]


def attachment_block(block: core.Image | core.File | core.Data, path: str, known: Attachment | None = None) -> Block:
    """Return the note that stands for an attachment, such as `[image image/png 48 KB]`.

    Args:
        block: the attachment, as the log holds it.
        path: where its content can be read.
        known: what the run's metadata says about it.
    """
    attachment = known or attachment_of(block)
    if not isinstance(block, core.Data):
        is_elsewhere = block.url.startswith(("https:", "http:"))
        attachment = msgspec.structs.replace(attachment, url=block.url if is_elsewhere else path)
    size = f"{max(1, round(attachment.size / 1024))} KB" if attachment.size else ""
    words = (attachment.kind, attachment.name or attachment.media_type or "", size)
    return Block("text", f"[{' '.join(filter(None, words))}]", attachment=attachment)


def attachment_of(block: core.Image | core.File | core.Data) -> Attachment:
    """Return what a block says about itself as an attachment."""
    if isinstance(block, core.Data):
        return Attachment("data", None, "application/json", len(msgspec.json.encode(block.data)), block.data)
    kind: Literal["image", "file", "audio", "video"] = "image"
    declared = None
    if isinstance(block, core.File):
        kind, declared = block.media, block.media_type
    ref = blob_ref_for(block.url) if block.url.startswith("data:") else parse_blob_ref(block.url)
    if ref is not None:
        return Attachment(kind, block.name, ref.media_type or declared, ref.size_bytes)
    return Attachment(kind, block.name, declared or upload_type(block.url), 0)


# --- calls, results and answers ---------------------------------------------------------------------------------------


def arguments_of(call: core.Call) -> tuple[str, Json]:
    """Return a call's arguments as text, and as the content of the block that declares the call."""
    unparsed = call.input.get(core.UNPARSED_ARGUMENTS)
    if len(call.input) == 1 and isinstance(unparsed, str):
        return unparsed, {"_raw": unparsed}
    return compact_json(call.input), call.input


def permission_question(call: OpenCall) -> str:
    """Return the question whether a call may run, or run again."""
    return repeat_question(call.call.name) if call.is_repeat else f"Allow {call.call.name}?"


def permission_call(call: OpenCall, number: int = 1) -> tuple[ToolCall, JsonObject]:
    """Return the question whether a call may run, as a call with its arguments (specification, 8.3).

    `number`: how many such questions about the call there are with this one.
    """
    question: JsonObject = {
        "question": permission_question(call),
        "header": "Permission",
        "options": [{"label": label} for label in PERMISSION_OPTIONS],
        "multiSelect": False,
    }
    return question_call(chat.permission_id(call.call.call_id, number), {"questions": [question], "source_loop": None})


def question_call(question_id: str, arguments: JsonObject) -> tuple[ToolCall, JsonObject]:
    """Return a question about a call as a separate call with its arguments."""
    text = compact_json(arguments)
    return ToolCall(question_id, ASK_USER_QUESTION, ASK_USER_QUESTION, text, "awaiting_answer"), arguments


def result_value(result: core.ToolMessage) -> Json:
    """Return the value that a tool returned, with its `_meta`, as far as the log holds it."""
    if result.raw is not msgspec.UNSET:
        return result.raw
    content = result.content
    if isinstance(content, str):
        return content
    if all(isinstance(block, core.Text) for block in content):
        return core.text_of(content)
    return msgspec.to_builtins(content)


def answer_block(
    call_id: str, arguments: JsonObject, answers: list[JsonObject], permission: JsonObject | None = None
) -> Block:
    """Return a user's answer, which can be read without its question.

    `call_id` and `arguments` are those of the question. `permission` is an extension: which tool may run, and whether
    it runs again.
    """
    selections: dict[str, list[int]] = {}
    custom: dict[str, str] = {}
    questions = questions_of(arguments).questions
    for index, answer in enumerate(answers):
        labels = [option.label for option in questions[index].options] if index < len(questions) else []
        if chosen := [labels.index(label) for label in answer["labels"] if label in labels]:
            selections[str(index)] = chosen
        if answer["custom"]:
            custom[str(index)] = answer["custom"]
    content = {"tool_call_id": call_id, "selections": selections, "custom": custom, "answers": answers}
    if permission is not None:
        content["permission"] = permission
    return Block("ask_user_answer", content, call_id, ASK_USER_QUESTION, ASK_USER_QUESTION)


# --- _meta ------------------------------------------------------------------------------------------------------------


def meta_blocks(value: Json, call: ToolCall) -> Iterator[Block | str]:
    """Yield the page action and the card in a tool's return value, in that order, or what is wrong with each.

    Source: specification, section 14.
    """
    meta = meta_of(value)
    if (bridge := meta.get("bridge")) is not None:
        if isinstance(bridge, dict) and isinstance(bridge.get("action"), str):
            content = {"action": bridge["action"], "payload": bridge.get("payload")}
            yield Block("tool_bridge", content, call.id, call.tool_name, call.display_name)
        else:
            yield "a bridge must have an action, which is a string"
    if (card := meta.get("ui")) is not None:
        yield card_error(card) or Block("tool_ui", card, call.id, call.tool_name, call.display_name)


def meta_of(value: Json) -> JsonObject:
    """Return the `_meta` of a return value, which may also be the JSON text of an object."""
    value = object_with_meta(value)
    meta = value.get("_meta") if isinstance(value, dict) else None
    return meta if isinstance(meta, dict) else {}


def card_error(card: Json) -> str | None:
    """Return what is wrong with a card. Other kinds of card, such as tables, are not checked."""
    if not isinstance(card, dict):
        return "a card must be an object"
    html, uri = card.get("resourceHTML"), card.get("resourceUri")
    if html is None and uri is None and "type" in card:
        return None
    if (html is None) == (uri is None):
        return "a card must have either resourceHTML or resourceUri"
    if html is not None and not (isinstance(html, str) and len(html.encode("utf-8", "replace")) <= MAX_CARD_BYTES):
        return f"a card's resourceHTML must be a string of at most {MAX_CARD_BYTES} bytes"
    if uri is not None and not (isinstance(uri, str) and uri.startswith(("https://", "http://"))):
        return "a card's resourceUri must be an http or https URL"
    if card.get("target", "inline") not in ("inline", "preview"):
        return "a card's target must be inline or preview"
    height = card.get("height")
    if height is not None and (not isinstance(height, int) or isinstance(height, bool) or height <= 0):
        return "a card's height must be a positive number of pixels"
    return None
