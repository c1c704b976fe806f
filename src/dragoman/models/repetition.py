"""Detects an answer that repeats itself without end, as very small models do. Pure."""

MIN_CHARS = 240
"""Length of the end of an answer that has to consist of repetitions."""
MIN_REPETITIONS = 3
MAX_PERIOD = MIN_CHARS
CHECK_EVERY_CHARS = 32


class RepetitionDetector:
    """Reads the text of one answer."""

    def __init__(self) -> None:
        self._tail = ""
        self._unchecked = 0

    def feed(self, text: str) -> bool:
        """Take the next part. Returns whether the answer ends with the same text over and over."""
        self._tail = (self._tail + text)[-MAX_PERIOD * MIN_REPETITIONS :]
        self._unchecked += len(text)
        if self._unchecked < CHECK_EVERY_CHARS:
            return False
        self._unchecked = 0
        return any(self._repeats(period) for period in range(1, len(self._tail) // MIN_REPETITIONS + 1))

    def _repeats(self, period: int) -> bool:
        length = max(MIN_CHARS, period * MIN_REPETITIONS)
        if length > len(self._tail):
            return False
        end = self._tail[-length:]
        return end[period:] == end[:-period]
