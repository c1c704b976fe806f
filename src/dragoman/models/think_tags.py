"""Separates reasoning that a model writes into its text, as `<think>…</think>` at the beginning. Pure."""

from dragoman.ports.models import TextDelta, ThinkingDelta

OPENING, CLOSING = "<think>", "</think>"


class ThinkTags:
    """Divides the text of one answer. Tags anywhere else are text.

    start ── other text ──────────────────────────────► text
      └── <think> ──► thinking ── </think> ──► gap ──────┘
    """

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""
        """Text that cannot be assigned yet."""

    def feed(self, text: str) -> list[TextDelta | ThinkingDelta]:
        """The next part of the text."""
        if self._state == "text":
            return [TextDelta(text)] if text else []
        self._held += text
        events: list[TextDelta | ThinkingDelta] = []
        if self._state == "start":
            beginning = self._held.lstrip()
            if OPENING.startswith(beginning):
                return events
            self._state, self._held = ("thinking", beginning) if beginning.startswith(OPENING) else ("text", self._held)
            self._held = self._held.removeprefix(OPENING) if self._state == "thinking" else self._held
        if self._state == "thinking":
            thinking, closing, rest = self._held.partition(CLOSING)
            if closing:
                self._state, self._held = "gap", rest
            else:
                kept = next((size for size in range(len(CLOSING) - 1, 0, -1) if thinking.endswith(CLOSING[:size])), 0)
                thinking, self._held = thinking[: len(thinking) - kept], thinking[len(thinking) - kept :]
            events += [ThinkingDelta(thinking)] if thinking else []
        if self._state == "gap":
            self._held = self._held.lstrip()
            self._state = "text" if self._held else "gap"
        if self._state == "text":
            held, self._held = self._held, ""
            events += [TextDelta(held)] if held else []
        return events

    def close(self) -> list[TextDelta | ThinkingDelta]:
        """What is left at the end of the answer."""
        held, self._held = self._held, ""
        if not held or self._state == "gap":
            return []
        return [ThinkingDelta(held) if self._state == "thinking" else TextDelta(held)]
