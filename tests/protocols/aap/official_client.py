"""How the official client keeps its own history: a port of its folding rules, quirks included.

It never reads the server's history while it talks: what it shows, and which calls it answers, comes from the events
alone. A server is right for it if this history is the server's own.

Source: aap §14, rows 3 to 8.
"""

from collections.abc import Iterable
from typing import Any

from tests.protocols.aap.stream import Call, Frame, blocks_of

Json = Any


class OfficialClient:
    """One session as the official client holds it."""

    def __init__(self, seeds: Iterable[dict[str, Json]] = ()) -> None:
        self.history: list[dict[str, Json]] = [dict(seed) for seed in seeds]
        self._blocks: list[dict[str, Json]] = []
        self._text = self._thinking = ""

    def send(self, *messages: dict[str, Json]) -> None:
        """Note what goes out with a turn. Permissions are no part of the history."""
        self.history += [dict(message) for message in messages if message["role"] != "tool_permission"]

    def receive(self, frames: Iterable[Frame]) -> None:
        """Fold a turn's stream into the history."""
        for frame in frames:
            self._feed(frame.event, frame.without_extensions()[1])

    def receive_answer(self, messages: Iterable[dict[str, Json]]) -> None:
        """Take over the answer of a turn in mode `none`."""
        self.history += [dict(message) for message in messages]

    def pending(self) -> list[Call]:
        """The calls that it would answer now: those of the last assistant message without a tool message anywhere."""
        answered = {message["toolCallId"] for message in self.history if message["role"] == "tool"}
        for message in reversed(self.history):
            if message["role"] == "assistant":
                calls = [block for block in blocks_of(message["content"]) if block["type"] == "tool_use"]
                return [
                    Call(call["toolCallId"], call["name"], call["input"])
                    for call in calls
                    if call["toolCallId"] not in answered
                ]
        return []

    def _feed(self, event: str, fields: dict[str, Json]) -> None:
        match event:
            case "text_delta":
                self._text += fields["delta"]
            case "thinking_delta":
                self._thinking += fields["delta"]
            case "text":
                self._close_block()
                self._blocks.append({"type": "text", "text": fields["text"]})
            case "thinking":
                self._close_block()
                self._blocks.append({"type": "thinking", "thinking": fields["thinking"]})
            case "tool_call":
                self._close_block()
                self._blocks.append({"type": "tool_use", **fields})
            case "tool_result":
                self._close_message()
                self.history.append({"role": "tool", **fields})
            case "turn_stop":
                self._close_message()
            case _:  # also `turn_start`: whatever it does not know ends the block that is open
                self._close_block()

    def _close_block(self) -> None:
        if self._text:  # its quirk: text goes before thinking when both are open
            self._blocks.append({"type": "text", "text": self._text})
        if self._thinking:
            self._blocks.append({"type": "thinking", "thinking": self._thinking})
        self._text = self._thinking = ""

    def _close_message(self) -> None:
        self._close_block()
        if self._blocks:
            self.history.append({"role": "assistant", "content": self._blocks})
            self._blocks = []


def normalize_history(history: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """A history as the client's peculiarities leave it, so that two can be compared.

    Assistant messages with nothing between are one; between two calls all text comes first and is one, and so is all
    thinking; images, of which no event tells, are left out.
    """
    result: list[dict[str, Json]] = []
    for message in history:
        kept = {name: value for name, value in message.items() if name != "_meta"}
        if kept["role"] != "assistant":
            result.append(kept)
            continue
        if not result or result[-1]["role"] != "assistant":
            result.append({"role": "assistant", "content": []})
        result[-1]["content"] += blocks_of(kept["content"])
    for message in result:
        if message["role"] == "assistant":
            message["content"] = _in_runs(message["content"])
    return result


def _in_runs(blocks: list[dict[str, Json]]) -> list[dict[str, Json]]:
    result: list[dict[str, Json]] = []
    text = thinking = ""
    for block in [*blocks, {"type": "end"}]:
        if block["type"] == "text":
            text += block["text"]
        elif block["type"] == "thinking":
            thinking += block["thinking"]
        elif block["type"] in ("tool_use", "end"):
            if text:
                result.append({"type": "text", "text": text})
            if thinking:
                result.append({"type": "thinking", "thinking": thinking})
            text = thinking = ""
            if block["type"] == "tool_use":
                result.append(block)
    return result
