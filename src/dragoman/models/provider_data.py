"""What a provider needs back with a later request, such as the signatures of its reasoning. No IO.

The log keeps it with the message, without the texts, which it has already. It is opaque to everybody else, and only the
same provider gets it back.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai import messages as theirs

from dragoman.core.content import AssistantMessage, Call, JsonObject, Text, Thinking

_FIELDS = ("id", "signature", "provider_name", "provider_details")

Part = theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart


def provider_data_of(provider: str, parts: Sequence[theirs.ModelResponsePart]) -> JsonObject | None:
    """What has to be returned with an answer; None if nothing has."""
    known = [part for part in parts if isinstance(part, Part)]
    entries = [_entry_of(part) for part in known]
    if not any(entry.keys() & set(_FIELDS) for entry in entries):
        return None
    return {"provider": provider, "parts": entries}


def parts_with_data(message: AssistantMessage, provider: str) -> list[Part] | None:
    """The parts of an answer of this provider with their data.

    None if it has no data, is another provider's, or was changed since, such as shortened to fit the context window.
    """
    data = message.provider_data
    if data is None or data["provider"] != provider or isinstance(message.content, str):
        return None
    texts = "".join(block.text for block in message.content if isinstance(block, Text))
    thoughts = "".join(block.text for block in message.content if isinstance(block, Thinking))
    calls = iter(block for block in message.content if isinstance(block, Call))
    parts: list[Part] = []
    for entry in data["parts"]:
        fields = {name: entry[name] for name in _FIELDS if name in entry}
        size = entry.get("size", 0)
        if entry["kind"] == "thinking":
            parts.append(theirs.ThinkingPart(thoughts[:size], **fields))
            thoughts, is_whole = thoughts[size:], len(thoughts) >= size
        elif entry["kind"] == "text":
            parts.append(theirs.TextPart(texts[:size], **fields))
            texts, is_whole = texts[size:], len(texts) >= size
        else:
            call = next(calls, None)
            is_whole = call is not None
            if call is not None:
                parts.append(theirs.ToolCallPart(call.name, call.input, tool_call_id=call.call_id, **fields))
        if not is_whole:
            return None
    return None if texts or thoughts or next(calls, None) is not None else parts


def _entry_of(part: Part) -> JsonObject:
    entry: JsonObject = {"kind": part.part_kind}
    if not isinstance(part, theirs.ToolCallPart):
        entry["size"] = len(part.content)
    return entry | dict(_data_of(part))


def _data_of(part: Part) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name in _FIELDS if (value := getattr(part, name, None)) is not None)
