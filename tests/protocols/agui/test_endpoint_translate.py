"""The translator without a server: joining a run at every cut, and rare log entries.

Specification, B.6 to B.10.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman.core.content import Call
from dragoman.core.events import (
    CallOpened,
    CallParked,
    Event,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
)
from dragoman.core.ids import CallId, MessageId, RunId, UserId
from dragoman.core.stream import Piece, expand
from dragoman.protocols.agui import content as agui_content
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.downgrade import downgrade_events
from dragoman.protocols.agui.messages import Transcript
from dragoman.protocols.agui.streams import reopen_events
from dragoman.protocols.agui.translate import Translator
from tests.conversations import call, calls, script
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any
RUN = RunId("run-1")
FORK = {
    "fork": {
        "description": "dig",
        "script": [{"think": "where"}, {"say": ["go", "ld"], "every_ms": 5}, call("add", a=1, b=2)],
    }
}
MUCH = script(
    {"think": ["h", "m"], "every_ms": 5},
    {"say": ["so ", "far "], "every_ms": 5},
    {"plan": {"status": "draft", "steps": []}},
    {"say": "on "},
    FORK,
    calls(("add", {"a": 1, "b": 2}), ("boom", {})),
    {"think": "again"},
    {"say": "{results}"},
)


class Client:
    """What a client makes of messages and events, and what it refuses (B.7)."""

    def __init__(self, messages: Iterable[agui_content.Message]) -> None:
        self.texts: dict[str, Json] = {each.id: each.content for each in messages}
        self.calls = {
            each.id
            for message in messages
            if isinstance(message, agui_content.AssistantMessage)
            for each in message.tool_calls or ()
        }
        self.open: set[str] = set()

    def take(self, event: agui_events.Event) -> None:  # noqa: C901  # one case for each kind of event
        match event:
            case (
                agui_events.RunStarted()
                | agui_events.MessagesSnapshot()
                | agui_events.ActivitySnapshot()
                | agui_events.Custom()
            ):
                pass
            case agui_events.TextMessageStart(message_id=own) | agui_events.ReasoningMessageStart(message_id=own):
                assert own not in self.texts
                self._begin(f"text {own}")
                self.texts[own] = ""
            case agui_events.TextMessageContent(message_id=own) | agui_events.ReasoningMessageContent(message_id=own):
                assert f"text {own}" in self.open
                self.texts[own] += event.delta
            case agui_events.TextMessageEnd(message_id=own) | agui_events.ReasoningMessageEnd(message_id=own):
                self.open.remove(f"text {own}")
            case agui_events.ReasoningStart(message_id=own):
                self._begin(f"span {own}")
            case agui_events.ReasoningEnd(message_id=own):
                self.open.remove(f"span {own}")
            case agui_events.ToolCallStart(tool_call_id=own):
                assert own not in self.calls
                self.calls.add(own)
                self._begin(f"call {own}")
            case agui_events.ToolCallArgs(tool_call_id=own):
                assert f"call {own}" in self.open
            case agui_events.ToolCallEnd(tool_call_id=own):
                self.open.remove(f"call {own}")
            case agui_events.ToolCallResult(tool_call_id=own, message_id=message_id, content=content):
                assert own in self.calls
                self.texts[message_id] = content
            case agui_events.SubagentStarted(subagent_run_id=own):
                self._begin(f"agent {own}")
            case agui_events.SubagentFinished(subagent_run_id=own) | agui_events.SubagentError(subagent_run_id=own):
                self.open.remove(f"agent {own}")
            case agui_events.RunFinished():
                assert self.open == set()
            case _:
                raise AssertionError(f"no such event here: {event}")

    def _begin(self, what: str) -> None:
        assert what not in self.open
        self.open.add(what)


@requirement("ag-ui-b:connect:any-moment", "ag-ui-b:order")
async def test_a_client_that_joins_at_any_moment_ends_up_with_the_stored_messages(
    app_server: AppServer, endpoint: Endpoint
) -> None:
    body = an_input(MUCH)
    await endpoint.run(body)
    engine = app_server.connection.app.engine  # type: ignore[attr-defined]  # the bridge knows it as any ASGI application
    async with engine.session(UserId("alice"), body["threadId"]) as live:
        events = await engine.history.events(live, 0)
    records = expand(events)
    compared = (agui_content.AssistantMessage, agui_content.ReasoningMessage, agui_content.ToolMessage)
    transcript = Transcript()
    for logged in events:
        transcript.feed(logged)
    messages = (each for each in transcript.messages() if isinstance(each, compared))
    stored = {each.id: each.content for each in messages if each.content}
    first = next(
        place
        for place, each in enumerate(records)
        if isinstance(each, LoggedEvent) and isinstance(each.event, RunStarted)
    )
    started = records[first]
    assert isinstance(started, LoggedEvent)
    assert isinstance(started.event, RunStarted)
    assert sum(isinstance(each, Piece) for each in records) >= 8
    for cut in range(first + 1, len(records)):
        before = records[cut - 1]
        if isinstance(before, LoggedEvent) and isinstance(before.event, CallOpened):
            continue  # the calls of a step and its end are durable together
        translator, transcript = Translator(started.event.run_id, thread_id="t"), Transcript()
        so_far = [event for record in records[:cut] for event in translator.feed(record)]
        for record in records[:cut]:
            if isinstance(record, LoggedEvent):
                transcript.feed(record)
        client = Client(transcript.messages())
        for event in (
            *reopen_events(so_far),
            *(event for record in records[cut:] for event in translator.feed(record)),
        ):
            client.take(event)
        complete = {own: text for own, text in client.texts.items() if own in stored}
        assert complete == stored, cut


def logged(*events: Event) -> list[LoggedEvent]:
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    return [LoggedEvent(seq, at, RUN, event) for seq, event in enumerate(events, 1)]


def end_of(*events: Event) -> agui_events.RunFinished:
    """The last event of a run that waits for the application after these events."""
    started = RunStarted(run_id=RUN, protocol="ag-ui")
    stopped = RunStopped(run_id=RUN, reason="tool_use")
    translator = Translator(RUN, thread_id="t")
    *_, last = [each for record in logged(started, *events, stopped) for each in translator.feed(record)]
    assert isinstance(last, agui_events.RunFinished)
    return last


@requirement("ag-ui-b:interrupts:parked")
def test_a_call_interrupted_by_a_crash_asks_whether_to_run_it_again() -> None:
    opened = CallOpened(message_id=MessageId("m"), index=0, call=Call(CallId("c"), "pay", {}), kind="inline")
    step = (MessageOpened(message_id=MessageId("m")), opened, MessageClosed(message_id=MessageId("m")))
    parked = CallParked(call_id=CallId("c"))
    for events, name in (((*step, parked), "pay"), ((parked,), "a tool")):  # in this run, or made in an earlier one
        outcome = end_of(*events).outcome
        assert isinstance(outcome, agui_content.Interrupted)
        (interrupt,) = outcome.interrupts
        assert (interrupt.id, interrupt.reason) == ("c", "tool_call")
        assert interrupt.message == f"The server restarted while {name} ran, so it may have run already. Run it again?"


@requirement("ag-ui-b:downgrade:unchanged")
def test_1_0_clients_get_every_event_unchanged() -> None:
    end = end_of()
    assert downgrade_events([end], "1.0") == [end]
    pending = msgspec.structs.replace(end, outcome=agui_content.Success(pending_tool_call_ids=("c",)))
    assert downgrade_events([pending], "0.0.59") == [msgspec.structs.replace(end, outcome=None)]
