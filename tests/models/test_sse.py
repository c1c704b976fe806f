"""Reading server-sent events of model servers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.models.sse import EventReader, EventTooLong

BODY = b': ping\r\n\r\ndata: {"a": 1}\r\n\r\nevent: x\nid: 4\ndata:{"b": 2}\n\ndata: [DONE]\r\rdata: no empty line'
EVENTS = [b'{"a": 1}', b'{"b": 2}', b"[DONE]", b"no empty line"]


def test_events_are_read_with_any_line_ending() -> None:
    reader = EventReader(1000)
    assert reader.feed(BODY) + reader.close() == EVENTS


@given(st.lists(st.integers(0, len(BODY)), max_size=12))
def test_chunk_boundaries_have_no_effect(cuts: list[int]) -> None:
    reader = EventReader(1000)
    edges = [0, *sorted(cuts), len(BODY)]
    fed = [event for start, end in pairwise(edges) for event in reader.feed(BODY[start:end])]
    assert fed + reader.close() == EVENTS


def test_data_lines_of_one_event_are_joined() -> None:
    assert EventReader(1000).feed(b"data: one\ndata: two\n\n") == [b"one\ntwo"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"data: " + b"x" * 100, id="a line that does not end"),
        pytest.param(b"data: " + b"x" * 100 + b"\n\n", id="a line"),
        pytest.param(b"data: " + b"data: 1234567\n" * 20, id="an event of many lines"),
        pytest.param(b"\n" + b"x" * 100, id="a line after others"),
    ],
)
def test_an_event_that_exceeds_the_limit_is_refused(body: bytes) -> None:
    reader = EventReader(64)
    with pytest.raises(EventTooLong, match="longer than 64 bytes"):
        reader.feed(body)


def test_an_event_that_exceeds_the_limit_byte_by_byte_is_refused() -> None:
    reader = EventReader(64)
    for _ in range(64):
        assert reader.feed(b"x") == []
    with pytest.raises(EventTooLong, match="longer than 64 bytes"):
        reader.feed(b"x")


@given(st.binary(max_size=200))
def test_any_bytes_yield_events_or_a_refusal(body: bytes) -> None:
    reader = EventReader(100)
    try:
        events = reader.feed(body) + reader.close()
    except EventTooLong:
        return
    assert all(b"\r" not in event for event in events)
