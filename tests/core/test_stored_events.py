"""Logs of other releases: the untyped run metadata of earlier ones, and event types that only later ones know."""

from datetime import UTC, datetime

import msgspec
import pytest

from dragoman.core.events import (
    LoggedEvent,
    RunQueued,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
    UnknownEvent,
    decode,
    encode,
    type_of,
)
from dragoman.core.history import Assembler, messages_of
from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.recording import TurnSplitter
from dragoman.core.run_metadata import ContextEntry, RunMetadata, effective_time_zone
from dragoman.core.session import apply, initial_state

TOKYO = {"device_timezone": "Asia/Tokyo"}
STORED = [
    (
        (
            b'{"type":"run_started","run_id":"r-1","door":"ag-ui","client_run_id":"c","props":{"state":{"zoom":3},'
            b'"context":[{"description":"where","value":"here"}],"forwarded_props":{"client_time":'
            b'{"device_timezone":"Asia/Tokyo"},"theme":"dark"},"client_time":{"device_timezone":"Asia/Tokyo"},'
            b'"parent_run_id":"before","unknown_interrupts":["x"],"time_zone":"Europe/Berlin","locale":"de"}}'
        ),
        RunStarted(
            run_id=RunId("r-1"),
            protocol="ag-ui",
            client_run_id="c",
            metadata=RunMetadata(
                time_zone="Europe/Berlin",
                locale="de",
                client_time=TOKYO,
                state={"zoom": 3},
                context=(ContextEntry("where", "here"),),
                forwarded={"client_time": TOKYO, "theme": "dark"},
                protocol={"parent_run_id": "before", "unknown_interrupts": ["x"]},
            ),
        ),
    ),
    (
        (
            b'{"type":"run_started","run_id":"r-2","door":"blade","props":{"headless":true,"output_schema":'
            b'{"type":"object"},"model":"m","env":{"A":"1"},"answer_text":"yes","deprecate":["t-1"],'
            b'"attachments":[{"name":"a"}]}}'
        ),
        RunStarted(
            run_id=RunId("r-2"),
            protocol="blade",
            metadata=RunMetadata(
                headless=True,
                output_schema={"type": "object"},
                model="m",
                env={"A": "1"},
                protocol={"answer_text": "yes", "deprecate": ["t-1"], "attachments": [{"name": "a"}]},
            ),
        ),
    ),
    (
        (
            b'{"type":"run_started","run_id":"r-3","door":"agentscope","props":{"agentscope":'
            b'{"response_id":"resp","whole":true},"user":"u-1","extra":{"trace":"t"}}}'
        ),
        RunStarted(
            run_id=RunId("r-3"),
            protocol="agentscope",
            metadata=RunMetadata(user="u-1", forwarded={"trace": "t"}, protocol={"response_id": "resp", "whole": True}),
        ),
    ),
    (
        b'{"type":"run_queued","run_id":"r-4","door":"aap","props":{"stream":"message"}}',
        RunQueued(run_id=RunId("r-4"), protocol="aap", metadata=RunMetadata(protocol={"stream": "message"})),
    ),
    (
        b'{"type":"run_started","run_id":"r-5","door":"blade","props":{"internal":true}}',
        RunStarted(run_id=RunId("r-5"), protocol="blade", metadata=RunMetadata(internal=True)),
    ),
    (
        b'{"type":"run_started","run_id":"r-6","door":"aap"}',
        RunStarted(run_id=RunId("r-6"), protocol="aap"),
    ),
]


@pytest.mark.parametrize(("payload", "event"), STORED)
def test_runs_that_earlier_releases_stored_have_their_metadata(payload: bytes, event: RunStarted | RunQueued) -> None:
    stored = decode(payload)
    assert stored == event
    assert decode(encode(stored)) == event
    assert b'"props"' not in encode(stored)


def test_the_zone_of_the_device_comes_before_the_zone_of_the_profile() -> None:
    assert effective_time_zone(RunMetadata()) == "UTC"
    assert effective_time_zone(RunMetadata(time_zone="Europe/Berlin")) == "Europe/Berlin"
    assert effective_time_zone(RunMetadata(time_zone="Europe/Berlin", client_time=TOKYO)) == "Asia/Tokyo"
    for zone in ("Mars/Olympus", 5):
        client_time = {"device_timezone": zone}
        assert effective_time_zone(RunMetadata(time_zone="Europe/Berlin", client_time=client_time)) == "Europe/Berlin"


# --- types of later releases ------------------------------------------------------------------------------------------

FUTURE = b'{"type": "mood_changed", "mood": "\xe2\x98\xba",  "n": 1.0}'


def test_an_event_of_an_unknown_type_keeps_its_bytes() -> None:
    event = decode(FUTURE)
    assert event == UnknownEvent(event_type="mood_changed", payload=FUTURE)
    assert (type_of(event), encode(event)) == ("mood_changed", FUTURE)
    assert decode(FUTURE.decode()) == event


@pytest.mark.parametrize("payload", [b'{"type":"run_stopped"}', b'{"no":"type"}', b'{"type":7}', b"[]"])
def test_a_damaged_event_is_not_taken_for_an_unknown_one(payload: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(payload)


def test_what_is_folded_from_a_log_skips_unknown_events() -> None:
    at = datetime(2026, 3, 4, tzinfo=UTC)
    created = LoggedEvent(1, at, None, SessionCreated(agent="a", settings=SessionSettings(), protocol="test"))
    state = initial_state(SessionId("s"), UserId("ann"), created)
    unknown = LoggedEvent(2, at, None, decode(FUTURE))
    expected = msgspec.structs.replace(state, seq=2)
    apply(state, unknown)
    assert state == expected
    assert Assembler().feed(unknown) is None
    assert messages_of([created, unknown]) == []
    splitter = TurnSplitter()
    assert [splitter.feed(each) for each in (created, unknown)] == [None, None]
    stopped = LoggedEvent(3, at, None, RunStopped(run_id=RunId("r"), reason="end_turn"))
    apply(state, stopped)
    assert state.seq == 3
