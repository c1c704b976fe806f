"""Detection of answers that repeat themselves."""

import pytest

from dragoman.models.repetition import RepetitionDetector


def detected_after(text: str, size: int = 7) -> int | None:
    """How many characters were read when the repetition was detected; None if it was not."""
    detector = RepetitionDetector()
    for end in range(size, len(text) + size, size):
        if detector.feed(text[end - size : end]):
            return end
    return None


@pytest.mark.parametrize(
    "unit", ["la ", "and so on, ", "The team's mission was clear.\n\n", "x" * 10 + " no end " * 12]
)
def test_a_repeated_text_is_detected_soon(unit: str) -> None:
    end = detected_after("Once upon a time. " + unit * 500)
    assert end is not None
    assert end < 18 + max(240, 3 * len(unit)) + 2 * 32 + len(unit)


@pytest.mark.parametrize(
    "text",
    [
        "la " * 60,
        "\n".join(f"{number}. Item {number} of the list" for number in range(200)),
        "| a | b |\n|---|---|\n" + "\n".join(f"| {number} | {number * number} |" for number in range(100)),
        "Row, row, row your boat, gently down the stream. " * 4,
    ],
)
def test_lists_tables_and_songs_are_not_repetitions(text: str) -> None:
    assert detected_after(text) is None
