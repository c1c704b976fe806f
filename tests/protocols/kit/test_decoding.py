"""Decoding JSON bodies: lone surrogates are replaced, and everything else that is wrong is named with its place."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.protocols.kit.decoding import decode_body, decode_json, replace_lone_surrogates
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson


class Body(msgspec.Struct):
    text: str
    count: int = 0


DECODER = msgspec.json.Decoder(Body)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"Great \ud83d", "Great \ufffd"),
        (r"\uDE00 \ude00", "\ufffd \ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d\ude00\ude00", "😀\ufffd"),
        (r"\\ud83d \ud83d", r"\ud83d" + " \ufffd"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\ud83d\u00e9", "\ufffdé"),
    ],
)
def test_a_lone_surrogate_is_read_as_the_replacement_character(escaped: str, text: str) -> None:
    body = f'{{"text": "{escaped}"}}'.encode()
    assert decode_json(body) == {"text": text}
    assert decode_body(DECODER, body) == Body(text)


def test_a_repaired_body_of_another_shape_names_the_field() -> None:
    with pytest.raises(InvalidBody) as refused:
        decode_body(DECODER, rb'{"text": "\ud83d", "count": "1"}')
    assert refused.value.path == "count"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_valid_texts_are_not_changed(text: str) -> None:
    for body in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert replace_lone_surrogates(body) == body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"text": "x", "count": 1e400}', "the body has a number that is out of range at byte 23"),
        (b'{"text": "1e400", "count": -1e999}', "the body has a number that is out of range at byte 27"),
        (b'\xef\xbb\xbf{"text": "x"}', "the body starts with a byte order mark, which is not JSON"),
        (b'{"text": "\xff"}', "the body is not UTF-8 at byte 10"),
        (b'{"text": \xff}', "the body is not UTF-8 at byte 9"),
        (b'{"text": }', "the body is not JSON: invalid character at byte 9"),
        (b'{"text": "x"} more', "the body is not JSON: trailing characters at byte 15"),
        (b'{"text": "x"', "the body is not JSON: it ends within a value"),
        (b" ", "the body is empty"),
        (b"[" * 100_000, "the body is nested too deeply"),
    ],
)
def test_a_body_that_is_not_json_is_described_with_the_place(body: bytes, message: str) -> None:
    with pytest.raises(InvalidJson) as plain:
        decode_json(body)
    assert str(plain.value) == message
    if body.startswith(b"["):
        return  # the typed decoder stops at the first list
    with pytest.raises(InvalidJson) as typed:
        decode_body(DECODER, body)
    assert str(typed.value) == message
