"""The benchmark's own calculations: parsing streams, statistics, and the comparison of streams with the database."""

import json
import sqlite3
from pathlib import Path

import pytest

from bench import check, guard, wire
from bench.figures import Figure, Target
from bench.load import Session
from bench.stats import Spread, drift, lateness, quantile
from bench.wire import Exchange

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FRAMES = (
    b"event: turn_start\ndata: {}\n\n",
    b'id: 2\nevent: text_delta\ndata: {"delta":"Gr\xc3\xbc"}\n\n',
    b": ping\n\n",
    b'event: text_delta\ndata: {"delta":"n"}\n\n',
    b'event: turn_stop\ndata: {"stopReason":"end_turn"}\n\n',
)


def chunked(*chunks: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096])
def test_a_stream_is_parsed_the_same_however_it_was_split(size: int) -> None:
    raw = chunked(FRAMES[0] + FRAMES[1][:9], FRAMES[1][9:] + FRAMES[2], FRAMES[3] + FRAMES[4])
    parts = [raw[at : at + size] for at in range(0, len(raw), size)]
    stream = wire.events(Exchange(0, [float(n) for n in range(len(parts))], parts))
    assert [event.name for event in stream] == ["turn_start", "text_delta", "text_delta", "turn_stop"]
    assert wire.text(stream) == "Grün"
    for event, frame in zip(stream, (FRAMES[0], FRAMES[1], FRAMES[3], FRAMES[4]), strict=True):
        last_byte = raw.rindex(frame[-12:]) + 11  # the end of each frame is unique
        assert event.at == last_byte // size, "an event arrives with the read that contains its last byte"


@pytest.mark.parametrize("cut", [len(HEAD) + 20, -5, -len(FRAMES[4]) - 7])
def test_a_truncated_stream_is_invalid(cut: int) -> None:
    raw = chunked(*FRAMES)[:cut]
    with pytest.raises(wire.InvalidResponse):
        wire.text(wire.events(Exchange(0, [0.0], [raw])))


def test_a_failed_turn_is_invalid() -> None:
    raw = chunked(FRAMES[0], b'event: turn_stop\ndata: {"stopReason":"error"}\n\n')
    with pytest.raises(wire.InvalidResponse, match="ended with error"):
        wire.text(wire.events(Exchange(0, [0.0], [raw])))


def test_lateness_is_relative_to_the_earliest_delta() -> None:
    assert lateness([5.0, 5.75, 6.25], 0.5) == pytest.approx([0.0, 0.25, 0.25])
    assert lateness([5.3, 5.5, 6.0], 0.5) == pytest.approx([0.3, 0.0, 0.0])


def test_drift_is_the_excess_of_the_average_period() -> None:
    assert drift([n * 0.021 for n in range(100)], 0.02) == pytest.approx(0.001)


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([7.0], 0.99)) == (50.0, 99.0, 7.0)


@pytest.mark.parametrize(
    ("value", "at_least", "invalid", "verdict"),
    [(2.0, False, "", "pass"), (2.1, False, "", "FAIL"), (2.1, True, "", "pass"), (1.0, False, "differs", "invalid")],
)
def test_a_figure_passes_only_if_it_is_valid_and_meets_its_target(
    value: float, at_least: bool, invalid: str, verdict: str
) -> None:
    figure = Figure(
        row="saturation",
        subject="dragoman",
        metric="cost",
        unit="µs",
        value=Spread(value, value, value),
        target=Target(2.0, at_least=at_least),
        invalid=invalid,
    )
    assert figure.verdict == verdict


def a_database(folder: Path, answer: str) -> Path:
    file = folder / "dragoman.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE events (session_id TEXT, seq INTEGER, type TEXT, payload TEXT)")
    connection.executemany(
        "INSERT INTO events VALUES ('s', ?, ?, ?)",
        [
            (1, "session_created", "{}"),
            (2, "message_added", '{"message": {"type": "user", "content": "hello"}}'),
            (3, "block_closed", f'{{"block": {{"type": "text", "text": "{answer}"}}}}'),
        ],
    )
    connection.commit()
    connection.close()
    return file


def test_a_database_with_the_streamed_text_matches(tmp_path: Path) -> None:
    check.database(a_database(tmp_path, "Hello!"), [Session("s", [("hello", "Hello!")])])


@pytest.mark.parametrize("stored", ["Hello", "Hello!!", "hello!"])
def test_a_database_with_another_text_is_a_mismatch(tmp_path: Path, stored: str) -> None:
    with pytest.raises(check.Mismatch, match="turn 0 of s"):
        check.database(a_database(tmp_path, stored), [Session("s", [("hello", "Hello!")])])


def test_a_log_with_a_gap_is_a_mismatch(tmp_path: Path) -> None:
    file = a_database(tmp_path, "Hello!")
    connection = sqlite3.connect(file)
    connection.execute("UPDATE events SET seq = 4 WHERE seq = 3")
    connection.commit()
    connection.close()
    with pytest.raises(check.Mismatch, match="has a gap"):
        check.database(file, [Session("s", [("hello", "Hello!")])])


@pytest.mark.parametrize(("measured", "tries"), [([2.7], 1), ([2.9, 2.9, 2.8], 3)])
def test_the_guard_measures_again_before_it_believes_that_a_ratio_has_grown(measured: list[float], tries: int) -> None:
    lines: list[str] = []
    remaining = iter(measured)
    assert guard.grown({"saturation": 2.0}, lambda _: next(remaining), lines.append) == []
    assert len(lines) == tries


def test_the_guard_names_the_rows_that_are_too_slow_in_every_try() -> None:
    ratios = {"saturation": 2.81, "yielding": 4.1}
    assert guard.grown({"saturation": 2.0, "yielding": 3.0}, lambda row: ratios[row], str) == ["saturation"]


def test_the_guard_has_an_accepted_ratio_for_each_measurement() -> None:
    assert json.loads(guard.RATIOS_FILE.read_bytes()).keys() == guard.MEASUREMENTS.keys()
