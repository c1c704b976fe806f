"""JSON in frames of server-sent events: one line for every client."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.protocols.kit.frames import encode_json

SEPARATORS = "".join(map(chr, (*range(0x20), 0x7F, 0x85, 0x2028, 0x2029)))


@example(SEPARATORS)
@given(st.text(st.sampled_from(SEPARATORS) | st.characters(exclude_categories=["Cs"])))
def test_no_character_of_a_text_ends_the_line(text: str) -> None:
    """Clients split lines as `str.splitlines` does, such as those with `iter_lines` of httpx."""
    encoded = encode_json({"text": text}).decode()
    assert encoded.splitlines() == [encoded]
    assert json.loads(encoded) == {"text": text}
